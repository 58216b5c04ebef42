"""The two tasks of a run, and what differs between them.

A run's task is chosen once, as `run.task`. JAX is imported when a model is made, not before.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jax_transformer.config import Config, ModelConfig
from jax_transformer.data.sources import Corpus, FileCorpus, Sources, Text, Trees
from jax_transformer.decoding.request import Request
from jax_transformer.errors import InputError
from jax_transformer.parsing.treebank import TreebankCorpus, wall_street_journal

if TYPE_CHECKING:
    from jax_transformer.data.vocabularies.base import Vocabulary
    from jax_transformer.decoding.translator import Translator
    from jax_transformer.models.transformer import Transformer
    from jax_transformer.parsing.parser import Parser

TEXT_FILES = [
    f"{split}_{side}" for split in ("train", "dev", "test") for side in ("source", "target")
]
TREE_FILES = ["train_trees", "dev_trees", "test_trees", "extra_trees"]


class _Task:
    """What a run does: `verb` says it, and `name` is its data.task.

    needed(sources, experiment): the flags of the files that an experiment needs.
    corpus(sources): the text of files. search(): the class that turns lines into outputs.
    module(model, config, source, target): the Flax module of settings and vocabularies.
    """

    name: str
    verb: str
    invitation: str  # what a user of the trained model can do
    text: type[Text] | type[Trees]  # what it is trained on, and the names of its files
    files: Sequence[str]
    target_pieces: str  # what the target's own vocabulary holds
    dev_metric: str  # the first score of the development text, of `evaluate.METRICS`
    has_vocabularies = False  # True if a user may give the vocabularies

    def require(self, verb: str, caller: str) -> None:
        """Raise InputError unless this is the task with a verb."""
        if verb != self.verb:
            raise InputError(
                f"{caller}: expected a run that {verb}, found one that {self.verb}; give another "
                "run"
            )

    def check(
        self, request: Request, model: ModelConfig, beam_size: int, *, ensemble: bool
    ) -> None:
        """Raise InputError for decoding options that a model of this task does not have."""
        request.check_model(model, beam_size, ensemble=ensemble)

    def check_references(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Raise InputError for references that outputs of these sources cannot be scored with."""


class Translation(_Task):
    """§6.1, §6.2 From sentences of one language to sentences of another."""

    name, verb, invitation = "translation", "translates", "Translate sentences"
    text, files = Text, TEXT_FILES
    target_pieces, dev_metric, has_vocabularies = "of the target", "bleu", True

    def needed(self, sources: Sources, experiment: str) -> list[str]:
        """Return the flags of parallel text."""
        return TEXT_FILES if sources.test else TEXT_FILES[:4]

    def corpus(self, sources: Sources) -> Corpus:
        """Return parallel text."""
        return FileCorpus(sources.splits())

    def module(
        self, model: ModelConfig, config: Config, source: "Vocabulary", target: "Vocabulary"
    ) -> "Transformer":
        """Return a model that has one embedding if both sides have the same pieces."""
        from jax_transformer.models.transformer import Transformer

        words = source.size, source.pad_id
        if target is source or target.all_pieces == source.all_pieces:
            return Transformer(model, *words)
        return Transformer(model, *words, target.size, target.pad_id)

    def search(self) -> "type[Translator]":
        """Return `Translator`."""
        from jax_transformer.decoding.translator import Translator

        return Translator


class Parsing(_Task):
    """§6.3 From words to a tree over them, which is written as a line of symbols."""

    name, verb, invitation = "parsing", "parses", "Parse sentences"
    text, files = Trees, [*TREE_FILES, "treebank_dir"]
    target_pieces, dev_metric = "tree labels", "f1"

    def check(
        self, request: Request, model: ModelConfig, beam_size: int, *, ensemble: bool
    ) -> None:
        """Raise InputError for options other than n_best and scores."""
        for name in request.given:
            if name not in ("n_best", "scores"):
                raise InputError(
                    f"{name} requires a translation model, found a parser; leave out {name}"
                )
        super().check(request, model, beam_size, ensemble=ensemble)

    def check_references(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> None:
        """Raise InputError unless there is one tree over the words of each source."""
        from jax_transformer.evaluation.parse_scores import check_words

        if references[1:]:
            raise InputError(
                f"references: expected one list of trees, found {len(references)}; give one"
            )
        check_words(sources, references[0])

    def needed(self, sources: Sources, experiment: str) -> list[str]:
        """Return the flags of trees that are needed.

        Raises InputError for other than extra trees beside --treebank_dir.
        """
        spare = [f"--{name}" for name in TREE_FILES[:3] if name in sources.flags()]
        if sources.treebank_dir and spare:
            raise InputError(
                "--treebank_dir: expected it to give all trees, found also "
                f"{' and '.join(spare)}; leave one of them out"
            )
        extra = ["extra_trees"] if experiment == "wsj-semi" else []
        return [*([] if sources.treebank_dir else TREE_FILES[:2]), *extra]

    def corpus(self, sources: Sources) -> Corpus:
        """Return trees."""
        paths = wall_street_journal(sources.treebank_dir) if sources.treebank_dir else {}
        own = {split: [*part.trees] for split, part in sources.splits().items()}
        return TreebankCorpus({**paths, **own})

    def module(
        self, model: ModelConfig, config: Config, source: "Vocabulary", target: "Vocabulary"
    ) -> "Transformer":
        """Return a model from words to symbols, perhaps one that reads the word of each symbol."""
        from jax_transformer.models.transformer import Transformer
        from jax_transformer.parsing.linearize import is_tag
        from jax_transformer.parsing.word_positions import WordTransformer

        sizes = source.size, source.pad_id, target.size
        if not config.data.word_positions:
            return Transformer(model, *sizes)
        tags = bytes(bool(name) and is_tag(name) for name in target.all_pieces)
        return WordTransformer(model, *sizes, word_starts=source.word_starts, tags=tags)

    def search(self) -> "type[Parser]":
        """Return `Parser`."""
        from jax_transformer.parsing.parser import Parser

        return Parser


Task = Translation | Parsing
TASKS: dict[str, Task] = {task.name: task for task in (Translation(), Parsing())}
