"""Penn trees: reading them, with errors that name the place, normalising, writing (§6.3)."""

import gzip
import lzma
import re
from random import Random

import pytest

from jax_transformer.demo.sentences import generate
from jax_transformer.errors import InputError
from jax_transformer.parsing.ptb import parse_tree, parse_trees
from jax_transformer.parsing.treebank_reader import load_trees, read_trees
from jax_transformer.parsing.trees import (
    Tree,
    category,
    escaped,
    leaves,
    normalise,
    with_root,
    with_tags,
    with_words,
    without_empties,
    without_functions,
    without_repeats,
    without_root,
    write_tree,
)
from tests.random_trees import deep_tree, random_trees

CLAUSE = "(S (NP (PRP She)) (VP (VBZ sleeps)) (. .))"
TREE: Tree = (
    "S", (("NP", (("PRP", "She"),)), ("VP", (("VBZ", "sleeps"),)), (".", "."))
)  # fmt: skip


def parsed(text: str) -> list[Tree]:
    return list(parse_trees(text.split("\n"), "text"))


# ----------------------------------------------------------------------------------- reading


def test_a_bracketing_becomes_nested_tuples():
    assert parse_tree(CLAUSE) == TREE
    assert leaves(TREE) == [("PRP", "She"), ("VBZ", "sleeps"), (".", ".")]


LAYOUTS = {
    "one a line": f"{CLAUSE}\n{CLAUSE}",
    "two on a line": f"{CLAUSE} {CLAUSE}",
    "without spaces between": f"{CLAUSE}{CLAUSE}",
    "blank lines": f"\n\n {CLAUSE}\t\n\n{CLAUSE}\n\n",
    "many lines": "(S\n  (NP (PRP She))\n  (VP (VBZ sleeps))\n\n  (. .))\n" * 2,
    "a leaf over lines": "(S (NP (PRP\nShe ) ) (VP\n (VBZ\t\nsleeps\n))(. .)\n)\n" * 2,
    "one ends where the next begins": f"(S (NP (PRP She))\n(VP (VBZ sleeps)) (. .)) {CLAUSE}",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_alike(layout):
    assert parsed(LAYOUTS[layout]) == [TREE, TREE]


def plain_reader(text: str) -> Tree:
    """By recursion, a character at a time."""
    at = 0

    def spaces():
        nonlocal at
        while text[at] in " \t\n":
            at += 1

    def token() -> str:
        nonlocal at
        start = at
        while text[at] not in " \t\n()":
            at += 1
        return text[start:at]

    def node() -> Tree:
        nonlocal at
        assert text[at] == "("
        at += 1
        label = token()
        spaces()
        if text[at] != "(":
            word = token()
            spaces()
            at += 1
            return label, word
        children = []
        while text[at] != ")":
            children.append(node())
            spaces()
        at += 1
        return label, tuple(children)

    return node()


@pytest.mark.parametrize("split", ["train", "dev"])
def test_craft_reads_as_by_a_plain_recursive_reader_and_is_written_as_it_was(craft, split):
    lines = (craft / f"{split}.mrg.txt").read_bytes().decode().split("\n")[:-1]
    count = 0
    for line, tree in zip(
        lines, read_trees(craft / f"{split}.mrg.txt", keep_root=True), strict=True
    ):
        assert tree == plain_reader(line)
        assert write_tree(tree) == line
        count += 1
    assert count == {"train": 25_095, "dev": 3_123}[split]


def test_craft_has_its_no_break_spaces_inside_tokens(craft):
    odd = [
        word
        for split in ("train", "dev")
        for tree in read_trees(craft / f"{split}.mrg.txt")
        for _, word in leaves(tree)
        if re.search(r"\s", word)
    ]
    assert len(odd) == 20


def test_the_trees_of_the_demo_are_written_as_they_were():
    for example in generate(12, 2_000):
        assert write_tree(parse_tree(example.tree)) == example.tree


def test_unicode_spaces_and_line_ends_are_parts_of_words():
    for word in ("10\u00a0mg", "\u2009", "a\u2028b", "\u0085", "\x1c", "\x0b", "\x0c", "a\rb"):
        assert parse_tree(f"(NP (NN {word}))") == ("NP", (("NN", word),))


FAULTS = {
    "(S (NP (NN a))": "line 1, column 1: expected the tree that opens here to be closed, found 1 "
    "bracket still open at the end; close it",
    "(S (NN a))\n (S (NP (NN a)\n(S (NN a))": "line 2, column 2: expected the tree that opens here "
    "to be closed, found 2 brackets still open 2 lines on; close it",
    "(S (NN a)))": "line 1, column 11: expected a tree, found a closing bracket where none is open",
    ")(": "line 1, column 2: expected the tree that opens here to be closed",
    ")()": "line 1, column 1: expected a tree, found a closing bracket where none is open",
    "\n(S (NP) (NN a))": "line 2, column 4: expected a word or constituents, found none in (NP)",
    "(S\n ())": "line 2, column 2: expected a word or constituents, found none in ()",
    "()": "line 1, column 1: expected a word or constituents, found none in ()",
    "(S\n  ( (NN a)))": "line 2, column 3: expected a label next to the bracket, found none",
    "(S ( dog))": "line 1, column 4: expected a label next to the bracket, found none",
    "( dog)": "line 1, column 1: expected a label next to the bracket, found none",
    "(S (NN a)) dog": "line 1, column 12: expected a tree in brackets, found the text 'dog' "
    "outside of one",
    "dog": "line 1, column 1: expected a tree in brackets, found the text 'dog' outside of one",
    "(S (NN a))dog (NN b)": "line 1, column 11: expected a tree in brackets, found the text 'dog'",
    "(S\n (NN New York))": "line 2, column 10: expected one word, or constituents alone, in (NN, "
    "found 'York' beside 'New'; put each word into brackets with its tag",
    "(S (NN a) dog)": "line 1, column 11: expected one word, or constituents alone, in (S, found "
    "'dog' beside constituents",
    "(S (NN a)dog)": "line 1, column 10: expected one word, or constituents alone, in (S, found "
    "'dog' beside constituents",
    "(S dog (NN a))": "line 1, column 8: expected one word, or constituents alone, in (S, found "
    "a bracket beside 'dog'",
    "\u00a0": "line 1, column 1: expected a tree in brackets",
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_malformed_text_is_refused_with_line_and_column(text):
    with pytest.raises(InputError) as caught:
        parsed(text)
    assert str(caught.value).startswith(f"text, {FAULTS[text]}")


def is_well_formed(text: str) -> bool:
    """By taking brackets away from the inside out, until a row of trees is left."""
    text = " ".join(re.findall(r"[^ \t\n]+", text))
    text = re.sub(r"\(([^ ()]+) [^ ()]+ ?\)", "#", text)
    while (fewer := re.sub(r"\([^ ()#]+ ?(?:# ?)+\)", "#", text)) != text:
        text = fewer
    return bool(re.fullmatch(r" ?(?:(?:#|\( ?(?:# ?)+\)) ?)*", text))


def test_random_brackets_are_accepted_exactly_where_they_are_well_formed():
    random = Random(3)
    counts = {True: 0, False: 0}
    starts = [CLAUSE, f"( {CLAUSE})\n", "(A (B b) (A (B b)(C c)))", "(A b) (A b)", "(A(A b))"]
    for _ in range(8_000):
        text = list(random.choice(starts))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(text))
            new = random.choice(["", "", "(", ")", "A", " ", "\n", "()", "(A b)", "( (A b))"])
            text[at : at + random.randint(0, 1)] = [new]
        try:
            parsed("".join(text))
            accepted = True
        except InputError:
            accepted = False
        assert accepted == is_well_formed("".join(text)), "".join(text)
        counts[accepted] += 1
    assert min(counts.values()) > 500


def test_a_bracket_left_open_does_not_take_a_whole_corpus_along():
    taken = 0

    def lines():
        nonlocal taken
        yield "(S (NP (NN a))"
        while taken < 1_000_000:
            taken += 1
            yield CLAUSE

    with pytest.raises(InputError, match=r"line 1, column 1.*closed.*20,001 lines on"):
        list(parse_trees(lines(), "corpus"))
    assert taken == 20_000


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
    assert found == [("NP", (("NN", word),)) for word in "abcde"]
    assert load_trees(tmp_path) == found
    assert list(read_trees(str(tmp_path / "03" / "wsj_0301.mrg"))) == found[3:4]
    assert [tree[0] for tree in read_trees(tmp_path, keep_root=True)] == [""] * 5


def test_an_error_names_the_file_in_the_folder(tmp_path):
    (tmp_path / "a.mrg").write_text(CLAUSE)
    (tmp_path / "b.mrg").write_text(f"{CLAUSE}\n(S")
    with pytest.raises(InputError, match=r"b\.mrg, line 2, column 1: expected the tree"):
        list(read_trees(tmp_path))


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(InputError, match="expected files of trees in"):
        list(read_trees(tmp_path))
    (tmp_path / "blank").write_text("\n\n")
    with pytest.raises(InputError, match="blank lines alone"):
        list(read_trees(tmp_path))
    with pytest.raises(InputError, match="found nothing; check the path"):
        list(read_trees(tmp_path / "absent"))
    with pytest.raises(InputError, match="expected one tree, found 2"):
        parse_tree(CLAUSE * 2)


# ------------------------------------------------------------------------- outer brackets


@pytest.mark.parametrize("root", ["", "TOP", "ROOT", "S1"])
def test_an_outer_bracket_is_taken_off_and_put_back(root):
    tree = parse_tree(f"({root} {CLAUSE})")
    assert without_root(tree) == TREE
    assert with_root(without_root(tree), root) == tree
    assert with_root(tree, root) == tree
    assert without_root(("TOP", (tree,))) == TREE


def test_an_outer_bracket_that_holds_several_stays_as_top():
    tree = parse_tree("( (NP (NN a)) (. .))")
    assert without_root(tree) == ("TOP", (("NP", (("NN", "a"),)), (".", ".")))
    assert without_root(parse_tree("(TOP (UH Yes))")) == ("UH", "Yes")
    assert without_root(("TOP", "word")) == ("TOP", "word")


# --------------------------------------------------------------------------- normalisation


@pytest.mark.parametrize(
    ("label", "wanted"),
    [("NP-SBJ-1", "NP"), ("NP=2", "NP"), ("NP-SBJ-3=1", "NP"), ("S-TTL-3-FRM", "S"),
     ("ADVP|PRT", "ADVP"), ("-LRB-", "-LRB-"), ("-RRB-", "-RRB-"), ("-NONE-", "-NONE-"),
     ("-", "-"), ("--", "--"), ("=", "="), ("|", "|"), ("PRP$", "PRP$"), ("``", "``"), ("", "")],
)  # fmt: skip
def test_a_category_is_what_a_label_begins_with(label, wanted):
    assert category(label) == wanted


NORMAL = {
    "( (S (NP-SBJ-1 (PRP She)) (VP (VBZ sleeps) (NP (-NONE- *T*-1)))))":
        "(S (NP (PRP She)) (VP (VBZ sleeps)))",
    "( (S (NP-SBJ (NP (-NONE- *)) (SBAR (-NONE- 0) (S (-NONE- *T*)))) (VP (VB go))))":
        "(S (VP (VB go)))",
    # An empty element leaves a repeat, which is only then one; a chain of them is one constituent.
    "( (NP-SBJ (NP-1 (-NONE- *) (NP=2 (NN dog)))))": "(NP (NN dog))",
    "(TOP (S (S-TTL-3-FRM (VP (S (VB go))))))": "(S (VP (S (VB go))))",
    # A tag is no constituent, whatever its name.
    "(S (X (X x)) (PRN (-LRB- -LRB-) (NN a) (-RRB- -RRB-)))":
        "(S (X (X x)) (PRN (-LRB- -LRB-) (NN a) (-RRB- -RRB-)))",
    # Two children of one label are no chain.
    "(NP (NP (NN a)) (NP (NN b)))": "(NP (NP (NN a)) (NP (NN b)))",
    "( (S (VP (JJ|NN fun))) (. .) (-NONE- *))": "(TOP (S (VP (JJ fun))) (. .))",
    "( (S (VP (VB go))) (NP (-NONE- *)))": "(S (VP (VB go)))",
}  # fmt: skip


@pytest.mark.parametrize("text", NORMAL)
def test_normalisation_is_as_written_by_hand(text):
    tree = normalise(parse_tree(text))
    assert tree is not None
    assert write_tree(tree) == NORMAL[text]


def test_a_tree_of_empty_elements_alone_is_no_tree():
    tree = parse_tree("( (S (NP (-NONE- *)) (-NONE- 0)))")
    assert without_empties(tree) is None
    assert normalise(tree) is None


def one_after_another(tree: Tree) -> Tree | None:
    kept = without_empties(tree)
    return None if kept is None else without_root(without_repeats(without_functions(kept)))


def test_one_pass_is_the_separate_steps_one_after_another(craft):
    for tree in read_trees(craft / "dev.mrg.txt", keep_root=True):
        assert normalise(tree) == one_after_another(tree)


def test_normalising_random_trees_keeps_their_words_and_is_done_once():
    nothing = 0
    for tree in random_trees(5, 3_000):
        normal = normalise(tree)
        assert normal == one_after_another(tree)
        words = [word for tag, word in leaves(tree) if tag != "-NONE-"]
        nothing += normal is None
        assert [word for _, word in leaves(normal)] == words if normal else not words
        assert normal is None or normalise(normal) == normal
    assert nothing > 10


# ---------------------------------------------------------------------------------- writing


def test_random_trees_survive_writing_and_reading_given_their_words():
    trees = random_trees(4, 5_000)
    for tree in trees:
        words = [word for _, word in leaves(tree)]
        text = write_tree(tree)
        assert "\n" not in text
        again = parse_tree(text)
        assert [word for _, word in leaves(again)] == [escaped(word) for word in words]
        assert with_words(again, words) == tree


def test_brackets_in_words_are_escaped_and_other_brackets_stay():
    tree: Tree = ("NP", (("-LRB-", "("), ("NN", "f(x)"), ("-LRB-", "["), ("-RRB-", "-RRB-")))
    assert write_tree(tree) == "(NP (-LRB- -LRB-) (NN f-LRB-x-RRB-) (-LRB- [) (-RRB- -RRB-))"


@pytest.mark.parametrize(
    "tree",
    [("NP", (("NN", "New York"),)), ("NP", (("NN", ""),)), ("N P", (("NN", "a"),)),
     ("S", (("", (("NN", "a"),)),)), ("S", (("N(", "a"),)), ("S", ()), ("", "word")],
    ids=str,
)  # fmt: skip
def test_what_no_bracketing_can_hold_is_not_written(tree):
    with pytest.raises(InputError, match="expected"):
        write_tree(tree)


def test_words_are_replaced_only_by_as_many():
    assert leaves(with_words(TREE, ["He", "(", "!"])) == [("PRP", "He"), ("VBZ", "("), (".", "!")]
    with pytest.raises(InputError, match="expected 3 words, one a leaf, found 2"):
        with_words(TREE, ["a", "b"])


def test_trees_of_depth_5000_are_read_normalised_and_written():
    tree = deep_tree(5_000)
    text = write_tree(tree)
    assert text.count("(") == 5_001
    again = parse_tree(f"( {text})")
    assert write_tree(without_root(again)) == text
    normal = normalise(again)
    assert normal is not None
    assert write_tree(normal) == text
    repeated = re.sub("VP", "NP", text)
    assert without_repeats(parse_tree(repeated)) == ("NP", (("NN", "dog"),))
    with pytest.raises(InputError, match="5001 brackets still open"):
        parse_tree(text.rstrip(")"))


def test_other_tags_stand_on_the_same_words():
    retagged = with_tags(TREE, ["A", "B", "C"])
    assert leaves(retagged) == [
        (tag, word) for tag, (_, word) in zip("ABC", leaves(TREE), strict=True)
    ]
    assert with_tags(retagged, [tag for tag, _ in leaves(TREE)]) == TREE
    with pytest.raises(InputError, match="expected 3 tags"):
        with_tags(TREE, ["A"])
