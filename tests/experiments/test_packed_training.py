"""Training on rows of several pairs, as a person does it."""

import json
import re
import signal

import pytest
from commands import metrics, record, run_command, setting_flags, started, text_flags, wait_for

CHANGES = {
    "model__dropout_rate": 0.0,
    "training__steps": 60,
    "training__evaluate_steps": 60,
    "training__batch_tokens": 128,
}


@pytest.fixture(scope="module")
def command(text):
    settings = setting_flags(**CHANGES, data__packing="true", data__buckets=4)
    return ["train", "--experiment=base", "--seed=7", *text_flags(text), *settings]


@pytest.fixture(scope="module")
def whole(made_once, command):
    """(a run that was not interrupted, what it logged)."""

    def train(folder):
        done = run_command(*command, f"--workdir={folder / 'run'}")
        (folder / "stderr").write_text(done.stderr, encoding="utf-8")

    folder = made_once("packed", train)
    return folder / "run", (folder / "stderr").read_text(encoding="utf-8")


def logged(pattern, text):
    (found, *_) = re.findall(pattern, text)
    return found


@pytest.mark.slow
@pytest.mark.release
def test_a_run_logs_how_rows_are_packed_and_counts_their_tokens(whole):
    folder, stderr = whole
    pairs, rows = logged(r"packing     (\d+) pairs in (\d+) rows", stderr)
    padding = float(logged(r"padding     ([\d.]+)% of the tokens computed", stderr)) / 100
    assert int(pairs) == 120
    assert int(rows) < 60
    lines = metrics(folder)
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert lines[-1]["nll"] < lines[0]["nll"] - 0.3
    epoch = [line for line in lines if line["epoch"] == 0]
    real = sum(line["tokens_per_second"] * line["step_seconds"] for line in epoch)
    computed = sum(line["tokens_per_second_with_padding"] * line["step_seconds"] for line in epoch)
    assert 1 - real / computed == pytest.approx(padding, abs=0.005)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
    assert settings["data"]["packing"] is True


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_same_numbers(command, whole, tmp_path):
    flags = [*command, f"--workdir={tmp_path / 'run'}"]
    with started(*flags) as process:
        wait_for(lambda: len(metrics(tmp_path / "run")) >= 13, process)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert 13 <= len(metrics(tmp_path / "run")) < 60
    run_command("train", f"--workdir={tmp_path / 'run'}")
    assert record(tmp_path / "run", 60) == record(whole[0], 60)
    for split in ("train", "dev"):
        ours, theirs = metrics(tmp_path / "run", split), metrics(whole[0], split)
        assert [line["loss"] for line in ours] == [line["loss"] for line in theirs]
