"""The README.md of an exported model: what it is, and the code that runs it."""

from string import Template
from typing import Any

from jax_transformer.runs.loading import TrainedModel

_HEAD = """\
# $experiment, $source_language to $target_language

A Transformer of $num_layers + $num_layers layers, d_model $d_model, $num_heads heads, and $pieces
pieces of a shared vocabulary, from $steps. Sources are cut after $max_source
pieces, as they were in training.

"""


def model_readme(body: str, trained: TrainedModel, **facts: Any) -> str:
    """The shared head and the body, with $names of settings and of `facts` filled in."""
    config = trained.run.config
    steps = [f"{step:,}" for step in trained.steps]
    average = f"the average of steps {steps[0]} to {steps[-1]}"
    facts = {
        **vars(config.model),
        **vars(config.decoding),
        "experiment": trained.run.experiment,
        "source_language": config.data.source_language,
        "target_language": config.data.target_language,
        "pieces": f"{trained.vocabulary.size:,}",
        "steps": f"step {steps[0]}" if len(steps) == 1 else average,
        "max_source": config.data.max_length - 1,
        "max_length": config.data.max_length,
        "max_target": config.data.max_length + config.decoding.max_extra_length,
        **facts,
    }
    return Template(_HEAD + body).substitute(facts)
