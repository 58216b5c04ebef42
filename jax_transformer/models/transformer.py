"""§3.1 The Transformer: encoder and decoder stacks, and one step of cached decoding.

    model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
    variables = model.init(key, source, target)
    logits = model.apply(variables, source, target)

Randomness is the mode: with `rngs={"dropout": key}` the model trains, without it is exact.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.config import ModelConfig
from jax_transformer.models.attention import (
    KeysValues,
    MultiHeadAttention,
    causal_mask,
    neighbourhood_mask,
    padding_mask,
    segment_mask,
    written_mask,
)
from jax_transformer.models.layers import (
    AddNorm,
    Dropout,
    Embedding,
    FeedForward,
    positional_encoding,
    segment_positions,
    word_encoding,
)


class Memory(NamedTuple):
    """The encoded source as the decoder sees it; constant through a search.

    Every leaf has the batch axis first.
    """

    # One for each decoder layer, [B, H, S, d]; `laid_out` for M > 1, keys are [B, H, d_k, S].
    keys_values: tuple[KeysValues, ...]
    mask: Bool[Array, "B 1 1 S"]
    segments: Int[Array, "B S"] | None = None  # where a row holds several sources; not in a search

    def laid_out(self, beam_size: int) -> "Memory":
        """What `Transformer.encode` gave, with keys as a `Cache` has them, for `step`."""
        keys_values = tuple(_turned(pair, beam_size) for pair in self.keys_values)
        return self._replace(keys_values=keys_values)

    def reorder(self, parents: Int[Array, "B M"]) -> "Memory":
        """Itself: the hypotheses of a sentence have one source."""
        del parents
        return self

    def grow(self, length: int) -> "Memory":
        """Itself: a source has its length."""
        del length
        return self

    def select(self, sentences: Int[Array, " b"]) -> "Memory":
        """Of these sentences alone."""
        return jax.tree.map(lambda leaf: leaf[sentences], self)


class Cache(NamedTuple):
    """What a search remembers of the target positions so far.

    Keys and values stay where they were written: a hypothesis that goes on with another one's
    tokens gets that one's line of `slots`, and no key moves. They stand as a CPU's products want
    them, each head's together; keys of several hypotheses with positions along columns,
    those of one along rows.
    """

    # One for each decoder layer: values [B, H, T * M, d_v], keys [B, H, d_k, T * M] where M > 1.
    keys_values: tuple[KeysValues, ...]
    slots: Int[Array, "B M T"]  # which of M wrote the token at t that hypothesis m goes on from
    words: Int[Array, "B M"] | None = None  # that have ended, where positions count words

    def reorder(self, parents: Int[Array, "B M"]) -> "Cache":
        """Hypothesis m goes on from what was hypothesis parents[b, m] of its sentence."""
        slots = jnp.take_along_axis(self.slots, parents[:, :, None], axis=1)
        words = None if self.words is None else jnp.take_along_axis(self.words, parents, axis=1)
        return Cache(self.keys_values, slots, words)

    def grow(self, length: int) -> "Cache":
        """With room for so many positions."""
        _, beam_size, before = self.slots.shape
        assert length >= before
        if length == before:
            return self

        def longer(leaf: Array, axis: int, count: int = length - before) -> Array:
            return jnp.pad(leaf, [(0, count if i == axis else 0) for i in range(leaf.ndim)])

        axes, count = _positions_at(beam_size), (length - before) * beam_size
        keys_values = tuple(
            KeysValues(*(longer(*both, count) for both in zip(pair, axes, strict=True)))
            for pair in self.keys_values
        )
        return Cache(keys_values, longer(self.slots, 2), self.words)

    def select(self, sentences: Int[Array, " b"]) -> "Cache":
        """Of these sentences alone."""
        return jax.tree.map(lambda leaf: leaf[sentences], self)


class WordMarks(NamedTuple):
    """Which token ids count a word, one byte of 0 or 1 for each id of a vocabulary."""

    source: bytes  # those that begin one; EOS too, which stands for the end
    target: bytes  # those that end one: a tree's tags


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in Add & Norm (§3.1)."""

    config: ModelConfig

    def setup(self) -> None:
        """The two sub-layers."""
        self.self_attention = _attention(self.config)
        self.self_attention_norm = AddNorm(self.config.dropout_rate)
        self.feed_forward = _feed_forward(self.config)
        self.feed_forward_norm = AddNorm(self.config.dropout_rate)

    def __call__(
        self, x: Float[Array, "B S d_model"], mask: Bool[Array, "B 1 #S S"], *, fusible: bool
    ) -> Float[Array, "B S d_model"]:
        """Every position attends to all real positions that the mask lets it.

        fusible: the mask is one that `fused_attention` takes.
        """
        keys_values = self.self_attention.keys_values(x)
        attended = self.self_attention(x, keys_values, mask, fusible=fusible)
        x = self.self_attention_norm(x, attended)
        return self.feed_forward_norm(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder, feed-forward network (§3.1)."""

    config: ModelConfig

    def setup(self) -> None:
        """The three sub-layers."""
        self.self_attention = _attention(self.config)
        self.self_attention_norm = AddNorm(self.config.dropout_rate)
        self.cross_attention = _attention(self.config)
        self.cross_attention_norm = AddNorm(self.config.dropout_rate)
        self.feed_forward = _feed_forward(self.config)
        self.feed_forward_norm = AddNorm(self.config.dropout_rate)

    def __call__(
        self,
        x: Float[Array, "B T d_model"],
        past: KeysValues,
        past_mask: Bool[Array, "#B 1 T K"],
        memory: KeysValues,
        memory_mask: Bool[Array, "B 1 #T S"],
        *,
        fusible: bool = False,
    ) -> Float[Array, "B T d_model"]:
        """x attends to `past`, which holds its own positions too, and to the encoder.

        T positions of a target, or the next one of each hypothesis of a beam: those of a
        sentence share the encoder's keys and values, and `past_mask` tells their pasts apart.
        fusible: both are masks that `fused_attention` takes.
        """
        attended = self.self_attention(x, past, past_mask, fusible=fusible)
        x = self.self_attention_norm(x, attended)
        attended = self.cross_attention(x, memory, memory_mask, fusible=fusible)
        x = self.cross_attention_norm(x, attended)
        return self.feed_forward_norm(x, self.feed_forward(x))

    def step(
        self,
        x: Float[Array, "B M d_model"],
        past: KeysValues,
        past_mask: Bool[Array, "B 1 M K"],
        memory: KeysValues,
        memory_mask: Bool[Array, "B 1 1 S"],
        position: Int[Array, ""],
    ) -> tuple[Float[Array, "B M d_model"], KeysValues]:
        """The next position of each hypothesis; returns `past` with it written.

        past, memory: as a `Cache` and a `Memory.laid_out` have them.
        """
        beam_size = x.shape[1]
        here = _turned(_heads_swapped(self.self_attention.keys_values(x)), beam_size)
        past = KeysValues(
            *(
                jax.lax.dynamic_update_slice_in_dim(old, new, position * beam_size, axis)
                for old, new, axis in zip(past, here, _positions_at(beam_size), strict=True)
            )
        )
        own, other = (_heads_swapped(_turned(pair, beam_size)) for pair in (past, memory))
        return self(x, own, past_mask, other, memory_mask), past


class Transformer(nn.Module):
    """The model of Figure 1: logits of the next target token at every position.

    >>> model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
    >>> source, target = jnp.array([[5, 6, 7, 2]]), jnp.array([[1, 8, 9]])
    >>> variables = jax.eval_shape(model.init, jax.random.key(0), source, target)
    >>> sum(leaf.size for leaf in jax.tree.leaves(variables))  # the base model's parameters
    63045632
    >>> jax.eval_shape(model.apply, variables, source, target).shape  # [B, T, V]
    (1, 3, 37000)
    """

    config: ModelConfig
    vocabulary_size: int
    pad_id: int
    target_vocabulary_size: int | None = None  # None: one vocabulary for both sides
    word_marks: WordMarks | None = None  # needed by config.positions="words"

    def setup(self) -> None:
        """Embeddings and the two stacks."""
        config = self.config
        size = (config.d_model, jnp.dtype(config.compute_dtype))
        self.embedding = Embedding(self.vocabulary_size, *size)
        of_target = self.target_vocabulary_size or self.vocabulary_size
        if not self._one_matrix:
            self.target_embedding = Embedding(of_target, *size)
        if not config.tie_embeddings:
            self.output_embedding = Embedding(of_target, *size)
        if config.positions == "learned":
            shape = (config.max_positions, config.d_model)
            self.position_table = self.param(
                "position_table", nn.initializers.normal(config.d_model**-0.5), shape
            )
        self.embedding_dropout = Dropout(config.dropout_rate)
        self.encoder = [EncoderLayer(config) for _ in range(config.num_layers)]
        self.decoder = [DecoderLayer(config) for _ in range(config.num_layers)]

    def __call__(
        self,
        source: Int[Array, "B S"],
        target: Int[Array, "B T"],
        source_segments: Int[Array, "B S"] | None = None,
        target_segments: Int[Array, "B T"] | None = None,
    ) -> Float[Array, "B T V"]:
        """Logits of what follows each prefix of `target`, a translation that starts with BOS.

        source, target: token ids, PAD behind the end. Row t of the result sees target
        tokens 0 ... t only.
        segments: where a row holds several pairs, the number of each token's pair from 1 on,
        0 for PAD. A pair sees itself alone, at positions of its own.
        """
        return self.decode(self.encode(source, source_segments), target, target_segments)

    def encode(
        self, source: Int[Array, "B S"], segments: Int[Array, "B S"] | None = None
    ) -> Memory:
        """Run the encoder, and project its output to each decoder layer's keys and values."""
        mask, places = padding_mask(source, self.pad_id), None
        seen = mask
        if segments is not None:
            seen, places = segment_mask(segments, segments), segment_positions(segments)
        words = self._word_numbers(source, "source", places)
        words = None if words is None else words - 1
        x = self._embed(self.embedding, source, jnp.arange(source.shape[1]), words, places)
        near = self._neighbourhood(seen, source.shape[1])
        fusible = self._radius is None and segments is None
        for layer in self.encoder:
            x = self._run(layer, "__call__", x, near, fusible=fusible)
        encoded = (layer.cross_attention.keys_values(x) for layer in self.decoder)
        return Memory(tuple(map(_heads_swapped, encoded)), mask, segments)

    def decode(
        self,
        memory: Memory,
        target: Int[Array, "B T"],
        segments: Int[Array, "B T"] | None = None,
    ) -> Float[Array, "B T V"]:
        """All positions of known targets at once (teacher forcing).

        Padding stands behind the end, so the causal mask already hides it from every
        real position.
        """
        mask, memory_mask, places = causal_mask(target.shape[1]), memory.mask, None
        assert (segments is None) == (memory.segments is None), "both sides are packed, or none"
        if segments is not None and memory.segments is not None:
            mask &= segment_mask(segments, segments)
            memory_mask = segment_mask(segments, memory.segments)
            places = segment_positions(segments)
        mask = self._neighbourhood(mask, target.shape[1])
        words = self._word_numbers(target, "target", places)
        positions = jnp.arange(target.shape[1])
        x = self._embed(self._target_embedding, target, positions, words, places)
        fusible = self._radius is None and segments is None
        for layer, encoded in zip(self.decoder, memory.keys_values, strict=True):
            past = layer.self_attention.keys_values(x)
            arrays = x, past, mask, _heads_swapped(encoded), memory_mask
            x = self._run(layer, "__call__", *arrays, fusible=fusible)
        return self._output_embedding.logits(x)

    def step(
        self,
        memory: Memory,
        cache: Cache,
        token: Int[Array, " N"],
        position: Int[Array, ""],
    ) -> tuple[Float[Array, "N V"], Cache]:
        """Logits of the token after `token`, which stands at `position` (from 0, BOS).

        The N rows are the M hypotheses of the memory's first sentence, then those of the next.
        memory: `laid_out` for M.  Returns the cache with this position written.
        """
        # Without the barrier XLA takes the transpositions of the memory out of a search's loop,
        # where they undo those of `encode`, and puts others into it.
        memory, position = jax.lax.optimization_barrier((memory, position))
        batch, beam_size, length = cache.slots.shape
        keys = memory.keys_values[0].keys
        assert keys.shape[2 if beam_size > 1 else 3] == self.config.d_k, "see Memory.laid_out"
        tokens = token.reshape(batch, beam_size)
        here = jnp.arange(beam_size, dtype=cache.slots.dtype)[None, :, None]
        here = jnp.broadcast_to(here, (batch, beam_size, 1))
        slots = jax.lax.dynamic_update_slice_in_dim(cache.slots, here, position, axis=2)
        written_by = jax.nn.one_hot(slots, beam_size, dtype=bool)  # [B, M, T, M]
        mask = written_by[:, None] & written_mask(length, position, self._radius)[..., None]
        mask = mask.reshape(batch, 1, beam_size, length * beam_size)
        words = self._counted(tokens, "target")
        if words is not None:
            assert cache.words is not None
            words = cache.words + words
        x = self._embed(self._target_embedding, tokens, position[None], words)  # [B, M, d_model]
        written = []
        layers = zip(self.decoder, memory.keys_values, cache.keys_values, strict=True)
        for layer, encoded, past in layers:
            x, past = self._run(layer, "step", x, past, mask, encoded, memory.mask, position)
            written.append(past)
        logits = self._output_embedding.next_logits(x.reshape(len(token), -1))
        return logits, Cache(tuple(written), slots, words)

    def _run(self, layer: nn.Module, method: str, *arrays: Any, **flags: bool) -> Any:
        """That method of a layer, traced once for all layers of a stack where that is possible.

        Not where dropout makes each layer another function: there XLA would keep more for the
        backward pass than it does without.
        """
        exact = not (self.has_rng("dropout") or self.is_initializing())
        if not exact or self.is_mutable_collection("intermediates"):
            return getattr(layer, method)(*arrays, **flags)
        setting = (type(layer), self.config, method, tuple(flags.items()))
        return _run_alone(setting, layer.variables["params"], *arrays)

    def _counted(self, tokens: Int[Array, "B T"], side: str) -> Int[Array, "B T"] | None:
        """1 where a token counts a word, else 0; None where positions count none."""
        if self.config.positions != "words":
            return None
        assert self.word_marks is not None, "positions that count words need to know them"
        marks = np.frombuffer(getattr(self.word_marks, side), np.uint8)
        return jnp.asarray(marks, jnp.int32)[tokens]

    def _word_numbers(
        self, tokens: Int[Array, "B T"], side: str, places: Int[Array, "B T"] | None
    ) -> Int[Array, "B T"] | None:
        """How many words were counted up to each token, in its own pair."""
        counted = self._counted(tokens, side)
        if counted is None:
            return None
        numbers = jnp.cumsum(counted, axis=1)
        if places is None:
            return numbers
        first = jnp.arange(tokens.shape[1])[None] - places  # column of the pair's first token
        return numbers - jnp.take_along_axis(numbers - counted, first, axis=1)

    def _embed(
        self,
        embedding: Embedding,
        tokens: Int[Array, "B T"],
        positions: Int[Array, " T"],
        words: Int[Array, "B T"] | None,
        places: Int[Array, "B T"] | None = None,
    ) -> Float[Array, "B T d_model"]:
        """places: which of the positions each token has; None: in every row as they stand."""
        if words is not None:
            own = positions if places is None else places
            encoding = word_encoding(own, words, self.config.d_model)
        else:
            if self.config.positions == "learned":
                table = self.position_table[positions]
            else:
                table = positional_encoding(positions, self.config.d_model)
            encoding = table[None] if places is None else table[places]
        return self.embedding_dropout(embedding(tokens) + encoding)

    @property
    def _radius(self) -> int | None:
        return self.config.attention_radius or None

    def _neighbourhood(self, mask: Bool[Array, "#B 1 #Q K"], length: int) -> Array:
        """Self-attention's mask, restricted where the settings say so (§4, Table 1)."""
        return mask if self._radius is None else mask & neighbourhood_mask(length, self._radius)

    @property
    def _one_matrix(self) -> bool:
        """Whether source and target share theirs; with two vocabularies they cannot."""
        return self.config.tie_embeddings and self.target_vocabulary_size is None

    @property
    def _target_embedding(self) -> Embedding:
        return self.embedding if self._one_matrix else self.target_embedding

    @property
    def _output_embedding(self) -> Embedding:
        return self._target_embedding if self.config.tie_embeddings else self.output_embedding


@partial(jax.jit, static_argnums=0)
def _run_alone(setting: Any, params: Any, *arrays: Any) -> Any:
    """A layer as a function of its parameters; jitted by itself it is traced and lowered once
    for a stack, which XLA then sees as one program all the same."""
    kind, config, method, flags = setting
    layer = kind(config, parent=None)
    return layer.apply({"params": params}, *arrays, method=method, **dict(flags))


def _heads_swapped(pair: KeysValues) -> KeysValues:
    """[B, K, H, d] to [B, H, K, d], or back: a product of each head wants its own keys together,
    and what many steps multiply with is so laid out once."""
    return KeysValues(*(leaf.swapaxes(1, 2) for leaf in pair))


def _turned(pair: KeysValues, beam_size: int) -> KeysValues:
    """[B, H, K, d] as a `Cache` keeps it, or back."""
    return KeysValues(pair.keys.swapaxes(2, 3), pair.values) if beam_size > 1 else pair


def _positions_at(beam_size: int) -> tuple[int, int]:
    """The axes of a `Cache`'s keys and values that positions and hypotheses share."""
    return 3 if beam_size > 1 else 2, 2


def empty_cache(config: ModelConfig, batch: int, beam_size: int, length: int) -> Cache:
    """For sentences with so many hypotheses each, of at most `length` tokens, BOS included.

    >>> cache = empty_cache(ModelConfig(), batch=3, beam_size=4, length=20)
    >>> len(cache.keys_values), cache.keys_values[0].keys.shape  # [B, H, d_k, T * M]
    (6, (3, 8, 64, 80))
    """
    shape = (batch, config.num_heads, length * beam_size)
    empty = KeysValues(jnp.zeros((*shape, config.d_k)), jnp.zeros((*shape, config.d_v)))
    empty = _turned(empty, beam_size)
    words = jnp.zeros((batch, beam_size), jnp.int32) if config.positions == "words" else None
    slots = jnp.zeros((batch, beam_size, length), jnp.int32)
    return Cache((empty,) * config.num_layers, slots, words)


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        num_heads=config.num_heads,
        d_model=config.d_model,
        d_k=config.d_k,
        d_v=config.d_v,
        dropout_rate=config.attention_dropout_rate,
        use_bias=config.attention_bias,
        compute_dtype=jnp.dtype(config.compute_dtype),
        fused=config.fused_attention,
    )


def _feed_forward(config: ModelConfig) -> FeedForward:
    return FeedForward(config.d_ff, config.d_model, jnp.dtype(config.compute_dtype))
