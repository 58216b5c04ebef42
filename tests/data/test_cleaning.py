"""Cleaning: each rule removes what it is for, and leaves sound text of any language alone."""

import random
import unicodedata
from collections import Counter
from statistics import median

import pytest
from real_data import real_data

from jax_transformer.data import cleaning
from jax_transformer.data.cleaning import RULES, Limits, examples, find_rules, report
from jax_transformer.data.text import ParallelFiles

LIMITS = Limits(equal=20, symbols=0.7, word=60, foreign=0.5, ratio=2.5, copies=1)


def removed(pairs, limits=LIMITS):
    """The rule that removes each pair, or None."""
    return [None if number == 0 else [*RULES][number - 1] for number in find_rules(pairs, limits)]


def sentences(count, alphabet, seed, spaced=True):
    """Sentences of 4 to 9 words, no two alike."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(alphabet, k=draw.randint(2, 8))) for _ in range(200)]
    lines = [draw.choices(words, k=draw.randint(4, 9)) for _ in range(count)]
    return [(" " if spaced else "").join(line) + "." for line in lines]


LATIN, CYRILLIC = "abcdefghijklmnopqrstuvwxyzäöü", "абвгдежзийклмнопрстуфхцчшщ"
HAN, THAI = "的一是不了人我在有他这中大来上国", "กขคงจฉชซญดตถทนบปพฟมยรลวสหอะาิีุู"
KANA = "あいうえおかきくけこさしすせそアイウエオカキクケコ"


@pytest.fixture
def sound():
    """300 pairs in Latin letters whose sides are about as long."""
    source = sentences(300, LATIN, 1)
    return [(line, line.upper()[::-1]) for line in source]


NOISE = {
    "empty": [("", "WORT"), ("word", " \u00a0 "), ("", "")],
    "equal": [("the same words on both sides here", "the same words on both sides here ")],
    "symbols": [("see 12-34-56.78", "1 2 3 4 5 6 7 8"), ("|| -- || **", "a sound sentence")],
    "word": [("a" * 61, "another long sentence, as long as the one that it translates.... ....")],
    "script": [("a sound sentence", "это другое письмо"), ("другое", "a sound")],
    "ratio": [("yes", "a sentence that has no business to translate it"), ("no " * 20, "nein")],
}


def test_each_rule_removes_its_noise_and_the_second_of_two_equal_pairs(sound):
    noise = [(pair, rule) for rule, pairs in NOISE.items() for pair in pairs]
    pairs = [*sound[:200], *(pair for pair, _ in noise), *sound[200:], sound[7], (sound[9][0], "x")]
    expected = [None] * 200 + [rule for _, rule in noise] + [None] * 100 + ["copy", "ratio"]
    assert removed(pairs) == expected
    two = removed([*sound, *sound, *sound], LIMITS._replace(copies=2))
    assert two == [None] * 600 + ["copy"] * 300
    assert removed([]) == []
    assert "ratio" not in removed(pairs, LIMITS._replace(ratio=float("inf")))  # without a warning
    assert "symbols" not in removed(pairs, LIMITS._replace(symbols=float("inf")))
    assert removed([("", "")] * 3) == ["empty"] * 3


def test_what_is_at_a_limit_stays(sound):
    short = [("München", "München"), ("I'm 19.", "Ich bin 19."), ("No.", "Das weiß ich nicht.")]
    code = "SuppressConsumesConstraintForFormFileParameters"
    few = [("π in words", "π im Text"), (f"Set {code} to true.", f"Stellen Sie {code} auf true.")]
    names = [("Visual Studio Code 2", "Visual Studio Code 2"), ("a" * 60, "b" * 60)]
    assert removed([*sound, *short, *few, *names]) == [None] * (len(sound) + 7)
    shares = [("ISO 1234567", "NIS 1234567"), ("a" * 71 + "ж" * 29, "b" * 100)]
    assert removed([*sound, *shares], LIMITS._replace(foreign=0.29, word=100)) == [None] * 302
    lengths = [("a" * 52, "b" * 30), ("a" * 53, "b" * 30)]  # 52 is 1.4 * 30 + 10
    assert removed([*sound, *lengths], LIMITS._replace(ratio=1.4))[300:] == [None, "ratio"]


def by_hand(pairs, limits):
    """The rules once more, pair by pair and character by character."""

    def script(character):
        name = unicodedata.name(character, "").split(" ")[0].split("-")[0]
        return {"HIRAGANA": "KANA", "KATAKANA": "KANA"}.get(name, name)

    def counts(text):
        return [script(c) for c in text if unicodedata.category(c)[0] == "L"]

    def solid(text):
        return [c for c in text if not c.isspace()]

    def longest(text):
        runs, run = [0], 0
        for c in text:
            inside = unicodedata.category(c)[0] in "LMN" and script(c) not in (
                "CJK",
                "THAI",
                "KANA",
            )
            run = run + 1 if inside else 0
            runs.append(run)
        return max(runs)

    own = []
    for side in zip(*pairs, strict=True):
        letters = Counter(name for line in side for name in counts(line))
        own.append({name for name, n in letters.items() if n >= letters.total() / 10})
    scale = median(len(solid(t)) / len(solid(s)) for s, t in pairs if solid(s) and solid(t))
    seen, found = set(), []
    for pair in pairs:
        rule, sizes = None, [len(solid(pair[0])), len(solid(pair[1])) / scale]
        letters = [sum(unicodedata.category(c)[0] in "LM" for c in side) for side in pair]
        if 0 in sizes:
            rule = "empty"
        elif pair[0] == pair[1] and letters[0] > limits.equal:
            rule = "equal"
        elif any(
            1 - n / len(solid(side)) > limits.symbols + 1e-9
            for n, side in zip(letters, pair, strict=True)
        ):
            rule = "symbols"
        elif max(map(longest, pair)) > limits.word:
            rule = "word"
        elif any(
            counts(side).count(name) > n * limits.foreign
            for side, n, ours in zip(pair, letters, own, strict=True)
            for name in {*counts(side)} - ours
        ):
            rule = "script"
        elif max(sizes) > limits.ratio * min(sizes) + 10:
            rule = "ratio"
        elif pair in seen:
            rule = "copy"
        seen.add(pair)
        found.append(rule)
    return found


@pytest.mark.parametrize(("seed", "foreign"), [(0, 0.5), (1, 0.2), (2, 0.0)])
def test_the_rules_are_those_that_are_applied_character_by_character(seed, foreign, monkeypatch):
    monkeypatch.setattr(cleaning, "_BLOCK", 17)
    draw = random.Random(seed)

    def line():
        alphabet = draw.choices([LATIN, CYRILLIC, HAN, THAI, "0123456789.,-=#"], [9, 1, 1, 1, 2])[0]
        if draw.random() < 0.1:
            alphabet += "0123456789... "
        if draw.random() < 0.1:
            alphabet += CYRILLIC[:9]
        words = ["".join(draw.choices(alphabet, k=draw.randint(1, 12))) for _ in range(9)]
        return " ".join(words[: draw.randint(0, 9)])

    pairs = [(f"{line()} {line()} {line()}", line()) for _ in range(300)]
    pairs += [(line, line) for line in sentences(9, LATIN, seed)] + draw.choices(pairs, k=300)
    limits = LIMITS._replace(word=10, foreign=foreign, ratio=1.5 + seed, symbols=0.5)
    expected = by_hand(pairs, limits)
    assert {*expected} == {None, *RULES}
    assert removed(pairs, limits) == expected


@pytest.mark.parametrize(
    "target",
    [
        sentences(300, HAN, 2, spaced=False),
        sentences(300, HAN + KANA, 3, spaced=False),
        sentences(300, THAI, 4, spaced=False),
        [*sentences(150, CYRILLIC, 5), *sentences(150, LATIN, 6)],  # as Serbian is written
        sentences(300, "abcdefgh" * 5, 7),
    ],
    ids=["Chinese", "Japanese", "Thai", "Serbian", "Latin"],
)
def test_no_rule_removes_sound_text_whatever_its_script_and_length(target):
    source = [f"{line} {line[::-1]}" for line in sentences(300, LATIN, 8)]  # twice as long
    lengths = [len(line) for line in target]
    pairs = zip(sorted(source, key=len), sorted(target, key=len), strict=True)
    assert max(lengths) > 25
    assert removed([*pairs]) == [None] * 300


def test_up_to_five_examples_of_each_rule_are_chosen_and_the_report_counts_all(sound):
    pairs = [*sound, *((f"{n}", f"{n}") for n in range(50)), *NOISE["script"]]
    rules = find_rules(pairs, LIMITS)
    assert rules == bytes([0] * 300 + [3] * 50 + [5] * 2)
    chosen = examples(rules)
    assert Counter(chosen.values()) == {
        "mostly digits and symbols": 5,
        "letters of another script": 2,
    }
    assert all(RULES["symbols"] == chosen[index] for index in chosen if 300 <= index < 350)
    rows = [line.split(maxsplit=2) for line in report(rules)]
    assert [int(row[0]) for row in rows] == [0, 0, 50, 0, 2, 0, 0]
    assert ["50", "14.20%", "mostly digits and symbols"] in rows


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi30k", "tatoeba_deu_eng", "msdocs_ende", "wmt_news"])
def test_hardly_a_pair_of_sound_corpora_is_removed(name):
    folder = real_data(name)
    stem = "newstest2008-2012" if name == "wmt_news" else "train"
    files = [str(next(folder.glob(f"{stem}.{side}*"))) for side in ("en", "de")]
    rules = find_rules(ParallelFiles(*files).pairs(), LIMITS)
    assert rules.count(0) > 0.998 * len(rules)
