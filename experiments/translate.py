"""Translate standard input to standard output with a trained model, or parse it with a parser.

python -m experiments.translate --workdir W [--n_best 1] [--scores] [--token_scores] < source > out
python -m experiments.translate --workdir W --samples 5 --temperature 0.8 --seed 1 < source > out
python -m experiments.translate --workdir W --mbr chrf --set decoding.beam_size=12 < source > out
python -m experiments.translate --workdir W --split_sentences < paragraphs > out

Each line of input gives one line of output, or n lines with --n_best n or --samples n (one with
--mbr). Blank lines stay blank. --scores writes the score and a tab before each output. --alignments
appends a tab and the word alignment as Moses writes it, 0-0 1-2. --token_scores appends a tab and
each token with its log P. Input is read in windows of --window lines, so a longer input does not
need more memory.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_integer,
    define_model_flags,
    define_output_flags,
    load_models,
    requested,
    trained_run,
)
from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.progress import Progress
from jax_transformer.runtime import prepare_process

if TYPE_CHECKING:
    from jax_transformer.data.vocabularies.base import Vocabulary
    from jax_transformer.decoding.line_search import Translation

define_model_flags(ensembles=True)
define_output_flags()
define_integer(
    "window",
    None,
    "Lines to read, sort by length and translate together (default: 2000; 1 on a terminal).",
    lower_bound=1,
)

logger = logging.getLogger(__name__)


@cli.command
def main() -> None:
    """Read, translate and write one window of lines after another."""
    folder, _, config = trained_run()
    lines = cli.input_lines()
    request = requested(config)
    prepare_process(searches=True)
    from jax_transformer.decoding.batches import windows
    from jax_transformer.decoding.outputs import outputs_now

    _check_prefixes()
    model = load_models(folder)
    translator = model.translator(config.decoding)
    typed = sys.stdin.isatty()
    if typed:
        logger.info("type a sentence, then Enter; Ctrl-D ends")
    count = 1 if request.mbr else request.samples or request.n_best
    both, fewer = _with_prefixes(lines), 0
    with Progress("translate", cli.count_input_lines(), "lines") as progress:
        if not (typed or request.split_sentences):
            translator.advance = progress.update
        for first, part in windows(both, FLAGS.window or (1 if typed else 2000)):
            own = request
            if request.prefixes is not None:
                own = replace(request, prefixes=tuple(prefix for _, prefix in part))
            texts = [line for line, _ in part]
            found = outputs_now(translator, texts, own, data=config.data, first=first)
            progress.clear()
            rows = [_written(each, translator.target_vocabulary) for each in found]
            rows = [each + [""] * (count - len(each)) for each in rows]
            if sys.stdout.isatty():  # a model may write what a terminal obeys
                rows = [[*map(cli.escaped, each)] for each in rows]
            cli.write("".join(f"{row}\n" for each in rows for row in each), flush=True)
            fewer += sum(0 < len(each) < count for each in found)
            if request.split_sentences and not typed:
                progress.update(len(part))
    if fewer:
        rest = f"fewer than {count} different outputs; blank lines stand for the others"
        logger.warning(f"{fewer:,} lines have {rest}")


def _check_prefixes() -> None:
    """Raise InputError if there are more or fewer prefixes than lines, both in files."""
    prefixes = FLAGS.prefixes
    once = prefixes and os.path.exists(prefixes) and not os.path.isfile(prefixes)
    if not prefixes or once or (lines := cli.count_input_lines()) is None:
        return
    if (count := sum(1 for _ in read_lines(prefixes))) != lines:
        deque(cli.input_lines(), maxlen=0)  # an archive has another number, but is no text
        raise InputError(
            f"{prefixes}: expected {lines:,} lines, one for each of the input, found {count:,}; "
            "give a blank one for a line without a prefix"
        )


def _with_prefixes(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each line with its prefix. Raises InputError if their numbers differ."""
    if not FLAGS.prefixes:
        yield from ((line, "") for line in lines)
        return
    both = zip_longest(lines, read_lines(FLAGS.prefixes))
    for number, (line, prefix) in enumerate(both, start=1):
        if line is None or prefix is None:
            shorter = "the input" if line is None else FLAGS.prefixes
            raise InputError(
                f"{shorter} ends after line {number - 1:,}; give one prefix for each line of the "
                "input, a blank one for a line without a prefix"
            )
        yield line, prefix


def _written(found: "Sequence[Translation]", vocabulary: "Vocabulary") -> list[str]:
    """Return what is written for each output of a line."""
    rows = [f"{each.score:.6f}\t{each.text}" if FLAGS.scores else each.text for each in found]
    if FLAGS.alignments:
        from jax_transformer.decoding.alignments import moses

        pairs = [moses(each.alignment or []) for each in found]
        rows = [f"{row}\t{own}" for row, own in zip(rows, pairs, strict=True)]
    if FLAGS.token_scores:
        for i, each in enumerate(found):
            both = zip(vocabulary.pieces(list(each.tokens)), each.token_log_probs, strict=True)
            rows[i] += "\t" + " ".join(f"{piece} {log_prob:.6f}" for piece, log_prob in both)
    return rows


if __name__ == "__main__":
    cli.run(main)
