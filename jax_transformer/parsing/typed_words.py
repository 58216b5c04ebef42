"""§6.3 Words as people type them, in the forms that a treebank has for them."""

import re
from collections.abc import Sequence

from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.parsing.trees import escaped

# The Penn Treebank's forms; `escaped` has those of round brackets, which trees cannot contain.
_BRACKETS = {"[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
_QUOTES = {"\u201c": "``", "\u201d": "''", "\u201e": "``", "\u00ab": "``", "\u00bb": "''"}
_OTHERS = {"\u2018": "`", "\u2019": "'", "\u2013": "--", "\u2014": "--", "\u2026": "..."}


class TypedWords:
    """A map from typed words to a treebank's forms, where its vocabulary has the form alone."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Find out which forms the vocabulary of a treebank's words has."""
        knows = vocabulary.knows
        usual = (_BRACKETS | _QUOTES | _OTHERS).items()
        found = {c: form for c, form in usual if not knows(c) and all(map(knows, form))}
        self._quotes = not knows('"') and knows("`") and knows("'")
        if self._quotes and "\u201c" in found:
            found["\u201c"] = '"'  # by position: in German it closes what U+201E opens
        self._forms = str.maketrans(found)
        # A backslash is there for signs that are escaped, such as 1\/2. The sign by itself has a
        # piece then too, but none with another character before it.
        texts = [text for text in vocabulary.piece_texts if isinstance(text, str)]
        self._signs = [
            sign
            for sign in "/*"
            if knows("\\") and not any(re.search(rf"[^\\]\{sign}", text) for text in texts)
        ]

    def forms(self, words: Sequence[str]) -> list[str]:
        """Return the form of each word of a sentence; no word contains a line end.

        Of the straight quotation marks in it, every other one closes a quotation, and so does one
        at the end.
        """
        opened = False

        def quote(match: re.Match[str]) -> str:
            nonlocal opened
            ends = match.end() == len(match.string)  # a quotation of several sentences
            opened = not opened and not ends if match[0] == '"' else match[0] == "``"
            return "``" if opened else "''"

        text = escaped("\n".join(words)).translate(self._forms)
        if self._quotes:
            text = re.sub("``|''|\"", quote, text)
        for sign in self._signs:
            text = re.sub(rf"(?<!\\)\{sign}", rf"\\{sign}", text)
        return text.split("\n") if words else []
