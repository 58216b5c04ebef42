"""Texts that evaluate is given: their names, their references, and what an error leaves."""

import pytest
import sacrebleu
from commands import only_error, results, run_command
from small_run import write_run

from jax_transformer.runs.results import newest_scores
from jax_transformer.runs.run_dir import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run")


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def evaluate(run, source, *references):
    """The new entries of results.json."""
    before = len(results(run)) if (run / "results.json").exists() else 0
    flags = [f"--workdir={run}", "--set=decoding.beam_size=1", f"--source={source}"]
    run_command("evaluate", *flags, *(f"--reference={path}" for path in references))
    return results(run)[before:]


def test_no_text_takes_the_place_of_another_or_of_the_run_s_own(run, tmp_path):
    own = run / "translations/test.averaged.beam1.txt"
    write(own.parent, **{own.name: ["the run's own"]})
    entries = []
    for number, name in enumerate(["a/test", "b/test"]):
        path = tmp_path / name
        write(path.parent, **{path.name: ["the old teacher", "we know"][: number % 2 + 1]})
        entries.append(evaluate(run, path, path))
    names = {entry["split"] for each in entries for entry in each}
    files = {entry["translations"] for each in entries for entry in each if "translations" in entry}
    assert len(names) == len(files) == 2
    assert own.read_text() == "the run's own\n"
    for entry, name in zip((each[0] for each in entries), ["a/test", "b/test"], strict=True):
        assert entry["source"] == str(tmp_path / name)
        assert entry["references"] == [str(tmp_path / name)]
    folder = RunFolder(run)
    assert newest_scores(folder, folder.load_run()) == []


def test_a_reference_that_is_given_twice_counts_twice(run, tmp_path):
    lines = ["the old teacher gets up", "we know that it rains"]
    others = [line.replace("the", "a") for line in lines]
    write(tmp_path, source=lines, first=lines, second=others, short=lines[:1])
    entries = evaluate(run, tmp_path / "source", tmp_path / "first", tmp_path / "second")
    found = (run / entries[0]["translations"]).read_text("utf-8").splitlines()
    by_name = {entry["metric"]: entry for entry in entries}
    for name, score in (("bleu", sacrebleu.corpus_bleu), ("chrf", sacrebleu.corpus_chrf)):
        assert by_name[name]["score"] == pytest.approx(score(found, [lines, others]).score)
        assert by_name[name]["signature"].startswith("nrefs:2|")
    assert by_name["perplexity"]["sentences"] == 4
    flags = [f"--workdir={run}", f"--source={tmp_path}/source", f"--reference={tmp_path}/first"]
    error = only_error("evaluate", *flags, f"--reference={tmp_path}/short")
    assert f"1 in {tmp_path}/short" in error
