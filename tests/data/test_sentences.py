"""Paragraphs that come apart at the right places."""

import random
import sys

import pytest
from refusals import refusal

from jax_transformer.data.sentences import sentence_splitter

pytest.importorskip("sentencex", reason="splits: pip install -e '.[sentences]'")


# As a person would split them.
PARAGRAPHS = {
    "en": 'Dr. Smith paid $3.50 on Jan. 5.|Did he?|He said: "Wait. I\'m late."|Then... he left.',
    "de": "Am 3. Oktober kam z. B. Dr. Müller.|Er blieb bis 8 Uhr!|„Komm her. Jetzt“, sagte er.",
    "fr": "Il est né en 1950.|Où ça ?|À Paris.",
    "ru": "Он живёт на ул. Ленина.|Где же?",
}


def test_sentences_end_where_a_person_ends_them():
    for language, paragraph in PARAGRAPHS.items():
        sentences = paragraph.split("|")
        assert sentence_splitter(language)(f"  {'  '.join(sentences)} ") == sentences


def test_all_text_but_the_space_between_sentences_stays():
    letters = "..?! \"'()aBé你。\u2028\u00a0\u3000\x85\x00\x1c\t\r“”«»\u0301\U0010ffff1"
    split, random_ = sentence_splitter("en"), random.Random(1)
    for _ in range(1000):
        text = "".join(random_.choices(letters, k=random_.randrange(40)))
        sentences = split(text)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        lines = ["".join(sentence.splitlines()) for sentence in sentences]
        assert all(line == line.strip() for line in lines)
        assert [s[len(line) :] for s, line in zip(sentences, lines, strict=True) if s != line] == [
            line[len(line.splitlines()[0]) :]
            for line in text.splitlines(keepends=True)
            if line != line.splitlines()[0]
        ]
        remaining = iter(text)
        assert all(letter in remaining for letter in "".join(sentences))  # inner spaces as well


def test_a_space_of_several_bytes_does_not_end_the_process():
    text = "\ud7ff!”'sИz.B\xa0\u3000.«т.д's¡”»"  # sentencex 1.0.32 panics at it
    assert "".join(sentence_splitter("cs")(text)).startswith("\ud7ff!”")


def test_what_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    assert "pip install 'PATH[sentences]'" in refusal(sentence_splitter, "en")
