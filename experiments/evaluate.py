"""Decode a text with a trained model and score it.

python -m experiments.evaluate --workdir W [--split test | --test_set wmt14/full |
                               --source F --reference G] [--checkpoint averaged|last|STEP]
                               [--set decoding.beam_size=4] [--bootstrap 1000]

Writes the translations into the run folder, prints every score next to the paper's and with
its signature, and appends them to results.json. BLEU is printed twice: sacreBLEU's, to compare
with other systems, and the paper's way of counting, to compare with the paper.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.configs import EXPERIMENTS
from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import cached_test_set
from jax_transformer.data.prepare import text_lines
from jax_transformer.data.text import ParallelFiles, listed_paths, unescape_html
from jax_transformer.errors import InputError
from jax_transformer.evaluation.corpus_scores import decode, translation_scores
from jax_transformer.evaluation.parse_scores import parse_scores, symbol_lines
from jax_transformer.evaluation.perplexity import loss_scores
from jax_transformer.evaluation.score import Score
from jax_transformer.parsing.treebank import TreebankCorpus
from jax_transformer.runs.loading import load
from jax_transformer.runs.results import describe_decoding, save_translations
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runtime import prepare_process

cli.define_model_flags()
flags.DEFINE_enum("split", "test", ["dev", "test"], "The text of the run folder to decode.")
flags.DEFINE_string("source", None, "Decode this file instead of a split.")
flags.DEFINE_string(
    "reference",
    None,
    "The reference translations of --source; for a parser trees, whose words are parsed.",
)
flags.DEFINE_string(
    "test_set",
    None,
    "Decode this test set of sacreBLEU's cache, such as wmt14/full, for the languages "
    "data.source_language and data.target_language.",
)
flags.DEFINE_integer(
    "bootstrap",
    None,
    "How many test sets to draw from this one for 95% intervals of BLEU and chrF, such as 1000.",
    lower_bound=2,
)

logger = logging.getLogger(__name__)

# Which text of an experiment a test set of sacreBLEU is.
NEWSTESTS = {"wmt13": "dev", "wmt14": "test", "wmt14/full": "test"}
# Scores with three decimals; the others are percentages.
RATIOS = ("loss", "nll", "perplexity", "length_ratio", "length_ratio_pieces")


@cli.command()
def main() -> None:
    """Check the text before the model is loaded, then decode, score, write and print."""
    prepare_process()
    folder = cli.run_folder()
    run = folder.load_run()
    config = cli.run_config(run)
    _check_flags(run)
    split, sources, references = _text(folder, config.data)
    if not any(source.strip() for source in sources):
        raise InputError(f"{split}: expected sentences to decode, found only blank lines or none")
    folder.read_results()  # so that a damaged file is found before the long work
    model = load(folder.path, FLAGS.checkpoint)
    translator = model.translator(config.decoding)
    decoded = decode(translator, sources)
    name = f"{split.replace('/', '_')}.{model.checkpoint}.{_search_name(decoded.facts, run)}"
    path = save_translations(folder, name, decoded.texts)
    if config.data.task == "parsing":
        scores = parse_scores(sources, decoded.texts, decoded.constrained, references)
        targets = symbol_lines(references)
    else:
        pieces = sum(map(len, model.vocabulary.encode_batch(references)))
        bootstrap = FLAGS.bootstrap or 0
        scores = translation_scores(decoded, references, pieces, config.data, bootstrap)
        targets = references
    losses, counts = loss_scores(translator, config, sources, targets)
    if not losses:
        logger.warning("no loss: a side of every pair is blank or longer than data.max_length")
    facts = {"split": split, "checkpoint": model.checkpoint, "steps": model.steps}
    folder.append_results(
        [{**s.as_dict(), **decoded.facts, **facts, "translations": path} for s in scores]
        + [{**score.as_dict(), **counts, **facts} for score in losses]
    )
    print(describe_decoding({**decoded.facts, **facts}))
    # The paper has no score of another language pair or of a file.
    comparable = config.data == run.config.data and not FLAGS.source
    published = published_scores(run.experiment, split) if comparable else {}
    print(score_table([*scores, *losses], published))
    print(f"written to {folder.path / path}")


def published_scores(experiment: str, split: str) -> dict[str, float | None]:
    """The paper's scores of an experiment, under the name of the score that counts as it did.

    Empty for any text but the paper's, newstest2013 or newstest2014.
    """
    row = EXPERIMENTS.get(experiment)
    if row is None or NEWSTESTS.get(split.split(".")[0], split) != row.scored_on:
        return {}
    paper = row.published
    return {"bleu_paper": paper.bleu, "perplexity": paper.perplexity, "f1": paper.f1}


def score_table(scores: Sequence[Score], published: dict[str, float | None]) -> str:
    """A row for each score, under its name in results.json; details below it."""
    rows = [["score", "ours", "the paper's", "signature"]]
    for score in scores:
        ours = f"{score.score:.{3 if score.metric in RATIOS else 2}f}"
        theirs = published.get(score.metric) or "-"
        rows.append([score.metric, ours, str(theirs), score.signature])
        if score.mean is not None:
            interval = f"95% of the samples in {score.mean:.2f} +- {score.interval:.2f}"
            rows.append(["", "", "", interval])
        if score.detail:
            rows.append(["", "", "", score.detail])
    return cli.aligned(rows)


def _check_flags(run: Run) -> None:
    for name in ("source", "test_set", "bootstrap"):
        if FLAGS[name].value and run.config.data.task == "parsing":
            raise InputError(
                f"--{name}: expected a run that translates, found one that parses; leave it out"
            )
    given = [name for name in ("split", "test_set", "source") if FLAGS[name].present]
    if len(given) > 1:
        raise InputError(f"expected one text, found --{' and --'.join(given)}; give one of them")


def _search_name(facts: dict[str, Any], run: Run) -> str:
    """Such as `beam4`, or `beam4.patience1` where that is not the run's own patience."""
    own = vars(run.config.decoding)
    changed = [name for name in ("alpha", "patience") if facts[name] != own[name]]
    return ".".join([f"beam{facts['beam_size']}", *(f"{n}{facts[n]:g}" for n in changed)])


def _text(folder: RunFolder, data: DataConfig) -> tuple[str, list[str], list[str]]:
    """(name, sources, references) of the text that the flags name."""
    if data.task == "parsing" and FLAGS.reference:
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
    return name, [source for source, _ in pairs], [target for _, target in pairs]


if __name__ == "__main__":
    app.run(main)
