"""§6.3 Trees as the sequences of symbols that the Transformer writes, and back.

After Vinyals et al. (2015, "Grammar as a Foreign Language"): a constituent opens as `(NP`, a
part-of-speech tag stands for one word, and the words are only on the source side. It closes as
`/NP`, as in the paper's code. `(S (NP (PRP She)) (VP (VBZ sleeps)))` is
`(S (NP PRP /NP (VP VBZ /VP /S`.

Differs: Vinyals et al. close with `)NP`, and write one symbol for all tags. The paper's code opens
with the label alone, NP, and needs a list of tags to tell an opening from a tag.
"""

from collections.abc import Iterable, Sequence

from jax_transformer.errors import InputError
from jax_transformer.parsing.trees import Tree


def tag_symbol(tag: str) -> str:
    """Return the tag itself; one that looks like an opening or a closing gets a backslash."""
    return "\\" + tag if tag[:1] in ("", "(", "/", "\\") else tag


def is_tag(symbol: str) -> bool:
    """Return True for a tag, which stands for a word: NN, but not (NP or /NP."""
    return symbol[:1] not in ("(", "/")


def linearize(tree: Tree) -> list[str]:
    """Return the symbols of a tree, without its words.

    A tree of n words and c constituents has n + 2 c symbols.

    >>> linearize(("NP", (("DT", "the"), ("NN", "dog"))))
    ['(NP', 'DT', 'NN', '/NP']
    """
    symbols: list[str] = []
    stack: list[Tree | str] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            symbols.append(node)
            continue
        label, children = node
        if isinstance(children, str):
            symbols.append(tag_symbol(label))
        else:
            symbols.append("(" + label)
            stack.append("/" + label)
            stack.extend(reversed(children))
    return symbols


def delinearize(symbols: Iterable[str], words: Sequence[str]) -> Tree:
    """Return the tree of symbols over the words: the inverse of `linearize`.

    Raises InputError, with the first wrong symbol, if they are not a tree over exactly these words.

    >>> delinearize(["(NP", "DT", "NN", "/NP"], ["the", "dog"])
    ('NP', (('DT', 'the'), ('NN', 'dog')))
    """
    top: list[Tree] = []
    children = top
    stack: list[tuple[list[Tree], str]] = []
    used = number = 0
    for number, symbol in enumerate(symbols, start=1):
        if top and not stack:
            raise _fault(number, "the end of the tree", symbol)
        kind = symbol[:1]
        if kind == "(":
            stack.append((children, symbol[1:]))
            children = []
        elif kind == "/":
            if not stack:
                raise _fault(number, "an opening or a tag", symbol)
            inner = children
            children, label = stack.pop()
            if symbol[1:] != label:
                raise _fault(number, f"/{label}", symbol)
            if not inner:
                raise _fault(number, f"something in ({label}", symbol)
            children.append((label, tuple(inner)))
        else:
            if used == len(words):
                raise _fault(number, f"at most {used} tags", symbol)
            if not kind:
                raise _fault(number, "a symbol", symbol)
            tag = symbol[1:] if kind == "\\" else symbol
            children.append((tag, words[used]))
            used += 1
    if stack or not top:
        raise _fault(number + 1, f"/{stack[-1][1]}" if stack else "a tree", "the end")
    if used != len(words):
        raise InputError(f"expected {len(words)} tags, one per word, found {used}")
    return top[0]


def _fault(number: int, expected: str, found: str) -> InputError:
    return InputError(f"symbol {number}: expected {expected}, found {found or 'nothing'}")
