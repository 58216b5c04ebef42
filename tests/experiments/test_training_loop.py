"""When the training loop saves."""

import types

import pytest

from jax_transformer.config import Config, override
from jax_transformer.runs import trainer as training_loop
from jax_transformer.runs.run_dir import Run
from jax_transformer.runs.trainer import Trainer


@pytest.fixture
def trainer():
    """A trainer of which nothing is made but what the question needs."""

    def with_settings(*assignments):
        config = Config()
        for assignment in assignments:
            config = override(config, assignment)
        trainer = Trainer.__new__(Trainer)
        trainer.run = Run("base", 1, config)
        trainer._saved = 1000.0
        return trainer

    return with_settings


def test_checkpoints_come_every_so_many_steps(trainer):
    every = trainer("training.checkpoint_steps=30")
    assert [step for step in range(1, 100) if every._checkpoint_due(step)] == [30, 60, 90]


def test_checkpoints_come_every_so_many_minutes_whatever_the_step(trainer, monkeypatch):
    ten = trainer("training.checkpoint_minutes=10", "training.checkpoint_steps=1")
    for now, due in ((1000.0, False), (1599.0, False), (1600.0, True), (9999.0, True)):
        clock = types.SimpleNamespace(monotonic=lambda now=now: now)
        monkeypatch.setattr(training_loop, "time", clock)
        assert ten._checkpoint_due(7) == due
