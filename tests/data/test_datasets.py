"""Test sets out of a cache laid as sacreBLEU lays it, and as sacreBLEU itself finds it."""

import os
import subprocess
import sys

import pytest
from refusals import refusal

from jax_transformer.data.datasets import cached_test_set

FIELDS = ("src", "ref", "docid", "genre", "origlang")


def lay(cache, name="wmt14/full", pair="en-de", fields=FIELDS):
    """Five files of three lines, as sacreBLEU leaves them after fetching."""
    (cache / name).mkdir(parents=True)
    for field in fields:
        path = cache / name / f"{name.replace('/', '_')}.{pair}.{field}"
        path.write_text("".join(f"{field} {i}\n" for i in range(3)), encoding="utf-8")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_source_and_reference_are_the_files_that_sacrebleu_itself_finds(cache):
    lay(cache)
    files = cached_test_set("wmt14/full", "en-de")
    assert list(files.pairs()) == [(f"src {i}", f"ref {i}") for i in range(3)]
    code = (
        "from sacrebleu.utils import get_source_file, get_reference_files as references;"
        "print(get_source_file('wmt14/full', 'en-de'), *references('wmt14/full', 'en-de'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [files.source, files.target]


def test_the_cache_is_in_the_home_folder_where_no_variable_names_it(tmp_path, monkeypatch):
    monkeypatch.delenv("SACREBLEU", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    lay(tmp_path / ".sacrebleu", "wmt13", "en-fr")
    assert len(list(cached_test_set("wmt13", "en-fr").pairs())) == 3


def test_of_several_references_the_first_is_taken(cache):
    lay(cache, "wmt17/tworefs", "en-fi", ["src", "ref-1", "ref-0"])
    assert cached_test_set("wmt17/tworefs", "en-fi").target.endswith(".ref-0")


@pytest.mark.parametrize("fields", [(), ("src",), ("ref", "docid")])
def test_what_is_not_in_the_cache_is_refused_with_the_command_that_fetches_it(
    cache, fields, monkeypatch
):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("fetched"))
    lay(cache, fields=fields)
    message = refusal(cached_test_set, "wmt14/full", "en-de")
    assert str(cache / "wmt14/full") in message
    assert message.endswith("fetch it with: sacrebleu -t wmt14/full -l en-de --echo src")
    assert len(list((cache / "wmt14/full").iterdir())) == len(fields)


def test_an_unknown_test_set_or_language_pair_is_refused_with_the_known_ones(cache):
    assert "did you mean wmt14 or wmt14/full?" in refusal(cached_test_set, "wmt14/fulll", "en-de")
    assert "did you mean wmt14?" in refusal(cached_test_set, "wtm14", "en-de")
    assert "cs-en, de-en, en-cs, en-de" in refusal(cached_test_set, "wmt14", "en-ja")
    assert not cache.exists()
