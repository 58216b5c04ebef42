"""An automaton over tokens that finds the tokens that would complete a phrase in the text.

Tokens may cut a phrase in many ways, so the automaton reads the letters of tokens: a phrase is
recognised however it is cut. It is the table of `constraints.without_phrases`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jax_transformer.data.scripts import in_word, is_mark, stands_alone
from jax_transformer.decoding.constraints import Phrases
from jax_transformer.errors import InputError

MOST_PLACES = 2**27  # of an automaton's table, of five bytes each

# (phrase, letters of it that were read)
_Match = tuple[int, int]

# Kinds of letters; a letter that is in no phrase is read as one of these.
_KINDS = _WORD, _ALONE, _SPACE, _BORDER, _MARK = "\x01", "\x02", " ", "\x03", "\x04"


class _State(NamedTuple):
    """The matches under way, the kind of the last letter, and the first bytes of the next one."""

    matches: frozenset[_Match] = frozenset()
    last: str = _SPACE
    bytes_read: bytes = b""


def phrase_automaton(phrases: Sequence[str], texts: Sequence[str | bytes], eos_id: int) -> Phrases:
    r"""Return the automaton of whole words: "cat" is neither in "cats" nor in "concat".

    As in `re.search(r"(?<!\w)PHRASE(?!\w)", text)`; an end that is not a letter of a word, as in
    "e.g.", needs no border, nor does a letter of a script without spaces. Upper and lower case
    differ.

    texts: the text that each token adds, or the byte that it stands for; a word's first token
    begins with a space.
    Raises InputError for a blank phrase.
    """
    wanted = [" ".join(phrase.split()) for phrase in phrases]
    if "" in wanted:
        raise InputError("without: expected phrases of at least one character, found a blank one")
    reader = _Reader(wanted)
    # Tokens whose letters occur in no phrase are alike.
    kinds = dict[str | bytes, int]()
    of_token = [kinds.setdefault(reader.abbreviated(text), len(kinds)) for text in texts]
    states = [reader.start]  # the reader's numbers of those that tokens lead to
    rows = {reader.start: 0}

    def row(state: int) -> int:
        if state not in rows:
            rows[state] = len(states)
            states.append(state)
        return rows[state]

    next_rows, forbidden_rows, without_ended = [], [], []
    for state in states:  # it grows
        if len(states) * len(texts) > MOST_PLACES:
            raise InputError(
                f"without: expected phrases whose table has at most {MOST_PLACES:,} places, found "
                f"more than {len(states):,} states of {len(texts):,} tokens; give fewer or shorter "
                "phrases"
            )
        read = [reader.read(state, text) for text in kinds]
        next_rows.append([row(after) for after, _ in read])
        forbidden_rows.append([complete for _, complete in read])
        without_ended.append(row(reader.without_ended(state)))
    next_state, forbidden = np.array(next_rows, np.int32), np.array(forbidden_rows, np.bool_)
    # The end of the text is the end of a word.
    cannot_end = np.array([reader.read(state, _SPACE)[1] for state in states])
    forbidden |= _leads_nowhere(next_state, forbidden, cannot_end, [*map(bool, kinds)])
    forbidden = forbidden[:, of_token]
    forbidden[:, eos_id] = cannot_end
    return Phrases(next_state[:, of_token], forbidden, np.array(without_ended, np.int32))


def _leads_nowhere(
    next_state: np.ndarray, forbidden: np.ndarray, cannot_end: np.ndarray, writes: list[bool]
) -> np.ndarray:
    """Return the tokens after which an output can neither end nor write more.

    So it is after a token that is a phrase, if all others begin a new word. writes: False for
    tokens without text, such as a begin mark, which a model does not write.
    """
    can_end = ~cannot_end
    while True:
        reached = can_end | (~forbidden & writes & can_end[next_state]).any(axis=1)
        if (reached == can_end).all():
            return ~can_end[next_state] & can_end[:, None]
        can_end = reached


class _Reader:
    """Reads text letter by letter, in search of phrases; gives the states numbers."""

    def __init__(self, phrases: list[str]) -> None:
        self._phrases = phrases
        self._letters = set("".join(phrases))
        encoded = (letter.encode() for letter in self._letters)
        self._begun = {code[:count] for code in encoded for count in range(1, len(code))}
        self._states, self._numbers = list[_State](), dict[_State, int]()
        self._letters_read = list[dict[str, tuple[int, bool]]]()  # of each state
        self.start = self._number(_State())

    def abbreviated(self, text: str | bytes) -> str | bytes:
        """Return a shorter text that is read with the same result."""
        if isinstance(text, bytes):
            return text
        short = ""
        for letter in text:
            read = letter if letter in self._letters else _kind(letter)
            if read in self._letters or not short.endswith(read):
                short += read
        return short

    def without_ended(self, number: int) -> int:
        """Return the state without the phrases that are complete if their last word is."""
        state = self._states[number]
        left = {(n, count) for n, count in state.matches if count < len(self._phrases[n])}
        return self._number(state._replace(matches=frozenset(left)))

    def read(self, number: int, text: str | bytes) -> tuple[int, bool]:
        """Return the state after a text, and whether a phrase was completed in it."""
        begun, found = self._states[number].bytes_read, False
        if begun:
            number = self._number(self._states[number]._replace(bytes_read=b""))
        if isinstance(text, bytes):
            text, begun = self._letters_of(begun + text)
        elif begun:  # a character that was cut short
            text, begun = _BORDER + text, b""
        for letter in text:
            read = self._letters_read[number]
            if letter not in read:
                after, complete = self._after(self._states[number], letter)
                read[letter] = self._number(after), complete
            number, complete = read[letter]
            found = found or complete
        if begun:
            number = self._number(self._states[number]._replace(bytes_read=begun))
        return number, found

    def _number(self, state: _State) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self._states)
            self._states.append(state)
            self._letters_read.append({})
        return self._numbers[state]

    def _letters_of(self, code: bytes) -> tuple[str, bytes]:
        """Return the letters that bytes make, and bytes that a letter of a phrase begins with."""
        if code in self._begun:
            return "", code
        if (letter := code.decode(errors="ignore")) in self._letters or code.isascii():
            return letter, b""
        first = code[0]  # it alone is read, by the kind of most characters that begin with it
        if first < 0xC0:
            return "", b""
        kind = _ALONE if 0xE3 <= first <= 0xE9 else _WORD
        return (_BORDER if first in (0xC2, 0xE2, 0xEF, 0xF0) else kind), b""

    def _after(self, state: _State, letter: str) -> tuple[_State, bool]:
        kind = letter if letter in _KINDS else _kind(letter)
        if kind == _MARK:  # a part of the letter that it stands on
            kind = _ALONE if state.last == _ALONE else _WORD
        if kind == state.last == _SPACE:
            return state, False  # as one space
        matches, complete = set[_Match](), False
        begun = {(number, 0) for number in range(len(self._phrases))}
        inside = state.last == _WORD and kind == _WORD
        for number, count in state.matches | begun:
            phrase = self._phrases[number]
            if count == len(phrase):  # complete if its last word is
                complete = complete or kind != _WORD
            elif letter == phrase[count] and not (count == 0 and inside):
                matches.add((number, count + 1))
                if count + 1 == len(phrase) and kind != _WORD:
                    complete = True
        return _State(frozenset(matches), kind), complete


def _kind(letter: str) -> str:
    if is_mark(letter):
        return _MARK
    if in_word(letter):
        return _WORD
    return _ALONE if stands_alone(letter) else _SPACE if letter == " " else _BORDER
