"""What a run of experiments.train is compared on: its test text, and settings for CTranslate2."""

from importlib.util import find_spec
from itertools import cycle, islice
from typing import Any

from jax_transformer.config import Config
from jax_transformer.corpus import read_lines
from jax_transformer.errors import InputError
from jax_transformer.run_folder import RunFolder

BATCH_TOKENS = 4096  # source tokens of a batch of CTranslate2's, as many as of ours


def need_ctranslate2() -> None:
    """Raises InputError where there is nothing to compare with."""
    if find_spec("ctranslate2") is None:
        raise InputError(
            "expected CTranslate2 to compare with, found none; pip install 'jax-transformer[bench]'"
        )


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
