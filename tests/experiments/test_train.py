"""experiments.train: what it leaves behind, what it reuses, what it refuses."""

import json
import math
import shutil
import struct
from itertools import pairwise

import numpy as np
import pytest
from doors import EVERY, STEPS, letters, metrics, record, setting_flags, text_flags, write_letters


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def tensorboard_steps(folder):
    """Steps of the events, by TensorBoard's framing: length, checksum, protobuf, checksum."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    steps = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content = path.read_bytes()
        while content:
            (size,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + size])
            steps += [event.step for value in event.summary.value if value.tag == "train/loss"]
            content = content[16 + size :]
    return steps


def test_a_run_leaves_settings_vocabulary_tokens_checkpoints_metrics_and_a_score(trained):
    assert {path.name for path in trained.iterdir()} >= {
        *("config.json", "vocabulary.model", "tokens", "checkpoints", "averaged"),
        *("metrics.jsonl", "tensorboard", "results.json"),
    }
    assert {int(path.name) for path in (trained / "checkpoints").iterdir()} == set(
        range(EVERY, STEPS + 1, EVERY)
    )
    settings = json.loads((trained / "config.json").read_text(encoding="utf-8"))["settings"]
    assert settings["training"]["steps"] == STEPS
    assert settings["model"]["d_k"] == 8
    (result,) = json.loads((trained / "results.json").read_text(encoding="utf-8"))
    assert result.items() >= {"metric": "bleu", "split": "test", "checkpoint": "averaged"}.items()
    assert result["steps"] == [STEPS - 2 * EVERY, STEPS - EVERY, STEPS]
    assert "tok:13a" in result["signature"]
    said = (trained.parent / "said").read_text(encoding="utf-8")
    assert f"BLEU {result['score']:.2f}" in said
    assert "devices     1 x cpu" in said
    assert f"python -m experiments.translate --workdir {trained}" in said


def test_metrics_are_nats_per_token_with_perplexity_rate_and_speed(trained):
    lines = metrics(trained)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for line in lines:
        assert line["perplexity"] == pytest.approx(math.exp(line["nll"]))
        step = line["step"]
        formula = 16**-0.5 * min(step**-0.5, step * 60**-1.5)
        assert line["learning_rate"] == pytest.approx(formula, rel=1e-5)
        assert 0 < line["tokens_per_second"] <= line["tokens_per_second_with_padding"]
        assert line["seconds"] >= 0
    # Nothing learned: about log of the vocabulary; later the text's own regularity is in it.
    assert lines[0]["nll"] == pytest.approx(math.log(85), rel=0.3)
    assert lines[-1]["nll"] < lines[0]["nll"] - 0.5
    assert [line["step"] for line in metrics(trained, "dev")] == [120, STEPS]
    assert tensorboard_steps(trained / "tensorboard") == [line["step"] for line in lines]


def test_the_tokens_are_those_of_the_text(trained, text):
    from jax_transformer.batching import open_store
    from jax_transformer.vocabulary import Vocabulary

    store = open_store(trained / "tokens" / "train")
    vocabulary = Vocabulary.load(trained / "vocabulary.model")
    lines = (text / "train.de").read_text(encoding="utf-8").splitlines()
    assert len(store) == len(lines)
    ends = store.offsets["target"]
    decoded = vocabulary.decode_batch(
        [store.tokens["target"][a : b - 1].tolist() for a, b in pairwise(ends)]
    )
    assert decoded == lines


def test_a_moved_run_whose_text_is_gone_goes_on_with_its_folder_alone(doors, tmp_path):
    write_letters(tmp_path / "text")
    few = setting_flags(training__steps=2, training__checkpoint_steps=2)
    started = ["--experiment=base", "--seed=5", *text_flags(tmp_path / "text"), *few]
    doors.run("train", f"--workdir={tmp_path / 'first'}", *started)
    shutil.rmtree(tmp_path / "text")
    moved = (tmp_path / "first").rename(tmp_path / "moved")
    before = files_of(moved / "tokens")
    again = doors.run("train", f"--workdir={moved}", "--set=training.steps=4")
    assert "from step 2 to 4" in again.stdout
    assert "encoding" not in again.stdout
    assert files_of(moved / "tokens") == before
    assert [line["step"] for line in metrics(moved)] == [1, 2, 3, 4]
    assert record(moved, 4)["position"]["index"] == 4
    config = json.loads((moved / "config.json").read_text(encoding="utf-8"))
    assert (config["seed"], config["settings"]["training"]["steps"]) == (5, 4)
    sources, references = letters(3, seed=9)
    answer = doors.run("translate", f"--workdir={moved}", stdin="\n".join(sources).encode())
    assert len(references) == answer.stdout.count("\n")


def test_eight_devices_share_a_batch_and_one_device_goes_on(doors, flags, tmp_path):
    workdir = f"--workdir={tmp_path / 'run'}"
    eight = doors.run("train", workdir, *flags, "--set=training.steps=3", devices=8)
    assert "8 x cpu" in eight.stdout
    assert eight.stderr.count("\n") == 1  # fewer checkpoints than are to be averaged
    one = doors.run("train", workdir, "--set=training.steps=5")
    assert "1 x cpu" in one.stdout
    assert "devices     were 8 before" in one.stdout
    assert [line["step"] for line in metrics(tmp_path / "run")] == [1, 2, 3, 4, 5]


def test_other_settings_than_the_folders_are_refused_with_a_list(doors, flags, trained):
    before = files_of(trained)
    other = ["--set=model.d_ff=32", "--set=training.warmup_steps=7", "--set=training.steps=500"]
    refused = doors.run("train", f"--workdir={trained}", *flags, *other, "--seed=2", fails=2)
    assert "seed: 2 instead of 1" in refused.stderr
    assert "model.d_ff: 32 instead of 16" in refused.stderr
    assert "training.warmup_steps: 7 instead of 60" in refused.stderr
    assert "training.steps" not in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert files_of(trained) == before


@pytest.mark.parametrize(("scale", "found"), [("1e30", "found loss"), ("1e300", "found param")])
def test_what_is_not_finite_stops_the_run_before_a_checkpoint(doors, text, tmp_path, scale, found):
    from experiments.restore import abstract_params, build_model
    from jax_transformer.checkpoints import restore_params
    from jax_transformer.run_folder import RunFolder
    from jax_transformer.vocabulary import Vocabulary

    workdir = tmp_path / "run"
    absurd = setting_flags(training__learning_rate_scale=scale, training__checkpoint_steps=1)
    stopped = doors.run(
        "train", f"--workdir={workdir}", "--experiment=base", *text_flags(text), *absurd, fails=2
    )
    assert stopped.stderr.count("\n") == 1
    assert found in stopped.stderr
    steps = sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())
    assert f"error: step {len(steps) + 1}: expected finite" in stopped.stderr
    good = f"last good checkpoint is {steps[-1] if steps else 'none'}"
    assert good in stopped.stderr
    lines = stopped.stderr.split("of lines ")[1].split(";")[0].split(", ")
    assert {int(line) for line in lines} <= set(range(1, 121))
    model = build_model(
        RunFolder(workdir).need_run(), Vocabulary.load(workdir / "vocabulary.model")
    )
    for step in steps:
        _, params = restore_params(workdir / "checkpoints", abstract_params(model), step)
        for layer in params.values():
            flat = np.concatenate([np.ravel(leaf) for leaf in _leaves(layer)])
            assert np.isfinite(flat).all()
    for line in (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def _leaves(tree):
    return [leaf for part in tree.values() for leaf in _leaves(part)] if _is(tree) else [tree]


def _is(tree):
    return isinstance(tree, dict)
