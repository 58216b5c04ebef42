"""The PyTorch model that we are compared with computes our logits and our loss."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.measuring import BOS_ID, PAD_ID, WORKLOADS, training_batch
from jax_transformer.errors import InputError
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.train_step import (
    abstract_params,
    initial_params,
    make_loss,
    shift_right,
)

torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install -e '.[torch]'")
torch_model = pytest.importorskip("benchmarks.torch_model")

# Values narrower than keys, so that neither is taken for the other.
SMOKE = WORKLOADS["smoke"]
UNEVEN = replace(SMOKE, model=replace(SMOKE.model, num_layers=2, d_v=4))


@pytest.fixture(scope="module")
def ours() -> tuple[Transformer, Any]:
    """Our model and its initial parameters."""
    model = Transformer(UNEVEN.model, UNEVEN.vocabulary_size, PAD_ID)
    init = jax.jit(lambda key: initial_params(model, key))
    return model, jax.device_get(init(jax.random.key(1)))


@pytest.mark.parametrize("setting", ["attention_bias", "output_bias", "norm_position"])
def test_parameters_that_torch_does_not_have_are_refused(setting):
    """New biases are 0, so no loss would show them."""
    value = "pre" if setting == "norm_position" else True
    model = Transformer(replace(SMOKE.model, **{setting: value}), 8, PAD_ID)
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), abstract_params(model))
    with pytest.raises(InputError, match="leave out the settings"):
        torch_model.TorchModel(flat_arrays(params), PAD_ID, SMOKE.length)


@pytest.mark.release
@pytest.mark.parametrize("attention", torch_model.ATTENTIONS)
def test_torch_has_our_logits_and_our_loss(ours, attention):
    model, params = ours
    batch = training_batch(UNEVEN)
    shifted = np.array(shift_right(jnp.asarray(batch.target), BOS_ID))
    source, target, inputs = (
        torch.tensor(np.asarray(side), dtype=torch.int64)
        for side in (batch.source, batch.target, shifted)
    )
    theirs = torch_model.TorchModel(flat_arrays(params), PAD_ID, UNEVEN.length)
    theirs.attend = torch_model.ATTENTIONS[attention]
    with torch.no_grad():
        logits = theirs(source, inputs)
    expected = np.asarray(jax.jit(model.apply)({"params": params}, batch.source, shifted))
    real = np.asarray(batch.target) != PAD_ID
    np.testing.assert_allclose(logits.numpy()[real], expected[real], atol=1e-4)
    sums = jax.jit(make_loss(model, BOS_ID, 0.1))(params, batch)
    loss = float(torch_model.smoothed_loss(logits, target, 0.1, PAD_ID))
    assert loss == pytest.approx(float(sums.smoothed / sums.tokens), rel=1e-5)
