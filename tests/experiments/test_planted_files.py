"""Files that somebody else wrote: a crafted pickle in place of each is never executed."""

import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import STEPS, process_arguments, run_command


@pytest.fixture
def planted(tmp_path):
    """(a pickle that makes a file when it is loaded, that file)."""
    ran = tmp_path / "ran"

    class Crafted:
        def __reduce__(self):
            return Path.touch, (ran,)

    crafted = pickle.dumps(Crafted())
    pickle.loads(crafted)
    assert ran.exists()
    ran.unlink()
    return crafted, ran


def plant(path, crafted):
    """Replace the file, or every file of the folder."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    assert files
    for file in files:
        file.write_bytes(crafted)


def status(command, *arguments):
    try:
        return run_command(command, *arguments, stdin=b"a b c\n").code
    except AssertionError as error:  # its text begins with "exit 2"
        return int(str(error).split()[1])


# What each command does without, or refuses with one line; all else of the folder, in one go.
PLANTED = {
    "translate": ["config.json", "vocabulary.model", "manifest.sha256", "averaged", "all else"],
    "train": [
        "results.json",
        "all else",
        "config.json",
        "vocabulary.model",
        "manifest.sha256",
        "tokens",
        "checkpoints",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", PLANTED)
def test_nothing_of_a_run_folder_is_executed(trained, planted, tmp_path, command):
    crafted, ran = planted
    named = set(PLANTED[command])
    refused = []
    for name in PLANTED[command]:
        run = tmp_path / name
        shutil.copytree(trained, run)
        others = {path.name for path in run.iterdir()} - named - {"text"}
        for each in others if name == "all else" else [name]:
            plant(run / each, crafted)
        more = [f"--set=training.steps={STEPS + 1}"] if command == "train" else []
        found = status(command, f"--workdir={run}", *more)
        assert found in (0, 2)
        assert not ran.exists()
        refused += [name] if found == 2 else []
    assert {"config.json", "vocabulary.model"} < set(refused)
    assert "all else" not in refused


@pytest.mark.slow
@pytest.mark.release
def test_translating_executes_no_pickle_of_the_compilation_cache(trained, planted, tmp_path):
    crafted, ran = planted
    options = process_arguments("translate", f"--workdir={trained}")
    environment = {**options.pop("env"), "XDG_CACHE_HOME": str(tmp_path)}
    del environment["JAX_COMPILATION_CACHE_DIR"]

    def translate():
        streams = {"input": b"a b c\n", "capture_output": True, "check": True}
        return subprocess.run(**options, **streams, env=environment)

    before = translate()
    cache = tmp_path / "jax_transformer"
    names = {path.name for path in cache.iterdir()}
    assert names
    plant(cache, crafted)
    after = translate()
    assert not ran.exists()
    assert after.stdout == before.stdout != b""
    assert {path.name for path in cache.iterdir()} == names
    assert os.stat(cache).st_mode & 0o777 == 0o700
