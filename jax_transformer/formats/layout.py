"""Models between our run folders and other programs: arrays by name, layouts, and folders (§3)."""

import dataclasses
import importlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import jax
import numpy as np

from jax_transformer.config import Config, DataConfig, DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.errors import InputError, shown
from jax_transformer.files import write_text
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel, write_model
from jax_transformer.runs.run_dir import IMPORTED, Run, RunFolder, step_range
from jax_transformer.training.train_step import abstract_params
from jax_transformer.types import Params

Arrays = dict[str, np.ndarray]
Accepted = Mapping[str, Collection[Any] | None]  # setting -> its values, None for any

NEVER = np.finfo(np.float32).min  # the bias of a logit whose token is never written

# Settings that every format accepts: sizes, and those of training, because arrays are float32.
COMMON_SETTINGS: Accepted = {
    **dict.fromkeys(("num_layers", "decoder_layers", "d_model", "d_ff", "max_positions")),
    **dict.fromkeys(("dropout_rate", "attention_dropout_rate")),
    **dict.fromkeys(("attention_bias", "tie_embeddings", "fused_attention")),
    "positions": ["sinusoidal", "learned"],
    "compute_dtype": ["float32", "bfloat16"],
    "matmul_precision": ["highest", "high", "default"],
    "remat": ["none", "layers"],
}


def flat_arrays(params: Params) -> Arrays:
    """Return arrays by our own names, such as "encoder_0/self_attention/query/kernel"."""
    return {name: np.array(leaf, np.float32) for name, leaf in named_leaves(params).items()}


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves of nested dictionaries by their paths, with slashes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(part.key for part in path): leaf for path, leaf in leaves}


def _refused(values: Mapping[str, Any], accepted: Accepted) -> str | None:
    """Return the first value that is not accepted, with its name and the values that are.

    A name that is not listed is not accepted.
    """
    for name, value in values.items():
        legal = accepted.get(name, ())
        if legal is not None and value not in legal:
            plain = type(value) is str and value.isidentifier() and len(value) < 40
            found = value if plain else shown(value)
            expected = _listed(legal) or "no such option"
            return f"{shown(name)[1:-1]}={found}: expected {expected}"
    return None


def inexpressible(model: ModelConfig, accepted: Accepted) -> str | None:
    """Return the first setting whose value is not accepted, and the values that are, else None.

    A setting that is not listed must have its default. So every format refuses a setting or a
    choice that is added to ModelConfig until somebody lists it there.
    """
    parts = dataclasses.fields(model)
    values = {f"model.{part.name}": getattr(model, part.name) for part in parts}
    legal = {f"model.{part.name}": accepted.get(part.name, [part.default]) for part in parts}
    return _refused(values, legal)


def check_options(path: Path, options: Mapping[str, Any], accepted: Accepted) -> None:
    """Raise InputError that names the first option of another program that is not supported.

    An option that is not listed is not accepted.
    """
    if reason := _refused(options, accepted):
        raise InputError(f"{path}: {reason}; this model cannot be imported")


def _listed(values: Collection[object]) -> str:
    """Return `1 to 8` for a range, else the values with commas between."""
    if isinstance(values, range):
        return f"{values.start} to {values.stop - 1}"
    texts = [str(value) or '""' for value in values]
    return f"{'one of ' if len(texts) > 1 else ''}{', '.join(texts)}"


def torch_settings(model: ModelConfig) -> Accepted:
    """Return the settings that Marian and CTranslate2 accept: those of `torch_layout` and more.

    Heads are d_model / h wide, and padded if ours are narrower.
    """
    widths = range(1, model.d_model // model.num_heads + 1)
    return {
        **COMMON_SETTINGS,
        **dict.fromkeys(("output_bias", "tie_source")),
        "activation": ["relu", "swish", "gelu"],
        "num_heads": [h for h in range(1, model.d_model + 1) if model.d_model % h == 0],
        "d_k": widths,
        "d_v": widths,
    }


def position_rows(config: Config) -> int:
    """Return the number of positions of an exported model, enough for the longest output.

    A learned table keeps its rows. Sinusoids get 1,024 at least, the default of the other programs.
    """
    if config.model.positions == "learned":
        return config.model.max_positions
    return max(1024, config.data.max_length + config.decoding.max_extra_length)


def torch_layout(flat: Arrays, config: ModelConfig) -> Arrays:
    """Return linear maps as `weight` [outputs, inputs] and `bias` [outputs], heads side by side."""
    width = config.d_model // config.num_heads
    result = {}
    for name, array in flat.items():
        path, _, leaf = name.rpartition("/")
        map_name = path.rpartition("/")[2]
        if map_name in ("query", "key", "value"):
            factor = (width / config.d_k) ** 0.5 if map_name == "query" else 1.0
            array = padded(array, -1, width, factor)
            array = array.reshape(*array.shape[:-2], -1)  # [d_model, H width], or [H width]
        elif map_name == "output" and leaf == "kernel":
            array = padded(array, 1, width).reshape(-1, config.d_model)
        if leaf == "kernel":
            array, name = array.T, f"{path}/weight"
        result[name] = np.ascontiguousarray(array)
    return result


# The axis of d_model in each kind of array of `torch_layout`; the others have none.
_D_MODEL_AXIS = {
    "embedding/matrix": 1,
    "position_table": 1,
    "query/weight": 1,
    "key/weight": 1,
    "value/weight": 1,
    "output/weight": 0,
    "output/bias": 0,
    "norm/scale": 0,
    "norm/bias": 0,
    "inner/weight": 1,
    "outer/weight": 0,
    "outer/bias": 0,
}


def reordered(arrays: Arrays, order: Sequence[int] | np.ndarray) -> Arrays:
    """Return the same model, in `torch_layout`, with the dimensions of d_model in another order."""
    result = {}
    for name, array in arrays.items():
        axes = [axis for kind, axis in _D_MODEL_AXIS.items() if name.endswith(kind)]
        if axes:
            _check_size(name, array, axes[0], len(order))
            array = array.take(order, axis=axes[0])
        result[name] = array
    return result


def _check_size(name: str, array: np.ndarray, axis: int, size: int) -> None:
    if array.ndim <= axis or array.shape[axis] != size:
        raise InputError(
            f"{name}: expected an array with {size:,} numbers on axis {axis}, found one of shape "
            f"{array.shape}; give the files of one model"
        )


def sines_first(d_model: int) -> np.ndarray:
    """Return the order of the paper's dimensions that puts all sines before all cosines."""
    return np.r_[0:d_model:2, 1:d_model:2]


def alternating(d_model: int) -> np.ndarray:
    """Return the order that inverts `sines_first`: sines and cosines alternate, as in §3.5."""
    return np.argsort(sines_first(d_model))


def sines_then_cosines(rows: int, d_model: int) -> np.ndarray:
    """Return the paper's position encodings in the order of `sines_first`, as other programs do."""
    frequencies = np.power(10000, np.arange(0, d_model, 2) / d_model)
    angles = np.arange(rows)[:, None] / frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def are_sines_then_cosines(table: np.ndarray) -> bool:
    """Return True for `sines_then_cosines`, also if rounded to 16 bits.

    Tables in float32 and float64 differ by 1e-4 at position 1,000, and float16 and bfloat16 round
    numbers below one by 2e-4 and 2e-3. Another formula differs by more within eight rows.
    """
    if table.ndim != 2 or table.shape[1] % 2:
        return False
    return np.allclose(table, sines_then_cosines(*table.shape), rtol=0, atol=3e-3)


def tensor2tensor_positions(rows: int, d_model: int, first: int) -> np.ndarray:
    """Return the sinusoids of Marian, fairseq and CTranslate2 for positions from `first` on.

    All sines come before all cosines, and the exponent is i / (d_model/2 - 1), as in tensor2tensor.
    Computed in float32, as there. An odd d_model has zeros in the last column.
    """
    half = d_model // 2
    step = np.log(np.float32(10000)) / np.float32(max(half - 1, 1))
    frequencies = np.exp(-step * np.arange(half, dtype=np.float32))
    angles = np.outer(np.arange(first, first + rows, dtype=np.float32), frequencies)
    table = np.zeros((rows, d_model), np.float32)
    table[:, :half], table[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return table


def our_layout(arrays: Arrays, config: ModelConfig) -> Params:
    """Invert `torch_layout` for heads d_model / h wide, and return the tree of parameters.

    Raises InputError for a projection that cannot be split into heads.
    """
    heads = {"query": config.d_k, "key": config.d_k, "value": config.d_v}
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        path, _, leaf = name.rpartition("/")
        map_name = path.rpartition("/")[2]
        if leaf == "weight":
            array, leaf = array.T, "kernel"
        if map_name in heads:
            _check_size(name, array, max(array.ndim - 1, 0), config.num_heads * heads[map_name])
            array = array.reshape(*array.shape[:-1], config.num_heads, heads[map_name])
        elif map_name == "output" and leaf == "kernel":
            _check_size(name, array, 0, config.num_heads * config.d_v)
            array = array.reshape(config.num_heads, config.d_v, -1)
        branch = tree
        for part in path.split("/") if path else []:
            branch = branch.setdefault(part, {})
        branch[leaf] = np.ascontiguousarray(array, np.float32)
    return tree


def embeddings(ours: Arrays, config: ModelConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices [V, d_model] of source, target and pre-softmax."""
    source = ours["embedding/matrix"]
    target = ours.get("target_embedding/matrix", source)
    return source, target, target if config.tie_embeddings else ours["output_embedding/matrix"]


def padded(array: np.ndarray, axis: int, width: int, factor: float = 1.0) -> np.ndarray:
    """Return the array times `factor`, with zeros at the end of an axis up to `width`.

    Zeros in keys and values change neither scores nor sums. Scores are divided by the square
    root of the width, so wider queries take the `factor` sqrt(width / d_k).
    """
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, width - array.shape[axis])
    return np.pad(array * np.float32(factor), missing)


STACKS = ("encoder", "decoder")
LayerNames = Mapping[str, Sequence[str]]  # another program's name -> ours, which it joins


def layer_names(
    layers: Sequence[int], place: str, table: LayerNames
) -> Iterator[tuple[str, list[str]]]:
    """Yield another program's name of each array of the layers, and those of ours that it joins.

    layers: the numbers of layers of encoder and decoder.
    place: the beginning of a layer's names, with {stack} and with {i} from 0 or {number} from 1.
    table: the rest of the names, and our names in a layer, such as "self_attention/query/weight".
    """
    for stack, count in zip(STACKS, layers, strict=True):
        for i in range(count):
            there = place.format(stack=stack, i=i, number=i + 1)
            for theirs, ours in table.items():
                if stack == "decoder" or not ours[0].startswith("cross_attention"):
                    yield f"{there}{theirs}", [f"{stack}_{i}/{name}" for name in ours]


def leaves(part: str) -> tuple[str, str]:
    """Return our names of the weight and the bias of a linear map, or of a norm."""
    return f"{part}/{'scale' if part.endswith('norm') else 'weight'}", f"{part}/bias"


def layer_counts(names: Collection[str], place: str) -> list[int]:
    """Return the numbers of layers of encoder and decoder. place: as in `layer_names`."""
    before, after = re.escape(place).split(re.escape("{i}"))
    counts = []
    for stack in STACKS:
        pattern = re.compile(before.replace(re.escape("{stack}"), stack) + r"(\d{1,4})" + after)
        counts.append(
            max((int(found[1]) + 1 for found in map(pattern.match, names) if found), default=0)
        )
    return counts


def depths(layers: Sequence[Any]) -> dict[str, Any]:
    """Return num_layers and decoder_layers, which is 0 if the stacks are equally deep."""
    encoder, decoder = layers
    return {"num_layers": encoder, "decoder_layers": 0 if decoder == encoder else decoder}


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImportedModel:
    """A model that a reader of formats/ has read.

    arrays: the parameters, by the names of `torch_layout`.
    source, target: the vocabularies, the same object if one serves both sides.
    max_length: the maximum number of source tokens, EOS included.
    languages: the codes of the languages of source and target; "" is unknown.
    """

    model: ModelConfig
    decoding: DecodingConfig
    arrays: Arrays
    source: Vocabulary
    target: Vocabulary
    max_length: int
    languages: tuple[str, str] = ("", "")

    def config(self) -> Config:
        """Return all settings; those of training are the paper's."""
        data = DataConfig(
            max_length=self.max_length,
            vocabulary_size=max(self.source.size, 5),
            source_language=self.languages[0],
            target_language=self.languages[1],
        )
        return Config(model=self.model, decoding=self.decoding, data=data)


class Unread:
    """The arrays of a file that no part of our model has taken yet, by their names there."""

    def __init__(self, arrays: Arrays, path: Path) -> None:
        """Keep the arrays. path: of the file or the folder, for messages."""
        self.left, self.path = dict(arrays), path

    def __contains__(self, name: str) -> bool:
        """Return True if there is an array of this name that was not taken."""
        return name in self.left

    def take(self, name: str, axes: int, default: np.ndarray | None = None) -> np.ndarray:
        """Return an array of floating-point numbers, in float32, or else the default.

        Raises InputError if there is neither, or the array has another number of axes.
        """
        array = self.left.pop(name, default)
        if array is None or array.ndim != axes or array.dtype.kind != "f" or not array.size:
            found = "none" if array is None else f"{array.dtype} of shape {array.shape}"
            raise InputError(
                f"{self.path}: expected floating-point numbers with {axes} axes as {name}, found "
                f"{found}; the model cannot be imported, or its file is damaged"
            )
        return array.astype(np.float32, copy=False)

    def refuse_rest(self) -> None:
        """Raise InputError that names an array that was not taken."""
        if self.left:
            name = min(self.left)
            raise InputError(
                f"{self.path}: {name:.200}, of shape {self.left[name].shape}: expected no such "
                "array, because this Transformer has no such part; the model cannot be imported"
            )


def embedding_arrays(
    matrices: Sequence[np.ndarray], one_vocabulary: bool
) -> tuple[Arrays, dict[str, Any]]:
    """Return matrices [V, d_model] by our names, and the settings for those that are shared.

    matrices: the matrices of source, target and logits.
    one_vocabulary: True if source and target have the same pieces.
    """
    source, target, output = matrices
    tied = np.array_equal(target, output)
    one_matrix = tied and one_vocabulary and np.array_equal(source, target)
    arrays = {"embedding/matrix": source}
    if not one_matrix:
        arrays["target_embedding/matrix"] = target
    if not tied:
        arrays["output_embedding/matrix"] = output
    tie_source = one_matrix or not (tied and one_vocabulary)  # true where it means nothing
    return arrays, {"tie_embeddings": tied, "tie_source": tie_source}


def shared_table(path: Path, tables: Sequence[np.ndarray]) -> np.ndarray:
    """Return the table of positions of encoder and decoder.

    Raises InputError if there are two, which our model cannot have.
    """
    if not all(np.array_equal(tables[0], other) for other in tables[1:]):
        raise InputError(
            f"{path}: expected the same position encodings in encoder and decoder, found others; "
            "this model cannot be imported"
        )
    return tables[0]


def is_file_name(name: object) -> bool:
    """Return True for the name of a file in a folder, without a path to it."""
    return (
        isinstance(name, str)
        and name not in (".", "..")
        and "/" not in name
        and name.isprintable()
        and 0 < len(name.encode(errors="replace")) < 256
    )


def require(package: str, purpose: str) -> None:
    """Raise InputError, which begins with the purpose, if a package does not load."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"{purpose}: expected the package {package}, found none that loads ({error}); install "
            "it with python -m pip install -e '.[export]'"
        ) from None


def parameters(imported: ImportedModel, run: Run) -> Params:
    """Return the parameters as the tree that the run's model has.

    Raises InputError if an array is missing, is of another shape, is not expected, or has numbers
    that are not finite; the message names it.
    """
    model = build_model(run, imported.source, imported.target)
    params = our_layout(imported.arrays, imported.model)
    expected, found = named_leaves(abstract_params(model)), named_leaves(params)
    for name in sorted(expected.keys() | found.keys()):
        shapes = [getattr(leaves.get(name), "shape", "none") for leaves in (expected, found)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"{name}: expected an array of shape {shapes[0]}, found {shapes[1]}: the "
                "vocabulary or the settings do not fit the arrays; give the files of one model"
            )
        if not np.isfinite(found[name]).all():
            raise InputError(f"{name}: expected finite numbers, found others; fetch the file again")
    return params


def write_run_folder(imported: ImportedModel, folder: RunFolder, name: str, origin: str) -> Run:
    """Make a run folder of the model: settings, vocabularies, manifest and the averaged model.

    name: the experiment's. origin: the files that it came from, for config.json.

    Raises InputError if the folder has files of a run, or the model does not fit together; nothing
    is left behind then.
    """
    run = Run(name, 0, imported.config(), imported_from=origin, corpus=IMPORTED)
    params = parameters(imported, run)
    write_model(folder, run, imported.source, imported.target, params, [0])
    return run


TEMPLATES = Path(__file__).parent / "readmes"

_PENALTIES = {
    "gnmt": """\
the nearest to what the model
  was scored with, not the same. Here log P is divided by |y|^alpha, in the paper by
  ((5 + |y|) / 6)^alpha. Choose it again on development text.""",
    "length": """\
those of the model. Log P is divided by
  |y|^alpha, as it was there.""",
}


def text_vocabularies(trained: TrainedModel) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target, each with a model of sentencepiece.

    Raises InputError for vocabularies without one.
    """
    source, target = trained.vocabulary, trained.target_vocabulary
    if not (source.sentencepiece and target.sentencepiece):
        raise InputError(
            "expected vocabularies of sentencepiece, found others, which the folder cannot hold; "
            "no format can express them"
        )
    return source, target


def shared_vocabulary(trained: TrainedModel) -> Vocabulary:
    """Return the vocabulary that serves both sides, with a model of sentencepiece.

    Raises InputError if there are two, or one without such a model.
    """
    source, target = text_vocabularies(trained)
    if source is not target:
        raise InputError(
            "expected one vocabulary for both sides, found separate ones, which the folder cannot "
            "hold; export with --format=marian"
        )
    return source


def _origin(trained: TrainedModel) -> dict[str, str]:
    if trained.run.imported_from:
        return {"origin": "which another program trained", "as_trained": ""}
    steps = step_range(trained.steps)
    steps = steps if len(trained.steps) == 1 else f"the average of {steps}"
    return {"origin": f"from {steps}", "as_trained": ", as they were in training"}


def write_readme(trained: TrainedModel, out: Path, template: str, **facts: str) -> None:
    """Write README.md into the folder `out`: a file of readmes/ with its $names filled in.

    facts: names and values in addition to those of the settings.
    """
    config, source, target = trained.config, trained.vocabulary, trained.target_vocabulary
    pieces = f"{source.size:,}"
    if target.all_pieces != source.all_pieces:
        pieces = f"{pieces} source and {target.size:,} target"
    languages = config.data.languages
    names = {
        **vars(config.model),
        **vars(config.decoding),
        "decoder_layers": config.model.num_decoder_layers,
        "penalty": _PENALTIES[config.decoding.length_penalty],
        "experiment": trained.run.experiment,
        **_origin(trained),
        "languages": f", {languages}" if languages else "",
        "pieces": pieces,
        "max_source": config.data.max_length - 1,
        "max_length": config.data.max_length,
        "max_target": config.data.max_length + config.decoding.max_extra_length,
        **facts,
    }
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    write_text(out / "README.md", Template(text).substitute(names))
