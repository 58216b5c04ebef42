"""Our turn at decoding beside CTranslate2: random sources, or lines of text in and out."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from benchmarks.contender import Prepared
from benchmarks.decode import translate_in_steps
from benchmarks.measuring import BOS_ID, EOS_ID, PAD_ID, SHAPES, device_memory
from benchmarks.training_work import read_params
from jax_transformer.config import DecodingConfig
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices
from jax_transformer.runs.loading import open_translator, restore
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime.cpu import keep_freed_memory


def prepare_random(
    folder: str, shape: str, steps: int, decoding: dict, scored: int, calls: int
) -> Prepared:
    """Sources of work.npz, outputs of `steps` tokens; decoding: DecodingConfig's settings.

    "scores" among the facts: log P of the first `scored` sources as translations of
    themselves, EOS included. A turn gives the lengths of all outputs.
    """
    keep_freed_memory()
    path = str(Path(folder) / "work.npz")
    model = Transformer(SHAPES[shape].model, SHAPES[shape].vocabulary_size, PAD_ID)
    with np.load(path) as work:
        source = work["source"]
    devices = Devices(1)
    params = devices.replicate(read_params(path, model))
    pairs = source[:scored]
    score = jax.jit(
        lambda params, rows: log_probabilities(model, params, rows, rows, bos_id=BOS_ID)
    )
    scores = np.asarray(score(params, pairs)).sum(axis=1).tolist()
    settings = DecodingConfig(**decoding)
    search = devices.map_rows(
        lambda params, rows: translate_in_steps(model, params, rows, settings, steps)
    )

    def take_turn() -> list[int]:
        found = [search(params, source) for _ in range(calls)][-1]
        # Up to EOS: with random weights PAD may be one of the words.
        return ((found.tokens[:, 0] == EOS_ID).argmax(axis=-1) + 1).tolist()

    facts = {"scores": scores, "about": devices.describe()}
    return Prepared(take_turn, calls, facts, device_memory)


def prepare_lines(workdir: str, checkpoint: str | None, source: str, beam_size: int) -> Prepared:
    """Text of the file `source` by the run's own translator; a turn gives the translations."""
    keep_freed_memory()
    trained = restore(RunFolder(workdir), checkpoint)
    config = trained.run.config
    translator = open_translator(
        config,
        trained.model,
        trained.params,
        trained.vocabulary,
        trained.symbols,
        replace(config.decoding, beam_size=beam_size),
        devices=Devices(1),
        scores=False,
    )
    lines = Path(source).read_bytes().decode("utf-8").split("\n")[:-1]

    def take_turn() -> list[str]:
        found = translator.translate_lines(lines, _nobody)
        return [each[0].text if each else "" for each in found]

    facts = {"about": translator.devices.describe()}
    return Prepared(take_turn, facts=facts, memory=device_memory)


def _nobody(_: str) -> None:
    """Warnings are for users of translations; these are only counted."""
