"""The flags of `translate` for what comes out: samples, prefixes, constraints, ensembles."""

from collections.abc import Callable, Iterator
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
    """Define the flags that `output_options`, `prefixes` and `load_models` read."""
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
    flags.DEFINE_multi_string(
        "ensemble",
        [],
        "Another run, averaged with that of --workdir at each token; repeatable.",
    )
    flags.DEFINE_list("ensemble_weights", None, "Weights of --workdir and each --ensemble.")


def check_together(run: Run, beam_size: int) -> None:
    """Raise InputError for flags that make no sense together or with this run."""
    parses = run.config.data.task == "parsing"
    n_best, samples = FLAGS.n_best > 1, FLAGS.samples
    if FLAGS.n_best > beam_size and not samples:
        raise InputError(
            f"--n_best={FLAGS.n_best}: expected at most the beam size, {beam_size}; give "
            f"--set decoding.beam_size={FLAGS.n_best}"
        )
    constraints = {name: FLAGS[name].value for name in ("min_length", "no_repeat_ngram", "without")}
    asked = {
        "n_best": n_best,
        "samples": samples,
        "scores": FLAGS.scores,
        "alignments": FLAGS.alignments,
        "split_sentences": FLAGS.split_sentences,
        "mbr": FLAGS.mbr,
        "prefixes": FLAGS.prefixes,
        "ensemble": FLAGS.ensemble,
        **constraints,
    }
    if parses:
        _refuse_beside("a run that parses", asked, _TRANSLATION_ONLY)
    if samples:
        _refuse_beside(f"--samples={samples}", asked, "n_best")
        if not FLAGS.mbr:
            _refuse_beside(f"--samples={samples}", asked, "split_sentences")
    if FLAGS.mbr:
        _refuse_beside(f"--mbr={FLAGS.mbr}", asked, "n_best")
        if max(beam_size, samples) == 1 or samples == 1:
            raise InputError(
                f"--mbr={FLAGS.mbr}: expected several outputs to choose from, found one; give "
                "--set decoding.beam_size=8 or --samples=32"
            )
    if FLAGS.split_sentences:
        _refuse_beside("--split_sentences", asked, "n_best scores alignments prefixes")
    if FLAGS.ensemble:
        _refuse_beside("--ensemble", asked, "alignments")


_TRANSLATION_ONLY = (
    "samples alignments split_sentences mbr prefixes min_length no_repeat_ngram without"
)


def _refuse_beside(what: str, asked: dict[str, Any], names: str) -> None:
    for name in names.split():
        if asked[name]:
            raise InputError(f"--{name}: expected none beside {what}; leave one of them out")


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
    from jax_transformer.evaluation.minimum_bayes_risk import (
        choose_translation,
        minimum_bayes_risk,
    )

    settings: dict[str, Any] = {"utility": FLAGS.mbr, "tokenize": tokenize}

    def choose(found: "list[Translation]") -> "list[Translation]":
        if not found:
            return []
        if FLAGS.samples:  # a probable one is there more often
            return [found[minimum_bayes_risk([each.text for each in found], **settings)]]
        return [choose_translation(found, **settings)]

    return choose


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
