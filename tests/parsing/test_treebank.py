"""Treebanks as a corpus of words and symbols."""

import re

import numpy as np
import pytest

from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb import Status, score_sentence
from jax_transformer.parsing.linearize import rebuild
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import TreebankCorpus, own_trees, wall_street_journal
from jax_transformer.parsing.treebank_reader import load_trees
from jax_transformer.parsing.trees import leaves, normalise, with_root, write_tree

PASSIVE = "( (S (NP-SBJ-1 (PRP He)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1))))) )"
BRACKETS = "(TOP (NP (-LRB- -LRB-) (NN a\u00a0b) (-RRB- -RRB-)))"
NO_WORDS = "( (S (NP (-NONE- *))) )"
OTHER = "( (FRAG (NN x)) )"


def write(path, *trees):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(trees) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture
def corpus(tmp_path):
    return TreebankCorpus(
        {
            "train": [write(tmp_path / "a", PASSIVE, NO_WORDS), write(tmp_path / "b", BRACKETS)],
            "dev": [write(tmp_path / "c", BRACKETS, PASSIVE)],
            "extra": [write(tmp_path / "d", OTHER, PASSIVE)],
        }
    )


def test_words_face_symbols_and_empties_are_on_neither_side(corpus):
    pairs = list(corpus.pairs("dev"))
    assert pairs == [
        (1, "-LRB- a\u00a0b -RRB-", "(NP -LRB- NN -RRB- /NP"),
        (2, "He was seen", "(S (NP PRP /NP (VP VBD (VP VBN /VP /VP /S"),
    ]
    assert corpus.splits() == ["train", "dev"]


def test_extra_trees_follow_with_negative_numbers_and_any_place_can_be_gone_on_from(corpus):
    pairs = list(corpus.pairs("train"))
    assert [number for number, _, _ in pairs] == [1, 2, 3, -1, -2]
    assert pairs[1] == (2, "", "")
    for start in range(6):
        assert list(corpus.pairs("train", start)) == pairs[start:]


def test_scored_text_is_the_tree_of_the_file_with_its_outer_bracket(corpus):
    golds = list(corpus.scored("dev"))
    assert golds[0][1].startswith("(TOP (NP (-LRB-")
    assert golds[1][1].startswith("( (S (NP-SBJ-1")
    assert golds[1][0] == "He was seen"
    assert "NP-SBJ-1" in golds[1][1]
    normal = normalise(parse_tree(PASSIVE))
    assert normal is not None
    score = score_sentence(golds[1][1], write_tree(with_root(normal, "")))
    assert (score.status, score.f1, score.tagging) == (Status.VALID, 100.0, 100.0)


def test_symbols_are_those_of_own_trees_alone(corpus):
    names = corpus.symbols().names
    assert "(FRAG" not in names
    assert {"(NP", "/NP", "(VP", "/VP", "-LRB-", "VBN"} <= set(names)
    assert "-NONE-" not in names


def test_a_sample_is_of_words_and_of_extra_trees_too(corpus):
    assert corpus.sample(10, 0) == ["He was seen", "-LRB- a\u00a0b -RRB-", "x", "He was seen"]
    assert set(corpus.sample(2, 1)) < {"He was seen", "-LRB- a\u00a0b -RRB-", "x"}


def test_an_identity_changes_with_any_file_and_spares_reading(corpus, tmp_path):
    before = corpus.identity("train", {})
    assert corpus.identity("train", before) == before
    assert corpus.identity("dev", {}) != before
    write(tmp_path / "d", OTHER, PASSIVE, OTHER)
    after = corpus.identity("train", before)
    changed = [key for key in after if after[key] != before[key]]
    assert changed == ["extra 1.1"]


def test_a_run_goes_on_where_its_treebank_was_put_away(corpus, tmp_path):
    known = corpus.identity("dev", {})
    (tmp_path / "c").unlink()
    assert corpus.identity("dev", known) == known
    with pytest.raises(InputError):
        corpus.identity("dev", {})


def test_flags_name_files_and_folders_with_commas_between(tmp_path):
    first, second = write(tmp_path / "x", OTHER), write(tmp_path / "folder" / "y", OTHER)
    paths = own_trees(
        {"train_trees": f"{first},{second}", "dev_trees": str(tmp_path / "folder"), "other": "z"}
    )
    assert paths == {"train": [first, second], "dev": [str(tmp_path / "folder")]}
    assert len(list(TreebankCorpus(paths).trees("train"))) == 2


@pytest.mark.parametrize("place", ["", "wsj", "parsed/mrg/wsj"])
def test_sections_are_read_as_ldc_lays_them_out(tmp_path, place):
    for section in range(25):
        folder = tmp_path / place / f"{section:02d}"
        write(folder / f"wsj_{section:02d}00.mrg", f"( (NP (NN s{section})) )\n")
        write(folder / "readme.txt", "no tree")
    corpus = TreebankCorpus(wall_street_journal(str(tmp_path)))
    words = {split: [w for _, w, _ in corpus.pairs(split)] for split in corpus.splits()}
    assert words == {
        "train": [f"s{section}" for section in range(2, 22)],
        "dev": ["s22"],
        "test": ["s23"],
    }


def test_a_section_that_is_missing_is_named(tmp_path):
    with pytest.raises(InputError, match=re.escape("folders 02 to 23")):
        wall_street_journal(str(tmp_path))
    for section in (*range(2, 7), *range(8, 24)):
        write(tmp_path / f"{section:02d}" / "wsj.mrg", OTHER)
    with pytest.raises(InputError, match="found no 07"):
        wall_street_journal(str(tmp_path))


def test_all_of_craft_comes_back_from_words_and_symbols(craft):
    path = str(craft / "dev.mrg.txt")
    trees = [normalise(tree) for tree in load_trees(path)]
    for tree, (_, words, symbols) in zip(
        trees, TreebankCorpus({"dev": [path]}).pairs("dev"), strict=True
    ):
        assert tree is not None
        assert rebuild(symbols.split(" "), words.split(" ")) == tree
        assert len(words.split(" ")) == len(leaves(tree))
    assert np.mean([len(leaves(tree)) for tree in trees if tree]) > 20
