"""Score parses against gold trees as EVALB does, and print its report.

python -m experiments.evalb GOLD TEST [--param=COLLINS.prm] > report

GOLD and TEST have a tree a line, the same sentences in the same order. A sentence whose words
differ is an error, said on standard error too; one whose parse is blank is skipped. Both are left
out of the scores, and the report's column Stat. has 1 and 2 for them. Without --param the
settings are those of COLLINS.prm.
"""

import sys
from collections.abc import Iterator, Sequence
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
    Total,
    percent,
    read_parameters,
    score_sentence,
    total,
)

_RULE = "=" * 76
_HEAD = f"""\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
{_RULE}
"""


def define_flags() -> None:
    """This door's flags."""
    flags.DEFINE_string("param", None, "EVALB's .prm file (default: COLLINS.prm's settings).")
    flags.DEFINE_integer(
        "cutoff_len", None, "Also score sentences of up to so many words.", lower_bound=0
    )
    flags.DEFINE_integer("max_error", None, "Stop after more error sentences.", lower_bound=0)


def main(gold: str, test: str) -> None:
    """Read both files, score them, print the report."""
    parameters = read_parameters(FLAGS.param) if FLAGS.param else COLLINS
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


def report(scores: Sequence[SentenceScore], parameters: Parameters) -> str:
    """EVALB's report: a row for each sentence, the totals, and those up to the cut-off length."""
    rows = "".join(_row(number, score) for number, score in enumerate(scores, start=1))
    everything = total(scores)
    return (
        f"{_HEAD}{rows}{_RULE}\n{_total_row(everything)}=== Summary ===\n"
        f"\n-- All --\n{_summary(everything)}"
        f"\n-- len<={parameters.cutoff} --\n{_summary(total(scores, parameters.cutoff))}"
    )


def _row(number: int, score: SentenceScore) -> str:
    return (
        f"{number:4d}  {score.length:3d}    {score.status:d}  "
        f"{score.recall:6.2f} {score.precision:6.2f}   {score.matched:3d}    "
        f"{score.gold:3d}  {score.test:3d}    {score.crossing:3d}   "
        f"{score.words:4d}  {score.tags:4d}   {score.tagging:6.2f}\n"
    )


def _total_row(result: Total) -> str:
    counts = result.counts
    brackets = (
        f"{'':16}{counts.recall:6.2f} {counts.precision:6.2f} {counts.matched:6d} "
        f"{counts.gold:5d} {counts.test:5d}  {counts.crossing:5d}"
    )
    # EVALB leaves the brackets out where a side has none.
    return (
        f"{brackets if counts.gold and counts.test else ''}"
        f"  {counts.words:5d} {counts.tags:5d}   {counts.tagging:6.2f}\n"
    )


def _summary(result: Total) -> str:
    counts = result.counts
    lines = {
        "Number of sentence": f"{result.sentences:6d}",
        "Number of Error sentence": f"{result.errors:6d}",
        "Number of Skip  sentence": f"{result.skipped:6d}",
        "Number of Valid sentence": f"{result.valid:6d}",
        "Bracketing Recall": f"{counts.recall:6.2f}",
        "Bracketing Precision": f"{counts.precision:6.2f}",
        "Bracketing FMeasure": f"{counts.f1:6.2f}",
        "Complete match": f"{percent(result.complete, result.valid):6.2f}",
        "Average crossing": f"{result.average_crossing:6.2f}",
        "No crossing": f"{percent(result.uncrossed, result.valid):6.2f}",
        "2 or less crossing": f"{percent(result.crossed_twice_at_most, result.valid):6.2f}",
        "Tagging accuracy": f"{counts.tagging:6.2f}",
    }
    return "".join(f"{name:<25} = {value}\n" for name, value in lines.items())


if __name__ == "__main__":
    open_door(define_flags, main, __doc__, arguments=["GOLD", "TEST"])
