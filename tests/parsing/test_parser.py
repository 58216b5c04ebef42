"""Lines of words in, trees over exactly these words out, on a parser trained for seconds."""

import random
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest
from sentencepiece_models import trained as trained_model

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.data.token_store import Rules, encode_pairs
from jax_transformer.data.vocabularies.sentencepiece import (
    SentencePieceVocabulary,
    train_vocabulary,
)
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.generate import translate
from jax_transformer.decoding.line_search import Hypothesis, lines_of
from jax_transformer.decoding.request import Request
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer
from jax_transformer.parsing.constrained_search import constrained_search
from jax_transformer.parsing.grammar import tree_grammar
from jax_transformer.parsing.linearize import delinearize, linearize
from jax_transformer.parsing.parser import Parser, words_of
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import label_vocabulary
from jax_transformer.parsing.trees import leaves, with_root, without_root, write_tree
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_loss, make_train_step

CONFIG = ModelConfig(
    num_layers=1, d_model=32, d_ff=32, num_heads=2, d_k=16, d_v=16, tie_embeddings=False
)
MOST = 24
THREE = Request(n_best=3)


def some_tree(draw, words):
    """A tree whose labels say how many words they hold."""
    if len(words) == 1:
        return draw.choice(["NN", "VB"]), words[0]
    cut = draw.randint(1, len(words) - 1)
    return f"X{min(len(words), 4)}", tuple(
        some_tree(draw, part) for part in (words[:cut], words[cut:])
    )


@pytest.fixture(scope="module")
def trees():
    draw = random.Random(1)
    return [
        with_root(some_tree(draw, draw.choices("abcdefgh", k=draw.randint(1, 7))), "ROOT")
        for _ in range(100)
    ]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "v.model"
    return train_vocabulary(["a b c d e f g h", "( ) - L R B"], 40, path, up_to=True)


@pytest.fixture(scope="module")
def trained(trees, vocabulary):
    """(model, params, labels) after so few steps that some outputs are trees and some are not."""
    labels = label_vocabulary(trees)
    model = Transformer(CONFIG, vocabulary.size, vocabulary.pad_id, labels.size)
    optimizer = adam_with_warmup(CONFIG.d_model, 60)
    step = jax.jit(make_train_step(make_loss(model, labels.bos_id, 0.1), optimizer))
    state = jax.jit(lambda: initial_state(model, optimizer, 0))()
    source, target = np.zeros((100, 9), np.int32), np.zeros((100, 24), np.int32)
    for row, tree in enumerate(trees):
        words = vocabulary.encode(" ".join(word for _, word in leaves(tree)))
        inner = without_root(tree)
        (written,) = labels.encode_batch([" ".join(linearize(inner))])
        assert written is not None
        source[row, : len(words) + 1] = [*words, vocabulary.eos_id]
        target[row, : len(written) + 1] = [*written, labels.eos_id]
    for _ in range(120):
        state, _ = step(state, Batch(source, target))
    return model, jax.device_get(state.params), labels


@pytest.fixture(scope="module")
def parser(trained, vocabulary):
    """A parser of beam 4, compiled once, for one source length."""
    model, params, labels = trained
    decoding = DecodingConfig(beam_size=4, alpha=0.3, max_extra_length=60, batch_tokens=256)
    return Parser(model, params, vocabulary, decoding, target_vocabulary=labels, max_length=MOST)


def lines(count, longest, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices("abcdefgh", k=draw.randint(1, longest))) for _ in range(count)]


@pytest.mark.slow
def test_only_sentences_without_a_tree_are_searched_again_whatever_n_best_is(
    trained, vocabulary, parser
):
    model, params, labels = trained
    given = lines(20, 9, seed=3)
    decoding = DecodingConfig(beam_size=4, alpha=0.3, max_extra_length=60)
    ids: dict[str, Any] = {"bos_id": labels.bos_id, "eos_id": labels.eos_id}
    grammar = tree_grammar(labels.names, labels.eos_id)
    source = np.zeros((20, 12), np.int32)
    for row, line in enumerate(given):
        tokens = vocabulary.encode(line)
        source[row, : len(tokens) + 1] = [*tokens, vocabulary.eos_id]
    words = np.array([len(words_of(line)) for line in given], np.int32)

    @jax.jit
    def both(source, words):
        search = partial(constrained_search, words=words, grammar=grammar)
        return (
            translate(model, params, source, decoding, **ids),
            translate(model, params, source, decoding, **ids, search=search),
        )

    free, constrained = jax.device_get(both(source, words))
    found = parser.translate_lines(given, request=THREE)
    second = 0
    for row, (line, (best, *_)) in enumerate(zip(given, found, strict=True)):
        second += best.constrained
        try:
            tree = delinearize(labels.decode(free.tokens[row, 0]).split(), words_of(line))
            score = free.scores[row, 0]
            assert not best.constrained
        except InputError:
            tree = delinearize(labels.decode(constrained.tokens[row, 0]).split(), words_of(line))
            score = constrained.scores[row, 0]
            assert best.constrained
        assert best.text == write_tree(with_root(tree, "ROOT"))
        np.testing.assert_allclose(best.score, score, rtol=1e-4)
    assert 0 < second < 20


@pytest.mark.slow
def test_words_beyond_max_length_follow_the_tree(trained, parser, caplog):
    line = " ".join("abcdefgh" * 6)
    ((best, *_),) = parser.translate_lines([line], first=7, request=THREE)
    label, children = parse_tree(best.text)
    assert label == "ROOT"
    assert not isinstance(children, str)
    assert len(children) == 1 + 48 - (MOST - 1)
    assert {child[0] for child in children[1:]} == {trained[2].names[3]} <= {"NN", "VB"}
    (warning,) = caplog.records
    assert warning.getMessage().startswith("line 7: expected at most 23 tokens")


def test_words_that_follow_a_tree_are_in_its_outer_bracket(parser):
    tag = parser._common_tag
    for label in ("ROOT", "TOP"):
        written = parser._written((label, (("NN", "a"), ("VB", "b"))), ["c", "d"])
        assert written == f"(ROOT (NN a) (VB b) ({tag} c) ({tag} d))"


@pytest.mark.slow
def test_n_best_trees_are_distinct_and_ordered_and_a_line_end_separates_words(parser):
    parsed = parser.translate_lines([*lines(10, 8), "a b\nc", "a b c"], request=THREE)
    for parses in parsed:
        assert len({each.text for each in parses}) == len(parses) >= 2
        assert all(one.score >= other.score for one, other in pairwise(parses))
    assert [tree.text for tree in parsed[-2]] == [tree.text for tree in parsed[-1]]


@pytest.mark.slow
def test_a_model_with_scores_of_nan_is_refused(parser):
    broken = parser.with_params(jax.tree.map(lambda leaf: leaf * np.nan, parser.params))
    with pytest.raises(InputError, match=r"line \d: .* not finite"):
        broken.translate_lines(lines(4, 6), request=THREE)


def untrained(vocabulary, tree):
    labels = label_vocabulary([tree])
    model = Transformer(CONFIG, vocabulary.size, vocabulary.pad_id, labels.size)
    own = model, {}, vocabulary, DecodingConfig()
    return Parser(*own, target_vocabulary=labels, max_length=MOST)


def test_a_no_break_space_is_part_of_a_label(vocabulary):
    tree = parse_tree("(ROOT (X\u00a0Y (NN a) (VB b)))")
    parser = untrained(vocabulary, tree)
    (sentence,) = parser.read(lines_of(["a b"], 1))
    (tokens,) = parser.labels.encode_batch([" ".join(linearize(without_root(tree)))])
    (found,) = parser.written(sentence, [Hypothesis(tokens, 0.0, 0.0)])
    assert found is not None
    assert found.text == write_tree(tree)


def test_two_outputs_that_are_written_alike_are_one(vocabulary):
    parser = untrained(vocabulary, parse_tree("( (UH a) (. .))"))
    sentences = parser.read(lines_of(["a"], 1))
    names = ["UH", "TOP UH /TOP"]
    symbols = parser.labels.encode_batch([name.replace("TOP UH", "(TOP UH") for name in names])
    found = [Hypothesis(tokens, -i, -i) for i, tokens in enumerate(symbols)]
    outputs = parser.written(sentences[0], found)
    assert [each and each.text for each in outputs] == ["( (UH a))"] * 2
    assert parser.completed(sentences, [outputs]) == [outputs[:1]]


@pytest.mark.parametrize(
    "word", ["a\u00a0b", "a\u200bb", "\ufeffb", "a\u2581b", "\u200b", "\u200d", "\ufffd"]
)
@pytest.mark.parametrize("rules", ["identity", "nmt_nfkc"])
def test_each_word_begins_once_and_training_reads_what_the_parser_reads(rules, word):
    """Its words are counted by where they begin, if data.word_positions is set."""
    text, options = ["a b c d e f g h"] * 4, {"normalization_rule_name": rules, "pad_id": 3}
    vocabulary = SentencePieceVocabulary(trained_model(text, vocab_size=20, **options))
    parser = untrained(vocabulary, parse_tree("(ROOT (X (NN a) (VB b)))"))
    line = f"c {word} d"
    (sentence,) = parser.read(lines_of([line], 1))
    assert [vocabulary.word_starts[token] for token in sentence.tokens].count(1) == 3
    both, symbols = (vocabulary, parser.target_vocabulary), "(X NN VB VB /X"
    store = encode_pairs([(1, line, symbols)], both, Rules(MOST))
    assert [*np.asarray(store.tokens["source"])] == [*sentence.tokens, vocabulary.eos_id]


@pytest.mark.release
def test_parsers_can_be_averaged(trained, parser, vocabulary):
    """A model and one without an opinion parse less probably than it alone."""
    model, params, labels = trained
    ensemble = Ensemble((model, model), (0.5, 0.5))
    own = model, [params, jax.tree.map(np.zeros_like, params)], vocabulary, parser.decoding
    both = Parser(*own, target_vocabulary=labels, max_length=MOST, ensemble=ensemble)
    given = lines(4, 6)
    found, single = (each.translate_lines(given, request=THREE) for each in (both, parser))
    for line, uniform, alone in zip(given, found, single, strict=True):
        assert [word for _, word in leaves(parse_tree(uniform[0].text))] == words_of(line)
        assert uniform[0].log_prob < alone[0].log_prob
