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
from refusals import refusal

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.decoding.generate import translate
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, compiler_options
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.metrics_writer import compilation_events
from jax_transformer.runs.step import loss_of_stacked, stack_params, unstack
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
def test_steps_on_ragged_batches_give_the_gradients_parameters_and_metrics_of_one_device(
    runs, start
):
    for state, alone in zip(runs[8].states, runs[1].states, strict=True):
        (params, (gradient, _)), (params_alone, (gradient_alone, _)) = state, alone
        assert_close((params, gradient), (params_alone, gradient_alone))
    for metrics, alone in zip(runs[8].metrics, runs[1].metrics, strict=True):
        assert {leaf.shape for leaf in jax.tree.leaves(metrics)} == {()}
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), metrics, alone)
    assert runs[8].metrics[2].loss.tokens == (ragged_batch(2).target != PAD).sum()
    assert largest_difference(runs[8].states[2][0], start.params) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_state_is_donated_and_what_was_taken_from_it_or_given_stays_as_it_was(runs, start, count):
    """Donation may not write into arrays that a checkpoint is still being written from."""
    devices, run = Devices(count), runs[count]
    assert [str(warning.message) for warning in run.warned] == []
    given = jax.device_put(start)
    state, taken = placed(devices, 0, given.params, given.opt_state), []
    for seed in range(3):
        before = state
        state, _ = run.step(state, devices.put_rows(ragged_batch(seed)))
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before.params))
    state = placed(devices, 0, given.params, given.opt_state)
    for seed in range(3):
        state, _ = run.step(state, devices.put_rows(ragged_batch(seed)))
        taken.append(devices.unreplicate((state.params, state.opt_state)))
    jax.block_until_ready(state.params)
    for tree, expected in zip(taken, run.states, strict=True):
        assert largest_difference(tree, expected) == 0
    assert largest_difference(taken[0], taken[1]) > 0
    assert_close((given.params, given.opt_state), (start.params, start.opt_state), 0)


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


@pytest.mark.slow
def test_training_with_stacked_parameters_takes_the_same_steps(runs, start):
    state = stack_params(start)
    arrays = jax.tree.leaves(start.params)
    shapes = {array.shape for array in arrays}
    # Parameters, both moments and the gradients; the step, Adam's count and the seed.
    assert len(jax.tree.leaves(start)) == 4 * len(arrays) + 3
    assert len(jax.tree.leaves(state)) == 4 * len(shapes) + 3
    loss = loss_of_stacked(make_loss(MODEL, BOS, 0.1))
    step = jax.jit(make_train_step(loss, OPTIMIZER))
    for seed in range(3):
        state, metrics = step(state, ragged_batch(seed))
        found = unstack((state.params, state.opt_state))
        assert_close(found, runs[1].states[seed], 2e-6)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), metrics, runs[1].metrics[seed])


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


def test_devices_of_several_kinds_are_refused(monkeypatch):
    each = partial(types.SimpleNamespace, process_index=0)
    devices = [each(id=number, device_kind=f"GPU {number % 2}") for number in range(3)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    with pytest.raises(InputError, match="of one kind, found 2 x GPU 0 and 1 x GPU 1"):
        Devices()


def test_values_that_another_process_does_not_have_are_refused():
    """The other of two processes is simulated: it gives the numbers of its own values."""
    devices, numbers = Devices(1), []
    devices.processes = 2
    devices.largest = lambda number: lambda: numbers.append(number) or number
    values = b"text", [3], {"w": np.arange(4.0)}
    devices.check_same("an average", "runs/a", *values)
    their = dict(zip((True, False), numbers, strict=True))  # the number, and the same below 0
    devices.largest = lambda number: lambda: max(number, their[number >= 0])
    devices.check_same("an average", "runs/a", *values)
    message = refusal(devices.check_same, "an average", "runs/a", *values[:2], {"w": np.ones(4)})
    assert message.startswith("runs/a: expected the same on all hosts, found an average on process")


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
    batch = ragged_batch(0)._replace(target=np.full((ROWS, 5), PAD))  # cuDNN takes no odd lengths
    text = step.trace(state, batch).lower(lowering_platforms=(kind,)).as_text()
    calls = [text.count(f"@__cudnn$fmhaScaleBiasSoftmax{which}(") for which in ("", "Backward")]
    assert calls == [3 * 2 * on_gpu] * 2
    decoding = DecodingConfig(beam_size=4)
    search = jax.jit(
        lambda params, rows: translate(model, params, rows, decoding, bos_id=BOS, eos_id=EOS)
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


def test_a_step_with_options_for_the_compiler_is_the_step_without():
    """A GPU gets some for float32, and pmap takes none."""

    def add(state: Any, rows: Any, total: Any, shard: Any) -> Any:
        return state + total(rows.sum()) * 0.1, shard

    found = []
    for options in (None, {"xla_cpu_enable_fast_math": False}):
        devices = Devices(8)
        devices.options = options
        step, state = devices.train_step(add), devices.replicate(jnp.arange(77.0))
        compiled = len(compilation_events())
        for _ in range(2):
            state, shards = step(state, devices.put_rows(np.arange(24.0)))
        assert len(compilation_events()) - compiled == 1
        assert shards.tolist() == [*range(8)]
        found.append(devices.unreplicate(state))
    np.testing.assert_array_equal(*found)


def test_only_float32_on_a_gpu_does_without_tritons_products():
    for platform, dtype in (("cpu", "float32"), ("tpu", "float32"), ("gpu", "bfloat16")):
        assert compiler_options(dtype, types.SimpleNamespace(platform=platform)) is None
    found = compiler_options("float32", types.SimpleNamespace(platform="gpu"))
    assert found == {"xla_gpu_enable_triton_gemm": False}
