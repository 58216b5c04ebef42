"""Text that is cut anew at random: sane, reproducible, and within what batches hold."""

import random
from collections import Counter
from functools import partial
from itertools import chain, pairwise, product
from typing import Any

import numpy as np
import pytest
import sentencepiece
from sentencepiece_models import trained

from jax_transformer.data import resampling
from jax_transformer.data.batching import mixture_members
from jax_transformer.data.resampling import Resampler
from jax_transformer.data.token_store import Rules, encode_pairs
from jax_transformer.data.vocabularies.bpe import BpeContent, BpeVocabulary
from jax_transformer.data.vocabularies.sentencepiece import (
    SentencePieceVocabulary,
    train_vocabulary,
)

WORDS = ["lower", "lowest", "newer", "widest", "slow", "wider", "new", "low"]
LINES = [
    " ".join(np.random.default_rng(n).choice(WORDS, 3 + n % 5).tolist()) + " \u2603" * (n % 9 == 0)
    for n in range(300)
]
RULES = Rules(max_length=24)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """No piece has the sign that every ninth line ends with."""
    text = [line.replace(" \u2603", "") for line in LINES]
    return train_vocabulary(text, 60, tmp_path_factory.mktemp("v") / "v.model", up_to=True)


@pytest.fixture(scope="module")
def by_subword_nmt():
    ends, inner = ["low", "er", "est", "new"], ["lo@@", "low@@", "wid@@", "wi@@", "new@@", "ne@@"]
    letters = [form for letter in "lowernstid" for form in (letter, f"{letter}@@")]
    merges = ["l o", "lo w", "lo w</w>", "e r</w>", "w i", "wi d", "s t</w>", "e st</w>", "n e"]
    merges += ["ne w", "ne w</w>"]
    special: dict[str, Any] = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *ends, *inner, *letters]
    content = BpeContent(pieces=pieces, merges=merges, end_apart=False, **special)
    return BpeVocabulary.make(content)


@pytest.fixture(params=["learned", "by_subword_nmt"])
def vocabulary(request):
    return request.getfixturevalue(request.param)


def stores_of(vocabulary, rules=RULES, of=LINES):
    pairs = [(n, line, " ".join(reversed(line.split()))) for n, line in enumerate(of, start=1)]
    store = encode_pairs(pairs, (vocabulary, vocabulary), rules)
    store.description["max_length"] = rules.max_length
    return store


def resampler(vocabulary, seed=1, rate=0.2, members=None, stores=None, **options):
    stores = stores or [stores_of(vocabulary, **options)]
    everything = np.arange(sum(map(len, stores)))
    members = members or (lambda epoch: everything)
    return Resampler(stores, members, (vocabulary, vocabulary), rate, seed)


def rows_of(store):
    """[(line, source ids, target ids)]."""
    sides = [
        [tuple(store.tokens[side][a:b].tolist()) for a, b in pairwise(store.offsets[side])]
        for side in ("source", "target")
    ]
    return list(zip(store.lines.tolist(), *sides, strict=True))


def words_of(vocabulary):
    """Each word of LINES, as `encode` cuts it."""
    words = sorted({word for line in LINES for word in line.split()} - {"\u2603"})
    return words, vocabulary.encode_batch(words)


def test_rate_0_is_the_best_cut_rate_1_is_characters_and_the_text_stays(vocabulary):
    (words, plain), random = words_of(vocabulary), np.random.default_rng(1)
    times = [*range(1, len(words) + 1)]
    repeated = [ids for ids, n in zip(plain, times, strict=True) for _ in range(n)]
    assert vocabulary.sample_words(plain, times, 0.0, random) == repeated
    lengths = []
    for rate in (0.0, 0.1, 0.5, 1.0):
        sampled = vocabulary.sample_words(plain, [300] * len(words), rate, random)
        texts = vocabulary.decode_batch(sampled)
        assert texts == [word for word in words for _ in range(300)]
        lengths.append(sum(map(len, sampled)))
    assert lengths == sorted({*lengths})
    pieces = [piece for ids in sampled for piece in vocabulary.pieces(ids)]
    assert {len(piece.strip("\u2581").removesuffix("@@")) for piece in pieces} <= {0, 1}


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_text_without_sampling_is_cut_as_sentencepiece_does(kind, multi30k):
    """At rate 0 merges are those of sentencepiece; a large alpha leaves the best cut."""
    lines = (multi30k / "val.de").read_text(encoding="utf-8").splitlines()
    vocabulary = SentencePieceVocabulary(trained(lines, model_type=kind, vocab_size=2000))
    words = sorted({word for line in lines for word in line.split()})
    plain = vocabulary.encode_batch(words)
    rate = 0.0 if kind == "bpe" else 1000.0
    found = vocabulary.sample_words(plain, [1] * len(words), rate, np.random.default_rng(1))
    differing = [words[i] for i in range(len(words)) if found[i] != plain[i]]
    assert len(differing) <= len(words) // 500  # equal scores


def test_cuts_have_the_probabilities_of_the_same_process_word_by_word(learned):
    """Against subword-nmt's process in plain Python, with the merges that the pieces allow."""
    pieces, rate = learned.all_pieces[4:], 0.3
    merges = [
        (piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]
    rank = {pair: pieces.index("".join(pair)) for pair in merges}

    def by_hand(word, random):
        symbols = [*word]
        while True:
            offered = [
                (rank[pair], i)
                for i, pair in enumerate(pairwise(symbols))
                if pair in rank and random.random() >= rate
            ]
            if not offered:
                return tuple(symbols)
            _, i = min(offered)
            symbols[i : i + 2] = ["".join(symbols[i : i + 2])]

    draw, count = random.Random(3), 4000
    (plain,) = learned.encode_batch(["lowest"])
    found = learned.sample_words([plain], [count], rate, np.random.default_rng(3))
    ours = Counter(tuple(learned.pieces(ids)) for ids in found)
    theirs = Counter(by_hand("\u2581lowest", draw) for _ in range(count))
    assert len(theirs) > 4
    for cut in ours | theirs:
        assert ours[cut] / count == pytest.approx(theirs[cut] / count, abs=0.035)


def test_cuts_of_a_unigram_model_have_its_probabilities_to_the_power_of_alpha():
    vocabulary = SentencePieceVocabulary(
        trained(["abc ab bc a b c abc"] * 30, model_type="unigram", vocab_size=12)
    )
    scores = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.content).get_score
    (plain,), count, alpha = vocabulary.encode_batch(["abc"]), 10_000, 0.2
    found = vocabulary.sample_words([plain], [count], alpha, np.random.default_rng(5))
    letters = "\u2581abc"
    ids = {piece: i for i, piece in enumerate(vocabulary.all_pieces)}
    weights = {}
    for ends in product([False, True], repeat=3):  # every way to cut four letters
        places = [0, *(i + 1 for i, cut in enumerate(ends) if cut), 4]
        pieces = [letters[a:b] for a, b in pairwise(places)]
        if all(piece in ids for piece in pieces):
            cut = tuple(ids[piece] for piece in pieces)
            weights[cut] = np.exp(alpha * sum(scores(index) for index in cut))
    counts = Counter(map(tuple, found))
    assert counts.keys() <= weights.keys()
    assert len(counts) > 1
    for cut, weight in weights.items():
        expected = weight / sum(weights.values())
        assert counts[cut] / count == pytest.approx(expected, abs=0.02)


def test_a_vocabulary_of_characters_alone_has_one_cut_of_each_word(tmp_path):
    vocabulary = train_vocabulary(["ab cd"], 9, tmp_path / "v.model")  # one less is refused
    word = vocabulary.encode("ab")
    assert vocabulary.pieces(word) == ["\u2581", "a", "b"]
    assert vocabulary.sample_words([word], [2], 0.1, np.random.default_rng(1)) == [word] * 2


def test_symbols_of_the_user_stay_whole():
    options = {"model_type": "bpe", "vocab_size": 60, "user_defined_symbols": ["<sep>"]}
    vocabulary = SentencePieceVocabulary(trained([*LINES, "low<sep>er"], **options))
    (plain,) = vocabulary.encode_batch(["<sep>"])
    for ids in vocabulary.sample_words([plain], [50], 0.9, np.random.default_rng(1)):
        assert "<sep>" in vocabulary.pieces(ids)


def test_each_process_and_version_gives_the_same_cuts(learned):
    """What sentencepiece's own sampling does not."""
    plain, random = learned.encode_batch(["lowest", "wider"]), np.random.default_rng(7)
    found = learned.sample_words(plain, [4, 2], 0.5, random)
    cuts = [" ".join(learned.pieces(ids)).replace("\u2581", "_") for ids in found]
    assert cuts == ["_ lo w est", "_ lowe s t", "_lowest", "_ low est", "_w i d er", "_w i der"]


def test_parts_have_every_pair_once_in_each_epoch_cut_anew(vocabulary, monkeypatch):
    monkeypatch.setattr(resampling, "PART", 130)
    maker = resampler(vocabulary)
    longest = [int(side.max()) for side in maker.lengths]
    assert maker.parts == 3
    parts = [rows_of(*maker.part(number)) for number in range(6)]
    assert [*map(len, parts)] == [100] * 6
    epochs, changed = [sorted(chain(*parts[:3])), sorted(chain(*parts[3:]))], 0
    for epoch in epochs:
        for stored, found in zip(rows_of(stores_of(vocabulary)), epoch, strict=True):
            assert found[0] == stored[0]
            for before, after, most in zip(stored[1:], found[1:], longest, strict=True):
                assert vocabulary.decode(after) == vocabulary.decode(before)
                assert after[-1] == vocabulary.eos_id
                assert len(after) <= most
                changed += before != after
                assert before.count(vocabulary.unk_id) == after.count(vocabulary.unk_id)
    assert changed > 300
    assert epochs[0] != epochs[1]
    assert rows_of(*resampler(vocabulary).part(4)) == parts[4]
    assert rows_of(*resampler(vocabulary, seed=2).part(4)) != parts[4]


def test_parts_of_several_corpora_have_the_pairs_of_the_epoch_of_each_corpus(learned, monkeypatch):
    """A pair that an epoch has several times is cut several times."""
    monkeypatch.setattr(resampling, "PART", 130)
    stores = [stores_of(learned, of=LINES[:200]), stores_of(learned, of=LINES[200:])]
    stored = [[learned.decode(row[1]) for row in rows_of(store)] for store in stores]
    members = partial(mixture_members, [200, 100], [50, 250], seed=4)
    maker = resampler(learned, members=lambda epoch: members(epoch=epoch), stores=stores)
    assert maker.parts == 3
    for epoch in range(2):
        lines, cuts = [[], []], set()
        for number in range(3):
            for place, store in enumerate(maker.part(3 * epoch + number)):
                for line, source, _ in rows_of(store):
                    assert learned.decode(source) == stored[place][line - 1]
                    lines[place].append(line)
                    cuts.add(source)
        drawn = members(epoch=epoch)
        assert sorted(lines[0]) == sorted((drawn[drawn < 200] + 1).tolist())
        assert sorted(lines[1]) == sorted((drawn[drawn >= 200] - 199).tolist())
        assert len(cuts) > 200


def test_what_would_be_longer_than_the_longest_stays_as_it_was_stored(learned):
    tight = Rules(max_length=max(map(len, learned.encode_batch(LINES))) + 1)
    maker = resampler(learned, rate=0.2, rules=tight)
    stored, found = rows_of(stores_of(learned, tight)), rows_of(*maker.part(0))
    assert 0 < len({*stored} & {*found}) < len(stored)
    assert max(len(ids) for row in found for ids in row[1:]) <= tight.max_length


def test_the_expected_lengths_are_nearly_those_that_come(learned):
    maker = resampler(learned)
    (part,) = maker.part(3)
    for side, expected in zip(("source", "target"), maker.lengths, strict=True):
        assert part.lengths(side).sum() == pytest.approx(expected.sum(), rel=0.1)
        assert (expected >= stores_of(learned).lengths(side)).all()
