"""What can be read, what a word is, and what joins sentences, in many writing systems."""

import unicodedata

import pytest

from jax_transformer.data.scripts import (
    ends_in_word,
    in_word,
    is_blank,
    spaces_between,
    stands_alone,
    words_of,
)


def test_text_without_anything_to_read_is_blank():
    for text in ("", " \t", *"\u200b\ufeff\u00ad\u2060\u200e\ufe0f\0\u3000"):
        assert is_blank(text)
        assert is_blank(text + "\u0301 ")
        # The last two are of a font, and not yet a symbol.
        for seen in "a7?\u2603\U0001f642\u597d\u0e01\ud800\uf8ff\U0001faff":
            assert not is_blank(text + seen)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a no\u00a0break\tb ", ["a", "no\u00a0break", "b"]),
        ("我喜欢GPU很好。", ["我", "喜", "欢", "GPU", "很", "好", "。"]),
        ("東京タワー は 333m", ["東", "京", "タ", "ワ", "ー", "は", "333m"]),
        ("กินที่นี่", ["กิ", "น", "ที่", "นี่"]),  # marks stay with their letters
        ("한국어 문장", ["한국어", "문장"]),  # Korean has spaces
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("東京\u3000タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("น\u200bข้าว", ["น", "ข้", "า", "ว"]),
    ],
)
def test_words_are_what_a_reader_of_the_script_sees(line, words):
    assert words_of(line) == words


def test_a_mark_on_a_letter_does_not_change_what_the_letter_is():
    assert [*map(ends_in_word, ["Ein", "e\u0301", "हिन्दी", "שָׁ", "_"])] == [True] * 5
    assert [*map(ends_in_word, ["ที่", "好", "か\u3099", "(", "", "\u0301"])] == [False] * 6


def test_letters_of_seven_scripts_stand_alone_and_those_of_others_do_not():
    alone = "CJK UNIFIED", "HIRAGANA LETTER", "KATAKANA LETTER", "THAI CHARACTER", "LAO LETTER"
    alone += "KHMER LETTER", "MYANMAR LETTER", "TIBETAN LETTER"
    joined = "LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW", "DEVANAGARI", "HANGUL", "ETHIOPIC"
    for letter in filter(str.isalpha, map(chr, range(0x2FFFF))):
        name = unicodedata.name(letter, "")
        if name.startswith(alone):
            assert stands_alone(letter), name
            assert not in_word(letter)
        elif name.startswith(joined):
            assert not stands_alone(letter), name
            assert in_word(letter)


def test_a_space_stands_between_sentences_if_the_script_has_one_there():
    without = ("好。", "好你。"), ("「はい。」", "いいえ。"), ("他说“好。”", "GPU很好。")
    assert not any(spaces_between(*both) for both in without)
    # Thai has spaces between sentences.
    assert all(spaces_between(*both) for both in (("Yes.", "No."), ("네.", "네."), ("ใช่", "ไม่")))
