"""Eight devices against one: the same sums, gradients, parameters and rows."""

import dataclasses
import types
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from random_params import remember_gradients

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.decoding.generate import translate
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, compiler_options
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.metrics_writer import compilation_events
from jax_transformer.training.loss import LossSums
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import (
    Batch,
    TrainState,
    initial_state,
    make_loss,
    make_train_step,
)

PAD, BOS, EOS, SIZE = 0, 1, 2, 11
CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4, dropout_rate=0.0)
MODEL = Transformer(CONFIG, SIZE, PAD)
ROWS = 24  # three for each of eight devices
COUNTS = (1, 8)


def ragged_batch(seed):
    """Rows of 1 to 6 tokens; the last two of eight devices get nothing but padding."""
    random = np.random.default_rng(seed)
    sides = np.full((2, ROWS, 6), PAD, np.int32)
    for side in sides:
        for row in side[: ROWS - 6]:
            length = random.integers(1, 7)
            row[:length] = [*random.integers(3, SIZE, length - 1), EOS]
    sides[1, 3:6, 2:] = PAD  # and the second has few target tokens
    return Batch(*sides)


OPTIMIZER = optax.chain(remember_gradients(), optax.adam(0.01))


@dataclasses.dataclass
class Run:
    """Three steps on this number of devices: state and metrics after each, as NumPy trees."""

    states: list
    metrics: list
    warned: list
    step: object


@pytest.fixture(scope="module")
def start() -> TrainState:
    return jax.device_get(jax.jit(lambda: initial_state(MODEL, OPTIMIZER, 0))())


def placed(devices, step, params, optimizer):
    """A state on the devices, from what a checkpoint holds."""
    return devices.replicate(TrainState(jnp.int32(step), params, optimizer, jnp.uint32(0)))


@pytest.fixture(scope="module")
def runs(start):
    """{device count: Run}, with every warning from the first compilation on."""
    results = {}
    for count in COUNTS:
        devices = Devices(count)
        step = devices.train_step(make_train_step(make_loss(MODEL, BOS, 0.1), OPTIMIZER))
        run = Run([], [], [], step)
        with warnings.catch_warnings(record=True) as run.warned:
            warnings.simplefilter("always")
            state = placed(devices, 0, start.params, start.opt_state)
            for seed in range(3):
                state, metrics = step(state, devices.put_rows(ragged_batch(seed)))
                run.states.append(devices.unreplicate((state.params, state.opt_state)))
                run.metrics.append(devices.unreplicate(metrics))
        results[count] = run
    return results


def assert_close(tree, other, tolerance=1e-6):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=tolerance), tree, other)


def largest_difference(tree, other):
    return max(
        float(np.abs(np.asarray(a) - np.asarray(b)).max())
        for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    )


@pytest.mark.slow
def test_gradients_of_ragged_batches_are_those_of_one_device(runs):
    for seed in range(3):
        (_, (gradient, _)), (_, (alone, _)) = (runs[n].states[seed] for n in (8, 1))
        assert_close(gradient, alone)


@pytest.mark.slow
def test_whole_steps_give_the_parameters_and_metrics_of_one_device(runs, start):
    count = 8
    for seed in range(3):
        assert_close(runs[count].states[seed][0], runs[1].states[seed][0])
        for value, alone in zip(
            jax.tree.leaves(runs[count].metrics[seed]),
            jax.tree.leaves(runs[1].metrics[seed]),
            strict=True,
        ):
            assert value.shape == ()
            np.testing.assert_allclose(value, alone, rtol=1e-5)
    batch = ragged_batch(2)
    assert runs[count].metrics[2].loss.tokens == (batch.target != PAD).sum()
    assert largest_difference(runs[count].states[2][0], start.params) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_state_is_donated_at_every_step_and_nothing_warns_of_it(runs, start, count):
    assert [str(warning.message) for warning in runs[count].warned] == []
    given, devices = jax.device_put(start), Devices(count)
    state = placed(devices, 0, given.params, given.opt_state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(3):
            before = state
            state, _ = runs[count].step(state, devices.put_rows(ragged_batch(seed)))
            assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before.params))
    # What was replicated is the caller's, and stays.
    assert_close((given.params, given.opt_state), (start.params, start.opt_state), 0)


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_what_was_taken_from_the_devices_stays_as_it_was_when_training_goes_on(runs, start, count):
    """Donation may not write into arrays that a checkpoint is still being written from."""
    devices, run = Devices(count), runs[count]
    given = jax.tree.map(np.copy, (start.params, start.opt_state))
    state = placed(devices, 0, *given)
    taken = []
    for seed in range(3):
        state, _ = run.step(state, devices.put_rows(ragged_batch(seed)))
        taken.append(devices.unreplicate((state.params, state.opt_state)))
    jax.block_until_ready(state.params)
    for tree, expected in zip(taken, run.states, strict=True):
        assert largest_difference(tree, expected) == 0
    assert largest_difference(taken[0], taken[1]) > 0
    assert largest_difference(given, (start.params, start.opt_state)) == 0


@pytest.mark.slow
def test_a_checkpoint_from_eight_devices_goes_on_with_one(runs, start, tmp_path):
    params, optimizer = runs[8].states[1]
    with Checkpoints(tmp_path, asynchronous=False) as checkpoints:
        checkpoints.save(2, params, optimizer, {"epoch": 0, "index": 2}, {})
    params_like, optimizer_like = jax.eval_shape(lambda: (start.params, start.opt_state))
    with Checkpoints(tmp_path) as checkpoints:
        saved = checkpoints.restore_latest(params_like, optimizer_like)
    assert saved is not None
    devices = Devices(1)
    state = placed(devices, saved.step, saved.params, saved.optimizer)
    state, _ = runs[1].step(state, devices.put_rows(ragged_batch(2)))
    assert_close(devices.unreplicate((state.params, state.opt_state)), runs[8].states[2])
    assert int(devices.unreplicate(state.step)) == 3


def test_each_device_has_dropout_of_its_own():
    """The loss that a step sums is that of eight keys, one for each device."""

    def loss(params: Any, batch: Batch, key: Any = None) -> LossSums:
        drawn = jax.random.uniform(key) * params["w"]
        return LossSums(drawn, drawn, jnp.float32(batch.source.size))

    params = {"w": jnp.float32(1)}
    state = TrainState(jnp.int32(5), params, optax.sgd(0.0).init(params), jnp.uint32(3))
    devices = Devices(8)
    step = devices.train_step(make_train_step(loss, optax.sgd(0.0)))
    rows = np.ones((8, 1), np.int32)
    _, metrics = step(devices.replicate(state), devices.put_rows(Batch(rows, rows)))
    _, key = jax.random.split(jax.random.key(3))
    root = jax.random.fold_in(key, 5)
    apart = [float(jax.random.uniform(jax.random.fold_in(root, shard))) for shard in range(8)]
    assert len(set(apart)) == 8
    np.testing.assert_allclose(devices.unreplicate(metrics).loss.nll, sum(apart), rtol=1e-5)


def test_processes_with_different_numbers_of_devices_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 3)  # whose eight devices are these?
    with pytest.raises(InputError, match="3 processes, found 8 of 8"):
        Devices()


# ---- Devices that are not here ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cuda", "tpu"])
def test_training_and_searching_can_be_lowered_for_an_accelerator(kind, monkeypatch):
    """Nothing in them is for CPUs alone; on a GPU fused attention is cuDNN's."""
    on_gpu = kind == "cuda"
    if on_gpu:
        cudnn = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")
        monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)
        monkeypatch.setattr(cudnn, "check_compute_capability", lambda *_: True)
    widths = {"d_k": 8, "d_v": 8, "dropout_rate": 0.1, "num_layers": 2}
    fused = {"compute_dtype": "bfloat16", "fused_attention": on_gpu}
    model = Transformer(dataclasses.replace(CONFIG, **widths, **fused), SIZE, PAD)
    optimizer = adam_with_warmup(CONFIG.d_model, 10)
    state = jax.eval_shape(lambda: initial_state(model, optimizer, 0))
    loss = make_loss(model, BOS, 0.1)
    step = jax.jit(make_train_step(loss, optimizer), donate_argnums=0)
    text = step.trace(state, ragged_batch(0)).lower(lowering_platforms=(kind,)).as_text()
    calls = [text.count(f"@__cudnn$fmhaScaleBiasSoftmax{which}(") for which in ("", "Backward")]
    assert calls == [3 * 2 * on_gpu] * 2
    for beam_size in (1, 4):
        decoding = DecodingConfig(beam_size=beam_size)
        search = jax.jit(
            lambda params, rows, decoding=decoding: translate(
                model, params, rows, decoding, bos_id=BOS, eos_id=EOS
            )
        )
        rows = jax.ShapeDtypeStruct((16, 6), jnp.int32)
        assert search.trace(state.params, rows).lower(lowering_platforms=(kind,)).as_text()


@pytest.mark.parametrize("count", COUNTS)
def test_unreplicating_computes_nothing_on_the_devices(count):
    devices = Devices(count)
    tree = {"odd": np.arange(77.0).reshape(7, 11), "scalar": np.float32(3)}
    replicated = devices.replicate(tree)
    before = len(compilation_events())
    host = devices.unreplicate(replicated)
    assert len(compilation_events()) == before  # each computation on such a shape is compiled first
    assert jax.tree.map(type, host) == {"odd": np.ndarray, "scalar": np.ndarray}
    assert jax.tree.all(jax.tree.map(np.array_equal, host, tree))


@pytest.mark.parametrize("count", COUNTS)
def test_a_step_with_options_for_the_compiler_is_the_step_without(start, count):
    """A GPU gets some for float32, and pmap takes none."""
    step = make_train_step(make_loss(MODEL, BOS, label_smoothing=0.1), OPTIMIZER)
    found = []
    for options in (None, {"xla_cpu_enable_fast_math": False}):
        devices = Devices(count)
        devices.options = options
        take_step, state = devices.train_step(step), devices.replicate(start)
        compiled = len(compilation_events())
        for seed in (1, 2):
            state, _ = take_step(state, devices.put_rows(ragged_batch(seed)))
        assert len(compilation_events()) - compiled == 1
        found.append(devices.unreplicate(state))
    jax.tree.map(np.testing.assert_array_equal, *found)


@pytest.mark.parametrize("platform", ["cpu", "tpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_only_float32_on_a_gpu_does_without_tritons_products(platform, dtype):
    options = compiler_options(dtype, types.SimpleNamespace(platform=platform))
    expected = {"xla_gpu_enable_triton_gemm": False}
    assert options == (expected if (platform, dtype) == ("gpu", "float32") else None)
