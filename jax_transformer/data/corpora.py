"""The corpora that a run trains on: their names, their files, and their shares of an epoch.

The first is "train", the others "train_2", "train_3" and so on, and "extra" are a parser's extra
trees. Each has a token store of its own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from jax_transformer.config import DataConfig
from jax_transformer.data.text import listed_paths
from jax_transformer.data.urls import absolute
from jax_transformer.errors import InputError
from jax_transformer.files import check_regular


def training_splits(splits: Iterable[str]) -> list[str]:
    """Return the splits that are trained on, in order.

    >>> training_splits(["train_10", "extra", "dev", "train_2", "train"])
    ['train', 'train_2', 'train_10', 'extra']
    """
    splits = sorted(splits, key=lambda split: (len(split), split))
    own = [split for split in splits if split.partition("_")[0] == "train"]
    return own + [split for split in splits if split == "extra"]


def named_files(
    given: Mapping[str, str | Sequence[str]], known: Collection[str] = ()
) -> dict[str, Any]:
    """Return the files of a run by name, as absolute paths with commas between.

    Paths that have commas themselves are in a list.

    given: paths with commas between, by the name of their flag, as in {"dev_source": "a.en,b.en"}.
    A list has a text of such paths for each corpus: {"train_source": ["a.en,b.en", "c.en"]} gives
    "train_source" and "train_2_source".
    known: the absolute paths of the run so far; these files may have been moved away.

    Raises InputError if one side has more corpora than the other, if anything but training text is
    of several, or if a path is a pipe or a device.
    """
    lists = {n: [value] if isinstance(value, str) else [*value] for n, value in given.items()}
    sources, targets = (len(lists.get(f"train_{side}", ())) for side in ("source", "target"))
    if sources != targets and sources and targets:
        raise InputError(
            "expected --train_target as often as --train_source, once for each corpus, found "
            f"{targets} and {sources}; give both for each (several files of a corpus have commas "
            "between them)"
        )
    named: dict[str, Any] = {}
    for name, corpora in lists.items():
        split, _, kind = name.partition("_")
        if split != "train" and len(corpora) > 1:
            raise InputError(
                f"--{name}: expected it once, found it {len(corpora)} times; give several files "
                "with commas between them"
            )
        for number, value in enumerate(corpora, start=1):
            paths = [*map(absolute, listed_paths(value, known))]
            for path in paths:
                check_regular(path)  # training reads it more than once
            place = name if number == 1 else f"{split}_{number}_{kind}"
            named[place] = paths if "," in "".join(paths) else ",".join(paths)
    return named


def check_weights(data: DataConfig, splits: Iterable[str]) -> None:
    """Raise InputError unless there is a weight for each corpus, or none."""
    corpora = [split for split in training_splits(splits) if split != "extra"]
    if data.weights and len(data.weights) != len(corpora):
        raise InputError(
            f"data.train_weights={data.train_weights}: expected a number for each corpus, found "
            f"{len(data.weights)} for {len(corpora)}; give --train_source and --train_target, or "
            "--train_trees, once for each corpus, and as many weights"
        )


def pairs_of_epoch(sizes: Mapping[str, int], data: DataConfig) -> list[int | None]:
    """Return the number of pairs that an epoch draws from each corpus; None: all of them, once.

    sizes: the number of pairs of each corpus, in the order of `training_splits`.

    With weights an epoch has about as many pairs as the corpora together, and a corpus that part
    of them which its weight is of all weights. Extra trees come on top, as data.extra_share says.

    >>> pairs_of_epoch({"train": 900, "train_2": 100}, DataConfig(train_weights="1,1"))
    [500, 500]
    >>> pairs_of_epoch({"train": 60, "extra": 9000}, DataConfig(extra_share=0.25))
    [None, 20]
    """
    own = sum(size for split, size in sizes.items() if split != "extra")
    total = sum(data.weights)
    counts: list[int | None] = [max(round(own * one / total), 1) for one in data.weights]
    counts = counts or [None for split in sizes if split != "extra"]
    if "extra" in sizes:
        wanted = round(own * data.extra_share / (1 - data.extra_share))
        counts.append(wanted if sizes["extra"] else 0)
    return counts
