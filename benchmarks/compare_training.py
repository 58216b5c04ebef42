"""How fast we train beside PyTorch and flax's example: the same work, in turns, one table.

python -m benchmarks.compare_training                            tiny and base, float32
python -m benchmarks.compare_training --shapes=tiny,base,big --attention_dropout=0.0,0.1
python -m benchmarks.compare_training --dtype=bfloat16 --peers=jax,torch-tuned --compile
python -m benchmarks.compare_training --flax_wmt=flax-0.12.8/examples/wmt
python -m benchmarks.compare_training --shapes=base,big --batch_tokens=25000 --dtype=bfloat16 \\
    --fused_attention --compile --peak_sizes=8192   the paper's batches, on a GPU

Every contender is a process of its own and takes the same steps on the same batches: A B C
A B C ..., one at a time, with a process between them that measures the peak of matrix
products. Turns that other programs disturbed are taken again. Before the clock starts, our
loss and that of the tuned PyTorch are compared on the same parameters. All of them work on the
device that JAX takes; JAX_PLATFORMS=cpu keeps them on the CPU.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

from absl import flags

from benchmarks.agreement import check_losses
from benchmarks.contender import cores
from benchmarks.contest import Contender, Contest, Result, contest_lines, define_contest
from benchmarks.measuring import (
    BOS_ID,
    PAD_ID,
    SHAPES,
    Shape,
    asked_shape,
    checked_names,
    define_shape_changes,
    device_of_others,
    header,
    in_own_process,
    table,
)
from benchmarks.train_step import training_flops
from benchmarks.training_work import TRAINING, write_work
from experiments.cli import FLAGS, open_door
from jax_transformer.errors import InputError

PEERS = ["jax", "torch-tuned", "torch-stock"]
COMPILED = "torch-compiled"
EXAMPLE = "flax-wmt"
PEAK = "peak"
# Relative; float32 sums in other orders, and bfloat16 rounds at other places.
TOLERANCES = {"float32": 1e-4, "bfloat16": 1e-2}
# What our keep_freed_memory asks of glibc, as a process can be told from outside.
KEEP_FREED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**63 - 1),
    "MALLOC_ARENA_MAX": "1",
}

COLUMNS = [
    "shape",
    "attention dropout",
    "trainer",
    "target tokens/s",
    "to ours",
    "ms/step",
    "range",
    "clean",
    "MFU",
    "first s",
    "memory MB",
]


def define_flags() -> None:
    """This door's flags."""
    flags.DEFINE_list(
        "shapes",
        ["tiny", "base"],
        f"Models and batches, of {', '.join(SHAPES)}, with commas between them.",
    )
    flags.DEFINE_list("attention_dropout", ["0.0"], "Rates of dropout on attention weights.")
    flags.DEFINE_list("peers", PEERS, f"Who takes part, of {', '.join(PEERS)}.")
    flags.DEFINE_bool("compile", False, f"Also {COMPILED}: torch-tuned under torch.compile.")
    flags.DEFINE_string(
        "flax_wmt",
        None,
        f"Also {EXAMPLE}: the folder examples/wmt of flax's sources, which its wheel does not "
        "have (pip download --no-deps --no-binary=flax flax, and unpack it).",
    )
    define_shape_changes()
    flags.DEFINE_integer("steps", 3, "Steps of a turn, each on a batch of its own.", lower_bound=1)
    define_contest()
    flags.DEFINE_list(
        "peak_sizes", ["1024", "2048", "4096"], "Widths of the products that show the peak."
    )


def main() -> None:
    """Hold a contest for each shape and rate, and print the table."""
    names = checked_names("--shapes", FLAGS.shapes, list(SHAPES))
    asked = (FLAGS.dtype, FLAGS.batch_tokens, FLAGS.fused_attention)
    shapes = {name: asked_shape(name, *asked) for name in names}
    peers = checked_names("--peers", FLAGS.peers, PEERS) + [COMPILED] * FLAGS.compile
    if FLAGS.flax_wmt is not None:
        if not (Path(FLAGS.flax_wmt) / "train.py").is_file():
            raise InputError(
                f"--flax_wmt={FLAGS.flax_wmt}: expected the folder examples/wmt of flax's sources, "
                "found no train.py in it; give that folder"
            )
        peers.append(EXAMPLE)
    rates = [_rate(text) for text in FLAGS.attention_dropout]
    sizes = [_size(text) for text in FLAGS.peak_sizes]
    if any(peer.startswith("torch") for peer in peers) and find_spec("torch") is None:
        raise InputError(
            "--peers: expected PyTorch to compare with, found none; "
            "pip install -e '.[bench]', or give --peers=jax"
        )
    if FLAGS.fused_attention and max(rates) > 0:
        raise InputError(
            f"--fused_attention: expected no attention dropout, found {max(rates):g}; give "
            "--attention_dropout=0.0, or leave it out"
        )
    print(header("torch"), flush=True)
    device = device_of_others()
    rows, notes = [], []
    for name, shape in shapes.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "work.npz"
            tokens = in_own_process(write_work, shape, FLAGS.steps, path, devices=None)
            for rate in rates:
                found = compare(name, rate, peers, path, sizes, device)
                rows += result_rows(name, shape, rate, found, tokens / FLAGS.steps)
                notes += result_notes(name, shape, rate, found)
    print(report(rows, notes))


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < 1:
        raise InputError(
            f"--attention_dropout={text}: expected rates of at least 0 and below 1, with commas "
            "between them; give such as 0.0,0.1"
        )
    return rate


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"--peak_sizes={text}: expected widths; give such as 1024,2048")
    return int(text)


def compare(
    shape: str, rate: float, peers: list[str], path: Path, sizes: list[int], device: str
) -> dict[str, Result]:
    """One contest. InputError where the losses of the same parameters differ."""
    contenders = [contender(peer, shape, rate, path, device) for peer in peers]
    peak = {"sizes": sizes, "dtype": FLAGS.dtype}
    contenders.append(Contender(PEAK, "benchmarks.training_work:prepare_peak", peak))
    with Contest(contenders) as contest:
        check_losses(contest.facts, TOLERANCES[FLAGS.dtype])
        return contest.measure(FLAGS.repetitions, FLAGS.rounds)


def contender(peer: str, shape: str, rate: float, path: Path, device: str) -> Contender:
    """How a trainer is started; device: PyTorch's."""
    model = SHAPES[shape].model
    common = {
        "path": str(path),
        "dropout": model.dropout_rate,
        "attention_dropout": rate,
        "dtype": FLAGS.dtype,
    }
    if peer == "jax":
        ours = {"shape": shape, "fused_attention": FLAGS.fused_attention}
        return Contender(peer, "benchmarks.training_work:prepare", common | ours)
    common |= {
        "label_smoothing": TRAINING.label_smoothing,
        "warmup_steps": TRAINING.warmup_steps,
    }
    if peer == EXAMPLE:
        folder = {"folder": FLAGS.flax_wmt}
        return Contender(peer, "benchmarks.flax_wmt_peer:prepare", common | folder)
    common |= {"ids": (PAD_ID, BOS_ID), "device": device}
    if peer == "torch-stock":
        return Contender(peer, "benchmarks.torch_training:prepare_stock", common)
    common |= {"threads": cores(), "compiled": peer == COMPILED}
    return Contender(peer, "benchmarks.torch_training:prepare_tuned", common, KEEP_FREED)


def result_rows(
    label: str, shape: Shape, rate: float, found: dict[str, Result], tokens: float
) -> list[list[str]]:
    """A line of the table for each trainer; `tokens` are the real target ones of a step."""
    peak = max(found[PEAK].results)
    flops = training_flops(shape)
    ours = found["jax"].timing.median if "jax" in found else None
    rows = []
    for name, result in found.items():
        if name == PEAK:
            continue
        seconds = result.timing.median
        rows.append(
            [
                label,
                f"{rate:g}",
                name,
                f"{tokens / seconds:,.0f}",
                f"{ours / seconds:.2f}" if ours else "-",
                *result.timing.cells(),
                f"{result.clean} of {result.turns}",
                f"{flops / seconds / peak:.1%}",
                f"{result.timing.compile_seconds:.1f}",
                f"{result.peak_memory / 1e6:,.0f}",
            ]
        )
    return rows


def result_notes(label: str, shape: Shape, rate: float, found: dict[str, Result]) -> list[str]:
    """What the contenders said of themselves."""
    peak = max(found[PEAK].results) / 1e9
    lines = [
        f"{label}, {rate:g}: {shape.rows} rows x ({shape.length} + {shape.length}) tokens, "
        f"{training_flops(shape) / 1e9:,.1f} GFLOP a step, peak {peak:,.0f} GFLOP/s"
    ]
    for name, result in found.items():
        if name != PEAK:
            loss = f"; loss {result.facts['loss']:.5f}" if "loss" in result.facts else ""
            lines.append(f"            {name}: {result.facts['about']}{loss}")
    return lines


def report(rows: list[list[str]], notes: list[str]) -> str:
    """The table, with what its numbers are."""
    lines = [
        f"work        {FLAGS.dtype}; forward, backward and Adam under dropout; turns of "
        f"{FLAGS.steps} steps",
        *contest_lines(),
        "first       what the first turn took beyond the median: compiling, warming up",
        "to ours     speed over that of jax",
        "MFU         matrix products, padding included, over the peak measured between the turns",
        *(f"contest     {line}" if not line.startswith(" ") else line for line in notes),
        "",
        table(COLUMNS, rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
