"""How fast we decode beside CTranslate2: the same weights and sources in one run, in turns.

python -m benchmarks.compare_decoding --shapes=tiny,base --beam=1,4     random weights
python -m benchmarks.compare_decoding --workdir=runs/mine --lines=500   a trained run

With random weights EOS's embedding is 0, so that no output ends by itself: both sides are
stopped after --steps steps. Before the clock starts, log P of the same sentences is compared.
With --workdir the test text of a run is translated, text in and text out, and outputs are as
long as the model makes them. Every contender is a process of its own, one at a time.
"""

import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.agreement import check_lengths, check_scores, same_share, scores_apart
from benchmarks.contender import cores
from benchmarks.contest import Contender, Contest, Result, contest_lines, define_contest
from benchmarks.ctranslate2_model import write_random, write_trained
from benchmarks.decode import check_beams
from benchmarks.measuring import (
    SHAPES,
    checked_names,
    device_of_others,
    header,
    in_own_process,
    table,
)
from benchmarks.run_text import (
    COMPUTE_TYPES,
    PEERS,
    comparable_run,
    need_ctranslate2,
    peer_options,
    run_lines,
    run_options,
)
from experiments.cli import FLAGS, define_checkpoint, define_workdir, open_door, run_folder
from jax_transformer.config import DecodingConfig
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import RunFolder

SCORED = 4  # sentences whose log P is compared

COLUMNS = [
    "model",
    "beam",
    "decoder",
    "sentences/s",
    "to ours",
    "output tokens/s",
    "ms/turn",
    "range",
    "clean",
    "same",
    "first s",
    "memory MB",
]


def define_flags() -> None:
    """This door's flags."""
    define_workdir()
    define_checkpoint()
    flags.DEFINE_list(
        "shapes", ["tiny", "base"], f"Models with random weights: {', '.join(SHAPES)}."
    )
    flags.DEFINE_list("beam", ["1", "4"], "Hypotheses kept; 1 is greedy; with commas between.")
    flags.DEFINE_list("peers", PEERS, f"Who takes part, of {', '.join(PEERS)}.")
    flags.DEFINE_integer("batch_size", 64, "Random sentences decoded in a turn.", lower_bound=1)
    flags.DEFINE_integer("source_length", 20, "Tokens of each, EOS included.", lower_bound=2)
    flags.DEFINE_integer("steps", 20, "Steps of the decoder for each.", lower_bound=1)
    flags.DEFINE_integer(
        "calls",
        10,
        "Times a turn decodes the same random sentences: after a turn of another contender the "
        "first is slower.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "max_extra_length",
        DecodingConfig().max_extra_length,
        "Tokens that our outputs could be longer than their source.",
        lower_bound=1,
    )
    flags.DEFINE_integer("lines", 500, "With --workdir: lines in a turn.", lower_bound=1)
    define_contest()


def main() -> None:
    """Hold a contest for each model and beam, and print the table."""
    peers = checked_names("--peers", FLAGS.peers, PEERS)
    beams = [_beam(text) for text in FLAGS.beam]
    need_ctranslate2()
    if FLAGS.workdir:
        rows, notes = compare_run(run_folder(), peers, beams)
    else:
        rows, notes = compare_random(peers, beams)
    print(report(rows, notes))


def _beam(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"--beam={text}: expected numbers of hypotheses; give such as 1,4")
    return int(text)


def compare_random(peers: list[str], beams: list[int]) -> tuple[list[list[str]], list[str]]:
    """A contest for each shape and beam; rows of the table and notes."""
    shapes = checked_names("--shapes", FLAGS.shapes, list(SHAPES))
    room = FLAGS.source_length + FLAGS.max_extra_length
    if room < FLAGS.steps:
        raise InputError(
            f"--steps={FLAGS.steps}: expected at most source_length + max_extra_length, "
            f"found {room}; give a larger --max_extra_length"
        )
    check_beams("--beam", beams, shapes)
    print(header("ctranslate2"), flush=True)
    device = device_of_others()
    rows, notes = [], []
    for shape in shapes:
        with tempfile.TemporaryDirectory() as name:
            sizes = (FLAGS.batch_size, FLAGS.source_length, room, Path(name))
            in_own_process(write_random, SHAPES[shape], *sizes, devices=None)
            for beam in beams:
                contenders = [random_contender(peer, shape, beam, name, device) for peer in peers]
                with Contest(contenders) as contest:
                    check_scores(contest.facts)
                    found = contest.measure(FLAGS.repetitions, FLAGS.rounds)
                check_lengths(found, FLAGS.steps)
                rows += result_rows(shape, beam, found, FLAGS.batch_size, FLAGS.steps)
                notes += result_notes(shape, beam, found)
    return rows, notes


def random_contender(peer: str, shape: str, beam: int, folder: str, device: str) -> Contender:
    """How a decoder of random sources is started; device: CTranslate2's."""
    if peer == "jax":
        arguments = {
            "shape": shape,
            "steps": FLAGS.steps,
            "decoding": {"beam_size": beam, "max_extra_length": FLAGS.max_extra_length},
        }
        function = "benchmarks.decoding_work:prepare_random"
    else:
        arguments = {
            "compute_type": COMPUTE_TYPES[peer],
            "threads": cores(),
            "device": device,
            "options": {
                **peer_options(beam, DecodingConfig().alpha),
                "max_decoding_length": FLAGS.steps,
            },
        }
        function = "benchmarks.ctranslate2_peer:prepare_random"
    more = {"folder": folder, "scored": SCORED, "calls": FLAGS.calls}
    return Contender(peer, function, arguments | more)


def compare_run(
    folder: RunFolder, peers: list[str], beams: list[int]
) -> tuple[list[list[str]], list[str]]:
    """A contest for each beam on the text of a run."""
    run = comparable_run(folder)
    lines = run_lines(folder, FLAGS.lines)
    print(header("ctranslate2"), flush=True)
    device = device_of_others()
    rows, notes = [], []
    with tempfile.TemporaryDirectory() as name:
        source, model = Path(name) / "source", Path(name) / "model"
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
        in_own_process(write_trained, str(folder.path), FLAGS.checkpoint, model, devices=None)
        for beam in beams:
            options = run_options(run.config, beam)
            ours = {"workdir": str(folder.path), "checkpoint": FLAGS.checkpoint, "beam_size": beam}
            theirs = {
                "model": str(model),
                "vocabulary": str(folder.vocabulary),
                "threads": cores(),
                "device": device,
                "options": options,
            }
            contenders = [_lines_contender(peer, ours, theirs, str(source)) for peer in peers]
            with Contest(contenders) as contest:
                found = contest.measure(FLAGS.repetitions, FLAGS.rounds)
            rows += result_rows(run.experiment, beam, found, len(lines), None)
            notes += result_notes(run.experiment, beam, found)
    return rows, notes


def _lines_contender(
    peer: str, ours: dict[str, Any], theirs: dict[str, Any], source: str
) -> Contender:
    if peer == "jax":
        return Contender(peer, "benchmarks.decoding_work:prepare_lines", ours | {"source": source})
    arguments = theirs | {"source": source, "compute_type": COMPUTE_TYPES[peer]}
    return Contender(peer, "benchmarks.ctranslate2_peer:prepare_lines", arguments)


def result_rows(
    model: str, beam: int, found: dict[str, Result], sentences: int, steps: int | None
) -> list[list[str]]:
    """A line of the table for each decoder; steps: tokens of each output where they are fixed."""
    ours = found.get("jax")
    rows = []
    for name, result in found.items():
        seconds = result.timing.median
        same = "-"
        if ours is not None and steps is None:
            same = f"{same_share(ours.results[-1], result.results[-1]):.1%}"
        rows.append(
            [
                model,
                str(beam),
                name,
                f"{sentences / seconds:,.1f}",
                f"{ours.timing.median / seconds:.2f}" if ours else "-",
                f"{sentences * steps / seconds:,.0f}" if steps else "-",
                *result.timing.cells(),
                f"{result.clean} of {result.turns}",
                same,
                f"{result.timing.compile_seconds:.1f}",
                f"{result.peak_memory / 1e6:,.0f}",
            ]
        )
    return rows


def result_notes(model: str, beam: int, found: dict[str, Result]) -> list[str]:
    """What the contenders said of themselves."""
    lines = []
    for name, result in found.items():
        apart = ""
        if name != "jax" and "jax" in found and "scores" in result.facts:
            share = scores_apart(found["jax"].facts["scores"], result.facts["scores"])
            apart = f"; log P at most {share:.1e} from ours"
        lines.append(f"contest     {model}, beam {beam}: {name}, {result.facts['about']}{apart}")
    return lines


def report(rows: list[list[str]], notes: list[str]) -> str:
    """The table, with what its numbers are."""
    work = (
        f"{FLAGS.lines} lines of the run's text, in and out"
        if FLAGS.workdir
        else f"{FLAGS.batch_size} sources of {FLAGS.source_length} tokens, {FLAGS.steps} steps "
        f"each, of ours {FLAGS.source_length + FLAGS.max_extra_length} allowed; random weights; "
        f"{FLAGS.calls} times in a turn, ms of one"
    )
    lines = [
        f"work        {work}; float32 but where a name says int8",
        *contest_lines(),
        "first       what the first turn took beyond the median: compiling, warming up",
        "to ours     speed over that of jax; same: lines that are the same as ours, where the "
        "length penalties differ",
        *notes,
        "",
        table(COLUMNS, rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
