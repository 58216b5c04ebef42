"""Test sets of the field out of sacreBLEU's own cache, which is only read: nothing is fetched."""

import os
from pathlib import Path

from sacrebleu.dataset import DATASETS

from jax_transformer.config import did_you_mean
from jax_transformer.data.text import ParallelFiles
from jax_transformer.errors import InputError


def cached_test_set(name: str, language_pair: str) -> ParallelFiles:
    """The source and the first reference of a test set such as "wmt14/full", "en-de".

    sacreBLEU keeps them in the folder $SACREBLEU, or else ~/.sacrebleu, as plain text
    without the markup they are published in.

    Raises:
      InputError: sacreBLEU knows no such test set or language pair, or has not fetched it.
    """
    if name not in DATASETS:
        raise InputError(f"--test_set={name}: sacreBLEU knows no such test set{_nearest(name)}")
    pairs = sorted(DATASETS[name].langpairs)
    if language_pair not in pairs:
        raise InputError(
            f"--language_pair={language_pair}: expected one that {name} has, {', '.join(pairs)}; "
            "choose one, or another --test_set"
        )
    # The dataset's own methods would fetch what is missing, some of them even to name the files.
    cache = Path(os.environ.get("SACREBLEU") or Path.home() / ".sacrebleu")
    stem = f"{name.replace('/', '_')}.{language_pair}"
    source = cache / name / f"{stem}.src"
    references = sorted((cache / name).glob(f"{stem}.ref*"))
    if not source.is_file() or not references:
        raise InputError(
            f"expected {name} {language_pair} in {cache / name}, found no {stem}.src and "
            f"{stem}.ref; fetch it with: sacrebleu -t {name} -l {language_pair} --echo src"
        )
    return ParallelFiles(str(source), str(references[0]))


def _nearest(name: str) -> str:
    families = sorted({known for known in DATASETS if known.split("/")[0] == name.split("/")[0]})
    return f"; did you mean {' or '.join(families)}?" if families else did_you_mean(name, DATASETS)
