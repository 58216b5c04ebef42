"""Signals during training."""

import os
import signal
import threading

import pytest

from jax_transformer.runs.preemption import KINDS, Preemption


@pytest.fixture(autouse=True)
def _as_a_shell_starts_it():
    """Whatever started the tests, nothing is ignored."""
    before = {kind: signal.getsignal(kind) for kind in KINDS}
    for kind in KINDS:
        handler = signal.default_int_handler if kind is signal.SIGINT else signal.SIG_DFL
        signal.signal(kind, handler)
    yield
    for kind, handler in before.items():
        signal.signal(kind, handler)


def handlers():
    return [signal.getsignal(kind) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_signal_is_noted_and_the_handlers_come_back(kind):
    before = handlers()
    with Preemption() as preemption:
        assert preemption.signal is None
        os.kill(os.getpid(), kind)
        if kind is signal.SIGHUP:  # a terminal that closes may send several
            os.kill(os.getpid(), kind)
    assert preemption.signal is kind
    assert handlers() == before


def test_a_second_signal_ends_at_once():
    with Preemption() as preemption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.signal
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_signal_that_is_ignored_as_with_nohup_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Preemption() as preemption:
        os.kill(os.getpid(), signal.SIGHUP)
    assert preemption.signal is None
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_thread_trains_without_signals():
    signals = []

    def train():
        with Preemption() as preemption:
            signals.append(preemption.signal)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert signals == [None]
