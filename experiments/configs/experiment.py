"""What a named experiment is: a delta from the paper's base model, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from experiments.configs.published import Published
from jax_transformer.config import Config, override


@dataclass(frozen=True)
class Experiment:
    """A name's meaning: settings that differ from base, its text, and its place in the paper."""

    purpose: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    # Where no files are given: "demo" and "demo-trees" are the built-in grammar's, a name with a
    # slash a data set of TFDS; "files" has no text of its own, "treebank" and "wsj" no trees.
    corpus: str = "files"
    scored_on: Literal["dev", "test"] = "test"
    table: int | None = None
    group: str = ""
    published: Published = field(default_factory=Published)

    def config(self) -> Config:
        """The resolved settings."""
        # WMT's own files have entities, and TFDS keeps them.
        first = ["data.unescape_html=true"] if "/" in self.corpus else []
        return override(Config(), *first, *(f"{k}={v}" for k, v in self.changes.items()))


# The smallest model with published scores (Wu et al. 2021): 4 + 4 layers of 128.
TINY_MODEL: dict[str, Any] = {
    "model.num_layers": 4,
    "model.d_model": 128,
    "model.d_ff": 256,
    "model.num_heads": 4,
    "model.d_k": 32,
    "model.d_v": 32,
}
