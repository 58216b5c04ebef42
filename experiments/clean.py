"""Remove bad pairs from parallel text: untranslated, repeated, foreign or too unequal in length.

python -m experiments.clean --source F --target F --output_source F --output_target F

Print how many pairs each rule removes, with examples and their line numbers. Files ending in .bz2,
.gz and .xz are compressed. To turn a rule off, set its flag to a very large number, or to 1 if it
is a share. docs/cleaning.md explains the rules.
"""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import define_integer, define_path, required
from jax_transformer.data.text import SIDES, ParallelFiles, changed_meanwhile, whole_text
from jax_transformer.data.urls import is_url
from jax_transformer.errors import InputError
from jax_transformer.files import check_regular

for side in SIDES:
    define_path(side, f"Text of the {side}, one sentence per line; plain, .bz2, .gz or .xz.")
    define_path(f"output_{side}", f"File to write with the {side} of the pairs that are kept.")
define_integer(
    "max_equal", 20, "Maximum number of letters of a pair whose sides are equal.", lower_bound=0
)
flags.DEFINE_float(
    "max_symbols", 0.7, "Maximum share of digits and symbols in a side.", lower_bound=0
)
define_integer("max_word", 60, "Maximum number of letters and digits in one word.", lower_bound=1)
flags.DEFINE_float(
    "max_foreign",
    0.5,
    "Maximum share of a side's letters in one script that is rare on that side of the text.",
    lower_bound=0,
)
flags.DEFINE_float(
    "max_ratio",
    2.5,
    "Maximum ratio of the sides' lengths, after division by the usual one of the text.",
    lower_bound=1,
)
define_integer("max_copies", 1, "Maximum number of occurrences of one pair.", lower_bound=1)


@cli.command
def main() -> None:
    """Measure both files as a whole, then write the pairs that no rule removes."""
    paths = [required(side) for side in SIDES]
    outputs = [_new_file(f"output_{side}") for side in SIDES]
    if outputs[0] == outputs[1]:
        raise InputError(
            f"--output_source and --output_target are both {outputs[1]}; give two files"
        )
    for path in paths:
        check_regular(path)  # it is read twice
    from jax_transformer.data.cleaning import Limits, examples, find_rules, report

    limits = Limits(**{name: getattr(FLAGS, f"max_{name}") for name in Limits._fields})
    if any(map(math.isnan, limits)):
        raise InputError("--max_symbols, --max_foreign, --max_ratio: expected numbers, found nan")
    pairs = ParallelFiles(*paths).pairs
    rules = find_rules(pairs(), limits)
    chosen = examples(rules)
    shown = {meaning: [meaning] for meaning in chosen.values()}
    with ExitStack() as opened:
        opened.push(partial(_remove, outputs))
        files = [opened.enter_context(whole_text(path)) for path in outputs]
        for index, (pair, rule) in enumerate(zip_longest(pairs(), rules)):
            if pair is None or rule is None:
                raise changed_meanwhile(*paths)
            if not rule:
                for file, line in zip(files, pair, strict=True):
                    file.write(f"{line}\n".encode())
            elif index in chosen:
                short = "\t".join(text[:300] for text in pair)
                shown[chosen[index]].append(f"{index + 1:>11,}\t{short}")
    for line in [*report(rules), *(line for lines in shown.values() for line in ("", *lines))]:
        cli.show(line)
    cli.show(f"\n{rules.count(0):>11,} of {len(rules):,} pairs are kept")


def _remove(paths: Sequence[Path], failed: object, *_: object) -> None:
    """Remove new files if the block of an `ExitStack` has failed: one alone is of no use."""
    for path in paths if failed else ():
        path.unlink(missing_ok=True)


def _new_file(name: str) -> Path:
    """Return the path that a flag gives. Raises InputError unless nothing is there."""
    given = required(name)
    path = Path(given)
    if is_url(given) or path.exists():
        found = "an address" if is_url(given) else "an existing one"
        raise InputError(f"--{name}={given}: expected a new file, found {found}; give another path")
    return path


if __name__ == "__main__":
    cli.run(main)
