"""Files of bracketed trees, and the corpus of words and symbols made from them."""

import bz2
import gzip
import lzma
import re
import subprocess
from pathlib import Path

import pytest

from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb import Status, score_sentence
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import (
    TreebankCorpus,
    read_trees,
    wall_street_journal,
)
from jax_transformer.parsing.trees import leaves, normalize, with_root, write_tree

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


def test_files_and_folders_are_read_in_order_plain_and_compressed(tmp_path):
    def tree(word):
        return f"( (NP (NN {word})) )\n".encode()

    (tmp_path / "03").mkdir()
    (tmp_path / "03" / "wsj_0301.mrg").write_bytes(b"\n" + tree("d"))
    (tmp_path / "02").mkdir()
    (tmp_path / "02" / "wsj_0202.mrg.gz").write_bytes(gzip.compress(tree("c")))
    (tmp_path / "02" / "wsj_0201.mrg").write_bytes(b"\xef\xbb\xbf" + tree("a") + tree("b"))
    (tmp_path / "04.mrg.xz").write_bytes(lzma.compress(tree("e").replace(b"\n", b"\r\n")))
    (tmp_path / "readme.txt").write_text("no tree")
    (tmp_path / ".hidden.mrg").write_text("no tree")
    found = list(read_trees(tmp_path))
    assert found == [("", (("NP", (("NN", word),)),)) for word in "abcde"]
    assert list(read_trees(str(tmp_path / "03" / "wsj_0301.mrg"))) == found[3:4]


def test_a_folder_or_file_without_trees_is_refused(tmp_path):
    with pytest.raises(InputError, match="files of trees in"):
        list(read_trees(tmp_path))
    (tmp_path / "blank").write_text("\n\n")
    with pytest.raises(InputError, match="only blank lines"):
        list(read_trees(tmp_path))
    with pytest.raises(InputError, match="found nothing"):
        list(read_trees(tmp_path / "absent"))
    write(tmp_path / "b\udce9.mrg", OTHER)  # a name in Latin-1
    with pytest.raises(InputError, match=r"UTF-8, found .* rename"):
        list(read_trees(tmp_path))
    (tmp_path / "b\udce9.mrg").unlink()
    (tmp_path / "b.mrg").write_text(f"{PASSIVE}\n(S")
    with pytest.raises(InputError, match=r"b\.mrg, line 2, column 1"):
        list(read_trees(tmp_path))


HELSINKI = """\
( (METADATA (AUTHOR anon) (DATE 1150)) (IP-MAT (NP-SBJ (PRO Hann-hann)) (VBDI svaf-sofa)
    (CP-THT (C 0) (IP-SUB (NP-SBJ *con*) (CODE <P_3>) (BEDI var-vera) (ADJ góður-góður))) (. .-.))
  (ID 1150.FIRST,.1))

( (CODE <P_1>))
( (CODE (SYM SpeakerA1) (. .)))
( (IP-MAT (NP-SBJ (PRO Hún-hún)) (VBDI söng-syngja) (NUM 0-0) (. .-.)) (ID 1150.FIRST,.2))
"""


def test_what_stands_beside_trees_is_left_out_and_counted(tmp_path, caplog):
    path = write(tmp_path / "a.psd", HELSINKI)
    corpus = TreebankCorpus({"train": [path]})
    words = [words for _, words, _ in corpus.pairs("train")]
    assert words == [
        "Hann-hann svaf-sofa 0 *con* var-vera góður-góður .-.",
        "Hún-hún söng-syngja 0-0 .-.",
    ]
    assert list(corpus.pairs("train"))
    (warning,) = caplog.messages  # once, however often the trees are read
    for part in (path, "2 (ID", "3 (CODE", "1 (METADATA", "(PRO Hann-hann)", "9 of 11", "2 of 11"):
        assert part in warning
    assert "(C 0)" in warning


def test_the_marks_of_disfluencies_in_switchboard_are_left_out_and_counted(tmp_path, caplog):
    tree = "( (S (EDITED (RM (-DFL- \\[)) (NP (PRP I)) (IP (-DFL- \\+))) (NP (PRP I)) (VP (VBP see)"
    path = write(tmp_path / "a.mrg", f"{tree}) (RS (-DFL- \\])) (. .) (-DFL- E_S)))")
    corpus = TreebankCorpus({"train": [path]})
    assert [words for _, words, _ in corpus.pairs("train")] == ["I I see ."]
    assert "4 (-DFL- ...)" in caplog.text


def test_a_sentence_that_a_parser_did_not_parse_is_left_out_and_counted(tmp_path, caplog):
    path = write(tmp_path / "silver", "(TOP (X (NN a)))\n(())\n( )\n( ( ) ) \n(TOP (X (NN b)))\n")
    corpus = TreebankCorpus({"train": [path]})
    assert [words for _, words, _ in corpus.pairs("train")] == ["a", "b"]
    assert "left out 3 lines with brackets alone" in caplog.text


def test_words_that_look_like_traces_or_lemmas_stay_with_a_warning(tmp_path, caplog):
    odd = "(NP-SBJ *T*-1)", "(NP *-2)", "(WNP-1 0)", "(VB *)", "(N (ORTHO hund) (LEMMA hundur))"
    usual = "(NP (-NONE- *T*-1))", "(CD 0)", "(SYM *)", "(HYPH -)", "(NN *p)", "(CODE x)"
    usual = *usual, "(NP (-NONE-A-RAISE- *T*-1))", "($*LRB* *LRB*)", "(JJ well-known)", "(NN a/b)"
    for number, leaf in enumerate((*odd, *usual)):
        caplog.clear()
        tree = f"(S (NP (DT the) (NN dog)) {leaf} (. .))"
        path = write(tmp_path / str(number), tree)
        assert list(map(write_tree, read_trees(path))) == [tree]
        warned = [leaf.split(" ")[-1].strip(")") in text for text in caplog.messages]
        assert warned == [True] * (leaf in odd), leaf


def test_the_commands_in_the_guide_remove_traces_and_lemmas(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "parsing.md").read_text(encoding="utf-8")
    words_too = "( (NP ($*LRB* *LRB*) (NN *p) (. ?)))\n"
    write(tmp_path / "corpus.psd", HELSINKI + words_too)
    for command in re.findall("^sed .*", guide, re.MULTILINE):
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    corpus = TreebankCorpus({"train": [str(tmp_path / "train.psd")]})
    words = [words for _, words, _ in corpus.pairs("train")]
    assert words == ["Hann svaf var góður .", "Hún söng 0 .", "*LRB* *p ?"]


@pytest.mark.parametrize("ending", ["Mrg", "mrg.bz2", "mrg.gz", "MRG.XZ"])
def test_names_in_any_case_are_read_and_documentation_and_copies_are_not(tmp_path, ending, caplog):
    packed = {"bz2": bz2.compress, "gz": gzip.compress, "xz": lzma.compress}.get(
        ending.lower()[4:], bytes
    )
    (tmp_path / "WSJ" / "02").mkdir(parents=True)
    (tmp_path / "WSJ" / "02" / f"WSJ_0202.{ending}").write_bytes(packed(b"( (NP (NN b)) )\n"))
    for name in ("README", "MERGE.LOG", "readme.02"):
        (tmp_path / "WSJ" / "02" / name).write_text("(see the manual)\nno tree")
    assert [leaves(tree) for tree in read_trees(tmp_path)] == [[("NN", "b")]]
    assert not caplog.messages
    for name in ("wsj_0001.mrg.bak", "wsj_0001.mrg~", "index.mrg.sha1"):
        write(tmp_path / name, "( (NP (NN c)) )")
    assert len(list(read_trees(tmp_path))) == 1
    assert any("3 of 7 files" in text for text in caplog.messages)


def test_folders_behind_links_are_read_once(tmp_path):
    for name in ("real", "treebank"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.mrg", f"( (NP (NN {name})) )")
    (tmp_path / "treebank" / "02").symlink_to(tmp_path / "real")
    (tmp_path / "treebank" / "03").symlink_to(tmp_path / "treebank")
    words = [leaves(tree)[0][1] for tree in read_trees(tmp_path / "treebank")]
    assert words == ["real", "treebank"]
    (tmp_path / "treebank" / "b.mrg").symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "treebank" / "b.mrg"))):
        list(read_trees(tmp_path / "treebank"))


def test_of_files_with_other_names_those_that_begin_with_a_tree_are_read(tmp_path, caplog):
    write(tmp_path / "a.psd", ";; a comment (S", "<S ID=1>", "", " (NP (NN a))")
    write(tmp_path / "b.PTB", "(NP (NN b))")
    write(tmp_path / "notes", "how these trees were made")
    assert [leaves(tree)[0][1] for tree in read_trees(tmp_path)] == ["a", "b"]
    assert any("1 of 3 files" in text and "notes" in text for text in caplog.messages)
    caplog.clear()
    write(tmp_path / "c.mrg", "(NP (NN c))")
    assert [leaves(tree)[0][1] for tree in read_trees(tmp_path)] == ["c"]
    assert any("2 of 4 files" in text and "a.psd" in text for text in caplog.messages)


def test_pairs_are_words_and_symbols_and_extra_trees_a_corpus_of_their_own(corpus):
    assert list(corpus.pairs("dev")) == [
        (1, "-LRB- a\u00a0b -RRB-", "(NP -LRB- NN -RRB- /NP"),
        (2, "He was seen", "(S (NP PRP /NP (VP VBD (VP VBN /VP /VP /S"),
    ]
    pairs = list(corpus.pairs("train"))
    assert [number for number, _, _ in pairs] == [1, 2, 3]
    assert pairs[1] == (2, "", "")
    assert next(iter(corpus.pairs("extra"))) == (1, "x", "(FRAG NN /FRAG")
    assert corpus.splits() == ["train", "dev", "extra"]
    assert sorted(corpus.sample(9, seed=1)) == sorted(
        words for split in ("train", "extra") for _, words, _ in corpus.pairs(split) if words
    )
    names = corpus.labels().names  # extra trees add none
    assert {"(NP", "/NP", "(VP", "/VP", "-LRB-", "VBN"} <= set(names)
    assert not {"(FRAG", "-NONE-"} & set(names)


def test_trees_of_a_second_corpus_are_pairs_of_their_own_with_labels(corpus):
    both = TreebankCorpus({**corpus.paths, "train_2": corpus.paths["extra"]})
    assert list(both.pairs("train_2")) == list(corpus.pairs("extra"))
    assert "(FRAG" in both.labels().names
    assert len(both.sample(9, seed=1)) == len(corpus.sample(9, seed=1)) + 2


def test_scored_text_is_the_tree_of_the_file_with_its_outer_bracket(corpus):
    golds = list(corpus.scored("dev"))
    assert golds[0][1].startswith("(TOP (NP (-LRB-")
    assert golds[1][1].startswith("( (S (NP-SBJ-1")
    assert golds[1][0] == "He was seen"
    assert "NP-SBJ-1" in golds[1][1]
    normal = normalize(parse_tree(PASSIVE))
    assert normal is not None
    score = score_sentence(golds[1][1], write_tree(with_root(normal, "")))
    assert (score.status, score.f1, score.tagging) == (Status.VALID, 100.0, 100.0)


def test_an_identity_changes_with_any_file_and_spares_reading(corpus, tmp_path):
    before = corpus.fingerprint("train", {})
    assert corpus.fingerprint("train", before) == before
    assert corpus.fingerprint("dev", {}) != before
    write(tmp_path / "d", OTHER, PASSIVE, OTHER)
    assert corpus.fingerprint("train", before) == before
    write(tmp_path / "b", OTHER, PASSIVE, OTHER)
    after = corpus.fingerprint("train", before)
    changed = [key for key in after if after[key] != before[key]]
    assert changed == ["2.1"]
    (tmp_path / "b").unlink()  # a run resumes without its treebank
    assert corpus.fingerprint("train", after) == after
    with pytest.raises(InputError):
        corpus.fingerprint("train", {})
    write(tmp_path / "a", OTHER)  # but the files that are left must not have changed
    assert corpus.fingerprint("train", after)["1.1"] != after["1.1"]
    mistyped = TreebankCorpus({"train": [str(tmp_path / "a"), str(tmp_path / "bb")]})
    with pytest.raises(InputError, match="bb, found nothing"):
        mistyped.fingerprint("train", after)


@pytest.mark.parametrize("place", ["", "PARSED/MRG/WSJ"])
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


def test_missing_sections_are_named(tmp_path):
    with pytest.raises(InputError, match="02 to 23"):
        wall_street_journal(str(tmp_path))
    write(tmp_path / "23" / "wsj.mrg", OTHER)
    with pytest.raises(InputError, match=r"/02, found nothing"):
        TreebankCorpus(wall_street_journal(str(tmp_path))).fingerprint("train", {})
