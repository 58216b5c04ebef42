"""The whole model: what may know of what, decoding against teacher forcing, Table 3's sizes."""

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.config import Config, ModelConfig, override
from jax_transformer.decoding.generate import attention_maps
from jax_transformer.models.attention import fused_attention
from jax_transformer.models.transformer import Cache, Memory, Transformer, WordMarks, empty_cache
from jax_transformer.training.loss import label_smoothed_cross_entropy

PAD, BOS, EOS, SIZE = 0, 1, 2, 15
TINY = ModelConfig(num_layers=2, d_model=16, d_ff=32, num_heads=2, d_k=8, d_v=8)
SOURCE = np.array([[7, 3, 9, 12, EOS, PAD], [5, 14, EOS, PAD, PAD, PAD], [4, 4, 8, 13, 6, EOS]])
TARGET = np.array([[BOS, 8, 8, 10, 3], [BOS, 6, PAD, PAD, PAD], [BOS, 11, 5, 9, 7]])


MARKS = WordMarks(  # of words that begin, EOS among them, and of those that end
    bytes(index in (EOS, 3, 4, 7, 8, 9) for index in range(SIZE)),
    bytes(index in (8, 9, 10) for index in range(SIZE)),
)


def transformer(**changes: Any) -> Transformer:
    config = dataclasses.replace(TINY, **changes)
    return Transformer(config, vocabulary_size=SIZE, pad_id=PAD, word_marks=MARKS)


def random_params(model: Transformer, seed: int = 0) -> Any:
    """Every parameter drawn at random, biases and norms too, so that none goes unnoticed."""
    random = np.random.default_rng(seed)
    token = jnp.zeros((1, 1), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), token, token)["params"]

    def drawn(path, leaf):
        around = 1.0 if path[-1].key == "scale" else 0.0
        return jnp.asarray(around + 0.3 * random.normal(size=leaf.shape), jnp.float32)

    return jax.tree_util.tree_map_with_path(drawn, shapes)


MODEL = transformer()
PARAMS = random_params(MODEL)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(model: Transformer, params: Any, source: Any, target: Any) -> jax.Array:
    logits = model.apply({"params": params}, source, target)
    assert isinstance(logits, jax.Array)
    return logits


# ---- Nothing sees what it may not see -----------------------------------------------------


def test_the_past_has_no_gradient_from_any_future_token():
    model = transformer(num_layers=2, tie_embeddings=False)  # so that E is the target's alone
    params = random_params(model)
    target = jnp.array([[BOS, 8, 11, 10, 3]])  # all different: each row of E is one position

    @jax.jit
    @jax.jacrev
    def jacobian(matrix):
        embedded = {**params, "target_embedding": {"matrix": matrix}}
        return model.apply({"params": embedded}, SOURCE[2:], target)

    found = np.asarray(jacobian(params["target_embedding"]["matrix"]))  # [1, T, V, V, d_model]
    for position in range(5):
        for other, token in enumerate(target[0].tolist()):
            moved = np.abs(found[0, position, :, token]).max()
            if other > position:
                assert moved == 0, f"{position} sees {other}"
            else:
                assert moved > 1e-3, f"{position} does not see {other}"


def test_future_tokens_do_not_change_one_bit_of_the_past():
    expected = np.asarray(logits_of(MODEL, PARAMS, SOURCE, TARGET))
    random = np.random.default_rng(1)
    for cut in range(1, 5):
        changed = TARGET.copy()
        changed[:, cut:] = (TARGET[:, cut:] + random.integers(1, SIZE, (3, 5 - cut))) % SIZE
        found = np.asarray(logits_of(MODEL, PARAMS, SOURCE, changed))
        np.testing.assert_array_equal(found[:, :cut], expected[:, :cut])
        assert (found[:, cut] != expected[:, cut]).any(axis=-1).all()


def test_batch_mates_padding_and_bucket_do_not_change_a_sentence():
    """To 1e-5: other shapes are added up in another order, and logits are near 5."""
    together = logits_of(MODEL, PARAMS, SOURCE, TARGET)
    padded = logits_of(
        MODEL, PARAMS, np.pad(SOURCE, ((0, 2), (0, 5))), np.pad(TARGET, ((0, 2), (0, 4)))
    )
    for row, source_length, target_length in ((0, 5, 5), (1, 3, 2)):
        alone = logits_of(
            MODEL,
            PARAMS,
            SOURCE[row : row + 1, :source_length],
            TARGET[row : row + 1, :target_length],
        )[0]
        for other in (together, padded):
            np.testing.assert_allclose(other[row, :target_length], alone, rtol=0, atol=1e-5)


def test_every_source_token_changes_the_logits_and_padding_does_not_exist():
    expected = np.asarray(logits_of(MODEL, PARAMS, SOURCE, TARGET))
    for column in range(6):
        changed = SOURCE.copy()
        changed[:, column] = np.where(SOURCE[:, column] == PAD, PAD, SOURCE[:, column] % 13 + 2)
        real = SOURCE[:, column] != PAD
        found = np.asarray(logits_of(MODEL, PARAMS, changed, TARGET))
        moved = np.abs(found - expected).max(axis=(1, 2))
        assert (moved[real] > 1e-3).all()
        assert (moved[~real] == 0).all()


def test_rows_of_nothing_but_padding_are_finite_and_teach_nothing():
    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def loss(params, source, target):
        logits = MODEL.apply({"params": params}, source, target)
        assert isinstance(logits, jax.Array)
        sums = label_smoothed_cross_entropy(logits, target, 0.1, PAD)
        return sums.smoothed, (sums, logits)

    source, target = SOURCE.copy(), TARGET.copy()
    source[1], target[1] = PAD, PAD
    (_, (sums, logits)), gradient = loss(PARAMS, source, target)
    assert np.isfinite(logits).all()
    assert all(np.isfinite(part) for part in sums)
    assert float(sums.tokens) == 10
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.asarray(leaf).any()
    # The same batch with another source in the empty row: its targets are padding still.
    source[1] = SOURCE[2]
    (_, (other, _)), same = loss(PARAMS, source, target)
    np.testing.assert_allclose(sums, other, rtol=1e-6)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), gradient, same
    )
    # And nothing but empty rows is nothing at all.
    (_, (nothing, _)), zero = loss(PARAMS, np.zeros_like(SOURCE), np.zeros_like(TARGET))
    assert [float(part) for part in nothing] == [0, 0, 0]
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(zero))


# ---- Several pairs a row ------------------------------------------------------------------

# Of the pairs of SOURCE and TARGET the first two in one row, the last in another with room left.
IN_A_ROW = {
    "source": [[7, 3, 9, 12, EOS, 5, 14, EOS, PAD], [4, 4, 8, 13, 6, EOS, PAD, PAD, PAD]],
    "target": [[BOS, 8, 8, 10, 3, BOS, 6, PAD], [BOS, 11, 5, 9, 7, PAD, PAD, PAD]],
    "source_segments": [[1, 1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 0, 0, 0]],
    "target_segments": [[1, 1, 1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
}
# (row, columns) of the target of each pair.
OWN = [(0, slice(0, 5)), (0, slice(5, 7)), (1, slice(0, 5))]


@functools.partial(jax.jit, static_argnums=0)
def packed_logits(model: Transformer, params: Any, packed: Any) -> jax.Array:
    logits = model.apply({"params": params}, **packed)
    assert isinstance(logits, jax.Array)
    return logits


def as_arrays(packed: dict[str, Any]) -> dict[str, jax.Array]:
    return {name: jnp.array(side) for name, side in packed.items()}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "learned", "max_positions": 6},
        {"positions": "words"},
        {"attention_radius": 1},
        {"tie_embeddings": False},
    ],
    ids=lambda changes: "-".join(changes) or "base",
)
def test_pairs_that_share_a_row_have_the_logits_of_pairs_alone(changes):
    model = transformer(**changes)
    params = random_params(model)
    found = packed_logits(model, params, as_arrays(IN_A_ROW))
    expected = logits_of(model, params, SOURCE, TARGET)
    assert np.isfinite(found).all()
    for pair, (row, columns) in enumerate(OWN):
        length = columns.stop - columns.start
        np.testing.assert_allclose(
            found[row, columns], expected[pair, :length], rtol=0, atol=1e-5, err_msg=str(pair)
        )


@pytest.mark.parametrize("changed", range(3))
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_pair_changes_no_bit_of_its_neighbours_and_a_future_none_of_its_past(changed, side):
    before = np.asarray(packed_logits(MODEL, PARAMS, as_arrays(IN_A_ROW)))
    row, columns = OWN[changed]
    own = np.array(IN_A_ROW[f"{side}_segments"]) == IN_A_ROW["target_segments"][row][columns.start]
    own[1 - row] = False
    for column in np.flatnonzero(own[row]):
        other = {name: np.array(values) for name, values in IN_A_ROW.items()}
        other[side][row, column] = other[side][row, column] % (SIZE - 3) + 3
        after = np.asarray(packed_logits(MODEL, PARAMS, as_arrays(other)))
        moved = (before != after).any(axis=-1)
        seen = np.zeros_like(moved)
        seen[row, slice(column, columns.stop) if side == "target" else columns] = True
        np.testing.assert_array_equal(
            moved[np.array(IN_A_ROW["target"]) != PAD], seen[np.array(IN_A_ROW["target"]) != PAD]
        )


# ---- Decoding -----------------------------------------------------------------------------


# Three for each row of SOURCE.
HYPOTHESES = np.random.default_rng(2).integers(3, SIZE, (9, 5))
HYPOTHESES[:, 0] = BOS


@functools.partial(jax.jit, static_argnums=0)
def encode(model: Transformer, params: Any, source: Any) -> Any:
    return model.apply({"params": params}, source, method="encode")


@functools.partial(jax.jit, static_argnums=0)
def step(model: Transformer, params: Any, memory: Memory, cache: Cache, token, position) -> Any:
    memory = memory.laid_out(cache.slots.shape[1])
    return model.apply({"params": params}, memory, cache, token, position, method="step")


def decoded(model: Transformer, params: Any, memory: Memory, target: Any, room: int) -> np.ndarray:
    """Logits of each position of `target`, one step at a time, in a cache of `room`."""
    batch = len(memory.mask)
    cache, logits = empty_cache(model.config, batch, len(target) // batch, room), []
    for position in range(target.shape[1]):
        now, cache = step(model, params, memory, cache, target[:, position], jnp.array(position))
        logits.append(now)
    return np.stack(logits, axis=1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_layers": 1, "tie_embeddings": False},
        {"num_layers": 1, "positions": "learned", "max_positions": 8},
        {"num_layers": 1, "positions": "words"},
        {"num_layers": 1, "attention_radius": 1},
        {"num_layers": 1, "d_k": 3, "d_v": 5},
        {"num_layers": 1, "attention_bias": True},
    ],
    ids=lambda changes: "-".join(changes) or "base",
)
def test_decoding_step_by_step_is_teacher_forcing(changes):
    model = transformer(**changes)
    params = random_params(model)
    found = decoded(model, params, encode(model, params, SOURCE), HYPOTHESES, room=8)
    expected = logits_of(model, params, SOURCE.repeat(3, axis=0), HYPOTHESES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_positions_that_count_words_say_which_word_comes_next(monkeypatch):
    model = transformer(num_layers=1, positions="words")
    params = random_params(model)
    unmarked = model.clone(word_marks=WordMarks(bytes(SIZE), bytes([1] * SIZE)))

    seen: list[list[list[int]]] = []

    def embed(positions, words, d_model):
        seen.append(words.tolist())
        return jnp.zeros((*words.shape, d_model))

    monkeypatch.setattr("jax_transformer.models.transformer.word_encoding", embed)
    source, target = jnp.array([[7, 12, 9, EOS]]), jnp.array([[BOS, 3, 8, 4, 10, 5]])
    model.apply({"params": params}, source, target)
    # 7 and 9 begin words, 12 goes on with one, EOS is what comes after the last. At BOS
    # word 0 is to come, and so it is until a tag, 8 or 10, has been written.
    assert seen == [[[0, 0, 1, 2]], [[0, 0, 1, 1, 2, 2]]]
    monkeypatch.undo()
    marked = logits_of(model, params, SOURCE, TARGET)
    assert np.abs(marked - logits_of(unmarked, params, SOURCE, TARGET)).max() > 1e-3


def test_hypotheses_that_share_a_memory_decode_as_with_copies_of_it():
    memory = encode(MODEL, PARAMS, SOURCE)
    copies = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), memory)
    same = np.tile(HYPOTHESES[:3], (3, 1))  # so that only the source tells sentences apart
    shared = decoded(MODEL, PARAMS, memory, same, room=8)
    copied = decoded(MODEL, PARAMS, copies, same, room=8)
    np.testing.assert_allclose(shared, copied, rtol=0, atol=1e-5)
    for sentence in (1, 2):
        other = shared[3 * sentence : 3 * sentence + 3]
        assert (np.abs(shared[:3] - other).max(axis=(1, 2)) > 1e-2).all()


def test_what_lies_behind_the_position_in_the_cache_is_never_read():
    memory = encode(MODEL, PARAMS, SOURCE)
    empty = empty_cache(TINY, 3, 3, 8)
    rubbish = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e3), empty)
    rubbish = rubbish._replace(slots=jnp.full_like(empty.slots, 1))
    token, position = HYPOTHESES[:, 0], jnp.array(0)
    expected, _ = step(MODEL, PARAMS, memory, empty, token, position)
    found, _ = step(MODEL, PARAMS, memory, rubbish, token, position)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "words"])
def test_a_cache_goes_on_from_other_hypotheses_and_grows_without_forgetting(positions):
    model = transformer(positions=positions)
    params = random_params(model)
    memory = encode(model, params, SOURCE)
    draw = np.random.default_rng(4)
    cache, histories = empty_cache(model.config, 3, 4, 2), np.zeros((3, 4, 0), int)
    for position in range(7):
        if position in (2, 3):
            cache = cache.grow(3 if position == 2 else 8)
        tokens = draw.integers(3, SIZE, (3, 4)) if position else np.full((3, 4), BOS)
        histories = np.concatenate([histories, tokens[:, :, None]], axis=2)
        found, cache = step(model, params, memory, cache, tokens.reshape(-1), jnp.array(position))
        rows = histories.reshape(12, -1)
        expected = logits_of(model, params, SOURCE.repeat(4, axis=0), rows)[:, -1]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        parents = draw.integers(0, 4, (3, 4))
        cache = cache.reorder(jnp.array(parents))
        histories = np.take_along_axis(histories, parents[:, :, None], axis=1)


# ---- Randomness ---------------------------------------------------------------------------


def test_a_dropout_key_makes_the_model_random_and_only_it_does():
    @jax.jit
    def random(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return MODEL.apply({"params": PARAMS}, SOURCE, TARGET, rngs=rngs)

    one, again, other = (np.asarray(random(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.1
    exact = np.asarray(logits_of(MODEL, PARAMS, SOURCE, TARGET))
    assert np.abs(one - exact).max() > 0.1


# ---- Attention maps -----------------------------------------------------------------------


def test_attention_maps_are_distributions_over_what_may_be_attended_to():
    maps = jax.jit(attention_maps, static_argnums=0)(MODEL, PARAMS, SOURCE, TARGET)
    real = (SOURCE != PAD)[:, None, None, :]
    legal = {
        "encoder_{}/self_attention": np.broadcast_to(real, (3, 2, 6, 6)),
        "decoder_{}/self_attention": np.broadcast_to(np.tri(5, dtype=bool), (3, 2, 5, 5)),
        "decoder_{}/cross_attention": np.broadcast_to(real, (3, 2, 5, 6)),
    }
    assert set(maps) == {name.format(layer) for name in legal for layer in range(2)}
    for name, found in maps.items():
        mask = legal[name.replace("0/", "{}/").replace("1/", "{}/")]
        weights = np.asarray(found, np.float64)
        assert weights.shape == mask.shape, name
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6, err_msg=name)
        assert (weights[~mask] == 0).all(), name
        assert (weights[mask] > 0).all(), name


# ---- Table 3 ------------------------------------------------------------------------------

# Settings of each row, then millions of parameters: printed in the paper, and ours with and
# without attention biases, over the 40,960 rows of embedding that the paper's code hard-codes.
# The paper counted biases that its equations do not have: without them d_ff 1024 would round
# to 52, and every other row as it does with them. Big does not fit: 213 asks for some 36,000
# rows.
BIG = "model.d_model=1024 model.d_ff=4096 model.num_heads=16"
TABLE_3 = {
    "base": ("", 65, 65.11, 65.07),
    "A h 1": ("model.num_heads=1 model.d_k=512 model.d_v=512", 65, 65.11, 65.07),
    "A h 32": ("model.num_heads=32 model.d_k=16 model.d_v=16", 65, 65.11, 65.07),
    "B d_k 16": ("model.d_k=16", 58, 58.02, 58.00),
    "B d_k 32": ("model.d_k=32", 60, 60.38, 60.35),
    "C N 2": ("model.num_layers=2", 36, 35.68, 35.67),
    "C N 4": ("model.num_layers=4", 50, 50.40, 50.37),
    "C N 8": ("model.num_layers=8", 80, 79.82, 79.77),
    "C d_model 256": ("model.d_model=256 model.d_k=32 model.d_v=32", 28, 27.85, 27.83),
    "C d_model 1024": ("model.d_model=1024 model.d_k=128 model.d_v=128", 168, 167.94, 167.87),
    "C d_ff 1024": ("model.d_ff=1024", 53, 52.51, 52.48),
    "C d_ff 4096": ("model.d_ff=4096", 90, 90.30, 90.26),
    "big": (BIG, 213, 218.30, 218.23),
}


def parameters(config: ModelConfig, rows: int = 40_960) -> int:
    """Counted in the model itself, without making them."""
    model = Transformer(config, vocabulary_size=rows, pad_id=PAD)
    token = jnp.zeros((1, 1), jnp.int32)
    shapes = jax.eval_shape(model.init, jax.random.key(0), token, token)["params"]
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def parameters_by_hand(config: ModelConfig, rows: int = 40_960) -> int:
    """Added up from the matrices of §3."""
    d_model, wide = config.d_model, config.num_heads * (2 * config.d_k + config.d_v)
    attention = d_model * (wide + config.num_heads * config.d_v)
    attention += config.attention_bias * (wide + d_model)
    feed_forward = 2 * d_model * config.d_ff + config.d_ff + d_model
    norm = 2 * d_model
    layer = 3 * attention + 2 * feed_forward + 5 * norm  # one of the encoder, one of the decoder
    table = config.max_positions * d_model if config.positions == "learned" else 0
    return rows * d_model * (1 if config.tie_embeddings else 3) + table + config.num_layers * layer


@pytest.mark.parametrize("row", TABLE_3)
def test_parameters_are_as_many_as_in_table_3(row):
    assignments, printed, with_biases, without = TABLE_3[row]
    config = functools.reduce(override, assignments.split(), Config())
    biased = override(config, "model.attention_bias=true")
    assert parameters(biased.model) == parameters_by_hand(biased.model)
    millions = parameters_by_hand(biased.model) / 1e6
    plain = parameters_by_hand(config.model) / 1e6
    assert round(millions, 2) == with_biases
    assert round(plain, 2) == without
    if row == "big":
        assert round(millions) == 218  # not the printed 213
        smaller = parameters_by_hand(biased.model, rows=36_000) / 1e6
        assert round(smaller) == printed
    else:
        assert round(millions) == printed


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False}, {"positions": "learned"}])
def test_without_biases_too_the_parameters_are_the_matrices_of_section_3(changes):
    config = dataclasses.replace(TINY, **changes)
    assert parameters(config, rows=SIZE) == parameters_by_hand(config, rows=SIZE)


# ---- What is traced ----------------------------------------------------------------------


def test_layers_of_a_stack_are_lowered_once_where_there_is_no_dropout():
    def encode(params, rngs=None):
        return MODEL.apply({"params": params}, SOURCE, method="encode", rngs=rngs)

    def step(params, memory, cache):
        return MODEL.apply(
            {"params": params}, memory, cache, TARGET[:, 0], jnp.zeros((), int), method="step"
        )

    memory, cache = jax.eval_shape(encode, PARAMS), empty_cache(TINY, 3, 1, 4)
    for function, arguments in ((encode, (PARAMS,)), (step, (PARAMS, memory, cache))):
        text = jax.jit(function).lower(*arguments).as_text()
        assert len(re.findall(r"call @_run_alone\(", text)) == TINY.num_layers
        assert len(re.findall(r"func private @_run_alone\(", text)) == 1
    trained = jax.jit(encode).lower(PARAMS, {"dropout": jax.random.key(0)}).as_text()
    assert "_run_alone" not in trained


# ---- One kernel for attention ------------------------------------------------------------


def test_on_a_gpu_every_attention_in_training_is_fused_and_none_that_is_watched(monkeypatch):
    settings = {"compute_dtype": "bfloat16", "dropout_rate": 0.0}
    plain, fused = transformer(**settings), transformer(**settings, fused_attention=True)
    training: Any = {"dropout": jax.random.key(0)}
    expected = plain.apply({"params": PARAMS}, SOURCE, TARGET, rngs=training)
    kinds: list[str] = []

    def counted(queries, keys_values, mask, compute_dtype):
        kinds.append("causal" if mask.shape[2] > 1 else "padding")
        return fused_attention(queries, keys_values, mask, compute_dtype, "xla")

    monkeypatch.setattr("jax_transformer.models.attention.fused_attention", counted)
    found = fused.apply({"params": PARAMS}, SOURCE, TARGET, rngs=training)
    np.testing.assert_array_equal(found, expected)
    assert not kinds  # this is no GPU
    monkeypatch.setattr("jax_transformer.models.attention._on_nvidia_gpu", lambda: True)
    found = fused.apply({"params": PARAMS}, SOURCE, TARGET, rngs=training)
    assert kinds == ["padding"] * 2 + ["causal", "padding"] * 2
    real = TARGET != PAD
    np.testing.assert_allclose(found[real], expected[real], atol=0.05)
    maps = attention_maps(fused, PARAMS, jnp.array(SOURCE), jnp.array(TARGET))
    assert len(maps) == 6
    for unfit in ({"attention_radius": 1}, {"attention_dropout_rate": 0.1}):
        other = transformer(**settings, fused_attention=True, **unfit)
        other.apply({"params": PARAMS}, SOURCE, TARGET, rngs=training)
    assert len(kinds) == 6


# ---- Restricted self-attention (§4, Table 1) ----------------------------------------------


def test_what_reaches_a_position_grows_by_the_radius_with_each_restricted_layer():
    model = transformer(num_layers=2, attention_radius=1, tie_embeddings=False)
    params = random_params(model)
    source = jnp.array([[3, 4, 5, 6, 7, 8, 9]])  # all different

    @jax.jit
    @jax.jacrev
    def jacobian(matrix):
        embedded = {**params, "embedding": {"matrix": matrix}}
        memory: Any = model.apply({"params": embedded}, source, method="encode")
        return memory.keys_values[0].keys[0, 0, :, 0]  # [S]

    found = np.abs(np.asarray(jacobian(params["embedding"]["matrix"]))).max(-1)  # [S, V]
    for position in range(7):
        for other in range(7):
            reached = found[position, 3 + other] > 1e-6
            assert reached == (abs(position - other) <= 2), (position, other)


def test_the_decoder_restricts_its_self_attention_and_not_its_view_of_the_source():
    model = transformer(num_layers=1, attention_radius=1)
    params = random_params(model)
    maps = attention_maps(model, params, jnp.array(SOURCE[2:]), jnp.array([[BOS, 8, 11, 10, 3]]))
    near = np.asarray(maps["decoder_0/self_attention"])[0].max(0) > 0
    assert near.astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert (np.asarray(maps["decoder_0/cross_attention"]) > 0).all()


def test_a_radius_as_long_as_the_sentence_restricts_nothing():
    exact = logits_of(MODEL, PARAMS, SOURCE, TARGET)
    near = logits_of(transformer(attention_radius=6), PARAMS, SOURCE, TARGET)
    np.testing.assert_allclose(exact, near, atol=1e-5)
    nearer = logits_of(transformer(attention_radius=1), PARAMS, SOURCE, TARGET)
    assert np.abs(exact - nearer).max() > 0.1


def test_cached_decoding_within_a_neighbourhood_is_teacher_forcing():
    model = transformer(attention_radius=1)
    variables = {"params": PARAMS}
    memory: Any = model.apply(variables, SOURCE, method="encode")
    cache = empty_cache(model.config, len(SOURCE), 1, 5)
    expected = logits_of(model, PARAMS, SOURCE, TARGET)
    for position in range(5):
        found: Any = model.apply(
            variables, memory, cache, TARGET[:, position], jnp.array(position), method="step"
        )
        logits, cache = found
        np.testing.assert_allclose(logits, expected[:, position], atol=1e-5)


# ---- bfloat16 ------------------------------------------------------------------------------


def test_a_beam_of_several_hypotheses_is_decoded_in_bfloat16_too():
    """XLA's CPU backend lacks some products of bfloat16 operands, and says so when it runs."""
    model = transformer(compute_dtype="bfloat16")
    memory = encode(model, PARAMS, SOURCE)
    found = decoded(model, PARAMS, memory, HYPOTHESES, room=8)
    expected = logits_of(model, PARAMS, SOURCE.repeat(3, axis=0), HYPOTHESES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.2)
