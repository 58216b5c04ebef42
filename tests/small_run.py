"""A run folder with random parameters, which takes no training."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

import jax

from jax_transformer.config import Config, override
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.parsing.ptb import parse_tree
from jax_transformer.parsing.treebank import label_vocabulary
from jax_transformer.runs.averages import save_average
from jax_transformer.runs.checkpoints import Checkpoints
from jax_transformer.runs.load import build_model, load_vocabularies
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.training.train_step import initial_params

SMALL = [
    *("model.num_layers=1", "model.d_model=16", "model.d_ff=16", "model.num_heads=2"),
    *("model.d_k=8", "model.d_v=8", "data.max_length=12", "decoding.max_extra_length=4"),
]
ORIGINALS = tempfile.TemporaryDirectory()
LINES = ["the old teacher gets up", "we know that it rains", "the pupil opens the door"] * 9


def write_run(
    path: Path,
    *settings: str,
    lines: list[str] = LINES,
    pieces: int = 60,
    vocabulary: bytes | None = None,
) -> Path:
    """A run folder with random parameters: checkpoints of steps 1 and 2, and an average."""
    return shutil.copytree(_written(settings, tuple(lines), pieces, vocabulary), path)


@cache
def _written(
    settings: tuple[str, ...], lines: tuple[str, ...], pieces: int, vocabulary: bytes | None
) -> Path:
    """A run folder that stays as it is until the process ends."""
    folder = RunFolder(tempfile.mkdtemp(dir=ORIGINALS.name))
    folder.write_run(Run("base", 1, override(Config(), *SMALL, *settings)))
    if vocabulary is None:
        train_vocabulary([*lines], pieces, folder.vocabulary, up_to=True)
    else:
        folder.vocabulary.write_bytes(vocabulary)
    tree = parse_tree("(TOP (S (NP (DT the) (NN door)) (VP (VBZ opens)) (. .)))")
    assert tree is not None
    files = [folder.vocabulary]
    if "data.task=parsing" in settings:
        folder.target_vocabulary.write_bytes(label_vocabulary([tree]).content)
        files.append(folder.target_vocabulary)
    for file in files:
        folder.manifest.add(file, file.read_bytes())
    folder.manifest.write()
    origin = folder.manifest.copy()
    model = build_model(folder.load_run(), *load_vocabularies(folder))
    init = jax.jit(lambda key: initial_params(model, key))
    params = [jax.device_get(init(jax.random.key(step))) for step in (1, 2, 3)]
    with Checkpoints(folder.checkpoints) as checkpoints:
        checkpoints.save(1, params[0], (), {}, origin)
        checkpoints.save(2, params[1], (), {}, origin)
    save_average(folder.averaged, params[2], [1, 2], origin)
    return folder.path
