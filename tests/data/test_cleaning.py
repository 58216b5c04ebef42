"""Cleaning: each rule takes what it is for, and leaves sound text of any language alone."""

import logging
import random
import unicodedata
from collections import Counter
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from letters import letters, write_letters
from real_data import real_data
from refusals import refusal

from jax_transformer.config import Config, DataConfig, override
from jax_transformer.data import cleaning
from jax_transformer.data.cleaning import RULES, Cleaning, table
from jax_transformer.data.data_folder import DataFolder
from jax_transformer.data.datasets import FileCorpus
from jax_transformer.data.prepare import prepare
from jax_transformer.files import parse_json

CLEAN = DataConfig(clean=True, vocabulary_size=200, vocabulary_up_to=True)


def corpus_of(folder, pairs, split="train"):
    """The pairs as a corpus of files."""
    folder.mkdir(exist_ok=True)
    for place, side in enumerate(("source", "target")):
        lines = "".join(f"{pair[place]}\n" for pair in pairs)
        (folder / f"{split}.{side}").write_text(lines, encoding="utf-8")
    names = [f"{split}_{side}" for side in ("source", "target")]
    return FileCorpus({name: str(folder / name.replace("_", ".")) for name in names})


def taken(folder, pairs, **settings):
    """The rule that takes each pair, or None."""
    data = replace(CLEAN, **settings)
    found = Cleaning(corpus_of(folder, pairs), data).taken("train")
    return [None if number == 0 else [*RULES][number - 1] for number in found.tolist()]


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


def test_each_rule_takes_its_noise_and_the_second_of_two_equal_pairs(tmp_path, sound):
    noise = [(pair, rule) for rule, pairs in NOISE.items() for pair in pairs]
    pairs = [*sound[:200], *(pair for pair, _ in noise), *sound[200:], sound[7], (sound[9][0], "x")]
    expected = [None] * 200 + [rule for _, rule in noise] + [None] * 100 + ["copy", "ratio"]
    assert taken(tmp_path, pairs) == expected


def test_what_is_at_a_limit_stays(tmp_path, sound):
    short = [("München", "München"), ("I'm 19.", "Ich bin 19."), ("No.", "Das weiß ich nicht.")]
    code = "SuppressConsumesConstraintForFormFileParameters"
    few = [("π in words", "π im Text"), (f"Set {code} to true.", f"Stellen Sie {code} auf true.")]
    names = [("Visual Studio Code 2", "Visual Studio Code 2"), ("a" * 60, "b" * 60)]
    assert taken(tmp_path, [*sound, *short, *few, *names]) == [None] * (len(sound) + 7)


def by_hand(pairs, data):
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
        elif pair[0] == pair[1] and letters[0] > data.clean_max_equal:
            rule = "equal"
        elif any(
            1 - n / len(solid(side)) > data.clean_max_symbols + 1e-9
            for n, side in zip(letters, pair, strict=True)
        ):
            rule = "symbols"
        elif max(map(longest, pair)) > data.clean_max_word:
            rule = "word"
        elif any(
            counts(side).count(name) > n * data.clean_max_foreign
            for side, n, ours in zip(pair, letters, own, strict=True)
            for name in {*counts(side)} - ours
        ):
            rule = "script"
        elif max(sizes) > data.clean_max_ratio * min(sizes) + 10:
            rule = "ratio"
        elif pair in seen:
            rule = "copy"
        seen.add(pair)
        found.append(rule)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_rules_are_those_that_are_applied_character_by_character(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(cleaning, "_BLOCK", 17)
    draw = random.Random(seed)

    def line():
        alphabet = draw.choices([LATIN, CYRILLIC, HAN, THAI, "0123456789.,-=#"], [9, 1, 1, 1, 2])[0]
        if draw.random() < 0.1:
            alphabet += "0123456789... "
        words = ["".join(draw.choices(alphabet, k=draw.randint(1, 12))) for _ in range(9)]
        return " ".join(words[: draw.randint(0, 9)])

    pairs = [(f"{line()} {line()} {line()}", line()) for _ in range(300)]
    pairs += [(line, line) for line in sentences(9, LATIN, seed)] + draw.choices(pairs, k=300)
    data = replace(CLEAN, clean_max_word=10, clean_max_ratio=1.5 + seed, clean_max_symbols=0.5)
    expected = by_hand(pairs, data)
    assert {*expected} == {None, *RULES}
    limits = {name: getattr(data, f"clean_max_{name}") for name in ("word", "ratio", "symbols")}
    found = taken(tmp_path, pairs, **{f"clean_max_{name}": n for name, n in limits.items()})
    assert found == expected


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
def test_no_rule_takes_sound_text_whatever_its_script_and_length(tmp_path, target):
    source = [f"{line} {line[::-1]}" for line in sentences(300, LATIN, 8)]  # twice as long
    lengths = [len(line) for line in target]
    pairs = zip(sorted(source, key=len), sorted(target, key=len), strict=True)
    assert max(lengths) > 25
    assert taken(tmp_path, [*pairs]) == [None] * 300


def test_as_many_copies_as_the_setting_tells_stay(tmp_path, sound):
    pairs = [*sound, *sound, *sound]
    for copies in (1, 2, 3):
        kept = [None] * 300 * copies + ["copy"] * 300 * (3 - copies)
        assert taken(tmp_path, pairs, clean_max_copies=copies) == kept


def test_examples_have_the_lines_of_the_text_and_the_table_every_number(tmp_path, sound):
    pairs = [*sound, *((f"{n}", f"{n}") for n in range(50)), *NOISE["script"]]
    clean = Cleaning(corpus_of(tmp_path, pairs), CLEAN)
    clean.write_examples("train", tmp_path / "examples.txt")
    content = (tmp_path / "examples.txt").read_text(encoding="utf-8")
    blocks = [block.split("\n") for block in content.removesuffix("\n").split("\n\n")]
    shown = {block[0].removeprefix("# "): block[1:] for block in blocks}
    assert [*shown] == ["mostly digits and symbols", "letters of another script"]
    digits = shown["mostly digits and symbols"]
    assert len(digits) == 5
    for line in digits:
        number, source, target = line.split("\t")
        assert (source, target) == pairs[int(number) - 1]
    foreign = shown["letters of another script"]
    assert [line.split("\t")[:2] for line in foreign] == [
        ["351", "a sound sentence"],
        ["352", NOISE["script"][1][0]],
    ]
    counts = clean.counts("train")
    assert counts == dict.fromkeys(RULES, 0) | {"kept": 300, "symbols": 50, "script": 2}
    rows = [line.split(maxsplit=2) for line in table(counts)]
    assert ["50", "14.20%", "mostly digits and symbols"] in rows
    assert len(rows) == len(RULES)


def test_a_corpus_of_no_pairs_or_of_noise_alone_is_cleaned_too(tmp_path):
    assert taken(tmp_path, [("", "")] * 3) == ["empty"] * 3
    assert taken(tmp_path, [("1", "2")]) == ["symbols"]
    clean = Cleaning(corpus_of(tmp_path, [("", "")]), CLEAN)
    assert list(clean.pairs("train")) == []
    assert clean.sample(5, 1) == []


@pytest.fixture
def text(tmp_path):
    """The files of a corpus whose train has two lines of noise, at 121 and 122, and of a second."""
    folder = tmp_path / "text"
    write_letters(folder)
    for name, lines in (("train.en", ["z z z", ""]), ("train.de", ["Ж Ж Ж", "A B"])):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
    sides = zip(("en", "de"), letters(50, 9), strict=True)
    for ending, lines in sides:
        (folder / f"more.{ending}").write_text("\n".join(lines * 2) + "\n", encoding="utf-8")
    names = {"train": "train", "train_2": "more", "dev": "dev"}
    return {
        f"{split}_{side}": str(folder / f"{name}.{ending}")
        for split, name in names.items()
        for side, ending in (("source", "en"), ("target", "de"))
    }


def test_a_run_is_prepared_from_clean_text_and_told_what_was_taken(tmp_path, text, caplog):
    caplog.set_level(logging.INFO)
    run = tmp_path / "run"
    made = prepare(DataFolder(run), FileCorpus(text), CLEAN, 1)
    lines = [made.stores[name].lines for name in ("train", "train_2")]
    found = [numbers[np.arange(len(numbers))].tolist() for numbers in lines]
    assert found == [[*range(1, 121)], [*range(1, 51)]]
    assert not {"z", "Ж"} & set(made.vocabulary.all_pieces)
    assert len(made.stores["dev"]) == 6
    assert f"pairs taken out of train_2; examples in {run}/cleaned/train_2.txt" in caplog.text
    rows = [message.split(maxsplit=2) for message in caplog.messages]
    assert ["1", "0.82%", "letters of another script"] in rows
    assert ["50", "50.00%", "a copy of an earlier pair"] in rows
    assert "122\t\tA B" in (run / "cleaned" / "train.txt").read_text(encoding="utf-8")
    caplog.clear()
    prepare(DataFolder(run), FileCorpus(text), CLEAN, 1)  # reads no text, and tells it again
    assert "encoding" not in caplog.text
    assert ["50", "50.00%", "a copy of an earlier pair"] in [
        message.split(maxsplit=2) for message in caplog.messages
    ]


def test_tokens_are_made_again_when_cleaning_or_its_rules_change_and_else_not(
    tmp_path, text, caplog
):
    caplog.set_level(logging.INFO)
    own = {"vocabulary": str(tmp_path / "first" / "vocabulary.model")}
    plain = replace(CLEAN, clean=False)
    prepare(DataFolder(tmp_path / "first"), FileCorpus(text), plain, 1)

    def encoded(data):
        caplog.clear()
        made = prepare(DataFolder(tmp_path / "run"), FileCorpus(text), data, 1, brought=own)
        names = [line.split()[2] for line in caplog.messages if line.startswith("tokens")]
        return names, len(made.stores["train_2"])

    assert encoded(plain) == (["train", "train_2", "dev"], 100)
    content = (tmp_path / "run" / "tokens" / "train" / "store.json").read_bytes()
    assert not {"clean", "cleaned"} & parse_json(content, dict).keys()
    assert encoded(replace(plain, clean_max_copies=2)) == ([], 100)
    assert encoded(CLEAN) == (["train", "train_2"], 50)
    assert encoded(CLEAN) == ([], 50)
    assert encoded(replace(CLEAN, clean_max_copies=2)) == (["train", "train_2"], 100)
    assert (tmp_path / "run" / "cleaned" / "train_2.txt").exists()
    assert encoded(plain) == (["train", "train_2"], 100)
    assert not (tmp_path / "run" / "cleaned" / "train_2.txt").exists()


def test_a_parser_is_not_trained_on_cleaned_trees():
    settings = ["data.task=parsing", "data.clean=true"]
    assert "data.clean=true" in refusal(override, Config(), *settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi30k", "tatoeba_deu_eng", "msdocs_ende", "wmt_news"])
def test_hardly_a_pair_of_sound_corpora_is_taken(name):
    folder = real_data(name)
    stem = "newstest2008-2012" if name == "wmt_news" else "train"
    files = [next(folder.glob(f"{stem}.{side}*")) for side in ("en", "de")]
    corpus = FileCorpus({"train_source": str(files[0]), "train_target": str(files[1])})
    clean = Cleaning(corpus, CLEAN)
    counts = clean.counts("train")
    assert counts["kept"] > 0.998 * sum(counts.values())
