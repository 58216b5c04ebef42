"""A process that has loaded what doors load, and becomes one in a fork each time it is asked.

Two seconds of imports less for a door; else it starts and ends as `python -m` would have it. Its
hash seed is that of all forks of this server. Asked over a socket by doors.Forks.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Not the doors themselves, which runpy shall load.
LOADED = (
    "jax_transformer.runs.report",
    "jax_transformer.runs.trainer",
    "jax_transformer.runs.tensorboard_events",
    "jax_transformer.evaluation.scoring",
)


def serve(address: str) -> str:
    """Fork for each request until the parent is gone; returns in the forks: the door's name."""
    for name in LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that wait
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        listening.settimeout(5)
        print("ready", flush=True)
        while os.getppid() == parent:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            if os.fork():
                connection.close()
                continue
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with connection, connection.makefile() as lines:
                asked = json.loads(lines.readline())
                door = os.fork()
                if door:
                    _, status = os.waitpid(door, 0)
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                    os._exit(0)
            return _become(**asked)
    sys.exit()


def _become(door: str, flags: list[str], streams: list[str], xla_flags: str) -> str:
    """Streams, arguments and environment of the door."""
    for descriptor, path in enumerate(streams):
        opened = os.open(path, os.O_WRONLY if descriptor else os.O_RDONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.modules.pop(f"experiments.{door}", None)  # as others' import of it, before it is __main__
    os.environ["XLA_FLAGS"] = xla_flags
    sys.argv[1:] = flags
    sys.path[0] = str(ROOT)
    return door


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    runpy.run_module(f"experiments.{serve(sys.argv[1])}", run_name="__main__", alter_sys=True)
