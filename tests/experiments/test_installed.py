"""The wheel, and the program jax-transformer that it installs, away from this checkout."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import namedtuple

import pytest
from commands import ROOT

import jax_transformer as jt

PACKAGES = ("jax_transformer", "experiments")
HOSTILE = "raise SystemExit('the code of a user has run')\n"
Wheel = namedtuple("Wheel", "path folder")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def wheel(made_once):
    """The wheel of the sdist of this checkout, and a folder in which it is installed."""

    def call(folder, *module):
        subprocess.run([sys.executable, "-m", *module], cwd=folder, check=True, capture_output=True)

    def make(folder):
        source, site = folder / "source", folder / "site"
        for name in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        call(source, "build", "--no-isolation", "--outdir=..")
        offline = ["--no-deps", "--no-index", "--no-compile", "--quiet"]
        call(folder, "pip", "install", *offline, f"--target={site}", *folder.glob("*.whl"))

    folder = made_once("installed", make)
    (path,) = folder.glob("*.whl")
    return Wheel(path, folder / "site")


@pytest.fixture
def program(wheel, tmp_path):
    """A function that calls jax-transformer in an empty folder.

    first: folders on Python's path before the one of the package.
    """

    def run(*arguments, first=(), **variables):
        path = os.pathsep.join(map(str, [*first, wheel.folder]))
        return subprocess.run(
            [wheel.folder / "bin" / "jax-transformer", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **variables},
            capture_output=True,
            text=True,
        )

    return run


def test_the_wheel_has_every_file_of_the_packages_nothing_else_and_at_most_2_mib(wheel):
    assert wheel.path.stat().st_size <= 2 * 2**20
    listed = {name for name in zipfile.ZipFile(wheel.path).namelist() if ".dist-info/" not in name}
    files = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    here = {str(path.relative_to(ROOT)) for path in files if path.parent.name != "__pycache__"}
    assert listed == here


@pytest.mark.parametrize(
    ("python", "found"),
    [("import sys; sys.version_info = (3, 10)", "3.11"), ("import no_venv", "no_venv")],
    ids=["too old", "venv fails"],
)
def test_make_does_not_keep_a_python_with_which_it_failed(python, found, tmp_path):
    script = f'#!/bin/sh\nmkdir -p venv/bin; ln -sf "{sys.executable}" venv/bin/python\n'
    script += f'exec "{sys.executable}" -c "{python}; exec(sys.argv[1])" "$2"\n'
    (tmp_path / "python3").write_text(script)
    (tmp_path / "python3").chmod(0o755)
    call = ["make", f"--file={ROOT}/Makefile", "venv/bin/python", "VENV=venv", "PYTHON=./python3"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode
    assert found in done.stderr
    assert not (tmp_path / "venv" / "bin" / "python").is_symlink()


def test_the_program_lists_and_runs_the_commands(program):
    listed = program().stdout
    names = re.findall(r"^jax-transformer (\w+) +[A-Z].*\.$", listed, re.MULTILINE)
    assert {"train", "translate", "import_model", "serve"} < {*names}
    assert program("--help").stdout.startswith(listed)
    assert program("--version").stdout == f"jax_transformer {jt.__version__}\n"
    assert "model.d_model=128: " in program("train", "--settings").stdout
    shown = program("import-model", "--help").stdout
    assert "jax-transformer import_model --input" in shown
    assert "python -m" not in shown


@pytest.mark.parametrize(
    ("arguments", "meant"), [("trian --workdir=a", "train"), ("train --wrkdir=a", "--workdir")]
)
def test_a_mistake_is_one_line_with_what_was_meant(arguments, meant, program):
    done = program(*arguments.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.endswith(f"did you mean {meant}?\n")


@pytest.mark.parametrize("name", ["experiments/__init__.py", "experiments.py"])
@pytest.mark.parametrize("on_the_path", [False, True])
def test_experiments_of_a_user_are_left_alone(name, on_the_path, program, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(HOSTILE)
    done = program("train", "--version", first=[tmp_path] if on_the_path else [])
    assert done.stdout == f"jax_transformer {jt.__version__}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [("jax-transformer tra", "train translate"), ("jax-transformer score --wor", "--workdir ")],
)
def test_a_shell_completes_commands_and_flags(line, expected, program, tmp_path):
    variables = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    program(_ARGCOMPLETE_STDOUT_FILENAME=str(tmp_path / "a"), _ARGCOMPLETE_IFS=" ", **variables)
    assert (tmp_path / "a").read_text() == expected
