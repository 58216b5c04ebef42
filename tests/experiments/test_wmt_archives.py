"""WMT from its archives, tensorflow-datasets' own builder with TensorFlow, and tokens."""

import gzip
import html
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commands import process_arguments, setting_flags

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


NAME = "wmt14_translate"
STATMT = "http://www.statmt.org"
TRAINING = {
    f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz": "training/europarl-v7.{0}-en.{1}",
    f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz": "commoncrawl.{0}-en.{1}",
    f"{STATMT}/wmt14/training-parallel-nc-v9.tgz": "training/news-commentary-v9.{0}-en.{1}",
}
FRENCH_TRAINING = {
    f"{STATMT}/wmt13/training-parallel-un.tgz": "un/undoc.2000.{0}-en.{1}",
    f"{STATMT}/wmt10/training-giga-fren.tar": "giga-fren.release2.fixed.{1}.gz",
}
DEV = "http://data.statmt.org/wmt19/translation-task/dev.tgz"

Pairs = list[tuple[str, str]]  # English, the other language


def write_archives(data_dir: Path, language: str) -> dict[str, Pairs]:
    """Put archives where a download into `data_dir` would; the pairs in them, by our splits.

    WMT's pairs, so with HTML entities, and without those that have a blank side.
    """
    training = TRAINING | (FRENCH_TRAINING if language == "fr" else {})
    pairs: dict[str, Pairs] = {"train": []}
    for number, (url, layout) in enumerate(training.items()):
        corpus = _pairs(f"{language}{number}", 40)
        pairs["train"] += corpus
        _save(data_dir, url, _texts(layout, language, [*corpus, ("no German", ""), ("", "")]))
    pairs["dev"], pairs["test"] = _pairs("d8", 7), _pairs("d9", 9)
    files = _texts("dev/newstest2013.{1}", language, pairs["dev"])
    for kind, side, index in (("src", language, 1), ("ref", "en", 0)):
        segments = [pair[index] for pair in pairs["test"]]
        files[f"dev/newstest2014-{language}en-{kind}.{side}.sgm"] = _sgm(kind, side, segments)
    _save(data_dir, DEV, files)
    return pairs


def _pairs(name: str, count: int) -> Pairs:
    """Different pairs with entities, an accent, and U+2028, which is no newline here."""
    return [
        (f"dog &amp; {name} &#39;{n}&#39;\u2028x", f"Hund &quot;{name}&quot; \u00e9 {n}")
        for n in range(count)
    ]


def _texts(layout: str, language: str, pairs: Pairs) -> dict[str, bytes]:
    """Both sides of parallel text by their paths in an archive; `.gz` is compressed."""
    files = {}
    for index, side in enumerate(("en", language)):
        path = layout.format(language, side)
        content = "".join(f"{pair[index]}\n" for pair in pairs).encode()
        files[path] = gzip.compress(content) if path.endswith(".gz") else content
    return files


def _sgm(kind: str, language: str, segments: list[str]) -> bytes:
    """A test set as NIST's markup: documents whose segments are counted from 1 in each."""
    lines = [f'<{kind}set setid="newstest2014" srclang="any" trglang="{language}">']
    for first in range(0, len(segments), 4):
        lines += [f'<doc sysid="ref" docid="news.{first}" genre="news" origlang="de">', "<p>"]
        document = segments[first : first + 4]
        lines += [f'<seg id="{n}">{text}</seg>' for n, text in enumerate(document, start=1)]
        lines += ["</p>", "</doc>"]
    return "\n".join([*lines, f"</{kind}set>", ""]).encode()


def _save(data_dir: Path, url: str, files: dict[str, bytes]) -> None:
    """An archive under the name that TFDS gives it for the checksum that it expects of the URL.

    TFDS verifies a checksum when it downloads, and trusts what lies there.
    """
    from etils import epath
    from tensorflow_datasets.core.download import checksums, resource

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz" if url.endswith("gz") else "w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    expected = checksums.get_all_url_infos()[url]
    path = data_dir / "downloads" / NAME / resource.get_dl_fname(url, expected.checksum)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(archive.getvalue())
    resource.write_info_file(url, epath.Path(path), NAME, url.rpartition("/")[2], expected)


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
def test_tokens_and_text_are_those_of_the_archives(tmp_path):
    dataset, language = "wmt14-en-fr", "fr"
    data_dir = tmp_path / "data"
    written = write_archives(data_dir, language)
    flags = setting_flags(data__vocabulary_size=400, data__max_length=64)
    flags += ["--set=data.vocabulary_up_to=true", f"--data_dir={data_dir}"]
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
