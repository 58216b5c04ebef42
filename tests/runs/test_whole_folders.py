"""What is written into a new folder is there whole, or nothing of it is."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refusal

from jax_transformer.config import Config
from jax_transformer.files import append_bytes, whole_folder, write_bytes
from jax_transformer.runs import averages, model
from jax_transformer.runs.averages import save_average
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.run_dir import Run, RunFolder

NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Content:
    """Stands for a vocabulary, of which only the content is written."""

    content = b"x"


def write(folder: Path) -> None:
    vocabulary: Any = Content()
    params = {"w": np.ones(3, np.float32)}
    run = Run("x", 0, Config())
    model.write_model(RunFolder(folder), run, vocabulary, vocabulary, params, [1])


def everything(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("there", "step"), [(True, (averages, "save_average")), (False, (model, "write_bytes"))]
)
def test_a_model_that_finds_no_space_leaves_nothing_and_the_next_try_is_whole(
    tmp_path, monkeypatch, there, step
):
    folder = tmp_path / "runs" / "new"
    if there:
        folder.mkdir(parents=True)
        (folder / "notes").write_text("mine")

    def fail(*arguments: Any, **options: Any) -> None:
        raise NO_SPACE

    with monkeypatch.context() as patched:
        patched.setattr(*step, fail)
        with pytest.raises(OSError, match="No space left") as caught:
            write(folder)
    assert caught.value.filename == str(folder)
    assert everything(tmp_path) == (["new", "notes", "runs"] if there else ["runs"])
    write(folder)
    assert {"config.json", "averaged", "manifest.sha256"} <= {*everything(folder)}
    assert not [name for name in everything(tmp_path) if "partial" in name]
    assert "config.json" in refusal(write, folder)


def test_a_link_to_an_empty_folder_and_one_that_does_not_exist_yet_are_filled(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for name in ("link", "new/deep"):
        with whole_folder(tmp_path / name) as building:
            (building / "a").write_text("1")
            assert not (tmp_path / name / "a").exists()
        assert (tmp_path / name / "a").read_text() == "1"
    assert (tmp_path / "link").is_symlink()


def test_an_interruption_leaves_nothing_and_what_a_kill_left_is_removed(tmp_path):
    (tmp_path / "new.999999999.partial" / "deep").mkdir(parents=True)
    (tmp_path / "new.notes.partial").mkdir()

    def interrupted() -> None:
        with whole_folder(tmp_path / "new") as building:
            (building / "a").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert everything(tmp_path) == ["new.notes.partial"]


def test_an_average_that_cannot_be_written_leaves_nothing_unfinished(tmp_path, monkeypatch):
    def fail(self: Any, step: int, *arguments: Any) -> None:
        (Path(tmp_path) / f"{step}.orbax-checkpoint-tmp" / "params").mkdir(parents=True)
        raise NO_SPACE

    monkeypatch.setattr(Checkpoints, "save", fail)
    with pytest.raises(OSError, match="No space"):
        save_average(tmp_path, {}, [1], {})
    assert everything(tmp_path) == []


def test_nothing_is_written_through_a_link_in_a_folder_of_somebody_else(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    path, log = tmp_path / "results.json", tmp_path / "starts.jsonl"
    path.with_name(f"results.json.{os.getpid()}.partial").symlink_to(other)
    log.symlink_to(other)
    write_bytes(path, b"new")
    with pytest.raises(OSError, match="starts"):
        append_bytes(log, b"line")
    assert (other.read_text(), path.read_text()) == ("mine", "new")
    log.unlink()
    for _ in range(2):
        append_bytes(log, b"line\n")
    assert log.read_text() == "line\nline\n"
