"""Locks, and file systems that do not have them."""

import errno
import fcntl
import os

import pytest
from refusals import refusal

from jax_transformer.runs.bucket import Bucket
from jax_transformer.runs.lock import exclusive
from jax_transformer.runs.run_dir import RunFolder


@pytest.fixture(params=["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def no_locks(request, monkeypatch):
    """A file system that answers so to a request for a lock."""
    code = getattr(errno, request.param)

    def flock(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_without_locks_everything_goes_on_with_one_warning_for_each_folder(
    no_locks, tmp_path, monkeypatch, caplog
):
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        folder.append_results([{"bleu": 1}])
        folder.append_results([{"bleu": 2}])
    assert folder.read_results() == [{"bleu": 1}, {"bleu": 2}]
    (message,) = caplog.messages
    assert str(folder.path) in message
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket = Bucket("memory://bucket/no-locks")
    bucket.local.mkdir(parents=True)
    (bucket.local / "config").write_text("a")
    bucket.put()
    assert str(bucket.local) in caplog.messages[-1]


def test_a_lock_is_waited_for_or_refused_at_once(tmp_path):
    second = exclusive(tmp_path / "lock", wait=False)
    with exclusive(tmp_path / "lock"), pytest.raises(BlockingIOError):
        second.__enter__()
    with exclusive(tmp_path / "lock", wait=False):
        pass


def test_a_link_to_a_folder_that_is_not_there_yet_is_that_folder(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    link, folder = RunFolder(tmp_path / "link"), RunFolder(tmp_path / "new")
    with link.locked():
        assert folder.path.is_dir()
        assert "another process" in refusal(folder.locked().__enter__)
