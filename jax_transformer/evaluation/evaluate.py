"""§6 The evaluation of a trained model: its outputs on a text, their scores, and its loss."""

import logging
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from jax_transformer.config import Config, DataConfig
from jax_transformer.data.moses import MOSES_LANGUAGES
from jax_transformer.data.text import readable
from jax_transformer.decoding.line_search import LineSearch
from jax_transformer.evaluation.bleu import bleu, chrf
from jax_transformer.evaluation.paper_bleu import paper_bleu
from jax_transformer.evaluation.parse_scores import gold_tags_f1, parse_scores, tree_f1
from jax_transformer.evaluation.perplexity import loss_scores
from jax_transformer.evaluation.score import SEARCH, Score
from jax_transformer.progress import Progress

logger = logging.getLogger(__name__)

COUNT = 5
LONGEST = 400  # characters of a text on a screen; a model that is hardly trained may write more


@dataclass(frozen=True)
class Evaluation:
    """The best output of a model for each line of a text, and what the outputs are worth.

    constrained: for each output, True if it is a parse from the constrained search. facts:
    sentences, seconds, and the settings of the search, as in results.json. losses, counts: the
    result of `loss_scores` for the references, empty if it was not requested.
    """

    texts: list[str]
    constrained: list[bool]
    facts: dict[str, Any]
    scores: list[Score] = field(default_factory=list)
    losses: list[Score] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def decode(
    translator: LineSearch, sources: Sequence[str], between: Callable[[], None] | None = None
) -> Evaluation:
    """Translate or parse every line, and measure the time."""
    start = time.perf_counter()
    with Progress("decoding", len(sources), "sentences") as progress:

        def advance(lines: int) -> None:
            progress.update(lines)
            if between:
                between()

        translator.advance = advance
        translator.keeps_words = True
        found = translator.translate_lines(sources)
    seconds = time.perf_counter() - start
    search = {name: getattr(translator.decoding, name) for name in SEARCH}
    return Evaluation(
        [outputs[0].text if outputs else "" for outputs in found],
        [bool(outputs) and outputs[0].constrained for outputs in found],
        {"sentences": len(sources), "seconds": round(seconds, 2), **search},
    )


def evaluate(
    translator: LineSearch,
    config: Config,
    sources: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[Callable[..., Score]] | None = None,
    *,
    loss: bool = True,
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
    between: Callable[[], None] | None = None,
) -> Evaluation:
    """Decode a text, score the outputs, and compute the loss of the references.

    metrics: functions of the outputs, the references and `config.data`, such as those of METRICS;
    None takes all of SCORES.
    loss: False for no loss, which needs another pass of the model.
    bootstrap, others: the same as for `bleu`; they do not change the scores of `metrics`.
    between: a function to call after each batch; what it raises ends the evaluation.
    """
    losses, counts = [], {}
    if loss:
        pairs = [*sources] * (1 + len(others)), [*chain(references, *others)]
        losses, counts = loss_scores(translator, config, *pairs, between)
    found = decode(translator, sources, between)
    if metrics is None:
        every = SCORES[config.data.task].every
        scores = every(found, sources, references, config.data, bootstrap, others)
    else:
        scores = [metric(found.texts, references, config.data) for metric in metrics]
    return replace(found, scores=scores, losses=losses, counts=counts)


class Metric(NamedTuple):
    """A score of the development text that training.keep_best may name; None for the loss."""

    score: Callable[[Sequence[str], Sequence[str], DataConfig], Score] | None
    larger_is_better: bool = True


def _bleu(texts: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    own = {"tokenize": data.bleu_tokenize, "lowercase": data.bleu_lowercase}
    return bleu(_composed(texts), _composed(references), **own)


def _chrf(texts: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    return chrf(_composed(texts), _composed(references), lowercase=data.bleu_lowercase)


METRICS = {
    "loss": Metric(None, larger_is_better=False),
    "bleu": Metric(_bleu),
    "chrf": Metric(_chrf),
    # With the gold tags, because EVALB would at first leave out most sentences.
    "f1": Metric(lambda texts, references, _: gold_tags_f1(references, texts)),
}


def translation_scores(
    found: Evaluation,
    sources: Sequence[str],
    references: Sequence[str],
    data: DataConfig,
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """Return BLEU twice and chrF.

    Tokenized text does not have the paper's BLEU, and neither does a language that Moses has no
    rules for, which is logged.
    """
    if bootstrap:
        logger.info("bootstrap   scoring %s samples of the sentences ...", f"{bootstrap:,}")
    texts, references = _composed(found.texts), _composed(references)
    others = [_composed(other) for other in others]
    same: dict[str, Any] = {"bootstrap": bootstrap, "others": others}
    options = {"lowercase": data.bleu_lowercase, **same}
    scores = [bleu(texts, references, tokenize=data.bleu_tokenize, **options)]
    if data.bleu_tokenize != "none" and data.target_language in MOSES_LANGUAGES:
        scores.append(paper_bleu(texts, references, data.target_language, **same))
    elif data.bleu_tokenize != "none":
        logger.warning(
            f"bleu_paper is left out: data.target_language={data.target_language}, and Moses has "
            f"rules for {', '.join(MOSES_LANGUAGES)} alone"
        )
    return [*scores, chrf(texts, references, **options)]


class TaskScores(NamedTuple):
    """The first score of outputs of a task, as a `Metric` has it, and all of them."""

    first: Callable[[Sequence[str], Sequence[str], DataConfig], Score]
    every: Callable[..., list[Score]]


SCORES = {
    "translation": TaskScores(_bleu, translation_scores),
    "parsing": TaskScores(
        lambda texts, references, _: tree_f1(references, texts),
        lambda found, sources, references, *_: parse_scores(
            sources, found.texts, found.constrained, references
        ),
    ),
}


def _composed(lines: Sequence[str]) -> list[str]:
    """Return lines as they are compared: in NFC, and all white space as spaces."""
    return [unicodedata.normalize("NFC", readable(line, str.isprintable)) for line in lines]


def samples(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    shown: Callable[[str], str] = str,
    longest: int | None = None,
) -> list[str]:
    """Return texts of three lines for sentences that are spread evenly over a corpus.

    shown: a function that writes a reference as the model would. longest: the number of characters
    to cut each line to; None for whole lines.
    """
    if sources and not any(output.strip() for output in outputs):
        return ["Every output is blank: the model has not learned enough yet; train more steps."]
    found = []
    for i in sorted({i * len(sources) // COUNT for i in range(COUNT)}) if sources else []:
        texts = sources[i], outputs[i], shown(references[i])
        texts = [_cut(text, longest) for text in texts]
        found.append("source      {}\n  model     {}\n  reference {}".format(*texts))
    return found


def _cut(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]} ... ({len(text):,} characters)"
