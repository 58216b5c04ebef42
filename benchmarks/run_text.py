"""What runs and CTranslate2 are compared on: who takes part, which text, with which settings."""

from importlib.util import find_spec
from itertools import cycle, islice
from typing import Any

from jax_transformer.config import Config
from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.export.arrays import inexpressible
from jax_transformer.runs.run_dir import Run, RunFolder

PEERS = ["jax", "ctranslate2", "ctranslate2-int8"]
COMPUTE_TYPES = {"ctranslate2": "float32", "ctranslate2-int8": "int8"}
BATCH_TOKENS = 4096  # source tokens of a batch of CTranslate2's, as many as of ours


def need_ctranslate2() -> None:
    """Raises InputError where there is nothing to compare with."""
    if find_spec("ctranslate2") is None:
        raise InputError(
            "expected CTranslate2 to compare with, found none; pip install -e '.[bench]'"
        )


def comparable_run(folder: RunFolder) -> Run:
    """The run of a folder. InputError where CTranslate2 cannot be its model."""
    run = folder.need_run()
    if run.config.data.task == "parsing":
        raise InputError(
            f"{folder.path}: expected a run that translates, found one that parses; name another"
        )
    reason = inexpressible(run.config.model)
    if reason:
        raise InputError(f"{folder.path}: {reason}; name another run to compare with CTranslate2")
    return run


def run_lines(folder: RunFolder, count: int, source: str | None = None) -> list[str]:
    """`count` lines of the file `source`, or of the run's test text, or of its dev text.

    A text that is shorter is taken again and again. InputError where there is none.
    """
    if source is None:
        paths = [folder.text(split, "source") for split in ("test", "dev")]
        there = [path for path in paths if path.exists()]
        if not there:
            raise InputError(
                f"{folder.path}: expected the run's test or dev text, found none; give --source"
            )
        source = str(there[0])
    return list(islice(cycle(read_lines(source)), count))


def peer_options(beam_size: int, alpha: float) -> dict[str, Any]:
    """translate_batch's, as near to our search as it has them: its penalty is length^alpha."""
    return {"beam_size": beam_size, "length_penalty": alpha, "max_input_length": 0}


def run_options(config: Config, beam_size: int) -> dict[str, Any]:
    """The same for text; its limit to lengths is one for all, ours is each source's own."""
    longest = config.data.max_length + config.decoding.max_extra_length
    return peer_options(beam_size, config.decoding.alpha) | {
        "max_input_length": config.data.max_length,
        "max_decoding_length": longest,
        "batch_type": "tokens",
        "max_batch_size": BATCH_TOKENS,
    }
