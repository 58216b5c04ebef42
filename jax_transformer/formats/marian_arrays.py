"""Marian's model.npz: options, and arrays by our names in the torch layout of `formats.arrays`.

Matrices are [inputs, outputs], and vectors are matrices of one row.
"""

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jax_transformer.config import ModelConfig
from jax_transformer.errors import InputError, shown
from jax_transformer.files import read_bytes
from jax_transformer.formats.arrays import Accepted, Arrays, check_options
from jax_transformer.formats.imported import Unread
from jax_transformer.formats.marian_vocabularies import read_yaml

OPTIONS = "special:model.yml"  # the array that holds the options, as bytes
Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]

# The values that ours can express of options that change what the same arrays compute. The other
# options are about other kinds of models, which have other arrays.
_ACCEPTED: Accepted = {
    "type": ["transformer"],
    "right-left": [False],
    "transformer-decoder-autoreg": ["self-attention"],
    "transformer-pool": [False],
    "transformer-ffn-activation": ["swish", "relu", "gelu"],
    "transformer-postprocess-emb": ["d", ""],
    "transformer-disable-position-embeddings": [False],
    "transformer-attention-mask": ["default"],
}
_NORMALIZES_KEYS = (1, 11)  # Marian 1.10 applies the pre-norm to queries alone
_LETTERS = {"query": "q", "key": "k", "value": "v", "output": "o"}
_MAPS = {  # a weight has W in the braces, a bias b
    **{f"self_attention/{role}": f"self_{{}}{letter}" for role, letter in _LETTERS.items()},
    **{f"cross_attention/{role}": f"context_{{}}{letter}" for role, letter in _LETTERS.items()},
    "feed_forward/inner": "ffn_{}1",
    "feed_forward/outer": "ffn_{}2",
}
_NORMS = {
    "self_attention": "self_Wo_ln",
    "cross_attention": "context_Wo_ln",
    "feed_forward": "ffn_ffn_ln",
}


def read_npz(path: Path) -> Arrays:
    """Return the arrays of a NumPy archive by name; pickles are refused.

    Raises InputError if the file is missing or damaged.
    """
    try:
        content = io.BytesIO(read_bytes(path))
        with np.load(content, allow_pickle=False) as archive:  # noqa: TID251, pickles are refused
            # macOS adds members of its own when somebody packs the archive again.
            names = [name for name in archive.files if not name.startswith("__MACOSX/")]
            arrays = {name: archive[name] for name in names}
    except InputError:
        raise
    # For damaged files zipfile and numpy raise a dozen kinds, MemoryError and SyntaxError too.
    except Exception as error:
        raise InputError(
            f"{path}: expected an archive of arrays (.npz), found another or a damaged file "
            f"({' '.join(str(error).split())[:200]}); copy it again"
        ) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"{path}: expected arrays alone (.npz), found {shown(name)}; copy it again"
            )
    return arrays


def read_model_settings(npz: Unread) -> dict[str, Any]:
    """Return the settings of ModelConfig that the options in model.npz give.

    Raises InputError if there are no options, or for a value that our model cannot express.
    """
    found = npz.left.pop(OPTIONS, None)
    if found is None:
        raise InputError(
            f"{npz.path}: expected a model of Marian, found an archive without {OPTIONS}; give the "
            "model, not the state of its optimizer"
        )
    options = read_yaml(npz.path, found.tobytes().rstrip(b"\0"))
    check_options(npz.path, options, {**dict.fromkeys(options), **_ACCEPTED})
    layers, decoder_layers = options.get("enc-depth"), options.get("dec-depth")
    return {
        "num_layers": layers,
        "decoder_layers": 0 if decoder_layers == layers else decoder_layers,
        "d_model": options.get("dim-emb"),
        "d_ff": options.get("transformer-dim-ffn"),
        "num_heads": options.get("transformer-heads"),
        "activation": options.get("transformer-ffn-activation", "swish"),
        "attention_bias": True,
        "norm_position": _norm_position(npz.path, options),
        "norm_epsilon": 1e-6,
        "output_bias": True,
        "positions": "learned",
    }


def _norm_position(path: Path, options: Mapping[str, Any]) -> str:
    """Return pre or post. Raises InputError for another order of norms, or a gate.

    Each letter is an operation: a adds the sub-layer's input, n normalizes, d is dropout.
    """
    defaults = {"preprocess": "", "postprocess": "dan", "postprocess-top": ""}
    found = [options.get(f"transformer-{name}", default) for name, default in defaults.items()]
    before, after, top = (str(letters).replace("d", "") for letters in found)
    position = {("", "an", ""): "post", ("n", "a", "n"): "pre"}.get((before, after, top))
    if position is None:
        raise InputError(
            f"{path}: transformer-preprocess, transformer-postprocess and "
            'transformer-postprocess-top: expected "", "dan" and "" (post-norm), or "n", "da" and '
            f'"n" (pre-norm), found {found}; this model cannot be expressed'
        )
    version = re.match(r"v?(\d+)\.(\d+)", str(options.get("version", "")))
    if position == "pre" and not (version and (*map(int, version.groups()),) >= _NORMALIZES_KEYS):
        raise InputError(
            f"{path}: expected a pre-norm model of Marian 1.11 or newer, found version: "
            f"{options.get('version')}, which does not normalize keys and values; this model "
            "cannot be expressed"
        )
    return position


def take_embeddings(npz: Unread) -> tuple[Matrices, np.ndarray]:
    """Return the matrices [V, d_model] of source, target and logits, and the bias of the logits."""
    if "Wemb" in npz:
        source = target = npz.take("Wemb", 2)
    else:
        source, target = npz.take("encoder_Wemb", 2), npz.take("decoder_Wemb", 2)
    output, name = target, "decoder_ff_logit_out"
    if f"{name}_Wt" in npz:
        output = npz.take(f"{name}_Wt", 2)
    elif f"{name}_W" in npz:  # of an older version
        output = npz.take(f"{name}_W", 2).T
    has_bias = f"{name}_b" in npz
    bias = npz.take(f"{name}_b", 2) if has_bias else np.zeros(len(target), np.float32)
    return (source, target, output), bias.reshape(-1)


def take_layers(npz: Unread, model: ModelConfig) -> Arrays:
    """Return the arrays of all layers by our names."""
    arrays = {}
    pre = "_pre" if model.norm_position == "pre" else ""
    for stack, layers in (("encoder", model.num_layers), ("decoder", model.num_decoder_layers)):
        norms = {f"{stack}_norm": f"{stack}_top_ln_{{}}"} if pre else {}
        for i in range(layers):
            here, there = f"{stack}_{i}", f"{stack}_l{i + 1}"
            for ours, theirs in _MAPS.items():
                if stack == "decoder" or not ours.startswith("cross_attention"):
                    weight, bias = (f"{there}_{theirs.format(kind)}" for kind in "Wb")
                    arrays[f"{here}/{ours}/weight"] = npz.take(weight, 2).T
                    arrays[f"{here}/{ours}/bias"] = npz.take(bias, 2).reshape(-1)
            for ours, theirs in _NORMS.items():
                if stack == "decoder" or ours != "cross_attention":
                    norms[f"{here}/{ours}_norm/norm"] = f"{there}_{theirs}_{{}}{pre}"
        for ours, theirs in norms.items():
            for leaf in ("scale", "bias"):
                arrays[f"{ours}/{leaf}"] = npz.take(theirs.format(leaf), 2).reshape(-1)
    return arrays
