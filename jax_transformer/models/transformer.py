"""§3.1 The Transformer: encoder and decoder stacks, and one step of cached decoding.

    model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
    variables = model.init(jax.random.key(0), source, target)  # token ids, [B, S] and [B, T]
    logits = model.apply(variables, source, target)  # [B, T, V]
    hidden = model.apply(variables, source, method="encode")  # [B, S, d_model]

Dropout is on if a key is given, `rngs={"dropout": key}` or `rngs=key`.

Axes: B batch, S source, T target, H heads, V vocabulary, M hypotheses per sentence, N = B M.
"""

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from jax_transformer.checks import check_ids, check_length, check_pair, check_tokens
from jax_transformer.config import ModelConfig
from jax_transformer.errors import expect_a
from jax_transformer.models.attention import (
    Dropout,
    KeysValues,
    MultiHeadAttention,
    causal_mask,
    local_attention_mask,
    padding_mask,
    segment_mask,
)
from jax_transformer.models.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    PreNorm,
    positional_encoding,
    segment_positions,
)
from jax_transformer.types import AnyArray, Params


class Memory(NamedTuple):
    """The encoded source as the decoder sees it; constant through a search."""

    keys_values: tuple[KeysValues, ...]  # one for each decoder layer, [B, H, S, d]
    segments: Int[AnyArray, "B S"]  # the segment of each token, 1 in a plain row; 0 for padding


# Every position of rows that hold one sentence is in segment 1.
ONE_SEGMENT = np.ones((1, 1), np.int32)

# Keys and values of the target positions, one for each decoder layer, [N, H, T, d]. What stands at
# positions to come is masked, and has to be finite. `WordTransformer` (§6.3) adds a count of words.
Cache = PyTree[Array]


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network, each in Add & Norm: Figure 1, left (§3.1).

    >>> layer, x = EncoderLayer(ModelConfig(d_model=8, d_ff=16, num_heads=2)), jnp.ones((1, 3, 8))
    >>> variables = layer.init(jax.random.key(0), x)
    >>> layer.apply(variables, x).shape
    (1, 3, 8)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Define the sub-layers."""
        self.self_attention = _attention(self.config)
        self.self_attention_norm = _add_norm(self.config)
        self.feed_forward = _feed_forward(self.config)
        self.feed_forward_norm = _add_norm(self.config)

    def __call__(
        self, x: Float[AnyArray, "B S d_model"], mask: Bool[AnyArray, "... #S S"] | None = None
    ) -> Float[Array, "B S d_model"]:
        """Apply self-attention where `mask` is True, then the feed-forward network."""
        inputs = self.self_attention_norm.before(x)  # x itself in the paper's model
        x = self.self_attention_norm(x, self.self_attention(inputs, mask=mask))
        return self.feed_forward_norm(x, self.feed_forward(self.feed_forward_norm.before(x)))


class DecoderLayer(nn.Module):
    """An `EncoderLayer` with attention over the encoder's output in between (Figure 1, right).

    `Transformer.decode` computes its arguments, as this example does with random parameters:

    >>> layer, x = DecoderLayer(ModelConfig(d_model=8, d_ff=16, num_heads=2)), jnp.ones((1, 3, 8))
    >>> encoded = jnp.ones((1, 5, 8))
    >>> def decode(layer):
    ...     memory = layer.cross_attention.keys_values(encoded)
    ...     return layer(x, layer.keys_values(x), causal_mask(3), memory)
    >>> nn.init_with_output(decode, layer)(jax.random.key(0))[0].shape
    (1, 3, 8)
    """

    config: ModelConfig

    def setup(self) -> None:
        """Define the sub-layers."""
        self.self_attention = _attention(self.config)
        self.self_attention_norm = _add_norm(self.config)
        self.cross_attention = _attention(self.config)
        self.cross_attention_norm = _add_norm(self.config)
        self.feed_forward = _feed_forward(self.config)
        self.feed_forward_norm = _add_norm(self.config)

    def __call__(
        self,
        x: Float[AnyArray, "N T d_model"],
        self_keys_values: KeysValues,
        self_mask: Bool[AnyArray, "... T K"],
        memory_keys_values: KeysValues,
        memory_mask: Bool[AnyArray, "... #T S"] | None = None,
    ) -> Float[Array, "N T d_model"]:
        """Apply self-attention, attention over the encoder's output, and the feed-forward network.

        self_keys_values: `keys_values(x)`, or the cache with these written in.
        N is B in training. In a search it is M hypotheses for each sentence, with T = 1.
        """
        inputs = self.self_attention_norm.before(x)  # x itself in the paper's model
        x = self.self_attention_norm(x, self.self_attention(inputs, self_keys_values, self_mask))
        # The hypotheses of a sentence share the encoder's output: all are queries of one row.
        batch = memory_keys_values.keys.shape[0]
        together = x.shape[0] // max(batch, 1) * x.shape[1]  # M T
        queries = self.cross_attention_norm.before(x).reshape(batch, together, x.shape[-1])
        attended = self.cross_attention(queries, memory_keys_values, memory_mask).reshape(x.shape)
        x = self.cross_attention_norm(x, attended)
        return self.feed_forward_norm(x, self.feed_forward(self.feed_forward_norm.before(x)))

    def keys_values(self, x: Float[AnyArray, "N T d_model"]) -> KeysValues:
        """Return the keys and values of the self-attention for the layer's input x."""
        return self.self_attention.keys_values(self.self_attention_norm.before(x))


class Transformer(nn.Module):
    """The model of Figure 1: logits of the next target token at every position.

    With one vocabulary for both sides, one matrix embeds source and target and makes the logits
    (§3.4). With two vocabularies, or if `config.tie_source` is false, only target and output share
    a matrix; if `config.tie_embeddings` is false, each of the three has its own.

    >>> model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
    >>> source, target = jnp.array([[5, 6, 7, 2]]), jnp.array([[1, 8, 9]])
    >>> variables = jax.eval_shape(model.init, jax.random.key(0), source, target)
    >>> sum(leaf.size for leaf in jax.tree.leaves(variables))  # only shapes; Table 3 has 65 million
    63045632
    >>> jax.eval_shape(model.apply, variables, source, target).shape  # [B, T, V]
    (1, 3, 37000)
    """

    config: ModelConfig
    vocabulary_size: int
    pad_id: int
    target_vocabulary_size: int | None = None  # None: one vocabulary for both sides
    target_pad_id: int | None = None  # None: pad_id

    def __post_init__(self) -> None:
        """Raise InputError if `config` is not a ModelConfig, or pad_id is not an id."""
        expect_a(ModelConfig, config=self.config)
        check_ids(self.vocabulary_size, pad_id=self.pad_id)
        name = "pad_id" if self.target_pad_id is None else "target_pad_id"
        check_ids(self.output_size, **{name: self.output_pad_id})
        super().__post_init__()

    @property
    def output_size(self) -> int:
        """The size of the target's vocabulary."""
        return self.target_vocabulary_size or self.vocabulary_size

    @property
    def output_pad_id(self) -> int:
        """PAD of the target."""
        return self.pad_id if self.target_pad_id is None else self.target_pad_id

    def setup(self) -> None:
        """Define the embeddings and the two stacks."""
        config = self.config
        embedding = partial(Embedding, d_model=config.d_model, **_numerics(config))
        shared = config.tie_embeddings and config.tie_source and self.target_vocabulary_size is None
        self.embedding = embedding(self.vocabulary_size)
        self.target_embedding = self.embedding if shared else embedding(self.output_size)
        self.output_embedding = (
            self.target_embedding if config.tie_embeddings else embedding(self.output_size)
        )
        if config.positions == "learned":
            shape = (config.max_positions, config.d_model)
            initializer = nn.initializers.normal(config.d_model**-0.5)
            self.position_table = self.param("position_table", initializer, shape, jnp.float32)
        self.embedding_dropout = Dropout(config.dropout_rate)
        remat = nn.remat if config.remat == "layers" else lambda layer: layer
        self.encoder = [remat(EncoderLayer)(config) for _ in range(config.num_layers)]
        self.decoder = [remat(DecoderLayer)(config) for _ in range(config.num_decoder_layers)]
        if config.norm_position == "pre":
            norm = partial(nn.LayerNorm, config.norm_epsilon, dtype=jnp.dtype(config.compute_dtype))
            self.encoder_norm, self.decoder_norm = norm(), norm()
        if config.output_bias:
            zeros = nn.initializers.zeros
            self.output_bias = self.param("output_bias", zeros, (self.output_size,), jnp.float32)

    def __call__(
        self,
        source: Int[AnyArray, "B S"],
        target: Int[AnyArray, "B T"],
        source_segments: Int[AnyArray, "B S"] | None = None,
        target_segments: Int[AnyArray, "B T"] | None = None,
    ) -> Float[Array, "B T V"]:
        """Return logits of what follows each prefix of `target`, which starts with BOS.

        source, target: token ids, PAD after the end. Position t of the result depends on target
        tokens 0 ... t only.
        source_segments, target_segments: for rows that hold several pairs, the number of each
        token's pair in its row from 1 on, 0 for PAD; each pair then attends only to itself.
        """
        encoded = self.encode(source, source_segments)
        check_pair(source, target, source_segments, target_segments)
        memory = self.remember(encoded, source, source_segments)
        return self.decode(memory, target, target_segments)

    def encode(
        self, source: Int[AnyArray, "B S"], segments: Int[AnyArray, "B S"] | None = None
    ) -> Float[Array, "B S d_model"]:
        """Return the encoder's hidden state of every source token. segments: as in `__call__`."""
        check_tokens(self.vocabulary_size, 2, source=source)
        mask = padding_mask(source, self.pad_id)
        if segments is not None:
            mask = segment_mask(segments, segments)
        if self.config.attention_radius:
            mask &= local_attention_mask(source.shape[1], self.config.attention_radius)
        x = self._embed_source(source, self._positions(source, segments))
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x) if self.config.norm_position == "pre" else x

    def remember(
        self,
        encoded: Float[AnyArray, "B S d_model"],
        source: Int[AnyArray, "B S"],
        segments: Int[AnyArray, "B S"] | None = None,
    ) -> Memory:
        """Project what `encode` gave for `source` to each decoder layer's keys and values."""
        keys_values = tuple(layer.cross_attention.keys_values(encoded) for layer in self.decoder)
        if segments is None:
            segments = (source != self.pad_id).astype(jnp.int32)
        return Memory(keys_values, jnp.asarray(segments))

    def decode(
        self,
        memory: Memory,
        target: Int[AnyArray, "B T"],
        segments: Int[AnyArray, "B T"] | None = None,
    ) -> Float[Array, "B T V"]:
        """Return the logits at all positions of known targets at once (teacher forcing).

        segments: as in `__call__`, required if the memory was made with segments.
        Padding comes after the end, so the causal mask hides it from every real position.
        """
        check_tokens(self.output_size, 2, target=target)
        mask = self._causal_mask(target.shape[1])
        if segments is not None:
            mask &= segment_mask(segments, segments)
        memory_mask = segment_mask(ONE_SEGMENT if segments is None else segments, memory.segments)
        x = self._embed_target(target, self._positions(target, segments))
        for layer, source_keys_values in zip(self.decoder, memory.keys_values, strict=True):
            x = layer(x, layer.keys_values(x), mask, source_keys_values, memory_mask)
        return self._logits(x)

    def decode_step(
        self,
        memory: Memory,
        cache: Cache,
        token: Int[AnyArray, " N"],
        position: Int[AnyArray, " #N"] | Int[AnyArray, ""],
        column: Int[AnyArray, ""] | None = None,
    ) -> tuple[Float[Array, "N V"], Cache]:
        """Return logits of the token that follows `token`, and the cache with `token` added.

        `token` is at `position` (BOS at 0). The N rows are the M hypotheses of the memory's first
        sentence, then those of the next. The memory must not have rows with several pairs.

        position: the position of `token`, below the length of the cache.
        column: the column of the cache to write. The columns form a ring: the tokens before `token`
          are in the columns before this one, and the last column comes before the first. None
          takes `position`, which must then be the same for all rows.
        """
        x = self._embed_target(token[:, None], jnp.reshape(position, (-1, 1)))
        return self._step(memory, cache, x, position, column)

    def empty_cache(self, rows: int, length: int) -> Cache:
        """Return the cache of `rows` hypotheses of at most `length` tokens each, BOS included.

        >>> model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
        >>> cache = model.empty_cache(rows=3 * 4, length=20)
        >>> len(cache), cache[0].keys.shape  # [N, H, T, d_k]
        (6, (12, 8, 20, 64))
        """
        config = self.config
        self._check_length(length)
        shape = rows, config.num_heads, length
        zeros = partial(jnp.zeros, dtype=config.compute_dtype)
        return tuple(  # arrays of their own, so that they can be donated
            KeysValues(zeros((*shape, config.d_k)), zeros((*shape, config.d_v)))
            for _ in range(config.num_decoder_layers)
        )

    def _step(
        self,
        memory: Memory,
        cache: Cache,
        x: Float[AnyArray, "N 1 d_model"],
        position: Int[AnyArray, " #N"] | Int[AnyArray, ""],
        column: Int[AnyArray, ""] | None = None,
    ) -> tuple[Float[Array, "N V"], Cache]:
        """Do the step of `decode_step` for an embedded token."""
        column = jnp.ravel(position)[0] if column is None else column
        length, radius = cache[0].keys.shape[2], self.config.attention_radius
        distance = (column - jnp.arange(length, dtype=jnp.int32)) % length  # [T]
        earlier = jnp.minimum(position, radius) if radius else position
        mask = distance[None, None, None] <= jnp.reshape(earlier, (-1, 1, 1, 1))  # [#N, 1, 1, T]
        memory_mask = segment_mask(ONE_SEGMENT, memory.segments)
        new_cache = []
        for layer, source_keys_values, cached in zip(
            self.decoder, memory.keys_values, cache, strict=True
        ):
            cached = _write(cached, layer.keys_values(x), column)
            x = layer(x, cached, mask, source_keys_values, memory_mask)
            new_cache.append(cached)
        return self._logits(x[:, 0]), tuple(new_cache)

    def _logits(self, hidden: Float[AnyArray, "*B d_model"]) -> Float[Array, "*B V"]:
        """Return the logits of the decoder's hidden states (§3.4); the paper's have no bias."""
        if self.config.norm_position == "pre":
            hidden = self.decoder_norm(hidden)
        logits = self.output_embedding.logits(hidden)
        if self.config.output_bias:
            logits += jnp.broadcast_to(self.output_bias, logits.shape)
        return logits

    def _embed_source(
        self, tokens: Int[AnyArray, "B S"], positions: Int[AnyArray, "#B S"]
    ) -> Float[Array, "B S d_model"]:
        return self._embed(self.embedding, tokens, self._position_encoding(positions))

    def _embed_target(
        self, tokens: Int[AnyArray, "N T"], positions: Int[AnyArray, "#N T"]
    ) -> Float[Array, "N T d_model"]:
        return self._embed(self.target_embedding, tokens, self._position_encoding(positions))

    def _embed(
        self,
        embedding: Embedding,
        tokens: Int[AnyArray, "N T"],
        encoding: Float[AnyArray, "#N T d_model"],
    ) -> Float[Array, "N T d_model"]:
        """Add embeddings and position encodings, with dropout on the sums (§3.4, 3.5, 5.4)."""
        embedded = (embedding(tokens) + encoding).astype(self.config.compute_dtype)
        return self.embedding_dropout(embedded)

    def _positions(
        self, tokens: Int[AnyArray, "B T"], segments: Int[AnyArray, "B T"] | None
    ) -> Int[Array, "#B T"]:
        """Return the position of each token in its own sentence, from 0."""
        if segments is not None:
            return segment_positions(segments)
        self._check_length(tokens.shape[1])
        return jnp.arange(tokens.shape[1])[None]

    def _check_length(self, length: int) -> None:
        if self.config.positions == "learned":
            check_length(length, self.config.max_positions)

    def _position_encoding(self, positions: Int[AnyArray, "#N T"]) -> Float[Array, "#N T d_model"]:
        if self.config.positions == "learned":
            check_tokens(self.config.max_positions, positions=positions)
            return jnp.take(self.position_table, positions, axis=0)  # NaN beyond the last row
        return positional_encoding(positions, self.config.d_model)

    def _causal_mask(self, length: int) -> Bool[Array, "1 1 T T"]:
        """Return the decoder's self-attention mask, restricted if so configured (§4, Table 1)."""
        mask, radius = causal_mask(length), self.config.attention_radius
        return mask & local_attention_mask(length, radius) if radius else mask


def as_computed(params: Params, config: ModelConfig, *, transposed: bool = False) -> Params:
    """Return parameters whose matrices have the type of the products, config.compute_dtype.

    Products convert them anyway. A search that is given converted ones reads half of their bytes at
    each step. Embeddings are then rounded before they are scaled, not only after. Biases, norms and
    learned positions stay float32.

    transposed: True adds E^T to the E that makes the logits: see `Devices.prefer_transposed`.
    """
    dtype = jnp.dtype(config.compute_dtype)

    def convert(path: tuple[Any, ...], leaf: AnyArray) -> AnyArray:
        is_operand = path[-1].key in ("kernel", "matrix")
        return leaf.astype(dtype) if is_operand and leaf.dtype != dtype else leaf

    params = jax.tree_util.tree_map_with_path(convert, params)
    if transposed:
        names = "output_embedding", "target_embedding", "embedding"
        name = next(name for name in names if name in params)
        matrix = params[name]["matrix"]
        params = {**params, name: {"matrix": matrix, "transposed": matrix.T}}
    return params


def _write(cached: KeysValues, new: KeysValues, position: Int[AnyArray, ""]) -> KeysValues:
    """Write new keys and values [N, H, 1, d] at `position` of the cache [N, H, T, d]."""
    write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=position, axis=2)
    return KeysValues(write(cached.keys, new.keys), write(cached.values, new.values))


def _numerics(config: ModelConfig) -> dict[str, Any]:
    """Return type and precision of matrix products; products of bfloat16 have one precision."""
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
        fused=bool(config.fused_attention),
        **_numerics(config),
    )


def _feed_forward(config: ModelConfig) -> FeedForward:
    options = {"activation": config.activation, **_numerics(config)}
    return FeedForward(config.d_ff, config.d_model, **options)


def _add_norm(config: ModelConfig) -> AddNorm:
    residual = PreNorm if config.norm_position == "pre" else AddNorm
    return residual(config.dropout_rate, jnp.dtype(config.compute_dtype), config.norm_epsilon)
