"""A folder in a bucket and its copies on several machines; the bucket is a folder of this one."""

import errno
import gzip
import os
import shutil
import time
from pathlib import Path

import pytest
from refusals import refusal

from jax_transformer.data.text import file_fingerprint, read_lines
from jax_transformer.errors import InputError
from jax_transformer.files import exclusive
from jax_transformer.runs import averages, bucket
from jax_transformer.runs.bucket import Bucket
from jax_transformer.runs.load import load
from jax_transformer.runs.request import requested_run
from jax_transformer.runs.run_dir import RunFolder

END = "description__metadata"  # the last file of a checkpoint


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/bucket/runs/base"


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
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_what_one_machine_writes_and_changes_another_sees(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a")
    for step in "12":
        write(first.local, **{f"checkpoints__{step}__{name}": step for name in ("array", END)})
    first.put()
    second = machine("second")
    second.fetch(lambda name: not name.startswith("checkpoints/1/"))
    newest = {"checkpoints/2/array": "2", "checkpoints/2/description/metadata": "2"}
    assert content(second.local) == {"config": "a", **newest}
    assert second.steps("checkpoints") == [1, 2]
    write(second.local, config="b")
    second.put()
    first.fetch(bool)  # everything
    assert content(first.local)["config"] == "b"
    shutil.rmtree(tmp_path / "bucket")  # somebody begins anew
    (tmp_path / "bucket/runs/base").mkdir(parents=True)
    second.fetch(bool)
    assert content(second.local) == {}
    assert not (second.local / "checkpoints").exists()


def test_what_vanishes_from_the_copy_stays_in_the_bucket_and_is_fetched_again(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a", checkpoints__1__array="1", checkpoints__2__array="2")
    first.put()
    before = content(tmp_path / "bucket")
    shutil.rmtree(first.local / "checkpoints" / "1")  # training, or a cleaner of old files
    (first.local / "config").unlink()
    first.put()
    assert content(tmp_path / "bucket") == before
    first.fetch(bool)
    assert content(first.local)["checkpoints/1/array"] == "1"


def test_a_missing_bucket_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket = Bucket(f"file://{tmp_path}/bucket/run")
    write(bucket.local, config="a")

    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(bucket._files, "put_file", missing)
    with pytest.raises(InputError, match="create it"):
        bucket.put()


def test_what_an_interruption_left_is_kept_and_put_later(machine):
    first = machine("first")
    write(first.local, config="a", metrics="1")
    first.put()
    write(first.local, metrics="1 2", new="n")  # and the machine stops
    again = machine("first")
    again.fetch(bool)
    again.put()
    second = machine("second")
    second.fetch(bool)
    assert content(second.local) == {"config": "a", "metrics": "1 2", "new": "n"}


def test_of_two_changes_the_newer_one_stays(machine, tmp_path):
    first = machine("first")
    write(first.local, config="a", metrics="1")
    first.put()
    write(first.local, config="b", metrics="2")
    for name, changed in (("config", 2e9), ("metrics", 4e9)):
        os.utime(first.local / name, (changed, changed))
        os.utime(tmp_path / "bucket/runs/base" / name, (3e9, 3e9))
    first.fetch(bool)
    assert content(first.local) == {"config": "a", "metrics": "2"}


def test_marks_of_folders_that_a_console_has_put_are_no_files(machine, monkeypatch):
    """S3's console makes an empty object `folder/` for a folder, and s3fs lists it as a file."""
    first, again = machine("first"), machine("second")
    write(first.local, config="a", text__dev="d")
    first.put()
    files, root = again._files, again._root
    find, get = files.find, files.get_file
    marks = {f"{root}/": {"size": 0}, f"{root}/text/": {"size": 0}}
    monkeypatch.setattr(files, "find", lambda *_, **options: marks | find(root, **options))

    def get_object(there, here):
        Path(here).touch() if there.endswith("/") else get(there, here)

    monkeypatch.setattr(files, "get_file", get_object)
    again.fetch(bool)
    assert content(again.local) == {"config": "a", "text/dev": "d"}


@pytest.mark.parametrize("name", ["../../out", "a/../../../out", "/out", "", "./config"])
def test_a_name_that_leads_out_of_the_folder_is_no_file_of_it(machine, monkeypatch, name):
    """Object stores have any name; one such as `../x` must not be written."""
    bucket, fetched = machine("first"), []
    names = {f"{bucket._root}/{each}": {"size": 0} for each in (name, "config")}
    monkeypatch.setattr(bucket._files, "find", lambda *_, **options: names)

    def get_object(there, here):
        fetched.append(there)
        Path(here).touch()

    monkeypatch.setattr(bucket._files, "get_file", get_object)
    bucket.fetch(bool)
    assert fetched == [f"{bucket._root}/config"]


def test_an_address_that_leads_out_of_the_copies_is_refused(tmp_path):
    for url in (f"file://{tmp_path}/link/../../x", "memory://../..", "://etc/x"):
        with pytest.raises(InputError, match=r"expected an address without '\.\.'"):
            Bucket(url)


@pytest.mark.parametrize("when", ["put_file", "info"])
def test_what_is_written_while_a_file_is_put_is_put_later(machine, tmp_path, monkeypatch, when):
    first = machine("first")
    write(first.local, metrics="1")
    function = getattr(first._files, when)

    def meanwhile(*arguments, **options):
        found = function(*arguments, **options)
        if (first.local / "metrics").read_text() == "1":
            write(first.local, metrics="1 2")
        if when == "put_file":  # an object is as new as the end of its upload
            os.utime(arguments[1])
        return found

    monkeypatch.setattr(first._files, when, meanwhile)
    first.put()
    first.fetch(bool)  # a command beside the training
    assert content(first.local) == {"metrics": "1 2"}
    first.put()
    assert content(tmp_path / "bucket") == {"runs/base/metrics": "1 2"}


def test_a_full_disk_is_named_and_nothing_unfinished_stays(machine, monkeypatch):
    first, second = machine("first"), machine("second")
    write(machine("first").local, config="a")
    machine("first").put()

    def full(there, here):
        Path(here).touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(second._files, "get_file", full)
    with pytest.raises(OSError, match="No space left"):
        second.fetch(bool)
    assert content(second.local) == {}
    assert first.local != second.local


def test_tokens_that_are_linked_into_two_runs_are_put_into_the_buckets_of_both(tmp_path, machine):
    machine("first")
    (tmp_path / "shared").write_text("tokens")
    for name in "ab":
        bucket = Bucket(f"file://{tmp_path}/bucket/runs/{name}")
        bucket.local.mkdir(parents=True)
        os.link(tmp_path / "shared", bucket.local / "tokens")
        bucket.put()
        bucket.fetch(bool)
        assert content(bucket.local) == {"tokens": "tokens"}
        assert (tmp_path / "bucket/runs" / name / "tokens").exists()


def test_nothing_is_put_while_what_is_gone_is_removed(machine, monkeypatch):
    """Else a file that was put after the bucket was listed would count as gone."""
    first = machine("first")
    write(first.local, config="a")
    first.put()
    there, locked = first._here, list[bool]()

    def here():
        with pytest.raises(BlockingIOError), exclusive(first.local / "bucket.lock", wait=False):
            pass
        locked.append(True)
        return there()

    monkeypatch.setattr(first, "_here", here)
    first.fetch(bool)
    assert locked


def test_a_score_that_another_machine_has_added_stays(machine, url):
    """A command on another machine evaluates while a training runs."""
    first = machine("first")
    training = RunFolder(url)
    write(training.path, **{"config.json": "{}"})
    training.append_results([{"score": 1}])
    first.put()
    second = machine("second")
    scoring = RunFolder(url)
    scoring.append_results([{"score": 2}])
    second.put()
    training.append_results([{"score": 3}])
    assert [entry["score"] for entry in training.read_results()] == [1, 2, 3]


def test_scores_are_kept_here_if_the_bucket_cannot_be_reached(machine, url, monkeypatch, caplog):
    machine("first")
    folder = RunFolder(url)
    write(folder.path, **{"config.json": "{}"})

    def fetch(_):
        raise InputError("no network")

    monkeypatch.setattr(folder.bucket, "fetch", fetch)
    folder.append_results([{"score": 1}])
    assert folder.read_results() == [{"score": 1}]
    assert "no network; adding the scores" in caplog.text


def test_a_checkpoint_counts_once_the_bucket_has_all_of_it(machine, monkeypatch):
    first = machine("first")
    names = [END, "_METADATA", "optimizer__array", "params__array"]
    write(first.local, **{f"checkpoints__7__{name}": "x" for name in names})
    put, files = type(first._files).put_file, []

    def put_file(*arguments):
        put(*arguments)
        files.append(arguments[-1])
        assert machine("second").steps("checkpoints") == ([7] if len(files) == len(names) else [])

    monkeypatch.setattr(type(first._files), "put_file", put_file)
    first.put()
    assert len(files) == len(names)


def test_a_model_whose_checkpoints_were_removed_from_the_bucket_is_not_trained_anew(
    machine, url, small_run
):
    shutil.copytree(small_run, url.removeprefix("file://"))
    assert machine("first").steps("averaged")
    requested_run(RunFolder(url))
    shutil.rmtree(f"{url}/checkpoints".removeprefix("file://"))
    machine("second")
    assert f"--init_from={url}" in refusal(requested_run, RunFolder(url))


@pytest.mark.slow
def test_a_model_that_takes_long_to_write_is_put_when_it_is_there(
    machine, url, small_run, monkeypatch
):
    machine("first")
    monkeypatch.setattr(bucket, "SECONDS", 0.01)
    save = averages.save_average

    def slowly(*arguments):
        time.sleep(0.3)
        save(*arguments)

    monkeypatch.setattr(averages, "save_average", slowly)
    load(small_run).save(url)
    machine("second")
    assert load(url).steps == load(small_run).steps


def test_unfinished_files_and_the_lock_stay_here(machine, tmp_path):
    first = machine("first")
    unfinished = {
        "4.orbax-checkpoint-tmp/array": "4",
        "3.corrupt/array": "3",
        "config.json.7.partial": "c",
        "lock": "",
        "results.lock": "",
        "translations/test.txt.7.partial": "a",
    }
    write(first.local, config="a", **{n.replace("/", "__"): text for n, text in unfinished.items()})
    write(first.local, **{"translations__lockdown.partial.beam4.txt": "a"})
    first.put()
    expected = {"config": "a", "translations/lockdown.partial.beam4.txt": "a"}
    assert content(tmp_path / "bucket" / "runs" / "base") == expected


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
    (tmp_path / name).unlink()
    assert file_fingerprint(url, known) is known  # its tokens are enough
    assert "found nothing" in refusal(file_fingerprint, url, {})
    elsewhere = {"path": "nowhere://text", "digest": "a"}
    assert file_fingerprint("nowhere://text", elsewhere) is elsewhere
    assert "expected a bucket" in refusal(file_fingerprint, "nowhere://text", {})
    with pytest.raises(InputError, match=r"expected a file at file://.*none, found nothing"):
        list(read_lines(f"file://{tmp_path}/none"))
