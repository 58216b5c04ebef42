"""Training a parser, parsing and scoring, as a person does it."""

import json
import random
import re
import shutil

import pytest
from commands import STEPS, metrics, run_command, setting_flags

from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.trees import leaves

NOUNS, VERBS, PLACES = ["cat", "dog", "bird", "fish"], ["sees", "hears", "likes"], ["in", "on"]
SETTINGS = {
    "decoding__max_extra_length": 30,
    "decoding__beam_size": 3,
    "data__max_length": 40,
    "data__vocabulary_size": 60,
    "data__vocabulary_up_to": True,
    "training__batch_tokens": 400,
    "training__warmup_steps": 40,
    "model__d_model": 32,
    "model__dropout_rate": 0.0,
}


def noun_phrase(draw, longer=0.3):
    phrase = f"(NP (DT the) (NN {draw.choice(NOUNS)}))"
    if draw.random() < longer:
        phrase = f"(NP {phrase} (PP (IN {draw.choice(PLACES)}) {noun_phrase(draw, 0)}))"
    return phrase


def sentences(count, seed):
    """Trees of a little language; words differ by their place and by their letters."""
    draw = random.Random(seed)
    return [
        f"( (S {noun_phrase(draw).replace('(NP ', '(NP-SBJ ', 1)} (VP (VBZ {draw.choice(VERBS)}) "
        f"{noun_phrase(draw)}) (. .)) )"
        for _ in range(count)
    ]


def write_trees(path, trees):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(trees) + "\n", encoding="utf-8")


def tree_flags(folder):
    return [f"--{split}_trees={folder / f'{split}.mrg'}" for split in ("train", "dev", "test")]


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    for seed, (split, count) in enumerate({"train": 150, "dev": 8, "test": 12}.items()):
        write_trees(folder / f"{split}.mrg", sentences(count, seed))
    write_trees(folder / "extra.mrg", [*sentences(60, 9), "( (FRAG (UH no)) )"])
    return folder


@pytest.fixture(scope="module")
def parser(made_once, trees):
    """A parser that was trained on packed rows, with extra trees; its output is in "output"."""

    def train(folder):
        done = run_command(
            *("train", "--experiment=treebank-small", f"--workdir={folder / 'run'}"),
            *(*tree_flags(trees), f"--extra_trees={trees / 'extra.mrg'}"),
            *setting_flags(**SETTINGS, data__packing="true"),
        )
        assert "warning: " not in done.stderr
        (folder / "run" / "output").write_text(done.stdout + done.stderr, encoding="utf-8")

    return made_once("parser", train) / "run"


@pytest.fixture
def run(parser, tmp_path):
    return shutil.copytree(parser, tmp_path / "copy")


def words_of(bracketing):
    return [word for _, word in leaves(parse_tree(bracketing))]


@pytest.mark.slow
def test_training_tells_f1_and_mixes_extra_trees_in(parser):
    printed = (parser / "output").read_text(encoding="utf-8")
    assert "1 with a symbol that no training tree has" in printed
    assert "an epoch: 150 from the 150 of train, 150 from the 60 of extra" in printed
    assert "packing     300 pairs in " in printed
    assert "train       150 pairs" in printed
    assert "extra       60 pairs" in printed
    symbols = json.loads((parser / "target_vocabulary.model").read_bytes())["names"]
    assert sorted(symbols) == sorted(
        ["", "", ""]
        + [mark + label for label in ("S", "NP", "VP", "PP") for mark in "(/"]
        + ["DT", "NN", "VBZ", "IN", "."]
    )
    dev = metrics(parser, "dev")
    assert [line["step"] for line in dev] == [STEPS // 2, STEPS]
    assert dev[0]["greedy_f1_gold_tags"] > 0
    assert dev[-1]["greedy_f1_gold_tags"] > 60
    (result,) = json.loads((parser / "results.json").read_text(encoding="utf-8"))
    assert (result["metric"], result["split"]) == ("f1", "test")
    assert f"F1 {result['score']:.2f}" in printed
    assert "experiments.translate" in printed


@pytest.mark.release
def test_a_parser_continues_from_another_with_its_labels_and_keeps_the_best_f1(
    parser, trees, tmp_path
):
    run, other = tmp_path / "run", tmp_path / "other.mrg"
    write_trees(other, [*sentences(40, 11), "( (FRAG (UH no)) )"])  # a label that it lacks
    done = run_command(
        *("train", f"--init_from={parser}", "--init_checkpoint=last", f"--workdir={run}"),
        *(f"--train_trees={other}", f"--dev_trees={trees / 'dev.mrg'}"),
        *("--set=training.steps=4", "--set=training.evaluate_steps=2"),
        *("--set=training.keep_best=f1", "--set=data.extra_share=0"),
    )
    assert "train       40 pairs; dropped" in done.stderr
    for name in ("target_vocabulary.model", "vocabulary.model"):
        assert (run / name).read_bytes() == (parser / name).read_bytes()
    dev = metrics(run, "dev")
    assert [line["step"] for line in dev] == [0, 2, 4]
    for name in ("nll", "greedy_f1_gold_tags"):
        assert dev[0][name] == metrics(parser, "dev")[-1][name]
    assert "the best f1 on dev" in done.stdout


# What is not a word to the model either way: brackets, a no-break space, sentencepiece's own
# sign, a control character; a line that is too long; blank lines.
ODD_LINES = [
    "the cat sees the dog .",
    "",
    "( the cat ) sees the dog .",
    "the a\u00a0b\u2009c sees \u2581 .",
    "  the \t cat sees   the bird . ",
    "   ",
    "\u2581",
    "\x00",
    " ".join(["the cat sees"] * 30),
    "x" * 3000,
    "the cat sees the dog .",
]


@pytest.mark.release
def test_every_line_gets_one_tree_over_exactly_its_words(run):
    given = "\n".join(ODD_LINES).encode()
    done = run_command("translate", f"--workdir={run}", "--window=3", stdin=given)
    parses = done.stdout.split("\n")
    assert parses.pop() == ""
    assert len(parses) == len(ODD_LINES)
    for line, parse in zip(ODD_LINES, parses, strict=True):
        words = [word for word in re.split("[ \t]+", line) if word]
        if not words:
            assert parse == ""
            continue
        assert parse.startswith("( (")  # the outer bracket of the trees trained on
        escaped = [{"(": "-LRB-", ")": "-RRB-"}.get(word, word) for word in words]
        assert words_of(parse) == escaped
    assert parses[0] == parses[-1]
    (cut,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert "line 9: " in cut
    assert re.search("parsed its first [0-9]+ words, .* as (NN|DT)", cut)
    refused = run_command("translate", f"--workdir={run}", "--alignments", stdin=given, fails=2)
    assert refused.stdout == ""
    assert "error: --alignments requires a translation model" in refused.stderr


@pytest.mark.slow
def test_evaluate_prints_f1_beside_evalb_s_own_report(run, trees, tmp_path):
    done = run_command("evaluate", f"--workdir={run}", "--split=test")
    entries = json.loads((run / "results.json").read_text(encoding="utf-8"))[1:]
    scores = {entry["metric"]: entry for entry in entries}
    assert scores["valid_trees"]["score"] == 100
    assert scores["valid_trees_unconstrained"]["score"] <= 100
    assert scores["f1"]["score"] >= scores["f1_unconstrained"]["score"]
    assert scores["perplexity"]["sentences"] == 12
    assert "|errors:0|" in scores["f1_gold_tags"]["signature"]
    assert f"{scores['f1']['score']:.2f}" in done.stdout
    # The report of experiments.evalb gives the same numbers, once the outer brackets have a name.
    for name, path in (("gold", trees / "test.mrg"), ("test", run / scores["f1"]["translations"])):
        named = path.read_text(encoding="utf-8").replace("( (", "(TOP (")
        (tmp_path / name).write_text(named, encoding="utf-8")
    report = run_command("evalb", tmp_path / "gold", tmp_path / "test").stdout
    found = dict(re.findall(r"^(.+?) += +([\d.]+)$", report.partition("-- len")[0], re.M))
    assert float(found["Bracketing FMeasure"]) == round(scores["f1"]["score"], 2)
    assert float(found["Complete match"]) == round(scores["complete_match"]["score"], 2)
    assert float(found["Tagging accuracy"]) == round(scores["tagging"]["score"], 2)
    # The same trees given as a file.
    again = run_command("evaluate", f"--workdir={run}", f"--reference={trees / 'test.mrg'}")
    last = json.loads((run / "results.json").read_text(encoding="utf-8"))[len(entries) + 1 :]
    assert {e["metric"]: e["score"] for e in last} == {m: e["score"] for m, e in scores.items()}
    assert "f1_40" in again.stdout


@pytest.mark.release
def test_the_wall_street_journal_is_prepared_by_its_sections(tmp_path):
    for section in range(25):
        path = tmp_path / "wsj" / f"{section:02d}" / f"wsj_{section:02d}01.mrg"
        write_trees(path, sentences(8 if section in range(2, 22) else 3, section))
    done = run_command(
        *("prepare", "--experiment=wsj", f"--workdir={tmp_path / 'run'}"),
        *(f"--treebank_dir={tmp_path}", *setting_flags(**SETTINGS)),
    )
    assert "train       160 pairs" in done.stdout
    assert "dev         3 pairs" in done.stdout
    source = (tmp_path / "run" / "text" / "test.source").read_text(encoding="utf-8").splitlines()
    assert source == [" ".join(words_of(gold)) for gold in sentences(3, 23)]
