"""The numbers of the model on this device compared with those of PyTorch.

python -m benchmarks.numerical_core

A small model begins with PyTorch's weights. Its layers, gradients and eight steps of Adam are
compared with those of PyTorch in float64, which are recorded in tests/recorded/torch.npz. Fused
attention is compared with plain attention. Differences are relative to the largest number expected.
The exit status is 1 if one is larger than allowed.
"""

import math
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from benchmarks.measuring import header, on_gpu, run, table
from jax_transformer.config import ModelConfig
from jax_transformer.formats.marian_npz import read_npz
from jax_transformer.models.attention import (
    causal_mask,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import compiler_options
from jax_transformer.training.loss import label_smoothed_cross_entropy
from jax_transformer.training.optimizer import adam_with_warmup

RECORDED = Path(__file__).parents[1] / "tests" / "recorded" / "torch.npz"
PAD, NUM_LAYERS = 0, 2  # of the recorded model
# PyTorch's name of each sub-layer.
SUBLAYERS = {
    "encoder": {"self_attention": "self_attn", "feed_forward": "linear"},
    "decoder": {
        "self_attention": "self_attn",
        "cross_attention": "multihead_attn",
        "feed_forward": "linear",
    },
}
LAYERS = [f"{side}_{number}" for side in SUBLAYERS for number in range(NUM_LAYERS)]
# The largest difference that is allowed, relative to the largest number expected. The gradient in
# bfloat16 finds gross errors only: rounding switches two of the recorded model's 1,200 ReLUs on a
# CPU, which alone changes it by 0.16. With the same two switched in float32, 0.013 is left.
ALLOWED = {
    "float32": {"attention": 5e-6, "outputs": 5e-6, "gradient": 1e-5, "losses": 1e-5},
    "bfloat16": {"attention": 2e-2, "outputs": 5e-2, "gradient": 0.3, "losses": 3e-2},
}
COLUMNS = ["numbers", "dtype", "difference", "allowed", "passed"]
Arrays = dict[str, Any]


def main() -> int:
    """Print a line for each kind of number; return 1 if a difference is larger than allowed."""
    theirs = read_npz(RECORDED)
    print(header(), flush=True)
    rows = [
        row(kind, dtype, np.max([*found.values()]), ALLOWED[dtype][kind])
        for dtype in ALLOWED
        for kind, found in differences(theirs, dtype).items()
    ]
    allowed = ALLOWED["bfloat16"]["attention"]
    try:
        difference = fused_difference()
    except (RuntimeError, ValueError) as error:  # a GPU without such a kernel
        print(f"fused attention: {error}", file=sys.stderr)
        difference = np.nan
    rows.append(row("fused attention", "bfloat16", difference, allowed))
    print(f"\n{table(COLUMNS, rows)}")
    return int(any(cells[-1] != "yes" for cells in rows))


def row(kind: str, dtype: str, difference: float, allowed: float) -> list[str]:
    """Return the table's line; a difference that is not a number has not passed."""
    passed = "yes" if difference <= allowed else "NO"
    return [kind, dtype, f"{difference:.1e}", f"{allowed:.0e}", passed]


def differences(theirs: Arrays, dtype: str = "float32") -> dict[str, dict[str, float]]:
    """Return the difference of each array, by its kind in `ALLOWED` and its name.

    theirs: the arrays of tools/record/torch_recipe.py.
    """
    ours = train(theirs, dtype)
    gradients = [ours.gradient, params_of(theirs, "gradient/")]
    if dtype == "bfloat16":  # a switched ReLU may change a small array altogether
        gradients = [{"all": ravel_pytree(tree)[0]} for tree in gradients]
    gradient = jax.tree.map(relative_difference, *gradients)
    # In the row without targets a norm divides by epsilon: bfloat16 would have no digits left.
    rows = (theirs["targets"] != PAD).any(axis=1, keepdims=True) | (dtype == "float32")

    def of_layer(name: str) -> float:
        real = rows & (theirs["source" if name.startswith("encoder") else "inputs"] != PAD)
        return relative_difference(ours.outputs[name][real], theirs[f"output/{name}"][real])

    losses = theirs["cross_entropy"] - entropy_of(theirs)
    return {
        "attention": attention_differences(theirs, dtype),
        "outputs": {name: of_layer(name) for name in [*LAYERS, "logits"]},
        "gradient": {
            jax.tree_util.keystr(path): found
            for path, found in jax.tree_util.tree_leaves_with_path(gradient)
        },
        "losses": {"losses": relative_difference(ours.losses, losses)},
    }


def relative_difference(found: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest number expected."""
    found, expected = (np.asarray(array, np.float64) for array in (found, expected))
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def attention_differences(theirs: Arrays, dtype: str) -> dict[str, float]:
    """Return the difference of attention under each mask."""
    tokens = theirs["attention/tokens"]
    padding, causal = padding_mask(tokens, PAD), causal_mask(tokens.shape[1])
    names = ("queries", "keys", "values")
    operands = [jnp.asarray(theirs[f"attention/{name}"], dtype) for name in names]
    attend = compiled(scaled_dot_product_attention, dtype)
    return {
        name: relative_difference(attend(*operands, mask), theirs[f"attention/{name}"])
        for name, mask in {"padding": padding, "causal": causal, "both": padding & causal}.items()
    }


def fused_difference() -> float:
    """Return the difference of fused attention in bfloat16 from plain attention in float32.

    It is the largest of attention and its three gradients, under padding and causal masks. Fused
    attention is cuDNN's on a GPU, and XLA's elsewhere.
    """
    random, shape = np.random.default_rng(1), (4, 8, 64, 64)  # [B, H, T, d]; heads as in base
    drawn = [jnp.asarray(random.normal(size=shape), jnp.bfloat16) for _ in range(4)]
    real = np.arange(shape[2]) < np.array([[64], [48], [17], [1]])
    mask = padding_mask(jnp.asarray(real, jnp.int32), PAD) & causal_mask(shape[2])

    def attended_and_gradients(attention: Any, dtype: str) -> Any:
        *operands, factors = (array.astype(dtype) for array in drawn)
        attended, pull_back = jax.vjp(lambda *operands: attention(*operands, mask), *operands)
        return attended, pull_back(factors)

    def results(attention: Any, dtype: str) -> Any:
        return compiled(lambda: attended_and_gradients(attention, dtype), dtype)()

    fused = partial(fused_attention, implementation="cudnn" if on_gpu() else "xla")
    expected = results(scaled_dot_product_attention, "float32")
    found = jax.tree.map(relative_difference, results(fused, "bfloat16"), expected)
    return np.max(jax.tree.leaves(found))


def compiled(function: Any, dtype: str) -> Any:
    """Compile a function whose products are of this dtype as the package does."""
    return jax.jit(function, compiler_options=compiler_options(dtype))


# ---- PyTorch's names and layouts ----------------------------------------------------------


def attention_of(theirs: Arrays, name: str, heads: int) -> Any:
    """PyTorch's [H d, d_model] matrices, q, k and v in one, as our [d_model, H, d]."""
    matrices = np.split(theirs[f"{name}.in_proj_weight"], 3)
    ours = {
        kind: {"kernel": matrix.T.reshape(len(matrix), heads, -1)}
        for kind, matrix in zip(("query", "key", "value"), matrices, strict=True)
    }
    output = theirs[f"{name}.out_proj.weight"]
    return {**ours, "output": {"kernel": output.T.reshape(heads, -1, len(output))}}


def feed_forward_of(theirs: Arrays, name: str) -> Any:
    """PyTorch's two linear maps, [outputs, inputs], as our [inputs, outputs]."""
    linears = {"inner": f"{name}1", "outer": f"{name}2"}
    return {
        ours: {"kernel": theirs[f"{linear}.weight"].T, "bias": theirs[f"{linear}.bias"]}
        for ours, linear in linears.items()
    }


def params_of(theirs: Arrays, prefix: str) -> Any:
    """PyTorch's parameters ("weight/") or their gradients ("gradient/") as our tree."""
    tree: dict[str, Any] = {"embedding": {"matrix": theirs[f"{prefix}embedding.weight"]}}
    for layer_name in LAYERS:
        side, _, number = layer_name.partition("_")
        layer = tree[layer_name] = {}
        path = f"{prefix}{side}.{number}."
        for norm, (name, their_name) in enumerate(SUBLAYERS[side].items(), start=1):  # theirs count
            if name == "feed_forward":
                layer[name] = feed_forward_of(theirs, path + their_name)
            else:
                layer[name] = attention_of(theirs, path + their_name, int(theirs["num_heads"]))
            scale, bias = (theirs[f"{path}norm{norm}.{kind}"] for kind in ("weight", "bias"))
            layer[f"{name}_norm"] = {"norm": {"scale": scale, "bias": bias}}
    return tree


# ---- The same loss, optimizer and training ------------------------------------------------

# PyTorch gives a share of the smoothing's mass to the right token, too: label_smoothing / V. And
# our loss is less than the cross-entropy by the entropy of the smoothed distribution.


def label_smoothing_of(theirs: Arrays) -> float:
    """The mass that PyTorch's label smoothing gives to the other tokens."""
    size = theirs["output/logits"].shape[-1]
    return float(theirs["label_smoothing"]) * (size - 1) / size


def entropy_of(theirs: Arrays) -> float:
    """The entropy of the smoothed distribution in nats."""
    mass, size = label_smoothing_of(theirs), theirs["output/logits"].shape[-1]
    return -(1 - mass) * math.log(1 - mass) - mass * math.log(mass / (size - 1))


def mean_losses(theirs: Arrays, logits: Any) -> tuple[Any, Any]:
    """Means over the real tokens: our smoothed loss, and the negative log-likelihood."""
    sums = label_smoothed_cross_entropy(logits, theirs["targets"], label_smoothing_of(theirs), PAD)
    return sums.smoothed / sums.tokens, sums.nll / sums.tokens


def optimizer_of(theirs: Arrays) -> optax.GradientTransformation:
    """Return our Adam with PyTorch's schedule."""
    d_model = theirs["weight/embedding.weight"].shape[1]
    scale = float(theirs["learning_rate_scale"])
    return adam_with_warmup(d_model, int(theirs["warmup_steps"]), scale)


def model_of(theirs: Arrays, dtype: Any) -> Transformer:
    """Return our model of the sizes of PyTorch's."""
    size, d_model = theirs["weight/embedding.weight"].shape
    config = ModelConfig(
        num_layers=NUM_LAYERS,
        d_model=d_model,
        d_ff=len(theirs["weight/encoder.0.linear1.bias"]),
        num_heads=int(theirs["num_heads"]),
        compute_dtype=dtype,
    )
    return Transformer(config, vocabulary_size=size, pad_id=PAD)


class Training(NamedTuple):
    """The loss before each step; of the first step the outputs of the layers, and the gradient."""

    losses: Any
    outputs: dict[str, Any]
    gradient: Any


def train(theirs: Arrays, dtype: str) -> Training:
    """Train our model from PyTorch's weights."""
    model, optimizer = model_of(theirs, dtype), optimizer_of(theirs)

    def loss(params: Any) -> Any:
        sown: Any
        logits, sown = model.apply(
            {"params": params},
            theirs["source"],
            theirs["inputs"],
            capture_intermediates=True,
            mutable=["intermediates"],
        )
        outputs = {name: sown["intermediates"][name]["__call__"][0] for name in LAYERS}
        return mean_losses(theirs, logits)[0], {**outputs, "logits": logits}

    def step(params: Any, state: Any) -> Any:
        (value, outputs), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradient, state, params)
        return Training(value, outputs, gradient), optax.apply_updates(params, updates), state

    params = params_of(theirs, "weight/")
    state, steps, take_step = optimizer.init(params), [], compiled(step, dtype)
    for _ in theirs["cross_entropy"]:
        result, params, state = take_step(params, state)
        steps.append(result)
    return steps[0]._replace(losses=[float(step.losses) for step in steps])


if __name__ == "__main__":
    run(main)
