"""Contenders with nothing to do, for tests of how contests are held; light to start."""

import os
import time

from benchmarks.contender import Prepared


def toy(log: str, name: str, seconds: float = 0.0) -> Prepared:
    """A contender that writes down when it begins and ends."""

    def take_turn() -> str:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{name} begins\n")
            file.flush()
            time.sleep(seconds)
            file.write(f"{name} ends\n")
        return name

    return Prepared(take_turn, calls=2, facts={"about": name})


def dying() -> Prepared:
    """A contender whose process is gone at its first turn, as when memory runs out."""
    return Prepared(lambda: os._exit(1))
