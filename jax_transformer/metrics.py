"""Scores that never travel without a signature: BLEU (§6.1) and chrF by sacreBLEU, perplexity."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from jax_transformer.errors import InputError

Tokenizer = Literal["13a", "none", "intl", "char", "zh"]


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100 together with all that is needed to compare it.

    `signature` is sacreBLEU's own, with its version; `detail` is sacreBLEU's
    own account (for BLEU the precisions of 1- to 4-grams, BP, ratio, lengths).
    """

    metric: str
    score: float
    signature: str
    detail: str = ""

    def as_dict(self) -> dict[str, str | float]:
        """The fields by name, ready for JSON."""
        return asdict(self)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Tokenizer = "13a",
    lowercase: bool = False,
) -> Score:
    """Corpus BLEU, 0 to 100, of one hypothesis against one reference per line.

    BP * exp(mean_n log p_n), n = 1..4, BP = min(1, exp(1 - references / hypotheses)).
    Text that is tokenised already is scored with tokenize="none", which cuts
    at white space; otherwise sacreBLEU tokenises and wants plain text.

    Differs: the paper gives no tokenisation; scores compare only under equal signatures.

    Raises:
      InputError: the counts differ or are 0, or the tokeniser is unknown.
    """
    _check_counts(hypotheses, references)
    if tokenize not in get_args(Tokenizer):
        known = ", ".join(get_args(Tokenizer))
        raise InputError(f"expected tokenize to be one of {known}, found '{tokenize}'; choose one")
    # force: do not warn that the text looks tokenised where it was said to be.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    result = metric.corpus_score(hypotheses, [references])
    detail = str(result).split(" ", maxsplit=3)[3]  # after "BLEU = 27.30"
    return Score(result.name, result.score, metric.get_signature().format(), detail)


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    word_order: int = 0,
    lowercase: bool = False,
) -> Score:
    """Corpus chrF2, 0 to 100: F-score (beta 2) of character 1- to 6-grams, spaces left out.

    `word_order=2` adds word 1- and 2-grams: chrF++.

    Raises:
      InputError: the counts differ or are 0.
    """
    _check_counts(hypotheses, references)
    metric = CHRF(word_order=word_order, lowercase=lowercase)
    result = metric.corpus_score(hypotheses, [references])
    return Score(result.name, result.score, metric.get_signature().format())


def perplexity(nll_sum: float, tokens: float) -> float:
    """exp(nll_sum / tokens): per-token perplexity of a negative log-likelihood in nats.

    Infinite where the exponential leaves float64; NaN stays NaN.

    Differs: the paper's perplexities (Table 3) are per word piece too, so they
    compare only under the same vocabulary.

    Raises:
      InputError: there is no token.
    """
    if not tokens > 0:
        raise InputError(
            f"expected a perplexity over 1 token or more, found {tokens}; give text to score"
        )
    try:
        return math.exp(nll_sum / tokens)
    except OverflowError:
        return math.inf


def _check_counts(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise InputError(
                f"expected {name} as a list of lines, found one string; put it in a list"
            )
    if len(hypotheses) != len(references) or not hypotheses:
        raise InputError(
            f"expected one hypothesis for each reference, and at least one, found "
            f"{len(hypotheses):,} hypotheses and {len(references):,} references; score the "
            f"translations of exactly the lines of the reference"
        )
