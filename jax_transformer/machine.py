"""What there is of the machine that a process runs on."""

import contextlib
import os
from pathlib import Path


def cores() -> int:
    """Cores that this process may use, which are not all where somebody set its affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_flags() -> frozenset[str]:
    """What the processor can do in the kernel's words, such as avx2; none where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()
