"""Our models written as MarianMTModel's folders and read again."""

import dataclasses

import jax
import numpy as np
import pytest

from jax_transformer.config import Config, DataConfig, DecodingConfig, override
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.formats.imported import parameters
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.formats.marian import read_marian, write_marian
from jax_transformer.runs.load import build_model
from jax_transformer.runs.model import TrainedModel
from jax_transformer.runs.run_dir import Run
from jax_transformer.training.train_step import initial_params

pytest.importorskip("safetensors", reason="writes exports: pip install -e '.[export]'")

LINES = ["a b c d e f s", "abc bcd cde def efs"] * 20
SMALL = ["num_layers=2", "d_model=12", "d_ff=20", "num_heads=3"]
DATA = DataConfig(max_length=16, source_language="de", target_language="fr")
DECODING = DecodingConfig(beam_size=3, alpha=0.7, length_penalty="length", max_extra_length=8)
KINDS = {
    "the paper's": [],
    "relatives": [
        *("activation=swish", "decoder_layers=1", "attention_bias=true", "output_bias=true"),
        *("tie_source=false", "norm_epsilon=1e-5", "dropout_rate=0.3"),
    ],
    "untied, learned": ["activation=gelu", "tie_embeddings=false", "positions=learned"],
}
ADDED = {"attention_bias": True, "output_bias": True, "norm_epsilon": 1e-5}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_model_that_is_written_and_read_is_the_same(changes, tmp_path):
    vocabulary = train_vocabulary(LINES, 26, tmp_path / "vocabulary.model")
    settings = [f"model.{change}" for change in (*SMALL, *changes, "max_positions=24")]
    config = override(Config(data=DATA, decoding=DECODING), *settings)
    run = Run("random", 0, config)
    module = build_model(run, vocabulary, vocabulary)
    random = iter(np.random.default_rng(0).standard_normal(100_000).astype(np.float32))
    params = jax.tree.map(
        lambda leaf: np.fromiter(random, np.float32, leaf.size).reshape(leaf.shape),
        jax.eval_shape(lambda: initial_params(module, jax.random.key(0))),
    )
    trained = TrainedModel(run, vocabulary, vocabulary, module, params, "last", [1])
    folder = tmp_path / "written"
    folder.mkdir()
    write_marian(trained, folder)

    read = read_marian(folder)
    found = flat_arrays(parameters(read, Run("read", 0, read.config())))
    for name, array in flat_arrays(params).items():
        np.testing.assert_array_equal(found.pop(name), array, err_msg=name)
    assert all(name.endswith("bias") and not array.any() for name, array in found.items())
    free = {"max_positions": read.model.max_positions}
    assert read.model == dataclasses.replace(config.model, **ADDED, **free)
    assert read.decoding == DECODING
    assert read.config().data == dataclasses.replace(DATA, vocabulary_size=26)
    for line in ("a b c", "", "</s> <pad> \u6f22 s", ">>fra<< a"):
        assert read.source.encode(line) == vocabulary.encode(line)
    ids = vocabulary.encode("abc \u6f22 def")
    assert read.target.decode([*ids, 2, 0]) == "abc \u2047 def"
    assert read.target is read.source
