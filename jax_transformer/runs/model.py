"""A trained model, and an ensemble of several (§6): see `load`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_transformer.checks import is_whole
from jax_transformer.config import DecodingConfig
from jax_transformer.data.sources import Sources
from jax_transformer.data.text import single_line
from jax_transformer.data.vocabularies.base import Vocabulary
from jax_transformer.decoding.alignments import Alignment, AttentionMap, align_pairs, maps_of_pair
from jax_transformer.decoding.ensemble import Ensemble
from jax_transformer.decoding.line_search import LineSearch
from jax_transformer.errors import InputError, expect_a
from jax_transformer.files import whole_folder, write_bytes
from jax_transformer.models.transformer import Transformer, as_computed
from jax_transformer.runs.run_dir import IMPORTED, Run, RunFolder, step_range
from jax_transformer.runs.trained import Trained, all_devices, languages_of, pairs_of
from jax_transformer.training.train_step import abstract_params
from jax_transformer.types import Params


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel(Trained):
    """A trained model with its vocabulary, made by `load`.

    Methods: `translate`, `score`, `align` and `attention_maps` for a run that translates, `parse`
    for one that parses; `evaluate` scores outputs on a text. `with_params(params)` is the same
    model with other parameters, `save(folder)` writes it as a run, and `export(format, output)` for
    another program. Attributes, to do anything else:

    module: the Flax module, `module.apply({"params": params}, source, target)` gives logits; a
      row of source is `vocabulary.encode(line, eos=True)`, one of target begins with BOS
    params: its parameters, a tree of arrays
    config: every setting of the run
    vocabulary: the map from text to token ids and back; of the words alone if the run parses
    target_vocabulary: that of the target, the same object if one serves both sides; the labels of
      trees if the run parses
    run: the description of the training: experiment, seed, files
    checkpoint, steps: the checkpoint's name, and the training steps that it is the mean of
    scores: the scores of this checkpoint in the run's results.json, the newest last
    """

    run: Run
    vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    module: Transformer
    params: Params
    checkpoint: str
    steps: list[int]
    scores: list[dict[str, Any]] = field(default_factory=list)
    _translators: dict[DecodingConfig, LineSearch] = field(default_factory=dict, init=False)
    _copied: list[Any] = field(default_factory=list, init=False)  # the arrays of `on_devices`

    @property
    def description(self) -> str:
        """A description of the model: `demo, averaged checkpoint, steps 2,100 to 2,500`."""
        return f"{self.run.experiment}, {self.checkpoint} checkpoint, {step_range(self.steps)}"

    def __repr__(self) -> str:
        """Describe run, checkpoint, languages and sizes in one line."""
        model = self.config.model
        return (
            f"<TrainedModel: {self.description}; {languages_of(self)}; "
            f"{model.num_layers} + {model.num_decoder_layers} layers, d_model {model.d_model}, "
            f"{_size(self.params):,} parameters>"
        )

    def with_params(self, params: Params) -> "TrainedModel":
        """Return the same model with other parameters; this one stays as it is.

            model.with_params(jax.tree.map(jnp.zeros_like, model.params)).translate(["Who sleeps?"])

        params: a tree with the names and shapes of `model.params`, whose types they get. Compiled
        functions are shared. Raises InputError for other names or shapes.
        """
        like = abstract_params(self.module)
        same = jax.tree.structure(params) == jax.tree.structure(like)  # dicts, not FrozenDicts
        if not same or jax.tree.map(jnp.shape, params) != jax.tree.map(jnp.shape, like):
            raise InputError(
                "with_params: expected a tree of dicts with the names and shapes of model.params, "
                "found another; change the values alone"
            )
        params = jax.tree.map(_of_type, params, like)  # those of another type could not be loaded
        model = replace(self, params=params, scores=[])
        for key, translator in [*self._translators.items()]:  # a thread may add one
            model._translators[key] = translator.with_params(model.on_devices)
        return model

    def save(self, folder: str | Path) -> None:
        """Write the model as a run: load, translate, score, export or continue from it.

            model.with_params(params).save("runs/changed")

        folder: the run folder to make, or its URL in a bucket. It has no text, so this run itself
          cannot be trained further; another run can continue from it by `init_from`. Raises
          InputError if a run is there.
        """
        run = replace(self.run, sources=Sources(), vocabularies=None, initial=None, corpus=IMPORTED)
        params = jax.device_get(self.params)
        model = self.vocabulary, self.target_vocabulary, params, self.steps
        write_model(RunFolder(folder), run, *model)

    def export(self, format: str, output: str | Path, *, quantization: str | None = None) -> None:
        """Write the model for programs without JAX, with a README.md that explains how to run it.

            model.export("ctranslate2", "exported")
            model.export("ctranslate2", "exported-int8", quantization="int8")

        format: "ctranslate2"; "marian", which transformers reads as MarianMTModel; or
          "safetensors", the arrays by name. docs/export.md describes them.
        output: the folder to write, new or empty; it is written whole or not at all.
        quantization: "int8", a quarter of the size, for "ctranslate2"; None for float32.

        Raises InputError for another format or quantization, a folder that is not empty, a model
        that the format cannot express, or a missing package of the extra `export`.
        """
        from jax_transformer.formats import export_model  # formats/ is above this package

        export_model(self, format, output, quantization)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        layer: int | None = None,
        head: int | None = None,
    ) -> list[Alignment]:
        """Return which words of each pair belong together, by the attention over the source.

            model.align(["The dog sleeps."], ["Der Hund schläft."])   # [[(0, 0), (1, 1), (2, 2)]]

        sources, targets: two lists of N sentences; targets[i] translates sources[i].
        layer: the decoder's layer, from 0; None is the second-to-last, or the last of two. head: a
          head, from 0; None takes the mean of the heads.

        The result has for each pair a list of (source word, target word), counted from 0. Words
        are separated by spaces; in scripts that put none between words, each letter is a word.
        Each target word belongs to one source word; a blank side gives []. Words after the first
        config.data.max_length - 1 tokens of a source, or after the first config.data.max_length +
        config.decoding.max_extra_length - 1 tokens of a target, have no partner.

        Raises InputError for one str in place of a list, lists of different lengths, a layer or
        head that the model does not have, or a run that parses.
        """
        self.run.task.require("translates", "align")
        pairs = list(zip(*pairs_of("align", sources, targets), strict=True))
        translator = self._cached_translator(self.config.decoding)
        chosen = [int(n) if is_whole(n) else n for n in (layer, head)]  # of NumPy, too
        return align_pairs(translator, pairs, layer=chosen[0], head=chosen[1], first=None)

    def attention_maps(self, source: str, target: str) -> dict[str, AttentionMap]:
        """Return the attention weights of every layer and head on one sentence pair (§3.2.3).

            maps = model.attention_maps("The dog sleeps.", "Der Hund schläft.")
            weights, queries, keys = maps["decoder_0/cross_attention"]
            weights.shape                                   # (heads, len(queries), len(keys))

        The keys of the result are "encoder_N/self_attention", "decoder_N/self_attention" and
        "decoder_N/cross_attention". The pieces of a source end with the end mark. The pieces of
        the decoder are those that it reads, from the begin mark on; each position predicts the
        next one.

        Raises InputError for a blank sentence, one of more than config.data.max_length tokens, or a
        run that parses.
        """
        self.run.task.require("translates", "attention_maps")
        expect_a(str, source=source, target=target)
        pair = single_line(source, "source"), single_line(target, "target")
        return maps_of_pair(self._cached_translator(self.config.decoding), *pair)

    def _decoded(self) -> tuple[Sequence[Transformer], Params, Ensemble | None]:
        now = jax.tree.leaves(self.params)
        if self._copied and [*map(id, now)] != [*map(id, self._copied)]:
            raise InputError(
                "params: expected the arrays that the model began with, found others in their "
                "place; take model.with_params(params)"
            )
        return [self.module], self.params, None

    @cached_property
    def on_devices(self) -> Params:
        """The parameters on all devices: one copy for everything that the model computes."""
        config = self.config.model
        self._copied[:] = jax.tree.leaves(self.params)
        for leaf in self._copied:  # a change in place would not reach the devices
            if isinstance(leaf, np.ndarray):
                leaf.flags.writeable = False
        devices = all_devices(config.compute_dtype)
        transposed = devices.prefer_transposed
        return devices.replicate(as_computed(self.params, config, transposed=transposed))


@dataclass(frozen=True, eq=False, repr=False)
class TrainedEnsemble(Trained):
    """Trained models whose probabilities are averaged at each token, made by `load`.

    It translates and scores, or parses, as a `TrainedModel` does, with the settings of the first.

    members: the models, of one task and vocabulary
    weights: the weight of each in the mean; their sum is 1
    """

    members: tuple[TrainedModel, ...]
    weights: tuple[float, ...]
    _is_ensemble = True
    _translators: dict[DecodingConfig, LineSearch] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Take the run and the vocabularies of the first member."""
        for name in ("run", "vocabulary", "target_vocabulary"):
            object.__setattr__(self, name, getattr(self.members[0], name))

    @property
    def description(self) -> str:
        """The descriptions of all members."""
        return "an ensemble of " + " and ".join(member.description for member in self.members)

    def __repr__(self) -> str:
        """Describe the whole in one line: the members with their weights, and their sizes."""
        both = zip(self.weights, self.members, strict=True)
        each = "; ".join(f"{weight:.3g} x {member.description}" for weight, member in both)
        size = sum(_size(member.params) for member in self.members)
        return (
            f"<TrainedEnsemble of {len(self.members)} models: {each}; "
            f"{languages_of(self)}; {size:,} parameters in all>"
        )

    @cached_property
    def on_devices(self) -> Params:
        """The copies of its members on all devices."""
        return [member.on_devices for member in self.members]

    def _decoded(self) -> tuple[Sequence[Transformer], Params, Ensemble | None]:
        modules = tuple(member.module for member in self.members)
        params = [member._decoded()[1] for member in self.members]
        return modules, params, Ensemble(modules, self.weights)


def _of_type(array: Any, like: Any) -> Any:
    if getattr(array, "dtype", None) != like.dtype:
        return np.asarray(array, like.dtype)
    # The caller may go on to change an array of NumPy in place.
    return array.copy() if isinstance(array, np.ndarray) and array.flags.writeable else array


def _size(params: Params) -> int:
    return sum(array.size for array in jax.tree.leaves(params))


def write_model(
    folder: RunFolder,
    run: Run,
    source: Vocabulary,
    target: Vocabulary,
    params: Params,
    steps: list[int],
) -> None:
    """Write settings, vocabularies, manifest and the parameters, as an averaged model.

    source, target: the same object if one vocabulary serves both sides. steps: the training steps
    that the parameters are the mean of.

    Raises InputError if the folder has a run, or files of one. Nothing is left behind then, nor if
    a file cannot be written.
    """
    from jax_transformer.runs.averages import save_average  # Orbax takes a second to import

    folder.check_new()
    with whole_folder(folder.path) as path:
        building = RunFolder(path)
        contents = {building.vocabulary: source.content}
        if target is not source:
            contents[building.target_vocabulary] = target.content
        building.write_run(run)
        for file, content in contents.items():
            write_bytes(file, content)
            building.manifest.add(file, content)
        building.manifest.write()
        save_average(building.averaged, params, steps, building.manifest.copy())
    with folder.written():  # only now: copying to a bucket makes the folder
        pass
