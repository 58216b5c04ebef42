"""Reading Penn bracketings, with errors that name line and column (§6.3)."""

import re
from random import Random

import pytest
from trees import CLAUSE, TREE

from jax_transformer.errors import InputError
from jax_transformer.parsing.ptb import Oddities, parse_tree, parse_trees
from jax_transformer.parsing.treebank import read_trees
from jax_transformer.parsing.trees import Tree, write_tree


def parsed(text: str) -> list[Tree]:
    return list(parse_trees(text.split("\n"), "text"))


LAYOUTS = {
    "one a line": f"{CLAUSE}\n{CLAUSE}",
    "two on a line": f"{CLAUSE} {CLAUSE}",
    "without spaces between": f"{CLAUSE}{CLAUSE}",
    "blank lines": f"\n\n {CLAUSE}\t\n\n{CLAUSE}\n\n",
    "many lines": "(S\n  (NP (PRP She))\n  (VP (VBZ sleeps))\n\n  (. .))\n" * 2,
    "a leaf over lines": "(S (NP (PRP\nShe ) ) (VP\n (VBZ\t\nsleeps\n))(. .)\n)\n" * 2,
    "one ends where the next begins": f"(S (NP (PRP She))\n(VP (VBZ sleeps)) (. .)) {CLAUSE}",
}


def test_every_layout_gives_the_same_trees():
    for layout, text in LAYOUTS.items():
        assert parsed(text) == [TREE, TREE], layout


@pytest.mark.parametrize("split", [pytest.param("train", marks=pytest.mark.release), "dev"])
def test_craft_is_read_and_written_back(craft, split):
    path = craft / f"{split}.mrg.txt"
    lines = path.read_bytes().decode().split("\n")[:-1]
    assert [write_tree(tree) for tree in read_trees(path)] == lines
    assert len(lines) == {"train": 25_095, "dev": 3_123}[split]


def test_unicode_spaces_and_line_ends_are_parts_of_words():
    for word in ("10\u00a0mg", "\u2009", "a\u2028b", "\u0085", "\x1c"):
        assert parse_tree(f"(NP (NN {word}))") == ("NP", (("NN", word),))


def test_all_ascii_white_space_separates_as_it_does_for_evalb():
    for space in "\v\f\r":
        assert parsed(f"{space}\n(NP{space}(NN a{space}){space})\n{space}") == [
            ("NP", (("NN", "a"),))
        ]
        with pytest.raises(InputError, match=r"line 1, column 9: .*one word"):
            parse_tree(f"(NP (NN a{space}b))")
        with pytest.raises(InputError, match="without spaces"):
            write_tree(("NN", f"a{space}b"))


FAULTS = {
    "(S (NP (NN a))": ("line 1, column 1:", "1 open"),
    "(S (NN a))\n (S (NP (NN a)\n(S (NN a))": ("line 2, column 2:", "2 open"),
    "(S (NN a)))": ("line 1, column 11:", "closing bracket"),
    "\n(S (NP) (NN a))": ("line 2, column 4:", "(NP)"),
    "(S\n ())": ("line 2, column 2:", "label"),
    "(S\n  ( (NN a)))": ("line 2, column 3:", "label"),
    "(S (NN a))dog (NN b)": ("line 1, column 11:", "'dog'"),
    "(S\n (NN New York))": ("line 2, column 6:", "'New'"),
    "(S (NN a) dog)": ("line 1, column 11:", "'dog'"),
    "\u00a0": ("line 1, column 1:", "brackets"),
}


def test_a_malformed_text_is_refused_with_line_and_column():
    for text, (place, what) in FAULTS.items():
        with pytest.raises(InputError, match=f"text, {place}.*{re.escape(what)}"):
            parsed(text)


ONE_A_LINE = [CLAUSE, CLAUSE[:-1], CLAUSE, CLAUSE, f"{CLAUSE})", CLAUSE]  # two faults balance


@pytest.mark.parametrize("indent", ["", "\t"])
@pytest.mark.parametrize("trees", [ONE_A_LINE, [t.replace(" (VP", "\n  (VP") for t in ONE_A_LINE]])
def test_a_tree_that_begins_a_line_inside_an_unfinished_one_is_refused(trees, indent):
    with pytest.raises(InputError, match="line") as caught:
        parsed(indent + "\n".join(trees).replace("\n(", f"\n{indent}("))
    lines = 1 + trees[0].count("\n")
    assert f"line {lines + 1}:" in str(caught.value)
    assert f"line {2 * lines + 1}," in str(caught.value)


def test_an_outermost_bracket_inside_a_tree_is_refused_even_in_the_first():
    for root in ("(TOP ", "( ", "(ROOT\n", "(VROOT\n  "):
        for between in ("\n", "\n\n", " "):
            with pytest.raises(InputError, match="line"):
                parsed(f"{root}{CLAUSE}{between}{root}{CLAUSE}){between}{root}{CLAUSE}))")
    assert len(parsed(f"( (TOP {CLAUSE}))\n(S (TOP {CLAUSE}))")) == 2  # roots, and a constituent


def test_lines_that_are_not_indented_are_constituents_with_a_warning(caplog):
    flush = "(S\n(NP (PRP She))\n(VP (VBZ sleeps))\n(. .))"
    assert list(parse_trees(f"{flush}\n{flush}".split("\n"), "flush")) == [TREE, TREE]
    (message,) = caplog.messages
    assert "flush, line 2" in message


def test_lines_of_comments_and_markup_between_trees_are_left_out_and_counted():
    text = f"*x*x*x*\n*x* (C) 1995 *x*\n<DOC>\n<S ID=1>\n{CLAUSE}\n</S>\n;; (x\n%% a\n# b\n"
    text += f"( END_OF_TEXT_UNIT )\n{CLAUSE}"
    odd = Oddities()
    assert list(parse_trees(text.split("\n"), "text", odd=odd)) == [TREE, TREE]
    assert odd.left_out.total() == 9
    for wrong in (f"<S> {CLAUSE} </S>", f"A line\n{CLAUSE}"):  # no tree is lost
        with pytest.raises(InputError, match="line 1, column 1"):
            parsed(wrong)


def is_well_formed(text: str) -> bool:
    """By taking brackets away from the inside out, until a row of trees is left."""
    text = " ".join(re.findall(r"[^ \t\n]+", text))
    text = re.sub(r"\(([^ ()]+) [^ ()]+ ?\)", "#", text)
    while (fewer := re.sub(r"\([^ ()#]+ ?(?:# ?)+\)", "#", text)) != text:
        text = fewer
    return bool(re.fullmatch(r" ?(?:(?:#|\( ?(?:# ?)+\)) ?)*", text))


def test_random_brackets_are_accepted_if_and_only_if_well_formed():
    random = Random(3)
    counts = {True: 0, False: 0}
    starts = [CLAUSE, f"( {CLAUSE})\n", "(A (B b) (A (B b)(C c)))", "(A b) (A b)", "(A(A b))"]
    for _ in range(2_000):
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
    assert min(counts.values()) > 100


def test_a_bracket_left_open_does_not_read_a_whole_corpus():
    taken = 0

    def lines():
        nonlocal taken
        yield "(S (NP (NN a))"
        while taken < 1_000_000:
            taken += 1
            yield CLAUSE

    with pytest.raises(InputError, match=r"line 1, column 1.*closed.*20,001"):
        list(parse_trees(lines(), "corpus"))
    assert taken == 20_000


def test_one_tree_may_have_an_outer_label_inside():
    text = "(TOP (S (TOP (NN a))))"  # as a parser may write it
    assert write_tree(parse_tree(text)) == text
    with pytest.raises(InputError, match=r"another \(TOP inside it"):
        parsed(text)
