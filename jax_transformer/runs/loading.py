"""A trained model out of a run folder: what evaluate, translate and average share."""

from dataclasses import dataclass
from typing import Any

from jax_transformer.config import Config, DecodingConfig, did_you_mean
from jax_transformer.data.encoding import Encoders
from jax_transformer.data.vocabulary import Vocabulary
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer, WordMarks
from jax_transformer.parallel import Devices
from jax_transformer.parsing.labels import LabelVocabulary
from jax_transformer.parsing.parser import Parser
from jax_transformer.parsing.treebank import load_labels
from jax_transformer.runs.checkpoints import restore_average, restore_params
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.training.train_step import abstract_params


@dataclass(frozen=True)
class Trained:
    """A model with its parameters; `steps` are the checkpoints they are made of."""

    run: Run
    vocabulary: Vocabulary
    symbols: LabelVocabulary | None  # that a parser writes
    model: Transformer
    params: Any
    checkpoint: str
    steps: list[int]

    @property
    def encoders(self) -> Encoders:
        """Of both sides."""
        return Encoders(self.vocabulary, self.symbols or self.vocabulary)


def build_model(run: Run, vocabulary: Vocabulary, symbols: LabelVocabulary | None) -> Transformer:
    """The model that a run's settings describe."""
    of_target = symbols.size if symbols else None
    marks = WordMarks(vocabulary.word_starts, symbols.tags) if symbols else None
    model = run.config.model
    return Transformer(model, vocabulary.size, vocabulary.pad_id, of_target, marks)


def load_vocabularies(folder: RunFolder) -> tuple[Vocabulary, LabelVocabulary | None]:
    """What a run folder keeps: of both sides, or of words and, for a parser, of trees."""
    vocabulary = Vocabulary.load(folder.vocabulary)
    parses = folder.need_run().config.data.task == "parsing"
    return vocabulary, load_labels(folder.symbols) if parses else None


def open_translator(
    config: Config,
    model: Transformer,
    params: Any,
    vocabulary: Vocabulary,
    symbols: LabelVocabulary | None,
    decoding: DecodingConfig,
    *,
    devices: Devices | None = None,
    n_best: int = 1,
    scores: bool = True,
) -> Translator:
    """What turns lines into lines: a translator, or where there are symbols of trees a parser.

    scores: False makes a greedy translator faster, and leaves them out; all others have them.
    """
    options = {"max_length": config.data.max_length, "devices": devices, "n_best": n_best}
    if symbols is None:
        return Translator(model, params, vocabulary, decoding, scores=scores, **options)
    return Parser(model, params, vocabulary, symbols, decoding, **options)


def need_translation(run: Run, door: str) -> None:
    """InputError where the run parses: the door is for translation alone."""
    if run.config.data.task == "parsing":
        raise InputError(
            f"experiments.{door}: expected a run that translates, found one that parses; give the "
            "--workdir of another"
        )


def restore(folder: RunFolder, checkpoint: str | None = None) -> Trained:
    """The model of a checkpoint: `averaged`, `last` or a step; None for the best there is."""
    run = folder.need_run()
    if not folder.has_checkpoints():
        raise InputError(
            f"{folder.path}: expected a trained model, found no checkpoint; train it first with "
            f"python -m experiments.train --workdir {folder.quoted}"
        )
    vocabulary, symbols = load_vocabularies(folder)
    model = build_model(run, vocabulary, symbols)
    like = abstract_params(model)
    if checkpoint is None:
        checkpoint = "averaged" if folder.averaged.is_dir() else "last"
    if checkpoint == "averaged":
        if not folder.averaged.is_dir():
            raise InputError(
                f"{folder.path}: expected an averaged model, found none; make it with "
                f"python -m experiments.average --workdir {folder.quoted}"
            )
        steps, params = restore_average(folder.averaged, like)
    elif checkpoint == "last" or checkpoint.isdecimal():
        step = None if checkpoint == "last" else int(checkpoint)
        step, params = restore_params(folder.checkpoints, like, step)
        steps = [step]
    else:
        raise InputError(
            f"--checkpoint={checkpoint}: expected last, averaged or the step of a checkpoint"
            + did_you_mean(checkpoint, ["last", "averaged"])
        )
    return Trained(run, vocabulary, symbols, model, params, checkpoint, steps)
