"""Our parameters as a CTranslate2 model, and files that both sides of a comparison decode from."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measuring import BOS_ID, EOS_ID, PAD_ID, Shape, random_sentences
from benchmarks.training_work import write_work
from experiments.flags import warn
from experiments.restore import restore
from jax_transformer.config import ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.layers import positional_encoding
from jax_transformer.run_folder import RunFolder
from jax_transformer.vocabulary import BOS, EOS, UNK

EPSILON = 1e-6  # of our layer norm
POSITIONS = 1024  # rows of the table of positions, as many as the longest input has
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]  # in the order of their ids


def ctranslate2_arrays(params: Any, config: ModelConfig, positions: int) -> dict[str, np.ndarray]:
    """The variables of CTranslate2's TransformerSpec by their paths in it.

    params: our tree; positions: rows of the table of encodings, which is given because
    CTranslate2's own formula is tensor2tensor's. Matrices are [outputs, inputs].
    """
    table = np.asarray(positional_encoding(jnp.arange(positions), config.d_model))
    matrix = np.asarray(params["embedding"]["matrix"])
    arrays = {
        "encoder/embeddings_0/weight": matrix,
        "decoder/embeddings/weight": matrix,
        "decoder/projection/weight": matrix,
        "encoder/position_encodings/encodings": table,
        "decoder/position_encodings/encodings": table,
    }
    for stack in ("encoder", "decoder"):
        for i in range(config.num_layers):
            layer = _layer_arrays(params[f"{stack}_{i}"])
            arrays |= {f"{stack}/layer_{i}/{name}": array for name, array in layer.items()}
    return arrays


def _layer_arrays(layer: Any) -> dict[str, np.ndarray]:
    def joined(kernels: Any, names: list[str]) -> np.ndarray:
        parts = [np.asarray(kernels[name]["kernel"]) for name in names]
        return np.concatenate([part.reshape(len(part), -1).T for part in parts])

    arrays, attentions = {}, {"self_attention": [["query", "key", "value"]]}
    if "cross_attention" in layer:
        attentions["cross_attention"] = [["query"], ["key", "value"]]
    for ours, groups in attentions.items():
        theirs = "attention" if ours == "cross_attention" else ours
        for number, names in enumerate(groups):
            arrays[f"{theirs}/linear_{number}/weight"] = joined(layer[ours], names)
        output = np.asarray(layer[ours]["output"]["kernel"])
        arrays[f"{theirs}/linear_{len(groups)}/weight"] = output.reshape(-1, output.shape[-1]).T
        arrays |= _norm_arrays(theirs, layer[f"{ours}_norm"]["norm"])
    for number, name in enumerate(("inner", "outer")):
        linear = layer["feed_forward"][name]
        arrays[f"ffn/linear_{number}/weight"] = np.asarray(linear["kernel"]).T
        arrays[f"ffn/linear_{number}/bias"] = np.asarray(linear["bias"])
    return arrays | _norm_arrays("ffn", layer["feed_forward_norm"]["norm"])


def _norm_arrays(theirs: str, norm: Any) -> dict[str, np.ndarray]:
    return {
        f"{theirs}/layer_norm/gamma": np.asarray(norm["scale"]),
        f"{theirs}/layer_norm/beta": np.asarray(norm["bias"]),
    }


def write_model(params: Any, config: ModelConfig, pieces: list[str], folder: Path) -> None:
    """A CTranslate2 model in float32 in `folder`, which it makes.

    pieces: by their ids; those of PAD, BOS, EOS and UNK are the vocabulary's.
    Raises InputError for a model that CTranslate2's Transformer cannot be, or not by this.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.model_spec import index_spec

    standard = {
        "positions": ("sinusoidal", config.positions),
        "tie_embeddings": (True, config.tie_embeddings),
        "attention_bias": (False, config.attention_bias),
        "attention_radius": (0, config.attention_radius),
        "d_k": (config.d_model // config.num_heads, config.d_k),
        "d_v": (config.d_model // config.num_heads, config.d_v),
    }
    for name, (expected, found) in standard.items():
        if expected != found:
            raise InputError(
                f"expected a model with model.{name}={expected} to compare with CTranslate2, "
                f"found {found}; take another run"
            )
    spec = TransformerSpec.from_config(config.num_layers, config.num_heads, pre_norm=False)
    for name, array in ctranslate2_arrays(params, config, POSITIONS).items():
        layer, _, attribute = name.rpartition("/")
        setattr(index_spec(spec, layer), attribute, np.ascontiguousarray(array))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    settings: Any = spec.config
    settings.layer_norm_epsilon, settings.add_source_eos = EPSILON, True
    settings.bos_token = settings.decoder_start_token = pieces[BOS]
    settings.eos_token, settings.unk_token = pieces[EOS], pieces[UNK]
    spec.validate()
    spec.optimize(None)
    folder.mkdir(parents=True)
    spec.save(str(folder))


def random_pieces(size: int) -> list[str]:
    """Names for `size` words that nobody reads."""
    return [*SPECIAL, *(f"w{index}" for index in range(len(SPECIAL), size))]


def write_random(shape: Shape, rows: int, length: int, folder: Path) -> None:
    """Random parameters and sources, for both sides, in `folder`.

    work.npz: parameters and "source" [rows, length], EOS included; model: CTranslate2's;
    sources.json: the sources in pieces, without EOS.
    """
    assert tuple(map(SPECIAL.index, ("<pad>", "<s>", "</s>"))) == (PAD_ID, BOS_ID, EOS_ID)
    write_work(shape, 1, folder / "training.npz")
    random = np.random.default_rng(1)
    source = random_sentences(random, np.full(rows, length), length, shape.vocabulary_size)
    with np.load(folder / "training.npz") as work:
        params = {name: work[name] for name in work.files if name not in ("source", "target")}
    (folder / "training.npz").unlink()
    np.savez(folder / "work.npz", **params, source=source)
    pieces = random_pieces(shape.vocabulary_size)
    write_model(_tree(params), shape.model, pieces, folder / "model")
    texts = [[pieces[token] for token in row[:-1]] for row in source.tolist()]
    (folder / "sources.json").write_text(json.dumps(texts), encoding="utf-8")


def _tree(named: dict[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, array in named.items():
        *path, leaf = name.split("/")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[leaf] = array
    return tree


def write_trained(workdir: str, checkpoint: str | None, folder: Path) -> None:
    """The CTranslate2 model of a run, in `folder`. InputError where the run parses."""
    trained = restore(RunFolder(workdir), checkpoint, warn)
    if trained.symbols is not None:
        raise InputError(
            f"{workdir}: expected a run that translates, found one that parses; name another"
        )
    pieces = trained.vocabulary.pieces(range(trained.vocabulary.size))
    write_model(jax.device_get(trained.params), trained.run.config.model, pieces, folder)
