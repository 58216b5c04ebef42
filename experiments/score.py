"""Score given translations: their log-probability under a trained model.

python -m experiments.score --workdir W --source F [--target G] [--n_best 1] > scores

The output has one line for each line of the target, in order: the log-probability of the whole
line, its end included, a tab, and the log-probability per token, in nats. The line is blank if a
side is blank or the target is too long. Without --target, translations are read from standard
input, as in
experiments.translate --n_best 4 < F | experiments.score --source F --n_best 4
Scores at the beginning of lines, as experiments.translate --scores writes them, are ignored.
"""

import logging
import os
import re
import sys
from collections import deque
from collections.abc import Iterator

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_integer,
    define_model_flags,
    define_path,
    required,
    trained_run,
)
from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.progress import Progress
from jax_transformer.runtime import prepare_process

logger = logging.getLogger(__name__)

_COLUMN = re.compile(r"\t(\d+-\d+( \d+-\d+)*|.* -?\d+\.\d{6})$")  # of its other options
_SCORE = re.compile(r"-?\d+\.\d{6}\t")  # as translate --scores writes it

define_model_flags()
define_path("source", "The file that was translated, one sentence per line.")
define_path("target", "Translations of --source (default: standard input).")
define_integer(
    "n_best", 1, "Number of lines of the target for each line of the source.", lower_bound=1
)
define_integer(
    "window", 2000, "Number of pairs read, sorted by length and scored together.", lower_bound=1
)


@cli.command
def main() -> None:
    """Read, score and write one window of lines after another."""
    folder, run, config = trained_run()
    run.task.require("translates", "experiments.score")
    pairs, count = _pairs(required("source")), _count(FLAGS.source, FLAGS.n_best)
    given = _count(FLAGS.target) if FLAGS.target else cli.count_input_lines()
    if None not in (count, given) and count != given:
        if not FLAGS.target:
            deque(cli.input_lines(), maxlen=0)  # an archive has another number, but is no text
        raise InputError(
            f"{FLAGS.target or 'standard input'} has {given:,} lines, expected {count:,}, "
            f"{FLAGS.n_best} for each line of {FLAGS.source}; give all of them, or change --n_best"
        )
    prepare_process()
    from jax_transformer.decoding.batches import windows
    from jax_transformer.runs.load import load

    translator = load(folder, FLAGS.checkpoint).translator(config.decoding)
    with Progress("score", count, "pairs") as progress:
        translator.advance = progress.update
        for first, part in windows(pairs, FLAGS.window):
            scores = translator.score_pairs(part, first, FLAGS.n_best)
            progress.clear()
            rows = [f"{s.log_prob:.6f}\t{s.per_token:.6f}" if s else "" for s in scores]
            cli.write("".join(f"{row}\n" for row in rows), flush=True)


def _count(file: str, each: int = 1) -> int | None:
    """Return the number of lines, times `each`; None if the file can be read only once."""
    once = os.path.exists(file) and not os.path.isfile(file)
    return None if once else each * sum(1 for _ in read_lines(file))


def _pairs(sources: str) -> Iterator[tuple[str, str]]:
    """Yield (source, target), each source as often as it has translations."""
    name = FLAGS.target or "standard input"
    if not FLAGS.target and sys.stdin and sys.stdin.isatty():
        logger.info("score       type a translation, then Enter; Ctrl-D ends")
    targets = _without_scores(read_lines(name) if FLAGS.target else cli.input_lines(), name)
    each = "a line" if FLAGS.n_best == 1 else f"{FLAGS.n_best} lines"
    number = 0

    def wrong_count(found: str) -> InputError:
        return InputError(
            f"{name} {found} line {number:,}; give {each} of it for each line of {sources}, or "
            "change --n_best"
        )

    for source in read_lines(sources):
        for _ in range(FLAGS.n_best):
            target = next(targets, None)
            if target is None:
                raise wrong_count("ends after")
            number += 1
            yield source, target
    if next(targets, None) is not None:
        raise wrong_count("has more lines after")


def _without_scores(targets: Iterator[str], name: str) -> Iterator[str]:
    """Yield the lines; if the first begins with a score and a tab, remove those of all lines."""
    scored = None
    for number, line in enumerate(targets, start=1):
        found = _SCORE.match(line)
        if scored is None and line.strip():
            scored = found is not None
            if scored:
                logger.info(f"scores      at the beginning of lines of {name} are ignored")
            if _COLUMN.search(line[found.end() :] if found else line):
                raise InputError(
                    f"{name}, line {number:,}: expected a translation, found another column beside "
                    "it; write the lines without --token_scores and --alignments"
                )
        if scored and line.strip() and not found:
            raise InputError(
                f"{name}, line {number:,}: expected a score and a tab first, as on lines above, "
                f"found {line[:20]!r}; give translations alone, or all with --scores"
            )
        yield line[found.end() :] if scored and found else line


if __name__ == "__main__":
    cli.run(main)
