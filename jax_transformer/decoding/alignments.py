"""§3.2.3 Word alignments out of the decoder's attention over the source (cross-attention).

Axes: B pairs, S source pieces, T target pieces.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Array, Float, Int

from jax_transformer.decoding.generate import attention_maps
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.train_step import shift_right
from jax_transformer.types import AnyArray, Params

Alignment = list[tuple[int, int]]  # (number of a source word, number of a target word), from 0


def cross_attention(
    model: Transformer,
    params: Params,
    source: Int[AnyArray, "B S"],
    target: Int[AnyArray, "B T"],
    *,
    bos_id: int,
    layer: int,
    head: int | None = None,
) -> Float[Array, "B T S"]:
    """Return the attention over the source in the step that predicts each target token.

    Both sides end with EOS, then PAD. That step is the decoder's position before the token, which
    reads the token before it.
    layer: of the decoder, from 0. head: from 0; None for the mean of the heads.
    """
    maps = attention_maps(model, params, source, shift_right(target, bos_id))
    weights = maps[f"decoder_{layer}/cross_attention"]  # [B, H, T, S]
    return weights.mean(axis=1) if head is None else weights[:, head]


def word_alignment(
    weights: Float[np.ndarray, "T S"], source_words: Sequence[int], target_words: Sequence[int]
) -> Alignment:
    """Return the (source word, target word) pairs of one sentence pair, in ascending order.

    Weights are summed over the pieces of a source word and averaged over those of a target word;
    each target word then belongs to the source word of the largest weight, the first of equal ones.

    weights: the attention of the step that predicts target piece t, over source pieces s. Rows and
      columns after the last piece of a word, which are the end mark's and padding's, do not count.
    source_words, target_words: the number of the word that each piece is part of.

    "old dogs" has three source pieces, two of them of "dogs", and "alte Hunde" two target pieces:

    >>> weights = np.array([[0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.1, 0.6]])
    >>> word_alignment(weights, source_words=[0, 1, 1], target_words=[0, 1])
    [(0, 0), (1, 1)]
    """
    if not source_words or not target_words:
        return []
    weights = weights[: len(target_words), : len(source_words)]
    sources, source_of = np.unique(source_words, return_inverse=True)
    targets, target_of = np.unique(target_words, return_inverse=True)
    # The sum over target pieces has its maximum where the mean has it.
    totals = np.eye(len(targets))[:, target_of] @ weights @ np.eye(len(sources))[source_of]
    best = sources[totals.argmax(axis=1)]
    return sorted(zip(best.tolist(), targets.tolist(), strict=True))


def moses(alignment: Alignment) -> str:
    """Write an alignment as Moses' tools read it.

    >>> moses([(0, 0), (2, 1)])
    '0-0 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in alignment)
