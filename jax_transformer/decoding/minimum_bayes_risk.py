"""§6.1 Minimum Bayes risk: the one of several hypotheses that is most like all of them.

Kumar and Byrne (2004). The paper takes the most probable hypothesis instead.
"""

import reprlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import get_args

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_all_word_ngrams

from jax_transformer.data.text import as_lines
from jax_transformer.decoding.request import Tokenizer, Utility
from jax_transformer.errors import InputError

ROUNDING = 1e-9  # utilities, 0 to 100, that differ by less are a tie


def minimum_bayes_risk(
    hypotheses: Sequence[str],
    weights: Sequence[float] | None = None,
    *,
    utility: Utility = "chrf",
    tokenize: Tokenizer = "13a",
) -> int:
    """Return the index of the hypothesis with the largest expected utility; the first of a tie.

    hypotheses: the translations of one line. Equal ones count as often as they occur.
    weights: the weight of each hypothesis, in any unit, such as the probabilities of an n-best
      list; None for equal weights.
    utility: the score of one hypothesis with another as the reference: "chrf" or "bleu".
    tokenize: the tokenizer of BLEU.

    >>> minimum_bayes_risk(["a dog", "the red cat", "the red cat"])
    1
    """
    expected = np.array(expected_utilities(hypotheses, weights, utility=utility, tokenize=tokenize))
    return int(np.argmax(expected > expected.max() - ROUNDING))


def expected_utilities(
    hypotheses: Sequence[str],
    weights: Sequence[float] | None = None,
    *,
    utility: Utility = "chrf",
    tokenize: Tokenizer = "13a",
) -> list[float]:
    """Return the mean utility, 0 to 100, of each hypothesis if each of them is the reference.

    E_i = sum_j w_j utility(h_i, h_j) / sum_j w_j

    hypotheses: translations of one line. Equal ones count as often as they are there.
    weights: one for each hypothesis, in any unit, such as the probabilities of an n-best list; None
      for equal ones.
    utility: sacreBLEU's chrF of a sentence, or its BLEU of a sentence with effective order.

    Raises InputError if there is no hypothesis, or a weight is missing, negative or not finite, or
    all are 0.
    """
    hypotheses = as_lines(hypotheses, "hypotheses")
    if not hypotheses:
        raise InputError("hypotheses: expected at least one, found none; give a list of str")
    for name, value, known in (
        ("utility", utility, get_args(Utility)),
        ("tokenize", tokenize, get_args(Tokenizer)),
    ):
        if value not in known:
            expected = ", ".join(known)
            raise InputError(f"{name}: expected one of {expected}, found {value!r}; give one")
    distinct = list(dict.fromkeys(hypotheses))
    row = {text: i for i, text in enumerate(distinct)}
    rows = [row[text] for text in hypotheses]
    total = np.bincount(rows, _checked(weights, len(hypotheses)))
    pairs = _chrf_of_pairs(distinct) if utility == "chrf" else _bleu_of_pairs(distinct, tokenize)
    return (pairs @ (total / total.sum()))[rows].tolist()


def _checked(weights: Sequence[float] | None, count: int) -> Float[np.ndarray, " N"]:
    """Return the weights as an array, divided by the largest."""
    try:
        array = np.ones(count) if weights is None else np.array(weights, np.float64)
    except (TypeError, ValueError):
        array = np.array(np.nan)  # not numbers
    valid = array.shape == (count,) and np.isfinite(array).all() and (array >= 0).all()
    if not valid or not array.any():
        raise InputError(
            f"weights: expected {count:,} finite numbers, 0 or more and not all 0, found "
            f"{reprlib.repr(weights)}; give one for each hypothesis"
        )
    return array / array.max()  # so that no sum of them overflows


def _chrf_of_pairs(texts: Sequence[str]) -> Float[np.ndarray, "N N"]:
    """Return the chrF of each text, by row, against each as the reference, by column.

    Like sacreBLEU, the orders that either text is too short for do not count.
    """
    metric = CHRF()
    grams = [extract_all_char_ngrams(text, metric.char_order) for text in texts]
    orders = [_matches(order) for order in zip(*grams, strict=True)]
    sizes = [np.diagonal(matches) for matches in orders]  # a text matches all of itself
    counted = np.maximum(sum(np.minimum.outer(size, size) > 0 for size in sizes), 1)  # [N, N]
    each = [(matches, np.maximum(size, 1)) for matches, size in zip(orders, sizes, strict=True)]
    precision = sum(matches / size[:, None] for matches, size in each) / counted
    recall = sum(matches / size for matches, size in each) / counted
    factor = metric.beta**2
    below = factor * precision + recall
    return 100 * (1 + factor) * precision * recall / np.where(below > 0, below, 1)


def _bleu_of_pairs(texts: Sequence[str], tokenize: Tokenizer) -> Float[np.ndarray, "N N"]:
    """Return the BLEU of each text, by row, against each as the reference, by column."""
    metric = BLEU(tokenize=tokenize, effective_order=True)
    each = [
        extract_all_word_ngrams(metric.tokenizer(text.rstrip()), 1, metric.max_ngram_order)
        for text in texts
    ]
    lengths = [length for _, length in each]
    orders = [
        _matches([Counter({g: c for g, c in grams.items() if len(g) == n}) for grams, _ in each])
        for n in range(1, metric.max_ngram_order + 1)
    ]
    sizes = np.stack([np.diagonal(matches) for matches in orders], axis=-1).tolist()  # [N, order]
    correct = np.stack(orders, axis=-1).tolist()  # [N, N, order]
    score: Callable = metric.compute_bleu
    options = {"smooth_method": metric.smooth_method, "effective_order": True}
    return np.array(
        [
            [
                score(matches, list(sizes[i]), lengths[i], length, **options).score
                for matches, length in zip(row, lengths, strict=True)
            ]
            for i, row in enumerate(correct)
        ]
    )


def _matches(grams: Sequence[Counter[Hashable]]) -> Int[np.ndarray, "N N"]:
    """Return the number of n-grams that each two texts have in common."""
    columns = {gram: i for i, gram in enumerate(set().union(*grams))}
    counts = np.zeros((len(grams), len(columns)), np.int32)
    for row, text in zip(counts, grams, strict=True):
        row[[columns[gram] for gram in text]] = list(text.values())
    return np.stack([np.minimum(row, counts).sum(axis=1) for row in counts])
