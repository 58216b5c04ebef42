"""The model, its loss, its gradients and Adam against PyTorch's own, recorded and live."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from references import SOURCES, Arrays, assert_close, reference, within

from jax_transformer.config import ModelConfig
from jax_transformer.models.attention import (
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.loss import label_smoothed_cross_entropy
from jax_transformer.training.optimizer import adam_with_warmup

PAD, NUM_LAYERS = 0, 2
# PyTorch's name of each sub-layer.
SUBLAYERS = {
    "encoder": {"self_attention": "self_attn", "feed_forward": "linear"},
    "decoder": {
        "self_attention": "self_attn",
        "cross_attention": "multihead_attn",
        "feed_forward": "linear",
    },
}


@pytest.fixture(scope="module", params=SOURCES)
def theirs(request) -> Arrays:
    """What PyTorch computed."""
    return reference("torch", request.param)


# ---- PyTorch's names and layouts ----------------------------------------------------------


def our_attention(theirs: Arrays, name: str, heads: int) -> Any:
    """PyTorch's [H d, d_model] matrices, q, k and v in one, as our [d_model, H, d]."""
    matrices = np.split(theirs[f"{name}.in_proj_weight"], 3)
    ours = {
        kind: {"kernel": matrix.T.reshape(len(matrix), heads, -1)}
        for kind, matrix in zip(("query", "key", "value"), matrices, strict=True)
    }
    output = theirs[f"{name}.out_proj.weight"]
    return {**ours, "output": {"kernel": output.T.reshape(heads, -1, len(output))}}


def our_feed_forward(theirs: Arrays, name: str, _: int) -> Any:
    """PyTorch's two linear maps, [outputs, inputs], as our [inputs, outputs]."""
    linears = {"inner": f"{name}1", "outer": f"{name}2"}
    return {
        ours: {"kernel": theirs[f"{linear}.weight"].T, "bias": theirs[f"{linear}.bias"]}
        for ours, linear in linears.items()
    }


def our_layer(theirs: Arrays, sublayers: dict[str, str], heads: int) -> Any:
    """A layer of PyTorch's, whose norms are numbered."""
    layer = {}
    for number, (name, their_name) in enumerate(sublayers.items(), start=1):
        convert = our_feed_forward if name == "feed_forward" else our_attention
        layer[name] = convert(theirs, their_name, heads)
        scale, bias = (theirs[f"norm{number}.{kind}"] for kind in ("weight", "bias"))
        layer[f"{name}_norm"] = {"norm": {"scale": scale, "bias": bias}}
    return layer


def our_tree(theirs: Arrays, heads: int) -> Any:
    """The parameters of PyTorch's model, or their gradients, as our tree."""
    layers = {
        f"{side}_{number}": our_layer(within(theirs, f"{side}.{number}."), sublayers, heads)
        for side, sublayers in SUBLAYERS.items()
        for number in range(NUM_LAYERS)
    }
    return {"embedding": {"matrix": theirs["embedding.weight"]}, **layers}


def our_model(theirs: Arrays) -> tuple[Transformer, Any]:
    """Our model with PyTorch's weights."""
    weights, heads = within(theirs, "weight/"), int(theirs["num_heads"])
    size, d_model = weights["embedding.weight"].shape
    config = ModelConfig(
        num_layers=NUM_LAYERS,
        d_model=d_model,
        d_ff=len(weights["encoder.0.linear1.bias"]),
        num_heads=heads,
    )
    return Transformer(config, vocabulary_size=size, pad_id=PAD), our_tree(weights, heads)


# ---- The same loss, optimizer and training -----------------------------------------------

# Torch gives a share of the smoothing's mass to the right token, too: label_smoothing / V. And our
# loss is less than the cross-entropy by the entropy of the smoothed distribution.


def our_label_smoothing(theirs: Arrays) -> float:
    """The mass that torch's label smoothing gives to the other tokens."""
    size = theirs["output/logits"].shape[-1]
    return float(theirs["label_smoothing"]) * (size - 1) / size


def entropy(theirs: Arrays) -> float:
    """The entropy of the smoothed distribution in nats."""
    mass, size = our_label_smoothing(theirs), theirs["output/logits"].shape[-1]
    return -(1 - mass) * math.log(1 - mass) - mass * math.log(mass / (size - 1))


def our_losses(theirs: Arrays, logits: Any) -> tuple[Any, Any]:
    """Means over the real tokens: our smoothed loss, and the negative log-likelihood."""
    mass = our_label_smoothing(theirs)
    sums = label_smoothed_cross_entropy(logits, theirs["targets"], mass, PAD)
    return sums.smoothed / sums.tokens, sums.nll / sums.tokens


def our_optimizer(theirs: Arrays) -> optax.GradientTransformation:
    d_model = theirs["weight/embedding.weight"].shape[1]
    scale = float(theirs["learning_rate_scale"])
    return adam_with_warmup(d_model, int(theirs["warmup_steps"]), scale)


def our_outputs(model: Transformer, params: Any, source: Any, inputs: Any) -> dict[str, Any]:
    """The output of each layer, and the logits."""
    sown: Any
    logits, sown = model.apply(
        {"params": params}, source, inputs, capture_intermediates=True, mutable=["intermediates"]
    )
    layers = (f"{side}_{number}" for side in SUBLAYERS for number in range(NUM_LAYERS))
    outputs = {name: sown["intermediates"][name]["__call__"][0] for name in layers}
    return {**outputs, "logits": logits}


class Training(NamedTuple):
    """The loss before each step; of the first step the outputs of the layers, and the gradient."""

    losses: list[float]
    outputs: dict[str, Any]
    gradient: Any


@pytest.fixture(scope="module")
def ours(theirs) -> Training:
    """Our model trained from torch's weights."""
    model, params = our_model(theirs)
    optimizer = our_optimizer(theirs)

    def loss(params: Any) -> Any:
        outputs = our_outputs(model, params, theirs["source"], theirs["inputs"])
        return our_losses(theirs, outputs["logits"])[0], outputs

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        (value, outputs), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradient, state, params)
        return Training(value, outputs, gradient), optax.apply_updates(params, updates), state

    state, steps = optimizer.init(params), []
    for _ in theirs["cross_entropy"]:
        result, params, state = step(params, state)
        steps.append(result)
    return steps[0]._replace(losses=[float(step.losses) for step in steps])


# ---- What is compared ---------------------------------------------------------------------


def test_the_output_of_every_layer_and_the_logits_are_torch_s(theirs, ours):
    found = dict(ours.outputs)
    for name, output in within(theirs, "output/").items():
        real = theirs["source" if name.startswith("encoder") else "inputs"] != PAD
        assert_close(np.asarray(found.pop(name))[real], output[real], 5e-6, name)
    assert not found


def attend(arrays: Arrays, mask: Any) -> Any:
    queries, keys, values = (jnp.asarray(arrays[name]) for name in ("queries", "keys", "values"))
    return scaled_dot_product_attention(queries, keys, values, mask)


def test_attention_under_padding_and_causal_masks_is_torch_s(theirs):
    arrays = within(theirs, "attention/")
    padding, causal = padding_mask(arrays["tokens"], PAD), causal_mask(arrays["tokens"].shape[1])
    for name, mask in {"padding": padding, "causal": causal, "both": padding & causal}.items():
        assert_close(attend(arrays, mask), arrays[name], 5e-6, name)


def test_the_loss_of_torch_s_logits_is_torch_s(theirs):
    smoothed, nll = our_losses(theirs, jnp.asarray(theirs["output/logits"]))
    expected = theirs["cross_entropy"][0] - entropy(theirs)
    assert float(smoothed) == pytest.approx(expected, rel=2e-6)
    assert float(nll) == pytest.approx(theirs["nll"], rel=2e-6)


def test_the_gradient_of_the_whole_model_s_loss_is_torch_s(theirs, ours):
    expected = our_tree(within(theirs, "gradient/"), int(theirs["num_heads"]))
    found = dict(jax.tree_util.tree_leaves_with_path(ours.gradient))
    for path, gradient in jax.tree_util.tree_leaves_with_path(expected):
        assert_close(found.pop(path), gradient, 1e-5, jax.tree_util.keystr(path))
    assert not found


def test_the_losses_of_training_by_adam_are_torch_s(theirs, ours):
    found = np.array(ours.losses) + entropy(theirs)
    np.testing.assert_allclose(found, theirs["cross_entropy"], rtol=1e-5)


def test_adam_s_steps_under_the_paper_s_schedule_are_torch_s(theirs):
    arrays, optimizer = within(theirs, "adam/"), our_optimizer(theirs)
    params: Any = arrays["parameters"][0]
    state = optimizer.init(params)
    steps = zip(arrays["gradients"], arrays["parameters"][1:], strict=True)
    for number, (gradient, expected) in enumerate(steps, start=1):
        updates, state = optimizer.update(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(params, expected, rtol=0, atol=1e-6, err_msg=f"step {number}")
