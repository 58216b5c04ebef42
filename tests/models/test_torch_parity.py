"""The model, its loss, its gradients and Adam against PyTorch's own, recorded and live."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from references import SOURCES, Arrays, reference, within

from benchmarks.numerical_core import (
    ALLOWED,
    differences,
    entropy_of,
    mean_losses,
    optimizer_of,
)


@pytest.fixture(scope="module", params=SOURCES)
def theirs(request) -> Arrays:
    """What PyTorch computed."""
    return reference("torch", request.param)


@pytest.fixture(scope="module")
def found(theirs) -> dict[str, dict[str, float]]:
    """How much differs in a model that begins with torch's weights."""
    return differences(theirs)


@pytest.mark.parametrize("kind", ALLOWED["float32"])
def test_attention_each_layer_each_gradient_and_the_losses_of_training_are_torch_s(found, kind):
    for name, difference in found[kind].items():
        assert difference <= ALLOWED["float32"][kind], name


def test_the_loss_of_torch_s_logits_is_torch_s(theirs):
    smoothed, nll = mean_losses(theirs, jnp.asarray(theirs["output/logits"]))
    expected = theirs["cross_entropy"][0] - entropy_of(theirs)
    assert float(smoothed) == pytest.approx(expected, rel=2e-6)
    assert float(nll) == pytest.approx(theirs["nll"], rel=2e-6)


def test_adam_s_steps_under_the_paper_s_schedule_are_torch_s(theirs):
    arrays, optimizer = within(theirs, "adam/"), optimizer_of(theirs)
    params: Any = arrays["parameters"][0]
    state = optimizer.init(params)
    steps = zip(arrays["gradients"], arrays["parameters"][1:], strict=True)
    for number, (gradient, expected) in enumerate(steps, start=1):
        updates, state = optimizer.update(jnp.asarray(gradient), state, params)
        params = optax.apply_updates(params, updates)
        np.testing.assert_allclose(params, expected, rtol=0, atol=1e-6, err_msg=f"step {number}")
