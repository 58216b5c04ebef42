"""The benchmarks' counts against independent ones, and the shape of what they print."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import data_parallel, decode, measuring, preparation, train_step
from benchmarks.contender import peak_memory
from benchmarks.measuring import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SHAPES,
    Shape,
    Timing,
    asked_shape,
    random_sentences,
    take_devices,
    time_call,
)
from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.evaluation.flops import count_parameters, product_flops
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_train_step

ROOT = Path(__file__).parents[2]


# Every width differs from the others it could be mistaken for; wide enough that XLA's count of
# element-wise work is small beside the products.
WIDE = Shape(
    ModelConfig(num_layers=2, d_model=128, d_ff=256, num_heads=4, d_k=32, d_v=24),
    vocabulary_size=1500,
    batch_tokens=240,
    length=40,
)


@pytest.fixture(scope="module")
def traced_step():
    """The train step of WIDE, traced without any values."""
    model = Transformer(WIDE.model, WIDE.vocabulary_size, PAD_ID)
    optimizer = adam_with_warmup(WIDE.model.d_model, 4000)
    state = jax.eval_shape(lambda: initial_state(model, optimizer, jax.random.key(0)))
    side: Any = jax.ShapeDtypeStruct((WIDE.rows, WIDE.length), jnp.int32)
    step = make_train_step(model, optimizer, BOS_ID, 0.1)
    return jax.jit(step).trace(state, Batch(side, side))


def test_counted_flops_are_those_of_the_products_in_the_traced_train_step(traced_step):
    assert train_step.training_flops(WIDE) == product_flops(traced_step.jaxpr.jaxpr)


def test_xla_counts_the_same_flops_and_some_element_wise_work(traced_step):
    counted = traced_step.lower().cost_analysis()["flops"]
    assert 1.0 <= counted / train_step.training_flops(WIDE) <= 1.2


def test_rows_of_a_ragged_batch_end_in_eos_and_are_about_nine_tenths_real():
    shape = SHAPES["tiny"]
    for side in train_step.ragged_batch(shape)[:2]:
        side = np.asarray(side)
        assert side.shape == (128, 32)
        real = side != PAD_ID
        assert 0.88 < real.mean() < 0.93
        assert ((side == EOS_ID).sum(axis=1) == 1).all()
        assert (side[np.arange(128), real.sum(axis=1) - 1] == EOS_ID).all()
        assert (real[:, :-1] >= real[:, 1:]).all()  # padding stands behind
        assert side.max() < shape.vocabulary_size


def test_outputs_end_after_the_asked_number_of_steps_and_the_search_stops_there():
    calls = []

    class Counting(Transformer):
        def step(self, memory, cache, token, position):
            jax.debug.callback(lambda position: calls.append(int(position)), position)
            return super().step(memory, cache, token, position)

    shape = SHAPES["smoke"]
    model = Counting(shape.model, shape.vocabulary_size, PAD_ID)
    token = jnp.zeros((1, 2), jnp.int32)
    params = decode.never_ending(model.init(jax.random.key(0), token, token)["params"])
    source = random_sentences(np.random.default_rng(0), np.full(3, 4), 4, shape.vocabulary_size)
    for beam_size in (1, 4):
        calls.clear()
        decoding = DecodingConfig(beam_size=beam_size, max_extra_length=10)
        found = jax.jit(
            lambda rows, decoding=decoding: decode.translate_in_steps(
                model, params, rows, decoding, 5
            )
        )(source)
        jax.effects_barrier()
        assert sorted(calls) == list(range(5))
        tokens = np.asarray(found.tokens)[:, 0]
        assert (tokens[:, 4] == EOS_ID).all()
        assert (tokens[:, :4] != EOS_ID).all()
        assert (tokens[:, 5:] == PAD_ID).all()


def test_the_time_to_compile_is_told_apart_from_the_repetitions(monkeypatch):
    clock = iter([0.0, 10.0, *np.cumsum([20.0, 1.0, 1.0, 2.0, 1.0, 3.0])])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    calls = []
    timing = time_call(lambda: calls.append(1), repetitions=3)
    assert timing == Timing([1.0, 2.0, 3.0], 8.0)
    assert timing.cells() == ["2,000.0", "1,000.0 - 3,000.0"]
    assert len(calls) == 1 + 2 + 3


def test_peak_memory_is_in_bytes_on_both_systems(monkeypatch):
    assert 50e6 < peak_memory() < 50e9  # Python with JAX; kibibytes or pages would be far off
    here = peak_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert peak_memory() * 1024 == pytest.approx(here, rel=0.1)


def test_devices_that_are_not_there_or_cannot_share_the_rows_are_refused():
    with pytest.raises(InputError, match=r"--devices=9: .* found 8 x"):
        take_devices(9, rows=9)
    with pytest.raises(InputError, match="3 devices can share alike, found 4"):
        take_devices(3, rows=4)


def cells_of(text):
    """The table in a text as (column names, rows)."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(re.fullmatch(r"-+:?", cell) for cell in rows[1])
    return rows[0], rows[2:]


def test_generated_pairs_are_of_alike_length_in_words_that_follow_zipf(tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "CHUNK", 700)
    preparation.generate(tmp_path, "train", 2_000, seed=3)
    sides = [
        [line.split() for line in (tmp_path / f"train.{name}").read_text("utf-8").split("\n")[:-1]]
        for name in ("en", "de")
    ]
    assert [len(side) for side in sides] == [2_000, 2_000]
    lengths = np.array([[len(line) for line in side] for side in sides])
    assert np.corrcoef(lengths)[0, 1] > 0.9
    assert 20 < lengths.mean() < 30
    for side in sides:
        counts = Counter(word for line in side for word in line)
        ranked = [count for _, count in counts.most_common(64)]
        # The count at rank r is 1/r of the first.
        assert ranked[0] / ranked[9] == pytest.approx(10, rel=0.2)
        assert ranked[1] / ranked[31] == pytest.approx(16, rel=0.3)


def test_preparation_prints_a_row_for_every_phase_and_removes_what_it_wrote(tmp_path):
    flags = ["--pairs=3000", f"--folder={tmp_path / 'made'}", "--set=data.vocabulary_size=500"]
    command = [sys.executable, "-m", "benchmarks.preparation", *flags]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = run.stdout
    rows = re.findall(r"^\| (digests|sample|encode|dev).*\d \|$", said, re.M)
    assert rows == ["digests", "sample", "encode", "dev"]
    assert re.search(r"^train +2,\d{3} pairs, .* tokens; dropped", said, re.M)
    assert re.search(r"^plan \d+ batches .* MB", said, re.M)
    assert list(tmp_path.iterdir()) == []


def test_decode_prints_a_row_for_every_shape_and_beam():
    task = decode.Task(4, 6, 5, DecodingConfig(beam_size=2, max_extra_length=3))
    found = decode.measure(SHAPES["smoke"], task, repetitions=5, device_count=2)
    assert found.devices.startswith("2 x cpu")
    assert len(found.timing.seconds) == 5
    text = decode.report({("smoke", 2): found, ("smoke", 1): found}, task, 5)
    names, rows = cells_of(text)
    assert names == decode.COLUMNS
    assert [row[:2] for row in rows] == [["smoke", "2"], ["smoke", "1"]]
    sentences, tokens = (float(cell.replace(",", "")) for cell in rows[0][2:4])
    assert sentences == pytest.approx(4 / found.timing.median, rel=0.01)
    assert tokens == pytest.approx(5 * sentences, rel=0.01)


def test_data_parallel_prints_the_step_and_what_it_is_made_of():
    found = data_parallel.measure(SHAPES["smoke"], 2, repetitions=5)
    text = data_parallel.report("smoke", SHAPES["smoke"], found)
    names, rows = cells_of(text)
    assert names == data_parallel.COLUMNS
    assert [row[1] for row in rows] == ["2", "2", "2", "2", "1"]
    assert rows[0][4] == "100.0%"
    for row, timing in zip(rows[1:], (found.alone, found.all_reduce, found.dispatch), strict=False):
        share = float(row[4].rstrip("%")) / 100
        assert share == pytest.approx(timing.median / found.step.median, abs=1e-3)
    smoke = SHAPES["smoke"]
    assert found.reduced == 4 * count_parameters(smoke.model, smoke.vocabulary_size)


def test_a_shape_takes_what_the_flags_ask_for_and_refuses_what_cannot_be():
    smoke = SHAPES["smoke"]
    assert asked_shape("smoke", "float32") == smoke
    changed = asked_shape("smoke", "bfloat16", 32, fused_attention=True)
    assert (changed.rows, changed.length) == (2, smoke.length)
    assert (changed.model.compute_dtype, changed.model.fused_attention) == ("bfloat16", True)
    with pytest.raises(InputError, match="--batch_tokens=15: expected at least 16, a row of smoke"):
        asked_shape("smoke", "float32", 15)
    with pytest.raises(InputError, match="--fused_attention: expected --dtype=bfloat16"):
        asked_shape("smoke", "float32", None, fused_attention=True)


@pytest.mark.parametrize(
    ("plugin", "backend", "expected"),
    [(False, None, "cpu"), (True, "cpu", "cpu"), (True, "gpu", "cuda"), (True, "tpu", "cpu")],
)
def test_others_work_on_the_gpu_that_jax_takes(monkeypatch, plugin, backend, expected):
    monkeypatch.setattr(measuring, "has_cuda_plugin", lambda: plugin)
    monkeypatch.setattr(measuring, "in_own_process", lambda function, devices: backend)
    assert measuring.device_of_others() == expected


def test_memory_is_that_of_the_fullest_device_or_of_the_process(monkeypatch):
    assert measuring.device_memory() == pytest.approx(peak_memory(), rel=0.01)
    stats = [{"peak_bytes_in_use": 5}, {"peak_bytes_in_use": 7}, None]
    devices = [SimpleNamespace(memory_stats=lambda found=found: found) for found in stats]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert measuring.device_memory() == 7


def test_train_step_prints_where_it_ran_and_a_row_for_every_shape():
    given = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    environment = os.environ | {"XLA_FLAGS": " ".join(given)}
    command = (
        "benchmarks.train_step --shape=smoke --devices=2 --repetitions=5 --peak_size=64 "
        "--batch_tokens=99 --dtype=bfloat16"
    )
    run = subprocess.run(
        [sys.executable, "-m", *command.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    for fact in ("versions    python ", "jaxlib ", "flax ", "processor ", " cores", "commit "):
        assert fact in run.stdout
    assert "devices     2 x cpu (cpu), bfloat16" in run.stdout
    names, rows = cells_of(run.stdout)
    assert names == train_step.COLUMNS
    assert [row[0] for row in rows] == ["smoke"]
    cells = dict(zip(names, rows[0], strict=True))
    numbers = {
        name: float(cells[name].replace(",", "").rstrip("%"))
        for name in names
        if name not in ("shape", "rows x (source + target)", "range")
    }
    batch = train_step.ragged_batch(asked_shape("smoke", "bfloat16", 99))
    source, target = ((np.asarray(side) != PAD_ID).sum() for side in batch[:2])
    assert cells["rows x (source + target)"] == "6 x (16 + 16)"
    share = numbers["real"] / numbers["tokens/s padded"]
    assert share == pytest.approx((source + target) / (6 * 32), rel=0.01)
    assert numbers["real target"] / numbers["real"] == pytest.approx(
        target / (source + target), rel=0.01
    )
    low, high = (float(limit.replace(",", "")) for limit in cells["range"].split(" - "))
    assert low <= numbers["ms/step"] <= high
    assert numbers["memory MB"] > 50
