"""The parts of a run's training step: its schedule, frozen parameters, and stacked arrays.

A constant learning rate and frozen parameters, to continue from a model, are not in the paper.

Parameters of the same shape and type are stacked into one array each. Dispatching a step costs time
on the host for each input and output array on each device, and each kernel of the optimizer costs
time on the device. The training state of the base model has 547 arrays, or 25 when stacked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jax_transformer.config import Config
from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import Schedule, adam, learning_rate
from jax_transformer.training.train_step import (
    Loss,
    StepMetrics,
    TrainState,
    abstract_params,
    make_loss,
    make_train_step,
)
from jax_transformer.types import Params

_path = partial(jax.tree_util.keystr, simple=True, separator="/")


def schedule_of(config: Config) -> Schedule:
    """Return the learning rate as a function of the step, which counts from 1.

    With training.learning_rate it is that rate * min(1, step / warmup_steps), else equation (3).
    """
    training = config.training
    if rate := training.learning_rate:
        warmup = training.warmup_steps
        return lambda step: rate * jnp.minimum(1.0, jnp.asarray(step, jnp.float32) / warmup)
    return partial(
        learning_rate,
        d_model=config.model.d_model,
        warmup_steps=training.warmup_steps,
        scale=training.learning_rate_scale,
    )


def training_step(
    config: Config, model: Transformer, bos_id: int
) -> tuple[optax.GradientTransformation, Callable[..., tuple[TrainState, StepMetrics]]]:
    """Return the optimizer and the step that a run's settings describe; parameters are stacked.

    bos_id: the begin mark of targets.
    """
    training = config.training
    optimizer = adam(schedule_of(config), training.adam_b1, training.adam_b2, training.adam_epsilon)
    loss = make_loss(model, bos_id, training.label_smoothing)
    loss = loss_of_stacked(with_frozen(loss, training.freeze, abstract_params(model)))
    step = make_train_step(loss, optimizer, training.accumulate)
    # optax mixes types, also if JAX is set to refuse that: jax_numpy_dtype_promotion=strict.
    return optimizer, jax.numpy_dtype_promotion("standard")(step)


def with_frozen(loss: Loss, freeze: str, params_like: Params) -> Loss:
    """Return the same loss whose gradient is zero for the frozen parameters, which Adam then keeps.

    freeze: names with commas between; a name freezes each parameter whose path begins with it, up
      to a slash or an underscore: "encoder", "decoder_0/self_attention".

    Their part of the backward pass is not computed. Raises InputError for a name that no parameter
    has, or if none would be left to train.
    """
    names = [name.strip() for name in freeze.split(",") if name.strip()]
    paths = [_path(path) for path, _ in jax.tree_util.tree_leaves_with_path(params_like)]
    for name in names:
        if not any(_begins(path, name) for path in paths):
            parts = [path.split("/") for path in paths]
            known = {"/".join(part[:n]) for part in parts for n in range(1, len(part) + 1)}
            known |= {name.rpartition("_")[0] for name in known if name[-1].isdecimal()}
            raise InputError(
                f"training.freeze={freeze}: expected the beginnings of parameters' names, found "
                f"{name!r}, which none has{did_you_mean(name, known)}"
            )
    if names and all(any(_begins(path, name) for name in names) for path in paths):
        raise InputError(
            f"training.freeze={freeze}: expected something left to train, found nothing; freeze "
            "fewer parts"
        )

    def frozen(path: Any, leaf: Any) -> Any:
        stops = any(_begins(_path(path), name) for name in names)
        return jax.lax.stop_gradient(leaf) if stops else leaf

    if not names:
        return loss
    return lambda params, *arguments: loss(
        jax.tree_util.tree_map_with_path(frozen, params), *arguments
    )


def _begins(path: str, name: str) -> bool:
    return path.startswith(name) and path[len(name) :][:1] in ("", "/", "_")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Stacked:
    """A tree whose leaves of one shape and type are one array, [number of leaves, ...].

    For JAX and optax it is a tree of a few arrays. NumPy arrays are stacked into NumPy arrays.

    >>> stacked = Stacked.of({"a": jnp.zeros(2), "b": jnp.ones(2), "c": jnp.ones(3)})
    >>> [stack.shape for stack in stacked.stacks]
    [(2, 2), (1, 3)]
    >>> stacked.tree()["b"]
    Array([1., 1.], dtype=float32)
    """

    stacks: tuple[Any, ...]
    # (the tree's structure, (number of the stack, index in it) of each leaf)
    layout: Any = field(metadata={"static": True})

    @classmethod
    def of(cls, tree: Any) -> "Stacked":
        """Stack the leaves of a tree."""
        leaves, structure = jax.tree.flatten(tree)
        kinds = [(leaf.shape, leaf.dtype) for leaf in leaves]
        number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        stacks: list[list[Any]] = [[] for _ in number]
        places = []
        for leaf, kind in zip(leaves, kinds, strict=True):
            stack = stacks[number[kind]]
            places.append((number[kind], len(stack)))
            stack.append(leaf)
        join: Any = np.stack if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp.stack
        return cls(tuple(map(join, stacks)), (structure, tuple(places)))

    def tree(self) -> Any:
        """Return the tree that was stacked."""
        structure, places = self.layout
        apart = [_apart(stack) for stack in self.stacks]
        return structure.unflatten([apart[stack][place] for stack, place in places])


def _apart(stack: Any) -> list[Any]:
    if isinstance(stack, np.ndarray):
        return [stack[i, ...] for i in range(len(stack))]
    # The gradient of a split is one concatenation; that of n indexings is a sum of n padded arrays.
    return [part[0] for part in jax.lax.split(stack, [1] * len(stack))]


def stack_params(state: TrainState) -> TrainState:
    """Return a `TrainState` with its parameters and moments stacked."""
    structure = jax.tree.structure(state.params)

    def is_like_params(tree: Any) -> bool:
        return jax.tree.structure(tree) == structure

    def stacked(tree: Any) -> Any:
        return Stacked.of(tree) if is_like_params(tree) else tree

    return jax.tree.map(stacked, state, is_leaf=is_like_params)


def loss_of_stacked(loss: Loss) -> Loss:
    """Return the same loss for parameters that may be stacked."""
    return lambda params, *arguments: loss(unstack(params), *arguments)


def unstack(tree: Any) -> Any:
    """Return a tree with every `Stacked` in it replaced by the tree that it was made of."""

    def is_stacked(part: Any) -> bool:
        return isinstance(part, Stacked)

    return jax.tree.map(
        lambda part: part.tree() if is_stacked(part) else part, tree, is_leaf=is_stacked
    )
