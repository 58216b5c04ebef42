"""How fast a file is translated from start to end, by our command and by CTranslate2.

python -m benchmarks.compare_translating --workdir=runs/mine --lines=1000,30000

Each turn is a process of its own, from its start to its last line: loading libraries and
model, compiling, reading, cutting into pieces, decoding, writing. Ours is
experiments.translate, with `--patience 1` too, which stops as CTranslate2 does; the other
feeds CTranslate2 with the pieces of the same vocabulary. They take turns, so what else the
machine does meets all.
"""

import json
import sys
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.agreement import same_share
from benchmarks.contender import cores
from benchmarks.contest import Contender, Contest, Result, contest_lines, define_contest
from benchmarks.ctranslate2_model import write_trained
from benchmarks.measuring import checked_names, device_of_others, header, in_own_process, table
from benchmarks.run_text import (
    COMPUTE_TYPES,
    PEERS,
    comparable_run,
    need_ctranslate2,
    run_lines,
    run_options,
)
from experiments.cli import FLAGS, define_checkpoint, define_workdir, open_door, run_folder
from jax_transformer.errors import InputError

# That leaves a sentence by CTranslate2's rule, when as many outputs as the beam is wide have ended.
PATIENT = "jax-patience"
TRANSLATORS = ["jax", PATIENT, *(peer for peer in PEERS if peer != "jax")]

COLUMNS = [
    "lines",
    "translator",
    "sentences/s",
    "to ours",
    "seconds",
    "range",
    "clean",
    "CPU s",
    "same",
    "memory MB",
]


def define_flags() -> None:
    """This door's flags."""
    define_workdir()
    define_checkpoint()
    flags.DEFINE_list("lines", ["1000", "30000"], "Lengths of the file, with commas between.")
    flags.DEFINE_string("source", None, "Text to take the lines of (default: the run's test set).")
    flags.DEFINE_list("peers", TRANSLATORS, f"Who takes part, of {', '.join(TRANSLATORS)}.")
    flags.DEFINE_integer("beam_size", None, "Hypotheses kept (default: the run's).", lower_bound=1)
    flags.DEFINE_integer("workers", None, "CTranslate2's (default: one a core).", lower_bound=1)
    define_contest(repetitions=3, rounds=3, least=1)


def main() -> None:
    """Translate each file by each in turn, and print the table."""
    peers = checked_names("--peers", FLAGS.peers, TRANSLATORS)
    counts = [_count(text) for text in FLAGS.lines]
    need_ctranslate2()
    folder = run_folder()
    run = comparable_run(folder)
    beam_size = FLAGS.beam_size or run.config.decoding.beam_size
    print(header("ctranslate2"), flush=True)
    device = device_of_others()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        model, source = Path(name) / "model", Path(name) / "source"
        in_own_process(write_trained, str(folder.path), FLAGS.checkpoint, model, devices=None)
        settings = {
            "model": str(model),
            "vocabulary": str(folder.vocabulary),
            "options": run_options(run.config, beam_size),
            "threads": cores(),
            "device": device,
            "workers": FLAGS.workers or (1 if device == "cuda" else cores()),
        }
        for count in counts:
            lines = run_lines(folder, count, FLAGS.source)
            text = "".join(f"{line}\n" for line in lines)
            source.write_text(text, encoding="utf-8", newline="")
            contenders = [
                Contender(
                    peer,
                    "benchmarks.whole_command:prepare",
                    {
                        "command": command(peer, str(folder.path), beam_size, settings),
                        "source": str(source),
                        "output": str(Path(name) / peer),
                    },
                )
                for peer in peers
            ]
            with Contest(contenders) as contest:
                found = contest.measure(FLAGS.repetitions, FLAGS.rounds, before=0)
            outputs = {peer: read_output(peer, found[peer], Path(name), count) for peer in peers}
            rows += result_rows(count, found, outputs)
    print(report(rows, beam_size, settings["workers"]))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"--lines={text}: expected numbers of lines; give such as 1000,30000")
    return int(text)


def command(peer: str, workdir: str, beam_size: int, settings: dict) -> list[str]:
    """What a user would type."""
    if peer in ("jax", PATIENT):
        chosen = ["--checkpoint", FLAGS.checkpoint] if FLAGS.checkpoint else []
        chosen += ["--patience", "1"] if peer == PATIENT else []
        module = ["experiments.translate", "--workdir", workdir, "--beam_size", str(beam_size)]
        return [sys.executable, "-m", *module, *chosen]
    text = json.dumps(settings | {"compute_type": COMPUTE_TYPES[peer]})
    return [sys.executable, "-m", "benchmarks.ctranslate2_peer", text]


def read_output(peer: str, result: Result, folder: Path, count: int) -> list[str]:
    """The lines it wrote. InputError where it failed, or lines are missing."""
    codes = {turn["exit"] for turn in result.results}
    if codes != {0}:
        raise InputError(f"{peer}: expected translations, found exit codes {codes}; see above")
    lines = (folder / peer).read_bytes().decode("utf-8").split("\n")[:-1]
    if len(lines) != count:
        raise InputError(f"{peer}: expected {count:,} lines, found {len(lines):,}; report it")
    return lines


def result_rows(
    count: int, found: dict[str, Result], outputs: dict[str, list[str]]
) -> list[list[str]]:
    """A line of the table for each translator."""
    ours = found.get("jax")
    rows = []
    for name, result in found.items():
        seconds = result.timing.median
        low, high = min(result.timing.seconds), max(result.timing.seconds)
        rows.append(
            [
                f"{count:,}",
                name,
                f"{count / seconds:,.1f}",
                f"{ours.timing.median / seconds:.2f}" if ours else "-",
                f"{seconds:,.1f}",
                f"{low:,.1f} - {high:,.1f}",
                f"{result.clean} of {result.turns}",
                f"{max(turn['cpu'] for turn in result.results):,.1f}",
                f"{same_share(outputs['jax'], outputs[name]):.1%}" if ours else "-",
                f"{max(turn['memory'] for turn in result.results) / 1e6:,.0f}",
            ]
        )
    return rows


def report(rows: list[list[str]], beam_size: int, workers: int) -> str:
    """The table, with what its numbers are."""
    lines = [
        f"work        beam {beam_size}; a whole process each turn, start-up and compiling "
        f"included; CTranslate2 with {workers} workers",
        *contest_lines(),
        "to ours     speed over that of jax; same: lines that are the same as those of jax; "
        "CTranslate2's length penalty differs",
        "",
        table(COLUMNS, rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
