"""§6 The evaluation of a trained model: its outputs on a text, their scores, and its loss."""

import logging
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from jax_transformer.config import Config, DataConfig
from jax_transformer.data.moses import MOSES_LANGUAGES
from jax_transformer.data.text import readable
from jax_transformer.data.vocabularies.labels import LabelVocabulary
from jax_transformer.decoding.translator import Translator
from jax_transformer.evaluation.bleu import bleu, chrf
from jax_transformer.evaluation.paper_bleu import paper_bleu
from jax_transformer.evaluation.parse_scores import gold_tags_f1, parse_scores, tree_f1
from jax_transformer.evaluation.perplexity import loss_scores
from jax_transformer.evaluation.score import SEARCH, Score
from jax_transformer.parsing.parser import Parser, normalized
from jax_transformer.progress import Progress

logger = logging.getLogger(__name__)

COUNT = 5
LONGEST = 400  # characters of a text on a screen; a model that is hardly trained may write more


@dataclass(frozen=True)
class Evaluation:
    """The best output of a model for each line of a text, and what the outputs are worth.

    texts: the outputs; blank for a blank line. constrained: for each output, True if it is a parse
    from the constrained search. facts: sentences, seconds, and the settings of the search, as in
    results.json. scores: those of the texts. losses, counts: the result of `loss_scores` for the
    references, empty if it was not requested.
    """

    texts: list[str]
    constrained: list[bool]
    facts: dict[str, Any]
    scores: list[Score] = field(default_factory=list)
    losses: list[Score] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def decode(
    translator: Translator, sources: Sequence[str], between: Callable[[], None] | None = None
) -> Evaluation:
    """Translate or parse every line, and measure the time.

    between: a function to call after each batch.
    """
    start = time.perf_counter()
    with Progress("decoding", len(sources), "sentences") as progress:

        def advance(lines: int) -> None:
            progress.update(lines)
            if between:
                between()

        translator.advance = advance
        if isinstance(translator, Parser):
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
    translator: Translator,
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
    None takes `all_scores`.
    loss: False for no loss, which needs another pass of the model.
    bootstrap, others: the same as for `bleu`.
    between: a function to call after each batch; what it raises ends the evaluation.
    """
    losses, counts = [], {}
    if loss:
        every = [references, *others]
        pairs = [*sources] * len(every), [*chain(*every)]
        losses, counts = loss_scores(translator, config, *pairs, between)
    found = decode(translator, sources, between)
    if metrics is None:
        scores = all_scores(found, sources, references, config.data, bootstrap, others)
    else:
        scores = [metric(found.texts, references, config.data) for metric in metrics]
    return replace(found, scores=scores, losses=losses, counts=counts)


def main_score(
    texts: Sequence[str], references: Sequence[str], data: DataConfig, *, gold_tags: bool = False
) -> Score:
    """Return the BLEU of translations, or EVALB's F1 of parses.

    gold_tags: True to take the gold tags, as in training, because EVALB would at first leave out
    most sentences: see `parse_scores`.
    """
    if data.task == "parsing":
        return (gold_tags_f1 if gold_tags else tree_f1)(references, texts)
    texts, references = _composed(texts), _composed(references)
    return bleu(texts, references, tokenize=data.bleu_tokenize, lowercase=data.bleu_lowercase)


class Metric(NamedTuple):
    """A score of the development text that training.keep_best may name.

    score: a function of the outputs, the references and the settings of the data; None for the
    loss of the references. task: the task that has this score; None if both have it.
    """

    score: Callable[[Sequence[str], Sequence[str], DataConfig], Score] | None
    task: str | None
    larger_is_better: bool = True


def _chrf(texts: Sequence[str], references: Sequence[str], data: DataConfig) -> Score:
    return chrf(_composed(texts), _composed(references), lowercase=data.bleu_lowercase)


METRICS = {
    "loss": Metric(None, None, larger_is_better=False),
    "bleu": Metric(main_score, "translation"),
    "chrf": Metric(_chrf, "translation"),
    "f1": Metric(partial(main_score, gold_tags=True), "parsing"),
}


def all_scores(
    found: Evaluation,
    sources: Sequence[str],
    references: Sequence[str],
    data: DataConfig,
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """Return BLEU twice and chrF of translations, or `parse_scores` of parses.

    Tokenized text does not have the paper's BLEU, and neither does a language that Moses has no
    rules for, which is logged. bootstrap, others: the same as for
    `bleu`.
    """
    if data.task == "parsing":
        return parse_scores(sources, found.texts, found.constrained, references)
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


def _composed(lines: Sequence[str]) -> list[str]:
    """Return lines as they are compared.

    A letter and its accent are one character (Unicode's NFC), and white space is spaces, that
    without width too.
    """
    return [unicodedata.normalize("NFC", readable(line, str.isprintable)) for line in lines]


def samples(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    labels: LabelVocabulary | None = None,
    longest: int | None = None,
) -> list[str]:
    """Return texts of three lines for sentences that are spread evenly over a corpus.

    If all outputs are blank, the only text is a line about that.
    labels: a parser's labels; its references are normalized as its training trees were.
    longest: the number of characters to cut each line to; None for whole lines.
    """
    if sources and not any(output.strip() for output in outputs):
        return ["Every output is blank: the model has not learned enough yet; train more steps."]
    shown = []
    for i in sorted({i * len(sources) // COUNT for i in range(COUNT)}) if sources else []:
        reference = normalized(references[i], labels.root) if labels else references[i]
        texts = [_cut(text, longest) for text in (sources[i], outputs[i], reference)]
        shown.append("source      {}\n  model     {}\n  reference {}".format(*texts))
    return shown


def _cut(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]} ... ({len(text):,} characters)"
