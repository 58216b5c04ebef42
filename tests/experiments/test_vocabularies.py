"""Runs with vocabularies of each side's own, given by flags."""

import io
import shutil

import numpy as np
import pytest
import sentencepiece
from commands import metrics, only_error, run_command, setting_flags, text_flags
from letters import LETTERS
from refusals import refusal
from small_run import write_run

from jax_transformer.data.sources import Vocabularies
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.runs.load import load
from jax_transformer.runs.request import requested_run
from jax_transformer.runs.run_dir import RunFolder

STEPS = 20


@pytest.fixture(scope="module")
def given(text, tmp_path_factory):
    """The flags of a unigram model with odd ids for the source, subword-nmt's for the target."""
    folder = tmp_path_factory.mktemp("given")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((text / "train.en").read_text(encoding="utf-8").splitlines()),
        model_writer=model,
        model_type="unigram",
        vocab_size=40,
        hard_vocab_limit=False,
        user_defined_symbols=["a b"],
        minloglevel=2,
        unk_id=2,
        bos_id=-1,
        eos_id=0,
        pad_id=-1,
    )
    (folder / "source.model").write_bytes(model.getvalue())
    (folder / "codes").write_text("#version: 0.2\nA B</w>\n", encoding="utf-8")
    pieces = "".join(f"{letter.upper()} 5\n" for letter in LETTERS)
    (folder / "pieces").write_text(pieces, encoding="utf-8")
    return folder


@pytest.mark.release
def test_a_run_with_given_vocabularies_trains_resumes_translates_and_scores(text, given, tmp_path):
    run, copies = tmp_path / "run", shutil.copytree(given, tmp_path / "copies")
    flags = ["--experiment=base", *text_flags(text)]
    flags += setting_flags(training__steps=STEPS, training__evaluate_steps=STEPS)
    flags += [f"--target_vocabulary={copies}/{name}" for name in ("codes", "pieces")]
    flags += [f"--source_vocabulary={copies}/source.model"]
    few = [*flags, "--set=training.checkpoint_steps=10", "--set=training.steps=10"]
    logged = run_command("train", f"--workdir={run}", *few).stderr
    assert f"pieces of {copies}/codes, {copies}/pieces; none is learned\n" in logged
    assert "vocabulary  learning" not in logged
    run_command("train", f"--workdir={run}", f"--set=training.steps={STEPS}")
    assert metrics(run)[-1]["nll"] < metrics(run)[0]["nll"]

    (copies / "pieces").write_text("A 5\nB 4\n", encoding="utf-8")
    error = only_error("train", f"--workdir={run}")
    assert "found another target_vocabulary.model" in error
    shutil.rmtree(copies)
    assert "encoding" not in run_command("train", f"--workdir={run}").stderr  # not needed

    model = load(run)
    source, target = model.vocabulary, model.target_vocabulary
    assert source.pad_id != target.pad_id
    assert model.module.output_pad_id == target.pad_id
    printed = run_command("translate", f"--workdir={run}", stdin=b"a b c\nd e\n").stdout
    assert printed.splitlines() == model.translate(["a b c", "d e"])
    assert set(printed) <= {*"".join(LETTERS).upper(), " ", "\n", "\u2047"}
    pair = [
        np.array([[*ids.encode(line), ids.eos_id]])
        for ids, line in ((source, "d e"), (target, "D E"))
    ]
    expected = log_probabilities(model.module, model.params, *pair, bos_id=target.bos_id)
    assert model.score(["d e"], ["D E"])[0] == pytest.approx(float(expected.sum()), abs=1e-4)
    error = only_error("export", f"--workdir={run}", "--format=marian", f"--output={copies}")
    assert "expected vocabularies of sentencepiece" in error


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with one vocabulary, and a run with two, whose files have these contents."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("one", "two"):
        write_run(folder / name)
    two = RunFolder(folder / "two")
    two.target_vocabulary.write_bytes(two.vocabulary.read_bytes())
    two.manifest.add(two.target_vocabulary, two.target_vocabulary.read_bytes())
    two.manifest.write()
    return folder


BOTH = ("source_vocabulary", "target_vocabulary")
PLACES = {  # what is given -> what is taken
    (("vocabulary", "one"),): {"vocabulary": "one/vocabulary.model"},
    (("vocabulary", "two"),): {
        "source_vocabulary": "two/vocabulary.model",
        "target_vocabulary": "two/target_vocabulary.model",
    },
    (("source_vocabulary", "two"), ("target_vocabulary", "one/vocabulary.model")): {
        "source_vocabulary": "two/vocabulary.model",
        "target_vocabulary": "one/vocabulary.model",
    },
}


@pytest.mark.parametrize("given", PLACES, ids=str)
def test_the_folder_of_a_run_stands_for_its_vocabularies(given, runs, tmp_path):
    paths = {name: str(runs / place) for name, place in given}
    run = requested_run(RunFolder(tmp_path / "new"), "demo", given=paths)
    taken = {name: (str(runs / place),) for name, place in PLACES[given].items()}
    assert run.vocabularies == Vocabularies(**taken)


def test_a_folder_without_a_sound_vocabulary_is_refused_by_its_name(runs, tmp_path):
    new, copy = RunFolder(tmp_path / "new"), shutil.copytree(runs / "one", tmp_path / "copy")
    content = bytearray((copy / "vocabulary.model").read_bytes())
    content[9] ^= 1
    (copy / "vocabulary.model").write_bytes(content)
    (tmp_path / "empty").mkdir()
    for wrong in (copy, tmp_path / "empty"):
        for names in (["vocabulary"], BOTH):
            assert str(wrong) in refusal(
                requested_run, new, "demo", given=dict.fromkeys(names, str(wrong))
            )
