"""Arrays of a Marian model by our names, in the torch layout of `formats.arrays`.

Marian's matrices are [inputs, outputs]. Its decoder starts with zeros in place of an embedding:
here with the last piece, `<pad>`, whose embedding is zeros and which is never written.
"""

import numpy as np

from jax_transformer.config import Value
from jax_transformer.errors import InputError
from jax_transformer.formats.arrays import NEVER, Arrays, tensor2tensor_positions
from jax_transformer.formats.marian_options import Options, model_settings
from jax_transformer.formats.marian_yaml import read_options

OPTIONS = "special:model.yml"  # the array that holds the options, as bytes

_ATTENTIONS = {"self_attention": "self", "cross_attention": "context"}  # by our names
_MATRICES = {"q": "query", "k": "key", "v": "value", "o": "output"}  # by Marian's


def marian_npz_arrays(npz: Arrays, shared: bool, positions: int) -> tuple[dict[str, Value], Arrays]:
    """Return the settings of ModelConfig, and the arrays, of what model.npz holds.

    shared: True if the vocabularies of source and target have the same pieces.
    positions: the rows of the table of positions.

    Raises InputError if the options or the arrays are not those of a model that ours can express.
    """
    reader = _Reader(npz)
    settings = reader.settings
    ties, arrays = _embeddings(reader, shared)
    arrays["position_table"] = tensor2tensor_positions(positions, reader.d_model, first=0)
    pre = settings["norm_position"] == "pre"
    for stack, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for i in range(reader.options[depth]):
            layer = _layer(reader, f"{stack}_l{i + 1}", stack == "decoder", "_pre" if pre else "")
            arrays |= {f"{stack}_{i}/{name}": array for name, array in layer.items()}
        if pre:
            for leaf in ("scale", "bias"):
                arrays[f"{stack}_norm/{leaf}"] = reader.array(
                    f"{stack}_top_ln_{leaf}", reader.d_model
                )
    reader.check_all_read()
    settings = {**settings, "max_positions": positions, **ties}
    return settings, {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def vocabulary_sizes(npz: Arrays) -> tuple[int, int]:
    """Return the numbers of pieces of source and target, which the embeddings have rows for."""
    reader = _Reader(npz)
    source, target = (reader.embedding(name) for name in _embedding_names(reader.options))
    return len(source), len(target)


def _embedding_names(options: Options) -> tuple[str, str]:
    """Return Marian's names of the matrices that embed source and target."""
    if options.get("tied-embeddings-src") or options.get("tied-embeddings-all"):
        return "Wemb", "Wemb"
    return "encoder_Wemb", "decoder_Wemb"


def _embeddings(reader: "_Reader", shared: bool) -> tuple[dict[str, Value], Arrays]:
    """Return the settings of tied embeddings, and the arrays that depend on the vocabulary.

    Each matrix gets a row of zeros for `<pad>`.
    """
    options = reader.options
    source, target = _embedding_names(options)
    tied = bool(options.get("tied-embeddings") or options.get("tied-embeddings-all"))
    one_matrix = shared and tied and source == target
    matrices = {"embedding": reader.embedding(source)}
    if not one_matrix:
        matrices["target_embedding"] = reader.embedding(target)
    size = len(reader.embedding(target))
    if not tied:
        matrices["output_embedding"] = reader.output_matrix(size)
    arrays = {f"{name}/matrix": np.pad(rows, ((0, 1), (0, 0))) for name, rows in matrices.items()}
    omitted = options.get("output-omit-bias")
    bias = np.zeros(size) if omitted else reader.array("decoder_ff_logit_out_b", size)
    arrays["output_bias"] = np.append(bias, NEVER).astype(np.float32)
    return {"tie_embeddings": tied, "tie_source": one_matrix or not (shared and tied)}, arrays


def _layer(reader: "_Reader", prefix: str, decodes: bool, pre: str) -> Arrays:
    """Return the arrays of a layer. pre: the ending of the names of its norms."""
    d_model, d_ff = reader.d_model, reader.d_ff
    arrays = {}
    for ours, theirs in _ATTENTIONS.items():
        if ours == "cross_attention" and not decodes:
            continue
        name = f"{prefix}_{theirs}"
        for letter, matrix in _MATRICES.items():
            weight = reader.array(f"{name}_W{letter}", d_model, d_model)
            arrays[f"{ours}/{matrix}/weight"] = weight.T
            arrays[f"{ours}/{matrix}/bias"] = reader.array(f"{name}_b{letter}", d_model)
        arrays |= _norm(reader, f"{ours}_norm", f"{name}_Wo_ln", pre)
    maps = [("inner", "1", (d_model, d_ff)), ("outer", "2", (d_ff, d_model))]
    for ours, number, shape in maps:
        weight = reader.array(f"{prefix}_ffn_W{number}", *shape)
        arrays[f"feed_forward/{ours}/weight"] = weight.T
        arrays[f"feed_forward/{ours}/bias"] = reader.array(f"{prefix}_ffn_b{number}", shape[1])
    return arrays | _norm(reader, "feed_forward_norm", f"{prefix}_ffn_ffn_ln", pre)


def _norm(reader: "_Reader", ours: str, theirs: str, pre: str) -> Arrays:
    return {
        f"{ours}/norm/{leaf}": reader.array(f"{theirs}_{leaf}{pre}", reader.d_model)
        for leaf in ("scale", "bias")
    }


class _Reader:
    """The arrays of model.npz in float32; `check_all_read` finds those that were not read."""

    def __init__(self, npz: Arrays) -> None:
        """Read the options. Raises InputError if there are none, or ours cannot express one."""
        if OPTIONS not in npz:
            raise InputError(
                f"expected a model of Marian, found an archive without {OPTIONS}; give the model, "
                "not the state of its optimizer"
            )
        self._npz, self._read = npz, {OPTIONS}
        text = npz[OPTIONS].tobytes().rstrip(b"\0").decode(errors="replace")
        self.options = read_options(text)
        self.settings = model_settings(self.options)
        self.d_model: int = self.options["dim-emb"]
        self.d_ff: int = self.options["transformer-dim-ffn"]

    def array(self, name: str, *shape: int | None) -> np.ndarray:
        """Return an array; None is any size. Raises InputError if it lacks or has another shape.

        Marian stores a vector as a matrix of one row.
        """
        found = self._npz.get(name)
        if found is None:
            raise InputError(f"expected the array {name}, found none; copy the model again")
        if len(shape) == 1 and found.ndim == 2 and len(found) == 1:
            found = found[0]
        sizes = tuple(b if a is None else a for a, b in zip(shape, found.shape, strict=False))
        if found.shape != sizes or found.dtype == np.int8:
            raise InputError(
                f"expected {name} to have the shape {shape} in float32 or float16, found "
                f"{found.shape} in {found.dtype}; copy the model again"
            )
        self._read.add(name)
        return found.astype(np.float32)

    def embedding(self, name: str) -> np.ndarray:
        """Return the matrix [V, d_model] of this name."""
        return self.array(name, None, self.d_model)

    def output_matrix(self, size: int) -> np.ndarray:
        """Return the matrix [V, d_model] of the logits. Older versions of Marian transpose it."""
        if "decoder_ff_logit_out_W" in self._npz:
            return self.array("decoder_ff_logit_out_W", self.d_model, size).T
        return self.array("decoder_ff_logit_out_Wt", size, self.d_model)

    def check_all_read(self) -> None:
        """Raise InputError if there is an array that no part of our model has."""
        if unknown := sorted(self._npz.keys() - self._read):
            raise InputError(
                f"expected arrays of a Transformer that ours can express, found {unknown[0]} "
                f"{self._npz[unknown[0]].shape}; use another model"
            )
