"""§6 Decoding a corpus with a trained model, and the scores of its outputs by task."""

import logging
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax_transformer.config import DataConfig
from jax_transformer.data.moses import MOSES_LANGUAGES
from jax_transformer.data.text import readable
from jax_transformer.decoding.translator import Translator
from jax_transformer.evaluation.bleu import bleu, chrf
from jax_transformer.evaluation.paper_bleu import paper_bleu
from jax_transformer.evaluation.parse_scores import gold_tags_f1, parse_scores, tree_f1
from jax_transformer.evaluation.score import Score
from jax_transformer.parsing.parser import Parser
from jax_transformer.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoded:
    """The best output for each line of a corpus, and facts about the decoding.

    texts: the outputs; blank for a blank line.  constrained: for each output, True if it is a parse
    from the constrained search.  facts: sentences, seconds, beam_size, alpha, patience,
    narrowing and length_penalty, as in results.json.
    """

    texts: list[str]
    constrained: list[bool]
    facts: dict[str, int | float | str | None]


def decode(
    translator: Translator, sources: Sequence[str], between: Callable[[], None] | None = None
) -> Decoded:
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
    decoding = translator.decoding
    return Decoded(
        [outputs[0].text if outputs else "" for outputs in found],
        [bool(outputs) and outputs[0].constrained for outputs in found],
        {
            "sentences": len(sources),
            "seconds": round(seconds, 2),
            "beam_size": decoding.beam_size,
            "alpha": decoding.alpha,
            "patience": decoding.patience,
            "narrowing": decoding.narrowing,
            "length_penalty": decoding.length_penalty,
        },
    )


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


def all_scores(
    decoded: Decoded,
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
    texts = decoded.texts
    if data.task == "parsing":
        return parse_scores(sources, texts, decoded.constrained, references)
    texts, references = _composed(texts), _composed(references)
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
