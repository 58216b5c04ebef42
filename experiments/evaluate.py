"""Decode a text with a trained model and score it.

python -m experiments.evaluate --workdir W [--split test | --test_set wmt14/full |
                               --source F --reference G] [--checkpoint averaged|best|last|STEP]
                               [--set decoding.beam_size=4] [--bootstrap 1000]

Writes the translations into the run folder, prints every score next to the paper's and with
its signature, and appends them to results.json. BLEU is printed twice: sacreBLEU's, to compare
with other systems, and the paper's way of counting, to compare with the paper.
"""

import logging
import os

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.flag_types import define_integer, define_path, define_paths
from experiments.tables import score_table, terminal_width
from jax_transformer.config import DataConfig
from jax_transformer.data.datasets import cached_test_set
from jax_transformer.data.text import ParallelFiles, listed_paths
from jax_transformer.errors import InputError
from jax_transformer.parsing.treebank import TreebankCorpus
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.runs.results import describe_decoding, save_scores
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime import prepare_process

logger = logging.getLogger(__name__)

cli.define_model_flags()
flags.DEFINE_enum("split", "test", ["dev", "test"], "The text of the run folder to decode.")
define_path("source", "Decode this file instead of a split.")
define_paths(
    "reference",
    "The reference translations of --source; for a parser trees, whose words are parsed.",
)
flags.DEFINE_string(
    "test_set",
    None,
    "Decode this test set of sacreBLEU's cache, such as wmt14/full, for the languages "
    "data.source_language and data.target_language.",
)
define_integer(
    "bootstrap",
    None,
    "Number of test sets to draw from this one for 95% intervals of BLEU and chrF, such as 1000.",
    lower_bound=2,
)


@cli.command
def main() -> None:
    """Check the text before the model is loaded, then decode, score, write and print."""
    folder = cli.run_folder()
    run = folder.load_run()
    config = cli.run_config(run)
    split, sources, references = _text(folder, config.data)
    if not any(source.strip() for source in sources):
        raise InputError(f"{split}: expected sentences to decode, found only blank lines or none")
    folder.read_results()  # so that a damaged file is found before the long work
    prepare_process()
    from jax_transformer.evaluation.corpus_scores import all_scores, decode
    from jax_transformer.evaluation.perplexity import loss_scores
    from jax_transformer.runs.loading import load

    model = load(folder, FLAGS.checkpoint)
    translator = model.translator(config.decoding)
    decoded, bootstrap = decode(translator, sources), FLAGS.bootstrap or 0
    if bootstrap:
        logger.info("bootstrap   scoring %s samples of the sentences ...", f"{bootstrap:,}")
    scores = all_scores(decoded, sources, references, config.data, bootstrap)
    losses, counts = loss_scores(translator, config, sources, references)
    facts = {"split": split, "checkpoint": model.checkpoint, "steps": model.steps}
    with folder.written():
        path = save_scores(folder, decoded.texts, scores, {**decoded.facts, **facts})
        folder.append_results([{**score.as_dict(), **counts, **facts} for score in losses])
    cli.show(describe_decoding({**decoded.facts, **facts}))
    row = EXPERIMENTS.get(run.experiment)
    # The paper does not have scores for other language pairs or for custom data.
    its_text = FLAGS.test_set or {"data_dir", "treebank_dir"} & run.files.keys()
    comparable = its_text and config.data == run.config.data and not FLAGS.reference
    published = row.published_on(split) if row and comparable else {}
    cli.show(score_table([*scores, *losses], published, terminal_width()))
    cli.show(f"written to {folder.shown(path)}")


def _text(folder: RunFolder, data: DataConfig) -> tuple[str, list[str], list[str]]:
    """Return (name, sources, references) of the text that the flags name.

    For a parser the sources are words and the references trees.
    """
    for name in ("source", "test_set", "bootstrap"):
        if FLAGS[name].value and data.task == "parsing":
            raise InputError(
                f"--{name}: expected a run that translates, found one that parses; leave it out"
            )
    own = "reference" if data.task == "parsing" else "source"
    given = [name for name in ("split", "test_set", own) if FLAGS[name].present]
    if len(given) > 1:
        raise InputError(f"expected one text, found --{' and --'.join(given)}; give one of them")
    if data.task == "parsing" and FLAGS.reference:
        pairs = list(TreebankCorpus({"test": listed_paths(FLAGS.reference)}).scored("test"))
        name = os.path.basename(FLAGS.reference.rstrip("/"))
        return name, [words for words, _ in pairs], [tree for _, tree in pairs]
    if bool(FLAGS.source) != bool(FLAGS.reference):
        raise InputError("expected --source and --reference together, found only one; give both")
    if FLAGS.test_set:
        pair = f"{data.source_language}-{data.target_language}"
        name, files = f"{FLAGS.test_set}.{pair}", cached_test_set(FLAGS.test_set, pair)
    elif FLAGS.source:
        name, files = os.path.basename(FLAGS.source), ParallelFiles(FLAGS.source, FLAGS.reference)
    else:
        from jax_transformer.data.prepare import text_lines

        return FLAGS.split, *text_lines(folder, FLAGS.split)
    return name, *files.lines(unescape=data.unescape_html)  # as the run reads all its text


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
