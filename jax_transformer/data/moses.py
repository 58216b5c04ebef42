"""Moses' tokenizer, as fairseq and Hugging Face call it in its port to Python, sacremoses."""

import re
import unicodedata
from functools import cache
from typing import Any

# Languages whose rules in sacremoses were compared with those of Moses itself.
MOSES_LANGUAGES = ("cs", "de", "en", "es", "fr", "it", "nl", "pl", "pt", "ro", "ru")


class Moses:
    """The tokenizer of one language and the detokenizer of another.

    normalize: True to normalize punctuation and drop characters that do not print before a line is
      tokenized, as Hugging Face's FSMTTokenizer does and fairseq does not.

    >>> moses = Moses("en", "de", normalize=True)
    >>> moses.tokens("A “well-known” fact.")
    ['A', '&quot;', 'well', '@-@', 'known', '&quot;', 'fact', '.']
    >>> moses.text(["Ein", "&quot;", "wohl", "@-@", "bekannter", "&quot;", "Satz", "."])
    'Ein "wohl-bekannter" Satz.'
    """

    def __init__(self, source_language: str, target_language: str, *, normalize: bool):
        self._source, self._target = source_language, target_language
        self._normalize = normalize

    def tokens(self, line: str) -> list[str]:
        """Return the tokens of a line: dashes split off, special characters escaped."""
        if self._normalize:
            punctuation = normalizer(self._source)
            line = punctuation.normalize(punctuation.replace_unicode_punct(line))
            line = _printing(line)
        return tokenizer(self._source).tokenize(line, aggressive_dash_splits=True, escape=True)

    def text(self, tokens: list[str]) -> str:
        """Return the text of the tokens, unescaped."""
        try:
            return detokenizer(self._target).detokenize(tokens)
        except TypeError:
            # sacremoses 0.2.0 has a fault in its rule for Czech words that end in "-li".
            return detokenizer("").detokenize(tokens)


def _printing(line: str) -> str:
    """Drop control characters, signs of direction and whatever else has a category C."""
    if line.isprintable():
        return line
    return "".join(letter for letter in line if unicodedata.category(letter)[0] != "C")


@cache
def normalizer(language: str) -> Any:
    """Return the punctuation normalizer of a language."""
    from sacremoses import MosesPunctNormalizer  # the import takes a quarter of a second

    made: Any = MosesPunctNormalizer(lang=language)
    # Tried at each full stop of a long row, a rule takes time that grows with the row's square. It
    # can match only from the row's first, or from one that the match before it left over.
    starts = r'(?:(?<!\.)|(?<=["\s]\.))'
    made.substitutions = [
        (starts + rule if rule.startswith(r"(\.+)") else rule, replacement)
        for rule, replacement in made.substitutions
    ]
    return made


@cache
def tokenizer(language: str) -> Any:
    """Return the tokenizer of a language."""
    from sacremoses import MosesTokenizer

    made = MosesTokenizer(lang=language)
    # These make sets of 100,000 letters for each abbreviation of a text: milliseconds, which the
    # whole process waits for.
    lower, letters = frozenset(made.IsLower), frozenset(made.IsAlpha)
    made.islower = lambda text: lower.issuperset(text)
    # From each DOT of a row, its rule would look for the end of the row.
    made.MULTIDOT_MARKER = re.compile(r"(?<!DOT)(?:DOT)+MULTI")
    made.isanyalpha = lambda text: not letters.isdisjoint(text)
    return made


@cache
def detokenizer(language: str) -> Any:
    """Return the detokenizer of a language."""
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(lang=language)
