"""Help, the version and a mistake in a flag: answered by every command before JAX is imported."""

import itertools
import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from commands import process_arguments, setting_flags, text_flags
from letters import write_letters
from test_mistakes import COMMANDS

import jax_transformer as jt
from experiments import cli

HEAVY = ["jax", "flax", "orbax", "optax", "numpy", "tensorflow", "tensorflow_datasets"]
ANSWERS = {  # argument -> (exit status, what is in the only output)
    "--help": (0, "\nflags:\n"),
    "-h": (0, "\nflags:\n"),
    "--version": (0, f"jax_transformer {jt.__version__}\n"),
    "--verbossity=1": (2, "error: --verbossity: "),
}
OF_TRAIN = {
    "--experiment=wmt14": (2, "did you mean wmt14-en-de-base"),
    "--set=model.dmodel=64": (2, "did you mean model.d_model?"),
    "--set=model.d_model=63": (2, "model.num_heads=4"),
    "--settings": (0, "model.d_model=128: width of embeddings"),
}
# Each command runs as __main__ in a fork of one process, so that Python starts only once.
FORKS = """
import json, os, runpy, sys
from experiments import run_flags, tables  # and all that the commands share
from jax_transformer.runtime import processes

processes.end_process = lambda *_, **__: None  # by which train ends before it could report here
for number, (command, argument) in enumerate(json.loads(sys.argv[1])):
    if not os.fork():
        sys.argv = [command, argument]
        for stream in (1, 2):
            os.dup2(os.open(f"{number}.{stream}", os.O_WRONLY | os.O_CREAT), stream)
        try:
            runpy.run_module(f"experiments.{command}", run_name="__main__")
        except SystemExit as end:
            with open(f"{number}.json", "w") as file:
                json.dump([end.code or 0, [*sys.modules]], file)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""


def test_help_the_version_and_mistakes_in_flags_are_answered_without_jax(tmp_path):
    cases = {pair: ANSWERS[pair[1]] for pair in itertools.product(COMMANDS, ANSWERS)}
    cases |= {("train", argument): answer for argument, answer in OF_TRAIN.items()}
    options = process_arguments("train")
    options["args"] = [sys.executable, "-c", FORKS, json.dumps([*cases])]
    options["env"] |= {"PYTHONPATH": str(options["cwd"]), "PYTHONIOENCODING": "ascii"}
    subprocess.run(**options | {"cwd": tmp_path}, check=True)
    for number, (case, (expected, text)) in enumerate(cases.items()):
        status, modules = json.loads((tmp_path / f"{number}.json").read_text())
        out, err = ((tmp_path / f"{number}.{stream}").read_text("utf-8") for stream in (1, 2))
        assert status == expected, (case, out, err)
        assert text in (err if status else out), (case, out, err)
        assert err.count("\n") == bool(status), (case, err)
        assert not {*HEAVY} & {*modules}, case
        assert not (out if status else err), case
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("error", [KeyError("name"), RuntimeError("a bug"), AssertionError()])
def test_a_bug_is_shown_without_starting_the_devices(error, monkeypatch):
    @cli.command
    def main():
        raise error

    monkeypatch.setattr(cli, "show_log_lines", lambda: None)
    monkeypatch.setattr("jax_transformer.parallel.check_devices", lambda: pytest.fail("started"))
    with pytest.raises(type(error)):
        main(["main"])


def test_text_is_prepared_without_jax(tmp_path):
    write_letters(tmp_path)
    flags = [*text_flags(tmp_path), *setting_flags(), f"--workdir={tmp_path / 'run'}"]
    options = process_arguments("prepare", "--experiment=base", *flags)
    python, *rest = options["args"]
    own = {"args": [python, "-X", "importtime", *rest], "capture_output": True, "text": True}
    done = subprocess.run(**options | own, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "numpy" in imported
    assert not {"jax", "flax", "orbax", "optax", "jax_transformer.runs.trainer"} & imported
    assert "train" in done.stdout


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        *((name, "--set=model.d_ff=VALUE") for name in ("d_ff", "model.d_ff", "ffn-dim")),
        ("beam_size", "--set=decoding.beam_size=VALUE"),
        ("verbossity", "--verbosity"),
    ],
)
def test_a_setting_given_as_a_flag_and_a_mistyping_are_answered(flag, meant, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.parse_flags(["train", f"--{flag}=1"])
    assert f"--{flag}: there is no such flag; did you mean {meant}?" in capsys.readouterr().err


def as_process(module, *arguments, **streams):
    options: Any = process_arguments("train") | streams
    return subprocess.run(
        **options | {"args": [sys.executable, "-m", module, *arguments]}, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_package_lists_its_commands(arguments):
    done = as_process("experiments", *arguments, stdout=subprocess.PIPE)
    named = re.findall(r"^python -m experiments\.(\w+) +[A-Z].*\.$", done.stdout, re.MULTILINE)
    assert (done.returncode, {*named}) == (0, {*COMMANDS})


@pytest.mark.parametrize("argument", ["--help", "-h", "--version", "--settings"])
def test_an_answer_whose_reader_has_gone_ends_without_a_word(argument):
    read, write = os.pipe()
    os.close(read)
    done = as_process("experiments.train", argument, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert not done.stderr
    assert done.returncode in (0, 141)  # absl's --help ends with 0
