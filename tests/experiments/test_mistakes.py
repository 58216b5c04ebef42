"""Each mistake: one line that says what to mend, exit status 2, no traceback, nothing changed."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doors import EVERY, ROOT, STEPS, record, setting_flags, text_flags, write_letters


def files_of(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def complaint(doors, *command):
    """The only line on standard error of a command that fails as it should."""
    return only_line(doors.run(*command, fails=2).stderr)


def only_line(said):
    assert said.startswith("error: ")
    assert said.endswith("\n")
    assert said.count("\n") == 1, said
    return said


def flip(folder):
    """Change one bit in the middle of each file that holds a checkpoint's parameters."""
    for path in (folder / "params").rglob("d/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)


@pytest.mark.parametrize(
    "door", ["train", "prepare", "evaluate", "translate", "score", "average", "export"]
)
def test_help_explains_every_flag_of_a_door(doors, door):
    from jax_transformer.config import Config, settings

    said = doors.run(door, "--help").stdout
    own = {
        "train": ["experiment", "seed", "set", "train_source", "test_target"],
        "prepare": ["experiment", "dataset", "data_dir", "set", "train_source"],
        "evaluate": [
            *("split", "source", "reference", "test_set", "language_pair"),
            *("checkpoint", "beam_size", "alpha", "patience", "bootstrap"),
        ],
        "score": ["checkpoint", "source", "target", "n_best", "batch_tokens", "window"],
        "translate": [
            *("checkpoint", "beam_size", "alpha", "patience", "n_best", "scores", "batch_tokens")
        ],
        "average": ["last"],
        "export": ["checkpoint", "format", "out", "quantization"],
    }
    for flag in ["workdir", *own[door]]:
        (line,) = [line for line in said.splitlines() if line.startswith(f"  --{flag}:")]
        assert len(line.split(":", 1)[1].split()) > 2, line
    if door in ("train", "prepare"):
        for name, value, part in settings(Config()):
            meaning = part.metadata["meaning"]
            assert f" {name}={value}: {meaning} " in " ".join(said.split()) + " "


MISTAKEN_FLAGS = {
    "a flag's name": (["train", "--wrkdir=x"], "Did you mean: workdir"),
    "an experiment's name": (["train", "--experiment=demmo"], "did you mean demo?"),
    "a setting's name": (["train", "--set=model.d_modle=8"], "did you mean model.d_model?"),
    "a setting without section": (["train", "--set=d_model=8"], "did you mean model.d_model?"),
    "a setting's type": (["train", "--set=model.d_ff=many"], "expected a whole number, found"),
    "a setting's range": (["train", "--set=model.dropout_rate=1.5"], "at least 0 and below 1"),
    "a setting's choice": (["train", "--set=model.positions=learnt"], "did you mean learned?"),
    "a flag's type": (["train", "--seed=one"], "--seed=one: expected a whole number, found 'one'"),
    "a flag's number": (["translate", "--alpha=one"], "expected a number, found 'one'"),
    "a file for a folder": (
        ["train", "--experiment=wmt14-en-de-base", f"--data_dir={__file__}"],
        f"--data_dir={__file__}: expected a folder, found a file",
    ),
    "a file for a run": (
        ["translate", f"--workdir={__file__}"],
        "found a file; give the --workdir",
    ),
    "a seed's range": (["train", f"--seed={2**32}"], f"--seed={2**32}"),
    "a flag's range": (["average", "--last=0", "--workdir=x"], "--last=0"),
    "more than flags": (["train", "demo"], "expected only flags, found 'demo'"),
    "no text": (["train", "--experiment=base"], "give --train_source, --train_target"),
    "trees beside text": (
        ["train", *text_flags(Path("x")), "--experiment=treebank", "--treebank_dir=y"],
        "--treebank_dir: expected trees or text, found --train_source too",
    ),
    "text that can be read once": (
        ["train", *text_flags(Path("x")), "--train_source=/dev/null"],
        "--train_source: expected a file, found a pipe or a device, /dev/null; text is read",
    ),
    "a text too few": (["train", "--train_source=a"], "expected also --train_target"),
    "no folder given": (["translate"], "--workdir: expected"),
    "a folder that is not there": (["evaluate", "--workdir=/nowhere"], "found no such folder"),
}


def test_a_mistake_in_the_flags_is_one_line(doors, tmp_path):
    commands = {
        name: [*command, *[f"--workdir={tmp_path / 'run'}"] * (command[0] == "train")]
        for name, (command, _) in MISTAKEN_FLAGS.items()
    }
    for name, done in doors.run_all(commands, fails=2).items():
        assert MISTAKEN_FLAGS[name][1] in only_line(done.stderr)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def trees(tmp_path):
    """A file of three trees."""
    path = tmp_path / "trees"
    path.write_text("(S (NN a))\n" * 3, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("shell", "code", "out", "error"),
    [
        ("{evalb} >&-", 2, "", "error: expected a standard output to write to, found it closed"),
        ("{evalb} 2>&-", 0, "Number of sentence", ""),
        ("{evalb} <&-", 0, "Number of sentence", ""),
        ("{evalb} > /dev/full", 2, "", "error: standard output: No space left on device; free"),
        ("{train} --help > /dev/full", 2, "", "error: standard output: No space left on device"),
        ("PYTHONIOENCODING=ascii {paper} --table=2", 0, "§", ""),
    ],
)
def test_streams_that_are_closed_full_or_of_another_encoding(trees, shell, code, out, error):
    doors = {name: f"{sys.executable} -m experiments.{name}" for name in ("train", "paper")}
    evalb = f"{sys.executable} -m experiments.evalb {trees} {trees}"
    command = ["sh", "-c", shell.format(evalb=evalb, **doors)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == code
    assert out in done.stdout.decode("utf-8")
    said = done.stderr.decode("utf-8")
    assert said.startswith(error)
    assert said.count("\n") == bool(error), said


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("MemoryError('Unable to allocate 7 TiB')", "error: memory ran out: Unable to allocate"),
        (
            "type('JaxRuntimeError', (Exception,), {})('RESOURCE_EXHAUSTED: no 9 bytes\\nmore')",
            "error: memory ran out: RESOURCE_EXHAUSTED: no 9 bytes; in training lower",
        ),
        ("ValueError('a fault of ours')", "Traceback"),
    ],
)
def test_memory_that_runs_out_is_one_line_and_our_own_faults_are_not_hidden(raised, said):
    program = (
        "from experiments.cli import open_door\n"
        f"def main():\n    raise {raised}\n"
        "open_door(lambda: None, main, '')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.startswith(said)
    assert (done.stderr.count("\n") == 1) == (said != "Traceback")


def test_ctrl_c_in_a_callback_of_the_garbage_collector_is_not_lost():
    program = (
        "import gc, time\n"
        "from experiments.cli import open_door\n"
        "def interrupted(*_):\n    gc.callbacks.clear()\n    raise KeyboardInterrupt\n"
        "def main():\n"
        "    gc.callbacks.append(interrupted)\n    gc.collect()\n    time.sleep(3600)\n"
        "open_door(lambda: None, main, '')\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("first", ["-m", "a notebook"])
def test_ctrl_c_while_a_door_is_loading_is_one_line(first):
    program = (
        f"import os, signal, sys\nsys.argv[0] = {first!r}\nimport experiments\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    if first == "-m":
        assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
    else:  # there Ctrl-C stays what it is
        assert "KeyboardInterrupt" in done.stderr


def test_fewer_steps_than_are_trained_are_refused_and_change_nothing(doors, trained):
    before = files_of(trained)
    said = complaint(doors, "train", f"--workdir={trained}", "--set=training.steps=3")
    assert f"training.steps=3: expected at least {STEPS}, for so many are trained" in said
    assert files_of(trained) == before


@pytest.mark.parametrize("content", ["null", '{"a": 1}', "[1]", "["])
def test_scores_that_are_no_list_are_found_before_anything_is_decoded(content, trained):
    from jax_transformer.errors import InputError
    from jax_transformer.runs.run_dir import RunFolder

    folder = RunFolder(trained)
    kept = folder.results.read_bytes() if folder.results.exists() else b"[]"
    folder.results.write_text(content, encoding="utf-8")
    try:
        with pytest.raises(InputError, match=r"results\.json: expected a JSON list of objects"):
            folder.append_results([{"a": 2}])
        assert folder.results.read_text(encoding="utf-8") == content
    finally:
        folder.results.write_bytes(kept)


def test_a_wrong_value_in_a_run_s_settings_is_told_with_the_file_s_name(tmp_path):
    from jax_transformer.errors import InputError
    from jax_transformer.runs.run_dir import RunFolder

    folder = RunFolder(tmp_path)
    run = {"experiment": "demo", "seed": 1, "files": {}}
    for settings in ([], {"model": {"d_model": "wide"}}):
        folder.config.write_text(json.dumps({**run, "settings": settings}), encoding="utf-8")
        with pytest.raises(InputError, match=f"^{folder.config}: "):
            folder.need_run()


def test_a_folder_that_cannot_be_written_is_one_line(doors, flags, tmp_path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for workdir in (tmp_path / "file", tmp_path / "file" / "run", "/proc/run"):
        said = complaint(doors, "train", f"--workdir={workdir}", *flags)
        assert f"{workdir}: expected a folder" in said
        assert "choose another --workdir" in said
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_a_folder_without_a_model_is_one_line_and_stays_as_it_is(doors, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = files_of(tmp_path)
    for door in ("evaluate", "translate", "average"):
        said = complaint(doors, door, f"--workdir={tmp_path / 'run'}")
        assert "checkpoint" in said
        assert "experiments.train --workdir" in said
    assert "config.json" in complaint(doors, "translate", f"--workdir={tmp_path}")
    assert files_of(tmp_path) == before


BAD_TEXTS = {
    "different lengths": ("train.de", b"A B C\n" * 119, "found 120 in"),
    "missing": ("dev.en", None, "found nothing; check the path"),
    "empty": ("train.en", b"", "found an empty file"),
    "not UTF-8": ("train.en", b"a b c\n" * 6 + b"caf\xe9\n" + b"a b c\n" * 113, "line 7: expected"),
    "not gzip": ("train.en.gz", b"a b c\n" * 120, "damaged or cut short"),
    "blank lines": ("train.en", b"\n" * 120, "120 with a blank side"),
}


def test_a_mistake_in_the_text_is_one_line_with_its_place(doors, tmp_path):
    commands, paths = {}, {}
    for mistake, (name, content, _) in BAD_TEXTS.items():
        folder = tmp_path / mistake.replace(" ", "-")
        write_letters(folder)
        paths[mistake] = path = folder / name
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        packed = [f"--train_source={path}"] * name.endswith(".gz")
        settings = setting_flags(data__vocabulary_up_to="true")
        workdir = f"--workdir={folder / 'run'}"
        own = [*text_flags(folder), *packed]
        commands[mistake] = ["train", workdir, "--experiment=base", *own, *settings]
    for mistake, done in doors.run_all(commands, fails=2).items():
        said = only_line(done.stderr)
        assert BAD_TEXTS[mistake][2] in said
        assert str(paths[mistake]) in said or mistake == "blank lines"
    there = {path.name for path in tmp_path.rglob("*")}
    assert not there & {"checkpoints", "train.building"}


def test_a_vocabulary_too_large_says_the_largest_and_that_one_is_accepted(tmp_path, doors, text):
    flags = [f"--workdir={tmp_path / 'run'}", "--experiment=base", *text_flags(text)]
    said = complaint(doors, "train", *flags, *setting_flags(data__vocabulary_size=5000))
    largest = int(said.split("at most ")[1].split(";")[0])
    from jax_transformer.data.text import read_lines
    from jax_transformer.data.vocabulary import train_vocabulary

    lines = [*read_lines(text / "train.en"), *read_lines(text / "train.de")]
    assert train_vocabulary(lines, largest, tmp_path / "model").size == largest
    assert f"--set data.vocabulary_size={largest}" in said


def test_a_damaged_checkpoint_gives_way_to_the_one_before(doors, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    flip(run / "checkpoints" / str(STEPS))
    before = files_of(run)
    asked = complaint(doors, "evaluate", f"--workdir={run}", f"--checkpoint={STEPS}")
    assert f"checkpoints/{STEPS}, found it damaged" in asked
    assert files_of(run) == before
    done = doors.run("train", f"--workdir={run}")
    assert f"from step {STEPS - EVERY} to {STEPS}" in done.stdout
    said = done.stderr.splitlines()
    assert len(said) == 2
    assert f"{STEPS} is damaged" in said[0]
    assert f"kept as {STEPS}.corrupt" in said[1]
    assert record(run, STEPS) == record(trained, STEPS)


def test_nothing_but_damaged_checkpoints_is_one_line(doors, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    for folder in (run / "checkpoints").iterdir():
        for path in (folder / "params").rglob("*"):
            if path.is_file():
                os.truncate(path, path.stat().st_size // 2)
    before = files_of(run)
    for command in (["train"], ["translate", "--checkpoint=last"], ["average"]):
        assert "all damaged" in complaint(doors, *command, f"--workdir={run}")
    assert files_of(run) == before


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many kilobytes."""
    mounted = []

    def mount(kilobytes):
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"a small disk cannot be mounted here: {error}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_disk_too_small_for_the_tokens_or_a_checkpoint_is_one_line(doors, flags, small_disk):
    for kilobytes in (24, 500):
        disk = small_disk(kilobytes)
        said = complaint(doors, "train", f"--workdir={disk / 'run'}", *flags)
        assert str(disk) in said
        assert "space" in said
        assert not list(disk.rglob("*tmp*"))


def test_a_disk_that_is_full_when_a_run_goes_on_changes_nothing(doors, trained, small_disk):
    disk = small_disk(8000)
    shutil.copytree(trained, disk / "run")
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    before = files_of(disk / "run")
    said = complaint(doors, "train", f"--workdir={disk / 'run'}", "--set=training.steps=300")
    assert "space" in said
    assert files_of(disk / "run") == before
    (disk / "filler").unlink()
    doors.run("train", f"--workdir={disk / 'run'}")
