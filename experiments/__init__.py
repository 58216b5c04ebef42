"""The doors: each parses flags and calls the package."""

import os
import signal
import sys


def leave(*_: object) -> None:
    """Ctrl-C while a door is still loading: nothing has begun."""
    os.write(2, b"error: interrupted\n")
    os._exit(128 + signal.SIGINT)


# So Python calls a module that it is about to run; in a notebook nothing is changed.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
