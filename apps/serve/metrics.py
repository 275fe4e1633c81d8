"""Metrics of the server, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

#: Upper bounds in seconds of the histogram of durations.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one server.

    Attributes:
        requests: requests by path and status.
        seconds: duration of the requests by path.
        sentences: translated sentences.
        characters: translated characters.
        batch_size: sentences per batch.
        waiting: sentences in the queue.
    """

    #: Content type of `text`.
    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self):
        self._registry = CollectorRegistry()
        options = {"registry": self._registry, "namespace": "keras_transformer"}
        self.requests = Counter("requests", "Requests", ["path", "status"], **options)
        self.seconds = Histogram("request_seconds", "Duration of requests", ["path"], buckets=_SECONDS, **options)
        self.sentences = Counter("sentences", "Sentences to translate", **options)
        self.characters = Counter("characters", "Characters to translate", **options)
        self.batch_size = Histogram(
            "batch_sentences", "Sentences per batch", buckets=(1, 2, 4, 8, 16, 32, 64), **options
        )
        self.waiting = Gauge("waiting_sentences", "Sentences in the queue", **options)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
