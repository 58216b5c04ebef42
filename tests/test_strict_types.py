"""JAX's types may be strict, or have 64 bits: jax_numpy_dtype_promotion, jax_enable_x64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_run import SMALL, write_run

import jax_transformer as jt
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.metrics_writer import compilation_events
from jax_transformer.runs.step import stack_params, training_step
from jax_transformer.training.train_step import abstract_params, initial_state

pytestmark = pytest.mark.slow

LINES = ["the door", "we know", ""]


@pytest.fixture(autouse=True, params=[("strict", False), ("standard", True), ("strict", True)])
def types(request):
    promotion, x64 = request.param
    with jax.numpy_dtype_promotion(promotion), jax.enable_x64(x64):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("strict") / "run"
    return write_run(path, "decoding.beam_size=2", "decoding.patience=1.0")


OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "search": (
        {"n_best": 2, "prefixes": ["we", "", ""], "min_length": 2, "without": ["know"]},
        {"n_best": 2, "prefixes": ["", "the", ""], "min_length": 3, "without": ["door"]},
    ),
    "samples": (
        {"samples": 2, "temperature": 0.7, "top_k": 3, "top_p": 0.9, "seed": 1},
        {"samples": 2, "temperature": 1.2, "top_k": 9, "top_p": 0.5, "seed": 2},
    ),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_outputs_and_their_scores_and_that_other_values_compile_nothing(folder, options):
    model, compiled = jt.load(folder), []
    for values in options:
        found = model.translate(LINES, token_scores=True, no_repeat_ngram=2, **values)
        compiled.append(len(compilation_events()))
        assert [len(line) for line in found] == [2, 2, 0]
    assert compiled[1] == compiled[0]
    assert np.isfinite(model.score(["the door"], ["we know"])).all()
    assert model.align(["the door"], ["we know"])[0]


@pytest.mark.release
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


def test_outputs_and_draws_are_those_of_the_usual_types_and_keys(folder):
    def found():
        model = jt.load(folder)
        drawn = model.translate(LINES, samples=3, seed=1)
        return model.translate(LINES), [[sample.text for sample in line] for line in drawn]

    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        expected = found()
    with jax.default_prng_impl("rbg"):  # whose draws depend on the batch
        assert found() == expected


def test_gradients():
    """They are traced, because types are promoted then."""
    config = jt.ModelConfig(num_layers=1, d_model=16, d_ff=32, num_heads=2, **RELATIVE)
    model = Transformer(config, vocabulary_size=20, pad_id=0)
    ones = np.ones((2, 4), np.int32)
    batch = jt.Batch(5 * ones, 6 * ones, ones, ones)
    loss = jt.make_loss(model, bos_id=1, label_smoothing=0.1)
    key = jax.random.key(0)
    params = abstract_params(model)
    gradient, _ = jax.eval_shape(
        lambda params: jt.gradients(loss, params, batch, key, lambda tree: tree, 2), params
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {np.dtype(np.float32)}
    assert jt.learning_rate(jnp.int32(3), 16, 10) > 0


def test_the_step_of_a_run():
    config = jt.override(jt.Config(), *SMALL)
    model = Transformer(config.model, vocabulary_size=20, pad_id=0)
    optimizer, step = training_step(config, model, bos_id=1)
    state = jax.eval_shape(lambda: stack_params(initial_state(model, optimizer, seed=1)))
    ones = np.ones((2, 4), np.int32)
    trained, _ = jax.eval_shape(step, state, jt.Batch(5 * ones, 6 * ones))
    assert jax.tree.map(jnp.shape, trained) == jax.tree.map(jnp.shape, state)
