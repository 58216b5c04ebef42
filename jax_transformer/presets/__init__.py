"""Every experiment by name."""

from jax_transformer.config import Config
from jax_transformer.errors import InputError, did_you_mean, expect_a
from jax_transformer.presets.paper import TABLE_2, TABLE_3, TABLE_4, Experiment
from jax_transformer.presets.small import SMALL

EXPERIMENTS = {**SMALL, **TABLE_2, **TABLE_3, **TABLE_4}


def find_experiment(name: str) -> Experiment:
    """Return the experiment of this name.

    Raises InputError with the nearest name if there is none.
    """
    expect_a(str, experiment=name)
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS)
        raise InputError(f"experiment={name}: there is no such experiment{hint}")
    return EXPERIMENTS[name]


def experiment(name: str) -> Config:
    """Return the settings of an experiment, as `python -m experiments.train` has them.

    Raises InputError with the nearest name for an unknown one.

    >>> experiment("table3-A-h1").model.num_heads
    1
    """
    return find_experiment(name).config()


def experiments() -> dict[str, str]:
    """Return the name of every experiment, with its purpose.

    >>> experiments()["table3-A-h1"]
    'Table 3: model.num_heads=1 model.d_k=512 model.d_v=512'
    """
    return {name: found.purpose for name, found in EXPERIMENTS.items()}
