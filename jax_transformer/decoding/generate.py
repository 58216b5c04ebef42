"""§6.1 Model and search together: source tokens in; translations, log P, attention maps out.

All functions are pure. Each call of `translate` outside `jax.jit` compiles its loop again, so
compile it once:

    fast = jax.jit(
        lambda params, source: translate(model, params, source, decoding, bos_id=1, eos_id=2)
    )

Axes: B sentences, S source, T target, M hypotheses per sentence, N = B M, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jax_transformer.checks import check_ids, check_tokens
from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.beam_search import (
    PENALTIES,
    BeamSearch,
    Hypotheses,
    Position,
    State,
    beam_search,
)
from jax_transformer.errors import expect_a
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.train_step import shift_right
from jax_transformer.types import AnyArray, Params


@runtime_checkable
class Decoder(Protocol):
    """The functions of a model, or of several, that a search is made of."""

    def remember(self, params: Params, source: Int[AnyArray, "B S"]) -> PyTree:
        """Encode the source; return what stays the same in its search, a row for each sentence."""
        ...

    def empty_state(self, rows: int, length: int) -> State:
        """Return the first state of a search for outputs of at most `length` tokens."""
        ...

    def step(
        self,
        params: Params,
        memory: PyTree,
        state: State,
        token: Int[Array, " N"],
        position: Position,
        column: Int[AnyArray, ""] | None = None,
    ) -> tuple[Float[Array, "N V"], State]:
        """Return logits and the next state: see `Transformer.decode_step`."""
        ...


@dataclass(frozen=True)
class ModelDecoder:
    """The decoder of one model; its state is the cache."""

    model: Transformer

    @partial(jax.jit, static_argnums=0)  # traced once for searches of several lengths
    def remember(self, params: Params, source: Int[AnyArray, "B S"]) -> PyTree:
        """Return the keys and values of the encoded source."""
        variables = {"params": params}
        encoded: Any = self.model.apply(variables, source, method="encode")
        return self.model.apply(variables, encoded, source, method="remember")

    def empty_state(self, rows: int, length: int) -> State:
        """Return the empty cache."""
        return self.model.empty_cache(rows, length)

    def step(
        self,
        params: Params,
        memory: PyTree,
        state: State,
        token: Int[Array, " N"],
        position: Position,
        column: Int[AnyArray, ""] | None = None,
    ) -> tuple[Float[Array, "N V"], State]:
        """Do the model's `decode_step`."""
        arguments = memory, state, token, position, column
        return self.model.apply({"params": params}, *arguments, method="decode_step")


def translate(
    model: Transformer,
    params: Params,
    source: Int[AnyArray, "B S"],
    decoding: DecodingConfig,
    *,
    bos_id: int,
    eos_id: int,
    n_best: int = 1,
    length: int | None = None,
    decoder: Decoder | None = None,
    search: Callable[..., Hypotheses] = beam_search,
) -> Hypotheses:
    """Return the best translations of each row of `source` (token ids, EOS, then PAD).

    Each output has at most max_extra_length tokens more than its own source, both counted
    with EOS, whatever batch it is in.
    length: the maximum number of output tokens, T; by default S + max_extra_length. With less, the
      cache is smaller and the search faster, and some sentences may be incomplete.
    decoder: what makes the steps, such as an ensemble; None takes `ModelDecoder`.
    search: `beam_search`, or another function with the same arguments.

    >>> import jax_transformer as jt
    >>> config = jt.ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model, source = Transformer(config, vocabulary_size=20, pad_id=0), jnp.array([[5, 6, 2]])
    >>> params = jax.jit(model.init)(jax.random.key(0), source, source)["params"]
    >>> decoding = DecodingConfig(beam_size=2, max_extra_length=4)
    >>> best = translate(model, params, source, decoding, bos_id=1, eos_id=2, n_best=2)
    >>> best.tokens.shape, best.scores.shape  # [B, n_best, S + max_extra_length], [B, n_best]
    ((1, 2, 7), (1, 2))
    """
    expect_a(nn.Module, model=model)
    expect_a(DecodingConfig, decoding=decoding)
    check_ids(model.output_size, bos_id=bos_id, eos_id=eos_id)
    check_tokens(model.vocabulary_size, 2, source=source)
    longest = source.shape[1] + decoding.max_extra_length if length is None else length
    decoder = decoder or ModelDecoder(model)
    memory = decoder.remember(params, source)
    step = partial(decoder.step, params, memory)
    ids = bos_id, eos_id, model.output_pad_id
    settings = beam_search_of(decoding, *ids, n_best=n_best, length=longest)
    state = decoder.empty_state(source.shape[0] * decoding.beam_size, longest)
    return search(step, state, length_limits(model, source, decoding), **vars(settings))


def beam_search_of(
    decoding: DecodingConfig, bos_id: int, eos_id: int, pad_id: int, *, n_best: int, length: int
) -> BeamSearch:
    """Return the search with these settings; its fields are the arguments of `beam_search`."""
    return BeamSearch(
        beam_size=decoding.beam_size,
        length=length,
        alpha=decoding.alpha,
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        n_best=n_best,
        patience=decoding.patience,
        narrowing=decoding.narrowing,
        penalty=PENALTIES[decoding.length_penalty],
    )


def length_limits(
    model: Transformer, source: Int[AnyArray, "B S"], decoding: DecodingConfig
) -> Int[Array, " B"]:
    """Return the maximum number of output tokens of each source."""
    lengths = (source != model.pad_id).sum(axis=1, dtype=jnp.int32)  # [B]
    # Rows of padding stop after one token, so that they never delay the batch.
    return jnp.where(lengths > 0, lengths + decoding.max_extra_length, 1)


def log_probabilities(
    model: Transformer,
    params: Params,
    source: Int[AnyArray, "B S"],
    target: Int[AnyArray, "B T"],
    *,
    bos_id: int,
) -> Float[Array, "B T"]:
    """Return log P of each target token given the source and the tokens before it, in nats.

    Both sides end with EOS, then PAD, which has 0. The sum over a row is the log P that `translate`
    reports for the same tokens.
    """
    logits: Any = model.apply({"params": params}, source, shift_right(target, bos_id))
    log_probs = jax.nn.log_softmax(logits, axis=-1)
    target_log_probs = jnp.take_along_axis(log_probs, target[:, :, None], axis=-1)[:, :, 0]
    # PAD before the end is a token like any other: a search may write it.
    is_token = jax.lax.cummax((target != model.output_pad_id).astype(jnp.int8), 1, reverse=True)
    return jnp.where(is_token, target_log_probs, 0.0)


def attention_maps(
    model: Transformer,
    params: Params,
    source: Int[AnyArray, "B S"],
    target: Int[AnyArray, "B T"],
) -> dict[str, Float[Array, "B H _ _"]]:
    """Return every attention weight [B, H, Q, K] on known pairs; `target` starts with BOS.

    The keys are "encoder_0/self_attention", "decoder_3/cross_attention" and so on.

    >>> import jax_transformer as jt
    >>> config = jt.ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> model = Transformer(config, vocabulary_size=20, pad_id=0)
    >>> source, target = jnp.array([[5, 6, 7, 2]]), jnp.array([[1, 8, 9]])
    >>> params = jax.jit(model.init)(jax.random.key(0), source, target)["params"]
    >>> for name, weights in sorted(attention_maps(model, params, source, target).items()):
    ...     print(name, weights.shape)
    decoder_0/cross_attention (1, 2, 3, 4)
    decoder_0/self_attention (1, 2, 3, 3)
    encoder_0/self_attention (1, 2, 4, 4)
    """
    expect_a(nn.Module, model=model)
    sown: Any
    _, sown = model.apply({"params": params}, source, target, mutable=["intermediates"])
    return {
        f"{layer}/{attention}": maps["attention_weights"][0]
        for layer, sublayers in sown["intermediates"].items()
        for attention, maps in sublayers.items()
    }
