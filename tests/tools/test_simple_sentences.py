"""The sentences that a newcomer may type: whether the demo can know them, and never saw them."""

import re

from jax_transformer import demo
from jax_transformer.runs.pipeline import HINTS
from tools.demo.lexicon import ADJECTIVES, NAMES, NOUNS, VERBS
from tools.demo.splits import simple_sentences

SIMPLE = simple_sentences()


def words(text):
    return set(re.findall(r"[\w']+", text.lower()))


def test_there_are_two_hundred_with_translations():
    assert len(SIMPLE) == 200
    assert all(translations for translations in SIMPLE.values())


def test_train_shows_every_word_of_them():
    english, german = (
        set().union(*map(words, side)) for side in zip(*demo.sentence_pairs("train"), strict=True)
    )
    for source, translations in SIMPLE.items():
        assert words(source) <= english, source
        assert any(words(translation) <= german for translation in translations), source


def test_no_split_has_one_of_them_or_a_translation_of_one():
    def bare(text):
        return text.strip(".!?").lower()

    simple = {bare(text) for row in SIMPLE.items() for text in (row[0], *row[1])}
    for split in ("train", "dev", "test"):
        for pair in demo.sentence_pairs(split):
            assert simple.isdisjoint(map(bare, pair))


def test_the_hint_after_training_is_true_of_the_lexicon():
    nouns = {word for noun in NOUNS for word in noun.split()}
    verbs = {verb.english[0] for table in VERBS.values() for verb in table.values()}
    known = len(nouns | verbs | {*ADJECTIVES, *NAMES})
    assert abs(int(re.findall(r"\d+", HINTS["demo"])[0]) - known) < 20
    assert all('try "Where is the key' in hint for hint in HINTS.values())
