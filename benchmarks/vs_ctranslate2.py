"""The speed of translating a text compared with CTranslate2: one model, in alternating trials.

python -m benchmarks.vs_ctranslate2 --workdir=runs/mine                the run's test text
python -m benchmarks.vs_ctranslate2 --workdir=runs/mine --beam_size=1 --source=more.en

Text in, text out, pieces and batches included, without loading the model; the first call, which
compiles, is a column of its own. Before any timing log P of the same sentences must agree. Both
stop by the same rule, decoding.patience=1, and use the device that JAX uses; JAX_PLATFORMS=cpu
keeps them on the CPU. On a GPU, train with model.compute_dtype=bfloat16 and compare with
--compute_type=float16.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Both hold their models on the same GPU, so JAX must not take all of its memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np
import sentencepiece
from absl import flags

from benchmarks.measuring import (
    FLAGS,
    define_trials,
    header,
    on_gpu,
    run,
    table,
    time_alternating,
    time_call,
)
from experiments.shared_flags import run_folder
from jax_transformer.data.text import read_lines
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.errors import InputError
from jax_transformer.formats import check_exportable
from jax_transformer.formats.ctranslate2 import write_ctranslate2
from jax_transformer.parallel import Devices
from jax_transformer.runs.load import load
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime import cores, split_cpu

define_trials()
flags.DEFINE_string("workdir", None, "The run folder.")
flags.DEFINE_string(
    "checkpoint", None, "averaged, last or the step of one (default: averaged if it is there)."
)
flags.DEFINE_string("source", None, "The text (default: the run's test text, or dev).")
flags.DEFINE_integer("lines", 1000, "At most this many lines of it.", lower_bound=1)
flags.DEFINE_multi_integer(
    "beam_size", [1, 4], "Hypotheses in the search; 1 is greedy", lower_bound=1
)
flags.DEFINE_multi_string(
    "compute_type", ["float32", "int8"], "Numbers that CTranslate2 computes with, as it calls them"
)

Translate = Callable[[list[str]], list[str]]

COLUMNS = ["translator", "beam", "sentences/s", "speed", "seconds", "range", "same", "first s"]


def main() -> None:
    """Measure each beam, and print the table."""
    split_cpu()
    folder = run_folder()
    model, lines = exportable(folder), text(folder)
    print(header("ctranslate2"), flush=True)
    with tempfile.TemporaryDirectory() as name:
        write_ctranslate2(model, Path(name))
        peer = CTranslate2(name, model)
        check_scores(model, peer, lines[:8])
        rows = [cells for beam in FLAGS.beam_size for cells in compare(model, peer, beam, lines)]
    print(f"work        {len(lines)} lines, in and out")
    print(f"timing      median and range of {FLAGS.trials} trials")
    print("speed       relative to jax, 1.00; higher is faster")
    print("same        lines equal to ours; the two length penalties differ, and int8 rounds")
    print(f"\n{table(COLUMNS, rows)}")


def exportable(folder: RunFolder) -> TrainedModel:
    """Return the run's model. Raises InputError if CTranslate2 is missing, or cannot have it."""
    if find_spec("ctranslate2") is None:
        raise InputError("expected CTranslate2, found none; install it: pip install -e '.[export]'")
    check_exportable(folder.load_run().config, "ctranslate2")
    model = load(folder.path, FLAGS.checkpoint)
    for vocabulary in (model.vocabulary, model.target_vocabulary):
        if not isinstance(vocabulary, SentencePieceVocabulary):
            raise InputError(
                f"{folder.path}: expected vocabularies of sentencepiece alone, with which text is "
                f"cut for CTranslate2 here, found {vocabulary!r}; give another run"
            )
    return model


def text(folder: RunFolder) -> list[str]:
    """Return the first --lines lines of --source, or of the run's test or dev text."""
    paths = [folder.text(split, "source") for split in ("test", "dev")]
    path = FLAGS.source or next((str(path) for path in paths if path.exists()), None)
    if path is None:
        raise InputError(f"{folder.path}: expected test or dev text, found none; give --source")
    return list(read_lines(path))[: FLAGS.lines]


def compare(
    model: TrainedModel, peer: "CTranslate2", beam: int, lines: list[str]
) -> list[list[str]]:
    """Return the table's line for each translator; each translates all lines in every trial."""
    outputs: dict[str, list[str]] = {}
    # CTranslate2 ends a search once as many hypotheses as the beam have ended.
    decoding = replace(model.config.decoding, beam_size=beam, patience=1.0)
    one = Devices(1, model.config.model.compute_dtype) if on_gpu() else None  # as CTranslate2
    translator = model.translator(decoding, devices=one)
    translator.batches = replace(translator.batches, compile_tokens=0)  # as after a long text

    def ours() -> None:
        found = translator.translate_lines(lines)
        outputs["jax"] = [each[0].text if each else "" for each in found]

    calls = {"jax": ours}
    for compute_type in FLAGS.compute_type:
        name = f"ctranslate2 {compute_type}"
        translate, workers = peer.faster_layout(compute_type, beam, lines)
        name += "" if on_gpu() else f", {workers} workers"

        def theirs(name: str = name, translate: Translate = translate) -> None:
            outputs[name] = translate(lines)

        calls[name] = theirs
    timings = time_alternating(calls, FLAGS.trials)
    rows = []
    for name, timing in timings.items():
        same = np.mean([a == b for a, b in zip(outputs["jax"], outputs[name], strict=True)])
        low, high = min(timing.seconds), max(timing.seconds)
        cells = [
            f"{len(lines) / timing.median:,.1f}",
            f"{timings['jax'].median / timing.median:.2f}",
            f"{timing.median:,.2f}",
            f"{low:,.2f} - {high:,.2f}",
            f"{same:.1%}",
            f"{timing.compile_seconds:.1f}",
        ]
        rows.append([name, str(beam), *cells])
    return rows


def check_scores(model: TrainedModel, peer: "CTranslate2", lines: list[str]) -> None:
    """Raise InputError if log P of lines as translations of themselves differs between both."""
    lines = [line for line in lines if line.strip()]
    # Theirs is float32. Ours may round to 16 bits.
    tolerance = {"float32": 1e-4, "bfloat16": 1e-2}[model.config.model.compute_dtype]
    expected = model.score(lines, lines)
    for ours, theirs in zip(expected, peer.score(lines), strict=True):
        if abs(ours - theirs) > tolerance * abs(ours):
            raise InputError(
                f"expected the same log P of the same sentence, found {ours:.4f} by jax and "
                f"{theirs:.4f} by CTranslate2; report this as a fault"
            )


class CTranslate2:
    """The same model in CTranslate2, with the text handling that an application adds to it."""

    def __init__(self, folder: str, model: TrainedModel) -> None:
        """Take the export of the model in `folder`.

        Raises InputError if JAX uses a GPU that CTranslate2 does not find, or for a compute type
        that CTranslate2 lacks.
        """
        import ctranslate2

        if on_gpu() and not ctranslate2.get_cuda_device_count():
            raise InputError(
                "expected CTranslate2 to find the GPU that JAX uses, found none; install its CUDA "
                "libraries, or set JAX_PLATFORMS=cpu"
            )
        known = ctranslate2.get_supported_compute_types("cuda" if on_gpu() else "cpu")
        if wrong := [name for name in FLAGS.compute_type if name not in known]:
            raise InputError(
                f"--compute_type={wrong[0]}: expected one that CTranslate2 has for this device, of "
                f"{', '.join(sorted(known))}"
            )
        self._folder = folder
        self._source, self._target = (
            sentencepiece.SentencePieceProcessor(model_proto=vocabulary.sentencepiece)
            for vocabulary in (model.vocabulary, model.target_vocabulary)
        )
        config = model.config
        self._most = config.data.max_length - 1
        self._options = {
            "length_penalty": config.decoding.alpha,
            "max_input_length": config.data.max_length,
            "max_decoding_length": config.data.max_length + config.decoding.max_extra_length,
            "batch_type": "tokens",
            "max_batch_size": config.decoding.batch_tokens,
        }

    def score(self, lines: list[str]) -> list[float]:
        """Return log P of each line as a translation of itself, with its end, in nats."""
        sources = [line[: self._most] for line in self._source.encode(lines, out_type=str)]
        targets = self._target.encode(lines, out_type=str)
        scored = self._model("float32", 1).score_batch(sources, targets)
        return [sum(result.log_probs) for result in scored]

    def faster_layout(
        self, compute_type: str, beam: int, lines: list[str]
    ) -> tuple[Translate, int]:
        """Choose one worker with all threads or one worker a core; return it and its workers."""
        found = {}
        for workers in {1} if on_gpu() else sorted({1, cores()}):
            translate = self._translating(compute_type, beam, workers)
            found[workers] = time_call(lambda translate=translate: translate(lines), 3).median
        workers = min(found, key=lambda workers: found[workers])
        return self._translating(compute_type, beam, workers), workers

    def _translating(self, compute_type: str, beam: int, workers: int) -> Translate:
        model = self._model(compute_type, workers)

        def translate(lines: list[str]) -> list[str]:
            sources = self._source.encode(lines, out_type=str)
            numbers = [number for number, source in enumerate(sources) if source]
            found = model.translate_batch(
                [sources[number] for number in numbers], beam_size=beam, **self._options
            )
            texts = [""] * len(lines)
            for number, result in zip(numbers, found, strict=True):
                texts[number] = self._target.decode(result.hypotheses[0])
            return texts

        return translate

    def _model(self, compute_type: str, workers: int) -> Any:
        import ctranslate2

        return ctranslate2.Translator(
            self._folder,
            device="cuda" if on_gpu() else "cpu",
            compute_type=compute_type,
            inter_threads=workers,
            intra_threads=max(cores() // workers, 1),
        )


if __name__ == "__main__":
    run(main)
