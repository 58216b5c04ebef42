"""Attention against float64 loops over every index, and what masks may and may not do."""

import functools
import math
import re

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.models.attention import (
    KeysValues,
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    fused_attention,
    neighbourhood_mask,
    padding_mask,
    scaled_dot_product_attention,
    segment_mask,
    written_mask,
)

BATCH, QUERIES, KEYS, HEADS, D_K, D_V, D_MODEL = 2, 4, 5, 3, 6, 7, 8


def attention_by_loops(queries, keys, values, mask) -> np.ndarray:
    """Equation (1), one query at a time, over the legal keys alone, in float64."""
    batch, length, heads, d_k = queries.shape
    result = np.zeros((batch, length, heads, values.shape[-1]))
    mask = np.broadcast_to(mask, (batch, 1, length, keys.shape[1]))
    for b in range(batch):
        for h in range(heads):
            for q in range(length):
                legal = [k for k in range(keys.shape[1]) if mask[b, 0, q, k]]
                exponentials = {}
                for k in legal:
                    products = [
                        float(queries[b, q, h, i]) * float(keys[b, k, h, i]) for i in range(d_k)
                    ]
                    exponentials[k] = math.exp(math.fsum(products) / math.sqrt(d_k))
                for k in legal:
                    weight = exponentials[k] / math.fsum(exponentials.values())
                    result[b, q, h] += weight * values[b, k, h].astype(np.float64)
    return result


def project_by_loops(x, kernel, bias) -> np.ndarray:
    """x W for each head apart: x [B, T, d_model], W [d_model, H, width] -> [B, T, H, width]."""
    x, kernel = x.astype(np.float64), np.asarray(kernel, np.float64)
    result = np.zeros((*x.shape[:2], *kernel.shape[1:]))
    for h in range(kernel.shape[1]):
        result[:, :, h] = x @ kernel[:, h] + bias[h]
    return result


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


PADDED = np.array([[5, 6, 7, 0, 0], [5, 6, 7, 8, 9]])
SOME = np.random.default_rng(0).random((BATCH, 1, QUERIES, KEYS)) < 0.5
SOME[..., 0] = True  # no row without a key: those have a test of their own
MASKS = {
    "none": np.ones((1, 1, 1, KEYS), bool),
    "padding": (PADDED != 0)[:, None, None, :],
    "causal": np.tri(QUERIES, KEYS, dtype=bool)[None, None],
    "any": SOME,
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_attention_is_equation_1_looped_over_every_index_in_float64(mask):
    queries = normal(1, BATCH, QUERIES, HEADS, D_K)
    keys, values = normal(2, BATCH, KEYS, HEADS, D_K), normal(3, BATCH, KEYS, HEADS, D_V)
    ours = scaled_dot_product_attention(
        jnp.asarray(queries), KeysValues(jnp.asarray(keys), jnp.asarray(values)), jnp.asarray(mask)
    )
    expected = attention_by_loops(queries, keys, values, mask)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def attend(module: MultiHeadAttention, x, y, mask):
    return module(x, module.keys_values(y), mask)


@pytest.mark.parametrize("use_bias", [False, True])
def test_multi_head_attention_is_its_heads_projected_attended_and_summed(use_bias):
    module = MultiHeadAttention(HEADS, D_MODEL, D_K, D_V, use_bias=use_bias)
    x, y = normal(4, BATCH, QUERIES, D_MODEL), normal(5, BATCH, KEYS, D_MODEL)
    arguments = (jnp.asarray(x), jnp.asarray(y), jnp.asarray(SOME))
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), *arguments, method=attend))
    leaves, treedef = jax.tree.flatten(shapes["params"])
    params = treedef.unflatten([normal(10 + i, *leaf.shape) for i, leaf in enumerate(leaves)])
    assert {"bias" in projection for projection in params.values()} == {use_bias}

    def projected(name, inputs):
        kernel = params[name]["kernel"]
        bias = params[name].get("bias", np.zeros(kernel.shape[1:], np.float32))
        return project_by_loops(inputs, kernel, bias)

    queries, keys, values = projected("query", x), projected("key", y), projected("value", y)
    heads = attention_by_loops(queries, keys, values, SOME)
    kernel = params["output"]["kernel"].astype(np.float64)  # [H, d_v, d_model]
    expected = np.zeros((BATCH, QUERIES, D_MODEL)) + params["output"].get("bias", np.zeros(D_MODEL))
    for h in range(HEADS):
        expected += heads[:, :, h] @ kernel[h]

    ours = module.apply({"params": params}, *arguments, method=attend)
    assert isinstance(ours, jax.Array)
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=5e-5)  # values are near 20


def test_query_key_and_value_start_as_one_glorot_uniform_matrix_and_the_output_as_its_own():
    d_model, heads, width = 64, 8, 8
    module = MultiHeadAttention(heads, d_model, width, width)
    x, mask = jnp.zeros((1, 1, d_model)), jnp.ones((1, 1, 1, 1), bool)
    init = jax.jit(lambda key: module.init(key, x, x, mask, method=attend)["params"])
    params = init(jax.random.key(1))
    for name, fan_out in (("query", 3), ("key", 3), ("value", 3), ("output", 1)):
        drawn = np.asarray(params[name]["kernel"])
        bound = math.sqrt(6 / (d_model + fan_out * heads * width))
        assert drawn.size == d_model * heads * width
        assert 0.99 * bound < np.abs(drawn).max() <= bound, name
        # A uniform variable's deviation is bound / sqrt(3); 4096 draws miss it by 0.7 %.
        assert drawn.std() == pytest.approx(bound / math.sqrt(3), rel=0.03), name


def test_masks_say_true_where_a_position_may_be_attended_to():
    padding = padding_mask(jnp.asarray(PADDED), pad_id=0)
    assert padding.shape == (2, 1, 1, 5)
    causal, written = causal_mask(5), written_mask(5, jnp.asarray(2))
    assert causal.shape == (1, 1, 5, 5)
    assert written.shape == (1, 1, 1, 5)
    assert {mask.dtype for mask in (padding, causal, written)} == {jnp.dtype(bool)}
    for k in range(5):
        assert bool(written[0, 0, 0, k]) == (k in (0, 1, 2))
        for b in range(2):
            assert bool(padding[b, 0, 0, k]) == (PADDED[b, k] != 0)
        for q in range(5):
            assert bool(causal[0, 0, q, k]) == (k <= q)


def test_padding_is_whatever_the_vocabulary_says_it_is():
    mask = padding_mask(jnp.array([[0, 3, 9]]), pad_id=3)
    assert mask[0, 0, 0].tolist() == [True, False, True]


def test_masked_keys_weigh_exactly_nothing_however_high_their_score():
    queries = jnp.ones((1, 1, 1, 1))
    keys = jnp.array([-1e4, 1e6, -1e4, 1e30])[None, :, None, None]
    mask = jnp.array([True, False, True, False])[None, None, None]
    weights = attention_weights(queries, keys, mask)
    assert weights[0, 0, 0].tolist() == [0.5, 0.0, 0.5, 0.0]


def test_fully_masked_rows_are_finite_in_value_and_gradient():
    mask = np.ones((1, 1, 3, 4), bool)
    mask[:, :, 1] = False
    queries = jnp.asarray(normal(6, 1, 3, 2, D_K))
    keys, values = jnp.asarray(normal(7, 1, 4, 2, D_K)), jnp.asarray(normal(8, 1, 4, 2, D_V))

    def attended(queries, keys, values):
        return scaled_dot_product_attention(queries, KeysValues(keys, values), jnp.asarray(mask))

    outputs, pull_back = jax.vjp(attended, queries, keys, values)
    gradients = pull_back(jnp.asarray(normal(9, *outputs.shape)))
    for array in (outputs, *gradients):
        assert np.isfinite(array).all()
    # Equal weights: the plain average of the values; and no score moves it.
    average = np.asarray(values, np.float64).mean(axis=1)[0]
    np.testing.assert_allclose(outputs[0, 1], average, rtol=1e-5, atol=1e-6)
    assert not np.asarray(gradients[0])[0, 1].any()
    assert np.asarray(gradients[0])[0, 0].any()


def test_the_softmax_is_float32_whatever_the_scores_are():
    queries = jnp.asarray(normal(11, 1, 2, 2, D_K), jnp.bfloat16)
    keys = jnp.asarray(normal(12, 1, 300, 2, D_K), jnp.bfloat16)
    weights = attention_weights(queries, keys, jnp.ones((1, 1, 1, 300), bool))
    assert weights.dtype == jnp.float32
    # In bfloat16, 300 rounded weights would miss 1 by parts in a thousand.
    np.testing.assert_allclose(np.asarray(weights, np.float64).sum(-1), 1, atol=1e-6)


def test_attention_dropout_drops_weights_with_a_key_and_none_without():
    module = MultiHeadAttention(1, 64, 1, 64, dropout_rate=0.25)
    eye = np.eye(64, dtype=np.float32)
    params = {  # scores are 0 and values one-hot, so the output is the weights themselves
        "query": {"kernel": np.zeros((64, 1, 1), np.float32)},
        "key": {"kernel": np.zeros((64, 1, 1), np.float32)},
        "value": {"kernel": eye[:, None, :]},
        "output": {"kernel": eye[None]},
    }
    x, mask = jnp.asarray(eye)[None], jnp.ones((1, 1, 1, 64), bool)
    exact = module.apply({"params": params}, x, x, mask, method=attend)
    assert isinstance(exact, jax.Array)
    np.testing.assert_allclose(exact, 1 / 64, rtol=1e-6)
    key = jax.random.key(0)
    random = module.apply({"params": params}, x, x, mask, method=attend, rngs={"dropout": key})
    random = np.asarray(random)
    kept = random != 0
    np.testing.assert_allclose(random[kept], 1 / 64 / 0.75, rtol=1e-5)
    deviation = math.sqrt(0.75 * 0.25 / kept.size)
    assert abs(kept.mean() - 0.75) < 4 * deviation


MASKS = {
    "padding": lambda: padding_mask(jnp.array([[5, 5, 5, 5, 0], [5, 0, 0, 0, 0]]), 0),
    "causal": lambda: causal_mask(KEYS),
    "one position": lambda: causal_mask(1),
}


@pytest.mark.parametrize("kind", MASKS)
def test_fused_attention_is_attention_in_value_and_gradient(kind):
    mask, draw = MASKS[kind](), np.random.default_rng(3)
    length = mask.shape[-1]
    given = [jnp.array(draw.normal(size=(BATCH, length, HEADS, 8)), jnp.float32) for _ in range(4)]

    def total(attention, queries, keys, values):
        return (attention(queries, KeysValues(keys, values), mask) * given[3]).sum()

    def fused(*operands):
        return fused_attention(*operands, implementation="xla")

    for one, other in zip(
        *(
            jax.value_and_grad(functools.partial(total, attention), argnums=(0, 1, 2))(*given[:3])
            for attention in (scaled_dot_product_attention, fused)
        ),
        strict=True,
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one, other)


def test_a_row_of_nothing_but_padding_gives_finite_numbers():
    draw = np.random.default_rng(3)
    one = jnp.array(draw.normal(size=(1, 3, 2, 8)), jnp.float32)
    mask = padding_mask(jnp.zeros((1, 3), int), 0)
    attended = fused_attention(one, KeysValues(one, one), mask, implementation="xla")
    np.testing.assert_allclose(attended, np.broadcast_to(one[:, :1], one.shape), atol=1e-6)


@pytest.mark.parametrize(("kind", "told"), [("padding", "PADDING"), ("causal", "CAUSAL")])
def test_for_an_nvidia_gpu_the_kernel_is_cudnn_s_and_knows_the_mask(kind, told, monkeypatch):
    """Lowered for a device that is not there, so JAX's questions about it are answered here."""
    module = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(module, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(module, "check_compute_capability", lambda *_: True)
    mask = MASKS[kind]()
    given = jax.ShapeDtypeStruct((BATCH, KEYS, HEADS, 64), jnp.float32)

    def total(queries, keys, values):
        return fused_attention(queries, KeysValues(keys, values), mask, jnp.bfloat16).sum()

    unchecked = [
        jax.export.DisabledSafetyCheck.custom_call(f"__cudnn$fmhaSoftmax{which}")
        for which in ("", "Backward")
    ]
    text = jax.export.export(
        jax.jit(jax.grad(total, argnums=(0, 1, 2))), platforms=["cuda"], disabled_checks=unchecked
    )(given, given, given).mlir_module()
    assert "__cudnn$fmhaSoftmax" in text
    assert "__cudnn$fmhaSoftmaxBackward" in text
    assert re.findall(r"mask_type[^A-Z]*([A-Z]+)", text) == [told] * 2


def test_a_neighbourhood_is_the_positions_at_most_a_radius_away():
    for length, radius in ((1, 1), (5, 1), (6, 2), (4, 9)):
        mask = np.asarray(neighbourhood_mask(length, radius))[0, 0]
        for q in range(length):
            for k in range(length):
                assert mask[q, k] == (abs(q - k) <= radius), (length, radius, q, k)


def test_a_pair_sees_the_positions_of_its_own_number_and_padding_sees_padding():
    queries, keys = np.array([[1, 1, 2, 0], [1, 2, 2, 3]]), np.array([[1, 2, 0], [2, 3, 3]])
    mask = np.asarray(segment_mask(jnp.asarray(queries), jnp.asarray(keys)))
    for row, q, k in np.ndindex(2, 4, 3):
        assert mask[row, 0, q, k] == (queries[row, q] == keys[row, k]), (row, q, k)


def test_a_cache_is_seen_as_far_back_as_the_neighbourhood_of_a_position_goes():
    whole = np.asarray(neighbourhood_mask(7, 2) & causal_mask(7))[0, 0]
    for position in range(7):
        row = np.asarray(written_mask(7, jnp.array(position), 2))[0, 0, 0]
        assert row.tolist() == whole[position].tolist()
