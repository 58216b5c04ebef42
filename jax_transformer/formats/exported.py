"""Parts of every exported folder: vocabularies, and a README.md with the code that runs it."""

from pathlib import Path
from string import Template

from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.runs.loading import TrainedModel
from jax_transformer.runs.run_dir import step_range

TEMPLATES = Path(__file__).parent / "readmes"

_PENALTIES = {
    "gnmt": """\
the nearest to what the model
  was scored with, not the same. Here log P is divided by |y|^alpha, in the paper by
  ((5 + |y|) / 6)^alpha. Choose it anew on development text.""",
    "length": """\
those of the model. Log P is divided by
  |y|^alpha, as it was there.""",
}


def text_vocabularies(trained: TrainedModel) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of source and target, each with a model of sentencepiece.

    Raises InputError for vocabularies without one.
    """
    source, target = trained.vocabulary, trained.target_vocabulary
    if not (source.sentencepiece and target.sentencepiece):
        raise InputError(
            "expected vocabularies of sentencepiece, found others, which the folder cannot hold; "
            "no format can express them"
        )
    return source, target


def shared_vocabulary(trained: TrainedModel) -> Vocabulary:
    """Return the vocabulary that serves both sides, with a model of sentencepiece.

    Raises InputError if there are two, or one without such a model.
    """
    source, target = text_vocabularies(trained)
    if source is not target:
        raise InputError(
            "expected one vocabulary for both sides, found separate ones, which the folder cannot "
            "hold; export with --format=marian"
        )
    return source


def _origin(trained: TrainedModel) -> dict[str, str]:
    if trained.run.imported_from:
        return {"origin": "which another program trained", "as_trained": ""}
    steps = step_range(trained.steps)
    steps = steps if len(trained.steps) == 1 else f"the average of {steps}"
    return {"origin": f"from {steps}", "as_trained": ", as they were in training"}


def write_readme(trained: TrainedModel, out: Path, template: str, **facts: str) -> None:
    """Write README.md into the folder `out`: a file of readmes/ with its $names filled in.

    facts: names and values in addition to those of the settings.
    """
    config, source, target = trained.config, trained.vocabulary, trained.target_vocabulary
    pieces = f"{source.size:,}"
    if target.all_pieces != source.all_pieces:
        pieces = f"{pieces} source and {target.size:,} target"
    languages = config.data.languages
    names = {
        **vars(config.model),
        **vars(config.decoding),
        "decoder_layers": config.model.num_decoder_layers,
        "penalty": _PENALTIES[config.decoding.length_penalty],
        "experiment": trained.run.experiment,
        **_origin(trained),
        "languages": f", {languages}" if languages else "",
        "pieces": pieces,
        "max_source": config.data.max_length - 1,
        "max_length": config.data.max_length,
        "max_target": config.data.max_length + config.decoding.max_extra_length,
        **facts,
    }
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    write_text(out / "README.md", Template(text).substitute(names))
