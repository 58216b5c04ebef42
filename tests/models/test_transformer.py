"""The whole model: what may see what, decoding against teacher forcing, its size."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

from jax_transformer.config import ModelConfig
from jax_transformer.decoding.generate import attention_maps
from jax_transformer.evaluation.flops import count_parameters
from jax_transformer.models.attention import Dropout, fused_attention
from jax_transformer.models.transformer import Cache, Memory, Transformer, as_computed
from jax_transformer.parsing.word_positions import WordTransformer
from jax_transformer.training.loss import label_smoothed_cross_entropy
from jax_transformer.training.train_step import Batch, abstract_params

PAD, BOS, EOS, SIZE = 0, 1, 2, 15
TINY = ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
SOURCE = np.array([[7, 3, 9, 12, EOS, PAD], [5, 14, EOS, PAD, PAD, PAD], [4, 4, 8, 13, 6, EOS]])
TARGET = np.array([[BOS, 8, 8, 10, 3], [BOS, 6, PAD, PAD, PAD], [BOS, 11, 5, 9, 7]])
IDS = np.arange(SIZE)
WORD_STARTS = np.isin(IDS, [EOS, 3, 4, 7, 8, 9]).tobytes()
TAGS = np.isin(IDS, [8, 9, 10]).tobytes()


def transformer(words: bool = False, **changes: Any) -> Transformer:
    config = dataclasses.replace(TINY, **changes)
    if words:
        return WordTransformer(config, SIZE, PAD, word_starts=WORD_STARTS, tags=TAGS)
    return Transformer(config, vocabulary_size=SIZE, pad_id=PAD)


MODEL = transformer()
PARAMS = random_params(MODEL)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(model: Transformer, params: Any, source, target, *segments) -> Any:
    return model.apply({"params": params}, source, target, *segments)


# ---- Nothing sees what it may not see -----------------------------------------------------


def test_no_gradient_reaches_a_position_from_a_future_token():
    model = transformer(tie_embeddings=False)  # so that the matrix embeds the target alone
    params = random_params(model)
    target = jnp.array([[BOS, 8, 11, 10, 3]])  # all different: each row of E is one position

    @jax.jit
    @jax.jacrev
    def jacobian(matrix):
        embedded = {**params, "target_embedding": {"matrix": matrix}}
        return logits_of(model, embedded, SOURCE[2:], target)

    found = np.asarray(jacobian(params["target_embedding"]["matrix"]))  # [1, T, V, V, d_model]
    for position in range(5):
        for other, token in enumerate(target[0].tolist()):
            moved = np.abs(found[0, position, :, token]).max()
            if other > position:
                assert moved == 0, f"{position} sees {other}"
            else:
                assert moved > 1e-3, f"{position} does not see {other}"


def test_numpy_parameters_may_be_closed_over_by_a_jitted_function():
    model = transformer(positions="learned", max_positions=8)
    params = random_params(model)
    apply = functools.partial(model.apply, {"params": params})
    assert jax.eval_shape(apply, SOURCE, TARGET).shape == (*TARGET.shape, SIZE)


# ---- Several pairs in a row ---------------------------------------------------------------

# The first two pairs of SOURCE and TARGET in one row, the last in another with room left.
TARGET_SEGMENTS = np.array([[1, 1, 1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]])
PACKED = Batch(
    np.array([[7, 3, 9, 12, EOS, 5, 14, EOS, PAD], [4, 4, 8, 13, 6, EOS, PAD, PAD, PAD]]),
    np.array([[BOS, 8, 8, 10, 3, BOS, 6, PAD], [BOS, 11, 5, 9, 7, PAD, PAD, PAD]]),
    np.array([[1, 1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 0, 0, 0]]),
    TARGET_SEGMENTS,
)
# (row, columns) of the target of each pair.
OWN = [(0, slice(0, 5)), (0, slice(5, 7)), (1, slice(0, 5))]


@pytest.mark.parametrize("pair", range(3))
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_pair_changes_no_bit_of_the_others_in_its_row_and_no_future_its_past(pair, side):
    before = np.asarray(logits_of(MODEL, PARAMS, *PACKED))
    row, columns = OWN[pair]
    segments = getattr(PACKED, f"{side}_segments")[row]
    for column in np.flatnonzero(segments == TARGET_SEGMENTS[row, columns.start]):
        tokens = getattr(PACKED, side).copy()
        tokens[row, column] = tokens[row, column] % (SIZE - 3) + 3
        after = np.asarray(logits_of(MODEL, PARAMS, *PACKED._replace(**{side: tokens})))
        moved = (before != after).any(axis=-1)
        seen = np.zeros_like(moved)
        seen[row, slice(column, columns.stop) if side == "target" else columns] = True
        real = PACKED.target != PAD
        np.testing.assert_array_equal(moved[real], seen[real])


# ---- Cached decoding ----------------------------------------------------------------------

BATCH, BEAM, LENGTH = 3, 4, 6
ROWS = BATCH * BEAM


@functools.partial(jax.jit, static_argnums=0)
def encode(model: Transformer, params: Any, source: Any) -> Any:
    encoded = model.apply({"params": params}, source, method="encode")
    return model.apply({"params": params}, encoded, source, method="remember")


@functools.partial(jax.jit, static_argnums=0)
def step(model: Transformer, params: Any, memory: Memory, cache: Cache, token, position) -> Any:
    arguments = memory, cache, token, position
    return model.apply({"params": params}, *arguments, method="decode_step")


def decoded(model: Transformer, params: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A search that takes random tokens and random parents.

    Returns what each of its steps had written, [LENGTH, ROWS, LENGTH], and the logits that
    the cache gave for what follows, [LENGTH, ROWS, V].
    """
    random = np.random.default_rng(seed)
    memory, cache = encode(model, params, SOURCE), model.empty_cache(ROWS, LENGTH + 2)
    history, histories, logits = np.full((ROWS, LENGTH), PAD), [], []
    for position in range(LENGTH):
        history[:, position] = random.integers(3, SIZE, ROWS) if position else BOS
        tokens = jnp.array(history[:, position])
        one = jnp.full(ROWS, position) if position % 2 else jnp.array(position)
        now, cache = step(model, params, memory, cache, tokens, one)
        histories.append(history.copy())
        logits.append(now)
        parents = random.integers(0, BEAM, (BATCH, BEAM)) + BEAM * np.arange(BATCH)[:, None]
        cache = jax.tree.map(lambda leaf: jnp.take(leaf, parents.ravel(), axis=0), cache)  # noqa: B023
        history = history[parents.ravel()]
    return np.stack(histories), np.stack(logits)


def teacher_forced(model: Transformer, params: Any, histories: np.ndarray) -> np.ndarray:
    """Logits after the last token of each of these histories, without a cache."""
    source = np.tile(SOURCE.repeat(BEAM, axis=0), (LENGTH, 1))
    found = logits_of(model, params, source, histories.reshape(-1, LENGTH))
    found = np.asarray(found).reshape(LENGTH, ROWS, LENGTH, SIZE)
    return np.stack([found[position, :, position] for position in range(LENGTH)])


@pytest.mark.parametrize(
    "changes",
    [
        {"words": True, "num_layers": 2, "attention_radius": 1, "d_k": 3, "d_v": 5},
        {
            "positions": "learned",
            "max_positions": 8,
            "tie_embeddings": False,
            "attention_bias": True,
        },
    ],
    ids=["words", "learned"],
)
def test_decoding_step_by_step_from_random_parents_is_teacher_forcing(changes):
    model = transformer(**changes)
    params = random_params(model)
    histories, found = decoded(model, params, seed=4)
    expected = teacher_forced(model, params, histories)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


# ---- One kernel for attention -------------------------------------------------------------


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_dropout_is_where_the_paper_has_it(norm_position):
    """§5.4: the sums of embeddings, and each sub-layer's output. Besides, attention's weights."""
    model = transformer(norm_position=norm_position, dropout_rate=0.2, attention_dropout_rate=0.3)
    params, key = abstract_params(model), jax.random.key(0)
    found = []

    def record(call, arguments, options, context):
        if isinstance(context.module, Dropout):
            found.append(("/".join(context.module.path[:-1]), context.module.rate))
        return call(*arguments, **options)

    def logits(params):
        return model.apply({"params": params}, SOURCE, TARGET, rngs={"dropout": key})

    with nn.intercept_methods(record):
        jax.eval_shape(logits, params)
    assert found == [
        ("", 0.2),
        ("encoder_0/self_attention", 0.3),
        ("encoder_0/self_attention_norm", 0.2),
        ("encoder_0/feed_forward_norm", 0.2),
        ("", 0.2),
        ("decoder_0/self_attention", 0.3),
        ("decoder_0/self_attention_norm", 0.2),
        ("decoder_0/cross_attention", 0.3),
        ("decoder_0/cross_attention_norm", 0.2),
        ("decoder_0/feed_forward_norm", 0.2),
    ]


@pytest.mark.slow
def test_with_fused_attention_one_kernel_serves_every_attention_in_training_only(monkeypatch):
    settings = {"compute_dtype": "bfloat16", "dropout_rate": 0.0}
    plain, fused = transformer(**settings), transformer(**settings, fused_attention=True)
    params = random_params(plain)
    training: Any = {"dropout": jax.random.key(0)}
    expected = np.asarray(logits_of(plain, params, SOURCE, TARGET))
    lengths: list[int] = []

    def counted(queries, keys, values, mask):
        lengths.append(queries.shape[2])
        return fused_attention(queries, keys, values, mask, implementation="xla")

    monkeypatch.setattr("jax_transformer.models.attention.fused_attention", counted)

    def trained(model):
        apply = jax.jit(lambda: model.apply({"params": params}, SOURCE, TARGET, rngs=training))
        return np.asarray(apply())

    found = trained(fused)
    assert lengths == [6] + [5] * 2
    real = TARGET != PAD
    np.testing.assert_allclose(found[real], expected[real], atol=0.1)
    logits_of(fused, params, SOURCE, TARGET)
    assert len(lengths) == 3


# ---- Restricted self-attention (§4, Table 1) ----------------------------------------------


def test_self_attention_is_restricted_to_the_radius_and_the_view_of_the_source_is_not():
    model = transformer(attention_radius=1)
    maps = jax.jit(functools.partial(attention_maps, model))(
        random_params(model), SOURCE[2:], TARGET[2:]
    )
    for side, length, behind in (("encoder", 6, 1), ("decoder", 5, 0)):
        near = np.asarray(maps[f"{side}_0/self_attention"])[0].max(0) > 0
        distance = np.arange(length) - np.arange(length)[:, None]
        np.testing.assert_array_equal(near, (distance >= -1) & (distance <= behind))
    assert (np.asarray(maps["decoder_0/cross_attention"]) > 0).all()


def test_each_restricted_layer_extends_what_a_position_sees_by_the_radius():
    model = transformer(num_layers=2, attention_radius=1)
    params, source = {"params": random_params(model)}, 3 + np.arange(7)
    # Another token at one position in each row but the last.
    rows = np.where(np.eye(8, 7, dtype=bool), 10, source)
    *found, before = np.asarray(
        jax.jit(functools.partial(model.apply, method="encode"))(params, rows)
    )
    reached = np.abs(found - before).max(-1) > 1e-6
    distance = np.abs(np.arange(7) - np.arange(7)[:, None])
    np.testing.assert_array_equal(reached, distance <= 2)


# ---- Recomputation and precision ----------------------------------------------------------


@pytest.mark.slow
def test_layers_computed_again_in_the_backward_pass_give_the_same_gradient():
    rngs = {"dropout": jax.random.key(3, impl="rbg")}  # which compiles faster

    def gradient(model):
        def spread(params):
            logits: Any = model.apply({"params": params}, SOURCE, TARGET, rngs=rngs)
            return logits.std()

        lowered = jax.jit(jax.grad(spread)).lower(PARAMS)
        return lowered.as_text().count("dot_general"), lowered.compile()(PARAMS)

    (products, plain), (more, again) = map(
        gradient, (transformer(remat=remat) for remat in ("none", "layers"))
    )
    assert more > products
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-6), plain, again)


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, "HIGHEST"), ({"matmul_precision": "high"}, "HIGH")]
)
def test_every_product_forward_and_backward_has_the_precision_of_the_settings(settings, expected):
    model = transformer(**settings)

    def spread(params):
        logits: Any = model.apply({"params": params}, SOURCE, TARGET)
        return logits.std()

    program = jax.jit(jax.grad(spread)).lower(PARAMS).as_text()
    products = [line for line in program.splitlines() if "dot_general" in line]
    assert len(products) > 30
    assert all(f"precision = [{expected}, {expected}]" in line for line in products)


# ---- bfloat16 -----------------------------------------------------------------------------


STACKS = ("encoder", "decoder")


def types(tree: Any) -> set[str]:
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


def test_in_bfloat16_all_that_flows_is_bfloat16_and_parameters_logits_and_loss_are_float32():
    model = transformer(num_layers=2, compute_dtype="bfloat16")
    variables = {"params": abstract_params(model)}

    def training(variables):
        settings: Any = {"capture_intermediates": True, "mutable": ["intermediates"]}
        logits, captured = model.apply(variables, SOURCE, TARGET, **settings)
        loss = label_smoothed_cross_entropy(logits, jnp.array(TARGET), 0.1, PAD)
        layers = captured["intermediates"]
        return logits, loss, [layers[f"{stack}_{i}"] for stack in STACKS for i in range(2)]

    logits, loss, layers = jax.eval_shape(training, variables)
    assert types((variables, logits, loss)) == {"float32"}
    for layer in layers:
        assert types([layer["__call__"], layer["feed_forward"], layer["feed_forward_norm"]]) == {
            "bfloat16"
        }

    def decoding(variables):
        encoded: Any = model.apply(variables, SOURCE, method="encode")
        memory: Any = model.apply(variables, encoded, SOURCE, method="remember")
        cache = model.empty_cache(ROWS, 8)
        arguments = memory, cache, jnp.zeros(ROWS, int), jnp.array(0)
        made = encoded, memory.keys_values, cache
        return made, model.apply(variables, *arguments, method="decode_step")

    made, (logits, written) = jax.eval_shape(decoding, variables)
    assert types((made, written)) == {"bfloat16"}
    assert types(logits) == {"float32"}


@pytest.mark.slow
def test_in_bfloat16_decoding_is_teacher_forcing():
    """To 5% of the logits' deviation; both are within 10% of float32's."""
    model = transformer(compute_dtype="bfloat16")
    histories, found = decoded(model, PARAMS, seed=5)
    rounded = teacher_forced(model, PARAMS, histories)
    exact = teacher_forced(MODEL, PARAMS, histories)
    np.testing.assert_allclose(found, rounded, rtol=0, atol=0.05 * exact.std())
    np.testing.assert_allclose(rounded, exact, rtol=0, atol=0.1 * exact.std())
    assert np.abs(rounded - exact).max() > 1e-3


def test_matrices_that_are_converted_before_give_the_same_logits():
    """Exactly, if E is one of bfloat16's numbers: a lookup of E is not rounded otherwise."""
    model = transformer(compute_dtype="bfloat16", positions="learned", max_positions=32)
    params = random_params(model)
    for name in ("embedding", "target_embedding"):
        if matrix := params.get(name):
            exact = np.asarray(matrix["matrix"], jnp.bfloat16).astype(np.float32)
            params = {**params, name: {"matrix": exact}}
    converted = as_computed(params, model.config)
    assert types(converted) == {"bfloat16", "float32"}
    assert types(converted["position_table"]) == {"float32"}
    histories, found = decoded(model, converted, seed=5)
    assert np.array_equal(found, decoded(model, params, seed=5)[1])
    assert np.array_equal(
        teacher_forced(model, converted, histories), teacher_forced(model, params, histories)
    )
    unchanged = as_computed(params, MODEL.config)  # in float32
    assert jax.tree.all(jax.tree.map(lambda a, b: a is b, unchanged, params))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("embedding", {}),
        ("embedding", {"compute_dtype": "bfloat16"}),
        ("target_embedding", {"tie_source": False}),
        ("output_embedding", {"tie_embeddings": False}),
    ],
)
def test_transposed_the_matrix_of_the_logits_gives_the_same_ones(name, changes):
    model = transformer(**changes)
    params = random_params(model)
    plain = as_computed(params, model.config)
    both = as_computed(params, model.config, transposed=True)
    assert {key for key, leaves in both.items() if "transposed" in leaves} == {name}
    found = decoded(model, both, seed=5)[1]
    tolerance = {"rtol": 0, "atol": 1e-6 if types(plain) == {"float32"} else 1e-2}
    np.testing.assert_allclose(found, decoded(model, plain, seed=5)[1], **tolerance)
    zeros = {**both, name: {**both[name], "transposed": 0 * both[name]["transposed"]}}
    assert not decoded(model, zeros, seed=5)[1].any()  # so it is what makes the logits


# ---- Parameters ---------------------------------------------------------------------------


def parameters_by_hand(config: ModelConfig) -> int:
    """Added up from the matrices of §3."""
    d_model, wide = config.d_model, config.num_heads * (2 * config.d_k + config.d_v)
    attention = d_model * (wide + config.num_heads * config.d_v)
    attention += config.attention_bias * (wide + d_model)
    feed_forward = 2 * d_model * config.d_ff + config.d_ff + d_model
    norm = 2 * d_model
    layer = 3 * attention + 2 * feed_forward + 5 * norm  # one of the encoder, one of the decoder
    table = config.max_positions * d_model if config.positions == "learned" else 0
    return SIZE * d_model * (1 if config.tie_embeddings else 3) + table + config.num_layers * layer


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned"},
        {"tie_embeddings": False, "attention_bias": True, "d_k": 3, "d_v": 5},
    ],
    ids=["tied", "untied"],
)
def test_the_parameters_are_the_matrices_of_section_3(changes):
    config = dataclasses.replace(TINY, **changes)
    assert count_parameters(config, SIZE) == parameters_by_hand(config)
