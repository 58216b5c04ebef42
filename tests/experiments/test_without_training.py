"""Commands that need no training: clean, evalb, and those on a run with random parameters."""

import errno
import gzip
import os
import shutil

import jax
import numpy as np
import pytest
import sacrebleu
from commands import files_of, only_error, results, run_command
from letters import letters
from small_run import write_run

import jax_transformer as jt
from jax_transformer.runs.results import newest_scores
from jax_transformer.runs.run_dir import RunFolder

# ---- clean

SOURCES, TARGETS = letters(120, 0)


@pytest.fixture
def noisy(tmp_path):
    """Of 122 pairs, in whose text the last two are noise."""
    (tmp_path / "text.en").write_text("\n".join([*SOURCES, "1 2 3 4", "x\u2028"]), encoding="utf-8")
    lines = "\n".join([*TARGETS, "1 2 3 4", ""]).encode() + b"\n"
    (tmp_path / "text.de.gz").write_bytes(gzip.compress(lines))
    paths = {"source": "text.en", "target": "text.de.gz"}
    paths |= {"output_source": "clean/a.en.gz", "output_target": "clean/a.de"}
    return {name: f"--{name}={tmp_path / path}" for name, path in paths.items()}


def test_the_pairs_that_stay_are_written_and_the_others_counted_and_shown(noisy, tmp_path):
    done = run_command("clean", *noisy.values())
    assert gzip.decompress((tmp_path / "clean" / "a.en.gz").read_bytes()).decode().split("\n") == [
        *SOURCES,
        "",
    ]
    assert (tmp_path / "clean" / "a.de").read_text(encoding="utf-8").split("\n") == [*TARGETS, ""]
    assert "          1   0.82%  mostly digits and symbols\n" in done.stdout
    assert "\nmostly digits and symbols\n        121\t1 2 3 4\t1 2 3 4\n" in done.stdout
    assert done.stdout.endswith("\n        120 of 122 pairs are kept\n")


def test_a_disk_that_is_full_at_the_end_leaves_no_file_without_the_other(
    noisy, tmp_path, monkeypatch
):
    def full(descriptor, done=[]):  # noqa: B006
        done.append(descriptor)
        if len(done) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert "No space left" in only_error("clean", *noisy.values())
    assert not [*(tmp_path / "clean").iterdir()]
    run_command("clean", *noisy.values())


# ---- evalb

GOLD = "(S (A (x a) (x b)) (x c))\n(S (x d))\n(S (x e))\n"
TEST = "(S (x a) (A (x b) (x c)))\n\n(S (x f))\n"
HEAD = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
"""
ROWS = """\
   1    3    0   50.00  50.00     1      2    2      1      3     3   100.00
   2    1    2    0.00   0.00     0      0    0      0      0     0     0.00
   3    1    1    0.00   0.00     0      0    0      0      0     0     0.00
"""
TOTAL = "                 50.00  50.00      1     2     2      1      3     3   100.00\n"
SHORT = """
-- len<=2 --
Number of sentence        =      2
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      0
Bracketing Recall         =   0.00
"""


def test_the_report_has_evalbs_layout_and_one_error_more_than_max_error_ends_it(tmp_path):
    (gold := tmp_path / "gold").write_text(GOLD, encoding="utf-8")
    (test := tmp_path / "test").write_text(TEST, encoding="utf-8")
    done = run_command("evalb", gold, test, "--cutoff_len=2")
    rule = "=" * 76 + "\n"
    assert done.stdout.startswith(HEAD + rule + ROWS + rule + TOTAL + "=== Summary ===\n\n-- All")
    assert SHORT in done.stdout
    assert done.stderr == f"warning: {test}, line 3: Words unmatch (e|f); left out\n"
    test.write_text("(S (x d))\n" * 3, encoding="utf-8")
    run_command("evalb", gold, test, "--max_error=1")
    done = run_command("evalb", gold, test, "--max_error=0", fails=2)
    assert done.stdout == ""
    assert "at most 1 sentence" in done.stderr.splitlines()[-1]


# ---- A run with random parameters


PATIENT = "decoding.beam_size=6", "decoding.patience=0.3"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "run", *PATIENT)


@pytest.mark.slow
def test_the_mean_of_the_last_checkpoints_is_saved_unless_somebody_holds_the_lock(run, tmp_path):
    run = shutil.copytree(run, tmp_path / "run")
    before = files_of(run / "averaged")
    with RunFolder(run).locked():
        assert str(run) in only_error("average", f"--workdir={run}", "--last=2")
    assert files_of(run / "averaged") == before
    assert "steps 1, 2" in run_command("average", f"--workdir={run}", "--last=2").stdout
    found = jt.load(run)
    assert found.steps == [1, 2]
    each = [jt.load(run, step).params for step in (1, 2)]
    expected = jax.tree.map(lambda *pair: np.mean(pair, axis=0), *each)
    jax.tree.map(np.testing.assert_array_almost_equal, found.params, expected)


def write(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def evaluate(run, source, *references):
    """The new entries of results.json."""
    before = len(results(run)) if (run / "results.json").exists() else 0
    flags = [f"--workdir={run}", f"--source={source}"]
    run_command("evaluate", *flags, *(f"--reference={path}" for path in references))
    return results(run)[before:]


@pytest.mark.slow
def test_no_text_takes_the_place_of_another_or_of_the_run_s_own(run, tmp_path):
    own = run / "translations/test.averaged.beam6.txt"
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


@pytest.mark.slow
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


LINES = ["the door", "", "we know that it rains"]


def translated(run, *flags):
    """The lines that are written, and the lines of warnings."""
    text = "".join(f"{line}\n" for line in LINES).encode()
    done = run_command("translate", f"--workdir={run}", *flags, stdin=text)
    return done.stdout.split("\n")[:-1], [s for s in done.stderr.splitlines() if "warning" in s]


@pytest.mark.slow
def test_blank_lines_stand_for_translations_that_there_are_not_and_are_counted(run):
    rows, warnings = translated(run, "--n_best=6")
    assert len(rows) == 6 * len(LINES)
    lines = [rows[start : start + 6] for start in (0, 6, 12)]
    assert lines[1] == [""] * 6
    found = [[*filter(None, line)] for line in (lines[0], lines[2])]
    assert all(0 < len(line) < 6 and len(set(line)) == len(line) for line in found)
    assert ["2 lines" in line and "6" in line for line in warnings] == [True]
    assert translated(run)[0] == [line[0] for line in lines]


@pytest.mark.slow
def test_samples_are_those_of_any_window_and_begin_with_the_prefixes(run, tmp_path):
    (tmp_path / "prefixes").write_text("the\n\n\n", encoding="utf-8")
    flags = ["--samples=3", f"--prefixes={tmp_path / 'prefixes'}", "--seed=2"]
    whole, _ = translated(run, *flags)
    assert len(whole) == 9
    assert whole[3:6] == ["", "", ""]
    assert {line.split()[0] for line in whole[:3]} == {"the"}
    assert translated(run, *flags, "--window=2")[0] == whole
