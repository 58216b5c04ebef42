"""Flags of the commands: quick answers before JAX is imported, and values as they are taken."""

import itertools
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
from commands import ROOT, flag_value, process_arguments, setting_flags, text_flags
from letters import write_letters

import jax_transformer as jt

FILES = (ROOT / "experiments").glob("[!_]*.py")
COMMANDS = sorted(path.stem for path in FILES if "cli.run(main" in path.read_text())
HEAVY = ["jax", "flax", "orbax", "optax", "numpy", "tensorflow", "tensorflow_datasets"]
ANSWERS = {  # argument -> (exit status, what is in the only output)
    "--help": (0, "\nflags:\n"),
    "-h": (0, "\nflags:\n"),
    "--version": (0, f"jax_transformer {jt.__version__}\n"),
    "--verbossity=1": (2, "error: --verbossity: there is no such flag; did you mean --verbosity?"),
}
OF_TRAIN = {
    "--help": (0, "experiment: Experiment to train (default: "),
    "--experiment=wmt14": (2, "did you mean wmt14-en-de-base"),
    "--set=model.dmodel=64": (2, "did you mean model.d_model?"),
    "--set=model.d_model=63": (2, "model.num_heads=4"),
    "--settings": (0, "model.d_model=128: width of embeddings"),
}
# Each command runs as __main__ in a fork of one process, so that Python starts only once.
FORKS = """
import json, os, runpy, sys
from experiments import cli, shared_flags, tables  # and all that the commands share

cli.end_process = lambda *_, **__: None  # by which commands end before they could report here
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
    cases = [(pair, ANSWERS[pair[1]]) for pair in itertools.product(COMMANDS, ANSWERS)]
    cases += [(("train", argument), answer) for argument, answer in OF_TRAIN.items()]
    options = process_arguments("train")
    options["args"] = [sys.executable, "-c", FORKS, json.dumps([case for case, _ in cases])]
    options["env"] |= {"PYTHONPATH": str(options["cwd"]), "PYTHONIOENCODING": "ascii"}
    subprocess.run(**options | {"cwd": tmp_path}, check=True)
    for number, (case, (expected, text)) in enumerate(cases):
        status, modules = json.loads((tmp_path / f"{number}.json").read_text())
        out, err = ((tmp_path / f"{number}.{stream}").read_text("utf-8") for stream in (1, 2))
        assert status == expected, (case, out, err)
        assert text in (err if status else out), (case, out, err)
        assert err.count("\n") == bool(status), (case, err)
        assert not {*HEAVY} & {*modules}, case
        assert not (out if status else err), case
    assert not (tmp_path / "runs").exists()


def test_a_flagfile_that_is_not_utf_8_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "flags").write_bytes("--workdir=ä".encode("latin-1"))
    with pytest.raises(SystemExit):
        flag_value("train", "flagfile", str(tmp_path / "flags"))
    assert re.fullmatch(r"error: --flagfile: .*UTF-8.*\n", capsys.readouterr().err)


@pytest.mark.slow
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


def test_the_package_lists_its_commands():
    done = subprocess.run(
        [sys.executable, "-m", "experiments"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    named = re.findall(r"^python -m experiments\.(\w+) +[A-Z].*\.$", done.stdout, re.MULTILINE)
    assert {*named} == {*COMMANDS}


@pytest.mark.release
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_whose_reader_has_gone_ends_without_a_word(flag):
    read, write = os.pipe()
    os.close(read)
    options = process_arguments("train", flag)
    done = subprocess.run(**options, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert not done.stderr
    assert done.returncode in (0, 141)  # absl's --help ends with 0


@pytest.mark.release
@pytest.mark.parametrize("flag", ["--help", "-h", "--settings", "--verbossity=1"])
def test_a_closed_output_is_one_line_and_exit_status_2(flag):
    options = process_arguments("train", flag)
    options["args"] = ["bash", "-c", f"exec {shlex.join(options['args'])} >&-"]
    done = subprocess.run(**options, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.startswith("error: expected a standard output to write to")
    assert (done.stderr.count("\n"), done.returncode) == (1, 2)


PATHS = {
    "train": "workdir data_dir treebank_dir train_source dev_trees",
    "translate": "workdir prefixes ensemble",
    "serve": "workdir token_file ensemble",
    "import_model": "workdir input",
    "evaluate": "workdir source reference",
    "visualize": "workdir output",
    "paper": "runs",
    "evalb": "param",
}


@pytest.mark.parametrize("command", PATHS)
def test_a_path_may_begin_with_the_home_folder_and_has_commas_of_its_own(
    command, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for flag in PATHS[command].split():
        for given, expected in (
            ("~/a,~b", f"{tmp_path}/a,~b"),
            ("gs://bucket/~/a", "gs://bucket/~/a"),
        ):
            value = flag_value(command, flag, given)
            assert value in (expected, [expected]), flag
