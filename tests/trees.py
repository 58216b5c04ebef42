"""One tree by hand, and seeded random trees with all that treebanks hold and much more."""

from random import Random

from jax_transformer.parsing.trees import Tree

CLAUSE = "(S (NP (PRP She)) (VP (VBZ sleeps)) (. .))"
TREE: Tree = (
    "S", (("NP", (("PRP", "She"),)), ("VP", (("VBZ", "sleeps"),)), (".", "."))
)  # fmt: skip
LABELS = ["S", "NP", "VP", "NP-SBJ-1", "NP=2", "S-TTL-3-FRM", "ADVP|PRT", "X", "/NP", "-", "=", "/"]
TAGS = ["NN", "DT", "PRP$", ",", ".", "``", "-LRB-", "NP", "/NP", "/", "\\", "\\/", "-NONE-", ":"]
WORDS = [
    "dog", "the", ".", "-LRB-", "/NP", "(S", "(", ")", "a(b)c", "[", "]", "{", "\\", "NP", "'",
    "10\u00a0mg", "a\u2009b", "\u00a0", "\u3000", "\u2028", "\u0085", "\x1c", "漢字",
    "&amp;", "*T*-1", "0",
]  # fmt: skip


def random_tree(random: Random, size: int = 12) -> Tree:
    """A tree of about `size` words at most, unary chains among its constituents."""
    if size <= 1 and random.random() < 0.7:
        return random.choice(TAGS), random.choice(WORDS)
    parts = random.choice([1, 1, 2, 3, 4])
    children = tuple(
        random_tree(random, size // (parts + random.randint(0, 1))) for _ in range(parts)
    )
    return random.choice(LABELS), children


def random_trees(seed: int, count: int) -> list[Tree]:
    """The same for the same seed."""
    random = Random(seed)
    return [random_tree(random, random.choice([1, 2, 8, 30])) for _ in range(count)]


def deep_tree(depth: int) -> Tree:
    """One word under `depth` constituents, of labels in turn."""
    tree: Tree = ("NN", "dog")
    for level in range(depth):
        tree = ("NP" if level % 2 else "VP", (tree,))
    return tree
