"""A trained model out of a run folder: `load(run_dir)` gives a `TrainedModel` (§6).

model = load("runs/demo")
model.translate(["The old teacher opens the door."])
"""

import dataclasses
import math
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Unpack, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jax_transformer.config import Config, DecodingConfig, ModelConfig
from jax_transformer.data.manifest import check_same
from jax_transformer.data.sources import Sources
from jax_transformer.data.text import as_lines, single_line, single_lines
from jax_transformer.data.vocabularies import read_vocabulary
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.decoding.alignments import Alignment, align_pairs
from jax_transformer.decoding.batches import padded_length
from jax_transformer.decoding.generate import Ensemble, attention_maps
from jax_transformer.decoding.outputs import outputs_now
from jax_transformer.decoding.request import Options, TextOptions, request_of
from jax_transformer.decoding.translator import Translation, Translator
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, check_not_forked
from jax_transformer.parsing.linearize import is_tag
from jax_transformer.parsing.parser import Parser
from jax_transformer.parsing.word_positions import WordTransformer
from jax_transformer.runs.results import scores_of
from jax_transformer.runs.run_dir import (
    IMPORTED,
    Run,
    RunFolder,
    is_step,
    require_task,
    step_range,
)
from jax_transformer.runtime.compilation_cache import enable_compilation_cache
from jax_transformer.training.train_step import abstract_params
from jax_transformer.types import Params


class AttentionMap(NamedTuple):
    """The weights of one attention of one layer: `weights[h, q, k]` of query q and key k."""

    weights: Float[np.ndarray, "H Q K"]  # each row over K sums to 1
    queries: list[str]  # the Q pieces
    keys: list[str]  # the K pieces


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained model with its vocabulary, made by `load`.

    Methods: `translate`, `score`, `align` and `attention_maps` for a run that translates, `parse`
    for one that parses; `with_params(params)` is the same model with other parameters, and
    `save(folder)` writes it as a run. Attributes, to do anything else:

      module: the Flax module, `module.apply({"params": params}, source, target)` gives logits; a
        row of source is `vocabulary.encode(line, eos=True)`, one of target begins with BOS
      params: its parameters, a tree of arrays
      config: every setting of the run
      vocabulary: the map from text to token ids and back; of the words alone if the run parses
      target_vocabulary: that of the target, the same object if one serves both sides; the labels of
        trees, a LabelVocabulary, if the run parses
      run: the description of the training: experiment, seed, files
      checkpoint, steps: the checkpoint's name, and the training steps that it is the mean of
      scores: the scores of this checkpoint in the run's results.json, the newest last
    """

    run: Run
    vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    module: Transformer
    params: Params
    checkpoint: str
    steps: list[int]
    scores: list[dict[str, Any]] = field(default_factory=list, repr=False)
    _translators: dict[DecodingConfig, Translator] = field(
        default_factory=dict, init=False, repr=False
    )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a copy has: not the compiled functions, nor arrays on devices."""
        given = vars(self) | {"_translators": {}}
        given.pop("on_devices", None)
        return given

    @property
    def config(self) -> Config:
        """Every setting of the run."""
        return self.run.config

    @property
    def labels(self) -> LabelVocabulary | None:
        """The target's vocabulary if the run parses."""
        labels = self.target_vocabulary
        return labels if isinstance(labels, LabelVocabulary) else None

    @property
    def description(self) -> str:
        """A description of the model: `demo, averaged checkpoint, steps 2,100 to 2,500`."""
        return f"{self.run.experiment}, {self.checkpoint} checkpoint, {step_range(self.steps)}"

    def __repr__(self) -> str:
        """Describe run, checkpoint, languages and sizes in one line."""
        data, model = self.config.data, self.config.model
        languages = data.languages or "languages unknown"
        return (
            f"<TrainedModel: {self.description}; {'a parser' if self.labels else languages}; "
            f"{model.num_layers} + {model.num_decoder_layers} layers, d_model {model.d_model}, "
            f"{sum(array.size for array in jax.tree.leaves(self.params)):,} parameters>"
        )

    def with_params(self, params: Params) -> "TrainedModel":
        """Return the same model with other parameters; this one stays as it is.

            model.with_params(jax.tree.map(jnp.zeros_like, model.params)).translate(["Who sleeps?"])

        params: a tree with the names and shapes of `model.params`. Compiled functions are shared.
        Raises InputError for other names or shapes.
        """
        expected = jax.tree.map(jnp.shape, abstract_params(self.module))
        if jax.tree.map(jnp.shape, params) != expected:
            raise InputError(
                "with_params: expected a tree with the names and shapes of model.params, found "
                "another; change the values alone"
            )
        model = dataclasses.replace(self, params=params, scores=[])
        for key, translator in self._translators.items():
            model._translators[key] = translator.with_params(model.on_devices)
        return model

    def save(self, folder: str | Path) -> None:
        """Write the model as a run: load, translate, score, export or continue from it.

            model.with_params(params).save("runs/changed")

        folder: a new one, or its URL in a bucket. It has no text, and cannot be trained on itself;
        `init_from` of another run continues from it. Raises InputError if a run is there.
        """
        from jax_transformer.runs.saving import write_model  # orbax takes a second to import

        run = dataclasses.replace(
            self.run, sources=Sources(), vocabularies=None, initial=None, corpus=IMPORTED
        )
        params = jax.device_get(self.params)
        model = self.vocabulary, self.target_vocabulary, params, self.steps
        write_model(RunFolder(folder), run, *model)

    @overload
    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        alpha: float | None = None,
        **options: Unpack[TextOptions],
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        alpha: float | None = None,
        **options: Unpack[Options],
    ) -> list[list[Translation]]: ...

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam_size: int | None = None,
        alpha: float | None = None,
        **options: Unpack[Options],
    ) -> list[str] | list[list[Translation]]:
        """Translate lines of text by beam search (§6.1) or by sampling, on all devices.

            model = jt.load("runs/demo")
            model.translate(["The dog sleeps."])            # ["Der Hund schläft."]
            for best in model.translate(["The dog sleeps."], n_best=3)[0]:
                print(best.score, best.text)
            model.translate(["The dog sleeps."], samples=5, temperature=0.8, seed=1)
            model.translate(["The dog sleeps."], prefixes=["Ein"], without=["Hund"])
            model.translate(["The dog sleeps. The cat too."], split_sentences=True)

        lines: a list of sentences in the source language; a blank one gives "".
        beam_size, alpha: the width of the beam (1 is greedy search) and the exponent of the length
          penalty; None takes the run's own.
        options: the options that docs/decoding.md lists: n_best, scores, token_scores, alignments
          (with alignment_layer and alignment_head); samples (with temperature, top_k, top_p and
          seed); mbr; prefixes (with inside_word); min_length, no_repeat_ngram, without; and
          split_sentences.

        The result has one string for each line. With n_best, samples, scores, token_scores or
        alignments it has a list of translations for each line, best first, samples in the order of
        their draws: each has `text`, `score` (log P over the length penalty; after a prefix, of
        the rest), `log_prob` (log P in nats), `num_tokens` (with the end mark), and
        `token_log_probs` or `alignment` if these were asked for.

        A line of more than config.data.max_length tokens is cut, with a logged warning. The
        first call with other options compiles. Raises InputError for one str in place of a list,
        options that are out of range or cannot be combined, or a run that parses.
        """
        require_task(self.run, "translation", "translate")
        found = self._outputs("translate", lines, beam_size, alpha, options)
        given = {name for name, value in options.items() if value is not None}
        return found if given - TextOptions.__annotations__.keys() else _texts(found)

    @overload
    def parse(
        self,
        sentences: Sequence[str],
        *,
        n_best: None = None,
        beam_size: int | None = None,
        alpha: float | None = None,
    ) -> list[str]: ...

    @overload
    def parse(
        self,
        sentences: Sequence[str],
        *,
        n_best: int,
        beam_size: int | None = None,
        alpha: float | None = None,
    ) -> list[list[Translation]]: ...

    def parse(
        self,
        sentences: Sequence[str],
        *,
        n_best: int | None = None,
        beam_size: int | None = None,
        alpha: float | None = None,
        **unknown: Any,
    ) -> list[str] | list[list[Translation]]:
        """Parse sentences into Penn bracketings (§6.3), on all devices.

            parser = jt.load("runs/demo-parsing")
            parser.parse(["The old teacher gets up ."])     # ["(TOP (S (NP (DT The) ..."]

        sentences: a list of sentences, their words and punctuation with spaces between. Each
          bracketing is a valid tree over exactly these words; a blank sentence gives "".
        n_best, beam_size, alpha: as in `translate`; the `text` of a result is the bracketing.

        Raises InputError for one str in place of a list, n_best larger than the beam, or a run
        that translates.
        """
        require_task(self.run, "parsing", "parse")
        sentences = single_lines(sentences, "sentences")
        options = {"n_best": n_best, **unknown}
        found = self._outputs("parse", sentences, beam_size, alpha, options)
        return _texts(found) if n_best is None else found

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Return log P(target | source) of each pair in nats, the end mark included.

            model.score(["The dog sleeps."] * 2, ["Der Hund schläft.", "Der Mann lacht."])

        sources, targets: two lists of N sentences; targets[i] translates sources[i].

        The result of a pair is nan if a side is blank, or if the target has more than
        config.data.max_length + config.decoding.max_extra_length tokens; a source that is too long
        is cut. Both are logged as warnings. For the nats per token divide by
        `len(model.target_vocabulary.encode(target)) + 1`.

        Raises InputError for one str in place of a list, lists of different lengths, or a run that
        parses.
        """
        require_task(self.run, "translation", "score")
        pairs = _pairs("score", sources, targets)
        scores = self._cached_translator(self.config.decoding).score_pairs(pairs, None)
        return [score.log_prob if score else math.nan for score in scores]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        layer: int | None = None,
        head: int | None = None,
    ) -> list[Alignment]:
        """Return which words of each pair belong together, by the attention over the source.

            model.align(["The dog sleeps."], ["Der Hund schläft."])   # [[(0, 0), (1, 1), (2, 2)]]

        sources, targets: two lists of N sentences; targets[i] translates sources[i].
        layer: of the decoder, from 0; None takes the last but one, of two the last. head: from
          0; None takes the mean of the heads.

        The result has for each pair a list of (source word, target word), from 0. Words stand
        between spaces. Each target word belongs to one source word; a blank side gives [], and
        words after the first config.data.max_length tokens of a line have no partner.

        Raises InputError for one str in place of a list, lists of different lengths, a layer or
        head that the model does not have, or a run that parses.
        """
        require_task(self.run, "translation", "align")
        pairs = _pairs("align", sources, targets)
        translator = self._cached_translator(self.config.decoding)
        return align_pairs(translator, pairs, layer=layer, head=head, first=None)

    def attention_maps(self, source: str, target: str) -> dict[str, AttentionMap]:
        """Return the attention weights of every layer and head on one sentence pair (§3.2.3).

            maps = model.attention_maps("The dog sleeps.", "Der Hund schläft.")
            weights, queries, keys = maps["decoder_0/cross_attention"]
            weights.shape                                   # (heads, len(queries), len(keys))

        The keys of the result are "encoder_N/self_attention", "decoder_N/self_attention" and
        "decoder_N/cross_attention". The pieces of a source end with the end mark. The pieces of
        the decoder are those that it reads, from the begin mark on; each position predicts the
        next one.

        Raises InputError for a blank sentence, one of more than config.data.max_length tokens, or a
        run that parses.
        """
        require_task(self.run, "translation", "attention_maps")
        check_not_forked()
        vocabularies = {"encoder": self.vocabulary, "decoder": self._translated_into}
        source_ids = [*self._tokens("source", source), self.vocabulary.eos_id]
        target_ids = [self._translated_into.bos_id, *self._tokens("target", target)]
        ids = {"encoder": source_ids, "decoder": target_ids}
        # Padded, so that few lengths are compiled.
        length = padded_length(max(map(len, ids.values())), self.config.data.max_length)
        padded = {side: np.full((1, length), vocabularies[side].pad_id) for side in ids}
        for side in ids:
            padded[side][0, : len(ids[side])] = ids[side]
        translator = self._cached_translator(self.config.decoding)
        devices = translator.devices
        rows = tuple(np.repeat(tokens, devices.count, axis=0) for tokens in padded.values())
        compiled = _attention_maps(devices, self.module)  # pyright: ignore[reportArgumentType]
        maps = compiled(translator.params, rows)
        pieces = {side: vocabularies[side].pieces(ids[side]) for side in ids}
        result = {}
        for name, weights in devices.gather(maps).items():
            queries = pieces[name.split("_")[0]]
            keys = pieces["encoder"] if name.endswith("cross_attention") else queries
            weights = weights[0, :, : len(queries), : len(keys)]
            result[name] = AttentionMap(weights, queries, keys)
        return result

    def translator(
        self,
        decoding: DecodingConfig | None = None,
        *,
        devices: Devices | None = None,
    ) -> Translator:
        """Return a `Translator`, or a `Parser`, which turns lines into lines.

        decoding: the settings of the search; None takes the run's own.
        devices: the devices to decode on, with a copy of the parameters for this translator; None
          takes all, with the one copy that the model's searches share.

        Raises InputError for settings that are out of range.
        """
        model = (*self.decoded, self.vocabulary)
        decoding = decoding or self.config.decoding
        for config in self.model_configs:  # checks them
            dataclasses.replace(self.config, model=config, decoding=decoding)
        own: dict[str, Any] = {"max_length": self.config.data.max_length}
        own["devices"] = devices or _all_devices(self.config.model.compute_dtype)
        if self.labels:
            translator = Parser(*model, self.labels, decoding, **own)
        else:
            own["target_vocabulary"] = self._translated_into
            translator = Translator(*model, decoding, **own)
        return translator if devices else translator.with_params(self.on_devices)

    @property
    def decoded(self) -> tuple[Transformer | Ensemble, Params]:
        """What a translator is given: the module and its parameters."""
        return self.module, self.params

    @cached_property
    def on_devices(self) -> Params:
        """The parameters on all devices: one copy for everything that the model computes."""
        return _all_devices(self.config.model.compute_dtype).replicate(self.params)

    @property
    def model_configs(self) -> list[ModelConfig]:
        """The settings of each module that decodes."""
        return [self.config.model]

    @property
    def _translated_into(self) -> Vocabulary:
        return self.target_vocabulary

    def _cached_translator(self, decoding: DecodingConfig) -> Translator:
        if decoding not in self._translators:
            self._translators[decoding] = self.translator(decoding)
        return self._translators[decoding]

    def _outputs(
        self,
        caller: str,
        lines: Sequence[str],
        beam_size: int | None,
        alpha: float | None,
        options: Mapping[str, Any],
    ) -> list[list[Translation]]:
        """Return the outputs of each line. Raises InputError for options that do not fit."""
        changes = {"beam_size": beam_size, "alpha": alpha}
        given = {name: value for name, value in options.items() if value is not None}
        if "prefixes" in given:
            given["prefixes"] = single_lines(given["prefixes"], "prefixes")
        request = request_of(given, caller, also=[*changes])
        changes = {name: value for name, value in changes.items() if value is not None}
        decoding = dataclasses.replace(self.config.decoding, **changes)
        kind = {"parses": self.labels is not None, "ensemble": len(self.model_configs) > 1}
        request.check_model(decoding.beam_size, **kind)
        translator = self._cached_translator(decoding)
        return outputs_now(translator, as_lines(lines, "lines"), request, data=self.config.data)

    def _tokens(self, side: str, text: str) -> list[int]:
        if not isinstance(text, str):
            raise InputError(
                f"attention_maps: expected the {side} as one str, found a {type(text).__name__}; "
                "give one sentence"
            )
        vocabulary = self.vocabulary if side == "source" else self._translated_into
        tokens, most = vocabulary.encode(single_line(text, side)), self.config.data.max_length - 1
        if not 0 < len(tokens) <= most:
            raise InputError(
                f"attention_maps: expected a {side} of 1 to {most:,} tokens, found {len(tokens):,};"
                " give another sentence"
            )
        return tokens


@cache
def _all_devices(dtype: str) -> Devices:
    return Devices(dtype=dtype)


@lru_cache(maxsize=16)  # so that a model compiles once, whatever its parameters
def _attention_maps(devices: Devices, module: Transformer) -> Callable[..., Any]:
    return devices.map_rows(lambda params, rows: attention_maps(module, params, *rows))


def _texts(results: Sequence[Sequence[Translation]]) -> list[str]:
    """Return the text of the best translation of each line, "" if there is none."""
    return [found[0].text if found else "" for found in results]


def _pairs(caller: str, sources: Sequence[str], targets: Sequence[str]) -> list[tuple[str, str]]:
    """Return (source, target) of each pair. Raises InputError unless both are lists of N lines."""
    sources, targets = single_lines(sources, "sources"), single_lines(targets, "targets")
    if len(sources) != len(targets):
        raise InputError(
            f"{caller}: expected a target for each source, found {len(sources):,} sources and "
            f"{len(targets):,} targets; give lists of the same length"
        )
    return list(zip(sources, targets, strict=True))


def load(run_dir: str | Path | RunFolder, checkpoint: str | int | None = None) -> TrainedModel:
    """Load the trained model of one run: see `runs.ensemble.load`, which takes several too."""
    # Orbax takes a second to import.
    from jax_transformer.runs.best_step import read_best, require_best
    from jax_transformer.runs.checkpoints import read_origin, restore_params

    if not isinstance(run_dir, str | os.PathLike | RunFolder):
        raise InputError(
            f"run_dir: expected a path, found {reprlib.repr(run_dir)}; give the --workdir of a run"
        )
    enable_compilation_cache()
    folder = run_dir if isinstance(run_dir, RunFolder) else RunFolder(run_dir)
    run = folder.load_run()
    folder.fetch_steps(folder.averaged)
    if checkpoint not in (None, "averaged") or not folder.averaged.is_dir():
        folder.fetch_steps(folder.checkpoints)
    if not (folder.has_checkpoints() or folder.averaged.is_dir()):
        raise InputError(
            f"{folder.path}: expected a trained model, found no checkpoint; train it first with "
            f"python -m experiments.train --workdir {folder.quoted}"
        )
    checkpoint = _checkpoint_name(folder, checkpoint)
    step = int(checkpoint) if checkpoint.isdecimal() else None
    if checkpoint == "best":
        found = read_best(run.config.training, folder.averaged, folder.checkpoints)
        step = require_best(found, folder.address).step
    if step is not None:
        folder.fetch_steps(folder.checkpoints, lambda _: [step])
    checkpoints = folder.averaged if checkpoint == "averaged" else folder.checkpoints
    origin = read_origin(checkpoints, step)
    if origin:
        check_same(folder.path, folder.manifest.copy(), origin)
    source, target = load_vocabularies(folder)
    module = build_model(run, source, target)
    steps, params = restore_params(checkpoints, abstract_params(module), step)
    for array in jax.tree.leaves(params):
        array.setflags(write=False)  # a change in place would not reach the devices
    scores = scores_of(folder, checkpoint, steps)
    return TrainedModel(run, source, target, module, params, checkpoint, steps, scores)


def _checkpoint_name(folder: RunFolder, checkpoint: str | int | None) -> str:
    """Return `averaged`, `last`, `best`, or the digits of a step."""
    averaged = folder.averaged.is_dir()
    if checkpoint is None:
        return "averaged" if averaged else "last"
    name = str(checkpoint)
    if name == "averaged" and not averaged:
        raise InputError(
            f"{folder.path}: expected an averaged model, found none; make it with "
            f"python -m experiments.average --workdir {folder.quoted}"
        )
    if name not in ("averaged", "last", "best") and not is_step(name):
        raise InputError(
            f"checkpoint={name}: expected averaged, last, best or the step of a checkpoint"
            + did_you_mean(name, ["last", "averaged", "best"])
        )
    return name


def build_model(run: Run, source: Vocabulary, target: Vocabulary) -> Transformer:
    """Return the Flax module that a run's settings describe."""
    fused = run.config.model.fused_attention and jax.default_backend() == "gpu"
    model = dataclasses.replace(run.config.model, fused_attention=fused)
    words = source.size, source.pad_id
    if isinstance(target, LabelVocabulary):
        if run.config.data.word_positions:
            tags = bytes(bool(name) and is_tag(name) for name in target.names)
            return WordTransformer(
                model, *words, target.size, word_starts=source.word_starts, tags=tags
            )
        return Transformer(model, *words, target.size)
    if target is source or target.all_pieces == source.all_pieces:
        return Transformer(model, *words)
    return Transformer(model, *words, target.size, target.pad_id)


def load_vocabularies(folder: RunFolder) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target, the same object if one serves both.

    Raises InputError if they are not what the folder's manifest lists.
    """
    manifest, remedy = folder.manifest, "put back a copy"
    source = read_vocabulary(manifest.content(folder.vocabulary, remedy))
    if folder.target_vocabulary.name in manifest.sums:
        return source, read_vocabulary(manifest.content(folder.target_vocabulary, remedy))
    return source, source
