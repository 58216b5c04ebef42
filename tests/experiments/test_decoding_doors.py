"""experiments.evaluate, translate and average on a trained folder."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import sacrebleu
from doors import EVERY, STEPS, flat_params, letters


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A copy that these tests may write into."""
    workdir = tmp_path_factory.mktemp("decoding") / "copy"
    shutil.copytree(trained, workdir)
    return workdir


# Each line is one line, whatever it holds; `plain` are those that translate as "a b c d" does.
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


def test_translate_writes_a_line_for_a_line_whatever_they_hold(doors, run):
    window = "--window=4"  # warnings count over windows
    done = doors.run("translate", f"--workdir={run}", window, stdin=b"\n".join(ODD_LINES))
    out = done.stdout.split("\n")
    assert out.pop() == ""
    assert len(out) == len(ODD_LINES)
    assert out[0] == out[2] == out[-1] != ""
    assert out[1] == out[8] == ""
    cut = [line for line in done.stderr.splitlines() if "translated the first" in line]
    assert [line.split(":")[1].strip() for line in cut] == ["line 10", "line 11"]
    assert len(cut) == done.stderr.count("\n")
    assert "found 13;" in cut[1]


def test_n_best_with_scores_agrees_with_the_single_best(doors, run):
    lines = ["a b c d", "", "e f g"]
    given = "\n".join([*lines, ""]).encode()
    best = doors.run("translate", f"--workdir={run}", stdin=given).stdout.split("\n")
    several = doors.run(
        *("translate", f"--workdir={run}", "--n_best=3", "--scores", "--batch_tokens=24"),
        stdin=given,
    ).stdout.split("\n")
    assert len(several) == 3 * len(lines) + 1
    assert several[3:6] == ["", "", ""]
    for first, single in ((0, best[0]), (6, best[2])):
        scores, texts = zip(*(line.split("\t") for line in several[first : first + 3]), strict=True)
        assert texts[0] == single
        assert list(map(float, scores)) == sorted(map(float, scores), reverse=True)
        assert len(set(texts)) > 1


def test_translate_holds_no_more_memory_for_ten_times_the_lines(doors, run, tmp_path):
    peaks = []
    for count in (2_000, 20_000):
        source, out = tmp_path / "in", tmp_path / "out"
        source.write_text("\n".join(letters(count, seed=4)[0]) + "\n", encoding="utf-8")
        flags = [f"--workdir={run}", "--beam_size=1", "--window=500"]
        with (
            source.open() as given,
            out.open("w") as taken,
            doors.started("translate", *flags, stdin=given, stdout=taken) as process,
        ):
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0, process.stderr
        assert out.read_bytes().count(b"\n") == count
        peaks.append(usage.ru_maxrss / 1024)
    assert peaks[1] - peaks[0] < 40, peaks  # megabytes; the lines' translations alone are 10


def test_a_reader_who_leaves_early_hears_no_complaint(doors, run, tmp_path):
    (tmp_path / "in").write_text("a b c\n" * 3_000, encoding="utf-8")
    flags = [f"--workdir={run}", "--beam_size=1", "--window=500"]
    with (
        (tmp_path / "in").open() as given,
        doors.started("translate", *flags, stdin=given) as process,
    ):
        assert process.stdout.readline().endswith("\n")
        process.stdout.close()
        assert process.wait() == 141  # as a shell reports SIGPIPE
        assert process.stderr.read() == ""


def test_each_window_is_written_before_more_is_read(doors, run):
    flags = [f"--workdir={run}", "--beam_size=1", "--window=2"]
    with doors.started("translate", *flags, stdin=subprocess.PIPE) as process:
        process.stdin.write("a b c\nd e f\n")
        process.stdin.flush()
        assert all(process.stdout.readline() for _ in range(2))
        process.stdin.close()
        assert process.wait() == 0


def test_evaluate_scores_as_sacrebleu_does_and_keeps_the_score(doors, run, text):
    before = json.loads((run / "results.json").read_text(encoding="utf-8"))
    doors.run("evaluate", f"--workdir={run}", "--checkpoint=last", "--beam_size=1")
    own = [f"--source={text / 'dev.en'}", f"--reference={text / 'dev.de'}"]
    step = f"--checkpoint={EVERY}"
    said = doors.run("evaluate", f"--workdir={run}", *own, step, "--beam_size=1").stdout
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert results[: len(before)] == before
    (last, other) = results[len(before) :]
    assert (last["checkpoint"], last["steps"], last["split"]) == ("last", [STEPS], "test")
    assert (other["checkpoint"], other["steps"]) == (str(EVERY), [EVERY])
    for entry, name in ((last, "test.de"), (other, "dev.de")):
        found = (run / entry["translations"]).read_text(encoding="utf-8").split("\n")[:-1]
        expected = sacrebleu.corpus_bleu(found, [(text / name).read_text().split("\n")[:-1]])
        assert entry["score"] == pytest.approx(expected.score)
    assert f"BLEU {other['score']:.2f}" in said


def test_average_is_the_mean_of_the_last_checkpoints(doors, run):
    done = doors.run("average", f"--workdir={run}", "--last=4")
    last = list(range(STEPS - 3 * EVERY, STEPS + 1, EVERY))
    steps, averaged = flat_params(run)
    assert steps == last
    assert ", ".join(map(str, last)) in done.stdout
    each = np.stack([flat_params(run, step)[1].astype(np.float64) for step in last])
    np.testing.assert_array_equal(averaged, each.mean(axis=0).astype(np.float32))
    assert len(set(each[:, 0])) == len(last)
