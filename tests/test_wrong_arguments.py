"""The public API called with something wrong: an InputError of one line that names the argument."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import jax_transformer
from jax_transformer.errors import InputError
from jax_transformer.models.attention import Dropout

jt: Any = jax_transformer  # pyright would find most of these mistakes
CONFIG = jt.ModelConfig(num_layers=1, d_model=8, d_ff=8, num_heads=2, dropout_rate=0)
LEARNED = jt.ModelConfig(
    num_layers=1, d_model=8, d_ff=8, num_heads=2, positions="learned", max_positions=4
)
MODEL = jt.Transformer(CONFIG, vocabulary_size=300, pad_id=0)
OPTIMIZER = jt.adam_with_warmup(8, warmup_steps=10)
SOURCE, TARGET = np.array([[5, 6, 7, 2]] * 2), np.array([[1, 8, 9]] * 2)
IDS = {"bos_id": 1, "eos_id": 2}
SEARCH: dict[str, Any] = {"beam_size": 2, "length": 3, "alpha": 0.6, "pad_id": 0, **IDS}
MASK, HEADS = jt.causal_mask(3), jnp.ones((1, 2, 3, 4))
KEY = jax.random.key(0)
LOGITS = jnp.zeros((2, 3, 300))


class Holder:
    """What has a module, as a trained model has."""

    def __init__(self) -> None:
        self.module = MODEL


def apply(source: Any, target: Any, *segments: Any, model: Any = MODEL) -> Any:
    """The logits of an untrained model; nothing is computed if the arguments are refused."""
    return model.init_with_output(jax.random.key(0), source, target, *segments)[0]


def encode(source: Any) -> Any:
    return MODEL.apply({"params": params()}, source, method="encode")


def embed(tokens: Any) -> Any:
    return jt.Embedding(vocabulary_size=20, d_model=8).init(jax.random.key(0), tokens)


def attend(mask: Any) -> Any:
    return jt.attention_weights(HEADS, HEADS, mask)


def equation_1(keys: Any, *leading: int) -> Any:
    return jt.scaled_dot_product_attention(np.ones((*leading, 3, 8)), keys, np.ones((5, 4)))


def attention(*arrays: Any) -> Any:
    return jt.MultiHeadAttention(2, d_model=8, d_k=4, d_v=4).init(KEY, *arrays)


def shifted(source: Any, target: Any) -> Any:
    return jt.make_loss(MODEL, 1)(params(), jt.Batch(source, target))


def parts(accumulate: int, rows: int = 3, source: Any = None) -> Any:
    source = np.ones((rows, 2), int) if source is None else source
    batch = jt.Batch(source, np.ones((rows, 2), int))
    return jt.gradients(jt.make_loss(MODEL, 1), params(), batch, accumulate=accumulate)


def search(state: Any = (), max_lengths: Any = None, **changes: Any) -> Any:
    lengths = np.array([3]) if max_lengths is None else max_lengths
    return jt.beam_search(lambda *_: None, state, lengths, **{**SEARCH, **changes})


def translate(
    source: Any = SOURCE, decoding: Any = None, model: Any = MODEL, **changes: Any
) -> Any:
    decoding = decoding or jt.DecodingConfig(beam_size=2)
    return jt.translate(model, params(), source, decoding, **{**IDS, **changes})


@cache
def params() -> Any:
    return jax.jit(MODEL.init)(jax.random.key(0), SOURCE, TARGET)["params"]


def loss(targets: Any, label_smoothing: Any = 0.1, logits: Any = LOGITS) -> Any:
    return jt.label_smoothed_cross_entropy(logits, targets, label_smoothing, pad_id=0)


def choose(weights: Any = None, **options: Any) -> Any:
    return jt.minimum_bayes_risk(["a", "b"], weights, **options)


# The argument that the line begins with, and other words of it.
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    # Settings.
    (lambda: jt.ModelConfig(d_model=7, num_heads=1), "model.d_model=7 pairs"),
    (lambda: jt.ModelConfig(num_heads=0), "model.num_heads greater 0"),
    (lambda: jt.ModelConfig(d_model=None), "model.d_model integer None"),
    (lambda: jt.ModelConfig(fused_attention=True), "model.fused_attention=true expected"),
    (lambda: jt.TrainingConfig(steps=0), "training.steps greater 0"),
    (lambda: jt.DecodingConfig(narrowing=True), "decoding.narrowing=true patience 0"),
    (lambda: jt.Config(jt.TrainingConfig()), "model ModelConfig"),
    (lambda: jt.override(jt.ModelConfig(), "model.d_k=8"), "config ModelConfig"),
    # The model.
    (lambda: jt.Transformer(jt.Config(), 9, 0), "config ModelConfig Config"),
    (lambda: jt.Transformer(CONFIG, 9, 9), "pad_id 8 9"),
    (lambda: apply(SOURCE, TARGET[:1]), "target rows"),
    (lambda: apply(SOURCE[0], TARGET), "source [B,"),
    (lambda: apply(SOURCE, TARGET[0]), "target rows"),
    (lambda: apply(SOURCE, [[1, 8], [1, 9]]), "target [B,"),
    (
        lambda: apply(SOURCE, np.full((2, 5), 7), model=jt.Transformer(LEARNED, 300, 0)),
        "positions max_positions 4 5",
    ),
    (lambda: apply(SOURCE + 295, TARGET), "source 0 299"),
    (lambda: apply(SOURCE, jnp.array(-TARGET)), "target 0 299"),
    (lambda: encode(SOURCE + 295), "source 0 299"),
    (lambda: embed(np.array([20])), "tokens 0 19"),
    (lambda: translate(SOURCE + 295), "source 0 299"),
    (lambda: apply(SOURCE, TARGET, SOURCE), "target_segments both"),
    (lambda: translate(SOURCE[0]), "source [B,"),
    (lambda: translate([[5, 6]]), "source [B,"),
    (lambda: jt.positional_encoding(jnp.arange(3), 7), "d_model even"),
    (lambda: jt.positional_encoding(-1, 8), "positions number"),
    (lambda: jt.positional_encoding(5.0, 8), "positions number"),
    (lambda: equation_1(np.ones((5, 8)) + 1j), "queries arrays"),
    (lambda: jt.experiment(5), "experiment str int"),
    (lambda: attend(jnp.zeros((1, 1, 3, 3))), "mask bools"),  # to be added
    (lambda: attend(MASK[0]), "mask bools (3,"),
    (lambda: attend([[True] * 3] * 3), "mask bools (3,"),
    (lambda: equation_1(np.ones((5, 7))), "queries [...,"),
    (lambda: equation_1(np.ones(8)), "queries d_k"),
    (lambda: equation_1([[1.0] * 8] * 5), "queries [...,"),
    (lambda: equation_1(np.ones((2, 5, 8)), 3), "queries arrays"),
    (lambda: jt.scaled_dot_product_attention(HEADS, HEADS, HEADS.astype(int)), "values int32"),
    (lambda: jt.scaled_dot_product_attention(HEADS, HEADS, HEADS, dropout=0.1), "dropout 0.1"),
    (lambda: attention(jnp.ones((5, 8))), "x [B, 8]"),
    (lambda: attention(jnp.ones((1, 5, 7))), "x [B, 8]"),
    (lambda: attention(jnp.ones((1, 5, 8)), jnp.ones((5, 8))), "attended [B, 8]"),
    (lambda: jt.padding_mask(SOURCE[0], 0), "tokens [B,"),
    (lambda: jt.padding_mask([[5, 0]], 0), "tokens list"),
    (lambda: jt.segment_mask(SOURCE, SOURCE[0]), "key_segments [B,"),
    (lambda: jt.local_attention_mask(4, -1), "radius 0 -1"),
    (lambda: Dropout(10).apply({}, jnp.ones(3)), "rate 1 10"),
    (lambda: jt.FeedForward(8, 8, activation="silu").init(KEY, HEADS), "activation relu 'silu'"),
    # Training.
    (lambda: loss(TARGET[:, :2]), "targets (2, 3)"),
    (lambda: loss(TARGET - 9), "targets 0 299"),
    (lambda: loss(TARGET, 1.0), "label_smoothing 1.0"),
    (lambda: loss(TARGET, logits=[[0.0]]), "logits floats list"),
    (lambda: shifted(SOURCE, TARGET[0]), "target [B,"),
    (lambda: shifted(SOURCE, [[8, 9]]), "target list"),
    (lambda: parts(1, source=[[5, 6]]), "batch.source list"),
    (lambda: jt.learning_rate(1, 512, warmup_steps=0), "warmup_steps 1 0"),
    (lambda: jt.initial_state(MODEL, OPTIMIZER, seed=-1), "seed 0 4294967295 -1"),
    (lambda: jt.initial_state(MODEL, OPTIMIZER, seed=1.5), "seed whole 1.5"),
    (lambda: jt.initial_state(MODEL, OPTIMIZER, seed="1"), "seed whole '1'"),
    (lambda: jt.make_loss(MODEL, 300), "bos_id 299 300"),
    (lambda: jt.make_loss(Holder(), 1), "model Holder model.module"),
    (lambda: jt.initial_state(Holder(), OPTIMIZER, seed=1), "model Holder model.module"),
    (lambda: jt.batches(MODEL, ["a"], ["b"]), "model TrainedModel Transformer"),
    (lambda: jt.shift_right(TARGET, 1, segments=[[1, 1, 1]] * 2), "segments [B, list"),
    (lambda: parts(2), "accumulate divisor 2"),
    (lambda: jt.train("base", {"dev_source": None}, workdir="run"), "dev_source: path None"),
    (lambda: jt.train("base", {"dev_source": b"dev"}, workdir="run"), "dev_source: path b'dev'"),
    (lambda: jt.train("base", {"dev_source": [5]}, workdir="run"), "dev_source: path 5"),
    (lambda: jt.train("base", workdir=None), "expected path None"),
    (lambda: parts(2, rows=0), "accumulate divisor 0 2"),
    # Searching.
    (lambda: search(n_best=3), "n_best 2 3"),
    (lambda: search(alpha=-1), "alpha 10 -1"),
    (lambda: search(patience=float("nan")), "patience nan"),
    (lambda: search(narrowing=True), "narrowing patience 1 0"),
    (lambda: search(state=np.ones(1)), "state 2 rows"),
    (lambda: search(max_lengths=4), "max_lengths [B]"),
    (lambda: translate(model=Holder()), "model Holder model.module"),
    (lambda: jt.attention_maps(Holder(), {}, SOURCE, TARGET), "model Holder model.module"),
    (lambda: translate(n_best=5), "n_best 2 5"),
    (lambda: jt.Transformer(LEARNED, 300, 0).empty_cache(2, 54), "positions max_positions 4 54"),
    (lambda: translate(decoding=jt.Config()), "decoding DecodingConfig"),
    (lambda: translate(eos_id=300), "eos_id 299 300"),
    # Choosing among hypotheses.
    (lambda: jt.minimum_bayes_risk([]), "hypotheses one"),
    (lambda: jt.minimum_bayes_risk("a b"), "hypotheses list str"),
    (lambda: choose([0.5]), "weights finite"),
    (lambda: choose([1, -1]), "weights finite"),
    (lambda: choose([1, float("nan")]), "weights finite"),
    (lambda: choose(utility="comet"), "utility comet"),
    (lambda: choose(tokenize="ja"), "tokenize 13a"),
]


@pytest.fixture(autouse=True)
def annotations_are_not_checked():
    """As they are for users."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(("call", "expected"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_wrong_argument_is_named_in_one_line(call, expected):
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(expected.split()[0])
    assert all(word in message for word in expected.split())
    assert "\n" not in message


@pytest.mark.parametrize("seed", ["1", -1, 2**32, 1.0, True])
def test_a_wrong_seed_is_refused_before_it_is_in_a_run_folder(seed, tmp_path):
    with pytest.raises(InputError, match="seed: expected"):
        jt.train("demo", workdir=tmp_path / "run", seed=seed)
    assert not list(tmp_path.rglob("config.json"))


def test_a_seed_may_be_an_array_of_jax():
    key = jt.initial_state(MODEL, OPTIMIZER, seed=3).params["embedding"]["matrix"]
    for seed in (jnp.int32(3), jnp.uint32(3), np.arange(4)[3]):
        state = jt.initial_state(MODEL, OPTIMIZER, seed=seed)
        np.testing.assert_array_equal(state.params["embedding"]["matrix"], key)


@pytest.mark.slow
def test_ids_and_positions_beyond_a_table_give_nan_and_never_another_row():
    unknown = np.array([[1, 8, 300], [1, -1, 9], [1, 8, 9]])
    logits = jax.jit(MODEL.apply)({"params": params()}, np.tile(SOURCE[:1], (3, 1)), unknown)
    assert np.isnan(logits).any(axis=(1, 2)).tolist() == [True, True, False]
    learned = jax.jit(partial(apply, model=jt.Transformer(LEARNED, 300, 0)))
    segments = np.ones((2, 5), int)
    with pytest.raises(InputError, match="positions: expected"):
        learned(TARGET, 7 * segments)
    assert np.isnan(learned(TARGET, 7 * segments, segments[:, :3], segments)).any()


@pytest.mark.release
def test_64_bit_numbers_may_be_on_and_change_nothing_but_what_dropout_draws():
    decoding = jt.DecodingConfig(beam_size=2, max_extra_length=3)

    def run() -> Any:
        tokens = jnp.asarray(SOURCE)  # of 64 bits where they are on
        state = jax.jit(lambda: jt.initial_state(MODEL, OPTIMIZER, seed=0))()
        step = jax.jit(jt.make_train_step(jt.make_loss(MODEL, 1, 0.1), OPTIMIZER, accumulate=2))
        for _ in range(3):
            state, metrics = step(state, jt.Batch(tokens, tokens))
        search = jax.jit(partial(jt.translate, MODEL, source=tokens, decoding=decoding, **IDS))
        return jax.device_get((state.params, metrics.loss, search(state.params)))

    expected = run()
    with jax.enable_x64(True):
        found = run()
    for ours, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
