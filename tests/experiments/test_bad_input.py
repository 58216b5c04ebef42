"""Bad input to the commands: one line that names it, exit status 2, nothing changed or written."""

import errno
import json
import logging
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from absl import logging as absl_logging
from commands import STEPS, files_of, only_error, process_arguments, run_command, text_flags
from letters import letters
from small_run import write_run

from experiments import cli
from jax_transformer.errors import InputError, damage_named
from jax_transformer.files import whole_file

ODD = "\x1b]0;owned\x07\x9b31m\x7f"  # sets the title of a window, then red letters
SHOWN = r"\x1b]0;owned\x07\x9b31m\x7f"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ABSENT = " ".join(text_flags(Path("absent")))
TREES = "--train_trees=a --dev_trees=c"

# A command -> words that its line contains. Without --workdir the command gets {new}, a run folder
# that does not exist, or {run}, one with random parameters. The other places are those of `places`.
ROWS = {
    # Flags.
    "train demo": "only flags 'demo'",
    "train --seed=one": "--seed=one",
    "train --seed=4294967296": "--seed=4294967296",
    "train --seed=\u0661\u0662": "--seed=\u0661\u0662",
    "train --seed=1 --seed=1": "--seed 2 times",
    "evaluate --source=a --source b": "--source 2 times",
    "translate --scores --noscores": "--scores 2 times",
    "translate --workdir=~nobody-here/run": "--workdir=~nobody-here/run ./~nobody-here/run",
    "train --d_ff=1": "--d_ff --set=model.d_ff=VALUE?",
    "train --experiment=demmo": "demmo demo?",
    "train --set=training.lr=1": "training.lr training.learning_rate?",
    "train --profile_steps=9": "9 FIRST:LAST",
    "train --profile_steps=1:9 --set=training.steps=8": "1:9 8,",
    "train --process_id=1 {text}": "--process_id --coordinator_address",
    # Options of the search.
    "translate --set=model.d_ff=8": "model.d_ff=8: decoding",
    "translate --n_best=9": "--n_best=9: beam",
    "translate --mbr=chrf --n_best=2": "--n_best --mbr",
    "translate --mbr=bleu --set=decoding.beam_size=1": "beam 8",
    "translate --workdir={parser} --mbr=chrf": "--mbr parser",
    "translate --split_sentences --n_best=2": "--n_best --split_sentences",
    "translate --workdir={parser} --split_sentences": "--split_sentences parser",
    "translate --alignment_head=0": "--alignment_head=0 --alignments,",
    "translate --alignments --alignment_layer=1": "--alignment_layer=1 1 0",
    "translate --alignments --alignment_head=2": "--alignment_head=2 2 0",
    "translate --workdir={parser} --samples=2": "--samples parser",
    "translate --samples=2 --n_best=2": "--samples --n_best",
    "translate --temperature=0.5": "--temperature=0.5 --samples,",
    "translate --samples=1 --temperature=1e-40": "temperature 1e-40",
    "translate --ensemble_weights=1,2": "--ensemble_weights --ensemble",
    "translate --ensemble={run} --ensemble_weights=1,x": "'x'; numbers,",
    "translate --ensemble={run} --ensemble_weights=1": "weights: 2 numbers",
    "translate --prefixes={dir}/words": "words line blank",
    "translate --checkpoint=best": "training.keep_best=none",
    "translate --checkpoint=avereged": "avereged averaged?",
    "translate --checkpoint=\u0662\u0664\u0660": "\u0662\u0664\u0660 averaged, step",
    # Vocabularies.
    "train --source_vocabulary={dir}/blank": "--vocabulary --target_vocabulary",
    "train --vocabulary={dir}/blank": "{dir}/blank: sentencepiece",
    "train --vocabulary={dir}/absent": "{dir}/absent, No such file",
    "train --experiment=demo-parsing --set=data.vocabularies=separate": "separate translation",
    # Text and trees to train on.
    "train --experiment=base": "base: --train_source, --train_target",
    "train --experiment=wsj": "--train_trees, --treebank_dir, none",
    "train --train_source=a": "demo: --train_target, --dev_source",
    f"train {ABSENT} --experiment=treebank --treebank_dir=y": "--train_source: trees text",
    "train --experiment=base --train_trees=a": "--train_trees: text base",
    "train --experiment=wsj-semi --treebank_dir=x": "wsj-semi: --extra_trees",
    "train --experiment=wsj --train_trees=a --treebank_dir=x": "--train_trees --treebank_dir",
    "train --experiment=demo --set=data.task=parsing": "data.task=parsing translation",
    f"train {ABSENT} --train_source=b": "--train_target --train_source, 1 2",
    f"train --experiment=treebank {TREES} --train_trees=b --extra_trees=d "
    "--set=data.train_weights=1,1,1": "data.train_weights=1,1,1: 3 2",
    "train --data_dir={dir}": "demo other data;",
    "train --experiment=wmt14-en-de-base --data_dir={dir}/blank": "blank: folder, file",
    "train --data_dir=gs://box/x": "--data_dir=gs://box/x: path",
    "train {dev} --train_source={dir}/latin --train_target={dir}/words": "{dir}/latin, line 2:",
    "train {dev} --train_source={dir}/words.gz --train_target={dir}/words": "words.gz, damaged",
    "train {dev} --train_source={dir}/blank --train_target={dir}/words "
    "--set=data.vocabulary_up_to=true": "2 blank side",
    "train {dev} --train_source={fifo} --train_target={dir}/words": "{fifo}: file, pipe",
    "train --experiment=treebank --train_trees=/dev/null --dev_trees={dir}/tree": "/dev/null:",
    "clean --source={dir}/words --target={dir}/golds --output_source={dir}/words "
    "--output_target={new}": "--output_source",
    "clean --source={dir}/words --target={dir}/golds --output_source={new} "
    "--output_target={new}2 --max_ratio=nan": "--max_ratio nan",
    "clean --source={dir}/words --target={dir}/tree --output_source={new} --output_target={new}2": (
        "2 1 {dir}/tree"
    ),
    "train --workdir={text_run} --train_source=a --train_target=b": "--dev_source, leave",
    # A model to continue from.
    "train --init_from={run} {text} --set=model.d_model=32": "model.d_model=32 16",
    "train --init_from={run} {text} --set=training.freeze=encodr": "encodr encoder?",
    "train --init_from={run} {text} --vocabulary={dir}/blank": "--vocabulary: --init_from",
    "train --init_from=/dev/null {text}": "/dev/null: pipe",
    "train --init_from={run} {text} --init_checkpoint=7": "{run}: checkpoint 7, averaged",
    "prepare --init_from={run} {text} --init_checkpoint=bets": "{run}: checkpoint bets,",
    "translate --workdir={run} --samples=2 --set=decoding.beam_size=8": "--samples",
    "train --init_from= {text}": "--init_from=: leave",
    "train --workdir= {text}": "--workdir=: leave",
    "train --experiment= {text}": "--experiment=: leave",
    "serve --token_file=": "--token_file=: leave",
    "translate --prefixes=": "--prefixes=: leave",
    "train --init_from=Helsinki-NLP/opus-mt-en-de {text}": "opus-mt-en-de import_model",
    "train --experiment=base {text} --set=training.keep_best=blue": "blue bleu?",
    "train --experiment=base {text} --set=training.stop_after=2": "training.stop_after=2",
    # Texts to score.
    "evaluate --split=dev --test_set=wmt14": "--split --test_set;",
    "evaluate --test_set=wmt14/all": "wmt14/all wmt14/full?",
    "evaluate --test_set=wmt14 --set=data.target_language=it": "en-it; --set",
    "evaluate --source={dir}/blank --reference={dir}/blank": "blank: blank lines none",
    "evaluate --source={dir}/words --reference={dir}/latin": "{dir}/latin, line 2:",
    "evaluate --workdir={parser} --test_set=wmt14": "--test_set parses",
    "evaluate --workdir={parser} --source={dir}/words": "--source parses;",
    "evaluate --workdir={parser} --reference={dir}/golds": "{dir}/golds, line 2, column 9:",
    "score": "--source translated,",
    "score --workdir={parser} --source={dir}/words": "parses",
    "score --source={dir}/words --target=/dev/null": "/dev/null: file, device",
    "score --source={dir}/words --target={dir}/scored": "{dir}/scored, line 1: --token_scores",
    "score --source={dir}/words --target={dir}/aligned": "{dir}/aligned, line 1: --alignments",
    "evalb {dir}/words {dir}/words --param=/dev/null": "/dev/null: file, device",
    "evalb a b c": "GOLD TEST",
    "evalb {dir}/golds {dir}/tree": "{dir}/tree: {dir}/golds, 2",
    "paper --runs={dir}/nowhere": "{dir}/nowhere: sub-folders",
    "table3 --workdir=gs://bucket/table3": "gs://bucket/table3: address folder",
    "table3 --set=training.average_last=3": "training.average_last last",
    "table3 --set=training.keep_best=loss": "training.keep_best=loss last",
    "table3 --set=data.task=parsing": "data.task=parsing translation",
    "table3 --set=model.num_layers=2": "model.num_layers=2 miniature-C-N2 --row",
    "table3 --flagfile=": "--flagfile=: file leave",
    "table3 --train_source=a": "--train_target, --dev_source, --dev_target,",
    # Exports, pages and servers.
    "export --output={dir} --format=marian": "{dir}: folder with something",
    "export --output=s3://box/x --format=marian": "s3://box/x: address;",
    "export --output={new} --format=marian --quantization=int8": "int8 --format=ctranslate2",
    "export --workdir={parser} --output={new} --format=marian": "data.task=parsing:",
    "import_model --format=mary --input={dir}": "--format mary",
    "import_model --format=marian --input={dir}/words": "words: folder, file",
    "import_model --format=marian --input={dir}/absent": "absent: folder, nothing hf://OWNER/NAME",
    "import_model --input={dir}": "{dir}: one format, none; --format, ctranslate2, marian-npz",
    "import_model --input=hf://opus-mt-en-de": "hf://opus-mt-en-de: hf://OWNER/NAME@REVISION,",
    "import_model --input={dir} --workdir={run}": "{run}: new folder,",
    "visualize --text=abcdefghijkl": "--text: 1 11 12;",
    "visualize --live --text=a": "--text --live;",
    "visualize --live --output={dir}/words": "{dir}/words: new file,",
    "visualize --text=a --output={dir}/words": "{dir}/words: new file,",
    "visualize --text=a --output=s3://box/x": "s3://box/x: address",
    "serve --port=70000": "--port 70000",
    "serve --port=0 --host=8.8.8.8": "8.8.8.8 free address",
    "serve --host=a..b": "--host=a..b",
    "serve --token_file={dir}/bytes": "--token_file ASCII",
    "serve --origin=http://a/b": "--origin=http://a/b",
    "serve --max_seconds=nan": "--max_seconds=nan",
    # Run folders.
    "translate --workdir=": "--workdir=: leave",
    "evaluate --workdir=/nowhere": "/nowhere no such folder",
    "translate --workdir={dir}": "{dir}: config.json",
    "translate --workdir={parser}": "experiments.train {parser}",
    "translate --workdir=nowhere://bucket/run": "nowhere://bucket/run",
    "train --workdir={dir}/blank": "{dir}/blank/manifest.sha256: folder,",
    "train --workdir={dir}/[code]/run": "{dir}/[code]/run: path",
    "train --workdir={run} --init_from={parser}": "{parser}, another run",
    # Control characters in names.
    f"train --{ODD}=1": f"--{SHOWN}:",
    f"train --seed={ODD}": SHOWN,
    f"translate --workdir={ODD}": SHOWN,
    f"evalb {ODD} {ODD}": SHOWN,
    "translate --workdir={changed}": SHOWN,
}
# What is found after the text was encoded, which may have taken hours and stays.
LATE = ("training.freeze=",)
OF_NEW = {"train", "prepare", "table3", "import_model"}
OF_RUN = {"translate", "evaluate", "score", "export", "visualize", "serve"}


@pytest.fixture(autouse=True)
def _no_hanging():
    """Stop a command that opens a pipe without a writer, which would wait forever."""

    def stop(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def places(text, tmp_path_factory):
    """Folders, files and flags by the names that ROWS has for them."""
    from jax_transformer.data.sources import Sources, Trees
    from jax_transformer.presets import find_experiment
    from jax_transformer.runs.request import requested_run
    from jax_transformer.runs.run_dir import Run, RunFolder

    folder = tmp_path_factory.mktemp("bad")
    run = write_run(folder / "run", f"training.steps={STEPS}", lines=letters(60, 0)[0])
    files = {
        "blank": b"\n \n",
        "words": b"the cat\n" * 2,
        "words.gz": b"the cat\n",
        "aligned": b"the cat\t0-0 1-1\nthe cat\t0-0\n",
        "scored": b"-1.000000\tthe cat\tthe -0.500000 cat -0.500000\n" * 2,
        "latin": b"the cat\ncaf\xe9\n",
        "bytes": b"\xff\xfe\n",
        "tree": b"(NP (NN cat))\n",
        "golds": b"(NP (DT the) (NN cat))\n(NP (DT the\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "fifo")
    config = find_experiment("treebank").config()
    parser = Run("treebank", 1, config, sources=Sources((Trees(("x",)),)), corpus="treebank")
    RunFolder(folder / "treebank-run").write_run(parser)
    sides = ("train_source", "train_target", "dev_source", "dev_target")
    named = RunFolder(folder / "text-run")
    named.write_run(requested_run(named, "base", given=dict.fromkeys(sides, "x")))
    (folder / "changed").mkdir()
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    config["config"]["model"][ODD] = 1
    (folder / "changed" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return {
        "run": run,
        "dir": folder,
        "new": folder / "new",
        "fifo": folder / "fifo",
        "changed": folder / "changed",
        "parser": folder / "treebank-run",
        "text_run": folder / "text-run",
        "text": " ".join(text_flags(text)),
        "dev": f"--experiment=base --dev_source={folder}/words --dev_target={folder}/words",
    }


@pytest.mark.parametrize("row", ROWS)
def test_bad_input_is_named_in_one_line_and_changes_nothing(row, places):
    command, *arguments = row.format(**places).split(" ")
    if command == "serve":
        pytest.importorskip("fastapi", reason="serves: pip install -e '.[serve]'")
    if command in OF_NEW | OF_RUN and "--workdir" not in row:
        arguments.append(f"--workdir={places['new' if command in OF_NEW else 'run']}")
    before = contents(places["dir"])
    error = only_error(command, *arguments, stdin=b"a b\n\nc\n")
    assert all(word in error for word in ROWS[row].format(**places).split()), error
    assert not CONTROLS.search(error)
    if any(flag in row for flag in LATE):
        assert (places["new"] / "tokens" / "train").exists()
        shutil.rmtree(places["new"])
    assert contents(places["dir"]) == before


def test_a_run_that_begins_from_another_is_given_its_own_folder(run):
    assert "--init_from requires --workdir" in only_error("train", f"--init_from={run}")


def contents(folder: Path) -> tuple[dict[Path, bytes], set[Path]]:
    return files_of(folder), {*folder.rglob("*")}


@pytest.mark.parametrize("name", ["config.json", "averaged"])
def test_a_pipe_in_a_run_folder_is_refused(name, places, tmp_path):
    run = shutil.copytree(places["run"], tmp_path / "run")
    (path,) = (run / name).glob("*/description/metadata") if name == "averaged" else [run / name]
    path.unlink()
    os.mkfifo(path)
    error = only_error("translate", f"--workdir={run}")
    assert f"{path}: expected a file, found a pipe" in error


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SLURM_NTASKS", "2", "SLURM_NTASKS=2 --distributed=auto"),
        ("OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_SIZE=2 --distributed=auto"),
        ("SLURM_NTASKS", "\u0662", "SLURM_NTASKS=\u0662: --distributed=none"),
    ],
    ids=["Slurm", "MPI", "script"],
)
def test_one_of_several_processes_does_not_train_alone(name, value, words, places, monkeypatch):
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    error = only_error("train", f"--workdir={places['new']}", *places["text"].split())
    assert all(word in error for word in words.split()), error
    assert not places["new"].exists()


def test_one_host_of_a_tpu_slice_does_not_train_alone(places, monkeypatch):
    """The TPU's library joins them, without JAX's service that ends them together."""
    monkeypatch.setattr("jax_transformer.parallel.this_process", lambda: (1, 4))
    error = only_error("train", f"--workdir={places['new']}", *places["text"].split())
    assert "found 4 that share these devices" in error
    assert not places["new"].exists()


def test_an_output_that_cannot_be_written_is_one_line(places):
    options = process_arguments(*"evalb {dir}/tree {dir}/tree".format(**places).split())
    with open("/dev/full", "w") as full:
        done = subprocess.run(**options, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output: No space left")
    assert done.stderr.count("\n") == 1


@pytest.mark.release
def test_a_device_that_is_not_here_is_one_line(places):
    options = process_arguments("translate", f"--workdir={places['run']}")
    options["env"]["JAX_PLATFORMS"] = "cuda"
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True}
    done = subprocess.run(**options, **streams, text=True, check=False)
    if done.returncode == 0:
        pytest.skip("the device is here")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "JAX_PLATFORMS=cuda" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no 9 bytes\nmore"),
            2,
            "memory ran out: RESOURCE_EXHAUSTED: no 9 bytes; in training lower",
        ),
        (PermissionError(13, "Permission denied", "/a\nb"), 2, "/a b: Permission denied; give a"),
        (KeyboardInterrupt(), 128 + signal.SIGINT, "interrupted"),
        (BrokenPipeError(), 128 + signal.SIGPIPE, None),
    ],
)
def test_what_a_program_meets_is_one_line_and_an_exit_status(caplog, raised, code, line):
    caplog.set_level(logging.INFO, "experiments")

    @cli.command
    def main():
        raise raised

    assert main(["command"]) == code
    assert [message[: len(line or "")] for message in caplog.messages] == [line] * bool(line)


@pytest.mark.parametrize(
    ("command", "flag", "meant"),
    [
        ("translate", "--batch_size=16", "--set=decoding.batch_tokens=VALUE"),
        ("train", "--batch_size=16", "--set=training.batch_tokens=VALUE"),
        ("train", "--length_penalty=length", "--set=decoding.length_penalty=VALUE"),
        ("average", "--average_last=3", None),  # it takes no settings
        ("translate", "--d_model=100", None),  # which cannot change any more
        ("translate", "--max_length=100", "--set=decoding.max_extra_length=VALUE"),
    ],
)
def test_a_setting_is_suggested_where_it_can_be_given(command, flag, meant, tmp_path):
    error = only_error(command, f"--workdir={tmp_path}", flag)
    assert error.endswith(f"did you mean {meant}?") if meant else "--set" not in error


def test_no_level_of_log_lines_is_one_line(tmp_path):
    assert "loud" in only_error("average", f"--workdir={tmp_path}", "--stderrthreshold=loud")


def test_a_full_disk_is_not_a_damaged_file(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space"), damage_named(tmp_path, "a whole zip"):
        raise full
    with pytest.raises(OSError, match="too long") as caught, whole_file(tmp_path / ("a" * 250)):
        pass
    assert caught.value.filename == str(tmp_path / ("a" * 250))  # not the unfinished file


def test_a_bug_is_shown_without_starting_the_devices(monkeypatch):
    @cli.command
    def main():
        raise KeyError("a bug")

    monkeypatch.setattr(cli, "show_log_lines", lambda: None)
    monkeypatch.setattr("jax_transformer.parallel.check_devices", lambda: pytest.fail("started"))
    with pytest.raises(KeyError):
        main(["main"])


@pytest.mark.parametrize(
    ("message", "shown"),
    [("Task exception was never retrieved", False), ("Fatal error on transport", True)],
)
def test_faults_of_a_server_s_connections_are_logged_unlike_what_orbax_raises_again(message, shown):
    cli.show_log_lines()
    handler = absl_logging.get_absl_handler()
    try:
        found = (OSError, OSError(), None)
        record = logging.LogRecord("asyncio", logging.ERROR, "a.py", 1, message, None, found)
        assert bool(handler.python_handler.filter(record)) == shown
    finally:
        logging.root.removeHandler(handler)


def test_closed_streams_and_arguments_of_another_encoding(monkeypatch, capsys, caplog):
    @cli.command
    def main():
        pass

    monkeypatch.setattr(sys, "argv", ["command", "--train_source=caf\udce9.en"])
    assert main(["command"]) == 2
    assert "found '--train_source=caf\\udce9.en'" in caplog.messages[0]
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit, match="2"):
        cli.parse_flags(["command", "--verbossity=1"])
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input to read from, found it closed"):
        cli.input_lines()


def test_a_disk_that_takes_no_more_is_one_line_that_names_the_folder(places, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would cut such files short
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    flags = ["--format=marian", f"--output={places['new']}", f"--workdir={places['run']}"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # bytes in a file
    try:
        error = only_error("export", *flags)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.startswith(f"error: {places['new']}")
    assert error.endswith(": File too large")


@pytest.fixture
def small_disk(tmp_path):
    """A file system with space for tokens, but for no checkpoint."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.release
def test_a_disk_too_small_is_one_line_and_with_space_the_same_command_goes_on(flags, small_disk):
    command = ["train", f"--workdir={small_disk / 'run'}", *flags]
    assert "space" in run_command(*command, fails=2).stderr.splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert "steps 80 to 120" in run_command(*command).stdout
    assert not list(small_disk.rglob("*tmp*"))


@pytest.fixture
def planted(tmp_path):
    """A pickle that makes a file when it is loaded, and that file."""
    ran = tmp_path / "ran"

    class Crafted:
        def __reduce__(self):
            return Path.touch, (ran,)

    crafted = pickle.dumps(Crafted())
    pickle.loads(crafted)
    assert ran.exists()
    ran.unlink()
    return crafted, ran


def plant(path: Path, crafted: bytes) -> None:
    """Replace the file, or every file of the folder."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    assert files
    for file in files:
        file.write_bytes(crafted)


# What each command does without, or refuses in one line; all else of the folder, at once.
PLANTED = {
    "translate": "config.json vocabulary.model manifest.sha256 averaged else",
    "train": "results.json else config.json vocabulary.model manifest.sha256 tokens checkpoints",
}


@pytest.mark.release
@pytest.mark.parametrize("command", PLANTED)
def test_nothing_of_a_run_folder_is_executed(command, trained, planted, tmp_path):
    crafted, ran = planted
    refused = []
    for name in PLANTED[command].split():
        run = shutil.copytree(trained, tmp_path / name)
        others = {path.name for path in run.iterdir()} - {*PLANTED[command].split(), "text"}
        for each in others if name == "else" else [name]:
            plant(run / each, crafted)
        more = [f"--set=training.steps={STEPS + 1}"] if command == "train" else []
        done = run_command(command, f"--workdir={run}", *more, stdin=b"a b c\n", fails=None)
        assert done.code in (0, 2)
        assert not ran.exists()
        refused += [name] if done.code == 2 else []
    assert {"config.json", "vocabulary.model"} < {*refused}
    assert "else" not in refused


@pytest.mark.parametrize(
    ("command", "texts"),
    [("score --workdir={run} --source={} --target={}", ["a b c\nd e\n", "A B C\nD E\n"]),
     ("evalb {} {}", ["(S (NN a))\n"] * 2)],
)  # fmt: skip
def test_what_the_shell_substitutes_is_read_where_once_is_enough(command, texts, places, tmp_path):
    files, pipes = [], []
    for number, text in enumerate(texts):
        files.append(tmp_path / str(number))
        files[-1].write_text(text, encoding="utf-8")
        reading, writing = os.pipe()  # as a shell makes for <(command)
        os.write(writing, text.encode())
        os.close(writing)
        pipes.append(f"/dev/fd/{reading}")
    ours, theirs = (
        run_command(*command.format(*paths, **places).split()).stdout for paths in (files, pipes)
    )
    assert ours == theirs != ""


@pytest.mark.release
def test_warnings_and_scores_show_no_control_characters(places, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / ODD)
    shutil.copytree(places["changed"], tmp_path / "changed")
    done = [run_command("paper", f"--runs={tmp_path}", "--table=4")]
    assert "warning: changed is left out: " in done[0].stderr
    text = tmp_path / f"{ODD}.en"
    text.write_text("a b c\n", encoding="utf-8")
    files = [f"--source={text}", f"--reference={text}"]
    done += [run_command("evaluate", f"--workdir={run}", "--set=decoding.beam_size=1", *files)]
    assert done[1].stdout.startswith(f"{SHOWN}.en, averaged checkpoint, greedy, ")
    assert not any(CONTROLS.search(each.stdout + each.stderr) for each in done)
