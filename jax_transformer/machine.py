"""What there is of the machine that a process runs on."""

import os


def cores() -> int:
    """Cores that this process may use, which are not all where somebody set its affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
