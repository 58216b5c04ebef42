"""A count of the functions that JAX has compiled in this process."""

import functools
from typing import Any


@functools.cache
def compilation_events() -> list[str]:
    """Return a list that grows with each function that this process compiles.

    A function that is taken from JAX's cache on disk counts too.
    """
    import jax

    events: list[str] = []

    def note(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    return events
