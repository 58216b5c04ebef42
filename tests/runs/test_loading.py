"""The public API: load a run, translate, score, parse and look at attention."""

import contextlib
import copy
import dataclasses
import math
import os
import pickle
import runpy
import shutil
import signal
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import sacrebleu
from flax.core import freeze
from refusals import refusal
from small_run import write_run

import jax_transformer as jt
from jax_transformer.config import Config, override
from jax_transformer.data.manifest import NAME
from jax_transformer.parallel import Devices
from jax_transformer.runs.metrics_writer import compilation_events
from jax_transformer.runs.run_dir import Run, RunFolder
from jax_transformer.runs.trained import KEPT, all_devices


@pytest.fixture(scope="module")
def model(small_run):
    return jt.load(small_run)


@pytest.fixture(scope="module")
def parser_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "parsing"
    return write_run(path, "data.task=parsing", "decoding.beam_size=1")


@pytest.fixture(scope="module")
def parser(parser_run):
    return jt.load(parser_run)


def test_each_checkpoint_has_its_own_parameters_and_the_averaged_ones_come_first(small_run, model):
    last, first = jt.load(small_run, "last"), jt.load(small_run, 1)
    steps = [(m.checkpoint, m.steps) for m in (model, last, first, jt.load(small_run, "1"))]
    assert steps == [("averaged", [1, 2]), ("last", [2]), ("1", [1]), ("1", [1])]
    matrices = [m.params["embedding"]["matrix"] for m in (model, last, first)]
    assert not np.array_equal(matrices[0], matrices[1])
    assert not np.array_equal(matrices[1], matrices[2])


def test_without_a_whole_averaged_model_the_last_checkpoint_is_loaded(small_run, tmp_path):
    run = shutil.copytree(small_run, tmp_path / "run")
    (run / "averaged" / "1").rename(run / "averaged" / "1.orbax-checkpoint-tmp")
    assert jt.load(run).checkpoint == "last"  # as if the process was killed while it averaged
    assert "experiments.average" in refusal(jt.load, run, "averaged")


def test_a_changed_file_is_refused_by_name(parser_run, tmp_path):
    run = shutil.copytree(parser_run, tmp_path / "run")
    for name in ("config.json", "vocabulary.model", "target_vocabulary.model", NAME):
        content = (run / name).read_bytes()
        for changed in (content[:-1], bytes([content[0] ^ 1]) + content[1:]):
            (run / name).write_bytes(changed)
            assert name in refusal(jt.load, run)
        (run / name).unlink()
        assert name in refusal(jt.load, run)
        (run / name).write_bytes(content)
    jt.load(run)


def test_a_checkpoint_of_another_run_is_refused_by_what_differs(small_run, parser_run, tmp_path):
    ours = shutil.copytree(small_run, tmp_path / "run")
    shutil.rmtree(ours / "averaged")
    shutil.copytree(parser_run / "averaged", ours / "averaged")
    assert "data.task='translation' instead of 'parsing'" in refusal(jt.load, ours)
    jt.load(ours, "last")


def test_a_checkpoint_that_is_not_there_is_refused(small_run, tmp_path):
    assert "did you mean averaged?" in refusal(jt.load, small_run, "averagd")
    assert "expected checkpoint 7" in refusal(jt.load, small_run, 7)
    assert "expected a run folder" in refusal(jt.load, tmp_path)
    folder = RunFolder(tmp_path / "untrained")
    folder.write_run(Run("base", 1, Config()))
    assert "found no checkpoint" in refusal(jt.load, folder.path)


@pytest.mark.slow
def test_translate_gives_a_string_for_each_line_and_with_n_best_a_list_of_them(model):
    texts = model.translate(["we know", "", "the door"])
    assert [type(text) for text in texts] == [str, str, str]
    assert texts[1] == ""
    best = model.translate(["we know", "", "the door"], n_best=1)
    assert [[found.text for found in each] for each in best] == [[texts[0]], [], [texts[2]]]


@pytest.mark.slow
def test_other_parameters_count_in_every_answer_and_the_model_stays_as_it_is(model):
    pair = ["we know"], ["it rains"]
    before = model.translate(pair[0], n_best=1)[0][0], model.score(*pair)
    zeroed = model.with_params(jax.tree.map(np.zeros_like, model.params))
    replaced = dataclasses.replace(model, params=zeroed.params)
    tokens = len(model.vocabulary.encode("it rains")) + 1
    uniform = -tokens * math.log(model.vocabulary.size)  # all logits are zero
    for other in (zeroed, replaced):
        assert other.score(*pair)[0] == pytest.approx(uniform, rel=1e-5)
        (best,) = other.translate(pair[0], n_best=1)[0]
        best_possible = -best.num_tokens * math.log(model.vocabulary.size)
        assert best.log_prob == pytest.approx(best_possible, rel=1e-5)
        maps = other.attention_maps(pair[0][0], pair[1][0])
        weights, _, keys = maps["decoder_0/cross_attention"]
        np.testing.assert_allclose(weights, 1 / len(keys), rtol=1e-5)
    assert (model.translate(pair[0], n_best=1)[0][0], model.score(*pair)) == before


def test_parameters_of_another_type_are_saved_as_what_can_be_loaded(model, tmp_path):
    doubles = jax.tree.map(lambda leaf: np.float64(0.5) * leaf, model.params)
    model.with_params(doubles).save(tmp_path / "halved")
    found = jt.load(tmp_path / "halved").params
    assert jax.tree.all(jax.tree.map(np.array_equal, found, doubles))


def test_parameters_change_only_as_a_whole(model):
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.params = {}
    with pytest.raises(ValueError, match="read-only"):
        model.params["embedding"]["matrix"][0] = 0
    cut = jax.tree.map(lambda leaf: leaf[..., :1], model.params)
    for wrong in ({}, cut, freeze(model.params)):
        assert "with_params: expected" in refusal(model.with_params, wrong)
    own = model.with_params(model.params)
    before = own.score(["we know"], ["it"])
    own.params["embedding"]["matrix"] = np.zeros_like(model.params["embedding"]["matrix"])
    assert "model.with_params(params)" in refusal(own.translate, ["we know"])
    changed = own.with_params(own.params)
    assert changed.score(["we know"], ["it"]) != before


def test_attention_maps_have_pieces_on_their_axes_and_those_of_other_lengths_compile_nothing(model):
    compiled, vocabulary = compilation_events(), model.vocabulary
    pairs = [("we know", "it"), ("we", "it rains"), ("the pupil opens", "the old teacher")]
    maps = [model.attention_maps(*pairs[0])]
    before = len(compiled)
    maps += [model.attention_maps(*pair) for pair in pairs[1:]]
    assert len(compiled) == before
    unpadded = jax.jit(partial(jt.attention_maps, model.module))
    for (source, target), found in zip(pairs[::2], maps[::2], strict=True):
        source_ids = np.array([[*vocabulary.encode(source), vocabulary.eos_id]])
        target_ids = np.array([[vocabulary.bos_id, *vocabulary.encode(target)]])
        expected = unpadded(model.params, source_ids, target_ids)
        assert found.keys() == expected.keys()
        for name, (weights, queries, keys) in found.items():
            np.testing.assert_allclose(weights, expected[name][0], atol=1e-6)
            assert weights.shape == (2, len(queries), len(keys))
    cross, decoder = (maps[1][f"decoder_0/{kind}_attention"] for kind in ("cross", "self"))
    assert cross.keys == maps[1]["encoder_0/self_attention"].keys
    assert (cross.queries[0], cross.keys[-1]) == ("<s>", "</s>")
    assert "".join(cross.queries[1:]).replace("\u2581", " ").strip() == "it rains"
    assert decoder.keys == decoder.queries == cross.queries
    assert np.triu(decoder.weights, k=1).max() == 0


def test_all_that_a_model_computes_shares_one_copy_of_its_parameters(small_run, monkeypatch):
    model, copies = jt.load(small_run), []
    replicate = Devices.replicate

    def recorded(devices, tree):
        copies.append(tree)
        return replicate(devices, tree)

    monkeypatch.setattr(Devices, "replicate", recorded)
    for beam_size in (1, 2):
        decoding = dataclasses.replace(model.config.decoding, beam_size=beam_size)
        assert model.translator(decoding).params is model.translator().params
    model.score(["we know"], ["it rains"])
    maps = model.attention_maps("we know", "it rains")
    again = model.attention_maps("we know", "it rains")
    assert len(copies) == 1
    for name, (weights, *_) in again.items():
        np.testing.assert_array_equal(weights, maps[name].weights)


def test_in_bfloat16_the_devices_have_matrices_of_that_type_and_the_host_float32(small_run):
    model = jt.load(small_run)
    config = override(model.config, "model.compute_dtype=bfloat16")
    model = dataclasses.replace(model, run=dataclasses.replace(model.run, config=config))
    copies = model.on_devices
    transposed = copies["embedding"].pop("transposed", None)
    assert (transposed is not None) == all_devices("bfloat16").prefer_transposed
    assert transposed is None or transposed.dtype == "bfloat16"
    pairs = zip(jax.tree.leaves(model.params), jax.tree.leaves(copies), strict=True)
    types = {(host.ndim > 1, str(host.dtype), str(copy.dtype)) for host, copy in pairs}
    assert types == {(True, "float32", "bfloat16"), (False, "float32", "float32")}


def test_words_align_with_the_word_that_the_maps_attend_to_and_other_parameters_compile_nothing(
    model,
):
    (found, blank), compiled = (
        model.align(["we know", ""], ["it rains", "we"]),
        compilation_events(),
    )
    maps = model.attention_maps("we know", "it rains")
    weights, queries, keys = maps["decoder_0/cross_attention"]
    starts = [[piece.startswith("\u2581") for piece in side] for side in (queries[1:], keys[:-1])]
    target, source = (np.cumsum(side) - 1 for side in starts)
    rows = weights.mean(axis=0)[:-1, :-1]  # the last row predicts the end mark
    expected = [np.bincount(source, rows[target == word].sum(axis=0)).argmax() for word in (0, 1)]
    assert found == sorted(zip(expected, (0, 1), strict=True))
    assert blank == []
    before = len(compiled)
    zeroed = model.with_params(jax.tree.map(np.zeros_like, model.params))
    (even,) = zeroed.align(["we know"], ["it rains"])
    pieces = np.bincount(source)  # every piece has the same weight
    assert even == [(pieces.argmax(), 0), (pieces.argmax(), 1)]
    zeroed.attention_maps("we know", "it rains")
    assert len(compiled) == before


@pytest.mark.slow
def test_outputs_are_scored_as_sacrebleu_scores_what_the_model_translates(model):
    lines = ["we know that it rains", "the old teacher gets up", " "]
    texts = model.translate(lines, beam_size=1)
    others, references = lines, [*texts[:1], *lines[1:]]
    found = model.evaluate(lines, [references, others], "decoding.beam_size=1", bootstrap=40)
    assert found.texts == texts
    scores = {score.metric: score for score in found.scores}
    again = model.evaluate(lines, (tuple(references), tuple(others)), "decoding.beam_size=1")
    assert again.scores[0].score == found.scores[0].score
    both = [references, others]
    assert scores["chrf"].score == pytest.approx(sacrebleu.corpus_chrf(texts, both).score)
    assert scores["bleu"].score == pytest.approx(sacrebleu.corpus_bleu(texts, both).score)
    assert scores["bleu"].interval is not None
    assert model.evaluate(lines, references, "decoding.beam_size=1").texts == texts
    for wrong in (True, 2.5, -5, 39):
        message = refusal(partial(model.evaluate, bootstrap=wrong), lines, references)
        assert message.startswith("bootstrap: expected 0, or from 40"), message
    sources, targets = lines * 2, [*references, *others]
    log_probs = np.array(model.score(sources, targets))  # nan of a pair that is blank or too long
    tokens = np.array([len(model.target_vocabulary.encode(text)) + 1 for text in targets])
    counted = np.isfinite(log_probs)
    assert found.counts == {"sentences": counted.sum(), "left_out": (~counted).sum()}
    losses = {score.metric: score.score for score in found.losses}
    nll = -log_probs[counted].sum() / tokens[counted].sum()
    assert losses["nll"] == pytest.approx(nll, rel=1e-5)


@pytest.mark.slow
def test_parses_are_scored_against_trees(parser):
    (best,) = parser.parse(["the door opens"])
    ((scored,),) = parser.parse(["the door opens"], scores=True)
    assert (scored.text, scored.score < 0) == (best, True)
    found = parser.evaluate(["the door opens"], [best])
    scores = {score.metric: score.score for score in found.scores}
    assert scores["f1"] == scores["complete_match"] == 100


def test_trees_that_a_parse_cannot_be_scored_against_are_refused_before_parsing(parser):
    """EVALB would leave the sentence out of the score."""
    tree = "(S (NP (DT the) (NN -LRB-)) (VP (-NONE- *T*) (VBZ opens)))"
    with pytest.raises(jt.InputError, match=r"sources\[1\]: .*'the -LRB- opens', found .*\*T\*"):
        parser.evaluate(["the ( opens", "the -LRB- *T* opens"], [tree, tree])
    with pytest.raises(jt.InputError, match="one list of trees, found 2"):
        parser.evaluate(["the ( opens"], [[tree], [tree]])
    with pytest.raises(jt.InputError, match=r"references\[0\]: expected a tree, found a blank"):
        parser.evaluate(["", "the ( opens"], ["", tree])


@pytest.mark.release
def test_the_tour_of_the_package_s_help_runs(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    write_run(tmp_path / "runs" / "demo", "data.max_length=40")
    monkeypatch.chdir(tmp_path)
    lines = str(jt.__doc__).splitlines()
    tour = "\n".join(line[4:] for line in lines if line.startswith("    "))
    (tmp_path / "tour.py").write_text(tour, encoding="utf-8")
    names = runpy.run_path(str(tmp_path / "tour.py"))
    assert int(names["state"].step) == 1
    assert names["config"].model.num_heads == 1


def test_loading_keeps_compiled_functions_where_the_commands_do(small_run, tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore
    jt.load(small_run)
    assert jax.config.jax_compilation_cache_dir == before  # pyright: ignore
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        jt.load(small_run)
        found = jax.config.jax_compilation_cache_dir  # pyright: ignore
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert found == str(tmp_path / "jax_transformer")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda model: model.translate("we know"), "lines: expected a list of lines"),
        (lambda model: model.translate(None), "lines: expected a list of lines, found a NoneT"),
        (lambda model: model.translate([3]), "lines[0]: expected text, found a int"),
        (lambda model: model.translate(["a"], prefixes=["we\u65e5"]), "unknown letters \u65e5"),
        (lambda model: model.translate(["a"] * 2, prefixes=["", "we " * 20]), "prefix of lines[1]"),
        (lambda model: model.translate(["a"], prefixes="Die Katze"), "prefixes: expected a list"),
        (lambda model: model.translate(["a"], num_beams=4), "num_beams; did you mean beam_size?"),
        (lambda model: model.translate(["a"], zzz=1, samples=2), "zzz; known: alignment_head"),
        (lambda model: model.translate(["a"], n_best=9), "n_best=9: expected at most"),
        (lambda model: model.translate(["a"], beam_size=0), "decoding.beam_size: "),
        (lambda model: model.translate(["a"], alpha=11), "decoding.alpha: "),
        (lambda model: model.score(["a"], "b"), "targets: expected a list of lines"),
        (lambda model: model.score(["a"] * 2, ["b", "\ud800"]), "targets[1]: expected Unicode"),
        (lambda model: model.score(["a", "b"], ["c"]), "found 2 sources and 1 targets"),
        (lambda model: model.align(["a"], ["b", "c"]), "align: expected a target for each source"),
        (lambda model: model.align(["a"], ["b"], layer=1), "layer 1: the model has 1 decoder"),
        (lambda model: model.attention_maps(["a"], "b"), "source: expected a str, found a list"),
        (
            lambda model: model.attention_maps("a", " "),
            "target: expected a sentence of 1 to 11 tokens",
        ),
        (lambda model: model.parse(["a"]), "parse: expected a run that parses"),
        (lambda model: model.evaluate("a", ["b"]), "sources: expected a list of lines"),
        (lambda model: model.evaluate(["a"], "b"), "references: expected a list of lines"),
        (lambda model: model.evaluate(["\u200b"], ["b"]), "sources: expected sentences to decode"),
        (lambda model: model.evaluate(["a"], []), "found 1 sources and 0 references"),
        (lambda model: model.evaluate(["a"], [["b"], ["b", "c"]]), "1 sources and 2 references"),
        (lambda model: model.evaluate(["a"], ["b"], "model.d_k=1"), "cannot change after training"),
        (
            lambda model: model.export("marain", "new"),
            "--format=marain: expected a format to write",
        ),
        (lambda model: model.export("marian", Path(__file__).parent), "expected a new or empty"),
        (lambda model: model.export("marian", "s3://box/new"), "found an address"),
        (lambda model: model.export("marian", "new", quantization="int8"), "choose --format=ctr"),
        (lambda model: model.export("ctranslate2", "new", quantization="int4"), "expected int8"),
    ],
)
def test_a_mistake_in_a_call_is_refused_in_one_line(model, call, expected):
    assert expected in refusal(call, model)


def test_what_is_not_a_path_is_not_loaded():
    for wrong in (None, b"runs/demo", [], 5):
        assert f"run_dir: expected a path, found {wrong!r}" in refusal(jt.load, wrong)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.release
def test_a_model_that_was_used_can_be_pickled_and_copied(small_run, parser, copied):
    model = jt.load(small_run)
    both = jt.load([small_run, small_run])
    lines = ["the old teacher", "we know"]
    model.attention_maps(*lines)
    for used in (model, both):
        expected = used.translate(lines), used.score(lines, lines)
        again = copied(used)
        assert (again.translate(lines), again.score(lines, lines)) == expected
        assert again.vocabulary is again.target_vocabulary
    assert copied(parser).parse(lines) == parser.parse(lines)


def test_a_forked_child_is_told_in_one_line_and_does_not_hang(small_run, tmp_path):
    model = jt.load(small_run)
    model.translate(["the old teacher"])
    uses = {
        "translate": lambda: model.translate(["the old teacher"]),
        "parameters": lambda: model.with_params(model.params).score(["the"], ["the"]),
        "maps": lambda: model.attention_maps("the", "the"),
        "load": lambda: jt.load(small_run),
        "save": lambda: model.save(tmp_path / "saved"),
        "pickle": lambda: pickle.loads(pickle.dumps(model)).translate(["the"]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX's own, of the fork
        child = os.fork()
    if not child:
        signal.alarm(60)
        for name, use in uses.items():
            with contextlib.suppress(BaseException):
                (tmp_path / name).write_text(refusal(use))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for name in uses:
        message = (tmp_path / name).read_text()
        assert str(os.getpid()) in message
        assert str(child) in message
        assert "spawn" in message


def test_a_path_may_begin_with_the_home_folder_in_python_too(small_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(small_run.parent))
    model = jt.load(f"~/{small_run.name}")
    both = jt.load([f"~/{small_run.name}", Path("~") / small_run.name])
    assert "an ensemble of" in both.description
    monkeypatch.setenv("HOME", str(tmp_path))
    model.save("~/saved")
    assert (tmp_path / "saved/config.json").is_file()
    assert "./~nobody-here/x" in refusal(jt.load, "~nobody-here/x")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_run_that_parses_neither_translates_nor_scores(parser):
    assert "expected a run that translates" in refusal(parser.translate, ["a"])
    assert "expected a run that translates" in refusal(parser.score, ["a"], ["b"])
    assert "expected a run that translates" in refusal(parser.align, ["a"], ["b"])
    bootstrapped = partial(parser.evaluate, bootstrap=9)
    assert "expected a run that translates" in refusal(bootstrapped, ["a"], ["(TOP (NN a))"])
    assert "sentences: expected a list of lines" in refusal(parser.parse, "a")
    for name, ours in (("num_beams", "beam_size"), ("nbest", "n_best"), ("alfa", "alpha")):
        message = refusal(partial(parser.parse, **{name: 4}), ["a"])
        assert f"parse: no option is called {name}; did you mean {ours}?" in message


def test_a_loaded_model_has_its_scores(small_run, tmp_path, caplog):
    folder = RunFolder(shutil.copytree(small_run, tmp_path / "run"))
    own = {"metric": "bleu", "split": "test", "checkpoint": "averaged", "steps": [1, 2]}
    entries = [own, {**own, "checkpoint": "last", "steps": [2]}]
    folder.append_results(entries)
    model = jt.load(folder)
    assert model.scores == entries[:1]
    assert jt.load(folder, "last").scores == entries[1:]
    assert not model.with_params(model.params).scores
    folder.results.write_text("damaged", "utf-8")
    assert jt.load(folder).scores == []
    assert "results.json" in caplog.text


def test_of_many_searches_the_newest_are_kept(small_run):
    model = jt.load(small_run)
    decoding = model.config.decoding
    for alpha in range(10):
        model._cached_translator(dataclasses.replace(decoding, alpha=alpha / 100))
    assert len(model._translators) == KEPT
    last = model._cached_translator(dataclasses.replace(decoding, alpha=0.09))
    assert model._translators[dataclasses.replace(decoding, alpha=0.09)] is last


def test_numbers_of_numpy_choose_a_layer_and_a_seed(model):
    first = model.align(["the door"], ["it rains"], layer=0, head=1)
    second = model.align(["the door"], ["it rains"], layer=np.int64(0), head=np.int32(1))
    assert first == second
    lines = ["we know", "the door opens"]
    seeds: list[Any] = [3, np.int64(3)]
    epochs = [jt.batches(model, lines, lines, batch_tokens=64, seed=seed) for seed in seeds]
    one, two = map(next, map(iter, epochs))
    np.testing.assert_array_equal(one.source, two.source)


def test_a_model_does_not_change_with_the_arrays_that_it_was_given_or_in_place(model):
    params = jax.tree.map(np.array, model.params)
    changed, pair = model.with_params(params), (["the door"], ["it rains"])
    expected = changed.score(*pair)
    params["embedding"]["matrix"][:] = 0  # the caller's own
    assert copy.deepcopy(changed).score(*pair) == expected
    assert model.with_params(params).score(*pair) != expected
    for other in (changed, copy.deepcopy(changed)):
        other.score(*pair)
        with pytest.raises(ValueError, match="read-only"):
            other.params["embedding"]["matrix"][:] = 0
