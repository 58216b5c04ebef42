"""A server in a thread of this process, and a service that answers without a model's work."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import uvicorn

from jax_transformer.decoding.line_search import Translation
from jax_transformer.decoding.outputs import Work
from jax_transformer.decoding.translator import PairScore
from jax_transformer.serving.app import make_app
from jax_transformer.serving.guard import Access, Guard, Limits
from jax_transformer.serving.server import bind, settings
from jax_transformer.serving.service import Service


class Shouting(Service):
    """A service whose model says everything in capitals, once `go` is set."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.go, self.seen = threading.Event(), list[Any]()
        self.go.set()
        super().__init__(*arguments, **options)
        self.batcher._work, self.batcher._live = self._shout, lambda kind: None

    def _shout(self, work: Work, items: list[Any]) -> list[Any]:
        self.seen.append(items)
        assert self.go.wait(60)
        eos = self.model.vocabulary.eos_id
        match work.function.__name__:
            case "score":
                return [PairScore(-1.0, 1) if all(pair) else None for pair in items]
            case "with_token_log_probs":
                return [found for _, found in items]
            case "align":
                return [[(0, 0)] for _ in items]
            case "_attention_pages":
                return ["<p>page</p>" for _ in items]
        return [
            [Translation(line.text.upper(), -1.0, -2.0, 1, (eos,), (-0.5,))]
            * (line.request.samples or line.request.n_best)
            if line.text
            else []
            for line in items
        ]


@contextlib.contextmanager
def served(
    service: Service, limits: Limits, **options: Any
) -> Iterator[tuple[httpx.Client, Guard]]:
    """A client of a service, and the application."""
    app = make_app(service, limits, Access(**options))
    where = bind("127.0.0.1", 0)
    server = uvicorn.Server(settings(app, limits))
    thread = threading.Thread(target=server.run, args=([where],))
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.001)
    url = f"http://127.0.0.1:{where.getsockname()[1]}"
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            yield client, app
    finally:
        server.should_exit = True
        thread.join()
