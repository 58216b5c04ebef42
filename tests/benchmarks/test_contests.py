"""Contests: turns taken one at a time, and which of them count. No peer is needed."""

import pytest

from benchmarks import contest
from benchmarks.contender import Turn
from benchmarks.contest import Contender, Contest, Result
from benchmarks.measuring import Timing, checked_names
from jax_transformer.errors import InputError


def test_contenders_take_turns_one_at_a_time_in_processes_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(contest, "PAUSE", 0.0)
    log = tmp_path / "log"
    entries = [
        Contender(n, "tests.contenders:toy", {"log": str(log), "name": n, "seconds": s})
        for n, s in (("a", 0.4), ("b", 0.0))
    ]
    with Contest(entries) as held:
        assert held.facts == {"a": {"about": "a"}, "b": {"about": "b"}}
        assert not log.exists()
        found = held.measure(repetitions=2, most=4)
    lines = log.read_text(encoding="utf-8").splitlines()
    one_round = ["a begins", "a ends", "b begins", "b ends"]
    assert lines == one_round * (len(lines) // 4)
    assert len(lines) // 4 == 3 + found["a"].turns  # one compiles, two warm up
    assert 2 <= found["a"].turns <= 4
    assert found["a"].results == ["a"] * (3 + found["a"].turns)
    # A turn of 0.4 s is two calls; b sleeps not at all.
    assert min(found["a"].timing.seconds) >= 0.2
    assert found["b"].timing.median < found["a"].timing.median
    assert 5e6 < found["a"].peak_memory < 50e9


def test_a_contender_that_dies_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(contest, "PAUSE", 0.0)
    gone = Contender("gone", "tests.contenders:dying", {})
    with pytest.raises(InputError, match=r"gone: .* its process ended early"), Contest([gone]) as c:
        c.measure(1, 1)


def test_a_turn_is_clean_unless_others_took_more_than_a_twentieth_of_the_cores(monkeypatch):
    monkeypatch.setattr(contest, "cores", lambda: 2)
    # Ten seconds of two cores: 20 s in all, of which others may have 1 s, and a tick a core.
    assert contest.is_clean(100.0, 100.0 + 15.0 + 1.0, 15.0, 10.0)
    assert not contest.is_clean(100.0, 100.0 + 15.0 + 1.05, 15.0, 10.0)
    assert contest.is_clean(None, None, 15.0, 10.0)


def test_the_kernel_s_times_count_work_and_stolen_time_of_our_cores_alone(tmp_path, monkeypatch):
    times = tmp_path / "stat"
    # user nice system idle iowait irq softirq steal guest guest_nice
    rows = ["cpu 9 9 9 9 9 9 9 9 9 9", "cpu0 100 20 3 999 888 40 5 600 70 7", "cpu1 1 0 0 0 0 0 0"]
    times.write_text("\n".join([*rows, "intr 5"]) + "\n", encoding="utf-8")
    monkeypatch.setattr(contest, "KERNEL_TIMES", times)
    monkeypatch.setattr(contest.os, "sched_getaffinity", lambda _: {0})
    assert contest.busy_seconds() == pytest.approx(7.68)
    times.unlink()
    assert contest.busy_seconds() is None


def test_disturbed_turns_do_not_count_unless_too_few_are_clean():
    running = contest._Running.__new__(contest._Running)
    running.contender, running.ready = Contender("a", "", {}), contest.Ready(2, {})
    taken = [(9.0, True), (1.0, True), (1.0, True), (2.0, True), (8.0, False), (4.0, True)]
    running.turns = [(Turn(seconds, 0.0, None), clean) for seconds, clean in taken]
    running._ask = lambda message: 7
    found = running.result(before=3, repetitions=2)
    assert found == Result(Timing([1.0, 2.0], 6.0), 3, 2, 7, {}, [None] * 6)
    assert running.result(before=3, repetitions=3).timing.seconds == [1.0, 4.0, 2.0]


def test_unknown_twice_named_and_missing_names_are_refused():
    assert checked_names("--shapes", ["base", "tiny"], ["tiny", "base"]) == ["base", "tiny"]
    for given, found in ((["tyni"], "found tyni"), (["a", "a"], "found a"), ([], "found none")):
        with pytest.raises(InputError, match=f"--shapes=.*{found}"):
            checked_names("--shapes", given, ["tiny", "a"])
