"""Decode a text with a trained model and score it.

python -m experiments.evaluate --workdir W [--split test | --test_set wmt14/full |
                               --source F --reference G] [--checkpoint averaged|best|last|STEP]
                               [--set decoding.beam_size=4] [--bootstrap 1000]

It writes the translations into the run folder, prints every score with its signature and beside
the paper's score, if there is one, and appends the scores to results.json. BLEU is printed twice:
sacreBLEU's, to compare with other systems, and as the paper computed it, to compare with the paper.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_integer,
    define_model_flags,
    define_path,
    trained_run,
)
from experiments.tables import score_table, terminal_width
from jax_transformer.config import DataConfig
from jax_transformer.data.manifest import digest_of
from jax_transformer.data.sources import cached_test_set
from jax_transformer.data.text import check_not_blank, parallel_lines
from jax_transformer.data.urls import absolute
from jax_transformer.errors import InputError
from jax_transformer.evaluation.score import FEWEST_RESAMPLES, MOST_RESAMPLES
from jax_transformer.files import encode_json
from jax_transformer.parsing.treebank import TreebankCorpus
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.runs.results import describe_decoding, save_scores
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime import prepare_process

logger = logging.getLogger(__name__)

define_model_flags()
flags.DEFINE_enum("split", "test", ["dev", "test"], "Text of the run folder to decode.")
define_path("source", "File to decode instead of a split.")
define_path(
    "reference",
    "File of reference translations of --source. Repeat the flag for several references; all of "
    "them count in BLEU, chrF, loss and perplexity. For a parser: file of trees; their words are "
    "parsed. Leave out --source.",
    several=True,
)
flags.DEFINE_string(
    "test_set",
    None,
    "Test set of sacreBLEU to decode, such as wmt14/full; data.source_language and "
    "data.target_language choose the language pair. Download it first: sacrebleu -t wmt14/full -l "
    "en-de --echo src.",
)
define_integer(
    "bootstrap",
    None,
    "Number of bootstrap resamples for 95% intervals of BLEU and chrF, such as 1000.",
    lower_bound=FEWEST_RESAMPLES,
    upper_bound=MOST_RESAMPLES,
)


@cli.command
def main() -> None:
    """Check the text before the model is loaded, then decode, score, write and print."""
    folder, run, config = trained_run()
    text = _text(folder, config.data)
    split, sources, references = text.name, text.sources, text.references
    check_not_blank(sources, split)
    folder.read_results()  # so that a damaged file is found before the long work
    if not os.access(folder.path, os.W_OK):
        raise InputError(
            f"{folder.path}: expected a folder to write scores into, found one that you may not "
            "write to; copy it, or score it in Python with model.evaluate"
        )
    prepare_process(searches=True)
    from jax_transformer.runs.load import load

    model = load(folder, FLAGS.checkpoint)
    found = model.evaluate(sources, references, *FLAGS.set, bootstrap=FLAGS.bootstrap or 0)
    cli.show(describe_decoding(found, split, model.checkpoint))
    row = EXPERIMENTS.get(run.experiment)
    # The paper does not have scores for other language pairs or for custom data.
    its_text = FLAGS.test_set or run.sources.data_dir or run.sources.treebank_dir
    comparable = its_text and config.data == run.config.data and not FLAGS.reference
    published = row.published_on(split) if row and comparable else {}
    cli.show(score_table([*found.scores, *found.losses], published, terminal_width()))
    with folder.written():  # last, so that an error does not lose the scores
        facts = {"split": split, "checkpoint": model.checkpoint, "steps": model.steps, **text.files}
        path = save_scores(folder, found, facts)
    cli.show(f"written to {folder.shown(path)}")


class _Text(NamedTuple):
    """A text to decode and score; for a parser the sources are words and the references trees."""

    name: str
    sources: list[str]
    references: Sequence[list[str]]  # one or more for each source
    files: dict[str, Any]  # for results.json; empty unless the flags name files


def _text(folder: RunFolder, data: DataConfig) -> _Text:
    """Return the text that the flags name."""
    parses, references = data.task == "parsing", FLAGS.reference or []
    for name in ("source", "test_set"):
        if FLAGS[name].value and parses:
            raise InputError(
                f"--{name}: expected a run that translates, found one that parses; leave it out"
            )
    own = "reference" if parses else "source"
    given = [name for name in ("split", "test_set", own) if FLAGS[name].present]
    if len(given) > 1:
        raise InputError(f"expected one text, found --{' and --'.join(given)}; give one of them")
    if parses and references:
        pairs = list(TreebankCorpus({"test": references}).scored("test"))
        words, brackets = [words for words, _ in pairs], [tree for _, tree in pairs]
        return _own_text(references[0].rstrip("/"), words, [brackets], references)
    if bool(FLAGS.source) != bool(references):
        raise InputError("expected --source and --reference together, found only one; give both")
    unescape = data.unescape_html  # as the run reads all its text
    if FLAGS.test_set:
        pair = f"{data.source_language}-{data.target_language}"
        files = cached_test_set(FLAGS.test_set, pair)
        sources, *lines = parallel_lines(files, unescape=unescape)
        return _Text(f"{FLAGS.test_set}.{pair}", sources, lines, {})
    if FLAGS.source:
        every = [FLAGS.source, *references]
        sources, *lines = parallel_lines(every, unescape=unescape)
        return _own_text(FLAGS.source, sources, lines, references)
    from jax_transformer.data.prepare import text_lines

    sources, lines = text_lines(folder, FLAGS.split)
    return _Text(FLAGS.split, sources, [lines], {})


def _own_text(
    path: str, sources: list[str], references: list[list[str]], paths: list[str]
) -> _Text:
    """Return a text whose split in results.json, its file's name and a digest, no other has."""
    name = os.path.basename(path).encode()[:150].decode(errors="ignore")  # a name has 255 bytes
    digest = digest_of(encode_json([sources, references]))[:8]
    files = {"split": f"{name}-{digest}", "references": [*map(absolute, paths)]}
    files |= {"source": absolute(FLAGS.source)} if FLAGS.source else {}
    return _Text(name, sources, references, files)


if __name__ == "__main__":
    cli.run(main)
