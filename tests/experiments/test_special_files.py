"""A pipe or a device in place of a file: refused in one line before it is opened, or waits."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from commands import only_error, run_command, text_flags

TREE = "(S (NN a))\n"


@pytest.fixture(autouse=True)
def _no_hanging():
    """Who opens a pipe without a writer waits forever."""

    def stop(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(trained, tmp_path):
    """`run`, a trained run, and small files; `fifo` is a pipe without a writer."""
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "text").write_text("a b\n", encoding="utf-8")
    (tmp_path / "tree").write_text(TREE, encoding="utf-8")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


TRAIN = ["train", "--workdir={0}/new", *text_flags(Path("{0}"))]
NAMED = {
    "text to train on": [*TRAIN, "--train_source={1}", "--train_target={0}/text"],
    "text among others": [*TRAIN, "--dev_source={0}/text", "--dev_target={1}"],
    "trees to train on": [
        *("train", "--workdir={0}/new", "--experiment=treebank"),
        *("--train_trees={1}", "--dev_trees={0}/tree"),
    ],
    "text to evaluate": ["evaluate", "--workdir={0}/run", "--source={1}", "--reference={0}/text"],
    "references": ["evaluate", "--workdir={0}/run", "--source={0}/text", "--reference={1}"],
    "sources to score": ["score", "--workdir={0}/run", "--source={1}", "--target={0}/text"],
    "targets to score": ["score", "--workdir={0}/run", "--source={0}/text", "--target={1}"],
    "gold trees": ["evalb", "{1}", "{0}/tree"],
    "trees": ["evalb", "{0}/tree", "{1}"],
    "parameters": ["evalb", "{0}/tree", "{0}/tree", "--param={1}"],
}


@pytest.mark.parametrize("special", ["{0}/fifo", "/dev/null"])
@pytest.mark.parametrize("what", NAMED)
def test_one_that_a_flag_names_is_refused(what, special, folder):
    special = special.format(folder)
    error = only_error(*[part.format(folder, special) for part in NAMED[what]])
    assert f"{special}: expected a file, found a pipe or a device" in error
    assert not (folder / "new").exists()


INSIDE = {
    "config.json": "translate",
    "vocabulary.model": "translate",
    "results.json": "evaluate",
}


@pytest.mark.parametrize("name", INSIDE)
def test_one_in_a_run_folder_is_refused(name, folder):
    path = folder / "run" / name
    path.unlink()
    os.mkfifo(path)
    error = only_error(INSIDE[name], f"--workdir={folder / 'run'}")
    assert f"{path}: expected a file, found a pipe or a device" in error


def test_a_checkpoint_with_one_is_corrupt(folder):
    (path,) = (folder / "run" / "averaged").glob("*/description/metadata")
    path.unlink()
    os.mkfifo(path)
    error = only_error("translate", f"--workdir={folder / 'run'}")
    assert "corrupt" in error
    assert f"{path}: expected a file, found a pipe or a device" in error


def substituted(*texts):
    """Paths such as a shell gives for <(command), one for each text."""
    paths = []
    for text in texts:
        reading, writing = os.pipe()
        os.write(writing, text.encode())
        os.close(writing)
        paths.append(f"/dev/fd/{reading}")
    return paths


READ_ONCE = {
    "score": (
        ["--workdir={0}/run", "--source={1}", "--target={2}"],
        "a b c\nd e\n",
        "A B C\nD E\n",
    ),
    "evaluate": (["--workdir={0}/run", "--source={1}", "--reference={2}"], "a b\n", "A B\n"),
    "evalb": (["{1}", "{2}"], TREE, TREE),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", READ_ONCE)
def test_what_the_shell_substitutes_is_read_where_once_is_enough(command, folder):
    arguments, *texts = READ_ONCE[command]
    files = [folder / "one", folder / "two"]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    both = [
        run_command(command, *[part.format(folder, *paths) for part in arguments]).stdout
        for paths in (files, substituted(*texts))
    ]
    # evaluate also prints the name of the text, the time, and a file's name in the end.
    ours, theirs = ([line for line in out.splitlines() if ", " not in line] for out in both)
    assert ours[:-1] == theirs[:-1] != []
