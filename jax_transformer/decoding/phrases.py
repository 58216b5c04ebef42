"""An automaton over tokens that knows which token would complete a phrase in the text.

Tokens may cut a phrase in many ways, so the automaton reads the letters of tokens: a phrase is
recognised however it is cut. It is the table of `masks.without_phrases`.
"""

from collections.abc import Sequence

import numpy as np

from jax_transformer.decoding.masks import Phrases
from jax_transformer.errors import InputError

# (phrase, letters of it that were read)
_Match = tuple[int, int]
# Matches under way or complete, and whether the last letter was one of a word.
_State = tuple[frozenset[_Match], bool]


def phrase_automaton(phrases: Sequence[str], texts: Sequence[str], eos_id: int) -> Phrases:
    r"""Return the automaton of whole words: "cat" is neither in "cats" nor in "concat".

    As in `re.search(r"(?<!\w)PHRASE(?!\w)", text)`; an end that is no letter of a word, as in
    "e.g.", needs no border. Upper and lower case differ.

    texts: what each token adds to the text; a word's first token begins with a space.
    Raises InputError for a blank phrase.
    """
    wanted = [" ".join(phrase.split()) for phrase in phrases]
    if "" in wanted:
        raise InputError("without: expected phrases of at least one character, found a blank one")
    reader = _Reader(wanted)
    # Tokens whose letters occur in no phrase are alike.
    distinct, of_kind = np.unique([reader.abbreviated(text) for text in texts], return_inverse=True)
    start: _State = frozenset(), False
    numbers, todo = dict[_State, int]({start: 0}), list[_State]([start])
    next_rows, forbidden_rows = list[list[int]](), list[list[bool]]()
    while todo:
        state = todo.pop(0)
        next_row, forbidden_row = [], []
        for text in distinct.tolist():
            after, complete = reader.read(state, text)
            if not complete and after not in numbers:
                numbers[after] = len(numbers)
                todo.append(after)
            next_row.append(numbers.get(after, 0))
            forbidden_row.append(complete)
        next_rows.append(next_row)
        forbidden_rows.append(forbidden_row)
    next_state = np.array(next_rows, np.int32)[:, of_kind]
    forbidden = np.array(forbidden_rows, np.bool_)[:, of_kind]
    # The end of the text is the end of a word.
    forbidden[:, eos_id] = [reader.read(state, " ")[1] for state in numbers]
    return Phrases(next_state, forbidden)


class _Reader:
    """Reads text letter by letter, in search of phrases."""

    def __init__(self, phrases: list[str]) -> None:
        self._phrases = phrases
        self._letters = set("".join(phrases))
        other = next(letter for letter in map(chr, range(97, 2**16)) if self._is_other(letter))
        self._word_letter, self._border = other, "\x01"
        self._read: dict[tuple[_State, str], tuple[_State, bool]] = {}

    def abbreviated(self, text: str) -> str:
        """Return a shorter text that is read with the same result."""
        short = ""
        for letter in text:
            if letter not in self._letters:
                letter = self._word_letter if _in_word(letter) else self._border
                if short.endswith(letter):
                    continue
            short += letter
        return short

    def read(self, state: _State, text: str) -> tuple[_State, bool]:
        """Return the state after a text, and whether a phrase was completed in it."""
        found = False
        for letter in text:
            if (state, letter) not in self._read:
                self._read[state, letter] = self._after(state, letter)
            state, complete = self._read[state, letter]
            found = found or complete
        return state, found

    def _after(self, state: _State, letter: str) -> tuple[_State, bool]:
        matches, in_word = state
        after, complete = set[_Match](), False
        begun = {(number, 0) for number in range(len(self._phrases))}
        for number, count in matches | begun:
            phrase = self._phrases[number]
            if count == len(phrase):  # complete if its last word is
                complete = complete or not _in_word(letter)
            elif letter == phrase[count] and not (count == 0 and in_word and _in_word(letter)):
                after.add((number, count + 1))
                if count + 1 == len(phrase) and not _in_word(letter):
                    complete = True
        return (frozenset(after), _in_word(letter)), complete

    def _is_other(self, letter: str) -> bool:
        return _in_word(letter) and letter not in self._letters


def _in_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
