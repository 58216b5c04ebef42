"""Exports for MarianMTModel, and our results, against Hugging Face's own, recorded and live."""

import itertools
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from references import SOURCES, Arrays, assert_close, reference, within

from jax_transformer.config import Config, DataConfig, DecodingConfig, ModelConfig
from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.decoding.generate import translate
from jax_transformer.formats.marian import write_marian
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run

safetensors = pytest.importorskip(
    "safetensors.numpy", reason="writes exports: pip install -e '.[export]'"
)

PAD, BOS, EOS = 0, 1, 2
TINY: dict[str, Any] = {"num_layers": 2, "d_model": 12, "d_ff": 20, "num_heads": 3}
OPTIONS: dict[str, Any] = {
    "attention_bias": True,
    "tie_embeddings": False,
    "positions": "learned",
    "max_positions": 32,
}
MODELS = {"paper": ModelConfig(**TINY), "options": ModelConfig(**TINY, **OPTIONS)}
GREEDY = DecodingConfig(beam_size=1, max_extra_length=8)
ATTENTIONS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
EMBEDDINGS = {
    "embedding": "model.encoder.embed_tokens.weight",
    "target_embedding": "model.decoder.embed_tokens.weight",
    "output_embedding": "lm_head.weight",
}


def from_json(text: Any) -> Any:
    """The value of recorded or written JSON."""
    return json.loads(text.read_text(encoding="utf-8") if isinstance(text, Path) else str(text))


@pytest.fixture(scope="module", params=SOURCES)
def both_kinds(request) -> Arrays:
    """What Hugging Face's models have and compute."""
    return reference("marian", request.param)


@pytest.fixture(params=MODELS)
def theirs(request, both_kinds) -> Arrays:
    """What a model has and computes: one as in the paper, or one with all options."""
    kind = request.param
    return {**both_kinds, **within(both_kinds, f"{kind}/"), "config": MODELS[kind]}


# ---- Hugging Face's names and layouts -----------------------------------------------------


def our_attention(theirs: Arrays, name: str, order: np.ndarray) -> Any:
    """Matrices [H d, d_model] as ours, [d_model, H, d], and biases."""
    heads = TINY["num_heads"]
    ours = {}
    for kind, their_kind in PROJECTIONS.items():
        weight, bias = (theirs[f"{name}.{their_kind}.{leaf}"] for leaf in ("weight", "bias"))
        kernel = weight.T[order].reshape(len(order), heads, -1)
        ours[kind] = {"kernel": kernel, "bias": bias.reshape(heads, -1)}
    weight, bias = (theirs[f"{name}.out_proj.{leaf}"] for leaf in ("weight", "bias"))
    kernel = weight[order].T.reshape(heads, -1, len(order))
    return {**ours, "output": {"kernel": kernel, "bias": bias[order]}}


def our_norm(theirs: Arrays, name: str, order: np.ndarray) -> Any:
    scale, bias = (theirs[f"{name}_layer_norm.{leaf}"][order] for leaf in ("weight", "bias"))
    return {"norm": {"scale": scale, "bias": bias}}


def our_layer(theirs: Arrays, biased: bool, order: np.ndarray) -> Any:
    """A layer as ours; `order` has their index of each of our dimensions of d_model."""
    inner, outer = theirs["fc1.weight"].T[order], theirs["fc2.weight"][order].T
    layer: Any = {
        "feed_forward": {
            "inner": {"kernel": inner, "bias": theirs["fc1.bias"]},
            "outer": {"kernel": outer, "bias": theirs["fc2.bias"][order]},
        },
        "feed_forward_norm": our_norm(theirs, "final", order),
    }
    for name, their_name in ATTENTIONS.items():
        if f"{their_name}.q_proj.weight" in theirs:
            layer[name] = our_attention(theirs, their_name, order)
            layer[f"{name}_norm"] = our_norm(theirs, their_name, order)
            for projection in layer[name].values():
                assert biased or not projection.pop("bias").any()
    return layer


def our_params(theirs: Arrays) -> Any:
    """The tensors of MarianMTModel as our tree.

    Its sinusoids are all sines, then all cosines. Ours alternate.
    """
    tensors, config = within(theirs, "tensor/"), theirs["config"]
    order = np.arange(config.d_model)
    if config.positions == "sinusoidal":
        order = order.reshape(2, -1).T.ravel()
        tree = {"embedding": {"matrix": tensors["model.shared.weight"][:, order]}}
    else:
        tree = {name: {"matrix": tensors[theirs]} for name, theirs in EMBEDDINGS.items()}
        tree["position_table"] = tensors["model.encoder.embed_positions.weight"]
    for side, number in itertools.product(("encoder", "decoder"), range(config.num_layers)):
        layer = within(tensors, f"model.{side}.layers.{number}.")
        tree[f"{side}_{number}"] = our_layer(layer, config.attention_bias, order)
    return tree


def our_model(theirs: Arrays, vocabulary: Path) -> TrainedModel:
    """A run whose model has their tensors."""
    config = Config(model=theirs["config"], data=DataConfig(max_length=16), decoding=GREEDY)
    run, ids = Run("random", 0, config), load_vocabulary(vocabulary)
    module = build_model(run, ids, ids)
    return TrainedModel(run, ids, ids, module, our_params(theirs), "last", [1])


@pytest.fixture(scope="module")
def vocabulary(both_kinds, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    train_vocabulary(from_json(both_kinds["text/corpus"]), 26, path)
    return path


# ---- What is compared ---------------------------------------------------------------------


def test_an_export_has_the_tensors_and_the_settings_of_their_model(theirs, vocabulary, tmp_path):
    write_marian(our_model(theirs, vocabulary), tmp_path)
    written = safetensors.load_file(tmp_path / "model.safetensors")
    for name, tensor in within(theirs, "tensor/").items():
        found = written.pop(name)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, tensor, err_msg=name)
    assert not written
    settings, expected = from_json(tmp_path / "config.json"), from_json(theirs["settings"])
    assert {name: settings[name] for name in expected} == expected


def test_logits_are_theirs(theirs, vocabulary):
    trained, inputs = our_model(theirs, vocabulary), theirs["inputs"]
    apply = jax.jit(trained.module.apply)
    logits: Any = apply({"params": trained.params}, theirs["source"], inputs)
    real = inputs != PAD
    assert_close(np.asarray(logits)[real], theirs["logits"][real], 5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("theirs", ["options"], indirect=True)
def test_greedy_translations_are_theirs(theirs, vocabulary):
    trained, ids = our_model(theirs, vocabulary), {"bos_id": BOS, "eos_id": EOS}
    search: Any = partial(translate, trained.module, decoding=GREEDY, **ids)
    found = jax.jit(search)(trained.params, source=theirs["source"])
    # They end with EOS at the last position, where ours may go on.
    expected = theirs["greedy"][:, :-1]
    np.testing.assert_array_equal(found.tokens[:, 0, : expected.shape[1]], expected)


@pytest.mark.parametrize("theirs", ["paper"], indirect=True)
def test_an_export_has_the_files_of_their_tokenizer_and_its_ids_are_ours(
    theirs, vocabulary, tmp_path
):
    write_marian(our_model(theirs, vocabulary), tmp_path)
    text = {name: from_json(value) for name, value in within(theirs, "text/").items()}
    assert from_json(tmp_path / "vocab.json") == text["vocab"]
    settings = from_json(tmp_path / "tokenizer_config.json")
    assert {name: settings[name] for name in text["settings"]} == text["settings"]
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / name).read_bytes() == vocabulary.read_bytes()
    ours = load_vocabulary(vocabulary)
    for line, ids in zip(text["lines"], text["ids"], strict=True):
        spaces = " ".join(line.split())  # a tab is a space here, and UNK there
        assert ours.encode(line, eos=True) == (
            ids if set("\t\u2028").isdisjoint(line) else ours.encode(spaces, eos=True)
        )
