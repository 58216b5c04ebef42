"""CTranslate2's files before version 6, and Argos Translate's packages, which hold such files.

The recorded folders are written again as older versions had them; CTranslate2 reads those too.
"""

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_data import real_data
from refusals import refusal

import jax_transformer as jt
from jax_transformer.formats import read_model
from jax_transformer.formats.ctranslate2 import read_ctranslate2
from jax_transformer.formats.ctranslate2_file import read_model_file
from jax_transformer.formats.imported import write_run_folder
from jax_transformer.runs.run_dir import RunFolder
from tools.record.ctranslate2_parts import write_model_file

ENCODER, DECODER = "encoder/embeddings_0/weight", "decoder/embeddings/weight"
SHARED = ("num_heads", "pre_norm", "activation")


@pytest.fixture
def write_old(converted, tmp_path):
    """A function that writes a recorded folder as an older version had it."""

    def write(name: str, version: int, revision: int, spec="TransformerSpec", **changed) -> Path:
        folder = tmp_path / f"{name}-{version}-{revision}"
        shutil.copytree(converted / name, folder)
        variables: dict[str, Any] = {**read_model_file(folder / "model.bin").variables}
        settings = json.loads((folder / "config.json").read_text())
        (folder / "config.json").unlink()
        if revision < 5:
            variables["encoder/embeddings/weight"] = variables.pop(ENCODER)
            for option in SHARED:
                variables[option] = variables.pop(f"decoder/{option}").astype(np.int8)
                del variables[f"encoder/{option}"]
        if revision < 3:
            del variables["num_heads"]
        variables["with_source_eos"] = np.int8(settings["add_source_eos"])
        start = settings["decoder_start_token"]
        variables["with_target_bos"] = np.int8(start == settings["bos_token"] != "</s>")
        for token in ("unk_token", "bos_token", "eos_token"):
            if settings[token] not in ("<unk>", "<s>", "</s>"):
                variables[token] = np.frombuffer(settings[token].encode(), np.int8)
        variables |= changed
        variables = {option: array for option, array in variables.items() if array is not None}
        write_model_file(folder / "model.bin", version, spec, revision, variables, {})
        for path in folder.glob("*_vocabulary.json"):
            table = json.loads(path.read_text(encoding="utf-8"))
            path.with_suffix(".txt").write_bytes("\r\n".join([*table, ""]).encode())
            path.unlink()
        return folder

    return write


@pytest.mark.parametrize(("version", "revision"), [(2, 3), (3, 4), (4, 5), (5, 5)])
def test_an_older_version_is_the_same_model(converted, write_old, version, revision):
    found = read_ctranslate2(write_old("opennmt", version, revision))
    expected = read_ctranslate2(converted / "opennmt")
    assert found.model == expected.model
    assert found.source.content == expected.source.content
    assert found.target.content == expected.target.content
    assert found.arrays.keys() == expected.arrays.keys()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)


def test_the_name_tells_the_heads_before_revision_3(write_old):
    folder = write_old("opennmt", 2, 2, "TransformerBig")
    assert read_ctranslate2(folder).model.num_heads == 16


def test_whole_numbers_without_a_scale_are_thousandths(tmp_path):
    array = np.array([[1, -2000]], np.int16)
    variables = {"a/weight": array, "a/count": np.int16(7)}
    write_model_file(tmp_path / "model.bin", 2, "T", 1, variables, {})
    found = read_model_file(tmp_path / "model.bin").variables
    np.testing.assert_allclose(found["a/weight"], [[1e-3, -2]], rtol=1e-6)
    assert found["a/count"] == 7


def test_a_table_without_unk_has_it_in_the_last_row(write_old):
    folder = write_old("opennmt", 3, 4)
    path = folder / "source_vocabulary.txt"
    first, *others = path.read_text(encoding="utf-8").split()
    assert first == "<unk>"
    path.write_text("\n".join(others), encoding="utf-8")
    found = read_ctranslate2(folder)
    rows = len(found.arrays["embedding/matrix"])
    assert found.source.all_pieces == [*others, "<unk>"]
    assert found.source.unk_id == found.source.size - 1 == rows - 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"with_relative_position": np.int8(1)}, "with_relative_position=1"),
        ({"with_source_bos": np.int8(1)}, "add_source_bos=True"),
        ({"user_decoder_start_tokens": np.int8(1)}, "decoder_start_token"),
        ({"unk_token": np.frombuffer(b"<none>", np.int8)}, "<none>"),
        ({"encoder/embeddings/weight": np.ones((58, 0), np.float32)}, ENCODER),
    ],
    ids=str,
)
def test_an_older_option_that_ours_do_not_express_is_named(write_old, change, named):
    assert named in refusal(read_ctranslate2, write_old("opennmt", 4, 4, **change))


# ---- Packages -----------------------------------------------------------------------------


@pytest.fixture
def package(converted, write_old, tmp_path) -> Path:
    """The folder of a package of Argos Translate."""
    folder = tmp_path / "translate-ab_cd-1_0"
    model = write_old("opennmt", 2, 4)
    shutil.copytree(model, folder / "model", ignore=shutil.ignore_patterns("*.spm", "*.model"))
    (spm,) = {path.read_bytes() for path in model.iterdir() if path.suffix in (".spm", ".model")}
    (folder / "sentencepiece.model").write_bytes(spm)
    metadata = {"package_version": "1.0", "from_code": "ab", "to_code": "cd", "from_name": "Ab"}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "stanza").mkdir()
    (folder / "README.md").write_text("a package")
    return folder


def zipped(folder: Path, **options: Any) -> Path:
    path = folder.parent / "translate-ab_cd-1_0.argosmodel"
    with zipfile.ZipFile(path, "w", strict_timestamps=False, **options) as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder.parent))
    return path


def test_a_package_is_read_packed_and_unpacked(converted, package):
    expected = read_ctranslate2(converted / "opennmt")
    for given in (package, zipped(package, compression=zipfile.ZIP_DEFLATED)):
        found = read_model("ctranslate2", given)
        assert found.languages == ("ab", "cd")
        assert (found.decoding.beam_size, found.decoding.alpha) == (4, 0.2)
        np.testing.assert_array_equal(
            found.arrays["embedding/matrix"], expected.arrays["embedding/matrix"]
        )


def test_what_is_wrong_in_a_package_is_named_by_its_own_path(package, tmp_path):
    (package / "model" / "source_vocabulary.txt").unlink()
    path = zipped(package)
    assert f"{path}/model: expected shared_vocabulary" in refusal(read_model, "ctranslate2", path)
    path.write_bytes(path.read_bytes()[:-100])
    assert f"{path}: expected" in refusal(read_model, "ctranslate2", path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.bin", b"\0" * 10_000_000)
    assert "10,000,000 bytes" in refusal(read_model, "ctranslate2", path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("model.bin", b"abc")
    assert "by another method than deflate" in refusal(read_model, "ctranslate2", path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../outside", "x")
    assert str(path) in refusal(read_model, "ctranslate2", path)
    assert not (tmp_path.parent / "outside").exists()


# ---- A model that others have trained -----------------------------------------------------

# Arabic letters with the Latin ones, the first three as CTranslate2's own tests have them.
NAMES = {
    "\u0622 \u062a \u0632 \u0645 \u0648 \u0646": "a t z m o n",
    "\u0622 \u0632 \u0627": "a z z a",
}


@pytest.mark.slow
def test_names_of_a_real_model_of_version_2_are_transliterated(tmp_path):
    """Its folder has no model of sentencepiece: its text is pieces with spaces between them."""
    folder = real_data("ctranslate2_aren") / "v2"
    given = folder / "aren-transliteration"
    imported = read_model("ctranslate2", given)
    for kind in ("i16", "i8"):
        found = read_model("ctranslate2", folder / f"aren-transliteration-{kind}")
        assert found.model == imported.model
        for name, array in imported.arrays.items():
            most = 1.01e-3 if kind == "i16" else np.abs(array).max() / 120
            np.testing.assert_allclose(found.arrays[name], array, atol=most, rtol=0)
    decoding = replace(imported.decoding, max_extra_length=16)  # shorter ones take less time
    short = replace(imported, decoding=decoding, max_length=16)
    write_run_folder(short, RunFolder(tmp_path / "run"), "aren", "v2")
    model = jt.load(tmp_path / "run")
    unknown, encode = model.vocabulary.unk_id, model.vocabulary.encode
    letters = [letter for letter in map(chr, range(0x627, 0x64B)) if letter.isalpha()]
    letters = [letter for letter in letters if unknown not in encode(letter)]
    draw = np.random.default_rng(0)
    words = [draw.choice(letters, draw.integers(2, 9)).tolist() for _ in range(200)]
    lines = [*NAMES, next(iter(NAMES)), *map(" ".join, words)]
    found = model.translate(lines, prefixes=["", "", "a t s", *[""] * len(words)])
    assert found[:3] == [*NAMES.values(), "a t s u m o n"]
    ctranslate2 = pytest.importorskip("ctranslate2", reason="pip install -e '.[export]'")
    theirs = ctranslate2.Translator(str(given), compute_type="float32", intra_threads=1)
    expected = [" ".join(found.hypotheses[0]) for found in theirs.translate_batch(words)]
    assert sum(a != b for a, b in zip(found[3:], expected, strict=True)) <= 1
