"""Translate standard input to standard output with a trained model; or parse, with a parser.

python -m experiments.translate --workdir W [--n_best 1] [--scores] [--alignments] < source > out

The output has one line for each line of input (or n with --n_best n or --samples n), in order; a
blank line gives blank ones. Lines are sorted by length inside a window, so the length of the input
does not change the memory that is needed.
"""

import itertools
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from absl import app, flags

from experiments import cli, output_flags
from experiments.cli import FLAGS
from experiments.flag_types import define_integer
from jax_transformer.errors import InputError
from jax_transformer.progress import Progress
from jax_transformer.runs.results import usual_familiarity_of
from jax_transformer.runs.run_dir import require_task
from jax_transformer.runtime import prepare_process

if TYPE_CHECKING:
    from jax_transformer.decoding.translator import Translation, Translator

cli.define_model_flags()
output_flags.define_output_flags()
define_integer("n_best", 1, "Translations written for each line.", lower_bound=1)
flags.DEFINE_bool(
    "scores", False, "Write the score, log P over the length penalty, and a tab before each."
)
flags.DEFINE_bool(
    "alignments",
    False,
    "Write a tab and the word alignment after each translation, as Moses does: 0-0 1-2, a word of "
    "the source and one of the translation, from 0.",
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
    if FLAGS.n_best > decoding.beam_size and not FLAGS.samples:
        raise InputError(
            f"--n_best={FLAGS.n_best}: expected at most the beam size, {decoding.beam_size}; "
            f"give --set decoding.beam_size={FLAGS.n_best}"
        )
    if FLAGS.alignments:
        require_task(run, "translation", "--alignments")
    prepare_process()
    from jax_transformer.evaluation.familiarity import UnfamiliarLine

    options = output_flags.output_options(run, FLAGS.n_best)
    model = output_flags.load_models(folder)
    count = options.samples or FLAGS.n_best
    translator = model.translator(decoding, n_best=FLAGS.n_best, options=options)
    translates = run.config.data.task == "translation"
    usual = usual_familiarity_of(folder, run) if translates else None
    unfamiliar = UnfamiliarLine(usual, model.vocabulary)
    typed = sys.stdin.isatty()
    window = FLAGS.window or (1 if typed else 2000)
    if typed:
        logger.info("type a sentence, then Enter; Ctrl-D ends")
    with Progress("translate", cli.count_input_lines(), "lines") as progress:
        if not typed:
            translator.advance = progress.update
        given, lines = itertools.tee(lines)
        outputs = translator.stream(lines, window, output_flags.prefixes())
        found = zip(given, outputs, strict=True)
        if FLAGS.alignments:
            found = _with_alignments(translator, found, window)
        for number, (line, translations) in enumerate(found, start=1):
            if (number - 1) % window == 0:
                progress.clear()
            if not options.samples:  # which are improbable on purpose
                unfamiliar.check(number, line, translations)
            rows = [f"{t.score:.6f}\t{t.text}" if FLAGS.scores else t.text for t in translations]
            rows += [""] * (count - len(rows))
            cli.write("".join(f"{row}\n" for row in rows), flush=number % window == 0)


def _with_alignments(
    translator: "Translator", found: Iterable[tuple[str, "list[Translation]"]], window: int
) -> Iterator[tuple[str, "list[Translation]"]]:
    """Write a tab and the word alignment after the text of each translation."""
    from jax_transformer.decoding.aligner import stream_alignments
    from jax_transformer.decoding.alignments import moses

    for line, translations, alignments in stream_alignments(translator, found, window):
        pairs = zip(translations, alignments, strict=True)
        yield line, [replace(each, text=f"{each.text}\t{moses(own)}") for each, own in pairs]


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
