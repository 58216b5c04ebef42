"""metrics.jsonl and TensorBoard events, and what a crash leaves of them."""

import json
import resource
import struct
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.runs.metrics_writer import MetricsWriter, StepRecord
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.training.loss import LossSums
from jax_transformer.training.train_step import StepMetrics


def write(folder, *steps, after=0):
    writer = MetricsWriter(folder, after)
    for step in steps:
        writer.write({"step": step, "split": "train", "loss": 1.0 / step, "total_seconds": step})
    writer.close()


def lines_of(folder):
    return [json.loads(line) for line in folder.metrics.read_text("utf-8").splitlines()]


def test_lines_of_steps_that_a_crash_has_undone_are_removed(tmp_path):
    folder = RunFolder(tmp_path)
    write(folder, 10, 20, 30)
    write(folder, 21, after=20)
    assert [line["step"] for line in lines_of(folder)] == [10, 20, 21]


def test_a_score_of_step_0_is_not_kept_for_a_start_that_may_have_another_initial_model(tmp_path):
    folder = RunFolder(tmp_path)
    MetricsWriter(folder, 0).write({"step": 0, "split": "dev", "nll": 1.0})
    assert not MetricsWriter(folder, 0).has_dev(0)
    assert lines_of(folder) == []


@pytest.mark.parametrize(
    ("answer", "ends"), [(True, True), (np.True_, True), (1, False), ([1], False)]
)
def test_true_ends_training_that_of_numpy_too(answer, ends, tmp_path):
    writer = MetricsWriter(RunFolder(tmp_path), 0, on_line=lambda _: answer)
    writer.write({"step": 1, "split": "train"})
    assert writer.ends is ends


def test_a_file_that_goes_away_during_training_begins_again_with_a_warning(tmp_path, caplog):
    folder = RunFolder(tmp_path)
    writer = MetricsWriter(folder, 0)
    for step in (1, 2, 3):
        writer.write({"step": step, "split": "train"})
        if step == 1:
            folder.metrics.unlink()
    writer.close()
    assert [line["step"] for line in lines_of(folder)] == [2, 3]
    (message,) = caplog.messages
    assert str(folder.metrics) in message


def test_a_disk_that_takes_no_more_is_an_error_that_names_the_file(tmp_path):
    writer = MetricsWriter(RunFolder(tmp_path), 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # bytes in a file
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            writer.write({"step": 1, "split": "train", "x" * 2000: 1.0})
        assert caught.value.filename == str(tmp_path / "metrics.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.close()


def test_damaged_lines_are_left_out_with_a_warning_and_the_rest_is_kept(tmp_path, caplog):
    folder = RunFolder(tmp_path)
    write(folder, 10, 20)
    damaged = [
        b'{"step": "x", "split": "dev"}',
        *(b'{"step": 15}', b"7", b"null", b"\xff\xfe", b"[" * 100_000, b'{"step": 2'),
    ]
    with folder.metrics.open("ab") as file:
        file.write(b"\n".join(damaged))
    write(folder, 30, after=20)
    assert [line["step"] for line in lines_of(folder)] == [10, 20, 30]
    assert [f"line {number} is damaged" in m for number, m in enumerate(caplog.messages, 3)] == (
        [True] * len(damaged)
    )
    caplog.clear()
    write(folder, 31, after=30)
    assert caplog.messages == []


def test_the_line_of_a_window_divides_its_sums_once(tmp_path):
    folder = RunFolder(tmp_path)
    records = []
    for step, (loss, tokens) in enumerate([(12.0, 3.0), (10.0, 1.0)], start=1):
        sums = LossSums(jnp.float32(loss), jnp.float32(loss), jnp.float32(tokens))
        metrics = StepMetrics(sums, jnp.float32(step))
        records.append(StepRecord(step, 0, step, SimpleNamespace(), metrics, 0.25, step))  # pyright: ignore
    writer = MetricsWriter(folder, 0)
    writer.write_window(records, 4, 40, 0.1, 2.0)
    writer.close()
    (line,) = lines_of(folder)
    assert (line["step"], line["loss"], line["gradient_norm"]) == (2, 22 / 4, 2.0)
    assert (line["tokens_per_second"], line["tokens_per_second_with_padding"]) == (4.0, 20.0)
    assert line["target_tokens_per_second"] == 2.0
    assert (line["seconds"], line["step_seconds"], line["compilations"]) == (2.0, 1.0, 3)
    assert line["input_wait_share"] == 0.25


def events_of(folder):
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    (path,) = folder.tensorboard.glob("events.out.tfevents.*")
    content, events = path.read_bytes(), []
    while content:  # TensorBoard's framing: length, checksum, protobuf, checksum
        (size,) = struct.unpack("<Q", content[:8])
        events.append(Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    return events


def test_infinity_is_null_in_json_and_tensorboard_has_the_same_numbers_in_groups(tmp_path):
    from tensorboardX.proto.event_pb2 import SessionLog  # pyright: ignore

    folder = RunFolder(tmp_path)
    writer = MetricsWriter(folder, 4)
    writer.write_text("samples", 5, "source  <b>\n\nmodel   *x*")
    writer.write({"step": 5, "split": "train", "loss": 2.0, "epoch": 1, "compilations": 4})
    writer.write({"step": 5, "split": "dev", "perplexity": float("inf"), "seconds": 7.0})
    writer.close()
    assert lines_of(folder)[1] == {"step": 5, "split": "dev", "perplexity": None, "seconds": 7.0}
    events = events_of(folder)
    assert [e.step for e in events if e.session_log.status == SessionLog.START] == [5]
    (step, text), *scalars = [(e.step, value) for e in events for value in e.summary.value]
    assert (step, text.metadata.plugin_data.plugin_name) == (5, "text")
    assert text.tensor.string_val[0] == b"    source  <b>\n\n    model   *x*"
    values = {value.tag: value.simple_value for _, value in scalars}
    assert values == {
        "train/loss": 2.0,
        "progress/epoch": 1,
        "progress/compilations": 4,
        "dev/perplexity": float("inf"),
        "dev/seconds": 7.0,
    }
