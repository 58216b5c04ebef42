"""experiments.import_model on folders of MarianMTModel, against results that transformers gave.

tools/record/marian_folders_recipe.py recorded the folders and the results.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from commands import files_of, metrics, only_error, run_command, text_flags
from hub_server import Library, hub_of
from references import FOLDER

import jax_transformer as jt
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.formats.torch_files import read_torch

KINDS = ["swish", "relu", "gelu"]
LONGEST, LIMIT = 24, 40  # tokens of a source, and of an output
SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4, "patience": 0.0},
    "beam, first four": {"beam_size": 4, "patience": 1.0},
}


def write_folder(kind: str, folder: Path) -> dict[str, Any]:
    """Write a recorded folder; the recorded results."""
    folder.mkdir(parents=True)
    with np.load(FOLDER / "marian_folders.npz") as recorded:
        for name in recorded:
            if name.startswith(f"{kind}/"):
                (folder / name.removeprefix(f"{kind}/")).write_bytes(recorded[name].tobytes())
        return json.loads(str(recorded[f"results/{kind}"]))


@pytest.fixture(scope="module", params=KINDS)
def imported(request, tmp_path_factory) -> Any:
    """The run folder of an imported model, the model, and the recorded results."""
    folder = tmp_path_factory.mktemp("marian")
    expected = write_folder(request.param, folder / "theirs")
    flags = ["--format=marian", f"--input={folder / 'theirs'}", f"--workdir={folder / 'run'}"]
    done = run_command("import_model", *flags)
    assert "translate with" in done.stdout
    return folder / "run", jt.load(folder / "run"), expected


def padded(rows: list[list[int]], vocabulary: Any) -> np.ndarray:
    return np.array([row + [vocabulary.pad_id] * (LONGEST - len(row)) for row in rows], np.int32)


def test_ids_are_theirs(imported):
    _, model, expected = imported
    for side, name in ((model.vocabulary, "source"), (model.target_vocabulary, "target")):
        # White space that the model never saw is a space here, and <unk> in transformers.
        rows = zip(expected[f"{name}s"], expected[f"{name}_ids"], strict=True)
        lines, ids = zip(*(row for row in rows if "\t" not in row[0]), strict=True)
        assert len(lines) > len(expected[f"{name}s"]) - 2
        assert [[*row, side.eos_id] for row in side.encode_batch(lines)] == [*ids]


def test_log_p_is_theirs(imported):
    _, model, expected = imported
    source, target = model.vocabulary, model.target_vocabulary
    found = jax.jit(partial(log_probabilities, model.module, bos_id=target.bos_id))(
        model.params, padded(expected["source_ids"], source), padded(expected["target_ids"], target)
    )
    np.testing.assert_allclose(np.asarray(found).sum(axis=1), expected["log_probs"], rtol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imported", "search"),
    [
        ("swish", "greedy"),
        ("gelu", "beam"),
        pytest.param("relu", "beam, first four", marks=pytest.mark.release),
    ],
    indirect=["imported"],
)
def test_outputs_are_theirs(imported, search):
    _, model, expected = imported
    source, target = model.vocabulary, model.target_vocabulary
    settings: Any = {**SEARCHES[search], "max_extra_length": LIMIT}
    decoding = dataclasses.replace(model.config.decoding, **settings)
    ids = {"bos_id": target.bos_id, "eos_id": target.eos_id}
    found: Any = partial(translate, model.module, decoding=decoding, length=LIMIT, **ids)
    tokens = jax.jit(found)(model.params, source=padded(expected["source_ids"], source)).tokens
    outputs = [row[: row.index(0) + 1] for row in np.asarray(tokens)[:, 0].tolist() if 0 in row]
    theirs = expected["outputs"][search]
    same = [ours == row for ours, row in zip(outputs, theirs, strict=True) if len(row) < LIMIT]
    assert np.mean(same) >= 0.97
    texts = target.decode_batch(theirs)
    if search == "greedy":
        assert texts == expected["texts"]


@pytest.mark.release
@pytest.mark.parametrize("imported", ["swish"], indirect=True)
def test_an_imported_run_is_a_run_like_any_other(imported, tmp_path):
    run, model, expected = imported
    flag, few = f"--workdir={run}", slice(3, 7)
    search = ["--set=decoding.beam_size=1", f"--set=decoding.max_extra_length={LIMIT}"]
    sources, targets = expected["sources"][few], expected["targets"][few]
    texts = {"source": sources, "target": targets, "reference": expected["texts"][few]}
    files = {name: f"--{name}={tmp_path / name}" for name in texts}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = run_command("translate", flag, *search, stdin=(tmp_path / "source").read_bytes())
    assert done.stdout.splitlines() == texts["reference"]
    scores = run_command("score", flag, files["source"], files["target"]).stdout.splitlines()
    found = [float(line.split("\t")[0]) for line in scores]
    np.testing.assert_allclose(found, expected["log_probs"][few], rtol=1e-4)
    done = run_command("evaluate", flag, *search, files["source"], files["reference"])
    assert "100.0" in done.stdout
    maps = model.attention_maps(sources[0], targets[0])
    assert [*maps["decoder_0/cross_attention"].keys] == model.vocabulary.pieces(
        expected["source_ids"][few][0]
    )
    assert maps["decoder_0/self_attention"].queries[0] == "<pad>"


@pytest.mark.parametrize("imported", ["relu"], indirect=True)
@pytest.mark.release
def test_a_run_continues_from_an_imported_model(imported, tmp_path):
    run, model, expected = imported
    few = [i for i, line in enumerate(expected["sources"][:16]) if "\t" not in line]
    for side in ("source", "target"):
        lines = "".join(f"{expected[f'{side}s'][i]}\n" for i in few)
        for split in ("train", "dev"):
            path = tmp_path / f"{split}.{'en' if side == 'source' else 'de'}"
            path.write_text(lines, encoding="utf-8")
    text = [flag for flag in text_flags(tmp_path) if not flag.startswith("--test")]
    changes = {"steps": 8, "learning_rate": 0.01, "warmup_steps": 1, "freeze": "embedding"}
    changes |= {"evaluate_steps": 8, "batch_tokens": 128, "average_last": 1}
    settings = [f"--set=training.{name}={value}" for name, value in changes.items()]
    new = tmp_path / "run"
    run_command("train", f"--init_from={run}", f"--workdir={new}", *text, *settings)
    before, after = metrics(new, "dev")
    assert (before["step"], after["step"]) == (0, 8)
    assert after["nll"] < before["nll"]
    tokens = sum(len(expected["target_ids"][i]) for i in few)
    log_prob = sum(expected["log_probs"][i] for i in few)
    assert before["nll"] == pytest.approx(-log_prob / tokens, rel=1e-5)
    trained = jt.load(new)
    assert trained.target_vocabulary.fingerprint == model.target_vocabulary.fingerprint
    frozen = (loaded.params["embedding"]["matrix"] for loaded in (trained, model))
    np.testing.assert_array_equal(*frozen)


@pytest.mark.parametrize("imported", ["swish"], indirect=True)
def test_an_imported_run_is_neither_trained_nor_averaged_nor_replaced(imported):
    run, _, _ = imported
    before = files_of(run)
    for command in (["train"], ["prepare", "--experiment=demo"]):
        error = only_error(*command, f"--workdir={run}")
        assert "found a model without text" in error
    assert "a finished model alone" in only_error("average", f"--workdir={run}")
    flags = ["--format=marian", f"--input={run.parent / 'theirs'}", f"--workdir={run}"]
    assert f"{run}: expected a new folder" in only_error("import_model", *flags)
    assert files_of(run) == before


@pytest.mark.slow
def test_what_the_hub_refuses_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub", reason="pip install -e '.[hub]'")
    write_folder("swish", tmp_path / "theirs")
    run = tmp_path / "run"
    with hub_of(Library(monkeypatch), tmp_path / "home") as hub:
        hub.models["owner/name"] = {"main": tmp_path / "theirs"}
        hub.gated.add("owner/name")
        for address, word in (("name", "gated"), ("absent", "none"), ("name@old", "branch")):
            flags = [f"--input=hf://owner/{address}", f"--workdir={run}"]
            assert word in only_error("import_model", *flags)
        assert not run.exists()
        hub.gated.clear()
        run_command("import_model", "--input=hf://owner/name", f"--workdir={run}")
    assert jt.load(run).config.model.num_layers == 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A recorded folder, to be copied and damaged; its weights as safetensors have them."""
    folder = tmp_path_factory.mktemp("whole") / "swish"
    write_folder("swish", folder)
    return folder


def edited(name: str, **changes: Any) -> Callable[[Path], object]:
    """A change of values in a JSON file; None removes one."""

    def edit(folder: Path) -> None:
        values = json.loads((folder / name).read_text(encoding="utf-8")) | changes
        values = {key: value for key, value in values.items() if value is not None}
        (folder / name).write_text(json.dumps(values), encoding="utf-8")

    return edit


def arrays(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], object]:
    """A change of the arrays, which are written as safetensors."""

    def edit(folder: Path) -> None:
        numpy = pytest.importorskip("safetensors.numpy", reason="pip install -e '.[export]'")
        path = folder / "pytorch_model.bin"
        found = {name: np.array(array) for name, array in read_torch(path).items()}
        change(found)
        path.unlink()
        numpy.save_file(found, folder / "model.safetensors")

    return edit


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


CONFIG, LAYER = partial(edited, "config.json"), "model.decoder.layers.0.fc1.weight"
HEAD = partial(edited, "generation_config.json")
# Damage to a folder -> words of the line.
MISTAKES: list[tuple[Callable[[Path], object], str]] = [
    (removed("target.spm"), "target.spm none"),
    (removed("pytorch_model.bin"), "pytorch_model.bin neither"),
    *((cut(name), name) for name in ("source.spm", "pytorch_model.bin")),
    (CONFIG(d_model="16"), "d_model '16' whole number"),
    (CONFIG(d_model=32), "32 (127, 16)"),
    (CONFIG(encoder_layers=2**31 - 1), "encoder.layers.2 none"),
    (CONFIG(scale_embedding=False), "scale_embedding False"),
    (CONFIG(decoder_start_token_id=7, pad_token_id=9**9), "decoder_start_token_id 7"),
    (HEAD(no_repeat_ngram_size=3), "no_repeat_ngram_size 3"),
    (HEAD(bad_words_ids=[[4, 5]]), "[4, 5]"),
    (edited("vocab.json", a=4, b=4), "vocab.json 4 'b'"),
    (edited("vocab.json", **{"<unk>": None}), "<unk> vocab.json"),
    (arrays(lambda a: a.update({LAYER: np.full((16, 16), 1e300)})), "inner/kernel finite"),
    (arrays(lambda a: a.update({LAYER: np.ones((16, 16), np.int64)})), f"{LAYER} I64"),
    (arrays(lambda a: a.pop(LAYER)), f"{LAYER} none"),
    (arrays(lambda a: a["model.shared.weight"].fill(1)), "shared.weight tie_word_embeddings"),
    (arrays(lambda a: a["model.encoder.embed_positions.weight"].fill(1)), "position decoder"),
]


@pytest.mark.parametrize(("damage", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_in_a_folder_is_one_line_and_leaves_nothing(damage, words, whole, tmp_path):
    folder, run = shutil.copytree(whole, tmp_path / "theirs"), tmp_path / "run"
    damage(folder)
    before = files_of(tmp_path)
    error = only_error("import_model", "--format=marian", f"--input={folder}", f"--workdir={run}")
    assert all(word in error for word in words.split()), error
    assert files_of(tmp_path) == before
    assert not run.exists()
