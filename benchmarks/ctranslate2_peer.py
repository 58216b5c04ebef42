"""CTranslate2's turn: random sources, or lines of text in and out.

python -m benchmarks.ctranslate2_peer SETTINGS < source > translations

SETTINGS is JSON: the arguments of `Peer`, and the path of the vocabulary.
Only CTranslate2 and sentencepiece are loaded.
"""

import json
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece

from benchmarks.contender import Prepared, RefusalError

TRIAL_LINES = 64  # translated once in each layout of threads to choose one
WINDOW = 2000  # lines held at a time, as ours
SPACE = "\u2581"  # sentencepiece's sign for one


class Peer:
    """A CTranslate2 model with the decoding settings of a comparison."""

    def __init__(
        self,
        model: str,
        compute_type: str,
        threads: int,
        options: dict[str, Any],
        workers: int = 1,
        device: str = "cpu",
    ) -> None:
        """options: of translate_batch; threads: of all cores, to be laid out by `choose`.

        Raises RefusalError where it has no such device; "cuda" is a GPU.
        """
        if device == "cuda" and not ctranslate2.get_cuda_device_count():
            raise RefusalError(
                "expected CTranslate2 to find the GPU that JAX takes, found none; install its CUDA "
                "libraries, or keep all on the CPU with JAX_PLATFORMS=cpu"
            )
        self._model, self._type, self._threads = model, compute_type, threads
        self._device = device
        self.options = options
        self.take_layout(workers)

    def take_layout(self, workers: int) -> None:
        """So many workers share the threads."""
        self.workers = workers
        self.translator: Any = None  # gone before the next one comes, for the peak of memory
        self.translator = ctranslate2.Translator(
            self._model,
            device=self._device,
            compute_type=self._type,
            inter_threads=workers,
            intra_threads=max(self._threads // workers, 1),
        )

    def choose(self, sources: Sequence[list[str]]) -> str:
        """Take the faster of one worker with all threads, and workers of one thread; says which."""
        if self._device == "cuda":
            return f"1 worker on {self._device}"
        found = {}
        for workers in sorted({1, self._threads}):
            self.take_layout(workers)
            self.translate(sources)
            start = time.perf_counter()
            self.translate(sources)
            found[workers] = time.perf_counter() - start
        best = min(found, key=lambda workers: found[workers])
        self.take_layout(best)
        trials = ", ".join(f"{workers} {1000 * taken:,.0f}" for workers, taken in found.items())
        return f"{best} workers (ms for {len(sources)} sentences: {trials})"

    def translate(self, sources: Sequence[list[str]]) -> list[list[str]]:
        """The best output in pieces of each source in pieces; batches are shared by the workers."""
        share = -(-len(sources) // self.workers)
        options = {"max_batch_size": share} | self.options
        results = self.translator.translate_batch(list(sources), **options)
        return [result.hypotheses[0] for result in results]

    def log_probabilities(
        self, sources: Sequence[list[str]], targets: Sequence[list[str]]
    ) -> list[float]:
        """log P of each target with its EOS, in nats."""
        scored = self.translator.score_batch(list(sources), list(targets))
        return [sum(result.log_probs) for result in scored]


def prepare_random(
    folder: str,
    compute_type: str,
    threads: int,
    options: dict[str, Any],
    scored: int,
    calls: int,
    device: str = "cpu",
) -> Prepared:
    """Sources of sources.json; "scores" among the facts: log P of the first `scored` ones as
    translations of themselves. A turn gives the lengths of all outputs."""
    sources = json.loads((Path(folder) / "sources.json").read_text(encoding="utf-8"))
    peer = Peer(str(Path(folder) / "model"), compute_type, threads, options, device=device)
    scores = peer.log_probabilities(sources[:scored], sources[:scored])
    about = peer.choose(sources)

    def take_turn() -> list[int]:
        found = [peer.translate(sources) for _ in range(calls)][-1]
        return [len(output) for output in found]

    return Prepared(take_turn, calls, {"scores": scores, "about": about})


class Pieces:
    """Text to pieces and back, as ours: blank lines are not translated."""

    def __init__(self, vocabulary: str) -> None:
        """vocabulary: the path of the run's sentencepiece model."""
        self._processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary)

    def translate(self, peer: Peer, lines: Sequence[str]) -> list[str]:
        """A line for each line."""
        plain = [line.replace("\r", " ").replace(SPACE, " ") for line in lines]
        sources = self._processor.encode(plain, out_type=str)
        places = [i for i, source in enumerate(sources) if source]
        outputs = peer.translate([sources[i] for i in places])
        texts = [""] * len(lines)
        for place, text in zip(places, self._processor.decode(outputs), strict=True):
            texts[place] = text
        return texts


def prepare_lines(
    model: str,
    vocabulary: str,
    source: str,
    compute_type: str,
    threads: int,
    options: dict[str, Any],
    device: str = "cpu",
) -> Prepared:
    """Text of the file `source`, a line a sentence; a turn gives the translations."""
    lines = Path(source).read_bytes().decode("utf-8").split("\n")[:-1]
    peer = Peer(model, compute_type, threads, options, device=device)
    pieces = Pieces(vocabulary)
    processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
    about = peer.choose([s for s in processor.encode(lines[:TRIAL_LINES], out_type=str) if s])
    return Prepared(lambda: pieces.translate(peer, lines), facts={"about": about})


def main() -> None:
    """Stream: read a window, translate it, write it."""
    settings = json.loads(sys.argv[1])
    pieces, workers = Pieces(settings.pop("vocabulary")), settings.pop("workers")
    try:
        peer = Peer(**settings, workers=workers)
    except RefusalError as error:
        sys.exit(f"ctranslate2: {error}")
    while held := list(islice(sys.stdin.buffer, WINDOW)):
        lines = [line.decode("utf-8").removesuffix("\n") for line in held]
        texts = pieces.translate(peer, lines)
        sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())


if __name__ == "__main__":
    main()
