"""Folders of fairseq and FSMT that cannot be read: one line that names what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_models import recorded_folder

from jax_transformer.errors import InputError
from jax_transformer.formats import fairseq
from jax_transformer.formats.fairseq import read_fairseq
from jax_transformer.formats.fsmt import read_fsmt

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def fairseq_folder(tmp_path) -> Path:
    return recorded_folder("fairseq_shared", tmp_path)


@pytest.fixture
def fsmt_folder(tmp_path) -> Path:
    return recorded_folder("fsmt_two", tmp_path)


def refusal(read: Callable[[Path], object], folder: Path) -> str:
    with pytest.raises(InputError) as refused:
        read(folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("activation_fn", "tanh"),
        ("activation_fn", "gelu_accurate"),
        ("adaptive_softmax_cutoff", "10,20"),
        ("arch", "lightconv"),
        ("bpe", "sentencepiece"),
        ("cross_self_attention", True),
        ("decoder_attention_heads", 4),
        ("encoder_layers_to_keep", "0"),
        ("encoder_normalize_before", True),
        ("layernorm_embedding", True),
        ("no_token_positional_embeddings", True),
        ("source_lang", None),
        ("task", "translation_lev"),
        ("tokenizer", "nltk"),
    ],
)
def test_a_setting_of_fairseq_that_ours_cannot_express_is_named(
    fairseq_folder, monkeypatch, name, value
):
    state = fairseq.read_torch(fairseq_folder / "model.pt")
    read_fairseq(fairseq_folder)
    state["args"][name] = value
    monkeypatch.setattr(fairseq, "read_torch", lambda path: state)
    message = refusal(read_fairseq, fairseq_folder)
    assert str(value) in message or "none" in message


@pytest.mark.parametrize("name", ["dropout", "lenpen", "beam", "max_source_positions"])
def test_a_setting_of_fairseq_of_another_type_is_one_line(fairseq_folder, monkeypatch, name):
    state = fairseq.read_torch(fairseq_folder / "model.pt")
    state["args"][name] = "often"
    monkeypatch.setattr(fairseq, "read_torch", lambda path: state)
    assert "model.pt: " in refusal(read_fairseq, fairseq_folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda arrays: arrays.update({"decoder.lm.weight": np.ones(3, np.float32)}), "decoder.lm"),
        (lambda arrays: arrays.pop("encoder.embed_tokens.weight"), None),
        (lambda arrays: arrays.pop("decoder.layers.0.fc1.weight"), "decoder.layers.0.fc1"),
        (
            lambda arrays: arrays.update({"decoder.embed_tokens.weight": np.ones(3, np.float32)}),
            "3",
        ),
        (lambda arrays: arrays.update({"encoder.version": np.ones(1, np.float32)}), None),
        (
            lambda arrays: arrays.update(
                {
                    name.replace("0", "2"): arrays[name]
                    for name in arrays
                    if "coder.layers.0" in name
                }
            ),
            "encoder.layers.1",
        ),
    ],
)
def test_arrays_that_do_not_make_a_transformer_are_named(
    fairseq_folder, monkeypatch, change, named
):
    state = fairseq.read_torch(fairseq_folder / "model.pt")
    change(state["model"])
    monkeypatch.setattr(fairseq, "read_torch", lambda path: state)
    if named:
        assert named in refusal(read_fairseq, fairseq_folder)
    else:  # tied ones may lack
        read_fairseq(fairseq_folder)


def test_learned_positions_of_both_sides_must_be_the_same(fairseq_folder, monkeypatch):
    """And rows begin after PAD's."""
    state = fairseq.read_torch(fairseq_folder / "model.pt")
    state["args"] |= {"encoder_learned_pos": True, "decoder_learned_pos": True}
    table = np.random.default_rng(0).normal(size=(258, 16)).astype(np.float32)
    for side in ("encoder", "decoder"):
        state["model"][f"{side}.embed_positions.weight"] = table
    monkeypatch.setattr(fairseq, "read_torch", lambda path: state)
    model = read_fairseq(fairseq_folder)
    np.testing.assert_array_equal(model.arrays["position_table"], table[2:])
    assert model.max_length == 256 - model.decoding.max_extra_length
    state["model"]["decoder.embed_positions.weight"] = table + 1
    assert "embed_positions" in refusal(read_fairseq, fairseq_folder)


@pytest.mark.parametrize(
    ("name", "line", "number"),
    [("dict.en.txt", "piece", 3), ("dict.de.txt", "a1 1", 5), ("bpecodes", "l o w e r", 2)],
)
def test_a_wrong_line_is_named(fairseq_folder, name, line, number):
    path = fairseq_folder / name
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[number - 1] = line
    path.write_text("\n".join(lines), encoding="utf-8")
    assert f"{name}, line {number}" in refusal(read_fairseq, fairseq_folder)


@pytest.mark.parametrize("name", ["dict.en.txt", "dict.de.txt", "bpecodes", "model.pt"])
def test_a_missing_file_of_fairseq_is_named(fairseq_folder, name):
    (fairseq_folder / name).unlink()
    assert name.removeprefix("model") in refusal(read_fairseq, fairseq_folder)


def test_of_an_ensemble_one_model_must_be_chosen(fairseq_folder):
    (fairseq_folder / "model2.pt").write_bytes((fairseq_folder / "model.pt").read_bytes())
    assert "model.pt, model2.pt" in refusal(read_fairseq, fairseq_folder)


def test_a_dictionary_of_another_model_is_refused(fairseq_folder):
    for language in ("en", "de"):
        with (fairseq_folder / f"dict.{language}.txt").open("a", encoding="utf-8") as file:
            file.write("more 1\n")
    assert "56" in refusal(read_fairseq, fairseq_folder)


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", lambda x: x.update(model_type="marian"), "marian"),
        ("config.json", lambda x: x.update(activation_function="tanh"), "tanh"),
        ("config.json", lambda x: x.update(decoder_attention_heads=4), "heads"),
        ("config.json", lambda x: x.update(langs=["en"]), "langs"),
        ("config.json", lambda x: x.update(pad_token_id="1"), "pad_token_id"),
        ("config.json", lambda x: x.update(pad_token_id=2), "PAD"),
        ("config.json", lambda x: x.update(scale_embedding="yes"), "scale_embedding"),
        ("generation_config.json", lambda x: x.update(no_repeat_ngram_size=3), "no_repeat_ngram"),
        ("generation_config.json", lambda x: x.update(length_penalty=-1.0), "length_penalty"),
        ("vocab-src.json", lambda x: x.update(more=999), "vocab-src.json"),
        ("vocab-src.json", lambda x: x.update(more="2"), "vocab-src.json"),
        ("vocab-src.json", lambda x: x.pop("a40"), "vocab-src.json"),
        ("vocab-tgt.json", lambda x: x.update(more=len(x)), "target"),
    ],
)
def test_what_is_wrong_in_a_folder_of_fsmt_is_named(fsmt_folder, file, change, named):
    path = fsmt_folder / file
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    assert named in refusal(read_fsmt, fsmt_folder)


@pytest.mark.parametrize(
    "name", ["config.json", "vocab-src.json", "vocab-tgt.json", "merges.txt", "model.safetensors"]
)
def test_a_missing_file_of_fsmt_is_named(fsmt_folder, name):
    (fsmt_folder / name).unlink()
    assert name in refusal(read_fsmt, fsmt_folder)


# ---- Files and settings as they are found -------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("args", value) for value in (5, ["a"], "text", 1.5, True)],
        *[("cfg", value) for value in (5, {}, {"model": 5}, {"model": {}, "task": 5}, ["model"])],
        *[("source_lang", value) for value in ("e\0n", "x" * 5000, "../en", "", 5, ["en"], {})],
        ("target_lang", "a\nb"),
        ("arch", "y" * 5000),
        ("activation_fn", ["relu"]),
        ("encoder_attention_heads", "4" * 5000),
        ("max_source_positions", "1024"),
        ("tokenizer", {"a": 1}),
        ("dropout", [0.1]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_settings_of_another_type_are_one_short_line(fairseq_folder, monkeypatch, name, value):
    state = fairseq.read_torch(fairseq_folder / "model.pt")
    if name in ("args", "cfg"):
        state.pop("args")
        state[name] = value
    else:
        state["args"][name] = value
    monkeypatch.setattr(fairseq, "read_torch", lambda path: state)
    message = refusal(read_fairseq, fairseq_folder)
    assert message.startswith(str(fairseq_folder / "model.pt"))
    assert len(message) < 700


def test_a_table_of_positions_has_a_limit(fairseq_folder, monkeypatch):
    state = fairseq.read_torch(fairseq_folder / "model.pt")
    state["args"]["max_source_positions"] = 10**15
    monkeypatch.setattr(fairseq, "read_torch", lambda path: state)
    assert read_fairseq(fairseq_folder).max_length == fairseq.LONGEST


LETTERS = "abcdefgh"
MADE = [f"{a} {b}" for a in LETTERS for b in LETTERS]


def test_codes_that_lost_their_end_are_refused(fairseq_folder, fsmt_folder, monkeypatch, caplog):
    """Each piece of several letters is made by a merge."""
    pieces = [merge.replace(" ", "") for merge in MADE]
    for folder, codes, dictionary, read, read_pieces in [
        (fairseq_folder, "bpecodes", "dict.en.txt", read_fairseq, "read_dictionary"),
        (fsmt_folder, "merges.txt", "vocab-src.json", read_fsmt, None),
    ]:
        path = folder / dictionary
        if read_pieces:
            lines = path.read_text().split("\n")
            lines[: len(pieces)] = []
            rest = [line for line in lines if line and not line.startswith(("lo", "a"))]
            rows = [f"{piece} 1" for piece in pieces][: 52 - len(rest)]
            kept = len(rows)
            path.write_text("\n".join([*rows, *rest]) + "\n")
            (folder / "dict.de.txt").write_bytes(path.read_bytes())
        else:
            table = json.loads(path.read_text())
            names = [*table][:4] + pieces
            kept = len(table) - 4
            path.write_text(json.dumps({name: i for i, name in enumerate(names[: len(table)])}))
        for count, refused in [(kept, False), (kept - 2, True), (kept // 2, True)]:
            (folder / codes).write_text("".join(f"{merge}\n" for merge in MADE[:count]))
            if not refused:
                read(folder)
            else:
                message = refusal(read, folder)
                assert str(folder / codes) in message
                assert f"none for {kept - count}" in message
        (folder / codes).write_text("x y\n")
        caplog.clear()
        read(folder)
        assert f"none for {kept}" in caplog.text


@pytest.mark.parametrize("line", ["alone", "a b c", "a\tb"])
def test_a_line_of_merges_that_is_no_pair_is_named(fsmt_folder, line):
    path = fsmt_folder / "merges.txt"
    before = read_fsmt(fsmt_folder).source.content
    path.write_text("#version: 0.2\n" + path.read_text() + "\n")
    assert read_fsmt(fsmt_folder).source.content == before
    path.write_text(path.read_text().rstrip() + f"\n{line}\n", encoding="utf-8")
    assert "merges.txt, line 4" in refusal(read_fsmt, fsmt_folder)


def test_a_vocabulary_with_a_piece_twice_is_refused(fsmt_folder):
    path = fsmt_folder / "vocab-src.json"
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "low": 5}')
    assert "low" in refusal(read_fsmt, fsmt_folder)
