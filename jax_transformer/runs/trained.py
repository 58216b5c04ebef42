"""What a trained model and an ensemble of several do alike (§6): translate, score and parse."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Unpack, overload

from jax_transformer.checks import is_whole
from jax_transformer.config import Config, DecodingConfig, override_free
from jax_transformer.data.text import as_lines, check_not_blank, single_lines
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.line_search import LineSearch, Translation
from jax_transformer.decoding.outputs import outputs_now
from jax_transformer.decoding.request import (
    Options,
    Request,
    SearchOptions,
    TextOptions,
    request_of,
)
from jax_transformer.errors import InputError
from jax_transformer.evaluation.score import FEWEST_RESAMPLES, MOST_RESAMPLES
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.runs.run_dir import Run
from jax_transformer.types import Params

KEPT = 8  # searches of a model with different settings

if TYPE_CHECKING:
    from jax_transformer.evaluation.evaluate import Evaluation


class Trained(ABC):
    """A trained model, or an ensemble of several, with its vocabularies."""

    run: Run
    vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    _is_ensemble = False
    _translators: dict[DecodingConfig, LineSearch]

    @property
    @abstractmethod
    def description(self) -> str:
        """A description of the model in one line."""

    @property
    @abstractmethod
    def on_devices(self) -> Params:
        """The parameters on all devices: one copy for everything that the model computes."""

    @abstractmethod
    def _decoded(self) -> tuple[Sequence[Transformer], Params, Ensemble | None]:
        """Return the modules, their parameters, and the ensemble that they are, if they are one."""

    @property
    def config(self) -> Config:
        """Every setting of the run."""
        return self.run.config

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle or a copy has: not the compiled functions, nor arrays on devices."""
        new = {"_translators": dict[Any, Any](), "_copied": list[Any]()}
        own = vars(self).items()
        return {name: new.get(name, value) for name, value in own if name != "on_devices"}

    @overload
    def translate(self, lines: Sequence[str], **options: Unpack[TextOptions]) -> list[str]: ...

    @overload
    def translate(
        self, lines: Sequence[str], **options: Unpack[Options]
    ) -> list[list[Translation]]: ...

    def translate(
        self, lines: Sequence[str], **options: Unpack[Options]
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

        The result has one string for each line. If n_best, samples, scores, token_scores or
        alignments is given, False or 0 too, it has a list of translations for each line, best
        first, samples in the order of their draws: each has `text`, `score` (log P over the length
        penalty; after a prefix, of the rest), `log_prob` (log P in nats), `num_tokens` (with the
        end mark), and `token_log_probs` or `alignment` if these were asked for.

        A line of more than config.data.max_length tokens is cut, with a logged warning. The
        first call with other options compiles. Raises InputError for one str in place of a list,
        options that are out of range or cannot be combined, or a run that parses.
        """
        self.run.task.require("translates", "translate")
        found = self._outputs("translate", lines, options)
        given = {name for name, value in options.items() if value is not None}
        return found if given - TextOptions.__annotations__.keys() else _texts(found)

    @overload
    def parse(self, sentences: Sequence[str], **options: Unpack[SearchOptions]) -> list[str]: ...

    @overload
    def parse(
        self, sentences: Sequence[str], *, n_best: int, **options: Unpack[SearchOptions]
    ) -> list[list[Translation]]: ...

    def parse(
        self, sentences: Sequence[str], *, n_best: int | None = None, **options: Any
    ) -> list[str] | list[list[Translation]]:
        """Parse sentences into Penn bracketings (§6.3), on all devices.

            parser = jt.load("runs/demo-parsing")
            parser.parse(["The old teacher gets up ."])     # ["(TOP (S (NP (DT The) ..."]

        sentences: a list of sentences, their words and punctuation with spaces between. Each
          bracketing is a valid tree over these words, where signs that the training trees lack
          have the Penn Treebank's forms, such as -LSB- for [; a blank sentence gives "".
        n_best, beam_size, alpha: as in `translate`; the `text` of a result is the bracketing.

        Raises InputError for one str in place of a list, n_best larger than the beam, or a run
        that translates.
        """
        self.run.task.require("parses", "parse")
        sentences = single_lines(sentences, "sentences")
        found = self._outputs("parse", sentences, {"n_best": n_best, **options})
        return found if n_best is not None or options.get("scores") else _texts(found)

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
        self.run.task.require("translates", "score")
        pairs = list(zip(*pairs_of("score", sources, targets), strict=True))
        scores = self._cached_translator(self.config.decoding).score_pairs(pairs, None)
        return [score.log_prob if score else math.nan for score in scores]

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str] | Sequence[Sequence[str]],
        *settings: str,
        bootstrap: int = 0,
    ) -> "Evaluation":
        """Translate or parse a text and score the outputs, on all devices.

            found = model.evaluate(["The dog sleeps."], ["Der Hund schläft."])
            for score in [*found.scores, *found.losses]:
                print(score.metric, score, score.signature)
            found.texts                                     # the outputs
            model.evaluate(["The dog sleeps."], ["Der Hund schläft."], "decoding.beam_size=1")

        sources: a list of N sentences; for a parser, words with spaces between, without traces.
        references: a list of N translations, or several such lists, all of which count in BLEU,
          chrF, loss and perplexity; for a parser, N trees.
        settings: changes of settings, as after --set: of the search (decoding), of the scores
          (data.bleu_tokenize, data.bleu_lowercase) or of the languages.
        bootstrap: number of bootstrap resamples for 95% intervals of BLEU and chrF, from 40 to
          10,000; 0 for none.

        The result has `texts`, `scores` (BLEU, the paper's BLEU and chrF; for a parser EVALB's
        scores), `losses` (with the perplexity; an ensemble has none), and `facts` (the number of
        sentences, seconds, and the settings of the search). Nothing is written.

        Raises InputError for one str in place of a list, lists of different lengths, only blank
        sources, a setting that cannot change after training, a bootstrap out of range, or, for a
        parser, bootstrap, several lists of references, or words that are not those of the trees.
        """
        from jax_transformer.evaluation.evaluate import evaluate

        if bootstrap:
            self.run.task.require("translates", "bootstrap")
        bootstrap = int(bootstrap) if isinstance(bootstrap, bool) else bootstrap  # False: none
        fewest, most = FEWEST_RESAMPLES, MOST_RESAMPLES
        if not is_whole(bootstrap) or not (bootstrap == 0 or fewest <= bootstrap <= most):
            expected = f"expected 0, or from {fewest} to {most:,} resamples"
            raise InputError(f"bootstrap: {expected}, found {bootstrap!r}")
        config = override_free(self.config, *settings)
        sources = as_lines(sources, "sources")
        check_not_blank(sources, "sources")
        lists: Any = references if _holds_lists(references) else [references]
        every = [as_lines(each, "references") for each in lists]
        for each in every:
            _check_pairs("evaluate", sources, each)
        self.run.task.check_references(sources, every)
        first, *others = every
        translator = self._cached_translator(config.decoding)
        own = translator.with_params(translator.params)  # a copy, which counts its own progress
        more = {"bootstrap": bootstrap, "others": others, "loss": not self._is_ensemble}
        return evaluate(own, config, sources, first, **more)

    def translator(
        self, decoding: DecodingConfig | None = None, *, devices: Devices | None = None
    ) -> Any:
        """Return a `Translator`, or a `Parser`, which turns lines into lines.

        decoding: the settings of the search; None takes the run's own.
        devices: the devices to decode on, with a copy of the parameters for this translator; None
          takes all, with the one copy that the model's searches share.

        Raises InputError for settings that are out of range.
        """
        decoding = decoding or self.config.decoding
        modules, params, ensemble = self._decoded()
        data = replace(self.config.data, word_positions=False)  # which the first model's are for
        for module in modules:  # checks the settings
            replace(self.config, model=module.config, decoding=decoding, data=data)
        own: dict[str, Any] = {"max_length": self.config.data.max_length, "ensemble": ensemble}
        own["devices"] = devices or all_devices(self.config.model.compute_dtype)
        own["target_vocabulary"] = self.target_vocabulary
        search = self.run.task.search()
        translator = search(modules[0], params, self.vocabulary, decoding, **own)
        return translator if devices else translator.with_params(self.on_devices)

    def check(self, request: Request, decoding: DecodingConfig) -> None:
        """Raise InputError for options that the model does not have, or not with this search."""
        beam_size, ensemble = decoding.beam_size, self._is_ensemble
        self.run.task.check(request, self.config.model, beam_size, ensemble=ensemble)

    def _cached_translator(self, decoding: DecodingConfig) -> Any:
        self._decoded()  # refuses parameters that were changed in place
        found = self._translators.get(decoding)
        if found is None:
            found = self._translators[decoding] = self.translator(decoding)
            for oldest in [*self._translators][:-KEPT]:  # a search over alpha has hundreds
                self._translators.pop(oldest, None)
        return found

    def _outputs(
        self, caller: str, lines: Sequence[str], options: Mapping[str, Any]
    ) -> list[list[Translation]]:
        """Return the outputs of each line. Raises InputError for options that do not fit."""
        given = {name: value for name, value in options.items() if value is not None}
        search = [*SearchOptions.__annotations__]
        changes = {name: given.pop(name) for name in search if name in given}
        if "prefixes" in given:
            given["prefixes"] = single_lines(given["prefixes"], "prefixes")
        request = request_of(given, caller, also=search)
        if request.samples and "beam_size" in changes:
            raise InputError("beam_size cannot be combined with samples; remove one of them")
        decoding = replace(self.config.decoding, **changes)
        self.check(request, decoding)
        translator = self._cached_translator(decoding)
        return outputs_now(translator, as_lines(lines, "lines"), request, data=self.config.data)


@cache
def all_devices(dtype: str) -> Devices:
    """Return all devices, the same object for all models of one precision."""
    return Devices(dtype=dtype)


def _texts(results: Sequence[Sequence[Translation]]) -> list[str]:
    """Return the text of the best translation of each line, "" if there is none."""
    return [found[0].text if found else "" for found in results]


def languages_of(model: Trained) -> str:
    """Describe what a model turns into what: `en to de`, or `a parser`."""
    languages = model.config.data.languages or "languages unknown"
    return languages if model.run.task.verb == "translates" else "a parser"


def pairs_of(
    caller: str, sources: Sequence[str], targets: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return both as lists. Raises InputError unless both are lists of N lines."""
    sources, targets = single_lines(sources, "sources"), single_lines(targets, "targets")
    _check_pairs(caller, sources, targets)
    return sources, targets


def _holds_lists(references: object) -> bool:
    first = next(iter(references), "") if isinstance(references, list | tuple) else ""
    return isinstance(first, Iterable) and not isinstance(first, str | bytes)


def _check_pairs(caller: str, sources: Sequence[str], targets: Sequence[str]) -> None:
    if len(sources) != len(targets):
        other = "reference" if caller == "evaluate" else "target"
        raise InputError(
            f"{caller}: expected a {other} for each source, found {len(sources):,} sources and "
            f"{len(targets):,} {other}s; give lists of the same length"
        )
