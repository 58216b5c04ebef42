"""Parameters of the same shape and type stacked into one array each.

Dispatching a step costs time on the host for each input and output array on each device, and each
kernel of the optimizer costs time on the device. The training state of the base model has 547
arrays, or 25 when stacked.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_transformer.training.train_step import Loss, TrainState


@jax.tree_util.register_pytree_node_class
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
    layout: Any  # (the tree's structure, (number of the stack, index in it) of each leaf)

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

    def tree_flatten(self) -> Any:
        """Return (children, static data), for JAX."""
        return self.stacks, self.layout

    @classmethod
    def tree_unflatten(cls, layout: Any, stacks: Any) -> "Stacked":
        return cls(tuple(stacks), layout)


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

    return jax.tree.map(
        lambda tree: Stacked.of(tree) if is_like_params(tree) else tree,
        state,
        is_leaf=is_like_params,
    )


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
