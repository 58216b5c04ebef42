"""Scores that never travel without a signature: BLEU (§6.1) and chrF by sacreBLEU, perplexity."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

from jax_transformer.errors import InputError

Tokenizer = Literal["13a", "none", "intl", "char", "zh"]


@dataclass(frozen=True)
class Score:
    """A number together with all that is needed to compare it.

    `signature` is sacreBLEU's own, with its version; `detail` is sacreBLEU's
    own account (for BLEU the precisions of 1- to 4-grams, BP, ratio, lengths).
    `mean` and `interval`: under bootstrap resampling 95% of the samples lie within
    mean +- interval, half the width between the outer fortieths.
    """

    metric: str
    score: float
    signature: str
    detail: str = ""
    mean: float | None = None
    interval: float | None = None

    def as_dict(self) -> dict[str, str | float]:
        """The fields that are there, by name, ready for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Tokenizer = "13a",
    lowercase: bool = False,
    bootstrap: int = 0,
) -> Score:
    """Corpus BLEU, 0 to 100, of one hypothesis against one reference per line.

    BP * exp(mean_n log p_n), n = 1..4, BP = min(1, exp(1 - references / hypotheses)).
    Text that is tokenised already is scored with tokenize="none", which cuts
    at white space; otherwise sacreBLEU tokenises and wants plain text. `bootstrap`
    draws so many test sets of the same size from this one, with replacement (Koehn,
    2004), for `mean` and `interval`; the signature holds their number and the seed.

    Differs: the paper gives no tokenisation; scores compare only under equal signatures.

    Raises:
      InputError: the counts differ or are 0, or the tokeniser is unknown.
    """
    metric = _bleu(tokenize, lowercase)
    return score_with(metric, hypotheses, references, bootstrap)


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    word_order: int = 0,
    lowercase: bool = False,
    bootstrap: int = 0,
) -> Score:
    """Corpus chrF2, 0 to 100: F-score (beta 2) of character 1- to 6-grams, spaces left out.

    `word_order=2` adds word 1- and 2-grams: chrF++. `bootstrap` as for `bleu`.

    Raises:
      InputError: the counts differ or are 0.
    """
    metric = _CHRF(word_order=word_order, lowercase=lowercase)
    return score_with(metric, hypotheses, references, bootstrap)


def length_ratio(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: Tokenizer = "13a"
) -> Score:
    """Tokens of the hypotheses over tokens of the references, as BLEU counts them.

    Below 1 the translations are too short and BLEU takes its brevity penalty; 0 where the
    references are blank.

    Raises:
      InputError: the counts differ or are 0, or the tokeniser is unknown.
    """
    _check_counts(hypotheses, references)
    result: Any = _bleu(tokenize).corpus_score(hypotheses, [references])
    return Score(
        "length_ratio",
        result.ratio,
        f"hypothesis/reference tokens|tok:{tokenize}",
        f"hyp_len = {result.sys_len} ref_len = {result.ref_len}",
    )


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


def score_with(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[str], bootstrap: int = 0
) -> Score:
    """What a metric of sacreBLEU says of a corpus with one reference per line.

    Raises:
      InputError: the counts differ or are 0.
    """
    _check_counts(hypotheses, references)
    result: Any = metric.corpus_score(hypotheses, [references], n_bootstrap=max(bootstrap, 1))
    detail = _bleu_detail(result) if isinstance(result, BLEUScore) else ""
    # float: of samples sacreBLEU returns NumPy's.
    resampled = (float(result._mean), float(result._ci)) if bootstrap > 1 else (None, None)
    signature = metric.get_signature().format()
    return Score(result.name, float(result.score), signature, detail, *resampled)


class _CHRF(CHRF):
    """sacreBLEU's, with scores of one type: it cannot average a float's 0 with NumPy's others."""

    def _compute_f_score(self, statistics: list[int]) -> float:
        return float(super()._compute_f_score(statistics))


def _bleu(tokenize: Tokenizer, lowercase: bool = False) -> BLEU:
    if tokenize not in get_args(Tokenizer):
        known = ", ".join(get_args(Tokenizer))
        raise InputError(f"expected tokenize to be one of {known}, found '{tokenize}'; choose one")
    # force: do not warn that the text looks tokenised where it was said to be.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")


def _bleu_detail(result: BLEUScore) -> str:
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    return (
        f"{precisions} (BP = {result.bp:.3f} ratio = {result.ratio:.3f} "
        f"hyp_len = {result.sys_len} ref_len = {result.ref_len})"
    )


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
