"""The flags of `translate` for what comes out: samples, prefixes, constraints, ensembles."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments.cli import FLAGS
from experiments.flag_types import define_integer, define_path
from jax_transformer.data.text import read_lines
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

if TYPE_CHECKING:
    from jax_transformer.decoding.options import OutputOptions
    from jax_transformer.decoding.translator import Translation
    from jax_transformer.evaluation.bleu import Tokenizer
    from jax_transformer.runs.loading import TrainedModel

flags.disclaim_key_flags()  # a flag defined here belongs to the command that calls it


NUMBERS = {
    "samples": "Draw so many outputs of each line instead of searching.",
    "top_k": "Of samples: draw among the k likeliest tokens; 0: among all.",
    "seed": "Of samples.",
    "min_length": "Minimum number of tokens of an output, with the end mark.",
    "no_repeat_ngram": "No output has so many tokens in a row twice; 0: it may.",
}


def define_output_flags() -> None:
    """Define the flags that `output_options` and `prefixes` read, and those of ensembles."""
    for name, meaning in NUMBERS.items():
        define_integer(name, 0, meaning, lower_bound=0)
    flags.DEFINE_float("temperature", 1.0, "Of samples: log P is divided by it before a draw.")
    flags.DEFINE_float(
        "top_p", 1.0, "Of samples: draw among the likeliest that together have probability p."
    )
    flags.DEFINE_multi_string(
        "without", [], "A word or phrase that no output may contain; repeatable."
    )
    define_path("prefixes", "A file with the beginning of each line's outputs, perhaps blank.")
    flags.DEFINE_bool("inside_word", False, "An output may go on inside its prefix's last word.")
    define_ensemble_flags()


def define_ensemble_flags() -> None:
    """Define the flags that `load_models` reads."""
    meaning = "Another run, averaged with that of --workdir at each token; repeatable."
    define_path("ensemble", meaning, several=True)
    flags.DEFINE_list("ensemble_weights", None, "Weights of --workdir and each --ensemble.")


def check_flags(run: Run, beam_size: int) -> None:
    """Raise InputError for flags that make no sense together or with this run."""
    from jax_transformer.decoding.options import check_together

    names = (
        "n_best samples scores token_scores alignments split_sentences mbr prefixes ensemble "
        "min_length no_repeat_ngram without"
    )
    asked = {name: FLAGS[name].value for name in names.split()}
    for name in ("alignment_layer", "alignment_head"):
        if FLAGS[name].value is not None and not FLAGS.alignments:
            raise InputError(f"--{name}: expected --alignments with it, found none")
    parses = run.config.data.task == "parsing"
    check_together(asked, beam_size=beam_size, parses=parses, mark="--")


def output_options() -> "OutputOptions":
    """Return the options that the flags ask for. Raises InputError if one is out of range."""
    from jax_transformer.decoding.options import OutputOptions

    names = "samples temperature top_k top_p seed min_length no_repeat_ngram without inside_word"
    given: dict[str, Any] = {name: FLAGS[name].value for name in names.split()}
    return OutputOptions(**given)


def chooser(tokenize: "Tokenizer") -> "Callable[[list[Translation]], list[Translation]] | None":
    """Return what --mbr does: a function from the translations of a line to the chosen one."""
    if not FLAGS.mbr:
        return None
    from jax_transformer.evaluation.minimum_bayes_risk import choose_translation

    choose = partial(choose_translation, utility=FLAGS.mbr, tokenize=tokenize)
    return lambda found: [choose(found, drawn=FLAGS.samples > 0)] if found else []


def prefixes() -> Iterator[str] | None:
    """Return the lines of --prefixes, or None without it."""
    return read_lines(FLAGS.prefixes) if FLAGS.prefixes else None


def load_models(folder: RunFolder) -> "TrainedModel":
    """Load the run, or with --ensemble all of them. Raises InputError for wrong weights."""
    from jax_transformer.runs.ensemble import load

    if not FLAGS.ensemble:
        if FLAGS.ensemble_weights:
            raise InputError("--ensemble_weights: expected --ensemble with it, found none")
        return load(folder, FLAGS.checkpoint)
    try:
        weights = FLAGS.ensemble_weights and [float(weight) for weight in FLAGS.ensemble_weights]
    except ValueError as error:
        raise InputError(f"--ensemble_weights: {error}; give numbers, as in 2,1") from None
    return load([folder, *FLAGS.ensemble], FLAGS.checkpoint, weights)
