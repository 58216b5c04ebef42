"""Middleware in front of every request: token, size, time limits, counters, and shutdown."""

import asyncio
import hmac
import ipaddress
import logging
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from jax_transformer.serving.batcher import Batcher

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]

OPEN = ("/", "/health")  # need no token: a page without content, and a word

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """The limits of one client."""

    body_bytes: int = 1 << 20
    body_seconds: float = 10.0  # until the body has arrived
    seconds: float = 60.0  # until the answer
    idle: float = 75.0  # seconds that a connection stays open between two requests
    waiting: int = 2_000  # lines of all clients that may wait


@dataclass(frozen=True)
class Access:
    """The clients that are answered.

    token: the token that they must send as `Authorization: Bearer TOKEN`; None for none.
    origins: sites whose pages may use this server from a browser, such as "https://site.example".
    local: True if requests must be to a name of this machine, by the header Host: a page of another
      site can give its own name this machine's address.
    names: names of it beside localhost.
    """

    token: str | None = None
    origins: Sequence[str] = ()
    local: bool = False
    names: Sequence[str] = ()


class Metrics:
    """Counters of one server."""

    def __init__(self, batcher: Batcher) -> None:
        """Count the batches, and show how many items wait whenever somebody looks."""
        self._registry = CollectorRegistry()  # its own: a process may have several servers
        name: dict[str, Any] = {"namespace": "jax_transformer", "registry": self._registry}
        labels = ["path", "status"]
        self.requests = Counter("requests", "Requests that were answered.", labels, **name)
        self.seconds = Histogram("request_seconds", "From request to answer.", ["path"], **name)
        lines = Counter("lines", "Lines or pairs that were worked on.", **name)
        sizes = [1 << power for power in range(10)]
        batches = Histogram("batch_lines", "Lines or pairs done together.", buckets=sizes, **name)
        waiting = Gauge("waiting_lines", "Lines or pairs that wait.", **name)
        waiting.set_function(lambda: batcher.waiting)

        def count(new: int, together: int) -> None:
            lines.inc(new)
            batches.observe(together)

        batcher.on_batch = count

    def text(self) -> bytes:
        """Return all in Prometheus' text form."""
        return generate_latest(self._registry)


class Guard:
    """An ASGI application around another one.

    stopping: set it to True, and new requests get status 503, but not those for /metrics.
    """

    def __init__(
        self, app: App, limits: Limits, access: Access, metrics: Metrics, paths: set[str]
    ) -> None:
        """Take the application. paths: those that are counted by name."""
        self._app, self._limits, self._access = app, limits, access
        self._metrics, self._paths = metrics, paths
        self.stopping = False
        self._entry: App = self._guarded
        if access.origins:
            self._entry = CORSMiddleware(
                self._guarded,
                allow_origins=list(access.origins),
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
            )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with one line of JSON."""
        await self._entry(scope, receive, send)

    async def _guarded(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def counting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._answer(scope, receive, counting)
        except HTTPException as error:
            if not status:
                answer = error_response(error.status_code, error.detail)
                await answer(scope, receive, counting)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # Without its message, which may have text of the client.
            trace = "".join(traceback.format_tb(error.__traceback__))
            logger.error(f"a request failed with {type(error).__name__}:\n{trace}")
            if not status:
                line = f"internal error: {type(error).__name__}; see the server's log"
                await error_response(500, line)(scope, receive, counting)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self._metrics.requests.labels(path, status or "left").inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - began)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self.stopping and scope["path"] != "/metrics":
            raise HTTPException(503, "the server is stopping; use another one, or try again later")
        if self._access.local and not self._is_local(headers, scope["http_version"]):
            raise HTTPException(
                400,
                "expected the header Host to be localhost or 127.0.0.1, found another; use that "
                "name in the URL, let a proxy send that header, or start the server with a token",
            )
        self._check_origin(headers)
        if self._access.token is not None and scope["path"] not in OPEN:
            _check_token(headers.getlist("authorization"), self._access.token)
        if scope["method"] == "POST" and scope["query_string"]:
            raise HTTPException(422, "query: expected options in the body, found some in the URL")
        if (coding := headers.get("content-encoding", "").lower()) not in ("", "identity"):
            raise HTTPException(
                415, f"expected an uncompressed body, found one in {coding}; send it uncompressed"
            )
        body = await self._body(receive)
        # Content is JSON whatever it is called: curl, for one, calls it a form.
        plain = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        request = {**scope, "headers": [*plain, (b"content-type", b"application/json")]}
        if request["method"] == "HEAD":
            request["method"] = "GET"  # the content is left out where the answer is sent
        answered = asyncio.create_task(self._app(request, _given(body), send))
        left = asyncio.create_task(_disconnected(receive))
        tasks = {answered, left}
        try:
            most = self._limits.seconds
            await asyncio.wait(tasks, timeout=most, return_when=asyncio.FIRST_COMPLETED)
            if answered.done():
                answered.result()
            elif not left.done():
                raise HTTPException(
                    503,
                    f"expected an answer within {most:g} seconds, found none; the server is busy: "
                    "send fewer lines, or try again later",
                )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _is_local(self, headers: Headers, version: str) -> bool:
        """Return True if the header Host names this machine, or HTTP/1.0 has none, as no browser.

        A page of another site can give its name this machine's address, and ask as if it were ours.
        """
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            return not hosts and version == "1.0"
        name = re.sub(r":\d*$", "", hosts[0]).lower().removesuffix(".")
        names = {"localhost", *(name.lower() for name in self._access.names)}
        try:
            return name in names or ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return False

    def _check_origin(self, headers: Headers) -> None:
        """Raise HTTPException for a page of another site; a browser names the page's site."""
        for origin in headers.getlist("origin"):
            named = {origin, "*"} & {*self._access.origins}
            own = headers.get("sec-fetch-site") == "same-origin"
            if not (named or own or origin.partition("://")[2] == headers.get("host")):
                raise HTTPException(
                    403,
                    f"expected a page of this server, found one of {origin[:100]}; name it with "
                    "--origin when the server starts",
                )

    async def _body(self, receive: Receive) -> bytes:
        """Return the body. If too large it is read to its end, or the client gets no answer."""
        most, chunks, size, more = self._limits.body_bytes, list[bytes](), 0, True
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPException(
                            400, "expected a whole body, found the end of the connection"
                        )
                    more = message.get("more_body", False)
                    size += len(message.get("body", b""))
                    if size <= most:
                        chunks.append(message.get("body", b""))
        except TimeoutError:
            found = f"found {size:,} bytes of it" if size <= most else "found a larger one"
            raise HTTPException(
                408 if size <= most else 413,
                f"expected a body of at most {most:,} bytes within {self._limits.body_seconds:g} "
                f"seconds, {found}; send it faster, or less",
            ) from None
        if size > most:
            raise HTTPException(
                413, f"expected a body of at most {most:,} bytes, found {size:,}; send fewer lines"
            )
        return b"".join(chunks)


def _check_token(given: list[str], expected: str) -> None:
    """Raise HTTPException unless the one header Authorization has the token."""
    scheme, _, token = (given[0] if len(given) == 1 else "").partition(" ")
    right = hmac.compare_digest(token.strip().encode("latin-1"), expected.encode())
    if not (right and scheme.lower() == "bearer"):
        found = "another token" if scheme.lower() == "bearer" else "another scheme"
        if not scheme:
            found = f"{len(given)} of them" if len(given) > 1 else "none"
        raise HTTPException(
            401,
            f"expected the header Authorization: Bearer TOKEN, found {found}; give the access "
            "token of this server",
        )


def _given(body: bytes) -> Receive:
    """Return what an application calls to receive a body that was read already."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.Future()

    return receive


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def error_response(
    status: int, line: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer to a mistake: one line of JSON."""
    usual = {
        401: {"www-authenticate": "Bearer"},
        415: {"accept-encoding": "identity"},
        503: {"retry-after": "1"},
    }
    return JSONResponse({"error": line}, status, {**usual.get(status, {}), **(headers or {})})
