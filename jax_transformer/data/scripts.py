"""Writing systems: what can be read, what a word is, and what stands between sentences.

Most scripts put spaces between words. Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan do
not: here each of their letters, with the marks on it, is a word of its own.
"""

import re
import unicodedata

# Lao lies between Thai and Tibetan, kana and Bopomofo after the CJK signs. Marks and digits of
# these blocks are told apart by their categories.
_SPACELESS = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001aff0-\U0001b16f"
    "\U00020000-\U0003ffff]"
)
_CHINESE_OR_JAPANESE = re.compile(
    "[\u3000-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f"
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff]"
)
_QUOTES = "\"'()[]\u2018\u2019\u201c\u201d"
_WORD = re.compile("[^ \t\r\n]+")  # a no-break space is a part of a word


def is_blank(text: str) -> bool:
    r"""Return whether a text has nothing to read: no letter, digit, punctuation mark or symbol.

    Characters that Unicode has not assigned yet, or leaves to fonts, may be one of these.

    >>> is_blank(" \u200b\ufeff"), is_blank("?")
    (True, False)
    """
    # Cs is half of a character, which is refused elsewhere; Cn may be a new symbol, Co of a font.
    return not text[:1].isalnum() and not any(
        (kind := unicodedata.category(letter))[0] in "LNPS" or kind in ("Cs", "Cn", "Co")
        for letter in text
    )


def is_mark(letter: str) -> bool:
    """Return whether a character is a mark on the letter before it, such as an accent."""
    return unicodedata.category(letter)[0] == "M"


def stands_alone(letter: str) -> bool:
    """Return whether a character is a letter of a script without spaces, a word of its own.

    >>> [stands_alone(letter) for letter in "好のกa。"]
    [True, True, True, False, False]
    """
    return bool(_SPACELESS.match(letter)) and letter.isalpha()


def in_word(letter: str) -> bool:
    """Return whether a character is a part of a longer word: letter, digit, underscore or mark.

    >>> [in_word(letter) for letter in "a1_好-"]
    [True, True, True, False, False]
    """
    word = letter.isalnum() or letter == "_" or is_mark(letter)
    return word and not stands_alone(letter)


def ends_in_word(text: str) -> bool:
    """Return whether the last letter of a text, whatever its marks, is a part of a longer word."""
    return next((in_word(letter) for letter in reversed(text) if not is_mark(letter)), False)


def word_spans(line: str) -> list[tuple[int, int]]:
    """Return the place of each word: what stands between spaces, and each letter that stands alone.

    >>> line = "GPU很好。 Yes."
    >>> [line[first:end] for first, end in word_spans(line)]
    ['GPU', '很', '好', '。', 'Yes.']
    """
    spans = list[tuple[int, int]]()
    for found in _WORD.finditer(line):
        first, end = found.span()
        if not _SPACELESS.search(line, first, end):
            spans.append((first, end))
            continue
        cut = [first]
        for place in range(first + 1, end):
            new = stands_alone(line[place]) or stands_alone(line[cut[-1]])
            if new and not is_mark(line[place]):
                cut.append(place)
        both = zip(cut, [*cut[1:], end], strict=True)
        spans += (span for span in both if not is_blank(line[slice(*span)]))
    return spans


def words_of(line: str) -> list[str]:
    """Return the words of a line that alignments count: see `word_spans`."""
    return [line[first:end] for first, end in word_spans(line)]


def spaces_between(sentence: str, following: str) -> bool:
    """Return whether a space stands between two sentences: not in Chinese and Japanese.

    Thai and its relatives write a space between sentences, though not between words.
    """
    ends = sentence.rstrip(_QUOTES)[-1:], following.lstrip(_QUOTES)[:1]
    return not any(_CHINESE_OR_JAPANESE.match(end) for end in ends)
