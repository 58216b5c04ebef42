"""The automaton of phrases against regular expressions over the text of random tokens."""

import random
import re

import pytest

from jax_transformer.decoding.phrases import phrase_automaton
from jax_transformer.errors import InputError

EOS = 2
TEXTS = ["", "", "", *[" c", " ca", "t", "at", "s", " cat", " a"]]
TEXTS += [" s", ".", " co", "n", "c", " the cat", "é"]


def pattern(phrase):
    """A regular expression for whole words."""
    before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    after = r"(?!\w)" if re.search(r"\w$", phrase) else ""
    return before + re.escape(phrase) + after


@pytest.mark.parametrize(
    "phrases", [["cat"], ["cat", "at s"], ["t."], ["a cat", "c"], ["cat.", "s"], [". c"]]
)
def test_a_text_is_refused_at_the_token_that_completes_a_phrase(phrases):
    automaton = phrase_automaton(phrases, TEXTS, EOS)
    draw, refused = random.Random(1), 0
    for _ in range(2000):
        tokens = [*draw.choices(range(3, len(TEXTS)), k=draw.randint(1, 6)), EOS]
        state, text, found = 0, "", False
        for token in tokens:
            text += TEXTS[token]
            # More letters may follow the last word, until the text ends.
            words = text if token == EOS else re.sub(r"\w+$", "", text)
            found = any(
                re.search(pattern(phrase), words if re.search(r"\w$", phrase) else text)
                for phrase in phrases
            )
            assert automaton.forbidden[state, token] == found, (phrases, text)
            if found:
                refused += 1
                break
            state = automaton.next_state[state, token]
    assert 10 < refused < 2000


def test_a_blank_phrase_is_refused():
    with pytest.raises(InputError, match="blank"):
        phrase_automaton(["cat", " "], TEXTS, EOS)
