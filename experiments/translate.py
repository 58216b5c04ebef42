"""Translate standard input to standard output with a trained model.

python -m experiments.translate --workdir W [--n_best 1] [--scores] < source > translations

One line out for each line in (or n with --n_best n), in order, blank for blank. Lines are
sorted by length inside a window, so memory stays flat however long the input is.
"""

import sys

from absl import flags

from experiments.cli import (
    FLAGS,
    asked_decoding,
    define_checkpoint,
    define_search,
    define_workdir,
    open_door,
    run_folder,
)
from jax_transformer.errors import InputError


def define_flags() -> None:
    """This door's flags."""
    define_workdir()
    define_checkpoint()
    define_search()
    flags.DEFINE_integer("n_best", 1, "Translations written for each line.", lower_bound=1)
    flags.DEFINE_bool(
        "scores", False, "Write the score, log P over the length penalty, and a tab before each."
    )
    flags.DEFINE_integer(
        "batch_tokens", None, "Source tokens decoded together, padding included.", lower_bound=1
    )
    flags.DEFINE_integer(
        "window",
        None,
        "Lines read, sorted by length and translated together (default: 2000; 1 on a terminal).",
        lower_bound=1,
    )


def main() -> None:
    """Stream: read a window, translate it, write it."""
    from jax_transformer.data.text import decode_lines
    from jax_transformer.runs.loading import load
    from jax_transformer.runtime import prepare_process

    prepare_process()
    folder = run_folder()
    run = folder.need_run()
    decoding = asked_decoding(run.config, "batch_tokens")
    if FLAGS.n_best > decoding.beam_size:
        raise InputError(
            f"--n_best={FLAGS.n_best}: expected at most the beam size, {decoding.beam_size}; "
            "give a larger --beam_size"
        )
    trained = load(folder.path, FLAGS.checkpoint)
    translator = trained.translator(decoding, n_best=FLAGS.n_best)
    lines = decode_lines(sys.stdin.buffer, "standard input")
    window = FLAGS.window or (1 if sys.stdin.isatty() else 2000)
    for number, translations in enumerate(translator.stream(lines, window), start=1):
        for index in range(FLAGS.n_best):
            line = ""
            if index < len(translations):
                found = translations[index]
                line = f"{found.score:.6f}\t{found.text}" if FLAGS.scores else found.text
            sys.stdout.buffer.write(f"{line}\n".encode())
        if number % window == 0:
            sys.stdout.buffer.flush()
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
