"""Prometheus metrics of the server, at /metrics."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from jax_transformer.serving.batcher import Batcher


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        """Make counters of their own, so that a process may have several servers."""
        self._registry = registry = CollectorRegistry()
        name: dict[str, Any] = {"namespace": "jax_transformer", "registry": registry}
        labels = ["path", "status"]
        self.requests = Counter("requests", "Requests that were answered.", labels, **name)
        self.seconds = Histogram("request_seconds", "From request to answer.", ["path"], **name)
        self.items = Counter("lines", "Lines or pairs that were worked on.", **name)
        sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        self.batches = Histogram(
            "batch_lines", "Lines or pairs done together.", buckets=sizes, **name
        )
        self._waiting = Gauge("waiting_lines", "Lines or pairs that wait.", **name)

    def watch(self, batcher: Batcher) -> None:
        """Count the batches, and show how many items wait whenever somebody looks."""
        self._waiting.set_function(lambda: batcher.waiting)

        def count(items: int) -> None:
            self.items.inc(items)
            self.batches.observe(items)

        batcher.on_batch = count

    def text(self) -> bytes:
        """Return all in Prometheus' text form."""
        return generate_latest(self._registry)
