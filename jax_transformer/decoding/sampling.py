"""Outputs drawn from the model's own distribution, by temperature, top-k and top-p.

A draw depends on the key of its sentence, on the number of the sample and on the position alone, so
it is the same in any batch, on any number of devices. Pure.

Axes: B sentences, M samples of each, N = B M, T output positions, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.checks import check_search
from jax_transformer.decoding.beam_search import (
    Allowed,
    Hypotheses,
    LengthPenalty,
    State,
    Step,
    length_penalty,
)
from jax_transformer.errors import InputError
from jax_transformer.types import AnyArray


class _Samples(NamedTuple):
    position: Int[Array, ""]
    tokens: Int[Array, "N T"]
    log_probs: Float[Array, " N"]
    given_log_probs: Float[Array, " N"]  # log P of the given tokens
    ended: Bool[Array, " N"]
    state: State


def sample(
    step: Step,
    state: State,
    max_lengths: Int[AnyArray, " B"],
    *,
    keys: Array,
    beam_size: int,
    length: int,
    alpha: float,
    bos_id: int,
    eos_id: int,
    pad_id: int,
    n_best: int = 1,
    temperature: float | Float[AnyArray, " B"] = 1.0,
    top_k: int | Int[AnyArray, " B"] = 0,
    top_p: float | Float[AnyArray, " B"] = 1.0,
    penalty: LengthPenalty = length_penalty,
    allowed: Allowed | None = None,
    given: int | Int[AnyArray, " B"] = 0,
    patience: float = 0.0,
    narrowing: bool = False,
) -> Hypotheses:
    """Draw `beam_size` outputs of each sentence, in the order of their draws.

    It takes the arguments of `beam_search`; patience and narrowing are ignored.

    keys: PRNG keys [B], one for each sentence. Sample m's key is `jax.random.fold_in(keys[b], m)`.
    n_best: beam_size, because samples are not ranked.
    temperature, top_k, top_p: see `truncated`; one for all sentences, or one for each.
    Log P and scores are the model's own, whatever the distribution that the tokens are drawn from.
    """
    max_lengths = jnp.asarray(max_lengths)
    check_search(state, max_lengths, beam_size, n_best, alpha=alpha, patience=patience)
    if n_best != beam_size:
        raise InputError(f"n_best: expected all {beam_size} samples, found {n_best}")
    limits = jnp.repeat(max_lengths, beam_size)  # [N]
    rows = limits.shape[0]
    number = jnp.arange(beam_size)
    keys = jax.vmap(lambda key: jax.vmap(jax.random.fold_in, (None, 0))(key, number))(keys)
    keys = keys.reshape(rows, *keys.shape[2:])  # keys of `jax.random.PRNGKey` have one more axis
    of_sentences = [
        jnp.broadcast_to(jnp.asarray(value), len(max_lengths))
        for value in (given, temperature, top_k, top_p)
    ]
    given, *choice = (jnp.repeat(value, beam_size) for value in of_sentences)  # [N] each

    def advance(samples: _Samples) -> _Samples:
        position, tokens = samples.position, samples.tokens
        last = jnp.where(position > 0, tokens[:, position - 1], bos_id)
        logits, state = step(samples.state, last, position)
        log_probs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)  # [N, V]
        may = log_probs if allowed is None else jnp.where(allowed(state), log_probs, -jnp.inf)
        is_eos = jnp.arange(log_probs.shape[1])[None] == eos_id
        may = jnp.where((position + 1 >= limits)[:, None] & ~is_eos, -jnp.inf, may)
        noise = jax.vmap(
            lambda key: jax.random.gumbel(
                jax.random.fold_in(key, position), may.shape[1:], jnp.float32
            )
        )(keys)
        # The largest of log P + Gumbel noise is a draw from P; temperature 0 takes the likeliest.
        noise = jnp.where(choice[0][:, None] > 0, noise, 0.0)
        token = jnp.argmax(truncated(may, *choice) + noise, axis=1)
        token = jnp.where(samples.ended, pad_id, token).astype(jnp.int32)
        gained = jnp.take_along_axis(may, token[:, None], axis=1)[:, 0]
        gained = jnp.where(samples.ended, 0.0, gained)  # -inf if nothing is allowed
        is_given = (position < given) & (gained > -jnp.inf)
        return _Samples(
            position + 1,
            jax.lax.dynamic_update_slice_in_dim(tokens, token[:, None], position, 1),
            samples.log_probs + gained,
            samples.given_log_probs + jnp.where(is_given, gained, 0.0),
            samples.ended | (token == eos_id) | (gained == -jnp.inf),
            state,
        )

    samples = _Samples(
        position=jnp.zeros((), jnp.int32),
        tokens=jnp.full((rows, length), pad_id, jnp.int32),
        log_probs=jnp.zeros(rows, jnp.float32),
        given_log_probs=jnp.zeros(rows, jnp.float32),
        ended=jnp.zeros(rows, jnp.bool_),
        state=state,
    )
    samples = jax.lax.while_loop(
        lambda samples: ~samples.ended.all() & (samples.position < length), advance, samples
    )
    ends = samples.tokens == eos_id
    lengths = jnp.where(ends.any(axis=1), ends.argmax(axis=1) + 1, length).astype(jnp.int32)
    scores = samples.log_probs - samples.given_log_probs
    scores /= penalty(jnp.maximum(lengths - given, 1), alpha)
    tokens = jnp.where(scores[:, None] == -jnp.inf, pad_id, samples.tokens)
    shape = len(max_lengths), beam_size
    return Hypotheses(
        tokens.reshape(*shape, length),
        scores.reshape(shape),
        samples.log_probs.reshape(shape),
        complete=samples.ended.reshape(shape).all(axis=1),
    )


def truncated(
    log_probs: Float[AnyArray, "N V"],
    temperature: float | Float[AnyArray, " N"] = 1.0,
    top_k: int | Int[AnyArray, " N"] = 0,
    top_p: float | Float[AnyArray, " N"] = 1.0,
) -> Float[Array, "N V"]:
    """Return the log P, up to a constant, of the distribution that tokens are drawn from.

    temperature: log P is divided by it; below 1 makes likely tokens likelier. 0 is taken for 1.
    top_k: keep the k likeliest tokens (Fan et al. 2018); 0 keeps all. Equals of the k-th stay too.
    top_p: then keep the fewest of the likeliest whose probabilities reach p (Holtzman et al. 2020),
      after the temperature.
    Each is one number for all rows, or one for each row. The likeliest token always stays.

    >>> probs = jnp.array([[0.5, 0.3, 0.15, 0.05]])
    >>> (truncated(jnp.log(probs), top_k=3, top_p=0.8) > -jnp.inf).tolist()
    [[True, True, False, False]]
    """
    count, size = log_probs.shape
    k, p = jnp.broadcast_to(top_k, count)[:, None], jnp.broadcast_to(top_p, count)[:, None]
    temperature = jnp.broadcast_to(temperature, count)[:, None]
    # Below the likeliest one, whose 0 no temperature makes infinite.
    likeliest = jnp.max(log_probs, axis=1, keepdims=True, initial=jnp.finfo(jnp.float32).min)
    scaled = (log_probs - likeliest) / jnp.where(temperature > 0, temperature, 1.0)

    def cut(log_probs: Float[Array, "N V"]) -> Float[Array, "N V"]:
        ordered = -jnp.sort(-log_probs, axis=1)
        least = jnp.take_along_axis(ordered, jnp.where(k > 0, jnp.minimum(k, size), size) - 1, 1)
        ordered = jnp.where(ordered >= least, ordered, -jnp.inf)
        probs = jax.nn.softmax(ordered, axis=1)
        before = jnp.cumsum(probs, axis=1) - probs  # the mass of all that are likelier
        stays = ((before < p) | (p >= 1) | (ordered == 0)) & (ordered > -jnp.inf)
        least = jnp.where(stays, ordered, jnp.inf).min(axis=1, keepdims=True)
        return jnp.where(log_probs >= least, log_probs, -jnp.inf)

    # Sorting the vocabulary takes longer than the rest of a draw.
    return jax.lax.cond(jnp.any((k > 0) | (p < 1)), cut, lambda log_probs: log_probs, scaled)
