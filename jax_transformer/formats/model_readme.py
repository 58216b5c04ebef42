"""The README.md of an exported model: what it is, and the code that runs it."""

from pathlib import Path
from string import Template

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


def write_readme(trained: TrainedModel, out: Path, template: str, **facts: str) -> None:
    """Write README.md into the folder `out`: a file of readmes/ with its $names filled in.

    facts: names and values in addition to those of the settings.
    """
    config = trained.config
    steps = step_range(trained.steps)
    names = {
        **vars(config.model),
        **vars(config.decoding),
        "decoder_layers": config.model.num_decoder_layers,
        "penalty": _PENALTIES[config.decoding.length_penalty],
        "experiment": trained.run.experiment,
        "source_language": config.data.source_language,
        "target_language": config.data.target_language,
        "pieces": f"{trained.vocabulary.size:,}",
        "steps": steps if len(trained.steps) == 1 else f"the average of {steps}",
        "max_source": config.data.max_length - 1,
        "max_length": config.data.max_length,
        "max_target": config.data.max_length + config.decoding.max_extra_length,
        **facts,
    }
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    write_text(out / "README.md", Template(text).substitute(names))
