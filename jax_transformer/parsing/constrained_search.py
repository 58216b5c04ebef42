"""§6.3 Beam search that writes only trees, over any step function.

Axes: B sentences, N = B * beam_size hypotheses.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from jax_transformer.decoding.beam_search import Hypotheses, State, Step, beam_search
from jax_transformer.parsing.grammar import (
    TreeGrammar,
    advance,
    allowed_symbols,
    initial_state,
    max_depth,
)
from jax_transformer.types import AnyArray


def constrained_search(
    step: Step,
    state: State,
    max_lengths: Int[AnyArray, " B"],
    *,
    words: Int[AnyArray, " B"],
    grammar: TreeGrammar,
    beam_size: int,
    length: int,
    **settings: Any,
) -> Hypotheses:
    """Return the best linearized trees over each sentence, by log P / length_penalty.

    A symbol that cannot lead to a tree over exactly the words of the sentence gets -inf after the
    log-softmax: log P stays the model's own, not renormalized over what the grammar allows. Pure.

    words: the number of words of each sentence; 0 for a row of padding, which has no output.
    max_lengths: the maximum number of symbols of each output, EOS included. A tree of n words needs
      n + 3, a tree of one word 2; a row with fewer has no output.

    A model that prefers to end at once must first give each of two words a tag:

    >>> from jax_transformer.parsing.grammar import tree_grammar
    >>> ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    >>> symbols = ["", "", "", "(S", "/S", "NN"]
    >>> step = lambda state, token, position: (
    ...     jnp.log(jnp.array([[0.1, 0.1, 0.4, 0.2, 0.05, 0.15]])), state
    ... )
    >>> best = constrained_search(
    ...     step, (), jnp.array([8]), words=jnp.array([2]), grammar=tree_grammar(symbols, eos_id=2),
    ...     beam_size=1, length=8, alpha=0.0, **ids,
    ... )
    >>> [symbols[token] for token in best.tokens[0, 0] if token > 2]
    ['(S', '(S', 'NN', 'NN', '/S', '/S']
    """

    def tree_step(both: State, token: Int[Array, " N"], position: Int[Array, ""]) -> tuple:
        tree, state = both
        logits, state = step(state, token, position)
        assert logits.shape[-1] == len(grammar.kind), "the grammar has other symbols"
        return logits, (advance(grammar, tree, token), state)

    counts, limits = jnp.repeat(words, beam_size), jnp.repeat(max_lengths, beam_size)  # [N]
    tree = initial_state(counts, limits, max_depth(length))
    return beam_search(
        tree_step,
        (tree, state),
        max_lengths,
        allowed=lambda both: allowed_symbols(grammar, both[0]),
        beam_size=beam_size,
        length=length,
        **settings,
    )
