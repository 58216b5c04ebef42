"""Score parses against gold trees as EVALB does, and print its report.

python -m experiments.evalb GOLD TEST [--param=COLLINS.prm] > report

GOLD and TEST have a tree a line, the same sentences in the same order. A sentence whose words
differ is an error, said on standard error too; one whose parse is blank is skipped. Both are left
out of the scores, and the report's column Stat. has 1 and 2 for them. Without --param the
settings are those of COLLINS.prm.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

from absl import flags

from experiments.cli import FLAGS, open_door, warn
from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.parsing.evalb import (
    COLLINS,
    Parameters,
    SentenceScore,
    Status,
    parse_parameters,
    score_sentence,
)
from jax_transformer.parsing.evalb_report import report


def define_flags() -> None:
    """This door's flags."""
    flags.DEFINE_string("param", None, "EVALB's .prm file (default: COLLINS.prm's settings).")
    flags.DEFINE_integer(
        "cutoff_len", None, "Also score sentences of up to so many words.", lower_bound=0
    )
    flags.DEFINE_integer("max_error", None, "Stop after more error sentences.", lower_bound=0)


def main(gold: str, test: str) -> None:
    """Read both files, score them, print the report."""
    parameters = COLLINS
    if FLAGS.param:
        parameters = parse_parameters(read_lines(FLAGS.param), FLAGS.param)
    if FLAGS.cutoff_len is not None:
        parameters = replace(parameters, cutoff=FLAGS.cutoff_len)
    if FLAGS.max_error is not None:
        parameters = replace(parameters, max_errors=FLAGS.max_error)
    scores = list(_scores(gold, test, parameters))
    sys.stdout.write(report(scores, parameters))


def _scores(gold: str, test: str, parameters: Parameters) -> Iterator[SentenceScore]:
    golds, tests = list(read_lines(gold)), list(read_lines(test))
    if len(golds) != len(tests):
        raise InputError(
            f"{test}: expected a line for each line of {gold}, {len(golds):,}, found "
            f"{len(tests):,}; give the parses of exactly those sentences, blank where there is none"
        )
    errors = 0
    for number, pair in enumerate(zip(golds, tests, strict=True), start=1):
        places = f"{gold}, line {number}", f"{test}, line {number}"
        score = score_sentence(*pair, parameters, places)
        if score.status == Status.ERROR:
            errors += 1
            warn(f"{places[1]}: {score.problem}; left out")
        # EVALB lets one more pass than MAX_ERROR says.
        if errors > parameters.max_errors + 1:
            raise InputError(
                f"{places[1]}: expected at most {parameters.max_errors + 1} sentences whose words "
                f"differ from those of {gold}, found {errors}; correct them or raise --max_error"
            )
        yield score


if __name__ == "__main__":
    open_door(define_flags, main, __doc__, arguments=["GOLD", "TEST"])
