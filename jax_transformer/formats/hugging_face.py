"""Hugging Face's folders: settings in JSON, and weights in two kinds of files."""

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jax_transformer.errors import InputError, shown
from jax_transformer.files import read_bytes, read_json
from jax_transformer.formats.imported import check_options, is_file_name, require
from jax_transformer.formats.layout import Arrays, leaves
from jax_transformer.formats.torch_files import read_torch

logger = logging.getLogger(__name__)

Kind = TypeVar("Kind")
_REQUIRED: Any = object()

# By safetensors' names.
_FLOATS = {"BF16": jnp.bfloat16, "F16": np.float16, "F32": np.float32, "F64": np.float64}
_OTHERS = ("*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.ot", "*.index.json")
_FILES = ("model.safetensors", "pytorch_model.bin")  # the first of them is taken
_KINDS = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "a text",
}

ACTIVATIONS: Any = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
# A layer of fairseq, and of the models that descend from it: other names, the same parameters.
LAYER = {
    f"{theirs}.{leaf}": [ours]
    for theirs, part in {
        "self_attn.q_proj": "self_attention/query",
        "self_attn.k_proj": "self_attention/key",
        "self_attn.v_proj": "self_attention/value",
        "self_attn.out_proj": "self_attention/output",
        "self_attn_layer_norm": "self_attention_norm/norm",
        "encoder_attn.q_proj": "cross_attention/query",
        "encoder_attn.k_proj": "cross_attention/key",
        "encoder_attn.v_proj": "cross_attention/value",
        "encoder_attn.out_proj": "cross_attention/output",
        "encoder_attn_layer_norm": "cross_attention_norm/norm",
        "fc1": "feed_forward/inner",
        "fc2": "feed_forward/outer",
        "final_layer_norm": "feed_forward_norm/norm",
    }.items()
    for leaf, ours in zip(("weight", "bias"), leaves(part), strict=True)
}

# Settings of `generate` that change outputs, with the values at which they do nothing.
_NEUTRAL: dict[str, Collection[Any]] = {
    **dict.fromkeys(("exponential_decay_length_penalty", "forced_bos_token_id"), (None,)),
    **dict.fromkeys(("begin_suppress_tokens", "suppress_tokens", "sequence_bias"), (None, [])),
    **dict.fromkeys(("forced_decoder_ids", "stop_strings"), (None, [])),
    **dict.fromkeys(("do_sample", "diversity_penalty", "penalty_alpha"), (None, 0)),
    **dict.fromkeys(("min_length", "min_new_tokens", "no_repeat_ngram_size"), (None, 0)),
    "encoder_no_repeat_ngram_size": (None, 0),
    **dict.fromkeys(("encoder_repetition_penalty", "repetition_penalty"), (None, 1)),
    **dict.fromkeys(("guidance_scale", "num_beam_groups"), (None, 1)),
}


class Settings:
    """The values of a JSON file, read with the types that they must have."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        """Keep the values. path: the file, for messages. A list of one token's id is that id."""
        self.path, self.folder, self.values = path, path.parent, dict(values)
        for name, value in values.items():
            if name.endswith("_token_id") and isinstance(value, list) and len(value) == 1:
                self.values[name] = value[0]

    def get(self, name: str, kind: type[Kind], default: Any = _REQUIRED) -> Any:
        """Return a value of this kind; a missing or null one is the default, if there is one."""
        value = self.values.get(name)
        if value is None and default is not _REQUIRED:
            return default
        kinds = (int, float) if kind is float else (kind,)
        if type(value) not in kinds:
            raise self.refusal(name, _KINDS[kind])
        return value

    def whole(self, name: str, default: int | None = None, low: int = 1) -> int:
        """Return a whole number from `low` to 2^31 - 1. Raises InputError for another value."""
        value = self.get(name, int, _REQUIRED if default is None else default)
        if not low <= value < 2**31:
            raise self.refusal(name, f"a whole number of at least {low}")
        return value

    def check(self, **accepted: Collection[Any]) -> None:
        """Raise InputError unless each name has one of its values; None stands for none."""
        check_options(self.path, {name: self.values.get(name) for name in accepted}, accepted)

    def refusal(self, name: str, expected: str) -> InputError:
        """Return an error with what was expected and what was found."""
        found = shown(self.values[name]) if name in self.values else "none"
        return InputError(f"{self.path}: expected {expected} as {name}, found {found}")


def read_settings(path: Path, missing: Settings | None = None) -> Settings:
    """Read a JSON object. missing: what a file that is not there stands for."""
    values = read_json(path, dict[str, Any], "fetch it again", "a JSON object")
    if values is not None:
        return Settings(path, values)
    if missing is None:
        raise InputError(f"{path}: expected a file, found none; give the whole folder")
    return missing


def read_weights(folder: Path) -> Arrays:
    """Return the arrays of model.safetensors, or else of pytorch_model.bin.

    Of several files, NAME.index.json names the one of each array; another NAME is not read then.
    Nothing in the files is executed.
    """
    for name in _FILES:
        index = folder / f"{name}.index.json"
        if index.exists():
            return _read_parts(read_settings(index))
        if os.path.lexists(folder / name):  # a link of a cache may be broken
            return _read_arrays(folder / name)
    found = sorted(path.name for pattern in _OTHERS for path in folder.glob(pattern))
    raise InputError(
        f"{folder}: expected {' or '.join(_FILES)}, or one of them in parts with its .index.json, "
        f"found {shown(found) if found else 'neither'}; give the whole folder"
    )


def _read_parts(index: Settings) -> Arrays:
    files = index.get("weight_map", dict)
    if not files or not all(map(is_file_name, files.values())):
        raise index.refusal("weight_map", "the name of a file in this folder for each array")
    arrays: Arrays = {}
    for file in sorted(set(files.values())):
        part = _read_arrays(index.folder / file)
        for name in [name for name in files if files[name] == file]:
            if name not in part:
                raise InputError(
                    f"{index.folder / file}: expected the array {shown(name)}, as {index.path.name}"
                    " says, found none; fetch both again"
                )
            arrays[name] = part[name]
    return arrays


def _read_arrays(path: Path) -> Arrays:
    if not path.exists():
        raise InputError(
            f"{path}: expected this part of the weights, found none; fetch the whole folder"
        )
    tensors = (read_safetensors if path.suffix == ".safetensors" else read_torch)(path)
    if not isinstance(tensors, dict):
        raise InputError(f"{path}: expected named arrays, found a {type(tensors).__name__}")
    return tensors


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file. Raises InputError for damage, and an array without floats."""
    require("safetensors", str(path))
    from safetensors import SafetensorError, deserialize

    try:
        found = deserialize(read_bytes(path))
    except SafetensorError as error:
        raise InputError(
            f"{path}: expected a file of safetensors, found it damaged: {error!s:.200}; fetch it "
            "again"
        ) from None
    arrays = {}
    for name, tensor in found:
        try:
            numbers = np.frombuffer(tensor["data"], _FLOATS[tensor["dtype"]])
            arrays[name] = numbers.reshape(tensor["shape"])
        except (KeyError, ValueError):  # NumPy has at most 64 axes
            raise InputError(
                f"{path}: expected floating-point numbers as {shown(name)}, found "
                f"{tensor['dtype']} of shape {shown(tensor['shape'])}"
            ) from None
    return arrays


def added_pieces(folder: Path, tokenizer: Settings) -> dict[str, int]:
    """Return the ids of pieces that were added to a tokenizer, which keeps them whole in a text.

    tokenizer: tokenizer_config.json, which has them in added_tokens_decoder; older versions wrote
      added_tokens.json.
    """
    added = read_settings(folder / "added_tokens.json", missing=Settings(folder, {}))
    found = {piece: added.whole(piece, low=0) for piece in added.values}
    for index, entry in tokenizer.get("added_tokens_decoder", dict, {}).items():
        piece = entry.get("content") if isinstance(entry, dict) else entry
        if type(piece) is not str or not piece or not re.fullmatch("[0-9]{1,9}", index):
            raise tokenizer.refusal("added_tokens_decoder", "a text for each id")
        if isinstance(entry, dict) and entry.get("single_word"):
            raise InputError(
                f"{tokenizer.path}: expected the added token {shown(piece)} without single_word, "
                "found it with single_word; added tokens are kept whole inside words, too, so this "
                "model cannot be imported"
            )
        found[piece] = int(index)
    return found


def search_settings(search: Settings, config: Settings, longest: int) -> dict[str, Any]:
    """Return the settings of the search that `generate` does by default.

    search: generation_config.json. config: config.json, which older folders have them in.
    longest: the most tokens of a source. A lower limit of outputs is logged as a warning.

    early_stopping "never" is our exact rule, and true is patience 1. false, the default, stops when
    the beam's worst finished score is at least what the best unfinished hypothesis scores now; it
    has no equal here. The exact rule comes nearest: of 700 outputs of a trained model one differed
    from it, and has a higher score here; 33 with patience 1.

    Raises InputError for a setting that would change outputs and has no counterpart here.
    """

    def first(name: str, kind: type, default: Any) -> Any:
        return search.get(name, kind, config.get(name, kind, default))

    for settings in (search, config):
        settings.check(**_NEUTRAL)
    limit = first("max_length", int, longest)
    limit = min(limit, first("max_new_tokens", int, limit))
    if limit < longest:
        logger.warning(
            f"{search.path}: max_length or max_new_tokens ends outputs after {limit:,} tokens in "
            "transformers; here their length depends on their source's: see "
            "decoding.max_extra_length"
        )
    alpha = float(first("length_penalty", float, 1.0))
    if not 0 <= alpha <= 10:
        raise search.refusal("length_penalty", "a number from 0 to 10")
    early = search.values.get("early_stopping", config.values.get("early_stopping"))
    if early not in (None, False, True, "never"):
        raise search.refusal("early_stopping", "false, true or never")
    return {
        "beam_size": first("num_beams", int, 1),
        "alpha": alpha,
        "length_penalty": "length",
        "patience": 1.0 if early is True else 0.0,
    }
