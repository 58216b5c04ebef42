"""Files of torch.save: what torch wrote, recorded and live, and the same files damaged."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from references import SOURCES, Arrays, reference, within
from refusals import refusal
from torch_pickles import (
    check_plain,
    older_form,
    outcome,
    storage,
    whole,
    written,
    zip_form,
)

from jax_transformer.formats.torch_files import read_torch

FORMS = ["zip", "older"]
VALUES = ["tensors", "plain", "checkpoint"]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each part that is not a container, by its path; empty containers too."""
    if isinstance(value, dict | list | tuple) and value:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            yield from leaves(part, f"{path}/{key!r}")
    else:
        yield path, value


@pytest.fixture(scope="module", params=SOURCES)
def theirs(request) -> Arrays:
    """Files of torch, and what is in them."""
    return reference("torch_files", request.param)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VALUES)
def test_a_file_gives_what_torch_saved(theirs, name, form, tmp_path):
    value = read_torch(written(tmp_path, theirs[f"{name}/{form}"]))
    check_plain(value)
    found = dict(leaves(value))
    tensors = within(theirs, f"{name}/tensor/")
    assert {path for path, part in found.items() if type(part) is np.ndarray} == tensors.keys()
    for path, expected in tensors.items():
        assert found[path].dtype == expected.dtype, path
        np.testing.assert_array_equal(found[path], expected, err_msg=path, strict=True)
        assert (np.signbit(found[path]) == np.signbit(expected)).all(), path  # -0.0 too
    others = {path: repr(part) for path, part in found.items() if path not in tensors}
    assert others == json.loads(str(theirs[f"{name}/others"]))


@pytest.mark.parametrize("form", FORMS)
def test_views_of_one_storage_share_memory(theirs, form, tmp_path):
    found = read_torch(written(tmp_path, theirs[f"tensors/{form}"]))
    views = ["transposed", "part", "row", "expanded", "overlapping", "one", "parameter"]
    for name in views:
        assert np.shares_memory(found["whole"], found[name]), name
    assert not np.shares_memory(found["whole"], found["float32"])


@pytest.mark.parametrize("form", FORMS)
def test_a_file_cut_anywhere_is_refused(theirs, form, tmp_path):
    content = theirs[f"tensors/{form}"]
    for length in {*range(64), *range(64, len(content), 97), len(content) - 1}:
        message = refusal(read_torch, written(tmp_path, content[:length]))
        assert "model.pt: " in message


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VALUES)
def test_a_file_with_wrong_bytes_is_refused_or_gives_plain_values(theirs, name, form, tmp_path):
    content, random = theirs[f"{name}/{form}"], np.random.default_rng(7)
    outcomes = []
    for _ in range(100):
        damaged = content.copy()
        places = random.integers(len(content), size=random.integers(1, 4))
        damaged[places] = random.integers(256, size=len(places), dtype=np.uint8)
        outcomes.append(outcome(written(tmp_path, damaged)))
    assert 0 < outcomes.count("read") < len(outcomes)
    assert not any("\n" in line for line in outcomes)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_zip", [True, False])
def test_random_views_are_those_of_torch(seed, is_zip, tmp_path):
    torch = pytest.importorskip("torch")
    random, tensors = np.random.default_rng(seed), {}
    base = torch.tensor(random.normal(size=(5, 4, 3, 2)), dtype=torch.float32)
    for i in range(60):
        view = base.permute(*random.permutation(4).tolist())
        for axis in range(4):
            start = int(random.integers(view.shape[axis]))
            step = int(random.integers(1, 3))
            view = view[(slice(None),) * axis + (slice(start, None, step),)]
        if view.shape[0] == 1:
            view = view.expand(int(random.integers(0, 4)), -1, -1, -1)
        tensors[f"view_{i}"] = view if i % 3 else view.squeeze()
    path = tmp_path / "model.pt"
    torch.save(tensors, path, _use_new_zipfile_serialization=is_zip)
    for name, found in read_torch(path).items():
        np.testing.assert_array_equal(found, tensors[name].numpy(), strict=True)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_all_protocols_that_torch_can_save_with_are_read(protocol, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("omegaconf")
    from tools.record import torch_files_recipe as tool

    value = tool.checkpoint()
    content = tool.saved(value, is_zip=True, pickle_protocol=protocol)
    found, expected = read_torch(written(tmp_path, content)), dict(tool.leaves(value))
    for path, part in leaves(found):
        np.testing.assert_array_equal(part, expected[path])


def memory_of_reading(path: Path) -> int:
    """The most bytes that reading a file has taken at any time."""
    tracemalloc.start()
    try:
        read_torch(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_zip", [True, False])
def test_memory_is_that_of_the_arrays_and_of_one_storage(is_zip, tmp_path):
    count, keys = 1_000_000, list("abcdefgh")
    stored = np.ones(count, "<f4").tobytes()
    tensors = [storage("FloatStorage", count, key=key) for key in keys]
    content = whole(b"(" + b"".join(tensors) + b"t")
    if is_zip:
        file = zip_form(content, dict.fromkeys(keys, stored))
    else:
        file = older_form(content, dict.fromkeys(keys, (count, stored)))
    path = written(tmp_path, file)
    read_torch(path)  # whatever the first reading takes
    assert memory_of_reading(path) < (len(keys) + 1.1) * len(stored)
