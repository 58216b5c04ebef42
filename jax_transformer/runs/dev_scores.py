"""The scores of the development text during training."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from jax_transformer.data.prepare import text_lines
from jax_transformer.data.token_store import TokenStore
from jax_transformer.decoding.translator import Translator
from jax_transformer.evaluation.bleu import chrf, perplexity
from jax_transformer.evaluation.corpus_scores import decode, main_score
from jax_transformer.evaluation.perplexity import summed_loss
from jax_transformer.parallel import Devices
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runs.samples import samples
from jax_transformer.runs.training_data import TrainingData
from jax_transformer.types import Params


class DevResult(NamedTuple):
    """What one evaluation found."""

    line: dict[str, Any]  # for metrics.jsonl, without the step
    scores: dict[str, float]  # by the values of training.keep_best
    samples: list[str]  # outputs, for a person
    text: str  # the same scores, for a person


class DevScores:
    """An evaluation of parameters on the development text: its loss, and its greedy outputs."""

    def __init__(
        self,
        model: TrainedModel,
        folder: RunFolder,
        devices: Devices,
        evaluate: Callable[..., Any],
        unstack: Callable[[Params], Params],
        store: TokenStore,
        data: TrainingData,
    ) -> None:
        """Hold what the evaluation needs; nothing is compiled yet.

        model: without parameters. evaluate: the loss of parameters on the devices, and a batch.
        unstack: what makes the model's parameters of those.
        """
        self._unstack = unstack
        self._model, self._folder, self._devices = model, folder, devices
        self._evaluate, self._store, self._data = evaluate, store, data
        self._translator: Translator | None = None

    def __call__(self, params: Params, between: Callable[[], None]) -> DevResult:
        """Return the scores of parameters that are on the devices.

        between: a function to call after each batch; what it raises ends the evaluation.
        """
        start, config = time.perf_counter(), self._model.config
        pads = self._model.module.pad_id, self._model.module.output_pad_id
        plan = self._store, self._data.dev_plan, self._data.dev_shapes, pads
        loss, nll, tokens = summed_loss(self._evaluate, params, *plan, between)
        sources, references = text_lines(self._folder, "dev")
        texts = self._greedy(self._unstack(params), sources, between)
        score = main_score(texts, references, config.data, gold_tags=True)
        parses, greedy = self._model.labels is not None, {score.metric: score.score}
        scores = {"loss": loss / tokens, "f1" if parses else "bleu": score.score}
        if config.training.keep_best == "chrf":
            found = chrf(texts, references, lowercase=config.data.bleu_lowercase).score
            scores["chrf"] = greedy["chrf"] = found
        line = {
            "loss": loss / tokens,
            "nll": nll / tokens,
            "perplexity": perplexity(nll, tokens),
            **{f"greedy_{name}": value for name, value in greedy.items()},
            "seconds": round(time.perf_counter() - start, 3),
        }
        text = (
            f"loss {line['loss']:.3f}, perplexity {line['perplexity']:.3f}, greedy "
            f"{'F1 with the tags of gold' if parses else 'BLEU'} {score.score:.2f}; "
            f"{line['seconds']:.1f} s"
        )
        shown = samples(sources, texts, references, self._model.labels)
        return DevResult(line, scores, shown, text)

    def _greedy(self, params: Params, sources: list[str], between: Callable[[], None]) -> list[str]:
        if self._translator is None:
            decoding = replace(self._model.config.decoding, beam_size=1, narrowing=False)
            self._translator = self._model.translator(decoding, devices=self._devices)
        self._translator.params = params
        try:
            return decode(self._translator, sources, between).texts
        finally:
            self._translator.params = {}  # the devices' memory is training's again
