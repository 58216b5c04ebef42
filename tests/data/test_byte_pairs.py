"""Words cut by ranked merges: by the rule itself, and how the time grows with a word."""

import random
import time
from itertools import pairwise

import pytest
from sacremoses import MosesPunctNormalizer

from jax_transformer.data.moses import Moses, normalizer
from jax_transformer.data.vocabularies.bpe import END, Codes, Merges


def by_the_rule(word: str, codes: Codes) -> list[str]:
    """Merge, from left to right, the pair of neighbours that was learned first, until none is."""
    symbols = [*word, END] if codes.end_apart else [*word[:-1], word[-1] + END]
    while learned := [pair for pair in codes.merges if pair in [*pairwise(symbols)]]:
        merged = []
        while symbols:
            count = 2 if tuple(symbols[:2]) == learned[0] else 1
            merged.append("".join(symbols[:count]))
            symbols = symbols[count:]
        symbols = merged
    pieces = symbols[:-1] if symbols[-1] == END else symbols
    return [*pieces[:-1], pieces[-1].removesuffix(END)]


@pytest.mark.parametrize("end_apart", [False, True])
def test_words_are_cut_by_the_rule_whatever_the_order_of_the_merges(end_apart):
    draw = random.Random(0)
    for _ in range(400):
        symbols, merges = ["a", "b", END], dict[tuple[str, str], None]()
        for _ in range(draw.randint(1, 10)):
            left, right = draw.choices(symbols, k=2)
            merges[left, right] = None
            symbols += [left + right, right + END]
        codes = Codes(draw.sample([*merges], len(merges)), end_apart)
        cutter = Merges(codes)
        for length in range(2, 13):
            word = "".join(draw.choices("ab", k=length))
            assert cutter.cut(word) == by_the_rule(word, codes), (word, codes)
            assert cutter.cut_at_random(word, 0.0, draw.random) == cutter.cut(word)
    assert cutter.cut("") == [""]
    assert cutter.cut("a") == ["a"]


def test_the_time_of_a_word_grows_with_its_length_and_not_with_its_square():
    letters = "etaoin"
    symbols = [*letters, *(a + b for a in letters for b in letters)]
    cutter = Merges(Codes([(a, b) for a in symbols for b in symbols], end_apart=False))
    word = "".join(random.Random(0).choices(letters, k=40_000))

    def seconds(count: int) -> float:
        start = time.process_time()
        assert "".join(cutter.cut(word[:count])) == word[:count]
        return time.process_time() - start

    assert seconds(40_000) < 60 * min(seconds(2_000) for _ in range(3))  # 400 times if squared


def test_a_line_of_abbreviations_takes_no_longer_than_one_of_words():
    moses = Moses("en", "de", normalize=False)

    def seconds(text: str) -> float:
        start = time.process_time()
        moses.tokens(text)
        return time.process_time() - start

    seconds("a")
    assert seconds("A.B. " * 500) < 10 * max(seconds("A,B, " * 500), 0.005)


def test_full_stops_and_quotation_marks_change_places_as_sacremoses_says_and_in_no_longer_time():
    ours, theirs = normalizer("de"), MosesPunctNormalizer(lang="de")
    draws = random.Random(1)
    for _ in range(3_000):
        text = "".join(draws.choices('..." <a\t”', k=draws.randint(1, 16)))
        assert ours.normalize(text) == theirs.normalize(text), text
    began = time.perf_counter()
    ours.normalize("." * 30_000)  # 6 seconds with sacremoses's rule
    assert time.perf_counter() - began < 1
