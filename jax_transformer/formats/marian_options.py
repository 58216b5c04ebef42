"""Options of a Marian model as settings of ours; what ours cannot express is refused by name.

Marian writes a model's options into the model itself, and those of the search into decoder.yml.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from jax_transformer.config import DecodingConfig, Value
from jax_transformer.errors import InputError

Options = Mapping[str, Any]

# The values of each option that our model can express. The first is Marian's default, which is
# the value of an option that is newer than the model.
_VALUES: dict[str, Collection[Any]] = {
    "type": ["transformer"],
    "input-types": [[], ["sequence", "sequence"]],
    "special-vocab": [[], None],
    "right-left": [False],
    "ulr": [False],
    "lemma-dim-emb": [0],
    "lemma-dependency": [""],
    "transformer-decoder-autoreg": ["self-attention"],
    "transformer-tied-layers": [[]],
    "transformer-no-projection": [False],
    "transformer-pool": [False],
    "transformer-ffn-depth": [2],
    "transformer-decoder-ffn-depth": [0, 2],
    "transformer-ffn-activation": ["swish", "relu", "gelu"],
    "transformer-postprocess-emb": ["d", ""],
    "transformer-train-positions": [False],
    "transformer-train-position-embeddings": [False],
    "transformer-disable-position-embeddings": [False],
    "transformer-attention-mask": ["default"],
    "transformer-no-bias": [False],
    "transformer-no-affine": [False],
    "output-omit-bias": [False, True],
    "tied-embeddings": [False, True],
    "tied-embeddings-src": [False, True],
    "tied-embeddings-all": [False, True],
}
_SIZES = ("dim-emb", "enc-depth", "dec-depth", "transformer-dim-ffn", "transformer-heads")
_READ = {
    *_SIZES,
    "dim-vocabs",
    "version",
    "transformer-decoder-dim-ffn",
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
}
# These belong to other kinds of models, or to training alone.
_UNUSED = re.compile(
    "dim-rnn|enc-cell|enc-cell-depth|enc-type|dec-cell|dec-cell-base-depth|dec-cell-high-depth|"
    "skip|layer-normalization|ulr-.*|bert-.*|transformer-(dim-aan|aan-.*|alibi-.*)|"
    "transformer-(rnn-projection|guided-alignment-layer|depth-scaling)|separator-symbol|"
    # Without a factored vocabulary, which is a file of another kind, there are no factors.
    "factors-combine|factors-dim-emb"
)
# Options of the search that do not change what is found, or that a user chooses anew here.
_SEARCH_UNUSED = {
    *("models", "vocabs", "relative-paths", "mini-batch", "maxi-batch", "maxi-batch-sort"),
    *("mini-batch-words", "cpu-threads", "workspace", "quiet", "quiet-translation", "log", "seed"),
    *("n-best", "max-length-factor", "max-length-crop", "devices", "num-devices", "skip-cost"),
}
_SEARCH_VALUES: dict[str, Collection[Any]] = {
    "word-penalty": [0],
    "allow-unk": [False],
    "alignment": ["", None],
    "shortlist": [[], None],
    "weights": [[], [1], None],
}
MAX_LENGTH = 512  # Marian's default in translation
LONGEST = 100_000  # each position is a row of a table
_NORMALIZES_KEYS = (1, 11)  # Marian 1.10 applies the pre-norm to queries alone


def model_settings(options: Options) -> dict[str, Value]:
    """Return the settings of ModelConfig that are not about embeddings.

    Raises InputError for an option or a value that our model cannot express.
    """
    _check_values(options, _VALUES)
    for name in options:
        if name not in _VALUES and name not in _READ and not _UNUSED.fullmatch(name):
            raise InputError(
                f"expected options of Marian's Transformer that ours can express, found {name}: "
                f"{options[name]}; use another model"
            )
    missing = [name for name in _SIZES if not isinstance(options.get(name), int)]
    if missing:
        raise InputError(
            f"expected a whole number for {missing[0]}, found {options.get(missing[0])}; use a "
            "model that Marian wrote"
        )
    if options["dim-emb"] % 2:
        raise InputError(f"expected an even dim-emb, found {options['dim-emb']}; use another model")
    inner = options["transformer-dim-ffn"]
    _check_values(options, {"transformer-decoder-dim-ffn": [0, inner]})
    return {
        "num_layers": options["enc-depth"],
        "decoder_layers": depth if (depth := options["dec-depth"]) != options["enc-depth"] else 0,
        "d_model": options["dim-emb"],
        "d_ff": inner,
        "num_heads": options["transformer-heads"],
        "activation": options.get("transformer-ffn-activation", "swish"),
        "attention_bias": True,
        "norm_position": _norm_position(options),
        "norm_epsilon": 1e-6,
        "output_bias": True,
        "positions": "learned",
    }


def _norm_position(options: Options) -> str:
    """Return pre or post. Raises InputError for another order of norms, or a gate.

    Each letter is an operation: a adds the sub-layer's input, n normalizes, d is dropout.
    """
    names = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    defaults = ("", "dan", "")
    found = [options.get(name, default) for name, default in zip(names, defaults, strict=True)]
    before, after, top = (str(letters).replace("d", "") for letters in found)
    position = {("", "an", ""): "post", ("n", "a", "n"): "pre"}.get((before, after, top))
    if position is None:
        values = ", ".join(f'{name}: "{value}"' for name, value in zip(names, found, strict=True))
        raise InputError(
            'expected norms as "", "dan" and "" (post-norm), or "n", "da" and "n" (pre-norm), '
            f"found {values}; use another model"
        )
    if position == "pre" and _version(options) < _NORMALIZES_KEYS:
        raise InputError(
            "expected a pre-norm model of Marian 1.11 or newer, found version: "
            f"{options.get('version')}, which does not normalize keys and values; use another model"
        )
    return position


def _version(options: Options) -> tuple[int, ...]:
    """Return (1, 12) for `v1.12.42 b7be0e964`; (0, 0) if there is no version."""
    found = re.match(r"v?(\d+)\.(\d+)", str(options.get("version", "")))
    return tuple(map(int, found.groups())) if found else (0, 0)


def decoding_settings(options: Options) -> DecodingConfig:
    """Return the search that decoder.yml describes.

    Raises InputError for an option that our search lacks.
    """
    _check_values(options, _SEARCH_VALUES)
    used = {"beam-size", "normalize", "max-length"}
    unknown = options.keys() - _SEARCH_UNUSED - _SEARCH_VALUES.keys() - used
    if unknown:
        name = sorted(unknown)[0]
        raise InputError(
            f"expected options of the search that ours has, found {name}: {options[name]}; "
            "remove the line if the model can do without"
        )
    beam, alpha = options.get("beam-size", 12), options.get("normalize", 0)
    if type(beam) is not int or type(alpha) not in (int, float):
        raise InputError(
            f"expected numbers for beam-size and normalize, found {beam} and {alpha}; mend them"
        )
    return DecodingConfig(beam_size=beam, alpha=float(alpha), length_penalty="length", patience=1.0)


def longest_source(options: Options) -> int:
    """Return the maximum number of source tokens, EOS included, that decoder.yml describes."""
    longest = options.get("max-length", MAX_LENGTH)
    if type(longest) is not int or not 2 <= longest <= LONGEST:
        raise InputError(f"expected max-length from 2 to {LONGEST:,}, found {longest}; mend it")
    return longest


def _check_values(options: Options, accepted: Mapping[str, Collection[Any]]) -> None:
    for name, values in accepted.items():
        if name in options and options[name] not in values:
            expected = " or ".join(f'"{value}"' if value == "" else str(value) for value in values)
            raise InputError(
                f"expected {name} to be {expected}, found {options[name]}; use another model"
            )
