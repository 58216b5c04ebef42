"""Signals during training."""

import os
import signal
import threading

import pytest

from jax_transformer.runs.preemption import Preemption


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_first_signal_is_noted_and_the_handlers_come_back(kind):
    before = [signal.getsignal(k) for k in (signal.SIGINT, signal.SIGTERM)]
    with Preemption() as preemption:
        assert preemption.signal is None
        os.kill(os.getpid(), kind)
    assert preemption.signal is kind
    assert [signal.getsignal(k) for k in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_signal_ends_at_once():
    with Preemption() as preemption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.signal
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_another_thread_trains_without_signals():
    signals = []

    def train():
        with Preemption() as preemption:
            signals.append(preemption.signal)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert signals == [None]
