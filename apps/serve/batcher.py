"""Batches of the sentences of several clients."""

import asyncio
import collections
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from starlette.exceptions import HTTPException

from keras_transformer.apps.serve.metrics import Metrics
from keras_transformer.counting import counted
from keras_transformer.translate.batching import BatchLimits
from keras_transformer.translate.translation import Translation
from keras_transformer.translate.translator import Translator

#: Batches of waiting sentences among which a batch of similar lengths is chosen.
_WINDOW = 16


class QueueFull(HTTPException):
    """Raised if too many sentences are waiting."""

    def __init__(self):
        super().__init__(503, "The server is busy: its queue is full", {"Retry-After": "1"})


class _Waiting(NamedTuple):
    """A sentence in the queue."""

    sentence: str
    languages: tuple[str | None, str | None]
    n_best: int  # Number of hypotheses that the client wants.
    deadline: float  # Time at which it no longer waits for other sentences.
    future: asyncio.Future  # Receives the `Translation`, or an error.


class Batcher:
    """Translates the sentences of all clients in batches of similar length.

    Each of `workers` threads takes a batch from the queue when it is free. While other threads are busy, it first waits
    a few milliseconds for more sentences: a server under load receives the next requests soon after its answers.

    Args:
        translator: translates the batches. It must be thread-safe if there are several workers. Its `parallel_batches`
            is set to 1, because each worker translates one batch.
        limits: the maximum size of a batch.
        workers: number of threads.
        max_wait: seconds that a sentence waits for others.
        max_queue: maximum number of waiting sentences.
        metrics: counts sentences and batches.
    """

    def __init__(
        self,
        translator: Translator,
        limits: BatchLimits,
        workers: int,
        max_wait: float,
        max_queue: int,
        metrics: Metrics,
    ):
        translator.parallel_batches = 1
        self._translator, self._limits = translator, limits
        self._max_wait, self._max_queue = max_wait, max_queue
        self._metrics = metrics
        self._queue: collections.deque[_Waiting] = collections.deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._workers = workers
        for _ in range(workers):
            threading.Thread(target=self._work, daemon=True).start()

    async def translate(
        self, sentences: Sequence[str], n_best: int = 1, languages: tuple[str | None, str | None] = (None, None)
    ) -> list[Translation]:
        """Translates sentences, together with those of other clients, which may have other languages.

        Args:
            sentences: the sentences.
            n_best: number of hypotheses.
            languages: codes of the source language and the target language, for a model with several.

        Raises:
            QueueFull: if too many sentences are waiting. None of these is then translated.
            HTTPException: if these alone are more than may wait.
        """
        if not sentences:
            return []
        if len(sentences) > self._max_queue:
            number = counted(len(sentences), "sentence")
            raise HTTPException(400, f"Invalid request: the text has {number}, more than {self._max_queue}")
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + self._max_wait
        waiting = [_Waiting(sentence, languages, n_best, deadline, loop.create_future()) for sentence in sentences]
        with self._changed:
            if len(self._queue) + len(sentences) > self._max_queue:
                raise QueueFull
            self._queue.extend(waiting)
            self._changed.notify_all()
        self._metrics.sentences.inc(len(waiting))
        return await asyncio.gather(*(each.future for each in waiting))

    @property
    def queue_length(self) -> int:
        """Number of waiting sentences."""
        return len(self._queue)

    def _work(self):
        while True:
            batch = self._next_batch()
            self._metrics.batch_size.observe(len(batch))
            batch[0].future.get_loop().call_soon_threadsafe(_deliver, batch, self._translated(batch))

    def _translated(self, batch) -> list[Translation | Exception]:
        sentences, n_best = [each.sentence for each in batch], max(each.n_best for each in batch)
        languages = {
            "source_language": [each.languages[0] for each in batch],
            "target_language": [each.languages[1] for each in batch],
        }
        try:
            batching = len(batch), self._limits.batch_tokens, n_best
            return [*self._translator.translate(sentences, *batching, **languages)]
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for each in batch for result in self._translated([each])]  # One error is one client's.

    def _next_batch(self) -> list[_Waiting]:
        with self._changed:
            self._idle += 1
            while not (batch := self._wait_for_batch()):
                pass
            self._idle -= 1
            return batch

    def _wait_for_batch(self) -> list[_Waiting]:
        """Waits until a batch should start, and takes it; empty if it is too early or all clients have gone."""
        if not self._queue or self._seconds_to_wait():
            self._changed.wait(self._seconds_to_wait() if self._queue else None)
            return []
        share = -(-len(self._queue) // self._idle)  # An equal share for each thread that is free.
        return self._take(min(share, self._limits.batch_size))

    def _seconds_to_wait(self) -> float:
        """How long the queue may wait for more sentences: not if it fills a batch or no other thread is busy."""
        if len(self._queue) >= self._limits.batch_size or self._idle == self._workers:
            return 0.0
        return max(self._queue[0].deadline - time.monotonic(), 0.0)

    def _take(self, size) -> list[_Waiting]:
        """Takes the first sentence of the queue and those of the most similar length among the next."""
        window: list[_Waiting] = []
        while self._queue and len(window) < _WINDOW * size:
            each = self._queue.popleft()
            if not each.future.cancelled():  # Its client has gone.
                window.append(each)
        if len(window) <= size:
            return window
        length = len(window[0].sentence)
        order = sorted(range(len(window)), key=lambda i: abs(len(window[i].sentence) - length))
        self._queue.extendleft(window[i] for i in sorted(order[size:], reverse=True))
        return [window[i] for i in order[:size]]


def _deliver(batch, results):
    for each, result in zip(batch, results, strict=True):
        if each.future.done():  # The client has gone.
            continue
        if isinstance(result, Exception):
            each.future.set_exception(result)
        else:
            each.future.set_result(result)
