"""§3.1 The Transformer: encoder and decoder stacks, and one step of cached decoding.

    model = Transformer(ModelConfig(), vocabulary_size=37_000, pad_id=0)
    variables = model.init(key, source, target)
    logits = model.apply(variables, source, target)

Randomness is the mode: with `rngs={"dropout": key}` the model trains, without it is exact.
"""

from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jax_transformer.attention import (
    KeysValues,
    MultiHeadAttention,
    causal_mask,
    neighbourhood_mask,
    padding_mask,
    written_mask,
)
from jax_transformer.config import ModelConfig
from jax_transformer.layers import (
    AddNorm,
    Dropout,
    Embedding,
    FeedForward,
    positional_encoding,
    word_encoding,
)


class Memory(NamedTuple):
    """The encoded source as the decoder sees it; constant through a search.

    Every leaf has the batch axis first.
    """

    keys_values: tuple[KeysValues, ...]  # one for each decoder layer, [B, S, H, d]
    mask: Bool[Array, "B 1 1 S"]


class Cache(NamedTuple):
    """What a search remembers of the target positions so far; every leaf has the row first."""

    keys_values: tuple[KeysValues, ...]  # one for each decoder layer, [N, T, H, d]
    words: Int[Array, " N"] | None = None  # that have ended, where positions count words


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
        self, x: Float[Array, "B S d_model"], mask: Bool[Array, "B 1 1 S"]
    ) -> Float[Array, "B S d_model"]:
        """Every position attends to all real positions."""
        keys_values = self.self_attention.keys_values(x)
        x = self.self_attention_norm(x, self.self_attention(x, keys_values, mask))
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
        x: Float[Array, "N T d_model"],
        past: KeysValues,
        past_mask: Bool[Array, "1 1 T K"],
        memory: KeysValues,
        memory_mask: Bool[Array, "B 1 1 S"],
    ) -> Float[Array, "N T d_model"]:
        """x attends to `past`, which holds its own positions too, and to the encoder.

        N is B, or a multiple of it: then rows n*N/B ... belong to sentence n (the
        hypotheses of a beam), and share its keys and values instead of copying them.
        """
        x = self.self_attention_norm(x, self.self_attention(x, past, past_mask))
        by_sentence = (memory_mask.shape[0], -1, self.config.d_model)  # [B, N / B * T, d_model]
        attended = self.cross_attention(x.reshape(by_sentence), memory, memory_mask).reshape(
            x.shape
        )
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
        self, source: Int[Array, "B S"], target: Int[Array, "B T"]
    ) -> Float[Array, "B T V"]:
        """Logits of what follows each prefix of `target`, a translation that starts with BOS.

        source, target: token ids, PAD behind the end. Row t of the result sees target
        tokens 0 ... t only.
        """
        return self.decode(self.encode(source), target)

    def encode(self, source: Int[Array, "B S"]) -> Memory:
        """Run the encoder, and project its output to each decoder layer's keys and values."""
        mask = padding_mask(source, self.pad_id)
        words = self._words(source, "source", -1)
        x = self._embed(self.embedding, source, jnp.arange(source.shape[1]), words)
        near = self._neighbourhood(mask, source.shape[1])
        for layer in self.encoder:
            x = layer(x, near)
        return Memory(tuple(layer.cross_attention.keys_values(x) for layer in self.decoder), mask)

    def decode(self, memory: Memory, target: Int[Array, "B T"]) -> Float[Array, "B T V"]:
        """All positions of a known target at once (teacher forcing).

        Padding stands behind the end, so the causal mask already hides it from every
        real position.
        """
        mask = self._neighbourhood(causal_mask(target.shape[1]), target.shape[1])
        words = self._words(target, "target", 0)
        x = self._embed(self._target_embedding, target, jnp.arange(target.shape[1]), words)
        for layer, encoded in zip(self.decoder, memory.keys_values, strict=True):
            past = layer.self_attention.keys_values(x)
            x = layer(x, past, mask, encoded, memory.mask)
        return self._output_embedding.logits(x)

    def step(
        self,
        memory: Memory,
        cache: Cache,
        token: Int[Array, " N"],
        position: Int[Array, ""],
    ) -> tuple[Float[Array, "N V"], Cache]:
        """Logits of the token after `token`, which stands at `position` (from 0, BOS).

        N is a multiple of the memory's B, see DecoderLayer. Returns the cache with
        this position written.
        """
        written = []
        words = self._words(token[:, None], "target", cache.words)
        x = self._embed(self._target_embedding, token[:, None], position[None], words)
        layers = zip(self.decoder, memory.keys_values, cache.keys_values, strict=True)
        for layer, encoded, past in layers:
            here = layer.self_attention.keys_values(x)
            past = KeysValues(
                *(old.at[:, position].set(new[:, 0]) for old, new in zip(past, here, strict=True))
            )
            mask = written_mask(past.keys.shape[1], position, self._radius)
            x = layer(x, past, mask, encoded, memory.mask)
            written.append(past)
        ended = None if words is None else words[:, 0]
        return self._output_embedding.logits(x)[:, 0], Cache(tuple(written), ended)

    def _words(
        self, tokens: Int[Array, "B T"], side: str, before: Int[Array, " B"] | int | None
    ) -> Int[Array, "B T"] | None:
        """The number of each token's word, from 0; for a target token, of the word to come."""
        if self.config.positions != "words":
            return None
        assert self.word_marks is not None and before is not None
        marks = jnp.asarray(np.frombuffer(getattr(self.word_marks, side), np.uint8), jnp.int32)
        return jnp.cumsum(marks[tokens], axis=1) + jnp.reshape(jnp.asarray(before), (-1, 1))

    def _embed(
        self,
        embedding: Embedding,
        tokens: Int[Array, "B T"],
        positions: Int[Array, " T"],
        words: Int[Array, "B T"] | None,
    ) -> Float[Array, "B T d_model"]:
        if words is not None:
            encoding = word_encoding(positions, words, self.config.d_model)
        elif self.config.positions == "learned":
            encoding = self.position_table[positions][None]
        else:
            encoding = positional_encoding(positions, self.config.d_model)[None]
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


def empty_cache(config: ModelConfig, rows: int, length: int) -> Cache:
    """A cache of zeros for `rows` hypotheses of at most `length` tokens, BOS included.

    >>> cache = empty_cache(ModelConfig(), rows=4, length=20)
    >>> len(cache.keys_values), cache.keys_values[0].keys.shape
    (6, (4, 20, 8, 64))
    """
    shape = (rows, length, config.num_heads)
    empty = KeysValues(jnp.zeros((*shape, config.d_k)), jnp.zeros((*shape, config.d_v)))
    words = jnp.zeros(rows, jnp.int32) if config.positions == "words" else None
    return Cache((empty,) * config.num_layers, words)


def _attention(config: ModelConfig) -> MultiHeadAttention:
    return MultiHeadAttention(
        num_heads=config.num_heads,
        d_model=config.d_model,
        d_k=config.d_k,
        d_v=config.d_v,
        dropout_rate=config.attention_dropout_rate,
        use_bias=config.attention_bias,
        compute_dtype=jnp.dtype(config.compute_dtype),
    )


def _feed_forward(config: ModelConfig) -> FeedForward:
    return FeedForward(config.d_ff, config.d_model, jnp.dtype(config.compute_dtype))
