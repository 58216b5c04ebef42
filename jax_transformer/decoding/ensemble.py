"""Several models that decode together: P of each token is the weighted mean of theirs.

An ensemble is a step with several models inside, which a search takes like any other.
Differs: not in the paper, which averages the parameters of checkpoints of one model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jax_transformer.decoding.beam_search import Position, State, Step
from jax_transformer.decoding.generate import ModelDecoder, log_probabilities
from jax_transformer.models.transformer import Transformer
from jax_transformer.types import AnyArray, Params


def mean(
    log_probs: Sequence[Float[AnyArray, "*shape"]], weights: Sequence[float]
) -> Float[Array, "*shape"]:
    """Return the logarithm of the weighted mean of probabilities, given the logarithm of each.

    weights: one for each; their sum is 1.
    """
    column = jnp.array(weights, jnp.float32).reshape(-1, *[1] * jnp.ndim(log_probs[0]))
    return jax.nn.logsumexp(jnp.stack(log_probs), axis=0, b=column)


def mean_step(steps: Sequence[Step], weights: Sequence[float]) -> Step:
    """Return a step whose probabilities are the mean of those of steps; its state has all states.

    >>> def always(*probabilities):
    ...     log_probs = jnp.log(jnp.array([probabilities]))
    ...     return lambda state, token, position: (log_probs, state)
    >>> step = mean_step([always(0.5, 0.5), always(0.1, 0.9)], weights=[0.75, 0.25])
    >>> jnp.exp(step([(), ()], jnp.array([0]), jnp.array(0))[0])[0, 0].round(3).item()
    0.4000000059604645
    """

    def step(
        states: State, token: Int[Array, " N"], position: Position
    ) -> tuple[Float[Array, "N V"], State]:
        each = [one(state, token, position) for one, state in zip(steps, states, strict=True)]
        log_probs = [jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1) for logits, _ in each]
        return mean(log_probs, weights), [state for _, state in each]

    return step


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
        """Do the step of `mean_step` with all models."""
        each = zip(self._decoders, params, memory, strict=True)
        steps = [partial(one.step, *own, column=column) for one, *own in each]
        return mean_step(steps, self.weights)(state, token, position)

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
