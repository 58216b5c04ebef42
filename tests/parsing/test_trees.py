"""What is done with trees: normalizing, replacing words and tags, writing (§6.3)."""

import re

import pytest
from trees import CLAUSE, TREE, deep_tree, random_trees

from jax_transformer.errors import InputError
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import (
    Tree,
    category,
    escaped,
    leaves,
    normalize,
    with_root,
    without_root,
    write_tree,
)


@pytest.mark.parametrize("root", ["", "TOP", "VROOT"])
def test_an_outer_bracket_is_removed_and_added_again(root):
    tree = parse_tree(f"({root} {CLAUSE})")
    assert without_root(tree) == TREE
    assert with_root(without_root(tree), root) == tree
    assert with_root(tree, root) == tree
    assert without_root(("TOP", (tree,))) == TREE


def test_an_outer_bracket_around_several_constituents_stays_as_top():
    tree = parse_tree("( (NP (NN a)) (. .))")
    assert without_root(tree) == ("TOP", (("NP", (("NN", "a"),)), (".", ".")))
    assert without_root(parse_tree("(TOP (UH Yes))")) == ("UH", "Yes")
    assert without_root(("TOP", "word")) == ("TOP", "word")


def test_a_category_is_a_label_without_functions():
    labels = {"NP-SBJ-3=1": "NP", "NP=2": "NP", "ADVP|PRT": "ADVP"}
    same = ["-LRB-", "-NONE-", "--", "=", "PRP$", ""]
    assert [*map(category, labels)] == [*labels.values()]
    assert [*map(category, same)] == same


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
def test_trees_are_normalized_as_by_hand(text):
    tree = normalize(parse_tree(text))
    assert tree is not None
    assert write_tree(tree) == NORMAL[text]


def without_empties(tree: Tree) -> Tree | None:
    label, children = tree
    if isinstance(children, str):
        return None if label == "-NONE-" else tree
    remaining = tuple(child for child in map(without_empties, children) if child)
    return (label, remaining) if remaining else None


def without_functions(tree: Tree) -> Tree:
    label, children = tree
    if isinstance(children, str):
        return category(label), children
    return category(label), tuple(map(without_functions, children))


def without_repeats(tree: Tree) -> Tree:
    label, children = tree
    if isinstance(children, str):
        return tree
    (first, *others) = children = tuple(map(without_repeats, children))
    repeated = not others and first[0] == label and not isinstance(first[1], str)
    return first if repeated else (label, children)


def one_after_another(tree: Tree) -> Tree | None:
    remaining = without_empties(tree)
    return without_root(without_repeats(without_functions(remaining))) if remaining else None


def test_normalize_is_its_steps_one_after_another_and_keeps_the_words():
    nothing = 0
    for tree in random_trees(5, 1_000):
        normal = normalize(tree)
        assert normal == one_after_another(tree)
        words = [word for tag, word in leaves(tree) if tag != "-NONE-"]
        nothing += normal is None
        assert [word for _, word in leaves(normal)] == words if normal else not words
    assert nothing > 10


def with_escaped_words(tree: Tree) -> Tree:
    label, children = tree
    if isinstance(children, str):
        return label, escaped(children)
    return label, tuple(map(with_escaped_words, children))


def test_random_trees_survive_writing_and_reading_but_for_brackets_in_words():
    trees = random_trees(4, 1_000)
    for tree in trees:
        text = write_tree(tree)
        assert "\n" not in text
        assert parse_tree(text) == with_escaped_words(tree)


def test_a_tree_that_no_bracketing_can_express_is_refused():
    words = ("New York", "")
    for children in (*((("NN", word),) for word in words), (("", "a"),), (("N(", "a"),), ()):
        with pytest.raises(InputError, match="expected"):
            write_tree(("NP", children))


def test_trees_of_depth_5000_are_read_normalized_and_written():
    tree = deep_tree(5_000)
    text = write_tree(tree)
    assert text.count("(") == 5_001
    again = parse_tree(f"( {text})")
    assert write_tree(without_root(again)) == text
    normal = normalize(again)
    assert normal is not None
    assert write_tree(normal) == text
    repeated = re.sub("VP", "NP", text)
    assert normalize(parse_tree(repeated)) == ("NP", (("NN", "dog"),))
    with pytest.raises(InputError, match="expected one word and its closing bracket"):
        parse_tree(text.rstrip(")"))
