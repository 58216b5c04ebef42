"""§3.1 The Transformer: encoder and decoder stacks, and one step of cached decoding.

    model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
    variables = model.init(key, source, target)
    logits = model.apply(variables, source, target)

Dropout is on where `rngs={"dropout": key}` is given; without it the model is deterministic.

Axes: B batch, S source, T target, H heads, V vocabulary, M hypotheses per sentence, N = B M.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.checks import check_pair, check_transformer
from jax_transformer.config import ModelConfig
from jax_transformer.models.attention import (
    KeysValues,
    MultiHeadAttention,
    cache_mask,
    causal_mask,
    local_attention_mask,
    padding_mask,
    segment_mask,
)
from jax_transformer.models.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    positional_encoding,
    word_encoding,
)


class Layout(NamedTuple):
    """Where the tokens of a row stand, if the row is not one sentence from position 0 on.

    Rows that hold several sentences need both segments and positions:

    >>> segments, positions = jnp.array([[1, 1, 2, 2, 0]]), jnp.array([[0, 1, 0, 1, 0]])
    >>> packed = Layout(segments, positions)
    """

    segments: Int[Array, "B T"] | None = None  # which sentence, from 1 on; 0 is padding
    positions: Int[Array, "B T"] | None = None  # in its own sentence; None: 0, 1, 2, ...
    # For positions="words". Source: index of the token's word, from 0. Decoder input: index of the
    # word to tag next, which is the number of tags among the inputs up to this one.
    words: Int[Array, "B T"] | None = None


ONE_SENTENCE = Layout()


class Memory(NamedTuple):
    """The encoded source as the decoder sees it; constant through a search."""

    keys_values: tuple[KeysValues, ...]  # one for each decoder layer, [B, H, S, d]
    padding_mask: Bool[Array, "B 1 1 S"]
    segments: Int[Array, "B S"] | None = None  # of packed rows, which `decode_step` cannot take


# Keys and values of the target positions so far: one for each decoder layer, [N, H, T, d].
Cache = tuple[KeysValues, ...]


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in Add & Norm (§3.1)."""

    config: ModelConfig

    def setup(self) -> None:
        self.self_attention = _attention(self.config)
        self.self_attention_norm = _add_norm(self.config)
        self.feed_forward = _feed_forward(self.config)
        self.feed_forward_norm = _add_norm(self.config)

    def __call__(
        self, x: Float[Array, "B S d_model"], mask: Bool[Array, "B 1 #S S"]
    ) -> Float[Array, "B S d_model"]:
        """Every position attends to all positions that the mask lets it."""
        attended = self.self_attention(x, self.self_attention.keys_values(x), mask)
        x = self.self_attention_norm(x, attended)
        return self.feed_forward_norm(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Like `EncoderLayer`, with attention over the encoder's output between the two (§3.1)."""

    config: ModelConfig

    def setup(self) -> None:
        self.self_attention = _attention(self.config)
        self.self_attention_norm = _add_norm(self.config)
        self.cross_attention = _attention(self.config)
        self.cross_attention_norm = _add_norm(self.config)
        self.feed_forward = _feed_forward(self.config)
        self.feed_forward_norm = _add_norm(self.config)

    def __call__(
        self,
        x: Float[Array, "N T d_model"],
        self_keys_values: KeysValues,
        self_mask: Bool[Array, "#N 1 T K"],
        memory_keys_values: KeysValues,
        memory_mask: Bool[Array, "B 1 #T S"],
    ) -> Float[Array, "N T d_model"]:
        """Self-attention, attention over the encoder's output, feed-forward, each in Add & Norm.

        self_keys_values: made of x by the caller, or a cache that contains them.
        N is B in training. In a search it is M hypotheses for each sentence, with T = 1.
        """
        x = self.self_attention_norm(x, self.self_attention(x, self_keys_values, self_mask))
        # The hypotheses of a sentence share the encoder's output: all are queries of one row.
        batch = memory_keys_values.keys.shape[0]
        queries = x.reshape(batch, -1, x.shape[-1])  # [B, M T, d_model]
        attended = self.cross_attention(queries, memory_keys_values, memory_mask).reshape(x.shape)
        x = self.cross_attention_norm(x, attended)
        return self.feed_forward_norm(x, self.feed_forward(x))


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

    def __post_init__(self) -> None:
        """Raises InputError for arguments that fit no model."""
        check_transformer(self)
        super().__post_init__()

    def setup(self) -> None:
        config = self.config
        source_size = self.vocabulary_size
        target_size = self.target_vocabulary_size or source_size
        embedding = partial(Embedding, d_model=config.d_model, **_numerics(config))
        # One matrix in three places (§3.4); with two vocabularies only target and output share.
        self.embedding = embedding(source_size)
        shared = config.tie_embeddings and self.target_vocabulary_size is None
        self.target_embedding = self.embedding if shared else embedding(target_size)
        if config.tie_embeddings:
            self.output_embedding = self.target_embedding
        else:
            self.output_embedding = embedding(target_size)
        if config.positions == "learned":
            shape = (config.max_positions, config.d_model)
            initializer = nn.initializers.normal(config.d_model**-0.5)
            self.position_table = self.param("position_table", initializer, shape, jnp.float32)
        self.embedding_dropout = nn.Dropout(config.dropout_rate)
        # Attention weights are computed again in any case: see `MultiHeadAttention._attend`.
        remat = nn.remat if config.remat == "layers" else lambda layer: layer
        self.encoder = [remat(EncoderLayer)(config) for _ in range(config.num_layers)]
        self.decoder = [remat(DecoderLayer)(config) for _ in range(config.num_layers)]

    def __call__(
        self,
        source: Int[Array, "B S"],
        target: Int[Array, "B T"],
        source_layout: Layout = ONE_SENTENCE,
        target_layout: Layout = ONE_SENTENCE,
    ) -> Float[Array, "B T V"]:
        """Logits of what follows each prefix of `target`, a translation that starts with BOS.

        source, target: token ids, PAD after the end. Position t of the result depends on target
        tokens 0 ... t only. With segments in both layouts each pair attends only to itself.
        """
        check_pair(self, source, target, source_layout, target_layout)
        return self.decode(self.encode(source, source_layout), target, target_layout)

    def encode(self, source: Int[Array, "B S"], layout: Layout = ONE_SENTENCE) -> Memory:
        """Run the encoder, and project its output to each decoder layer's keys and values."""
        memory_mask = self_mask = padding_mask(source, self.pad_id)
        if layout.segments is not None:
            self_mask = segment_mask(layout.segments, layout.segments)
        self_mask = self._restrict_to_radius(self_mask, source.shape[1])
        x = self._embed(self.embedding, source, layout)
        for layer in self.encoder:
            x = layer(x, self_mask)
        keys_values = tuple(layer.cross_attention.keys_values(x) for layer in self.decoder)
        return Memory(keys_values, memory_mask, layout.segments)

    def decode(
        self, memory: Memory, target: Int[Array, "B T"], layout: Layout = ONE_SENTENCE
    ) -> Float[Array, "B T V"]:
        """All positions of known targets at once (teacher forcing).

        Padding comes after the end, so the causal mask already hides it from every real
        position.
        """
        mask, memory_mask = causal_mask(target.shape[1]), memory.padding_mask
        packed = layout.segments is not None
        assert packed == (memory.segments is not None), "both sides have segments, or neither"
        if layout.segments is not None and memory.segments is not None:
            mask &= segment_mask(layout.segments, layout.segments)
            memory_mask = segment_mask(layout.segments, memory.segments)
        mask = self._restrict_to_radius(mask, target.shape[1])
        x = self._embed(self.target_embedding, target, layout)
        for layer, memory_keys_values in zip(self.decoder, memory.keys_values, strict=True):
            x = layer(x, layer.self_attention.keys_values(x), mask, memory_keys_values, memory_mask)
        return self.output_embedding.logits(x)

    def decode_step(
        self,
        memory: Memory,
        cache: Cache,
        token: Int[Array, " N"],
        position: Int[Array, ""],
        words: Int[Array, " N"] | None = None,
    ) -> tuple[Float[Array, "N V"], Cache]:
        """Logits of the token that follows `token`; `token` stands at `position` (BOS at 0).

        The N rows are the M hypotheses of the memory's first sentence, then those of the next.
        words: as in `Layout` for the target; required for positions="words".
        Returns the cache with this position written.
        """
        here = jnp.broadcast_to(position, (len(token), 1))
        layout = Layout(positions=here, words=None if words is None else words[:, None])
        x = self._embed(self.target_embedding, token[:, None], layout)  # [N, 1, d_model]
        mask = cache_mask(cache[0].keys.shape[2], position, self.config.attention_radius or None)
        new_cache = []
        for layer, encoded, cached in zip(self.decoder, memory.keys_values, cache, strict=True):
            new = layer.self_attention.keys_values(x)
            cached = _write(cached, new, position)
            x = layer(x, cached, mask, encoded, memory.padding_mask)
            new_cache.append(cached)
        return self.output_embedding.logits(x[:, 0]), tuple(new_cache)

    def _embed(
        self, embedding: Embedding, tokens: Int[Array, "B T"], layout: Layout
    ) -> Float[Array, "B T d_model"]:
        """Embeddings plus position encodings, with dropout on the sums (§3.4, 3.5, 5.4)."""
        positions = layout.positions
        if positions is None:
            positions = jnp.arange(tokens.shape[1])[None]  # [1, T]
        if self.config.positions == "learned":
            encoding = self.position_table[positions]
        elif self.config.positions == "words":
            assert layout.words is not None, 'ModelConfig.positions="words" needs Layout.words'
            encoding = word_encoding(positions, layout.words, self.config.d_model)
        else:
            encoding = positional_encoding(positions, self.config.d_model)
        embedded = embedding(tokens) + encoding
        return self.embedding_dropout(
            embedded.astype(self.config.compute_dtype), deterministic=not self.has_rng("dropout")
        )

    def _restrict_to_radius(
        self, mask: Bool[Array, "#B 1 #Q K"], length: int
    ) -> Bool[Array, "#B 1 #Q K"]:
        """Self-attention's mask, restricted where the settings say so (§4, Table 1)."""
        radius = self.config.attention_radius
        return mask & local_attention_mask(length, radius) if radius else mask


def empty_cache(config: ModelConfig, rows: int, length: int) -> Cache:
    """For `rows` hypotheses of at most `length` tokens each, BOS included.

    >>> cache = empty_cache(ModelConfig(), rows=3 * 4, length=20)
    >>> len(cache), cache[0].keys.shape  # [N, H, T, d_k]
    (6, (12, 8, 20, 64))
    """

    def zeros(width: int) -> Float[Array, "N H T d"]:
        return jnp.zeros((rows, config.num_heads, length, width), config.compute_dtype)

    return (KeysValues(zeros(config.d_k), zeros(config.d_v)),) * config.num_layers


def _write(cached: KeysValues, new: KeysValues, position: Int[Array, ""]) -> KeysValues:
    """The cache [N, H, T, d] with new keys and values [N, H, 1, d] at `position`."""
    write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=position, axis=2)
    return KeysValues(write(cached.keys, new.keys), write(cached.values, new.values))


def _numerics(config: ModelConfig) -> dict[str, Any]:
    """Type and precision of matrix products; products of bfloat16 have one precision."""
    dtype = jnp.dtype(config.compute_dtype)
    return {"dtype": dtype, "precision": None if dtype == jnp.bfloat16 else config.matmul_precision}


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        num_heads=config.num_heads,
        d_model=config.d_model,
        d_k=config.d_k,
        d_v=config.d_v,
        dropout_rate=config.attention_dropout_rate,
        use_bias=config.attention_bias,
        fused=config.fused_attention,
        **_numerics(config),
    )


def _feed_forward(config: ModelConfig) -> FeedForward:
    return FeedForward(config.d_ff, config.d_model, **_numerics(config))


def _add_norm(config: ModelConfig) -> AddNorm:
    return AddNorm(config.dropout_rate, jnp.dtype(config.compute_dtype))
