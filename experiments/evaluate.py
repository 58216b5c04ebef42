"""Decode a text with a trained model and score it.

python -m experiments.evaluate --workdir W [--split test | --test_set wmt14/full |
                               --source F --reference G] [--checkpoint averaged|last|STEP]
                               [--set decoding.beam_size=4] [--bootstrap 1000]

Writes the translations into the run folder, prints every score next to the paper's and with
its signature, and appends them to results.json. BLEU comes twice, as two different numbers:
sacreBLEU's, to compare with others, and the paper's way of counting, to compare with it.
"""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, get_args

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.configs import EXPERIMENTS
from jax_transformer.config import DataConfig, Language
from jax_transformer.data.datasets import cached_test_set
from jax_transformer.data.prepare import text_lines
from jax_transformer.data.text import ParallelFiles, listed_paths, unescape_html
from jax_transformer.errors import InputError
from jax_transformer.evaluation.corpus_scores import decode, translation_scores
from jax_transformer.evaluation.parse_scores import parse_scores, symbol_lines
from jax_transformer.evaluation.perplexity import loss_scores
from jax_transformer.evaluation.score import Score
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import TreebankCorpus
from jax_transformer.runs.loading import load
from jax_transformer.runs.results import describe_decoding, save_translations
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runtime import prepare_process

cli.define_workdir()
flags.DEFINE_enum("split", "test", ["dev", "test"], "Which text of the run folder to decode.")
flags.DEFINE_string("source", None, "Decode this file instead of a split.")
flags.DEFINE_string(
    "reference",
    None,
    "The reference translations of --source; for a parser trees, with or without --source.",
)
flags.DEFINE_string(
    "test_set", None, "Decode this test set of sacreBLEU's cache, such as wmt14/full."
)
flags.DEFINE_string(
    "language_pair", None, "Such as en-de (default: data.source_language-target_language)."
)
cli.define_checkpoint()
cli.define_decoding_settings()
flags.DEFINE_integer(
    "bootstrap",
    0,
    "Test sets drawn from this one for 95% intervals of BLEU and chrF, such as 1000.",
    lower_bound=0,
)

# The name of a score in results.json, its name in the table, and its decimals there.
LOSS_ROWS = {"loss": ("loss, smoothed", 3), "nll": ("NLL", 3), "perplexity": ("perplexity", 3)}
ROWS = {
    "bleu": ("BLEU, sacreBLEU's", 2),
    "bleu_paper": ("BLEU, the paper's", 2),
    "chrf": ("chrF", 2),
    **LOSS_ROWS,
    "length_ratio": ("length ratio, tokens", 3),
    "length_ratio_pieces": ("length ratio, pieces", 3),
}
TREE_ROWS = {
    "f1": ("F1, EVALB's", 2),
    "f1_40": ("F1 up to 40 words", 2),
    "f1_gold_tags": ("F1 with gold's tags", 2),
    "f1_unconstrained": ("F1 without the grammar", 2),
    "complete_match": ("complete match", 2),
    "tagging": ("tagging accuracy", 2),
    "valid_trees": ("valid trees", 2),
    "valid_trees_unconstrained": ("valid without the grammar", 2),
    **LOSS_ROWS,
}
MISSING = {"bleu_paper": "of plain text only; this is tokenised already"}
# Which text of an experiment a test set of sacreBLEU is.
NEWSTESTS = {"wmt13": "dev", "wmt14": "test", "wmt14/full": "test"}


@cli.command()
def main() -> None:
    """Check the text before the model is loaded, then decode, score, write and print."""
    prepare_process()
    folder = cli.run_folder()
    run = folder.load_run()
    _check_flags(run)
    decoding = cli.decoding_settings(run)
    data = _with_languages(run.config.data)
    split, sources, references = _text(folder, data)
    if not any(source.strip() for source in sources):
        raise InputError(f"{split}: expected sentences to decode, found only blank lines or none")
    folder.read_results()  # before the work whose scores are appended there
    model = load(folder.path, FLAGS.checkpoint)
    translator = model.translator(decoding)
    decoded = decode(translator, sources)
    search = _search_name(decoded.facts, run)
    name = f"{split.replace('/', '_')}.{model.checkpoint}.{search}"
    path = save_translations(folder, name, decoded.texts)
    if data.task == "parsing":
        scores = parse_scores(sources, decoded.texts, decoded.constrained, references)
        targets = symbol_lines(references)
    else:
        pieces = sum(map(len, model.vocabulary.encode_batch(references)))
        scores = translation_scores(decoded, references, pieces, data, FLAGS.bootstrap)
        targets = references
    losses, counts = loss_scores(translator, run.config, sources, targets)
    facts = {"split": split, "checkpoint": model.checkpoint, "steps": model.steps}
    folder.append_results(
        [{**s.as_dict(), **decoded.facts, **facts, "translations": path} for s in scores]
        + [{**score.as_dict(), **counts, **facts} for score in losses]
    )
    print(describe_decoding({**decoded.facts, **facts}))
    # The paper has no score of another language pair or of a file.
    comparable = data == run.config.data and not FLAGS.source
    published = published_scores(run.experiment, split) if comparable else {}
    print(score_table([*scores, *losses], published))
    print(f"written to {folder.path / path}")


def published_scores(experiment: str, split: str) -> dict[str, float]:
    """The paper's scores of an experiment, under the name of the score that counts as it did.

    Empty for any text but the paper's own, newstest2013 or newstest2014.
    """
    row = EXPERIMENTS.get(experiment)
    if row is None or NEWSTESTS.get(split.split(".")[0], split) != row.scored_on:
        return {}
    published = row.published
    numbers = {
        "bleu_paper": published.bleu,
        "perplexity": published.perplexity,
        "f1": published.f1,
    }
    return {name: number for name, number in numbers.items() if number is not None}


def score_table(scores: Sequence[Score], published: dict[str, float]) -> str:
    """A row for each score: `score  ours  the paper's  signature`, details below it.

    A score that is missing has its reason instead.
    """
    found = {score.metric: score for score in scores}
    rows = [["score", "ours", "the paper's", "signature"]]
    for name, (label, decimals) in (TREE_ROWS if "f1" in found else ROWS).items():
        theirs = str(published.get(name, "-"))
        if name not in found:
            rows.append([label, "-", theirs, MISSING.get(name, "nothing to score")])
            continue
        score = found[name]
        rows.append([label, f"{score.score:.{decimals}f}", theirs, score.signature])
        if score.mean is not None:
            interval = f"95% of the samples in {score.mean:.2f} +- {score.interval:.2f}"
            rows.append(["", "", "", interval])
        if score.detail:
            rows.append(["", "", "", score.detail])
    return cli.aligned(rows)


def _check_flags(run: Run) -> None:
    if FLAGS.bootstrap == 1:
        raise InputError("--bootstrap=1: expected 2 samples or more, better 1000; give more")
    for name in ("test_set", "language_pair", "bootstrap"):
        if FLAGS[name].value and run.config.data.task == "parsing":
            raise InputError(f"--{name}: expected one that translates, found a run that parses")
    given = [name for name in ("split", "test_set", "source") if FLAGS[name].present]
    if len(given) > 1:
        raise InputError(f"expected one text, found --{' and --'.join(given)}; give one of them")


def _search_name(facts: dict[str, Any], run: Run) -> str:
    """Such as `beam4`, or `beam4.patience1` where that is not the run's own patience."""
    own = vars(run.config.decoding)
    others = [
        f"{name}{facts[name]:g}" for name in ("alpha", "patience") if facts[name] != own[name]
    ]
    return ".".join([f"beam{facts['beam_size']}", *others])


def _with_languages(data: DataConfig) -> DataConfig:
    """The settings with the languages of --language_pair, if it is given."""
    pair = FLAGS.language_pair
    if not pair:
        return data
    languages = get_args(Language)
    source, _, target = pair.partition("-")
    if source not in languages or target not in languages:
        raise InputError(
            f"--language_pair={pair}: expected two of {', '.join(languages)} with a hyphen "
            "between, such as en-de; give such a pair"
        )
    return dataclasses.replace(data, source_language=source, target_language=target)


def _text(folder: RunFolder, data: DataConfig) -> tuple[str, list[str], list[str]]:
    """(name, sources, references) of the text that the flags name."""
    if data.task == "parsing" and FLAGS.reference and not FLAGS.source:
        golds = list(TreebankCorpus({"test": listed_paths(FLAGS.reference)}).scored("test"))
        name = os.path.basename(FLAGS.reference.rstrip("/"))
        return name, [words for words, _ in golds], [tree for _, tree in golds]
    if bool(FLAGS.source) != bool(FLAGS.reference):
        raise InputError("expected --source and --reference together, found only one; give both")
    if FLAGS.test_set:
        pair = f"{data.source_language}-{data.target_language}"
        name, files = f"{FLAGS.test_set}.{pair}", cached_test_set(FLAGS.test_set, pair)
    elif FLAGS.source:
        name = os.path.basename(FLAGS.source)
        files = ParallelFiles(FLAGS.source, FLAGS.reference)
    else:
        split = FLAGS.split
        return split, text_lines(folder, split, "source"), text_lines(folder, split, "target")
    plain = unescape_html if data.unescape_html else str  # as the run reads all its text
    pairs = [(plain(source), plain(target)) for _, source, target in files.pairs()]
    if data.task == "parsing":
        for number, (_, tree) in enumerate(pairs, start=1):
            parse_tree(tree, FLAGS.reference, number)  # before the long work
    return name, [source for source, _ in pairs], [target for _, target in pairs]


if __name__ == "__main__":
    app.run(main)
