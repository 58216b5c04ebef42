"""The benchmark against CTranslate2: the same model and words, and what its rows say."""

import json
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import agreement, compare_decoding, ctranslate2_model, run_text
from benchmarks.contender import RefusalError
from benchmarks.contest import Result
from benchmarks.decode import translate_in_steps
from benchmarks.measuring import BOS_ID, EOS_ID, PAD_ID, SHAPES, Timing
from jax_transformer.config import Config, DecodingConfig, ModelConfig, override
from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.errors import InputError
from jax_transformer.export.ctranslate2 import write_ctranslate2_model
from jax_transformer.models.transformer import Transformer
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.training.train_step import abstract_params

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="compares with CTranslate2: pip install -e '.[bench]'"
)

# Not the paper's in anything that CTranslate2 can express too.
CONFIG = ModelConfig(
    num_layers=1,
    d_model=24,
    d_ff=40,
    num_heads=3,
    d_k=5,
    d_v=7,
    positions="learned",
    max_positions=20,
    attention_bias=True,
    tie_embeddings=False,
)
SIZE, STEPS = 40, 6
MODEL = Transformer(CONFIG, SIZE, PAD_ID)
PIECES = ctranslate2_model.random_pieces(SIZE)
SOURCE = jnp.array([[7, 13, 9, 12, EOS_ID], [5, 14, 29, 8, EOS_ID]])
TARGET = jnp.array([[8, 8, 21, EOS_ID], [25, 6, 11, EOS_ID]])


@pytest.fixture(scope="module")
def params() -> Any:
    """Every parameter drawn at random, biases and norms too, so that none goes unnoticed."""
    random = np.random.default_rng(0)

    def drawn(path, leaf):
        around = 1.0 if path[-1].key == "scale" else 0.0
        return (around + 0.3 * random.normal(size=leaf.shape)).astype(np.float32)

    params = jax.tree_util.tree_map_with_path(drawn, abstract_params(MODEL))
    params["output_embedding"]["matrix"][EOS_ID] = 0.0  # so that EOS is never among the likeliest
    return params


@pytest.fixture(scope="module")
def model_folder(params, tmp_path_factory) -> str:
    """The same as a CTranslate2 model."""
    folder = tmp_path_factory.mktemp("model")
    write_ctranslate2_model(params, CONFIG, CONFIG.max_positions, PIECES, folder)
    return str(folder)


def peer(folder: str, **options: Any) -> Any:
    """CTranslate2 in float32 on one thread."""
    from benchmarks.ctranslate2_peer import Peer

    return Peer(folder, "float32", 1, options)


def words(rows: Any) -> list[list[str]]:
    """Ids as pieces, without EOS."""
    return [[PIECES[token] for token in row if token != EOS_ID] for row in rows.tolist()]


def test_ctranslate2_gives_known_translations_our_log_p(params, model_folder):
    ours = log_probabilities(MODEL, params, SOURCE, TARGET, bos_id=BOS_ID).sum(axis=1)
    theirs = peer(model_folder).log_probabilities(words(SOURCE), words(TARGET))
    np.testing.assert_allclose(theirs, ours, rtol=1e-4)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_both_sides_take_the_same_steps_to_the_same_words(params, model_folder, beam_size):
    decoding = DecodingConfig(beam_size=beam_size, max_extra_length=9, alpha=1.0)
    ours = jax.jit(lambda params, rows: translate_in_steps(MODEL, params, rows, decoding, STEPS))(
        params, SOURCE
    )
    options = run_text.peer_options(beam_size, 1.0)
    theirs = peer(model_folder, **options, max_decoding_length=STEPS).translate(words(SOURCE))
    assert [len(output) for output in theirs] == [STEPS, STEPS]
    tokens = np.asarray(ours.tokens)[:, 0]
    assert ((tokens == EOS_ID).argmax(axis=1) == STEPS - 1).all()
    if beam_size == 1:  # Our last token is EOS, theirs is a word.
        expected = [[PIECES[token] for token in row[: STEPS - 1]] for row in tokens]
        assert [output[: STEPS - 1] for output in theirs] == expected


@pytest.mark.skipif(bool(ctranslate2.get_cuda_device_count()), reason="it has a GPU")
def test_ctranslate2_without_the_gpu_that_jax_takes_is_refused(model_folder):
    from benchmarks.ctranslate2_peer import Peer

    with pytest.raises(RefusalError, match=r"^expected CTranslate2 to find the GPU .*=cpu$"):
        Peer(model_folder, "float32", 1, {}, device="cuda")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("data.task=parsing", "expected a run that translates, found one that parses"),
        ("model.d_k=65", "model.d_k=65: expected at most d_model / h = 64"),
        ("model.attention_radius=2", "model.attention_radius=2: expected 0"),
    ],
)
def test_a_run_that_ctranslate2_cannot_be_given_is_refused(change, said, tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_run(Run("base", 1, override(Config(), "model.positions=learned")))
    assert run_text.comparable_run(folder).config.model.positions == "learned"
    folder.write_run(Run("base", 1, override(Config(), change)))
    with pytest.raises(InputError, match=f"^{tmp_path}: {said}.*; name another"):
        run_text.comparable_run(folder)


def test_random_work_is_the_same_sources_and_parameters_on_both_sides(tmp_path, monkeypatch):
    shape = replace(SHAPES["smoke"], vocabulary_size=SIZE)
    monkeypatch.setitem(SHAPES, "smoke", shape)
    ctranslate2_model.write_random(shape, 5, 7, 10, tmp_path)
    sources = json.loads((tmp_path / "sources.json").read_text(encoding="utf-8"))
    with np.load(tmp_path / "work.npz") as work:
        assert work["source"].shape == (5, 7)
        assert sources == words(work["source"])

    from benchmarks.ctranslate2_peer import prepare_random as theirs
    from benchmarks.decoding_work import prepare_random as ours

    decoding = {"beam_size": 2, "max_extra_length": 3}
    jax_side = ours(str(tmp_path), shape="smoke", steps=4, decoding=decoding, scored=2, calls=2)
    options = run_text.peer_options(2, 0.6) | {"max_decoding_length": 4}
    for compute_type in ("float32", "int8"):
        other = theirs(str(tmp_path), compute_type, threads=2, options=options, scored=2, calls=2)
        apart = agreement.scores_apart(jax_side.facts["scores"], other.facts["scores"])
        assert apart < (1e-4 if compute_type == "float32" else 0.1)
        assert other.take_turn() == jax_side.take_turn() == [4] * 5
        assert "workers" in other.facts["about"]


def test_scores_that_differ_and_outputs_of_other_lengths_end_the_comparison():
    facts = {"jax": {"scores": [-10.0, -20.0]}, "ctranslate2": {"scores": [-10.0, -20.001]}}
    agreement.check_scores(facts)
    for wrong in (-20.01, float("nan")):
        facts["ctranslate2"]["scores"][1] = wrong
        with pytest.raises(InputError, match="expected the same log P"):
            agreement.check_scores(facts)
    agreement.check_scores({"jax": {"scores": [1.0]}})

    found = Result(Timing([1.0], 0.0), 1, 1, 0, {}, [[5, 5], [5, 4]])
    with pytest.raises(InputError, match=r"a: expected outputs of 5 tokens, found \[4, 5\]"):
        agreement.check_lengths({"a": found}, 5)


def test_rows_of_the_table_are_sentences_and_speed_to_ours():
    def result(seconds: float, outputs: list) -> Result:
        return Result(Timing([seconds] * 5, 3.0), 5, 5, 200_000_000, {"about": "x"}, [outputs])

    found = {"jax": result(0.5, ["a", "b"]), "ctranslate2": result(0.2, ["a", "c"])}
    ours, theirs = compare_decoding.result_rows("tiny", 4, found, sentences=10, steps=6)
    assert ours[2:6] == ["jax", "20.0", "1.00", "120"]
    assert theirs[2:6] == ["ctranslate2", "50.0", "2.50", "300"]
    assert len(ours) == len(compare_decoding.COLUMNS)
    column = compare_decoding.COLUMNS.index("same")
    assert theirs[column] == "-"
    text_rows = compare_decoding.result_rows("run", 4, found, sentences=10, steps=None)
    assert [row[column] for row in text_rows] == ["100.0%", "50.0%"]


def test_lines_of_a_run_are_its_test_text_taken_again_where_it_is_short(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(InputError, match="expected the run's test or dev text, found none"):
        run_text.run_lines(folder, 3)
    folder.text("dev", "source").parent.mkdir()
    folder.text("dev", "source").write_text("d\n", encoding="utf-8")
    assert run_text.run_lines(folder, 2) == ["d", "d"]
    folder.text("test", "source").write_text("a\n\nb\x85c\n", encoding="utf-8")
    assert run_text.run_lines(folder, 5) == ["a", "", "b\x85c", "a", ""]
    assert run_text.run_lines(folder, 1, str(folder.text("dev", "source"))) == ["d"]


def test_limits_and_penalty_are_those_of_the_run():
    config = Config(decoding=DecodingConfig(alpha=1.5, max_extra_length=7))
    options = run_text.run_options(config, beam_size=3)
    assert options["beam_size"] == 3
    assert options["length_penalty"] == 1.5
    assert options["max_input_length"] == config.data.max_length
    assert options["max_decoding_length"] == config.data.max_length + 7
