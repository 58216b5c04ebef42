"""experiments.translate, score, evaluate and average on a trained run."""

import gzip
import itertools
import os
import pty
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sacrebleu
from commands import (
    EVERY,
    STEPS,
    metrics,
    only_error,
    own_lines,
    process_arguments,
    results,
    run_command,
    started,
)
from letters import letters
from small_run import write_run

from jax_transformer.runs.load import load

GREEDY = "--set=decoding.beam_size=1"


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A copy that these tests may write into."""
    workdir = tmp_path_factory.mktemp("decoding") / "copy"
    shutil.copytree(trained, workdir)
    return workdir


# Each line is one line, whatever it holds.
ODD_LINES = [
    b"\xef\xbb\xbfa b c d\r",
    b"",
    b"a b c d",
    b"a b\xe2\x80\xa8c d",
    b"a b\xc2\x85c d",
    b"a b\rc d",
    b"a b\x00c d",
    b"a b\tc d",
    b"   ",
    b"a" * 1_000_000,
    b"a b c d e f g h i j k l m",
    b"\x1c\x1d\x0b\x0c",
    b"a b c d",
]


def warnings(done):
    return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]


def test_translate_writes_a_line_for_a_line_whatever_they_hold(run):
    flags = f"--workdir={run}", "--window=4"  # warnings count over windows
    done = run_command("translate", *flags, stdin=b"\n".join(ODD_LINES))
    out = done.stdout.split("\n")
    assert out.pop() == ""
    assert len(out) == len(ODD_LINES)
    assert out[0] == out[2] == out[-1]
    assert out[1] == out[8] == ""
    cut = "line 10, line 11: expected at most 7 tokens; translated the first 7 only"
    assert warnings(done) == [f"warning: {cut}"]


def test_scores_tokens_and_alignments_stand_beside_each_hypothesis(run):
    model, lines = load(run), ["a b c", "", "d e f g"]
    search = {"n_best": 2, "token_scores": True, "alignments": True, "alignment_head": 1}
    found = model.translate(lines, **search)
    texts = [own.text for each in found for own in each]
    sources = [line for line, each in zip(lines, found, strict=True) for _ in each]
    aligned = [model.align(sources, texts, head=head) for head in (0, 1)]
    assert aligned[0] != aligned[1] == [own.alignment for each in found for own in each]
    flags = [f"--workdir={run}", "--n_best=2", "--window=1"]
    flags += ["--scores", "--token_scores", "--alignments", "--alignment_head=1"]
    done = run_command("translate", *flags, stdin="\n".join(lines).encode())
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [len(row) for row in rows] == [4, 4, 1, 1, 4, 4]
    for row, translation in zip(rows[:2] + rows[4:], itertools.chain(*found), strict=True):
        score, text, aligned, tokens = row
        assert float(score) == pytest.approx(translation.score, abs=1e-4)
        assert text == translation.text
        assert tokens.split(" ")[::2] == model.vocabulary.pieces(list(translation.tokens))
        written = [float(number) for number in tokens.split(" ")[1::2]]
        assert written == pytest.approx(translation.token_log_probs, abs=1e-6)
        assert sum(written) == pytest.approx(translation.log_prob, rel=1e-4)
        assert aligned == " ".join(f"{s}-{t}" for s, t in translation.alignment or [])


def test_weights_of_an_ensemble_are_in_the_order_of_its_runs(run, tmp_path):
    untrained = write_run(tmp_path / "run", vocabulary=(run / "vocabulary.model").read_bytes())
    flags = [f"--workdir={run}", GREEDY]
    alone = run_command("translate", *flags, stdin=b"a b c\nd e f g\n").stdout
    flags.append(f"--ensemble={untrained}")
    for weights, same in (("1,1e-9", True), ("1e-9,1", False)):
        both = [*flags, f"--ensemble_weights={weights}"]
        found = run_command("translate", *both, stdin=b"a b c\nd e f g\n").stdout
        assert (found == alone) == same


# Calls a command and prints its peak. The peak of a child of this process begins with that of this
# process, which is larger.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


@pytest.mark.release
def test_translate_holds_no_more_memory_for_thirty_times_the_lines(run, tmp_path):
    peaks = []
    for count in (1_000, 1_000, 30_000):  # the first one compiles
        source, out = tmp_path / "in", tmp_path / "out"
        source.write_text("\n".join(letters(count, seed=4)[0]) + "\n", encoding="utf-8")
        flags = [f"--workdir={run}", GREEDY, "--window=250"]
        options = process_arguments("translate", *flags)
        options["args"] = [sys.executable, "-c", PEAK, *options["args"]]
        with source.open() as given, out.open("w") as taken:
            streams = {"stdin": given, "stdout": taken, "stderr": subprocess.PIPE}
            done = subprocess.run(**options, **streams, text=True)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes().count(b"\n") == count
        peaks.append(int(done.stderr.split()[-1]) / 1024)
    assert peaks[2] - peaks[1] < 8, peaks  # megabytes; the translations alone are 12


@pytest.mark.release
def test_a_reader_who_leaves_early_hears_no_only_error(run, tmp_path):
    (tmp_path / "in").write_text("a b c\n" * 100_000, encoding="utf-8")
    flags = [f"--workdir={run}", GREEDY, "--window=500"]
    with (
        (tmp_path / "in").open() as given,
        started("translate", *flags, stdin=given) as process,
    ):
        assert process.stdout.readline().endswith("\n")
        process.stdout.close()
        assert process.wait() == 141  # as a shell reports SIGPIPE
        assert "error" not in process.stderr.read()


@pytest.mark.release
def test_on_a_terminal_translate_says_that_it_waits_and_answers_line_by_line(run):
    ours, theirs = pty.openpty()
    with started("translate", f"--workdir={run}", GREEDY, stdin=theirs) as process:
        assert process.stderr.readline() == "type a sentence, then Enter; Ctrl-D ends\n"
        os.write(ours, b"a b c\n")
        assert process.stdout.readline().strip()
        os.write(ours, b"\x04")  # Ctrl-D
        out, err = process.communicate()
        assert (out, own_lines(err), process.returncode) == ("", [], 0)
    os.close(ours)
    os.close(theirs)


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def test_evaluate_scores_as_the_libraries_do_and_keeps_the_scores(run, text):
    before = results(run)
    run_command("evaluate", f"--workdir={run}", "--checkpoint=last", GREEDY)
    own = [f"--source={text / 'dev.en'}", f"--reference={text / 'dev.de'}"]
    step = f"--checkpoint={EVERY}"
    printed = run_command("evaluate", f"--workdir={run}", *own, step, GREEDY).stdout
    found = results(run)
    assert found[: len(before)] == before
    names = ["bleu", "bleu_paper", "chrf", "loss", "nll", "perplexity"]
    new = found[len(before) :]
    assert [entry["metric"] for entry in new] == 2 * names
    last, other = (dict(zip(names, part, strict=True)) for part in (new[:6], new[6:]))
    for entry in last.values():
        assert (entry["checkpoint"], entry["steps"], entry["split"]) == ("last", [STEPS], "test")
    for entry in other.values():
        assert (entry["checkpoint"], entry["steps"]) == (str(EVERY), [EVERY])
        decimals = 2 if "bleu" in entry["metric"] or entry["metric"] == "chrf" else 3
        row = rf" {entry['score']:.{decimals}f} +-  {re.escape(entry['signature'])}\n"
        assert re.search(row, printed), entry["metric"]
    for scores, name in ((last, "test.de"), (other, "dev.de")):
        found, references = lines_of(run / scores["bleu"]["translations"]), lines_of(text / name)
        expected = sacrebleu.corpus_bleu(found, [references])
        assert scores["bleu"]["score"] == pytest.approx(expected.score)
        expected = sacrebleu.corpus_chrf(found, [references])
        assert scores["chrf"]["score"] == pytest.approx(expected.score)
        # Letters and spaces are their own Moses tokens.
        paper = sacrebleu.corpus_bleu(
            found, [references], tokenize="none", smooth_method="none", force=True
        )
        assert scores["bleu_paper"]["score"] == pytest.approx(paper.score)
        assert scores["bleu_paper"]["signature"].startswith("paper|")


def test_the_loss_of_the_references_is_that_of_training_and_of_score(run, text):
    run_command("evaluate", f"--workdir={run}", "--split=dev", "--checkpoint=last")
    found = {entry["metric"]: entry["score"] for entry in results(run)[-3:]}
    (trained,) = [line for line in metrics(run, "dev") if line["step"] == STEPS]
    for name in ("loss", "nll", "perplexity"):
        assert found[name] == pytest.approx(trained[name], rel=1e-5)
    files = [f"--source={text / 'dev.en'}", f"--target={text / 'dev.de'}"]
    printed = run_command("score", f"--workdir={run}", *files, "--checkpoint=last").stdout
    totals, per_token = np.array([line.split("\t") for line in printed.splitlines()], float).T
    assert len(totals) == 6
    tokens = totals / per_token
    assert found["nll"] == pytest.approx(-totals.sum() / tokens.sum(), rel=1e-4)
    assert found["perplexity"] == pytest.approx(np.exp(found["nll"]))
    assert found["loss"] != pytest.approx(found["nll"], rel=1e-3)


def test_what_is_too_long_or_blank_is_left_out_of_the_loss_and_counted(run, tmp_path):
    source, reference = tmp_path / "in", tmp_path / "out"
    source.write_text("a b c\n\na b c d e f g h i\nd e\n", encoding="utf-8")
    reference.write_text("A B C\nA\nA B C D E F G H I\n\n", encoding="utf-8")
    own = [f"--source={source}", f"--reference={reference}"]
    printed = run_command("evaluate", f"--workdir={run}", *own)
    assert "4 tokens of 1 sentences; 3 left out" in printed.stdout
    assert "line 3: expected at most 7 tokens; translated the first 7 only" in printed.stderr
    assert (results(run)[-1]["sentences"], results(run)[-1]["left_out"]) == (1, 3)


@pytest.mark.release
def test_text_that_is_tokenised_has_no_score_of_the_paper(run, tmp_path):
    run = shutil.copytree(run, tmp_path / "run")
    run_command("train", f"--workdir={run}", "--set=data.bleu_tokenize=none")
    before = results(run)
    flags = [GREEDY, "--set=decoding.patience=0.5"]
    printed = run_command("evaluate", f"--workdir={run}", *flags).stdout
    assert "bleu_paper" not in printed
    new = results(run)[len(before) :]
    assert "bleu_paper" not in [entry["metric"] for entry in new]
    assert "|tok:none|" in new[0]["signature"]
    # Not in the place of what a search as the run says has written.
    assert new[0]["translations"] == "translations/test.averaged.beam1.patience0.5.txt"


def test_a_test_set_comes_from_the_cache_with_intervals_on_request(
    run, text, tmp_path, monkeypatch
):
    folder = tmp_path / "cache" / "wmt14" / "full"
    folder.mkdir(parents=True)
    for field, name in (("src", "test.en"), ("ref", "test.de")):
        shutil.copy(text / name, folder / f"wmt14_full.en-fr.{field}")
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "cache"))
    flags = [f"--workdir={run}", "--test_set=wmt14/full", "--bootstrap=40"]
    printed = only_error("evaluate", *flags)
    assert "fetch it with: sacrebleu -t wmt14/full -l en-de --echo src" in printed
    printed = run_command("evaluate", *flags, "--set=data.target_language=fr").stdout
    new = {entry["metric"]: entry for entry in results(run)[-8:]}
    assert {entry["split"] for entry in new.values()} == {"wmt14/full.en-fr"}
    for name in ("bleu", "bleu_paper", "chrf"):
        entry = new[name]
        assert "|bs:40|seed:12345|" in entry["signature"]
        assert f"in {entry['mean']:.2f} +- {entry['interval']:.2f}" in printed
    assert "tok:moses-fr" in new["bleu_paper"]["signature"]
    translations = run / "translations" / "wmt14_full.en-fr.averaged.beam4.txt"
    assert len(lines_of(translations)) == len(lines_of(text / "test.en"))
    assert str(translations) in printed


@pytest.mark.slow
def test_score_leaves_out_what_translate_wrote_before_each_translation(run, tmp_path):
    source = tmp_path / "in"
    source.write_text("\na b c\nd e\n", encoding="utf-8")
    flags = [f"--workdir={run}", "--n_best=2"]
    found = run_command("translate", *flags, "--scores", stdin=source.read_bytes()).stdout
    lines = found.splitlines(keepends=True)
    scored, plain = (
        run_command("score", *flags, f"--source={source}", stdin="".join(given).encode())
        for given in (lines, [line.partition("\t")[2] or line for line in lines])
    )
    assert scored.stdout == plain.stdout
    assert scored.stdout.count("\t") >= 3
    told = "scores      at the beginning of lines of standard input are ignored\n"
    assert (told in scored.stderr, told in plain.stderr) == (True, False)
    mixed = "".join(lines[:4]) + "D E\nD\n"
    error = only_error("score", *flags, f"--source={source}", stdin=mixed.encode())
    assert "standard input, line 5: expected a score and a tab first" in error


def test_score_writes_a_line_for_a_line_and_names_what_is_too_long(run, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"a b c\n\nd e\n" + b"a b c d e f g h\n" + b"a b c")
    target.write_bytes(b"A B C\nA\n \nA B C\n" + 30 * b"A ")
    flags = [f"--workdir={run}", f"--source={source}"]
    done = run_command("score", *flags, f"--target={target}", "--window=2")
    lines = done.stdout.split("\n")
    assert [bool(line) for line in lines] == [True, False, False, True, False, False]
    assert all(float(part) < 0 for part in lines[0].split("\t"))
    assert warnings(done) == [
        "warning: source line 4: expected at most 7 tokens; used the first 7 only",
        "warning: target line 5: expected at most 9 tokens; gave no score",
    ]
    error = only_error("score", *flags, "--n_best=2", stdin=b"A\n" * 9)
    assert error.startswith("error: standard input has 9 lines, expected 10")
    error = only_error("score", *flags, stdin=gzip.compress(b"A B C\n" * 9))
    assert "unpack it" in error
    dates = b"-1.000000\t1-2\n" * 5  # no alignments
    done = run_command("score", *flags, stdin=dates)
    assert done.stdout.count("\n") == 5
