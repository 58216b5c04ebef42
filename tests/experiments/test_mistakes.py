"""Each mistake: one line that says how to mend it, exit status 2, no traceback, nothing changed."""

import logging
import resource
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from absl import app
from absl.testing import flagsaver
from commands import (
    EVERY,
    ROOT,
    STEPS,
    files_of,
    only_error,
    process_arguments,
    record,
    run_command,
    setting_flags,
    text_flags,
)
from letters import write_letters

from experiments import cli
from jax_transformer.errors import InputError
from jax_transformer.formats import WRITE_FORMATS
from jax_transformer.runtime import processes

SLOW = pytest.mark.slow

TEXT = text_flags(Path("x"))
# {run} is a trained run, {parser} one that parses (its settings only), {dir} a folder with the
# files of `mistaken_files`, {new} a run folder that does not exist.
MISTAKES = {
    # Flags and settings.
    "train --workdir={new} --experiment=demmo": "did you mean demo?",
    "train --workdir={new} --set=model.d_modle=8": "did you mean model.d_model?",
    "train --workdir={new} --profile_steps=9": "expected FIRST:LAST among the steps 1 to",
    "train --workdir={run} --profile_steps=119:121": "among the steps 1 to 120, as in",
    "train --workdir={new} demo": "expected only flags, found 'demo'",
    "train --workdir={new} --experiment=wmt14-en-de-base --data_dir={dir}/blank": (
        "blank: expected a folder, found a file"
    ),
    "train --workdir={new} --data_dir={dir}": "found demo on other data; leave the flag out",
    "translate --workdir={run} --set=model.d_ff=8": "expected a setting of decoding or scoring",
    "translate --workdir={run} --n_best=9": "--n_best=9: expected at most the beam size",
    "translate --workdir={run} --mbr=chrf --n_best=2": "--n_best cannot be combined with --mbr",
    "translate --workdir={run} --mbr=bleu --set=decoding.beam_size=1": "a beam size of 8",
    "translate --workdir={parser} --mbr=chrf": "--mbr cannot be combined with a model",
    "translate --workdir={run} --split_sentences --n_best=2": "--n_best cannot be combined",
    "translate --workdir={run} --split_sentences --scores": "--scores cannot be combined",
    "translate --workdir={parser} --split_sentences": "--split_sentences cannot",
    "translate --workdir={run} --alignment_head=0": "--alignment_head=0: expected --",
    "translate --workdir={parser} --samples=2": "--samples cannot be combined with a model",
    "evaluate --workdir={run} --checkpoint=avereged": "did you mean averaged?",
    "translate --workdir={run} --checkpoint=0240": "averaged, last, best or the step of a",
    "translate --workdir={run} --checkpoint=\u0662\u0664\u0660": "averaged, last, best or the",
    # Vocabularies.
    "train --workdir={new} --source_vocabulary={dir}/blank": (
        "expected --vocabulary alone, or --source_vocabulary and --target_vocabulary"
    ),
    "train --workdir={new} --experiment=demo-parsing --vocabulary={dir}/blank": (
        "--vocabulary: expected an experiment that translates"
    ),
    "train --workdir={new} --vocabulary={dir}/blank": "blank: expected a model of sentencepiece",
    "train --workdir={new} --vocabulary={dir}/absent": "absent, found 'No such file or directory'",
    "train --workdir={new} --experiment=demo-parsing --set=data.vocabularies=separate": (
        "expected a translation experiment"
    ),
    "train --workdir={new} --experiment=demo-parsing --set=data.subword_dropout=0.1": (
        "data.subword_dropout=0.1: expected an experiment that translates"
    ),
    # Text and trees.
    "train --workdir={new} --experiment=base": "expected --train_source, --train_target",
    "train --workdir={wmt} --experiment=base": "base: expected --train_source, --train_target",
    "train --workdir={new} --experiment=treebank": "expected --train_trees, --dev_trees",
    "train --workdir={new} --experiment=wsj": ", or --treebank_dir, found none",
    "train --workdir={new} --train_source=a": "demo: expected --train_target, --dev_source",
    f"train --workdir={{new}} {' '.join(TEXT)} --experiment=treebank --treebank_dir=y": (
        "--train_source: expected trees for treebank, found text"
    ),
    "train --workdir={new} --experiment=base --train_trees=a": "expected text for base",
    "train --workdir={new} --experiment=wsj-semi --treebank_dir=x": (
        "wsj-semi: expected --extra_trees"
    ),
    # Several corpora.
    f"train --workdir={{new}} {' '.join(TEXT)} --train_source=b": (
        "expected --train_target as often as --train_source, once for each corpus, found 1 and 2"
    ),
    f"train --workdir={{new}} {' '.join(TEXT)} --set=data.train_weights=3,1": (
        "data.train_weights=3,1: expected a number for each corpus, found 2 for 1"
    ),
    f"train --workdir={{new}} {' '.join(TEXT + TEXT[:2])} --set=data.train_weights=3,1,1": (
        "data.train_weights=3,1,1: expected a number for each corpus, found 3 for 2"
    ),
    "train --workdir={new} --experiment=treebank --train_trees=a --train_trees=b --dev_trees=c "
    "--extra_trees=d --set=data.train_weights=1,1,1": "found 3 for 2",
    "train --workdir={new} --experiment=wsj --train_trees=a --treebank_dir=x": (
        "leave one of them out"
    ),
    "train --workdir={new} --experiment=demo --set=data.task=parsing": "is for translation",
    # What to score.
    "evaluate --workdir={run} --split=dev --test_set=wmt14": "found --split and --test_set; give",
    "evaluate --workdir={run} --test_set=wmt14/all": "did you mean wmt14 or wmt14/full?",
    "evaluate --workdir={run} --test_set=wmt14 --set=data.target_language=it": "found en-it; --set",
    "evaluate --workdir={run} --test_set=wmt14 --set=data.target_language=": "found en-; --set",
    "evaluate --workdir={run} --source={dir}/blank --reference={dir}/blank": (
        "error: blank: expected sentences to decode, found only blank lines or none"
    ),
    "evaluate --workdir={parser} --test_set=wmt14": "found one that parses",
    "evaluate --workdir={parser} --source={dir}/words": "found one that parses; leave it out",
    "evaluate --workdir={parser} --reference={dir}/golds": ("golds, line 2, column 9: expected"),
    "score --workdir={run}": "--source: expected the file that was translated",
    "score --workdir={parser} --source={dir}/words": "found one that parses",
    "evaluate --workdir={parser} --split=dev --reference={dir}/golds": "--split and --reference",
    "table3 --workdir=gs://bucket/table3": "expected a path, found an address",
    "table3 --workdir={new} --set=training.average_last=3": "training.average_last: expected none",
    # Exports and pages.
    "export --workdir={run} --output={new}": "the format to write, found none; give it",
    "export --workdir={run} --output={dir} --format=marian": "found a folder with something in it",
    "export --workdir={run} --output={dir}/blank --format=marian": "found something else",
    "export --workdir={run} --output=s3://box/x --format=marian": "found an address; name another",
    "export --workdir={run} --output={new} --format=marian --quantization=int8": (
        "expected --format=ctranslate2"
    ),
    "export --workdir={parser} --output={new} --format=marian": "data.task=parsing: expected",
    "visualize --workdir={run}": "--text: expected a sentence to",
    "visualize --workdir={run} --text=abcdefghijkl": "expected a sentence of 1 to 7 tokens",
    "visualize --workdir={run} --text=a --output=/": "--output=/: expected",
    "visualize --workdir={run} --text=a --output={dir}/words": "words: expected a new file, or an",
    "visualize --workdir={run} --text=a --output=s3://box/x": "found an address; name one",
    # Folders.
    "translate": "--workdir: expected",
    "translate --workdir={dir}/blank": "found a file; give the --workdir",
    "evaluate --workdir=/nowhere": "found no such folder",
    "translate --workdir={dir}": "config.json",
    "translate --workdir={parser}": "experiments.train --workdir",
    "train --workdir={dir}/blank": "blank/manifest.sha256: Not a directory",
}


@pytest.fixture(scope="module")
def paths(trained, tmp_path_factory):
    """Folders and files by the names that MISTAKES has for them."""
    from jax_transformer.data.sources import Sources, Trees
    from jax_transformer.presets import find_experiment
    from jax_transformer.runs.run_dir import Run, RunFolder

    folder = tmp_path_factory.mktemp("mistakes")
    contents = {
        "blank": "\n \n",
        "words": "the cat\n" * 2,
        "golds": "(NP (DT the) (NN cat))\n(NP (DT the\n",
    }
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")
    parser = RunFolder(tmp_path_factory.mktemp("parser"))
    config = find_experiment("treebank").config()
    parser.write_run(Run("treebank", 1, config, Sources((Trees(("x",)),)), corpus="treebank"))
    wmt = RunFolder(tmp_path_factory.mktemp("wmt"))
    config = find_experiment("wmt14-en-de-base").config()
    wmt.write_run(Run("wmt14-en-de-base", 1, config, Sources(data_dir="/x"), corpus="wmt14-en-de"))
    named = {"run": trained, "dir": folder, "parser": parser.path, "wmt": wmt.path}
    return named | {"new": folder / "new"}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(command, paths):
    before = [files_of(paths[name]) for name in ("run", "dir", "parser")]
    error = only_error(*command.format(**paths).split())
    assert MISTAKES[command] in error
    assert [files_of(paths[name]) for name in ("run", "dir", "parser")] == before
    assert not paths["new"].exists()


FILES = (ROOT / "experiments").glob("[!_]*.py")
COMMANDS = sorted(path.stem for path in FILES if "app.run(main" in path.read_text())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_flag_is_a_mistake_in_every_command(command, monkeypatch, capsys):
    def only_parse(_, flags_parser=app.parse_flags_with_usage):
        flags_parser([command, "--verbossity=1"])

    monkeypatch.setattr(app, "run", only_parse)
    monkeypatch.setattr(processes, "end_process", lambda *_, **__: None)  # of this process
    monkeypatch.delitem(sys.modules, f"experiments.{command}", raising=False)
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as ended:
        runpy.run_module(f"experiments.{command}", run_name="__main__")
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: --verbossity: ")
    assert "did you mean --verbosity?" in error
    assert error.count("\n") == 1


def test_a_checkpoint_of_more_digits_than_python_reads_is_a_mistake(trained):
    error = only_error("translate", f"--workdir={trained}", f"--checkpoint={'9' * 5000}")
    assert "expected averaged, last, best or the step" in error


@pytest.mark.parametrize("name", ["my [code]/run", "a*", "what?", "back\\slash"])
def test_a_path_that_cannot_hold_checkpoints_is_refused_before_anything_is_written(tmp_path, name):
    for command in ("train", "prepare"):
        assert f"{tmp_path / name}: expected a path" in only_error(
            command, f"--workdir={tmp_path / name}"
        )
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_moved_to_such_a_path_is_refused_and_unchanged(
    trained, tmp_path, monkeypatch
):
    moved = tmp_path / "real[1]"
    shutil.copytree(trained, moved)
    before = files_of(moved)
    monkeypatch.chdir(moved)  # the whole path counts
    for command in (
        "train",
        "average",
        "translate",
        "evaluate",
        "export --format=marian --output=x",
    ):
        assert "real[1]: expected a path" in only_error(*command.split(), "--workdir=.")
    assert files_of(moved) == before


@pytest.mark.parametrize(
    "value", ["one", 2**32, "", "9" * 5000], ids=["word", "large", "blank", "long"]
)
def test_a_flag_with_a_wrong_value_is_named(value):
    assert f"flag --seed={value}: " in only_error("train", f"--seed={value}")


@pytest.mark.parametrize(
    ("shell", "code", "out", "error"),
    [
        (
            "{python}.evalb {trees} {trees} > /dev/full",
            2,
            "",
            "error: standard output: No space left ",
        ),
        ("PYTHONIOENCODING=ascii {python}.train --settings", 0, "§6.3", ""),
        ("{python}.train --help", 0, "experiment: What to train (default: demo).", ""),
    ],
)
def test_standard_output_that_is_closed_full_or_of_another_encoding(
    tmp_path, shell, code, out, error
):
    (tmp_path / "trees").write_text("(S (NN a))\n" * 3, encoding="utf-8")
    python = f"{sys.executable} -m experiments"
    options = process_arguments("evalb")
    options["args"] = ["sh", "-c", shell.format(python=python, trees=tmp_path / "trees")]
    done = subprocess.run(**options, capture_output=True)
    assert done.returncode == code
    assert out in done.stdout.decode("utf-8")
    stderr = done.stderr.decode("utf-8")
    assert stderr.startswith(error)
    assert stderr.count("\n") == bool(error), stderr


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (MemoryError("7 TiB"), 2, "memory ran out: 7 TiB; in training lower"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no 9 bytes\nmore"),
            2,
            "memory ran out: RESOURCE_EXHAUSTED: no 9 bytes; in training lower",
        ),
        (PermissionError(13, "Permission denied", "/a/file"), 2, "/a/file: Permission denied"),
        (PermissionError(13, "Permission denied", "/a\nfile"), 2, "/a file: Permission denied"),
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


@pytest.mark.parametrize("platform", ["cuda", "nonsense"])
def test_a_device_that_is_not_there_is_a_mistake(trained, platform):
    options = process_arguments("translate", f"--workdir={trained}")
    options["env"] |= {"JAX_PLATFORMS": platform}
    done = subprocess.run(**options, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        pytest.skip(f"there is a {platform} here")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: JAX_PLATFORMS={platform}: expected a device of this ")
    assert done.stderr.count("\n") == 1


def test_a_mistake_writes_nothing_where_standard_error_is_closed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as ended:
        cli.parse_flags(["command", "--verbossity=1"])
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def test_a_standard_input_that_is_closed_is_a_mistake(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input to read from, found it closed"):
        cli.input_lines()


def test_an_argument_that_is_not_utf_8_is_a_mistake(monkeypatch, caplog):
    @cli.command
    def main():
        pass

    assert main(["command"]) == 0
    monkeypatch.setattr(sys, "argv", ["command", "--train_source=caf\udce9.en"])
    assert main(["command"]) == 2
    assert "found '--train_source=caf\\udce9.en'" in caplog.messages[0]


def test_faults_of_the_program_are_not_hidden():
    @cli.command
    def main():
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        main(["command"])


BAD_TEXTS = {
    "not UTF-8": ("train.en", b"a b c\n" * 6 + b"caf\xe9\n" + b"a b c\n" * 113, "line 7: expected"),
    "not gzip": ("train.en.gz", b"a b c\n" * 120, "damaged or cut short"),
    "blank lines": ("train.en", b"\n" * 120, "120 with a blank side"),
}


@pytest.mark.parametrize("mistake", BAD_TEXTS)
def test_a_mistake_in_the_text_is_one_line_with_its_place(mistake, tmp_path):
    name, content, expected = BAD_TEXTS[mistake]
    write_letters(tmp_path)
    path = tmp_path / name
    path.write_bytes(content)
    packed = {"train_source": path} if name.endswith(".gz") else {}
    settings = setting_flags(data__vocabulary_up_to="true")
    command = ["train", f"--workdir={tmp_path / 'run'}", "--experiment=base"]
    error = only_error(*command, *text_flags(tmp_path, **packed), *settings)
    assert expected in error
    assert str(path) in error or mistake == "blank lines"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.release
def test_a_damaged_average_is_refused_until_it_is_made_again(run):
    for path in (run / "averaged").rglob("params/**/d/*"):
        path.write_bytes(path.read_bytes()[:-9])
    translate = "translate", f"--workdir={run}", "--set=decoding.beam_size=1"
    error = only_error(*translate, stdin=b"a b\n")
    assert "/averaged/" in error
    assert "experiments.average" in error
    run_command("average", f"--workdir={run}")
    assert run_command(*translate, stdin=b"a b\n").stdout.count("\n") == 1


@pytest.mark.slow
@pytest.mark.release
def test_a_damaged_checkpoint_gives_way_to_the_one_before(trained, run):
    for path in (run / "checkpoints" / str(STEPS) / "params").rglob("d/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4  # one bit
        path.write_bytes(content)
    before = files_of(run)
    error = only_error("evaluate", f"--workdir={run}", f"--checkpoint={STEPS}")
    assert f"checkpoints/{STEPS}, found it corrupt" in error
    assert files_of(run) == before
    done = run_command("train", f"--workdir={run}")
    assert f"from step {STEPS - EVERY} to {STEPS}" in done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert f"{STEPS} is corrupt" in warnings[0]
    assert (run / "checkpoints" / f"{STEPS}.corrupt").is_dir()
    assert record(run, STEPS) == record(trained, STEPS)


FORMATS = [("export", "--output={new}", f"--format={form}") for form in WRITE_FORMATS]
LONG = [("visualize", "--output={new}/page.html", "--text=a b", "--target=A B"), ("evaluate",)]


@pytest.mark.parametrize("command", [*FORMATS, *(pytest.param(c, marks=SLOW) for c in LONG)])
def test_a_disk_that_takes_no_more_is_one_line_that_names_the_folder(
    run, tmp_path, command, monkeypatch
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would cut such files short
    new = tmp_path / "new"
    arguments = [part.format(new=new) for part in command]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    from_seconds = jax.config.jax_persistent_cache_min_compile_time_secs  # pyright: ignore
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)  # the same in the cache
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # bytes in a file
    try:
        error = only_error(*arguments, f"--workdir={run}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", from_seconds)
    assert error.startswith(f"error: {run if command == ('evaluate',) else new}")
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


@pytest.mark.slow
@pytest.mark.release
def test_a_disk_too_small_is_one_line_and_with_space_the_same_command_goes_on(flags, small_disk):
    command = ["train", f"--workdir={small_disk / 'run'}", *flags]
    assert "space" in run_command(*command, fails=2).stderr.splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert "steps 80 to 120" in run_command(*command).stdout
    assert not list(small_disk.rglob("*tmp*"))
