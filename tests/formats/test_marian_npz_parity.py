"""Marian's own models read from its files, against what Marian makes of lines."""

import importlib
import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from references import Arrays, within

from jax_transformer.config import DecodingConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.beam_search import Hypotheses, beam_search
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.demo import sentence_pairs
from jax_transformer.formats.imported import parameters
from jax_transformer.formats.marian_npz import read_marian_npz
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.load import build_model
from jax_transformer.runs.run_dir import Run
from jax_transformer.types import Params

KINDS = ["swish", "tables", "separate", "prenorm", "untied"]
# Marian's own search leaves out the norm of keys and values in a pre-norm decoder, which Marian
# has in training and scoring: what it finds is not what the model learned.
SEARCHED = [
    pytest.param(kind, marks=pytest.mark.slow if kind == "separate" else pytest.mark.release)
    for kind in KINDS
    if kind != "prenorm"
]
TIE = 1e-4  # nats; closer candidates may change places


class Model(NamedTuple):
    """A model of Marian as ours, and what Marian makes of lines."""

    module: Transformer
    params: Params
    source: Vocabulary
    target: Vocabulary
    decoding: DecodingConfig
    results: dict[str, Any]


def write_folder(recorded: Arrays, kind: str, folder: Path) -> dict[str, Any]:
    """Write a recorded model's files; return Marian's results."""
    files = within(recorded, f"{kind}/")
    results = json.loads(files.pop("results").tobytes())
    for name, content in files.items():
        (folder / name).write_bytes(content.tobytes())
    return results


def read(folder: Path, results: dict[str, Any]) -> Model:
    imported = read_marian_npz(folder)
    run = Run("marian", 0, imported.config())
    module = build_model(run, imported.source, imported.target)
    vocabularies = imported.source, imported.target
    return Model(module, parameters(imported, run), *vocabularies, imported.decoding, results)


@pytest.fixture(scope="module", params=KINDS)
def model(request, marian_files, tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("marian")
    return read(folder, write_folder(marian_files, request.param, folder))


# ---- What our model makes of the same lines -----------------------------------------------


def padded(rows: list[list[int]], pad_id: int) -> np.ndarray:
    """Token ids [B, T]."""
    array = np.full((len(rows), max(map(len, rows))), pad_id)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def sources(model: Model) -> np.ndarray:
    rows = model.source.encode_batch(model.results["source"])
    return padded([[*row, model.source.eos_id] for row in rows], model.source.pad_id)


def log_probs(model: Model, source: np.ndarray, targets: list[list[int]]) -> np.ndarray:
    """Our log P of each target, as it is: the caller adds EOS."""
    score = jax.jit(partial(log_probabilities, model.module, bos_id=model.target.bos_id))
    return np.asarray(score(model.params, source, padded(targets, model.target.pad_id))).sum(axis=1)


def search(model: Model, **changes: Any) -> Hypotheses:
    """Our outputs without <unk>, which Marian's search never writes either."""
    source = sources(model)
    # As long as Marian's limit of the longest source.
    settings = {**vars(model.decoding), "max_extra_length": 2 * source.shape[1], **changes}
    allowed = np.arange(model.target.size)[None] != model.target.unk_id
    run = partial(
        translate,
        model.module,
        decoding=DecodingConfig(**settings),
        bos_id=model.target.bos_id,
        eos_id=model.target.eos_id,
        search=partial(beam_search, allowed=lambda state: allowed),
    )
    return jax.jit(run)(model.params, source)


def with_end(model: Model, outputs: list[list[str]]) -> list[list[int]]:
    """The ids of Marian's pieces, and EOS."""
    ids = {piece: index for index, piece in enumerate(model.target.all_pieces)}
    return [[*(ids[piece] for piece in pieces), model.target.eos_id] for pieces in outputs]


def best(model: Model, found: Hypotheses) -> list[list[int]]:
    """The ids of each line's best output with EOS."""
    rows = np.asarray(found.tokens)[:, 0].tolist()
    return [[index for index in row if index != model.target.pad_id] for row in rows]


def ended(model: Model, outputs: list[list[int]]) -> list[int]:
    """The numbers of the lines whose output is below Marian's limit, 3 times the source."""
    lengths = (sources(model) != model.source.pad_id).sum(axis=1)
    lines = [i for i, output in enumerate(outputs) if len(output) < 3 * lengths[i]]
    assert len(lines) >= 0.8 * len(outputs)
    return lines


# ---- What is compared ---------------------------------------------------------------------


def check_log_probs(model: Model) -> None:
    rows = model.target.encode_batch(model.results["target"])
    found = log_probs(model, sources(model), [[*row, model.target.eos_id] for row in rows])
    np.testing.assert_allclose(found, model.results["log_probs"], rtol=1e-5)


def check_searches(model: Model) -> None:
    """Outputs are equal, but for ties in 1% of the lines at most; so is log P of Marian's."""
    ours, theirs = best(model, search(model, beam_size=1)), with_end(model, model.results["greedy"])
    lines, source = ended(model, theirs), sources(model)
    differing = [i for i in lines if ours[i] != theirs[i]]
    assert len(differing) <= 0.01 * len(lines), [model.results["source"][i] for i in differing]
    for i in differing:
        both = list(zip(ours[i], theirs[i], strict=False))
        end = next(place for place, (a, b) in enumerate(both, start=1) if a != b)
        a, b = log_probs(model, source[[i, i]], [ours[i][:end], theirs[i][:end]])
        assert abs(a - b) < TIE, model.results["source"][i]
    same = [i for i in lines if i not in differing]
    text = model.target.decode_batch(theirs[i][:-1] for i in same)
    assert text == [model.results["greedy_text"][i] for i in same]

    n_best = model.results["n_best"]
    ours, theirs = best(model, search(model)), with_end(model, [best[0][0] for best in n_best])
    lines = ended(model, theirs)
    differing = [model.results["source"][i] for i in lines if ours[i] != theirs[i]]
    assert len(differing) <= 0.01 * len(lines), differing
    log_p = log_probs(model, source[lines], [theirs[i] for i in lines])
    np.testing.assert_allclose(log_p, [n_best[i][0][1] for i in lines], rtol=1e-4)


def test_log_p_of_pairs_is_marians(model):
    check_log_probs(model)


@pytest.mark.parametrize("model", SEARCHED, indirect=True)
def test_greedy_and_beam_search_find_what_marian_finds(model):
    check_searches(model)


@pytest.mark.release
def test_other_lines_give_what_marian_makes_of_them_now(marian_files, tmp_path):
    pytest.importorskip("pymarian", reason="runs Marian, which is 1 GB: pip install pymarian")
    tool: Any = importlib.import_module("tools.record.marian_npz_recipe")
    write_folder(marian_files, "swish", tmp_path)
    source, target = zip(*sentence_pairs("test"), strict=True)
    tool.write_lines(tmp_path / "dev.source", source)
    tool.write_lines(tmp_path / "dev.target", target)
    vocabularies = [str(tmp_path / "joint.spm")] * 2
    results = tool.results_of(tmp_path, vocabularies, "", {"beam-size": 6, "normalize": 1})
    model = read(tmp_path, results)
    check_log_probs(model)
    check_searches(model)
