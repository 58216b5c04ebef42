"""The folder of caches, and accounts without a home."""

import os
import pwd
from pathlib import Path

import pytest
from refusals import refusal

from jax_transformer.data.sources import cached_test_set
from jax_transformer.files import cache_folder, expanded
from jax_transformer.runs.bucket import Bucket
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime.compilation_cache import enable_compilation_cache


def nobody(_):
    raise KeyError


@pytest.fixture
def without_home(tmp_path, monkeypatch):
    """An account of a container that has a number alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    return tmp_path


def test_without_a_home_nothing_is_cached_and_that_is_logged_once(
    without_home, monkeypatch, caplog
):
    import jax

    before = jax.config.jax_compilation_cache_dir  # pyright: ignore
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        assert [enable_compilation_cache() for _ in range(3)] == [None] * 3
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    (message,) = caplog.messages
    assert "XDG_CACHE_HOME" in message
    assert "XDG_CACHE_HOME" in refusal(Bucket, "memory://bucket/run")
    monkeypatch.delenv("SACREBLEU", raising=False)
    assert "no HOME" in refusal(cached_test_set, "wmt14", "en-de")
    assert "no HOME" in refusal(expanded, "~/run")
    assert "no HOME" in refusal(RunFolder, "~/run")
    assert os.listdir(without_home) == []


def test_the_cache_is_where_xdg_says_and_a_relative_path_does_not_count(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    expected = {
        "/var/cache": "/var/cache",
        "~/caches": "/home/me/caches",
        "here": "/home/me/.cache",
        "": "/home/me/.cache",
    }
    for value, folder in expected.items():
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == Path(folder) / "jax_transformer"
