"""BLEU by its formula."""

import math
from collections import Counter


def grams(items, n: int) -> Counter:
    return Counter(tuple(items[i : i + n]) for i in range(len(items) - n + 1))


def matches(hypothesis, reference, n: int) -> tuple[int, int, int]:
    ours, theirs = grams(hypothesis, n), grams(reference, n)
    return (ours & theirs).total(), ours.total(), theirs.total()


def bleu_by_hand(hypotheses, references) -> float:
    """Papineni et al. (2002) on words split at white space, in float64, without smoothing."""
    pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    log_precision = 0.0
    for n in range(1, 5):
        counts = [matches(h, r, n) for h, r in pairs]
        log_precision += math.log(sum(c[0] for c in counts) / sum(c[1] for c in counts)) / 4
    ours, theirs = sum(len(h) for h, _ in pairs), sum(len(r) for _, r in pairs)
    return 100 * math.exp(min(0.0, 1 - theirs / ours) + log_precision)
