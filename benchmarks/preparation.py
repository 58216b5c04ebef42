"""How fast and in how much memory text becomes batches, shown on generated pairs.

python -m benchmarks.preparation                    200,000 pairs
python -m benchmarks.preparation --pairs=5000000 --folder=/a/disk/with/10/GB

Writes pairs of words with Zipf's frequencies and lengths as of newspaper sentences, runs
experiments.prepare on them as a person would, then reads the store as training does: open
it, plan an epoch, and put batches together.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from benchmarks.measuring import header, table
from experiments.cli import FLAGS, open_door
from jax_transformer.errors import InputError

WORDS = 1_000_000  # of each language
CHUNK = 50_000  # pairs written together
DEV = 2_000
SETTINGS = [
    "--set=data.vocabulary_up_to=true",
    "--set=data.unescape_html=true",
    "--set=data.max_length_ratio=4",
]


def define_flags() -> None:
    """This benchmark's flags."""
    flags.DEFINE_integer("pairs", 200_000, "Pairs to generate.", lower_bound=1_000)
    flags.DEFINE_integer("batches", 2_000, "Batches to put together.", lower_bound=1)
    flags.DEFINE_string(
        "folder", None, "Where to write, and to remove it again (default: a temporary folder)."
    )
    flags.DEFINE_multi_string("set", [], "Change a setting of the base experiment.")


def main() -> int:
    """Generate, prepare, read, and print a table."""
    print(header(), flush=True)
    if FLAGS.folder and Path(FLAGS.folder).exists():
        raise InputError(f"--folder={FLAGS.folder}: expected a name that is free, found a folder")
    folder = Path(FLAGS.folder or tempfile.mkdtemp(prefix="preparation"))
    try:
        _measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _measure(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    _alone(generate, folder, "train", FLAGS.pairs, 1)
    _alone(generate, folder, "dev", DEV, 2)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(
        f"text        {FLAGS.pairs:,} pairs, {size / 1e6:,.0f} MB, written in "
        f"{time.monotonic() - start:,.0f} s\n",
        flush=True,
    )
    phases = prepare(folder)
    rows = []
    for (name, begin), (_, end) in pairwise(phases):
        wall, cpu = end["wall"] - begin["wall"], end["cpu"] - begin["cpu"]
        speed = f"{FLAGS.pairs / wall:,.0f}" if wall else "-"
        busy, each = f"{cpu / wall:.2f}", f"{cpu / FLAGS.pairs * 1e6:,.1f}"
        rows.append([name, f"{wall:,.1f}", speed, busy, each, f"{end['peak']:,.0f}"])
    columns = ["phase", "seconds", "pairs/s", "cores busy", "CPU us/pair", "peak memory MB"]
    print("\n" + table(columns, rows) + "\n", flush=True)
    for line in _alone(read, folder / "run", FLAGS.batches):
        print(line, flush=True)


def generate(folder: Path, split: str, pairs: int, seed: int) -> None:
    """Write `pairs` lines of each side."""
    random = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / np.arange(1, WORDS + 1))
    words = [_words(seed=language) for language in range(2)]
    with (folder / f"{split}.en").open("w") as source, (folder / f"{split}.de").open("w") as target:
        for first in range(0, pairs, CHUNK):
            count = min(CHUNK, pairs - first)
            length = random.lognormal(3.0, 0.65, count)
            for file, known in zip((source, target), words, strict=True):
                lengths = (length * random.uniform(0.8, 1.25, count)).astype(int)  # few are 0
                place = random.random(int(lengths.sum())) * cumulative[-1]
                chosen = known[np.searchsorted(cumulative, place)].tolist()
                ends = np.cumsum(lengths).tolist()
                starts = [0, *ends[:-1]]
                file.writelines(
                    " ".join(chosen[start:end]) + "\n"
                    for start, end in zip(starts, ends, strict=True)
                )


def _words(seed: int) -> np.ndarray:
    """Words of one to four syllables, the frequent ones short; an entity now and then."""
    random = np.random.default_rng(seed)
    onsets, nuclei = ["b", "d", "f", "g", "k", "l", "m", "n", "r", "st"], ["a", "e", "i", "\u00f6"]
    syllables = [a + b for a in onsets for b in nuclei]
    random.shuffle(syllables)
    base, words, level = len(syllables), [], [""]
    while len(words) < WORDS:
        level = [start + syllable for start in level for syllable in syllables]
        words += level
        assert len(level) <= base**4
    words[300] = "&amp;"
    return np.array(words[:WORDS], dtype=object)


def prepare(folder: Path) -> list[tuple[str, dict[str, float]]]:
    """Run the door; (name of the phase that begins, what it had used by then) and the end."""
    texts = [
        f"--{split}_{side}={folder / split}.{ending}"
        for split in ("train", "dev")
        for side, ending in (("source", "en"), ("target", "de"))
    ]
    run = f"--workdir={folder / 'run'}"
    own = [f"--set={assignment}" for assignment in FLAGS.set]
    command = [sys.executable, "-m", "experiments.prepare", "--experiment=base", run]
    begin = time.monotonic()
    phases = []
    names = {"vocabulary  learning": "sample, learn", "tokens      encoding train": "encode"}
    names |= {"prepare ": "digests, counts", "tokens      encoding dev": "dev", "prepared": "end"}
    with subprocess.Popen(
        [*command, *texts, *SETTINGS, *own],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as door:
        assert door.stdout
        for line in door.stdout:
            print(line, end="", flush=True)
            for start, name in names.items():
                if line.startswith(start):
                    phases.append((name, {"wall": time.monotonic() - begin, **_used(door.pid)}))
    if door.returncode:
        raise InputError("expected to prepare the text, found the error above; mend it")
    return phases


def _used(process: int | str) -> dict[str, float]:
    """CPU seconds of a process, and in MB its memory: at most, now, and now without files."""
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{process}/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    memory = {
        name: int(status[key].split()[0]) / 1000
        for name, key in (("peak", "VmHWM"), ("now", "VmRSS"), ("own", "RssAnon"))
    }
    return {"cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), **memory}


def read(folder: Path, batches: int) -> list[str]:
    """Lines on opening the store, planning an epoch, and putting batches together."""
    from jax_transformer.data.batching import assign_shapes, batch_arrays, plan_epoch
    from jax_transformer.data.bucketing import learn_shapes
    from jax_transformer.data.token_store import open_store
    from jax_transformer.runs.run_dir import RunFolder

    lines, start = [], [time.perf_counter()]

    def tell(what: str) -> None:
        seconds, used = time.perf_counter() - start[0], _used("self")
        lines.append(
            f"{what:<28} {seconds:8.2f} s   memory {used['now']:,.0f} MB, without mapped files "
            f"{used['own']:,.0f}, at most {used['peak']:,.0f}"
        )
        start[0] = time.perf_counter()

    tell("before")
    store = open_store(RunFolder(folder).tokens("train"))
    tell("open the store")
    source, target = store.lengths("source"), store.lengths("target")
    shapes = learn_shapes(source, target, most=23, batch_tokens=25_000, multiple=8)
    tell("learn 23 shapes")
    assigned = assign_shapes(source, target, shapes)
    del source, target
    tell("assign them")
    plan = plan_epoch(assigned, shapes, shuffle=(1, 0))
    tell(f"plan {len(plan):,} batches")
    tokens = 0
    count = min(batches, len(plan))
    for index in range(count):
        arrays = batch_arrays(store, plan, index, shapes, 0)
        tokens += sum(np.count_nonzero(array) for array in arrays)
    seconds = time.perf_counter() - start[0]
    tell(f"make {count:,} batches")
    lines.append(
        f"{count / seconds:,.0f} batches/s, {tokens / seconds:,.0f} tokens/s without padding"
    )
    return lines


def _alone(function: Any, *arguments: Any) -> Any:
    """Called in a process of its own, so that its memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


if __name__ == "__main__":
    open_door(define_flags, main, __doc__)
