"""Several models that decode together: P of each token is the weighted mean of theirs.

An ensemble is a step with several models inside, which a search takes like any other.
Differs: not in the paper, which averages the parameters of checkpoints of one model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jax_transformer.decoding.beam_search import Position, State
from jax_transformer.decoding.generate import ModelDecoder, log_probabilities
from jax_transformer.models.transformer import Transformer
from jax_transformer.types import AnyArray, Params


def mean(
    log_probs: Sequence[Float[AnyArray, "*shape"]], weights: Sequence[float]
) -> Float[Array, "*shape"]:
    """Return the logarithm of the weighted mean of probabilities, given the logarithm of each.

    weights: one for each; their sum is 1.

    >>> halves, tenths = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.1, 0.9]))
    >>> jnp.exp(mean([halves, tenths], weights=[0.75, 0.25])).round(3).tolist()
    [0.4000000059604645, 0.6000000238418579]
    """
    column = jnp.array(weights, jnp.float32).reshape(-1, *[1] * jnp.ndim(log_probs[0]))
    return jax.nn.logsumexp(jnp.stack(log_probs), axis=0, b=column)


@dataclass(frozen=True)
class Ensemble:
    """Models with one vocabulary; its methods are the functions of `generate` for all of them.

    They take a list of parameters. weights: one for each model; their sum is 1.
    """

    models: tuple[Transformer, ...]
    weights: tuple[float, ...]

    def remember(self, params: Params, source: Int[AnyArray, "B S"]) -> PyTree:
        """Return what each model remembers of the source."""
        both = zip(self._decoders, params, strict=True)
        return [decoder.remember(own, source) for decoder, own in both]

    def empty_state(self, rows: int, length: int) -> State:
        """Return the first state of each model."""
        return [decoder.empty_state(rows, length) for decoder in self._decoders]

    def step(
        self,
        params: Params,
        memory: PyTree,
        state: State,
        token: Int[Array, " N"],
        position: Position,
        column: Int[AnyArray, ""] | None = None,
    ) -> tuple[Float[Array, "N V"], State]:
        """Do the step of each model; the probabilities are the mean of theirs."""
        models = zip(self._decoders, params, memory, state, strict=True)
        each = [one.step(p, m, s, token, position, column) for one, p, m, s in models]
        log_probs = [jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1) for logits, _ in each]
        return mean(log_probs, self.weights), [state for _, state in each]

    @property
    def _decoders(self) -> list[ModelDecoder]:
        return [ModelDecoder(model) for model in self.models]

    def log_probabilities(
        self,
        params: Params,
        source: Int[AnyArray, "B S"],
        target: Int[AnyArray, "B T"],
        *,
        bos_id: int,
    ) -> Float[Array, "B T"]:
        """Return log P of each target token."""
        both, ids = zip(self.models, params, strict=True), {"bos_id": bos_id}
        return mean(
            [log_probabilities(m, own, source, target, **ids) for m, own in both], self.weights
        )
