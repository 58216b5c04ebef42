"""WMT from its archives: tensorflow-datasets' own builder with TensorFlow, training without."""

import html
import importlib.util
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from commands import process_arguments, run_command, setting_flags
from wmt_archives import write_archives

from jax_transformer.data.token_store import DESCRIPTION, open_store
from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.data.wmt import DATASETS, TfdsCorpus

PYTHON = os.environ.get("TRANSFORMER_TENSORFLOW_PYTHON") or (
    sys.executable if importlib.util.find_spec("tensorflow") else None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PYTHON is None,
        reason="prepares WMT with TensorFlow: pip install -e '.[prepare]', here or in an "
        "environment whose Python $TRANSFORMER_TENSORFLOW_PYTHON names",
    ),
]


def prepare_with_tensorflow(*arguments):
    """The finished process of experiments.prepare."""
    options = process_arguments("prepare", *arguments)
    options["args"][0] = PYTHON
    return subprocess.run(**options, capture_output=True, text=True, check=False)


def decoded(vocabulary, store, side):
    """The text of each sequence, without its end mark."""
    ends = pairwise(store.offsets[side].tolist())
    ids = [store.tokens[side][np.arange(start, end - 1)].tolist() for start, end in ends]
    return vocabulary.decode_batch(ids)


@pytest.mark.release
def test_training_reads_the_pairs_of_the_archives(tmp_path):
    dataset, language = "wmt14-en-fr", "fr"
    data_dir = tmp_path / "data"
    written = write_archives(data_dir, language)
    flags = setting_flags(data__vocabulary_size=400, data__max_length=64, training__steps=3)
    flags += ["--set=data.vocabulary_up_to=true", "--set=decoding.beam_size=1"]
    flags += [f"--data_dir={data_dir}"]
    done = prepare_with_tensorflow(f"--dataset={dataset}", *flags)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("vocabulary ")  # and nothing of other libraries

    corpus, shared = TfdsCorpus(DATASETS[dataset], data_dir), data_dir / "jax_transformer" / dataset
    vocabulary = load_vocabulary(shared / "vocabulary.model")
    for split, expected in written.items():
        rows = [(english, other) for _, english, other in corpus.pairs(split)]
        assert sorted(rows) == sorted(expected)  # TFDS shuffles rows, whole pairs
        text = [tuple(map(html.unescape, pair)) for pair in rows]
        assert text[0][0].startswith("dog & ")
        folder = shared / "tokens" / split
        store = open_store(folder, (folder / DESCRIPTION).read_bytes())
        for side, lines in zip(("source", "target"), zip(*text, strict=True), strict=True):
            assert decoded(vocabulary, store, side) == list(lines)
            if split != "train":
                file = shared / "text" / f"{split}.{side}"
                assert file.read_bytes() == "".join(f"{line}\n" for line in lines).encode()

    folder = tmp_path / "run"
    where = [f"--experiment={dataset}-base", f"--workdir={folder}"]
    trained = run_command("train", *where, *flags)
    assert "from step 0 to 3 steps" in trained.stderr
    assert "encoding" not in trained.stderr
    assert "BLEU" in trained.stdout
    copied, linked = "vocabulary.model", "tokens/train/target.tokens"
    assert (shared / copied).read_bytes() == (folder / copied).read_bytes()
    assert (shared / linked).samefile(folder / linked)
