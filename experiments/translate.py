"""Translate standard input to standard output with a trained model; or parse, with a parser.

python -m experiments.translate --workdir W [--n_best 1] [--scores] < source > translations
python -m experiments.translate --workdir W --mbr chrf --set decoding.beam_size=12 < source > ...
python -m experiments.translate --workdir W --split_sentences < paragraphs > translations

The output has one line for each line of input (or n with --n_best n), in order; a blank line gives
a blank one. Lines are sorted by length inside a window, so the length of the input does not change
the memory that is needed.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from absl import app, flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.flag_types import define_integer
from jax_transformer.data.sentences import map_sentences, sentence_splitter
from jax_transformer.errors import InputError
from jax_transformer.progress import Progress
from jax_transformer.runs.results import usual_familiarity_of
from jax_transformer.runtime import prepare_process

if TYPE_CHECKING:
    from jax_transformer.decoding.translator import Translation

cli.define_model_flags()
define_integer("n_best", 1, "Translations written for each line.", lower_bound=1)
flags.DEFINE_bool(
    "scores", False, "Write the score, log P over the length penalty, and a tab before each."
)
flags.DEFINE_bool(
    "split_sentences",
    False,
    "Translate each line sentence by sentence, and join the translations with spaces.",
)
flags.DEFINE_enum(
    "mbr",
    None,
    ["chrf", "bleu"],
    "Write the translation, of those that the beam finds, with the best mean chrF or BLEU beside "
    "the others (minimum Bayes risk).",
)
define_integer(
    "window",
    None,
    "Lines read, sorted by length and translated together (default: 2000; 1 on a terminal).",
    lower_bound=1,
)

logger = logging.getLogger(__name__)


@cli.command
def main() -> None:
    """Read, translate and write one window of lines after another."""
    folder = cli.run_folder()
    run = folder.load_run()
    decoding, lines = cli.run_config(run).decoding, cli.input_lines()
    if FLAGS.n_best > decoding.beam_size:
        raise InputError(
            f"--n_best={FLAGS.n_best}: expected at most the beam size, {decoding.beam_size}; "
            f"give --set decoding.beam_size={FLAGS.n_best}"
        )
    if FLAGS.mbr:
        _check_mbr(run.config.data.task, decoding.beam_size)
    split = _splitter(run.config.data.task, cli.run_config(run).data.source_language)
    prepare_process()
    from jax_transformer.evaluation.familiarity import UnfamiliarLine
    from jax_transformer.evaluation.minimum_bayes_risk import choose_translation
    from jax_transformer.runs.loading import load

    model = load(folder, FLAGS.checkpoint)
    tokenize = cli.run_config(run).data.bleu_tokenize
    choose = partial(choose_translation, utility=FLAGS.mbr, tokenize=tokenize)
    n_best = decoding.beam_size if FLAGS.mbr else FLAGS.n_best
    translator = model.translator(decoding, n_best=n_best)
    translates = run.config.data.task == "translation"
    usual = usual_familiarity_of(folder, run) if translates else None
    unfamiliar = UnfamiliarLine(usual, model.vocabulary)
    typed = sys.stdin.isatty()
    window = FLAGS.window or (1 if typed else 2000)
    if typed:
        logger.info("type a sentence, then Enter; Ctrl-D ends")
    total, unit = (None, "sentence") if FLAGS.split_sentences else (cli.count_input_lines(), "line")
    translator.unit = unit
    with Progress("translate", total, f"{unit}s") as progress:
        if not typed:
            translator.advance = progress.update
        found = map_sentences(lines, split, partial(translator.stream, window=window))
        for number, sentences in enumerate(found, start=1):
            if (number - 1) % window == 0:
                progress.clear()
            for sentence, translations in sentences:
                unfamiliar.check(number, sentence, translations)
            outputs = [translations for _, translations in sentences]
            if FLAGS.mbr:
                outputs = [[choose(each)] if each else [] for each in outputs]
            rows = _rows(outputs)
            cli.write("".join(f"{row}\n" for row in rows), flush=number % window == 0)


def _check_mbr(task: str, beam_size: int) -> None:
    """Raise InputError if there is nothing to choose from, or more than one output to write."""
    if task != "translation":
        found, remedy = "one that parses", "leave it out"
    elif FLAGS.n_best > 1:
        found, remedy = f"--n_best={FLAGS.n_best}", "leave one of them out"
    elif beam_size == 1:
        found, remedy = "decoding.beam_size=1", "give --set decoding.beam_size=8"
    else:
        return
    raise InputError(
        "--mbr: expected a run that translates, a beam size above 1 and one translation to write, "
        f"found {found}; {remedy}"
    )


def _splitter(task: str, language: str) -> Callable[[str], list[str]]:
    """Return a function that splits an input line into what is translated: sentences, or itself."""
    if not FLAGS.split_sentences:
        return lambda line: [line]
    if task != "translation":
        raise InputError(
            "--split_sentences: expected a run that translates, found one that parses; give it one "
            "sentence a line"
        )
    for name, given in (("n_best", FLAGS.n_best > 1), ("scores", FLAGS.scores)):
        if given:
            raise InputError(
                f"--split_sentences: expected no --{name}, because a search ranks and scores "
                "sentences, not paragraphs; leave one of them out"
            )
    return sentence_splitter(language)


def _rows(sentences: Sequence[Sequence["Translation"]]) -> list[str]:
    """Return what is written for one line of input, given the translations of its sentences."""
    if FLAGS.split_sentences:
        best = (translations[0].text for translations in sentences if translations)
        return [" ".join(filter(None, best))]
    (translations,) = sentences
    rows = [f"{t.score:.6f}\t{t.text}" if FLAGS.scores else t.text for t in translations]
    return rows + [""] * (FLAGS.n_best - len(rows))


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
