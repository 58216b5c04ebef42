"""Tables 2 and 3: the parameters of a model, and the FLOPs of its training."""

import dataclasses
import functools
import math

import jax

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.train_step import abstract_params

_PAD_ID = 0  # has no influence on the number of parameters


def count_parameters(config: ModelConfig, vocabulary_size: int) -> int:
    """Count the trainable parameters, with one vocabulary for both sides: "params" of Table 3.

    >>> f"{count_parameters(ModelConfig(), vocabulary_size=37_000):,}"
    '63,045,632'
    >>> f"{count_parameters(ModelConfig(attention_bias=True), 40_960):,}"  # those of its code
    '65,110,016'
    """

    def count(encoder: int, decoder: int) -> int:
        layers = {"num_layers": encoder, "decoder_layers": decoder}
        return _count(dataclasses.replace(config, **layers), vocabulary_size)

    smallest = count(1, 1)
    encoder_layer, decoder_layer = count(2, 1) - smallest, count(1, 2) - smallest
    return (
        smallest
        + (config.num_layers - 1) * encoder_layer
        + (config.num_decoder_layers - 1) * decoder_layer
    )


@functools.cache  # rows that differ in numbers of layers alone share all three
def _count(config: ModelConfig, vocabulary_size: int) -> int:
    shapes = abstract_params(Transformer(config, vocabulary_size, _PAD_ID))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def count_training_flops(
    config: ModelConfig, vocabulary_size: int, source_length: int, target_length: int
) -> int:
    """Count the FLOPs of the matrix products in the gradient of the loss of one sentence pair.

    Lengths are in tokens, EOS included, without padding. With Q queries and K keys, the
    multiply-adds of the forward pass are

        attention(Q, K) = d_model h (Q d_k + K d_k + K d_v + Q d_v)   W^Q, W^K, W^V, W^O (§3.2.2)
                          + Q K h (d_k + d_v)                         scores, weighted values
        feed_forward(T) = 2 T d_model d_ff                            (§3.3)
        encoder         = N (attention(S, S) + feed_forward(S))
        decoder         = N (attention(T, T) + attention(T, S) + feed_forward(T))
        logits          = T d_model V                                 (§3.4)

    A multiply-add is two operations, and the backward pass has two products for each of the
    forward pass. Scores that the causal mask hides are computed, so they are counted. Not
    counted are the scores that the backward pass computes again, element-wise work, look-ups and
    Adam: together under 2% of a step of base on 25,000 tokens a side.
    """

    def attention(queries: int, keys: int) -> int:
        widths = config.num_heads * (config.d_k + config.d_v)
        return config.d_model * widths * (queries + keys) + queries * keys * widths

    def feed_forward(length: int) -> int:
        return 2 * length * config.d_model * config.d_ff

    source, target = source_length, target_length
    encoder = attention(source, source) + feed_forward(source)
    decoder = attention(target, target) + attention(target, source) + feed_forward(target)
    logits = target * config.d_model * vocabulary_size
    layers = config.num_layers * encoder + config.num_decoder_layers * decoder
    return 3 * 2 * (layers + logits)
