"""The page of results beside its files, README and BUILD_NOTES, and the files beside runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refusal
from small_run import write_run

from experiments.tables import Table3Row, miniature_table
from jax_transformer.files import encode_json
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime import environment
from tools import results
from tools.table3_plot import differences, draw

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"python": "3", "jax": "1", "commit": "abc", "processor": "x", "devices": "1 x cpu"}
SIGNATURE = "nrefs:1|case:mixed|tok:13a"
NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+"


def numbers(text: str) -> set[str]:
    """The numbers with a point or a comma, as they are written."""
    return {*re.findall(NUMBER, text)}


def test_the_page_is_what_its_files_render_to():
    assert results.PAGE.read_text(encoding="utf-8") == results.page()


def test_an_account_that_numbers_were_copied_from_has_them():
    for path in results.FOLDER.glob("*.json"):
        entry = json.loads(path.read_text(encoding="utf-8"))
        if entry["transcribed"]:
            account = (ROOT / "docs" / entry["transcribed"].partition("#")[0]).read_text("utf-8")
            assert entry["environment"]["commit"] in account, path
            for row in entry["rows"]:
                cells = [str(value) for name, value in row.items() if name != "minutes"]
                assert numbers(" ".join(cells)) - numbers(account) == set(), path


@pytest.mark.parametrize("name", ["README.md", "BUILD_NOTES.md"])
def test_numbers_beside_a_link_to_the_page_stand_in_it(name):
    page, text = results.page(), (ROOT / name).read_text(encoding="utf-8")
    quoting = [part for part in text.split("\n\n") if "docs/results.md" in part]
    quoted = numbers(" ".join(quoting)) | {*re.findall(rf"BLEU ({NUMBER})  test", text)}
    assert quoted
    assert quoted - numbers(page) == set()


@pytest.mark.parametrize("missing", ["what", "command", "rows", *ENVIRONMENT])
def test_an_entry_without_what_it_takes_to_measure_it_again_is_refused(
    missing, tmp_path, monkeypatch
):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    entry = {"section": "speed", "what": "steps", "command": "python -m x", "rows": [{"ms": 1}]}
    entry |= {"environment": {k: v for k, v in ENVIRONMENT.items() if k != missing}}
    (tmp_path / "a.json").write_bytes(encode_json(entry))
    if missing in entry:
        assert "python -m x" in results.page()
        (tmp_path / "a.json").write_bytes(encode_json(entry | {missing: type(entry[missing])()}))
    assert f"a.json: expected its {missing}, found none" in refusal(results.page)


def scored_run(path: Path, score: float, *settings: str) -> RunFolder:
    """A run folder with the files of a training: a start, metrics and a score."""
    folder = RunFolder(write_run(path, *settings))
    search = vars(folder.load_run().config.decoding)
    own = {"metric": "bleu", "score": score, "signature": SIGNATURE}
    own |= {"split": "test", "sentences": 3}
    made_with = {"environment": environment()}
    folder.append_results([own | search | made_with | {"checkpoint": "averaged"}])
    folder.append_results([own | {"score": 1.0, "checkpoint": "last"} | search])
    folder.metrics.write_text('{"step": 9, "split": "train", "total_seconds": 90.0}\n')
    folder.append_start(0)
    return folder


@pytest.mark.slow
def test_an_entry_of_runs_has_their_scores_minutes_and_environment(tmp_path):
    first, second = (scored_run(tmp_path / name, score) for name, score in (("a", 40), ("b", 42)))
    entry = results.of_runs([first, second], "letters")
    assert [(row["bleu"], row["minutes"]) for row in entry.rows] == [(40, 1.5), (42, 1.5)]
    assert entry.command.startswith("python -m experiments.train --experiment=base --seed=1 --set")
    assert entry.facts["bleu signature"] == SIGNATURE
    (line,) = first.starts.read_text(encoding="utf-8").splitlines()
    assert {"step": "0", **entry.environment} == {k: str(v) for k, v in json.loads(line).items()}
    assert "bleu scored by" not in entry.facts  # it was this program, too
    assert "bleu 41.00 (40.00 to 42.00)" in results.scores_table({"x": entry})
    other = scored_run(tmp_path / "c", 40, "training.batch_tokens=100")
    assert "training.batch_tokens=100" in refusal(results.of_runs, [first, other], "letters")
    for kind in ({"metric": "perplexity"}, {"split": "dev"}):
        other = scored_run(tmp_path / "-".join(kind), 40)
        own = [score | kind for score in other.read_results()]
        other.results.unlink()
        other.append_results(own)
        refused = refusal(results.of_runs, [first, other], "letters")
        assert all(each in refused for each in ("bleu of test", *kind.values()))
    second.append_results([second.read_results()[0] | {"signature": f"{SIGNATURE}|x:y"}])
    both = results.of_runs([first, second], "letters").facts["bleu signature"]
    assert both == f"{SIGNATURE}, then {SIGNATURE}|x:y"
    second.append_results([second.read_results()[0] | {"metric": "perplexity", "steps": [9]}])
    assert "of several" in refusal(results.of_runs, [second], "letters")
    first.append_results([first.read_results()[0] | {"environment": ENVIRONMENT}])
    assert "commit abc" in results.of_runs([first], "letters").facts["bleu scored by"]
    for signature in ("case:lc|tok:13a", "case:mixed|tok:char"):  # as `evaluate --set` scores
        first.append_results([first.read_results()[0] | {"score": 9, "signature": signature}])
    assert results.of_runs([first], "letters").rows[0]["bleu"] == 40
    later = {"score": 8, "split": "news.de-1a2b", "references": ["/text/news.de"]}
    first.append_results([first.read_results()[0] | later])
    assert results.of_runs([first], "letters").rows[0]["bleu"] == 40
    entry = results.of_runs([first], "letters", reference="news.de")
    assert (entry.rows[0]["bleu"], entry.facts["bleu of"][:12]) == (8, "news.de-1a2b")
    assert "found none" in refusal(results.of_runs, [first], "letters", reference="other.de")
    first.starts.unlink()
    assert results.of_runs([first], "letters").environment == {}  # which `check` refuses
    entry = results.of_runs([first], "letters", ENVIRONMENT)
    assert (entry.environment, "commit" in entry.facts["noted by hand"]) == (ENVIRONMENT, True)


def table3_folder(path: Path) -> Path:
    """A folder of experiments.table3: two rows with two seeds each, and their table."""
    rows = [
        [Table3Row(f"miniature-{name}", perplexity + seed, bleu) for seed in (0, 2)]
        for name, perplexity, bleu in (("base", 5, 30), ("C-N2", 9, 27))
    ]
    (path / "table3.md").write_text(miniature_table(rows), encoding="utf-8")
    for seed, within in ((1, "."), (3, "seed-3")):
        for name in ("base", "C-N2"):
            folder = RunFolder(write_run(path / within / f"miniature-{name}"))
            folder.write_run(replace(folder.load_run(), seed=seed))
            folder.append_start(0)
            scores = {"perplexity": "exp(nll)", "bleu": SIGNATURE}
            folder.append_results([{"metric": k, "signature": v} for k, v in scores.items()])
    return path


@pytest.mark.slow
def test_table_3_is_an_entry_with_its_seeds_and_a_plot_of_its_differences(tmp_path):
    entry = results.of_table3(table3_folder(tmp_path), "letters", "python -m experiments.table3")
    results.check("table3", entry)
    base, shallow = entry.rows
    assert (base["perplexity"], base["BLEU"]) == ("6.000 ± 1.414", "30.00 ± 0.00")
    assert (shallow["the paper's row"], shallow["its BLEU"]) == ("C-N4", "25.3")
    assert "6.000 ± 1.414" in results.details("table3", entry)
    facts = {"seeds": "1, 3", "bleu signature": SIGNATURE, "perplexity signature": "exp(nll)"}
    assert facts.items() <= entry.facts.items()
    (found,) = differences(entry.rows, "perplexity", seeds=2).values()
    # Each mean has a standard error of sqrt(2) / sqrt(2) = 1, their difference sqrt(2).
    assert found == pytest.approx((4, 2 * 2**0.5, 5.19 - 4.92), abs=1e-3)
    draw(entry.rows, 2, tmp_path / "plot.svg")
    assert "C-N2" in (tmp_path / "plot.svg").read_text(encoding="utf-8")


PRINTED = """command     python -m benchmarks.decode --workdir=/home/me/runs/demo
versions    python 3.13.0, jax 0.12.0
devices     1 x cpu (cpu)
processor   x, 2 cores, load average 0.7 at the start
commit      abc
timing      median

| beam |  ms |
| ---- | --: |
| 4    | 1.5 |
"""
MADE_WITH = {"commit": "abc", "processor": "x", "devices": "1 x y"}
PART = {"command": "python -m benchmarks.decode", "rows": [{"ms": 1.5}]}
OUTPUTS = {
    "printed": PRINTED,
    "accelerator": json.dumps(
        {"versions": {"python": "3", "jax": "1"}, **MADE_WITH, "parts": {"base": PART}}, indent=1
    ),
    "compile_for": json.dumps(
        {"what": "train", "command": "python -m benchmarks.compile_for", "environment": ENVIRONMENT}
    ),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_what_a_benchmark_wrote_is_an_entry_without_folders(kind):
    ((name, entry),) = results.of_benchmark(OUTPUTS[kind], "a", "steps").items()
    results.check(name, entry)
    assert name == ("a-base" if kind == "accelerator" else "a")
    assert entry.section == ("compilers" if kind == "compile_for" else "speed")
    assert "/" not in entry.command
    (row,) = entry.rows
    assert row in ({"beam": "4", "ms": "1.5"}, {"ms": 1.5}, {"what": "train"})
    assert entry.facts == ({"timing": "median"} if kind == "printed" else {})
