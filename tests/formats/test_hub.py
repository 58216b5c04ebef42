"""Models of the Hugging Face hub, from a server of this process that answers as the hub does."""

import importlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hub_server import Hub, Library, commit, hub_of
from recorded_folders import READ
from refusals import refusal

import jax_transformer as jt
from jax_transformer.formats import file_names, read_model, recognized
from jax_transformer.formats.hub import fetched

pytest.importorskip("huggingface_hub", reason="fetches models: pip install -e '.[hub]'")

# The same weights for other frameworks, and what else is published beside a model.
MORE = ["tf_model.h5", "flax_model.msgpack", "rust_model.ot", "README.md", "onnx/config.json"]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def library(monkeypatch) -> Library:
    """The variables of huggingface_hub."""
    return Library(monkeypatch)


@pytest.fixture
def hub(library, tmp_path) -> Iterator[Hub]:
    """A hub without models, and an empty cache for them."""
    with hub_of(library, tmp_path / "home") as found:
        yield found


@pytest.fixture
def publish(hub, make) -> Callable[..., Path]:
    """A function that publishes a recorded folder as OWNER/NAME, with more files beside it."""

    def published(form: str, name: str = "owner/name", revision: str = "main") -> Path:
        folder = make(form)
        for more in MORE:
            (folder / more).parent.mkdir(exist_ok=True)
            (folder / more).write_bytes(b"not for us")
        hub.models.setdefault(name, {})[revision] = folder
        return folder

    return published


@pytest.mark.parametrize(
    "form", ["ctranslate2", *(pytest.param(f, marks=pytest.mark.slow) for f in READ if f[0] != "c")]
)
def test_only_files_that_are_read_are_fetched_and_once(form, hub, publish):
    folder = publish(form)
    if form in ("marian", "fsmt"):  # of two kinds of weights, one is read
        (folder / "pytorch_model.bin").write_bytes(b"not for us")
    expected = read_model(form, folder)
    fetched_folder, origin = fetched("hf://owner/name", None)
    assert origin == f"hf://owner/name@{commit(folder)}"
    assert not {*hub.asked} & {*MORE, "pytorch_model.bin", "results", "results.json"}
    assert {*READ[form]} <= {*file_names(fetched_folder)}
    found = read_model(form, fetched_folder)
    assert found.config() == expected.config()
    assert found.target.content == expected.target.content
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    count = len(hub.asked)
    assert fetched("hf://owner/name", form) == (fetched_folder, origin)
    assert len(hub.asked) == count == len({*hub.asked})


@pytest.mark.slow
def test_weights_in_parts_are_fetched_by_their_index(hub, publish):
    folder = publish("marian")
    whole = folder / "model.safetensors"
    whole.rename(folder / "model-[1]-of-1.safetensors")
    (folder / "model.safetensors.index.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(b"not for us")
    fetched("hf://owner/name", None)
    weights = {name for name in hub.asked if "model" in name}
    assert weights == {"model-[1]-of-1.safetensors", "model.safetensors.index.json"}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["marian", "ctranslate2"])
def test_a_model_of_the_hub_is_a_run_like_that_of_its_folder(form, publish, tmp_path):
    folder = publish(form)
    own = jt.import_model(folder, tmp_path / "own", format=form)
    model = jt.import_model("hf://owner/name", tmp_path / "run")
    assert model.run.imported_from == f"{form}:hf://owner/name@{commit(folder)}"
    assert model.config == own.config
    assert model.vocabulary.content == own.vocabulary.content
    for found, expected in zip(*(jax.tree.leaves(m.params) for m in (model, own)), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert jt.load(tmp_path / "run").run == model.run
    assert "new folder" in refusal(jt.import_model, "hf://owner/other", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": NOWHERE}])
def test_without_a_network_the_copy_in_the_cache_is_taken(variables, publish, library, caplog):
    publish("marian")
    publish("fairseq", revision="old")
    found = [fetched(f"hf://owner/name{revision}", None) for revision in ("", "@old")]
    library.set(**variables)
    found.append(found[1])
    for revision, expected in zip(("", "@old", f"@{found[1][0].name}"), found, strict=True):
        caplog.clear()
        assert fetched(f"hf://owner/name{revision}", None) == expected
        assert str(expected[0]) in caplog.text
    for address in ("hf://owner/other", "hf://owner/name@new"):
        assert "network" in refusal(fetched, address, None)


def test_without_a_network_files_that_came_one_by_one_are_taken(publish, library):
    folder = publish("ctranslate2")
    for name in ("README.md", *READ["ctranslate2"], "target.spm"):
        importlib.import_module("huggingface_hub").hf_hub_download("owner/name", name)
        if name == "README.md":
            library.set(HF_HUB_OFFLINE="1")
            assert "network" in refusal(fetched, "hf://owner/name", None)
            library.set(HF_HUB_OFFLINE="0")
    library.set(HF_HUB_OFFLINE="1")
    found, origin = fetched("hf://owner/name", None)
    assert origin == f"hf://owner/name@{commit(folder)}"
    assert read_model("ctranslate2", found).target.size == 59


@pytest.mark.slow
def test_a_revision_is_a_branch_a_tag_or_a_commit(publish):
    folders = {"main": publish("marian"), "v1/old": publish("fsmt", revision="v1/old")}
    for revision, folder in folders.items():
        for name in (revision, commit(folder)):
            found, origin = fetched(f"hf://owner/name@{name}", None)
            assert origin.endswith(f"@{commit(folder)}")
            assert (found / "config.json").read_bytes() == (folder / "config.json").read_bytes()


def test_the_token_is_found_where_the_library_looks_for_it(publish, hub, library):
    publish("fairseq")
    library.set(HF_TOKEN="hf_secret")
    fetched("hf://owner/name", None)
    assert hub.tokens == {"Bearer hf_secret"}


REFUSED = {
    "hf://owner/absent": "hf://owner/absent: name HF_TOKEN",
    "hf://owner/gated": "hf://owner/gated: gated conditions HF_TOKEN",
    "hf://owner/name@absent": "hf://owner/name@absent: branch, commit",
    "hf://owner/poem": "hf://owner/poem: one format, none --format ctranslate2, marian-npz",
    "hf://owner/half": "hf://owner/half: marian without source.spm",
    "hf://owner/both": "hf://owner/both: fsmt and marian; --format, fsmt, marian",
    "hf://name": "hf://name: hf://OWNER/NAME@REVISION",
    "hf://owner/name/more": "hf://owner/name/more: hf://OWNER/NAME@REVISION",
    "hf://owner/na--me": "hf://owner/na--me: name",
}


def test_what_the_hub_does_not_give_is_named_in_one_line(hub, publish, tmp_path):
    publish("marian")
    publish("fsmt", "owner/gated")
    hub.gated.add("owner/gated")
    both = shutil.copytree(tmp_path / "marian", tmp_path / "both")
    shutil.copytree(tmp_path / "fsmt", both, dirs_exist_ok=True)
    half = shutil.copytree(tmp_path / "marian", tmp_path / "half")
    (half / "source.spm").unlink()
    (tmp_path / "poem").mkdir()
    (tmp_path / "poem" / "README.md").write_bytes(b"Roses are red")
    hub.models |= {f"owner/{name}": {"main": tmp_path / name} for name in ("poem", "half", "both")}
    for address, words in REFUSED.items():
        message = refusal(jt.import_model, address, tmp_path / "run")
        assert all(word in message for word in words.split()), message
    assert not hub.asked
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_file_that_breaks_off_goes_on_where_it_ended(hub, publish, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    folder = publish("ctranslate2")
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # bytes that are written at once
    hub.breaks["model.bin"] = 1
    found, _ = fetched("hf://owner/name", None)
    assert hub.ranges == ["model.bin"]
    assert (found / "model.bin").read_bytes() == (folder / "model.bin").read_bytes()


@pytest.mark.slow
def test_of_a_broken_download_nothing_half_is_left_and_whole_files_are_kept(
    hub, publish, monkeypatch, library, tmp_path
):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    publish("ctranslate2")
    hub.breaks["model.bin"] = 1000
    message = refusal(jt.import_model, "hf://owner/name", tmp_path / "run")
    assert message.startswith("hf://owner/name: ")
    assert "network" in message
    assert not (tmp_path / "run").exists()
    assert not [*tmp_path.rglob("*.incomplete"), *(tmp_path / "home").rglob("model.bin")]
    library.set(HF_HUB_OFFLINE="1")
    assert "model.bin" in refusal(fetched, "hf://owner/name", None)
    library.set(HF_HUB_OFFLINE="0")
    hub.breaks.clear()
    hub.asked.clear()
    fetched("hf://owner/name", None)
    assert hub.asked == ["model.bin"]


def test_without_the_library_the_line_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = refusal(jt.import_model, "hf://owner/name", tmp_path / "run")
    assert "pip install 'PATH[hub]'" in message


@pytest.mark.parametrize("form", READ)
def test_the_format_of_a_folder_is_found_by_its_files(form, make):
    folder = make(form)
    names = file_names(folder)
    found, files = recognized("here", names)
    assert found == form
    assert {*READ[form]} <= {*files.among(names)}
    (folder / "model").mkdir()
    if form == "ctranslate2":  # as Argos Translate packs it
        for name in ("model.bin", "config.json", "shared_vocabulary.json"):
            (folder / name).rename(folder / "model" / name)
        found, files = recognized("here", file_names(folder))
        assert found == form
        expected: Any = {"model/model.bin", "model/config.json", "source.spm"}
        assert expected <= {*files.among(file_names(folder))}
    fewer = [name for name in file_names(folder) if not fnmatch(name, files.marks[-1])]
    assert f"{form} without {files.marks[-1]}" in refusal(recognized, "here", fewer)
