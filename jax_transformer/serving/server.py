"""A server process: it compiles, answers, and stops cleanly."""

import contextlib
import errno
import gc
import logging
import resource
import signal
import socket
from collections.abc import Callable

import uvicorn

from jax_transformer.errors import InputError
from jax_transformer.serving.guard import Guard, Limits

logger = logging.getLogger(__name__)


def bind_all(host: str, port: int) -> list[socket.socket]:
    """Return what `bind` does; localhost is both of its addresses, if the machine has both."""
    if host.lower() != "localhost":
        return [bind(host, port)]
    found = [bind("127.0.0.1", port)]
    try:
        found.append(bind("::1", found[0].getsockname()[1]))
    except InputError as error:  # the machine has no such address
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE:
            raise
    return found


def bind(host: str, port: int) -> socket.socket:
    """Return a socket at an address, on which nobody can connect yet; port: 0 takes a free one.

    Raises InputError if the address is taken or is not this machine's.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as stack:
            found = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            stack.pop_all()  # it stays open
    except (OSError, ValueError) as error:  # ValueError: no name of a machine is like that
        raise _not_free(host, port, error) from error
    return found


def _not_free(host: str, port: int, error: Exception) -> InputError:
    return InputError(
        f"--host={host} --port={port}: expected a free address of this machine, found none: "
        f"{error}; give another --port or --host"
    )


def run(
    app: Guard,
    where: list[socket.socket],
    limits: Limits,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until SIGTERM or Ctrl-C; then answer those that have come, and return.

    on_ready: a function that is called once clients can connect.
    Raises InputError if another program has begun to listen at an address since `bind`.
    It changes this process: signal handlers, the limit of open connections, which it raises, and
    how often the garbage collector runs.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS gives no upper limit, and refuses it as the lower one; its OPEN_MAX is 10,240.
    connections = 10_240 if most == resource.RLIM_INFINITY else most
    resource.setrlimit(resource.RLIMIT_NOFILE, (connections, most))
    # The requests at work are thousands of objects with few cycles, and JAX has 200,000: to look
    # through them all stops everything for half a second.
    gc.freeze()
    gc.set_threshold(50_000)
    # uvicorn gives a signal on once it has stopped, which would end the process before its end.
    server = _Server(settings(app, limits), app, on_ready)
    before = signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        server.run(sockets=where)
    finally:
        signal.signal(signal.SIGTERM, before)


def settings(app: Guard, limits: Limits) -> uvicorn.Config:
    """Return the settings of uvicorn."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        # httptools drops the body of a request that offers HTTP/2, as Java's client and curl do.
        http="h11",
        log_config=None,
        log_level="error",  # not a line for each client that sends garbage or offers HTTP/2
        access_log=False,
        ws="none",
        server_header=False,
        timeout_keep_alive=limits.idle,  # type: ignore[arg-type]
        timeout_graceful_shutdown=int(limits.body_seconds + limits.seconds) + 1,
        backlog=4096,
    )


class _Server(uvicorn.Server):
    """A server that refuses new requests from the moment on that a signal stops it."""

    def __init__(self, config: uvicorn.Config, guard: Guard, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._guard, self._on_ready = guard, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. Raises InputError if another program has begun to listen since `bind`."""
        for where in sockets or ():
            try:
                where.listen(self.config.backlog)  # uvloop would go on without a word
            except OSError as error:
                host, port, *_ = where.getsockname()
                raise _not_free(host, port, error) from None
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Stop."""
        self._guard.stopping = True
        super().handle_exit(sig, frame)  # type: ignore[arg-type]
