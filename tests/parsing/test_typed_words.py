"""Brackets, quotation marks and fractions as people type them, for parsers of several treebanks."""

import pytest
from small_run import write_run

import jax_transformer as jt
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.evaluation.evaluate import decode
from jax_transformer.evaluation.perplexity import loss_scores
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import leaves
from jax_transformer.parsing.typed_words import TypedWords

PENN = [
    "he said `` yes '' -LRB- in 1\\/2 or 3\\/4 of the cases -RRB- .",
    "-LCB- the BSL \\* -- a 's ... ` x ' -RCB-",
]
RAW = [
    'he said " yes " [ in 1/2 and/or 3/4 ] { \u2013 } *',
    "\u201c a \u201d \u2019s \u2026 _ -LRB- -LSB-",
]
TYPED = {
    "[ 1 ] { 2 }": "-LSB- 1 -RSB- -LCB- 2 -RCB-",
    '" a " b " c "': "`` a '' b `` c ''",
    '`` a " b': "`` a '' b",
    "'' \" a": "'' `` a",
    'a . "': "a . ''",
    '"a" (b[1])': "``a'' -LRB-b-LSB-1-RSB--RRB-",
    "1/2 and/or * 3\\/4 \\*": "1\\/2 and\\/or \\* 3\\/4 \\*",
    "\u201c a \u201d \u2018 b \u2019 c \u2019s": "`` a '' ` b ' c 's",
    "\u201e a \u201c b \u201ec\u201c \u201c d \u201d": "`` a '' b ``c'' `` d ''",
    "\u2013 \u2014 \u2026 \u201e \u00ab \u00bb": "-- -- ... `` `` ''",
    "-LSB- `` 1\\/2 '' -RSB-": "-LSB- `` 1\\/2 '' -RSB-",
}


@pytest.mark.parametrize("pieces", [60, 200])
def test_a_form_that_only_the_treebank_has_takes_the_place_of_the_typed_one(tmp_path, pieces):
    words = TypedWords(train_vocabulary(PENN * 9, pieces, tmp_path / "v", up_to=True))
    for typed, form in TYPED.items():
        assert " ".join(words.forms(typed.split(" "))) == form


@pytest.mark.parametrize("lines", [RAW, ["no signs at all"]])
def test_what_the_treebank_has_too_or_has_no_form_for_stays(tmp_path, lines):
    words = TypedWords(train_vocabulary(lines * 9, 200, tmp_path / "v", up_to=True))
    typed = '[ " 1/2 " ] { and/or } * \u201c a \u201d \u2019s \u2013 \u2026'
    assert " ".join(words.forms(typed.split(" "))) == typed


@pytest.mark.slow
def test_a_parser_writes_the_treebanks_forms_and_is_scored_on_the_words_of_gold(tmp_path):
    settings = "data.task=parsing", "decoding.beam_size=1", "data.max_length=40"
    parser = jt.load(write_run(tmp_path / "run", *settings, lines=PENN * 9, pieces=200))
    typed, form = '[ " 1/2 " ]', "-LSB- `` 1\\/2 '' -RSB-"
    first, second = parser.parse([typed, form])
    assert first == second
    assert [word for _, word in leaves(parse_tree(first))] == form.split(" ")
    translator = parser.translator()
    (text,) = decode(translator, [typed]).texts
    assert [word for _, word in leaves(parse_tree(text))] == typed.split(" ")
    gold = ["(TOP (S (NP (DT the) (NN door)) (VP (VBZ opens)) (. .)))"]
    both = [loss_scores(translator, parser.config, [line], gold)[0] for line in (typed, form)]
    assert [score.score for score in both[0]] == [score.score for score in both[1]]
