"""Every experiment by name."""

from jax_transformer.errors import InputError, did_you_mean
from jax_transformer.presets.paper import TABLE_2, TABLE_3, TABLE_4, Experiment
from jax_transformer.presets.small import SMALL

EXPERIMENTS = {**SMALL, **TABLE_2, **TABLE_3, **TABLE_4}


def find_experiment(name: str) -> Experiment:
    """The experiment of this name. InputError with the nearest name for an unknown one."""
    if name not in EXPERIMENTS:
        raise InputError(
            f"--experiment={name}: unknown experiment{did_you_mean(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]
