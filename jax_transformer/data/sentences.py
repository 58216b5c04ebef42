"""Paragraphs split into sentences, which is what models are trained on, and put together again."""

import re
from collections.abc import Callable, Iterable
from itertools import islice

from jax_transformer.data.scripts import spaces_between
from jax_transformer.errors import InputError, install_command


def sentence_splitter(language: str) -> Callable[[str], list[str]]:
    """Return a function that splits a paragraph into its sentences, without the spaces around them.

    A line break in the paragraph ends a sentence, and stays at its end. A paragraph of spaces has
    no sentence, and a blank line in one its line break alone.
    language: a code such as "en"; unknown ones are split by the rules of a relative or of English.

    Raises InputError if sentencex is not installed.
    """
    try:
        from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # no stubs
    except ImportError as error:
        raise InputError(
            f"splitting sentences: expected the package sentencex, found none that loads ({error});"
            f" install it with {install_command('sentences')}"
        ) from None

    def split_line(line: str) -> list[str]:
        # sentencex 1.0.32 panics at some spaces of several bytes, such as that of U+3000.
        parts = iter(line)
        found = segment(language, re.sub(r"\s", " ", line))
        sentences = ("".join(islice(parts, len(part))).strip() for part in found)
        return [sentence for sentence in sentences if sentence]

    def split(paragraph: str) -> list[str]:
        sentences = list[str]()
        for line in paragraph.splitlines(keepends=True):
            found = split_line(line) or [""]
            found[-1] += line[len(line.splitlines()[0]) :]
            sentences += filter(None, found)
        return sentences

    return split


def join_sentences(sentences: Iterable[tuple[str, str]]) -> str:
    r"""Join the translations of a paragraph's sentences, given each sentence with its translation.

    The line break that a sentence ends with follows its translation. Otherwise a space stands
    between translations, but nothing if one of them is Chinese or Japanese.

    >>> join_sentences([("a\n", "Yes."), ("b", "好。"), ("c", "好你。")])
    'Yes.\n好。好你。'
    """
    text = ""
    for sentence, translation in sentences:
        apart = text and translation and not text[-1:].isspace()
        text += " " if apart and spaces_between(text, translation) else ""
        text += translation + sentence[len((sentence.splitlines() or [""])[0]) :]
    return text
