"""Score parses against gold trees as EVALB does, and print its report.

python -m experiments.evalb GOLD TEST [--param=COLLINS.prm] > report

GOLD and TEST have one tree per line, for the same sentences in the same order. A sentence whose
words differ is an error, which is also logged on standard error; a sentence whose parse is blank is
skipped. Both are left out of the scores, and the report's column Stat. has 1 and 2 for them.
Without --param the settings are those of COLLINS.prm.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

from experiments import cli
from experiments.shared_flags import define_integer, define_path
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

logger = logging.getLogger(__name__)

PARAM = define_path("param", "EVALB's .prm file (default: COLLINS.prm's settings).")
CUTOFF_LEN = define_integer(
    "cutoff_len", None, "Also score the sentences of up to this many words.", lower_bound=0
)
MAX_ERROR = define_integer(
    "max_error",
    None,
    "Stop at the second error sentence beyond this number, as EVALB does.",
    lower_bound=0,
)


@cli.command
def main(gold: str, test: str) -> None:
    """Read both files, score them, and print the report."""
    parameters = COLLINS
    if PARAM.value:
        parameters = parse_parameters(read_lines(PARAM.value), PARAM.value)
    if CUTOFF_LEN.value is not None:
        parameters = replace(parameters, cutoff=CUTOFF_LEN.value)
    if MAX_ERROR.value is not None:
        parameters = replace(parameters, max_errors=MAX_ERROR.value)
    scores = list(_scores(gold, test, parameters))
    cli.write(report(scores, parameters))


def _scores(gold: str, test: str, parameters: Parameters) -> Iterator[SentenceScore]:
    golds, tests = list(read_lines(gold)), list(read_lines(test))
    if len(golds) != len(tests):
        raise InputError(
            f"{test}: expected a line for each line of {gold}, {len(golds):,}, found "
            f"{len(tests):,}; give the parses of exactly those sentences, blank where there is none"
        )
    errors = 0
    for number, pair in enumerate(zip(golds, tests, strict=True), start=1):
        names = f"{gold}, line {number}", f"{test}, line {number}"
        score = score_sentence(*pair, parameters, names)
        if score.status == Status.ERROR:
            errors += 1
            logger.warning("%s: %s; left out", names[1], score.problem)
        # EVALB allows one more error than MAX_ERROR.
        if errors > parameters.max_errors + 1:
            raise InputError(
                f"{names[1]}: expected at most {parameters.max_errors + 1} sentences whose words "
                f"differ from those of {gold}, found {errors}; correct them or raise --max_error"
            )
        yield score


if __name__ == "__main__":
    cli.run(main)
