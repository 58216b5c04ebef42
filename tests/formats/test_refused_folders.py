"""Folders of other programs that cannot be read: one line that names what is wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_folders import READ, change, change_arrays, set_option, set_search
from refusals import refusal

from jax_transformer.formats import fairseq, read_model
from jax_transformer.formats.ctranslate2_file import read_model_file
from jax_transformer.formats.imported import parameters
from jax_transformer.formats.marian_npz import OPTIONS
from jax_transformer.formats.torch_files import read_torch
from jax_transformer.runs.run_dir import Run
from tools.record.ctranslate2_parts import write_model_file

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 312087009\n"
TWO = np.ones(2, np.float32)
BOTH = ("encoder", "decoder")


def read_whole(form: str, folder: Path) -> None:
    """Read the folder, and compare its arrays with the model that its settings describe."""
    imported = read_model(form, folder)
    parameters(imported, Run("imported", 0, imported.config()))


@pytest.mark.parametrize(
    ("form", "name"), [(f, name) for f, names in READ.items() for name in names]
)
def test_each_file_may_be_missing_a_pointer_of_git_lfs_or_a_pipe(make, form, name):
    folder = make(form)
    read_whole(form, folder)
    (folder / name).write_text(POINTER)
    message = refusal(read_model, form, folder)
    assert message.startswith(str(folder / name))
    for words in ("pointer of Git LFS", "git lfs pull", "hf download"):
        assert words in message
    for content in (b"", b"\xff\xfe", b"[" * 100_000):
        (folder / name).write_bytes(content)
        refusal(read_model, form, folder)
    pipe(folder, name)
    assert "pipe" in refusal(read_model, form, folder)
    (folder / name).unlink()
    assert name.removeprefix("model").removeprefix("joint") in refusal(read_model, form, folder)


def set_variables(folder: Path, changed: dict[str, Any], name="TransformerSpec", revision=7):
    """Write model.bin again with variables added or replaced; None leaves one out."""
    variables = {**read_model_file(folder / "model.bin").variables, **changed}
    kept = {name: array for name, array in variables.items() if array is not None}
    write_model_file(folder / "model.bin", 6, name, revision, kept, {})


# ---- Edits for tables: functions of a folder -----------------------------------------------

Edit = Callable[[Path, pytest.MonkeyPatch], object]


def edit(function: Callable[..., object], *arguments: Any, **options: Any) -> Edit:
    """Call a function above with the folder."""
    return lambda folder, _: function(folder, *arguments, **options)


def in_json(file: str, **values: Any) -> Edit:
    return lambda folder, _: change(folder / file, **values)


def text(file: str, content: str) -> Edit:
    return lambda folder, _: (folder / file).write_text(content, encoding="utf-8")


def line(file: str, number: int, content: str) -> Edit:
    """Replace a line of a file, counted from 1."""

    def replace(folder: Path, _: pytest.MonkeyPatch) -> None:
        lines = (folder / file).read_text(encoding="utf-8").split("\n")
        lines[number - 1] = content
        (folder / file).write_text("\n".join(lines), encoding="utf-8")

    return replace


def checkpoint(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Change what fairseq's model.pt gives."""

    def replace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        state = read_torch(folder / "model.pt")
        change(state)
        monkeypatch.setattr(fairseq, "read_torch", lambda path: state)

    return replace


def args(**values: Any) -> Edit:
    """Change settings of fairseq."""
    return checkpoint(lambda state: state["args"].update(values))


def pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


def arrays(change: Callable[[dict[str, Any]], object]) -> Edit:
    """Change the arrays of fairseq's model.pt."""
    return checkpoint(lambda state: change(state["model"]))


def settings(name: str, value: Any) -> Edit:
    """Put something else in place of all settings of fairseq."""

    def replace(state: dict[str, Any]) -> None:
        state.pop("args")
        state[name] = value

    return checkpoint(replace)


def another_layer(arrays: dict[str, Any]) -> None:
    """Give both stacks a third layer, and no second."""
    names = [name for name in arrays if "coder.layers.0" in name]
    arrays |= {name.replace("0", "2"): arrays[name] for name in names}


def set_array(name: str, array: np.ndarray | None) -> Edit:
    """Replace an array of model.npz; None leaves it out."""

    def change(arrays: dict[str, Any]) -> None:
        arrays.pop(name, None)
        arrays |= {} if array is None else {name: array}

    return edit(change_arrays, change)


def variables(**changed: Any) -> Edit:
    """Change variables of model.bin; `__` stands for `/` in a name."""
    named = {name.replace("__", "/"): value for name, value in changed.items()}
    return edit(set_variables, named)


def tables(file: str, content: str) -> Edit:
    """Make another file the vocabulary of both sides."""

    def write(folder: Path) -> None:
        (folder / file).write_text(content)
        set_search(folder, vocabs=[file, file])

    return edit(write)


def pieces(file: str, change: Callable[[Any], Any]) -> Edit:
    """Write what a function makes of a table of pieces."""

    def write(folder: Path) -> None:
        table = json.loads((folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(json.dumps(change(table)), encoding="utf-8")

    return edit(write)


LAYER = "encoder__layer_0__self_attention__"
WHOLE = {"content": "a", "single_word": True}
LOST = np.frombuffer(b"a: [\0", np.int8)
ALIASES = np.frombuffer(
    "".join(f"k{i}: &b{i} [*b{i - 1}, *b{i - 1}]\n" for i in range(1, 60)).encode(), np.int8
)

# A change of a format's recorded folder, and words that the line must contain.
FAIRSEQ: list[tuple[Edit, str]] = [
    (args(activation_fn=["relu"]), "model.pt activation_fn"),
    (args(adaptive_softmax_cutoff="10,20"), "adaptive_softmax_cutoff 10,20"),
    (args(arch="lightconv"), "arch lightconv"),
    (args(arch="y" * 5000), "model.pt arch"),
    (args(decoder_attention_heads=4), "heads 4"),
    (args(encoder_normalize_before=True), "normalize_before=False, True"),
    (args(source_lang="../en"), "source_lang ../en"),
    (args(source_lang="x" * 5000), "model.pt source_lang"),
    (args(target_lang="a\nb"), "target_lang a\\nb"),
    (args(tokenizer={"a": 1}), "model.pt tokenizer"),
    (args(dropout=[0.1]), "model.pt dropout"),
    (args(beam="often"), "beam often"),
    (args(max_source_positions="1024"), "max_source_positions '1024'"),
    *[(settings("args", value), "model.pt args") for value in (5, "text")],
    *[(settings("cfg", value), "model.pt cfg") for value in (5, {"model": 5})],
    (settings("cfg", {"model": {}, "task": 5}), "cfg.task 5"),
    (arrays(lambda arrays: arrays.update({"decoder.lm.weight": TWO})), "decoder.lm.weight"),
    (arrays(lambda arrays: arrays.pop("decoder.layers.0.fc1.weight")), "decoder.layers.0.fc1"),
    (arrays(lambda arrays: arrays.update({"decoder.embed_tokens.weight": TWO})), "embed_tokens 2"),
    (
        arrays(lambda arrays: arrays.update({"decoder.embed_tokens.weight": ""})),
        "embed_tokens str",
    ),
    (arrays(another_layer), "encoder.layers.1"),
    (line("dict.en.txt", 3, "piece"), "dict.en.txt line 3"),
    (line("dict.de.txt", 5, "a1 1"), "dict.de.txt line 5"),
    (line("bpecodes", 2, "l o w e r"), "bpecodes line 2"),
    (text("model2.pt", ""), "model.pt model2.pt"),
    (text("dict.en.txt", "more 1\n"), "embedding/matrix (56, 16)"),
]
FSMT: list[tuple[Edit, str]] = [
    (in_json("config.json", model_type="marian"), "model_type=marian"),
    (in_json("config.json", langs=["en"]), "langs"),
    (in_json("config.json", pad_token_id=2), "PAD"),
    (in_json("generation_config.json", no_repeat_ngram_size=3), "no_repeat_ngram_size=3"),
    (in_json("generation_config.json", length_penalty=-1.0), "length_penalty -1"),
    (in_json("added_tokens.json", **{"<br>": 60}), "added <br>"),
    (pieces("vocab-src.json", lambda table: table | {"more": 999}), "vocab-src.json 999"),
    (pieces("vocab-src.json", lambda table: table | {"more": "2"}), "vocab-src.json more"),
    (pieces("vocab-src.json", lambda table: table | {"a40": 0}), "vocab-src.json a40"),
    (pieces("vocab-tgt.json", lambda table: table | {"more": 48}), "target_embedding (48, 16)"),
    (text("vocab-src.json", '{"low": 4, "low": 5}'), "vocab-src.json low twice"),
    (line("merges.txt", 2, "a b c"), "merges.txt line 2"),
]
CTRANSLATE2: list[tuple[Edit, str]] = [
    (variables(**{f"{LAYER}relative_position_keys": TWO}), "relative_position_keys"),
    (variables(**{f"{LAYER}rotary_dim": np.int32(0)}), "rotary_dim"),
    (variables(decoder__alibi=np.int8(1)), "decoder/alibi=1"),
    (variables(encoder__layer_norm__gamma=TWO), "encoder/layer_norm/gamma"),
    (variables(encoder__layer_0__ffn__layer_norm__beta=None), "ffn/layer_norm/beta none"),
    (variables(encoder__layer_3__ffn__linear_1__weight=TWO), "encoder/layer_2"),
    (variables(**{f"{s}__num_heads": np.int16(3) for s in BOTH}), "num_heads=3"),
    (variables(decoder__num_heads=np.array([2, 2], np.int16)), "decoder/num_heads"),
    (variables(decoder__pre_norm=np.int8(1)), "decoder/pre_norm=1 0"),
    (variables(decoder__position_encodings__encodings=np.ones((64, 16), "f4")), "encodings"),
    (variables(decoder__embeddings__weight=np.ones((58, 8), "f4")), "target_embedding/matrix"),
    (variables(decoder__embeddings__weight=np.ones((58, 16), "i1")), "decoder/embeddings/weight"),
    (variables(encoder__layer_0__ffn__linear_0__bias=np.full(24, np.nan, "f4")), "finite"),
    (edit(set_variables, {}, name="WhisperSpec"), "model.bin 'WhisperSpec'"),
    (in_json("config.json", decoder_start_token=None), "decoder_start_token"),
    (in_json("config.json", quantization_type=1), "quantization_type"),
    (in_json("config.json", layer_norm_epsilon="1"), "layer_norm_epsilon"),
    (in_json("config.json", layer_norm_epsilon=-1.0), "norm_epsilon"),
    (in_json("config.json", unk_token="a\nb"), "a\\nb"),
    (pieces("shared_vocabulary.json", lambda table: table[:-1]), "embedding/matrix (59"),
    (pieces("shared_vocabulary.json", lambda table: [*table[:-1], table[-2]]), "twice"),
]
MARIAN_NPZ: list[tuple[Edit, str]] = [
    (edit(set_option, type="multi-transformer"), "model.npz multi-transformer"),
    (edit(set_option, transformer_postprocess="dhn"), "transformer-postprocess dhn"),
    (edit(set_option, transformer_preprocess="n"), "transformer-preprocess 'n'"),
    (edit(set_option, dim_emb="sixteen"), "d_model integer"),
    (edit(set_option, enc_depth=3), "encoder_l2_self_Wq"),
    (edit(set_search, word_penalty=0.2), "decoder.yml word-penalty=0.2"),
    (edit(set_search, models=["a.npz", "b.npz"]), "decoder.yml models"),
    (edit(set_search, beam_size="six"), "decoder.yml beam_size"),
    (edit(set_search, max_length=10**9), "max-length=1000000000"),
    *[(edit(set_search, models=[name]), "decoder.yml models") for name in ("", "..", "x" * 5000)],
    (set_array("Wpos", np.zeros((10, 16), "f4")), "Wpos"),
    (set_array("encoder_l1_ffn_W1", np.zeros((16, 33), "f4")), "encoder_0/feed_forward/inner/"),
    (set_array("encoder_l1_self_Wq", np.zeros((16, 16), "i1")), "encoder_l1_self_Wq int8"),
    (set_array("encoder_l1_self_Wq", np.zeros(16, "f4")), "encoder_l1_self_Wq (16,)"),
    (set_array("decoder_l1_ffn_b2", None), "decoder_l1_ffn_b2 none"),
    *[(set_array(OPTIONS, options), "model.npz") for options in (None, LOST, ALIASES)],
    (tables("joint.yml", "</s>: 0\n<unk>: 0\n"), "joint.yml own"),
    (tables("joint.yml", "- </s>\n- <unk>\n"), "joint.yml map"),
    (tables("joint.yml", "</s>: 0\n<unk>: one\n"), "joint.yml 'one'"),
    (tables("joint.yml", "</s>: 0\n<unk>: 99999999\n"), "joint.yml 99,999,999"),
    (tables("joint.yml", "</s>: 0\n</s>: 1\n"), "joint.yml twice"),
    (tables("joint.yml", f"last: {'9' * 5000}\n"), "joint.yml last"),
    (text("decoder.yml", "x: !!timestamp 0\n"), "decoder.yml something"),
    (tables("joint.yml", "&b0 [x]: &b1 [*b0, *b0]\n"), "joint.yml scalar"),
    (tables("joint.yml", '"\\ud800": 0'), "joint.yml something"),
    (tables("joint.json", '{"</s>": 0,'), "joint.json"),
    (tables("joint.spm", "</s>"), "joint.spm"),
]
MARIAN: list[tuple[Edit, str]] = [
    *[
        (in_json(file, **{name: value}), name)
        for file in ("config.json", "generation_config.json")
        for name, value in {"stop_strings": ["."], "eos_token_id": "x" * 5000}.items()
    ],
    *[
        (in_json("tokenizer_config.json", added_tokens_decoder=entries), "added_tokens_decoder")
        for entries in ({"x": {"content": "a"}}, {"5": {"content": ""}}, [])
    ],
    (in_json("tokenizer_config.json", added_tokens_decoder={"1": WHOLE}), "single_word 'a'"),
    (in_json("added_tokens.json", **{"<br>": 9999}), "vocab.json"),
    (in_json("added_tokens.json", **{"<br>": -1}), "added_tokens.json <br>"),
]
REFUSED = {
    "fairseq": FAIRSEQ,
    "fsmt": FSMT,
    "ctranslate2": CTRANSLATE2,
    "marian-npz": MARIAN_NPZ,
    "marian": MARIAN,
}


@pytest.mark.parametrize(
    ("form", "edit", "words"),
    [(form, edit, words) for form, rows in REFUSED.items() for edit, words in rows],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_in_a_folder_is_named(make, monkeypatch, form, edit, words):
    edit(folder := make(form), monkeypatch)
    message = refusal(read_whole, form, folder)
    for word in words.split():
        assert word in message
    assert len(message) < 1000
