"""The speed of the server under 1, 8 and 64 clients, beside whole files and CTranslate2.

python -m benchmarks.serving --workdir=runs/mine                 each client sends line after line
python -m benchmarks.serving --workdir=runs/mine --soak=100000   memory over many mixed requests

Both models answer behind the same server, in a process of its own; clients are another one. The
whole file is one call of `translate` in this process, beam and lines the same. All stop by the same
rule, decoding.patience=1. Of several --beam_size and --compute_type the last is taken.
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from benchmarks.measuring import FLAGS, header, run, table
from benchmarks.vs_ctranslate2 import CTranslate2, exportable, text
from experiments.shared_flags import run_folder
from jax_transformer.config import Config, override_free
from jax_transformer.decoding.line_search import Line, Translation
from jax_transformer.errors import InputError
from jax_transformer.formats.ctranslate2 import write_ctranslate2
from jax_transformer.runs.load import load
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runtime import split_cpu
from jax_transformer.serving import server
from jax_transformer.serving.app import make_app
from jax_transformer.serving.guard import Access, Limits
from jax_transformer.serving.service import Service

for _name in ("workdir", "checkpoint", "source", "lines", "beam_size", "compute_type"):
    flags.declare_key_flag(_name)
flags.DEFINE_multi_integer(
    "clients", [1, 8, 64], "Clients at once, each with its connection.", lower_bound=1
)
flags.DEFINE_float(
    "seconds", 20.0, "Time that each number of clients is measured.", lower_bound=0.1
)
flags.DEFINE_integer(
    "soak", None, "Send so many requests, and show the server's memory instead.", lower_bound=10
)
flags.DEFINE_enum("answers", None, ["jax", "ctranslate2"], "Be the server of one of them.")

COLUMNS = ["answers", "clients", "sentences/s", "of whole file", "p50 ms", "p95 ms", "a batch"]
SOAK = [  # what clients of the soak ask for, in turn
    {},
    {"n_best": 3},
    {"samples": 3, "temperature": 0.8},
    {"without": ["der"], "min_length": 3},
    {"alignments": True},
    {"token_scores": True},
]


class Peer(Service):
    """The service with CTranslate2 in place of the search."""

    def __init__(self, *arguments: Any, translate: Any) -> None:
        """Take a function from lines to their translations."""
        super().__init__(*arguments)

        def search(lines: Sequence[Line]) -> list[list[Translation]]:
            found = translate([line.text for line in lines])
            return [[Translation(text, 0.0, 0.0, 1)] for text in found]

        self.translator.search = search
        self.batcher._live = lambda kind: None


def main() -> None:
    """Measure, or be a server."""
    if FLAGS.answers:
        serve()
        return
    split_cpu()
    folder = run_folder()
    lines = [line for line in text(folder) if line.strip()]
    if FLAGS.soak:
        print(header("fastapi", "uvicorn"), flush=True)
        soak(lines)
        return
    model = exportable(folder)
    print(header("fastapi", "uvicorn", "ctranslate2"), flush=True)
    decoding = searched(model).decoding
    translator = model.translator(decoding)
    translator.batches = replace(translator.batches, compile_tokens=0)  # as after a long text
    translator.translate_lines(lines)
    whole = len(lines) / timed(lambda: translator.translate_lines(lines))
    one_by_one = lines[: max(len(lines) // 8, 1)]
    for _compiled in (False, True):
        times = [timed(lambda line=line: translator.translate_lines([line])) for line in one_by_one]
    rows = [
        ["jax, whole file", "", f"{whole:,.1f}", "1.00", "", "", ""],
        cells("jax, one by one in Python", 1, times, sum(times), whole, ""),
    ]
    for answers in ("jax", "ctranslate2"):
        with started(answers) as (_, port):
            for clients in FLAGS.clients:
                asyncio.run(ask(port, lines, clients, seconds=6.0))  # while it compiles too
                before = batches(port)
                began = time.perf_counter()
                times = asyncio.run(ask(port, lines, clients, seconds=FLAGS.seconds))
                took = time.perf_counter() - began
                items, count = (a - b for a, b in zip(batches(port), before, strict=True))
                name = answers if answers == "jax" else f"{answers} {FLAGS.compute_type[-1]}"
                rows.append(cells(name, clients, times, took, whole, f"{items / count:.1f}"))
    print(f"work        {len(lines)} lines, beam {decoding.beam_size}\n\n{table(COLUMNS, rows)}")


def searched(model: TrainedModel) -> Config:
    """Return the model's settings with the beam of the flag, and the rule by which both stop."""
    beam = f"decoding.beam_size={FLAGS.beam_size[-1]}"
    return override_free(model.config, beam, "decoding.patience=1")


def timed(call: Any) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def cells(
    name: str, clients: int, times: list[float], took: float, whole: float, batch: str
) -> list[str]:
    """Return a line of the table."""
    rate = len(times) / took
    p50, p95 = (f"{1000 * each:,.1f}" for each in np.percentile(times, [50, 95]))
    return [name, str(clients), f"{rate:,.1f}", f"{rate / whole:.2f}", p50, p95, batch]


@contextlib.contextmanager
def started(answers: str) -> Iterator[tuple[int, int]]:
    """Start a server; give the ids of its process and port."""
    own = [f"--{name}={FLAGS[name].value}" for name in ("workdir", "checkpoint")]
    own = [flag for flag in own if not flag.endswith("=None")]
    own += [f"--beam_size={FLAGS.beam_size[-1]}", f"--compute_type={FLAGS.compute_type[-1]}"]
    own += [f"--answers={answers}"]
    command = [sys.executable, "-m", "benchmarks.serving", *own]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if not (port := process.stdout.readline()):
                raise InputError(f"expected a server of {answers}, found that it ended: see above")
            yield process.pid, int(port)
        finally:
            process.terminate()


def serve() -> None:
    """Be a server, and print its port once it is ready."""
    split_cpu()
    model = load(FLAGS.workdir, FLAGS.checkpoint)
    config = searched(model)
    with tempfile.TemporaryDirectory() as folder:
        if FLAGS.answers == "jax":
            service = Service(model, config)
            for _ in service.warm_up():
                pass
            while service._live_for(1).busy:  # it compiles for more lines at once
                time.sleep(0.1)
        else:
            write_ctranslate2(model, Path(folder))
            peer, beam = CTranslate2(folder, model), config.decoding.beam_size
            translate, _ = peer.faster_layout(FLAGS.compute_type[-1], beam, ["a b"] * 64)
            service = Peer(model, config, translate=translate)
        where, limits = server.bind("127.0.0.1", 0), Limits(seconds=600)
        port = where.getsockname()[1]
        app = make_app(service, limits, Access())
        server.run(app, [where], limits, on_ready=lambda: print(port, flush=True))


async def ask(
    port: int, lines: list[str], clients: int, *, seconds: float = 1e9, requests: int = 10**9,
    options: list[dict[str, Any]] | None = None,
) -> list[float]:  # fmt: skip
    """Let clients send line after line; return the seconds of each request."""
    times, end = list[float](), time.perf_counter() + seconds
    numbers = iter(range(requests))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            began = time.perf_counter()
            if began > end:
                break
            line, own = lines[number % len(lines)], (options or [{}])
            request = {"lines": [line], **own[number // 7 % len(own)]}
            writer.write(post(json.dumps(request).encode()))
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            assert length, head
            body = await reader.readexactly(int(length[1]))
            if not head.startswith(b"HTTP/1.1 200 "):
                raise InputError(f"{request}: expected a translation, found {body.decode()}")
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def post(body: bytes) -> bytes:
    """Return an HTTP request."""
    head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def batches(port: int) -> tuple[float, float]:
    """Return the numbers of lines and of batches so far."""
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        found = answer.read().decode()
    names = "sum", "count"
    values = [re.search(rf"batch_lines_{name} (\S+)", found) for name in names]
    return tuple(float(value[1]) for value in values if value)  # type: ignore


def soak(lines: list[str]) -> None:
    """Send many requests of all kinds, and print the server's memory after each tenth."""
    part = FLAGS.soak // 10
    with started("jax") as (process, port):
        for count in range(part, FLAGS.soak + 1, part):
            seconds = timed(lambda: asyncio.run(ask(port, lines, 64, requests=part, options=SOAK)))
            time.sleep(1)  # until the server has closed the connections too
            status = Path(f"/proc/{process}/status").read_text()
            memory = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore
            files = len(os.listdir(f"/proc/{process}/fd"))
            print(
                f"soak        {count:,} requests, {part / seconds:,.0f} a second, "
                f"{memory:,.1f} MiB, {files} files open",
                flush=True,
            )


if __name__ == "__main__":
    run(main)
