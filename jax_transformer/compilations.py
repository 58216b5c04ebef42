"""A count of the functions that JAX has compiled in this process."""

import functools
import sys
from typing import Any


def compilation_events() -> list[str]:
    """Return a list that grows with each function that this process compiles.

    A function that is taken from JAX's cache on disk counts too. Until something else imports JAX,
    nothing is compiled, and the list is empty.
    """
    return _events() if "jax" in sys.modules else []


@functools.cache
def _events() -> list[str]:
    import jax

    events: list[str] = []

    def note(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    return events
