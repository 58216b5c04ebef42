"""The corpora of the demo: English-German sentence pairs, and the trees of English sentences.

A grammar made them (`tools/demo` in the repository). Every second sentence of dev and test has a
word in a construction in which train never has it, though train has the construction with other
words, and the word in other constructions.
"""

from pathlib import Path

from jax_transformer.data.text import read_lines
from jax_transformer.parsing.treebank import read_trees
from jax_transformer.parsing.trees import Tree

FOLDER = Path(__file__).parent
SPLITS = ("train", "dev", "test")

# As the flags of experiments.train name text and trees.
TEXT_FILES = {
    f"{split}_{side}": str(FOLDER / f"{split}.{language}.bz2")
    for split in SPLITS
    for side, language in (("source", "en"), ("target", "de"))
}
TREE_FILES = {f"{split}_trees": str(FOLDER / f"{split}.mrg.bz2") for split in SPLITS}


def sentence_pairs(split: str) -> list[tuple[str, str]]:
    """Return (English, German) of each sentence of train, dev or test.

    >>> sentence_pairs("test")[5]
    ('Does Sophie need an apple?', 'Braucht Sophie einen Apfel?')
    """
    source, target = TEXT_FILES[f"{split}_source"], TEXT_FILES[f"{split}_target"]
    return list(zip(read_lines(source), read_lines(target), strict=True))


def trees(split: str) -> list[Tree]:
    """Return the trees of the English sentences, in outer brackets, and for train 10,000 more.

    >>> len(trees("dev"))
    500
    """
    return list(read_trees(TREE_FILES[f"{split}_trees"]))
