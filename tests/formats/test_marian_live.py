"""Imported folders of MarianMTModel against transformers: log P, greedy and beam search, text.

The folders have every option that a folder may have, and models that were trained for a moment.
What differs, and is not compared:

| | transformers | here | why |
|---|---|---|---|
| `<pad>` in the softmax | counts unless renormalize_logits | its bias is the lowest | Marian's |
| positions in a 16-bit pytorch_model.bin | rounded | exact | nothing is lost |
| an output at its limit | ends without log P(EOS) | pays log P(EOS) | scores are comparable |
| early_stopping=false | a bound at the length reached | the exact bound | never a lower score |
| text that spells `</s>`, `<pad>`, `<unk>` | is that token | is text | lines stay lines |
| a tag that the model lacks | `<unk>` | an error that lists tags | it would choose no language |
| a tag after spaces | text | a tag | spaces at the ends never count |
| `>>a b<<` | `<unk>` | text | tags have no spaces |
| U+0085, U+001F and their like | `<unk>` | a space | white space separates words |
| `<unk>` in an output | vanishes | U+2047 | the reader sees a gap |
"""

import dataclasses
import json
import re
import runpy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from real_data import real_data
from refusals import refusal

import jax_transformer as jt
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.demo import sentence_pairs
from jax_transformer.formats import read_model
from jax_transformer.formats.imported import write_run_folder
from jax_transformer.formats.marian import write_marian
from jax_transformer.runs.run_dir import RunFolder

WHY = "runs other programs: pip install -e '.[torch]'"
folders = pytest.importorskip(
    "tools.record.marian_folders_recipe", reason=WHY, exc_type=ImportError
)

pytestmark = pytest.mark.slow

LONGEST = 32  # the model_max_length of the folders
PAIRS = (sentence_pairs("dev") + sentence_pairs("test"))[:200]
BEAMS = {"never": 0.0, True: 1.0}  # early_stopping -> decoding.patience


def from_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def cut(vocabulary: Any, lines: list[str]) -> list[list[int]]:
    """Ids with EOS, as many as a source may have."""
    ids = vocabulary.encode_batch(lines)
    return [[*row[: LONGEST - 1], vocabulary.eos_id] for row in ids]


def padded(rows: list[list[int]], pad_id: int) -> np.ndarray:
    return np.array([row + [pad_id] * (LONGEST - len(row)) for row in rows], np.int32)


@pytest.fixture(scope="module", params=folders.KINDS)
def both(request, made_once, tmp_path_factory) -> Any:
    """A folder, its model here and in transformers, and sources and targets."""
    name = request.param

    def make(folder):
        folders.make_folder(folders.KINDS[name], folder / "theirs")
        imported = read_model("marian", folder / "theirs")
        write_run_folder(imported, RunFolder(folder / "run"), "imported", "marian:theirs")

    folder = made_once(f"marian {name}", make)
    ours, theirs = jt.load(folder / "run"), folders.Original(folder / "theirs")
    sides = ours.vocabulary, ours.target_vocabulary
    sources, targets = (
        cut(side, list(lines)) for side, lines in zip(sides, zip(*PAIRS, strict=True), strict=True)
    )
    return SimpleNamespace(
        name=name, folder=folder, ours=ours, theirs=theirs, sources=sources, targets=targets
    )


def our_search(both: Any, **settings: Any) -> list[list[int]]:
    """Our outputs, cut where theirs are."""
    target, limits = both.ours.target_vocabulary, {"max_extra_length": folders.LIMIT}
    decoding = dataclasses.replace(both.ours.config.decoding, **limits, **settings)
    ids = {"bos_id": target.bos_id, "eos_id": target.eos_id}
    search: Any = partial(
        translate, both.ours.module, decoding=decoding, length=folders.LIMIT, **ids
    )
    source = padded(both.sources, both.ours.vocabulary.pad_id)
    found = jax.jit(search)(both.ours.params, source=source)
    return [folders.until_eos(row) for row in np.asarray(found.tokens)[:, 0].tolist()]


def differing(ours: list[list[int]], theirs: list[list[int]]) -> list[int]:
    """The lines whose outputs differ, if both have ended by themselves; nearly all have."""
    pairs = list(zip(ours, theirs, strict=True))
    ended = [i for i, pair in enumerate(pairs) if max(map(len, pair)) < folders.LIMIT]
    assert len(ended) > 0.7 * len(ours)
    assert len({tuple(theirs[i]) for i in ended}) > 40
    different = [i for i in ended if ours[i] != theirs[i]]
    assert len(different) <= 0.01 * len(ours)
    return different


def test_log_p_is_theirs(both):
    ours = both.ours
    score: Any = partial(log_probabilities, ours.module, bos_id=ours.target_vocabulary.bos_id)
    found = jax.jit(score)(
        ours.params,
        source=padded(both.sources, ours.vocabulary.pad_id),
        target=padded(both.targets, ours.target_vocabulary.pad_id),
    )
    expected = both.theirs.log_probs(both.sources, both.targets)
    found = np.asarray(found, np.float64).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("both", ["swish", "relu, two vocabularies"], indirect=True)
def test_outputs_are_theirs_up_to_ties(both):
    decoding = both.ours.config.decoding
    found = decoding.beam_size, decoding.alpha, decoding.length_penalty, decoding.patience
    assert found == (4, 1.0, "length", 0.0)
    ours, theirs = our_search(both, beam_size=1), both.theirs.search(both.sources, num_beams=1)
    for i in differing(ours, theirs):
        first = next(
            t for t, pair in enumerate(zip(ours[i], theirs[i], strict=False)) if len({*pair}) > 1
        )
        logits = both.theirs.logits([both.sources[i]], [theirs[i]])[0, first]
        best = logits.log_softmax(-1).topk(2).values
        assert best[0] - best[1] < 1e-4
    for early_stopping, patience in BEAMS.items():
        ours = our_search(both, beam_size=4, patience=patience)
        theirs = both.theirs.search(both.sources, num_beams=4, early_stopping=early_stopping)
        if different := differing(ours, theirs):
            sources = [both.sources[i] for i in different]
            scores = [
                both.theirs.log_probs(sources, [rows[i] for i in different])
                / [len(rows[i]) for i in different]
                for rows in (ours, theirs)
            ]
            assert (scores[0] > scores[1] - 1e-4).all()


def test_an_export_of_the_import_is_the_folder_again(both, tmp_path):
    write_marian(both.ours, tmp_path)
    before = both.folder / "theirs"
    for name in ("vocab.json", "target_vocab.json", "source.spm", "target.spm"):
        written, given = tmp_path / name, before / name
        assert written.is_file() == given.is_file(), name
        if name.endswith(".spm"):
            assert written.read_bytes() == given.read_bytes()
        elif given.is_file():
            assert from_json(written) == from_json(given)
    again = folders.Original(tmp_path)
    found, expected = again.model.state_dict(), both.theirs.model.state_dict()
    unused = {"model.shared.weight"} if both.name == "one vocabulary, untied" else set()
    # A 16-bit file has rounded sinusoids; exports have none, and transformers makes them.
    sinusoids = {name for name in found if "embed_positions" in name}
    if both.ours.config.model.positions == "learned":
        sinusoids = set()
    assert found.keys() == expected.keys() - unused
    for name in found.keys() - sinusoids:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    ours, theirs = again.model.config.to_dict(), both.theirs.model.config.to_dict()
    free = {"max_position_embeddings", "bos_token_id", "dtype", "init_std", "_name_or_path"}
    if unused:
        free.add("share_encoder_decoder_embeddings")
    assert {name for name in theirs if theirs[name] != ours.get(name)} <= free
    ours, theirs = again.model.generation_config, both.theirs.model.generation_config
    names = ("num_beams", "bad_words_ids", "renormalize_logits", "decoder_start_token_id")
    for name in (*names, "eos_token_id", "pad_token_id", "forced_eos_token_id"):
        assert getattr(ours, name) == getattr(theirs, name), name
    names = ("source_lang", "target_lang", "model_max_length")
    ours, theirs = (from_json(path / "tokenizer_config.json") for path in (tmp_path, before))
    assert [ours[name] for name in names] == [theirs[name] for name in names]


@pytest.mark.parametrize("both", ["relu, two vocabularies"], indirect=True)
def test_the_code_in_the_readme_of_an_export_translates_as_we_do(
    both, tmp_path, monkeypatch, capsys
):
    write_marian(both.ours, tmp_path)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# imported, en to fi\n")
    assert "302 source and 302 target\npieces, which another program trained. " in readme
    assert "as it was there" in readme
    assert "eps = 1e-05 " in readme
    lines = [source for source, _ in PAIRS[:50]]
    (tmp_path / "source.txt").write_text("\n".join(lines), encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("code.py")
    theirs = capsys.readouterr().out.splitlines()
    assert np.mean([a == b for a, b in zip(theirs, both.ours.translate(lines), strict=True)]) > 0.95


ODD = [
    "  a  b \t",
    "caf\u00e9 cafe\u0301 e\u0301\u0301 \ufb01 \u00bd \uff21\uff22",
    "\u6f22\u5b57 \U0001f600 \u202eabc \u200bzero \ufeffmark",
    "a\u00a0b a\u2028b a\u0085b \u2581a\u2581b a\u2585b a\x00b \x1f",
    *(">>fra<< hello", ">>deu<<hello", ">>fra<<", ">>fra<< >>deu<< x", "a >>fra<< b"),
    "&amp; &lt; ``quotes'' \u201eab\u201c",
    "<unused 3> <s> <mask> [UNK] @@ ##",
    *("", " ", "x" * 2000),
]


@pytest.mark.parametrize("both", ["swish", "relu, two vocabularies"], indirect=True)
def test_ids_of_text_and_texts_of_ids_are_theirs(both):
    assert_same_ids(both, [*ODD, *(line for pair in PAIRS for line in pair)])
    folder = real_data("multi30k")
    for side in ("en", "de"):
        text = (folder / f"train.{side}").read_text(encoding="utf-8")
        assert_same_ids(both, text.split("\n")[:500])
    target, random = both.ours.target_vocabulary, np.random.default_rng(0)
    rows = [random.integers(0, target.size, random.integers(20)).tolist() for _ in range(1000)]
    expected = both.theirs.tokenizer.batch_decode(rows, skip_special_tokens=True)
    assert 700 < sum(target.unk_id not in row for row in rows) < 1000
    for row, ours, theirs in zip(rows, target.decode_batch(rows), expected, strict=True):
        assert (ours == theirs) or (target.unk_id in row and "\u2047" in ours)


def assert_same_ids(both: Any, lines: list[str]) -> None:
    spaced = ["".join(" " if sign.isspace() else sign for sign in line) for line in lines]
    for side, option in (
        (both.ours.vocabulary, "text"),
        (both.ours.target_vocabulary, "text_target"),
    ):
        expected = both.theirs.tokenizer(**{option: spaced})["input_ids"]
        assert [[*ids, side.eos_id] for ids in side.encode_batch(lines)] == expected


@pytest.mark.parametrize("both", ["swish"], indirect=True)
def test_text_that_they_take_for_a_token_is_text(both):
    source, theirs = both.ours.vocabulary, both.theirs.tokenizer
    for line in ("a </s> b", "hello</s>", "<pad> a", "<unk> a", ">>a b<< c", " >>fra<< a"):
        assert [*source.encode(line), source.eos_id] != theirs(line).input_ids
    assert source.encode(" >>fra<< a") == source.encode(">>fra<< a")
    assert not {source.pad_id, source.eos_id} & {*source.encode("<pad> a </s> b")}
    assert ">>fra<<, >>deu<<, found >>frx<<; did you mean >>fra<<?" in refusal(
        source.encode, ">>frx<< a"
    )
