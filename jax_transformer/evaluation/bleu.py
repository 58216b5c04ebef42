"""§6.1 BLEU and chrF of translations, by sacreBLEU; perplexity."""

import logging
import math
from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF

from jax_transformer.decoding.request import Tokenizer
from jax_transformer.errors import InputError, warn_once
from jax_transformer.evaluation.score import Score

logger = logging.getLogger(__name__)

TOKENIZED_LINES = 100  # the number of lines by which sacreBLEU takes a text for tokenized


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenize: Tokenizer = "13a",
    lowercase: bool = False,
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
) -> Score:
    """Return the corpus BLEU, 0 to 100, of one hypothesis against one reference per line, or more.

    BP * exp(mean_n log p_n), n = 1..4, BP = min(1, exp(1 - references / hypotheses)).

    tokenize: "none" for tokenized text, which is split at white space; the others are
    sacreBLEU's tokenizers for plain text.
    bootstrap: the number of test sets of the same size drawn from this one with replacement (Koehn,
    2004), for `mean` and `interval`, or 0 for none; the signature has the number and the seed.
    others: further references of all lines; an n-gram counts if any reference of its line has it.

    Differs: the paper does not give its tokenization; see `paper_bleu`.

    >>> score = bleu(["the cat sat on the mat"], ["the cat sat on a mat"])
    >>> round(score.score, 2), score.signature.split("|")[3]
    (53.73, 'tok:13a')

    Raises InputError if the counts differ or are 0.
    """
    # force: no warning of sacreBLEU, which names an option of its own, at each call.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    if tokenize != "none" and sum(line.endswith(" .") for line in hypotheses) > TOKENIZED_LINES:
        warn_once(
            logger,
            "the translations look tokenized (a space before the last full stop), and BLEU splits "
            f"them once more by {tokenize}; detokenize them, or if the text is tokenized on "
            "purpose, give --set data.bleu_tokenize=none",
        )
    return score_with("bleu", metric, hypotheses, references, bootstrap, others)


def chrf(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
) -> Score:
    """Return the corpus chrF2, 0 to 100: the F-score (beta 2) of character 1- to 6-grams.

    Spaces do not count. Of several references the one with the best F-score counts. The arguments
    are those of `bleu`.
    """
    metric = _CHRF(lowercase=lowercase)
    return score_with("chrf", metric, hypotheses, references, bootstrap, others)


def perplexity(nll_sum: float, tokens: float) -> float:
    """Return the per-token perplexity exp(nll_sum / tokens).

    nll_sum: the negative log-likelihood of all tokens, in nats. As in Table 3 the perplexity is per
    word piece, so it can be compared only under the same vocabulary.

    >>> round(perplexity(2 * math.log(10), 2), 3)
    10.0
    """
    try:
        return math.exp(nll_sum / tokens)
    except OverflowError:
        return math.inf


def score_with(
    name: str,
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[str],
    bootstrap: int = 0,
    others: Sequence[Sequence[str]] = (),
) -> Score:
    """Return the score of a corpus by a metric of sacreBLEU. name: the `Score.metric`."""
    every = [references, *others]
    for lines in every:
        if len(hypotheses) != len(lines) or not hypotheses:
            raise InputError(
                f"expected one hypothesis for each reference, and at least one, found "
                f"{len(hypotheses):,} hypotheses and {len(lines):,} references; score the "
                f"translations of exactly the lines of the reference"
            )
    result: Any = metric.corpus_score(hypotheses, every, n_bootstrap=max(bootstrap, 1))
    detail = _bleu_detail(result) if isinstance(result, BLEUScore) else ""
    # sacreBLEU returns NumPy scalars for samples.
    resampled = (float(result._mean), float(result._ci)) if bootstrap > 1 else (None, None)
    signature = metric.get_signature().format()
    return Score(name, float(result.score), signature, detail, *resampled)


class _CHRF(CHRF):
    """The chrF of sacreBLEU, always in Python floats: bootstrap fails on a mix with NumPy's."""

    def _compute_f_score(self, statistics: Any) -> float:
        return float(super()._compute_f_score(statistics))


def _bleu_detail(result: BLEUScore) -> str:
    precisions = "/".join(f"{precision:.1f}" for precision in result.precisions)
    return (
        f"{precisions} (BP = {result.bp:.3f} ratio = {result.ratio:.3f} "
        f"hyp_len = {result.sys_len} ref_len = {result.ref_len})"
    )
