"""The automaton of phrases against regular expressions over the text of random tokens."""

import io
import random
import re

import numpy as np
import pytest
import sentencepiece
from refusals import refusal

from jax_transformer.data.scripts import in_word
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.decoding.phrases import phrase_automaton
from jax_transformer.decoding.request import Request

EOS = 2
TEXTS = ["", "", "", *[" c", " ca", "t", "at", "s", " cat", " a"]]
TEXTS += [" s", ".", " co", "n", "c", " the cat", "é"]


def pattern(phrase):
    """A regular expression for whole words."""
    before = r"(?<!\w)" if re.match(r"\w", phrase) else ""
    after = r"(?!\w)" if re.search(r"\w$", phrase) else ""
    return before + re.escape(phrase) + after


@pytest.mark.parametrize("phrases", [["cat", "at s"], ["t."], ["a cat", "c"], [". c"]])
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


def test_a_phrase_is_not_begun_if_no_token_can_go_on_with_its_word():
    words = ["", "", "", " z", " a", " b", " bz"]
    automaton = phrase_automaton(["z", "a b"], words, EOS)
    assert automaton.forbidden[0].tolist() == [False, False, False, True, False, False, False]
    after_a = automaton.next_state[0, 4]
    assert automaton.forbidden[after_a].tolist() == [False] * 3 + [True, False, True, False]
    letters = phrase_automaton(["z"], [*words, "o"], EOS)  # " zo" is another word
    assert not letters.forbidden[0, 3]
    after_z = letters.next_state[0, 3]
    assert letters.forbidden[after_z].tolist() == [*[False] * 2, *[True] * 5, False]


def test_after_a_prefix_that_ends_with_a_phrase_others_are_refused_and_something_is_allowed():
    draw = random.Random(5)
    pieces = [" a", " b", " ab", " c", "a", "b", "c", ".", " .", "-", " a b"]
    ended = 0
    for _ in range(300):
        texts = ["", "", "", *draw.sample(pieces, draw.randint(2, 8))]
        letters = ("".join(draw.choices("abc .-", k=draw.randint(1, 5))) for _ in range(3))
        phrases = [" ".join(text.split()) for text in letters if text.strip()] or ["a"]
        automaton = phrase_automaton(phrases, texts, EOS)
        prefix = draw.choices(range(3, len(texts)), k=draw.randint(1, 3))
        state, text, token = 0, "".join(texts[token] for token in prefix), 0
        for token in prefix:
            state = automaton.next_state[state, token]
        given, row = len(text), automaton.without_ended[state]
        for _ in range(7):
            token = draw.choice(np.flatnonzero(~automaton.forbidden[row])[2:])
            text += texts[token]
            if token == EOS:
                ended += 1
                for phrase in phrases:
                    for found in re.finditer(f"(?={pattern(phrase)})", text):
                        assert found.start() + len(phrase) <= given, (phrases, text, given)
                break
            state = row = automaton.next_state[state, token]
    assert ended > 50


def test_phrases_are_lines_with_something_to_read():
    for phrase in ("\u200b", "\0", "a\udcff", "a\nb"):
        assert refusal(Request, without=("ok", phrase)).startswith("without")


def allowed(phrases, texts):
    """Whether the text of some tokens, which the end follows, is allowed."""
    automaton, state = phrase_automaton(phrases, [*TEXTS, *texts], EOS), 0
    for token in [*range(len(TEXTS), len(TEXTS) + len(texts)), EOS]:
        if automaton.forbidden[state, token]:
            return False
        state = automaton.next_state[state, token]
    return True


@pytest.mark.parametrize("phrase", ["好", "喜欢", "欢GPU", "GPU", "很 好", "กิน"])
def test_a_letter_of_a_script_without_spaces_needs_no_border(phrase):
    text = " 我喜欢GPU很 好。กินข้าว"
    for size in (1, 2, len(text)):
        assert not allowed([phrase], [text[i : i + size] for i in range(0, len(text), size)])
    assert allowed(["喜GPU", "GP", "很好", "欢喜"], [*text])


@pytest.mark.parametrize(
    ("phrase", "text", "contains"),
    [
        ("café", "un café.", True),
        ("café", "un cafés", False),
        ("caf", "un café", False),
        ("cat", "cat好", True),
        ("é", "aé é", True),
        ("naïve €", "so naïve € 5", True),
    ],
)
def test_pieces_that_are_bytes_are_read_as_the_letters_that_they_make(phrase, text, contains):
    assert allowed([phrase], [bytes([byte]) for byte in text.encode()]) == (not contains)
    mixed = [
        piece
        for letter in text
        for piece in ([letter] if letter in "cafn" else [bytes([b]) for b in letter.encode()])
    ]
    assert allowed([phrase], mixed) == (not contains)


def test_phrases_whose_table_would_be_too_large_are_refused(monkeypatch):
    """Of many letters that are several bytes each there are very many beginnings."""
    monkeypatch.setattr("jax_transformer.decoding.phrases.MOST_PLACES", 20_000)
    texts = ["", "", "", *(bytes([byte]) for byte in range(256))]
    letters = "".join(chr(0x4E00 + 64 * i) for i in range(20))
    assert phrase_automaton([letters[:2]], texts, EOS)
    assert "give fewer or shorter phrases" in refusal(phrase_automaton, [letters], texts, EOS)


def test_two_spaces_are_read_as_one_and_a_mark_belongs_to_its_letter():
    assert not allowed(["the \u2047"], [" the", " ", " \u2047 "])
    assert allowed(["cafe"], [" cafe", "\u0301"])


TRAINED = ["the old dog in the Café, e.g. a cat_1", "我喜欢GPU很好。", "กินข้าว GPU", "naïve"] * 9


def contains(text, phrase):
    """Whether a text contains a phrase whose ends are not inside a longer word."""
    for found in re.finditer(f"(?={re.escape(phrase)})", text):
        before, after = text[: found.start()][-1:], text[found.start() + len(phrase) :][:1]
        ends = (before, phrase[0]), (phrase[-1], after)
        if not any(a and b and in_word(a) and in_word(b) for a, b in ends):
            return True
    return False


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", "add_dummy_prefix": False},
        {"model_type": "unigram", "user_defined_symbols": ["<br>", "\u2581"]},
        {"model_type": "char"},
        {"model_type": "bpe", "byte_fallback": True, "character_coverage": 0.98},
    ],
    ids=str,
)
def test_of_random_tokens_those_are_refused_whose_text_contains_a_phrase(options):
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINED),
        model_writer=content,
        vocab_size=340,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    vocabulary, draw, hits = SentencePieceVocabulary(content.getvalue()), random.Random(0), 0
    special = {vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id}
    texts = vocabulary.piece_texts
    usual = [i for i, t in enumerate(texts) if i not in special and isinstance(t, str)]
    for phrase in ("Café", "é", "好", "喜欢", "GPU", "กิน", "\u2047", "e.g.", "the old"):
        automaton = phrase_automaton([phrase], texts, vocabulary.eos_id)
        own = [i for text in (phrase, f" {phrase}") for i in vocabulary.encode(text)]
        for _ in range(40):
            parts = [
                [draw.choice(usual)] if draw.random() < 0.5 else vocabulary.encode(phrase)
                if draw.random() < 0.5 else [i for i in own if isinstance(texts[i], str)][:1]
                for _ in range(draw.randint(1, 4))
            ]  # fmt: skip
            tokens = [*(index for part in parts for index in part), vocabulary.eos_id]
            state, refused = 0, False
            for token in tokens:
                refused = refused or bool(automaton.forbidden[state, token])
                state = automaton.next_state[state, token]
            text = re.sub(" +", " ", vocabulary.decode(tokens))
            assert refused == contains(text, phrase), (phrase, text)
            hits += refused
    assert hits > 50
