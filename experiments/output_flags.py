"""The flags of decoding options, which `decoding.request` declares, and of ensembles."""

import re
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from absl import flags

from experiments.cli import FLAGS
from experiments.flag_types import define_integer, define_path
from jax_transformer.config import Config
from jax_transformer.decoding.request import Request, options, request_of
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runs.tasks import TASKS

if TYPE_CHECKING:
    from jax_transformer.runs.trained import Trained

flags.disclaim_key_flags()  # a flag defined here belongs to the command that calls it


def define_output_flags() -> None:
    """Define a flag for each decoding option."""
    for name, option in options().items():
        if name == "prefixes":
            define_path(name, f"File with a line for each line of input: {option.meaning}")
        elif option.kind is bool:
            flags.DEFINE_bool(name, option.default, option.meaning)
        elif option.kind is float:
            flags.DEFINE_float(name, option.default, option.meaning)
        elif option.kind is int:
            define_integer(name, option.default, option.meaning, lower_bound=0)
        elif get_origin(option.kind) is Literal:
            flags.DEFINE_enum(name, option.default, get_args(option.kind), option.meaning)
        else:
            flags.DEFINE_multi_string(name, [], option.meaning)


def requested(config: Config) -> Request:
    """Return the request that the flags describe; of prefixes only that there are some.

    Raises InputError for what a run with these settings does not have.
    """
    given = {name: FLAGS[name].value for name in options()}
    given["prefixes"] = () if FLAGS.prefixes else None
    try:
        request = request_of(given, "translate")
        beam_size, ensemble = config.decoding.beam_size, bool(FLAGS.ensemble)
        TASKS[config.data.task].check(request, beam_size, ensemble=ensemble)
    except InputError as error:
        names = rf"\b({'|'.join(given)})\b(?=[=:;,)]|$| cannot| requires| with| or| \()"
        raise InputError(re.sub(names, r"--\1", str(error))) from None
    return request


def define_ensemble_flags() -> None:
    """Define the flags that `load_models` reads."""
    meaning = (
        "Another run folder: at each token, average the probabilities of its model and --workdir's."
    )
    define_path("ensemble", meaning, several=True)
    flags.DEFINE_list(
        "ensemble_weights",
        None,
        "Weights of the models of --workdir and of each --ensemble, such as 2,1.",
    )


def load_models(folder: RunFolder) -> "Trained":
    """Load the run, or with --ensemble all of them. Raises InputError for wrong weights."""
    from jax_transformer.runs.load import load

    if not FLAGS.ensemble:
        if FLAGS.ensemble_weights:
            raise InputError(
                "--ensemble_weights requires --ensemble; give it too, or remove --ensemble_weights"
            )
        return load(folder, FLAGS.checkpoint)
    try:
        weights = FLAGS.ensemble_weights and [float(weight) for weight in FLAGS.ensemble_weights]
    except ValueError as error:
        raise InputError(f"--ensemble_weights: {error}; give numbers, as in 2,1") from None
    return load([folder, *FLAGS.ensemble], FLAGS.checkpoint, weights)
