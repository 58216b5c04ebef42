"""§6.3 A Transformer whose position encodings also give the number of the word.

Each tag of a linearized tree completes one word of the sentence. Here half of the encoding encodes
the word's number, the same in source and target, so attention finds the word without having to
learn to count, which a small model does not learn.
Differs: not in the paper.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jax_transformer.models.layers import positional_encoding, sines_and_cosines
from jax_transformer.models.transformer import Cache, Memory, Transformer
from jax_transformer.types import AnyArray


class WordTransformer(Transformer):
    """A `Transformer` that counts words: d_model is a multiple of 4, and positions are sinusoidal.

    word_starts: one byte for each source token, 1 if it begins a word; 1 for EOS too, so that it
      has the number after the last word's.
    tags: one byte for each target token, 1 if it is a tag, which completes a word.

    >>> import jax
    >>> from jax_transformer import ModelConfig
    >>> config = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
    >>> counts = {"word_starts": bytes([0, 0, 1, 1, 0]), "tags": bytes([0, 0, 0, 1])}
    >>> model = WordTransformer(config, 5, pad_id=0, target_vocabulary_size=4, **counts)
    >>> source, target = jnp.array([[3, 4, 3, 2]]), jnp.array([[1, 3, 3]])  # two words, two tags
    >>> logits, _ = jax.eval_shape(model.init_with_output, jax.random.key(0), source, target)
    >>> logits.shape
    (1, 3, 4)
    """

    word_starts: bytes = b""
    tags: bytes = b""

    def decode_step(
        self,
        memory: Memory,
        cache: Cache,
        token: Int[AnyArray, " N"],
        position: Int[AnyArray, " #N"] | Int[AnyArray, ""],
        column: Int[AnyArray, ""] | None = None,
    ) -> tuple[Float[Array, "N V"], Cache]:
        """Do the step of `Transformer.decode_step`; the cache also has the number of tags."""
        cache, words = cache
        words = jnp.where(position == 0, 0, words) + _marked(token, self.tags)
        here = jnp.reshape(position, (-1, 1))
        encoding = word_encoding(here, words[:, None], self.config.d_model)
        x = self._embed(self.target_embedding, token[:, None], encoding)
        logits, cache = self._step(memory, cache, x, position, column)
        return logits, (cache, words)

    def empty_cache(self, rows: int, length: int) -> Cache:
        """Return the cache of `Transformer.empty_cache`, and the number of tags so far."""
        return super().empty_cache(rows, length), jnp.zeros(rows, jnp.int32)

    def _embed_source(
        self, tokens: Int[AnyArray, "B S"], positions: Int[AnyArray, "#B S"]
    ) -> Float[Array, "B S d_model"]:
        words = count_marked(tokens, self.word_starts, positions) - 1
        encoding = word_encoding(positions, words, self.config.d_model)
        return self._embed(self.embedding, tokens, encoding)

    def _embed_target(
        self, tokens: Int[AnyArray, "N T"], positions: Int[AnyArray, "#N T"]
    ) -> Float[Array, "N T d_model"]:
        words = count_marked(tokens, self.tags, positions)
        encoding = word_encoding(positions, words, self.config.d_model)
        return self._embed(self.target_embedding, tokens, encoding)


def word_encoding(
    positions: Int[AnyArray, "#N T"], words: Int[AnyArray, "N T"], d_model: int
) -> Float[Array, "N T {d_model}"]:
    """Return two encodings side by side: of the token's position, and of its word's number.

    The frequencies for words go from pi down to pi / 100, the paper's for positions from 1 down
    to about 1 / 10000. Higher ones separate neighbouring words more clearly, and attention
    learns to tell them apart sooner. d_model is a multiple of 4.
    """
    position_half = positional_encoding(positions, d_model // 2)
    word_half = sines_and_cosines(words, np.geomspace(np.pi, np.pi / 100, d_model // 4))
    position_half = jnp.broadcast_to(position_half, word_half.shape)
    return jnp.concatenate([position_half, word_half], axis=-1)


def count_marked(
    tokens: Int[AnyArray, "B T"], marks: bytes, positions: Int[AnyArray, "#B T"]
) -> Int[Array, "B T"]:
    """Count the marked tokens of each sentence up to and including each token.

    positions: the position of each token in its own sentence, of which a row may hold several.

    >>> tokens, positions = jnp.array([[2, 3, 3, 3, 2]]), jnp.array([[0, 1, 2, 0, 1]])
    >>> count_marked(tokens, bytes([0, 0, 0, 1]), positions).tolist()
    [[0, 1, 2, 1, 1]]
    """
    marked = _marked(tokens, marks)
    count = jnp.cumsum(marked, axis=1)
    start = jnp.arange(tokens.shape[1])[None] - positions  # the column where the sentence starts
    start = jnp.broadcast_to(start, tokens.shape)
    return count - jnp.take_along_axis(count - marked, start, axis=1)


def _marked(tokens: Int[AnyArray, "..."], marks: bytes) -> Int[Array, "..."]:
    return jnp.asarray(np.frombuffer(marks, np.uint8), jnp.int32)[tokens]
