"""The options and variables of a CTranslate2 model that our model has a place for."""

import re
from pathlib import Path

import msgspec
import numpy as np

from jax_transformer.errors import InputError
from jax_transformer.files import parse_json, read_bytes
from jax_transformer.formats.arrays import Arrays
from jax_transformer.formats.ctranslate2_file import ModelFile

STACKS = ("encoder", "decoder")

# The variables that our model has a place for. Any other is refused.
_LINEAR = "(weight|bias)"
_NORM = "layer_norm/(gamma|beta)"
_KNOWN = re.compile(
    "(en|de)coder/(num_heads|pre_norm|activation|scale_embeddings|position_encodings/encodings"
    f"|{_NORM}"
    "|layer_[0-9]{1,4}/"
    f"(self_attention/(linear_[01]/{_LINEAR}|{_NORM})"
    f"|ffn/(linear_[01]/{_LINEAR}|{_NORM})))"
    "|decoder/layer_[0-9]{1,4}/attention/"
    f"(linear_[012]/{_LINEAR}|{_NORM})"
    f"|encoder/embeddings_0/weight|decoder/embeddings/weight|decoder/projection/{_LINEAR}"
    "|decoder/start_from_zero_embedding"
)
# Options that must be off, and settings of nothing that our model does.
_OFF = ["encoder/multi_query_attention", "decoder/alibi", "decoder/scale_alibi"]
_IGNORED = [
    "encoder/embeddings_merge",
    "decoder/alibi_use_positive_positions",
    "decoder/alignment_layer",
    "decoder/alignment_heads",
]


# Settings among the variables of files before version 6.
_OLD_SETTINGS = [
    *("unk_token", "bos_token", "eos_token", "with_source_bos", "with_source_eos"),
    *("with_target_bos", "user_decoder_start_tokens"),
]


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """The content of config.json."""

    unk_token: str
    bos_token: str | None
    eos_token: str
    decoder_start_token: str | None
    add_source_bos: bool
    add_source_eos: bool
    layer_norm_epsilon: float | None = None
    multi_query_attention: bool = False


class Variables:
    """The variables of a model.bin that are not yet used."""

    def __init__(self, file: ModelFile, path: Path):
        self.path, self.left = path, _modern_names(file)
        for name in _IGNORED:
            self.left.pop(name, None)
        for name in _OFF:
            if self.number(name, 0):
                raise self.refused(f"{name}=true")
        for name in self.left:
            if not _KNOWN.fullmatch(name):
                raise self.refused(name)

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Return a variable of this shape; -1 is any length."""
        if name not in self.left:
            rms = " (an RMS norm has gamma alone, and cannot be expressed)" * name.endswith("beta")
            raise InputError(f"{self.path}: expected the variable {name}, found none{rms}")
        array = self.left.pop(name)
        if array.ndim != len(shape) or any(
            n not in (-1, m) for n, m in zip(shape, array.shape, strict=True)
        ):
            wanted = ", ".join("any" if n == -1 else str(n) for n in shape)
            raise InputError(
                f"{self.path}: expected {name} of shape [{wanted}], found {list(array.shape)}"
            )
        if array.dtype != np.float32:
            raise InputError(f"{self.path}: expected numbers or a scale for {name}, found neither")
        return array

    def optional(self, name: str, *shape: int) -> np.ndarray | None:
        """Return the variable, or None if there is none."""
        return self.take(name, *shape) if name in self.left else None

    def number(self, name: str, default: float) -> float:
        """Return a variable of one number."""
        array = self.left.pop(name, np.array(default))
        if array.size != 1:
            raise InputError(f"{self.path}: expected one number as {name}, found {array.size:,}")
        return array.item()

    def of_both(self, name: str, default: int) -> int:
        """Return an option of encoder and decoder, which must agree."""
        encoder, decoder = (self.number(f"{stack}/{name}", default) for stack in STACKS)
        if encoder != decoder:
            raise InputError(
                f"{self.path}: expected the same {name} in encoder and decoder, found {encoder:g} "
                f"and {decoder:g}; our stacks share it"
            )
        return int(encoder)

    def layers(self, stack: str) -> int:
        """Return the number of layers."""
        pattern = re.compile(f"{stack}/layer_([0-9]{{1,4}})/")
        numbers = {int(found[1]) for name in self.left if (found := pattern.match(name))}
        if not numbers or numbers != set(range(len(numbers))):
            raise InputError(
                f"{self.path}: expected layers 0, 1, ... of the {stack}, found "
                f"{sorted(numbers)[:9]}"
            )
        return len(numbers)

    def refused(self, name: str) -> InputError:
        """Return the error for an option that our model does not have."""
        return InputError(
            f"{self.path}: expected a model that our settings express (post-norm or pre-norm, "
            f"absolute positions), found {name!r}; nothing of ours stands for it"
        )


def read_settings(folder: Path, file: ModelFile) -> Settings:
    """Return the content of config.json, which files before version 6 have among the variables.

    Raises InputError for an unknown setting, and for a target whose start the user must give.
    """
    if file.version < 6:
        settings = _old_settings(file)
    else:
        path = folder / "config.json"
        try:
            settings = parse_json(read_bytes(path), Settings)
        except OSError as error:
            raise InputError(
                f"{path}: expected the settings of the model, found '{error.strerror}'; copy the "
                "whole folder"
            ) from None
        except ValueError as error:
            raise InputError(
                f"{path}: expected settings that ours express, found: {error}; convert the model "
                "again, without what is named here"
            ) from None
    start = settings.decoder_start_token
    for wrong, found in [
        (settings.add_source_bos, "add_source_bos=true: a source that begins with a mark"),
        (settings.multi_query_attention, "multi_query_attention=true"),
        (start is None, "no decoder_start_token: a target whose first token the user gives"),
    ]:
        if wrong:
            raise InputError(f"{folder}: found {found}; nothing of ours stands for it")
    return settings


def _old_settings(file: ModelFile) -> Settings:
    def flag(name: str, default: bool) -> bool:
        return bool(file.variables.get(name, np.array(default)).any())

    def text(name: str, default: str) -> str:
        stored = file.variables.get(name)
        return stored.tobytes().decode("utf-8", "replace") if stored is not None else default

    bos, eos = text("bos_token", "<s>"), text("eos_token", "</s>")
    start = bos if flag("with_target_bos", True) else eos
    return Settings(
        unk_token=text("unk_token", "<unk>"),
        bos_token=bos,
        eos_token=eos,
        decoder_start_token=None if flag("user_decoder_start_tokens", False) else start,
        add_source_bos=flag("with_source_bos", False),
        add_source_eos=flag("with_source_eos", False),
    )


def _modern_names(file: ModelFile) -> Arrays:
    """Return the variables by the names of the newest revision."""
    result = dict(file.variables)
    if file.version < 6:
        for name in _OLD_SETTINGS:
            result.pop(name, None)
    if file.revision < 5:
        for name in [name for name in result if "/" not in name]:
            array = result.pop(name)
            for stack in STACKS:
                result.setdefault(f"{stack}/{name}", array)
        result.pop("encoder/alignment_layer", None)
        result.pop("encoder/alignment_heads", None)
        result.pop("decoder/embeddings_merge", None)
    for stack, there in (("encoder", "embeddings_0"), ("decoder", "embeddings")):
        if (scale := result.pop(f"{stack}/embeddings/multiply_by_sqrt_depth", None)) is not None:
            result.setdefault(f"{stack}/scale_embeddings", scale)
        if (matrix := result.pop(f"{stack}/embeddings/weight", None)) is not None:
            result[f"{stack}/{there}/weight"] = matrix
    return result
