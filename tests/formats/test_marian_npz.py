"""Reading Marian's files: what is accepted, and what is refused in one line."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_folders import change_arrays, set_option, set_search
from references import Arrays, within
from refusals import refusal

from jax_transformer.formats.marian_npz import OPTIONS, read_marian_npz, read_npz
from jax_transformer.formats.piece_tables import read_yaml


@pytest.fixture
def folder(marian_files, tmp_path, request) -> Path:
    """A model's folder: `swish` unless the test's parameter is another."""
    files = within(marian_files, f"{getattr(request, 'param', 'swish')}/")
    for name, content in files.items():
        if name != "results":
            (tmp_path / name).write_bytes(content.tobytes())
    return tmp_path


# ---- What is accepted ---------------------------------------------------------------------


def test_settings_are_those_of_the_model_and_of_decoder_yml(folder):
    found = read_marian_npz(folder)
    assert (found.model.num_layers, found.model.num_decoder_layers) == (2, 1)
    assert (found.model.d_model, found.model.d_ff, found.model.num_heads) == (16, 32, 2)
    assert (found.model.activation, found.model.norm_position) == ("swish", "post")
    assert (found.model.max_positions, found.max_length) == (1050, 1000)
    assert (found.decoding.beam_size, found.decoding.alpha) == (6, 1.0)
    assert found.decoding.length_penalty == "length"
    assert found.source is found.target
    set_search(folder, max_length=3000, output_sampling=False)
    found = read_marian_npz(folder)
    assert found.max_length == 3000
    assert found.model.max_positions == 3000 + found.decoding.max_extra_length
    found.config()  # settings agree


def test_files_are_found_whatever_folders_decoder_yml_names(folder):
    paths = ["/home/somebody/joint.spm", "D:\\models\\joint.spm"]
    set_search(folder, models=["/elsewhere/model.npz"], vocabs=paths)
    (folder / "decoder.yml").rename(folder / "model.npz.decoder.yml")
    assert read_marian_npz(folder).source.size == 241


def test_packed_archives_and_float32_are_read(folder):
    def widen(arrays: Arrays) -> None:
        for name in arrays.keys() - {OPTIONS}:
            arrays[name] = arrays[name].astype(np.float32)

    before = read_marian_npz(folder).arrays
    change_arrays(folder, widen)
    with np.load(folder / "model.npz") as arrays:
        np.savez_compressed(folder / "model.npz", **dict(arrays))
    after = read_marian_npz(folder).arrays
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_pieces_are_text_whatever_yaml_takes_them_for():
    text = 'no: 0\n~: 1\n1.5: 2\n"\\"": 3\n\'it\'\'s\': 4\n<<: 5\n? long\n: 6\n"\\u2581x": 7\n"": 8'
    pieces = ["no", "~", "1.5", '"', "it's", "<<", "long", "\u2581x", ""]
    table = {piece: str(index) for index, piece in enumerate(pieces)}
    for content in (text, json.dumps(table)):
        assert read_yaml(Path("vocab.yml"), content.encode(), text_only=True) == table


def write_table(folder: Path, name: str, content: str) -> Path:
    """Make a table the vocabulary of both sides, whose text joint.spm cuts."""
    (folder / name).write_bytes(content.encode())
    for side in ("source.spm", "target.spm"):
        shutil.copyfile(folder / "joint.spm", folder / side)
    set_search(folder, vocabs=[name, name])
    return folder / name


def lines(pieces: list[str]) -> str:
    return "".join(f"{piece}: {index}\n" for index, piece in enumerate(pieces))


PIECES = ["</s>", "<unk>", *(f"p{i}" for i in range(238))]  # the model has 240 rows


def test_a_few_rows_without_a_piece_fill_up_a_multiple_of_8(folder):
    write_table(folder, "joint.yml", lines(PIECES[:233]))
    found = read_marian_npz(folder).target.all_pieces
    assert (found[:233], len(found), len(set(found))) == (PIECES[:233], 241, 241)


def test_a_table_may_have_a_piece_pad_that_is_not_the_decoders_start(folder):
    pieces = [*PIECES[:2], "<pad>", *PIECES[3:]]
    write_table(folder, "joint.yml", lines(pieces))
    found = read_marian_npz(folder).target
    assert found.all_pieces[:240] == pieces
    assert (found.pad_id, found.bos_id, found.size) == (240, 240, 241)


def test_a_table_that_is_cut_or_of_another_model_is_refused_with_both_numbers(folder):
    rows = lines([*PIECES, "more"]).splitlines(keepends=True)
    for kept in (rows[:232], rows[:2], rows, rows[:100] + rows[120:240]):
        path = write_table(folder, "joint.yml", "".join(kept))
        message = refusal(read_marian_npz, folder)
        assert str(path) in message
        assert "240 rows" in message
        assert f"{len(kept)} with" in message


ODD = [chr(code) for code in (0x0B, 0x1C, 0x7F, 0x85, 0x9F, 0xA0, 0xAD, 0x2028, 0x2029, 0xFEFF)]
ODD += ["\ufffe", "\uffff", "a\rb", "\U000f0041", "# x", "- y", "'", "x: y", "\u2581:"]


@pytest.mark.parametrize(("form", "end"), [("{0}: {1}\n", "\n"), ("? {0}\n: {1}\n", "\r\n")])
def test_raw_control_characters_and_odd_pieces_keep_their_ids(folder, form, end):
    pieces = [*PIECES[:2], *ODD, *PIECES[2 + len(ODD) :]]
    text = "".join(form.format(f'"{p}"', i) for i, p in enumerate(pieces))
    write_table(folder, "joint.yml", "\ufeff" + text.replace("\n", end))
    assert read_marian_npz(folder).source.all_pieces == [*pieces, "<pad>"]


@pytest.mark.parametrize(("name", "end"), [("joint.src.vocab", "\n"), ("vocab", "\r\n")])
def test_a_list_has_a_piece_in_each_line(folder, name, end):
    pieces = [*PIECES[:2], "yes", "1", "{", "\u2028", "\x85", "#", *PIECES[8:]]
    path = write_table(folder, name, "\ufeff" + end.join(pieces) + end)
    assert read_marian_npz(folder).source.all_pieces == [*pieces, "<pad>"]
    path.write_text("\n".join([*pieces[:-2], "", "1"]))
    assert str(path) in refusal(read_marian_npz, folder)


# ---- What is refused ----------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["prenorm"], indirect=True)
def test_pre_norm_models_of_versions_with_other_keys_and_values_are_refused(folder):
    assert read_marian_npz(folder).model.norm_position == "pre"
    for version in ("v1.10.24 4dd30b5 2021-06-07", None):
        set_option(folder, version=version)
        message = refusal(read_marian_npz, folder)
        assert "1.11" in message
        assert str(version) in message


def test_gelu_of_versions_that_approximate_it_is_refused(folder):
    changes = {"transformer-ffn-activation": "gelu"}
    for version in ("v1.12.0 65bf82f 2023-02-21", "v1.11.5", None):
        set_option(folder, version=version, **changes)
        message = refusal(read_marian_npz, folder)
        assert "1.12.0" in message
        assert str(version) in message
    set_option(folder, version="v1.12.42 abc", **changes)
    assert read_marian_npz(folder).model.activation == "gelu"


def test_nothing_is_unpickled(folder):
    class Opens:
        def __reduce__(self) -> Any:
            return open, (str(folder / "opened"), "w")

    change_arrays(folder, lambda arrays: arrays.update(Wemb=np.array([Opens()], object)))
    assert str(folder / "model.npz") in refusal(read_npz, folder / "model.npz")
    assert not (folder / "opened").exists()


def test_a_member_that_is_no_array_is_named_and_those_of_macos_are_left_out(folder):
    for name in ("__MACOSX/._W.npy", "sub/x.txt"):
        with zipfile.ZipFile(folder / "model.npz", "a") as archive:
            archive.writestr(name, b"\0\5\x16\7text")
        if name == "sub/x.txt":
            assert name in refusal(read_marian_npz, folder)
        else:
            read_marian_npz(folder)


def test_damaged_files_are_refused(folder):
    path = folder / "model.npz"
    content = path.read_bytes()
    for damaged in (b"", content[:-100], content.replace(b"'<f2'", b"'>f2'")):
        path.write_bytes(damaged)
        assert str(path) in refusal(read_marian_npz, folder)
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    assert str(path) in refusal(read_marian_npz, folder)


def test_of_several_models_one_must_be_chosen(folder):
    for name in ("a.npz.decoder.yml", "b.npz.decoder.yml"):
        shutil.copyfile(folder / "decoder.yml", folder / name)
    (folder / "decoder.yml").unlink()
    message = refusal(read_marian_npz, folder)
    assert "a.npz.decoder.yml, b.npz.decoder.yml" in message


def test_an_archive_beyond_two_gigabytes_has_another_end(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    np.savez(tmp_path / "model.npz", one=np.ones(3), two=np.zeros(2))
    monkeypatch.undo()
    found = read_npz(tmp_path / "model.npz")
    assert {name: array.tolist() for name, array in found.items()} == {
        "one": [1, 1, 1],
        "two": [0, 0],
    }
