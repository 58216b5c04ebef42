"""Nothing relies on JAX's implicit promotion of types: jax_numpy_dtype_promotion=strict."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from small_run import write_run

import jax_transformer as jt
from jax_transformer.models.transformer import Transformer

pytestmark = pytest.mark.slow

LINES = ["the door", "we know", ""]


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("strict") / "run"
    return write_run(path, "decoding.beam_size=2", "decoding.patience=1.0")


OPTIONS: dict[str, dict[str, Any]] = {
    "search": {"n_best": 2, "prefixes": ["we", "", ""]},
    "samples": {"samples": 2, "temperature": 0.7, "top_k": 3, "top_p": 0.9},
}
MASKS = {"min_length": 2, "no_repeat_ngram": 2, "without": ["know"]}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_outputs_and_their_scores(folder, options):
    model = jt.load(folder)
    found = model.translate(LINES, token_scores=True, **MASKS, **options)
    assert [len(line) for line in found] == [2, 2, 0]
    assert np.isfinite(model.score(["the door"], ["we know"])).all()
    assert model.align(["the door"], ["we know"])[0]


def test_parses(tmp_path):
    settings = "data.task=parsing", "data.word_positions=true"
    parser = jt.load(write_run(tmp_path / "run", *settings))
    (found,) = parser.parse(["the door opens"], n_best=2)
    assert any(tree.constrained for tree in found)  # an untrained model writes no trees


RELATIVE: dict[str, Any] = {
    "activation": "gelu", "norm_position": "pre", "positions": "learned", "attention_bias": True,
    "output_bias": True, "tie_embeddings": False, "attention_radius": 2,
    "attention_dropout_rate": 0.1, "remat": "layers",
}  # fmt: skip


def test_gradients():
    """Those of a step of training; optax's Adam itself does not run so."""
    config = jt.ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, **RELATIVE)
    model = Transformer(config, vocabulary_size=20, pad_id=0)
    ones = np.ones((2, 4), np.int32)
    batch = jt.Batch(5 * ones, 6 * ones, ones, ones)
    loss = jt.make_loss(model, bos_id=1, label_smoothing=0.1)
    key = jax.random.key(0)
    params = random_params(model)
    gradient, sums = jax.jit(
        lambda params: jt.gradients(loss, params, batch, key, lambda tree: tree, 2)
    )(params)
    assert jax.tree.all(jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), gradient))
    assert sums.tokens == 8
    assert jt.learning_rate(jnp.int32(3), 16, 10) > 0
