"""Tables 2 and 3: parameters and training FLOPs, counted in the model itself; nothing is run."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from jax_transformer.config import ModelConfig
from jax_transformer.models.transformer import Transformer, WordMarks
from jax_transformer.training.train_step import Batch, abstract_params, gradients

PAD_ID, BOS_ID = 0, 1  # no count depends on them


def count_parameters(config: ModelConfig, vocabulary_size: int) -> int:
    """Numbers that training sets: the column "params" of Table 3."""
    return _over_layers(_parameters, config, vocabulary_size)


def count_training_flops(
    config: ModelConfig, vocabulary_size: int, source_length: int, target_length: int
) -> int:
    """FLOPs of the matrix products in the gradient of the loss of one sentence pair.

    Lengths are in tokens, EOS included, without padding. The products are found in the
    trace of the gradient that a training step takes, forward and backward; a batch of B
    such pairs needs B times as many. Scores that the causal mask hides are computed, and
    counted. Dropout, other element-wise work, look-ups and Adam are not: they have no
    products.
    """
    return _over_layers(_training_flops, config, vocabulary_size, source_length, target_length)


def _over_layers(count: Callable[..., int], config: ModelConfig, *sizes: int) -> int:
    """What one layer has, and for each further one what the second adds: all are alike.

    Most rows of the tables then have their traces in common.
    """

    def of(num_layers: int) -> int:
        plain = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "fused_attention": False}
        return count(dataclasses.replace(config, num_layers=num_layers, **plain), *sizes)

    return of(1) + (config.num_layers - 1) * (of(2) - of(1))


@functools.cache
def _parameters(config: ModelConfig, vocabulary_size: int) -> int:
    shapes = abstract_params(_model(config, vocabulary_size))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@functools.cache
def _training_flops(
    config: ModelConfig, vocabulary_size: int, source_length: int, target_length: int
) -> int:
    model = _model(config, vocabulary_size)

    def gradient(params: Any, source: Any, target: Any) -> Any:
        return gradients(model, params, Batch(source, target), BOS_ID, label_smoothing=0.1)[0]

    source, target = (
        jax.ShapeDtypeStruct((1, length), jnp.int32) for length in (source_length, target_length)
    )
    traced = jax.make_jaxpr(gradient)(abstract_params(model), source, target)
    return product_flops(traced.jaxpr)


def _model(config: ModelConfig, vocabulary_size: int) -> Transformer:
    none = WordMarks(bytes(vocabulary_size), bytes(vocabulary_size))  # they have no parameters
    return Transformer(config, vocabulary_size, PAD_ID, word_marks=none)


def product_flops(program: Jaxpr) -> int:
    """Floating-point operations of all matrix products of a traced program.

    2 x output size x contracted size each, a multiply-add being two operations. The body
    of a scan counts once for each of its rounds. Raises ValueError where a product stands
    in a loop or a branch, because how often it runs is not known from the trace.
    """
    flops = 0
    for equation in program.eqns:
        name = equation.primitive.name
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left: Any = equation.invars[0].aval
            out: Any = equation.outvars[0].aval
            inner = math.prod(left.shape[axis] for axis in contracted)
            flops += 2 * math.prod(out.shape) * inner
        inside = sum(product_flops(part) for part in _programs_in(equation.params))
        if inside and name in ("while", "cond"):
            raise ValueError(
                f"expected products outside of loops and branches, found one in {name}"
            )
        flops += inside * (equation.params["length"] if name == "scan" else 1)
    return flops


def _programs_in(parameters: dict[str, Any]) -> Iterator[Jaxpr]:
    """What an equation calls, such as the body of a scan or the branches of a condition."""
    for value in jax.tree.leaves(
        list(parameters.values()), is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
    ):
        if isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, Jaxpr):
            yield value
