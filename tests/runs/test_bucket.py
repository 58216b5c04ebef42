"""A folder in a bucket and its copies on several machines; the bucket is a folder of this one."""

import gzip
import os
import shutil

import numpy as np
import pytest
from fsspec.config import conf
from fsspec.implementations.local import LocalFileSystem

from jax_transformer.data.text import file_fingerprint, read_lines
from jax_transformer.errors import InputError
from jax_transformer.runs.bucket import RECORD, Bucket, note_removed
from jax_transformer.runs.checkpoints import Checkpoints


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/bucket/runs/base"


@pytest.fixture(autouse=True)
def like_a_bucket(monkeypatch):
    """Folders are there as soon as a file is."""
    monkeypatch.setitem(conf, "file", {"auto_mkdir": True})


@pytest.fixture
def machine(tmp_path, monkeypatch, url):
    """Opens the folder on the machine of this name, which has a disk of its own."""

    def open_bucket(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return Bucket(url)

    return open_bucket


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def content(folder):
    paths = (path for path in folder.rglob("*") if path.is_file() and RECORD not in path.name)
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_what_one_machine_writes_changes_and_deletes_another_sees(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a", checkpoints__1__array="1", checkpoints__2__array="2")
    first.push()
    second = machine("second")
    second.pull(["checkpoints/"])
    assert content(second.local) == content(first.local)
    write(first.local, config="b", checkpoints__3__array="3")
    shutil.rmtree(first.local / "checkpoints" / "1")
    note_removed(first.local / "checkpoints" / "1")
    first.push()
    second.pull(["checkpoints/"])
    expected = {"config": "b", "checkpoints/2/array": "2", "checkpoints/3/array": "3"}
    assert content(second.local) == content(first.local) == expected
    shutil.rmtree(tmp_path / "bucket")  # somebody begins anew
    (tmp_path / "bucket/runs/base").mkdir(parents=True)
    second.pull(["checkpoints/"])
    assert not (second.local / "checkpoints").exists()


def test_what_vanishes_from_the_copy_stays_in_the_bucket_and_is_fetched_again(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a", checkpoints__1__array="1", checkpoints__2__array="2")
    first.push()
    before = content(tmp_path / "bucket")
    shutil.rmtree(first.local / "checkpoints" / "1")  # a cleaner of old files
    (first.local / "config").unlink()
    for _ in range(2):
        first.push()
        assert content(tmp_path / "bucket") == before
    first.pull(["checkpoints/"])
    assert content(first.local)["checkpoints/1/array"] == "1"


def test_checkpoints_that_training_removes_or_renames_are_removed_in_the_bucket(machine, tmp_path):
    first = machine("first")
    params = {"x": np.zeros(2, np.float32)}
    with Checkpoints(first.local / "checkpoints", keep=1) as saved:
        saved.save(1, params, (), {}, {})
        saved.wait()
        first.push()
        saved.save(2, params, (), {}, {})
        saved.save(3, params, (), {}, {})
    first.push()
    there = tmp_path / "bucket/runs/base/checkpoints"
    files = [path for path in there.rglob("*") if path.is_file()]
    assert {path.relative_to(there).parts[0] for path in files} == {"3"}


@pytest.mark.parametrize("there", [True, False])
def test_folders_of_a_disk_are_made_but_no_bucket(tmp_path, monkeypatch, there):
    monkeypatch.setitem(conf, "file", {"auto_mkdir": False})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(LocalFileSystem, "cachable", False)
    bucket = Bucket(f"file://{tmp_path}/disk/run" if there else "file:///no-such-root/run")
    write(bucket.local, averaged__1__array="1")
    if there:
        bucket.push()
        assert content(tmp_path / "disk/run") == {"averaged/1/array": "1"}
    else:
        with pytest.raises(InputError, match="create it"):
            bucket.push()


def test_large_parts_are_copied_on_request_and_stay_in_the_bucket(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a", checkpoints__1__array="1")
    first.push()
    second = machine("second")
    second.pull()
    assert content(second.local) == {"config": "a"}
    write(second.local, results="r")
    second.push()
    assert len(content(tmp_path / "bucket")) == 3
    second.pull(["checkpoints/"])
    shutil.rmtree(second.local / "checkpoints")  # somebody frees space
    second = machine("second")
    second.pull()
    second.push()
    assert len(content(tmp_path / "bucket")) == 3


def test_what_an_interrupted_push_left_is_kept_and_pushed_later(machine):
    first = machine("first")
    write(first.local, config="a", metrics="1")
    first.push()
    write(first.local, metrics="1 2", new="n")  # and the machine stops
    again = machine("first")
    again.pull()
    again.push()
    second = machine("second")
    second.pull()
    assert content(second.local) == {"config": "a", "metrics": "1 2", "new": "n"}


def test_what_was_sent_before_an_interruption_is_not_fetched_over_what_is_newer(
    machine, monkeypatch
):
    first = machine("first")
    write(first.local, metrics="1", tokens="t")
    send = first._send
    monkeypatch.setattr(first, "_send", lambda name: {"metrics": send}[name](name))
    with pytest.raises(KeyError, match="tokens"):
        first.push()
    write(first.local, metrics="1 2")
    again = machine("first")
    again.pull()
    assert content(again.local) == {"metrics": "1 2", "tokens": "t"}


def test_a_file_changed_in_the_bucket_replaces_the_copy(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a")
    first.push()
    path = tmp_path / "bucket/runs/base/config"
    path.write_text("b")
    os.utime(path, ns=(1, 1))
    first.pull()
    assert content(first.local) == {"config": "b"}


def test_unfinished_files_and_the_lock_stay_here(machine, tmp_path):
    first = machine("first")
    unfinished = {
        "4.orbax-checkpoint-tmp/array": "4",
        "config.json.7.partial": "c",
        "lock": "",
        "results.lock": "",
    }
    write(first.local, config="a", **{n.replace("/", "__"): text for n, text in unfinished.items()})
    first.push()
    assert content(tmp_path / "bucket") == {"runs/base/config": "a"}


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_text_is_read_from_a_bucket(tmp_path, name):
    lines = gzip.compress(b"one\ntwo\n") if name.endswith(".gz") else b"one\ntwo\n"
    (tmp_path / name).write_bytes(lines)
    url = f"file://{tmp_path}/{name}"
    assert list(read_lines(url)) == ["one", "two"]
    known = file_fingerprint(url, {})
    assert file_fingerprint(url, known) is known
    (tmp_path / name).write_bytes(lines + lines)
    assert file_fingerprint(url, known)["digest"] != known["digest"]
    with pytest.raises(InputError, match=r"expected a file at file://.*none, found nothing"):
        list(read_lines(f"file://{tmp_path}/none"))
