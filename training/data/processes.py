"""Worker processes."""

import collections
import concurrent.futures
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from keras_transformer.training.stopping import WorkerStopped
from keras_transformer.translate.threads import num_cores

#: Seconds between checks that the processes are alive.
_PATIENCE = 2.0


class WorkerProcesses:
    """Processes that call one function. They ignore Ctrl-C, which the main process handles, and end with it.

    Args:
        function: the function. It is sent to each process once.
        count: number of processes. Default: one per core.
    """

    def __init__(self, function: Callable, count: int | None = None):
        self.count = count or num_cores()
        self._pool = concurrent.futures.ProcessPoolExecutor(
            self.count, multiprocessing.get_context("spawn"), _start, (function,)
        )

    def submit(self, *arguments) -> concurrent.futures.Future:
        """Calls the function in a process. Read the result with `result`."""
        try:
            return self._pool.submit(_call, *arguments)
        except BrokenProcessPool as error:
            raise WorkerStopped from error

    def result(self, future: concurrent.futures.Future):
        """Waits for the result of a call that `submit` has returned."""
        try:
            while not future.done():
                concurrent.futures.wait([future], timeout=_PATIENCE)
                if not future.done():
                    self._end_if_killed()
            return future.result()
        except BrokenProcessPool as error:
            raise WorkerStopped from error

    def _end_if_killed(self):
        """Ends all processes if one has stopped. The executor then raises `BrokenProcessPool`.

        The executor notices a stopped process itself, unless the process was sending a result. Then it waits for the
        rest of the result as long as any process, this one included, could send it.
        """
        processes = list((self._pool._processes or {}).values())
        if any(process.exitcode is not None for process in processes):
            for process in processes:
                process.kill()
            self._pool._result_queue._writer.close()

    def map(self, calls: Iterable[tuple]) -> Iterator[Any]:
        """Yields the results for tuples of arguments, in order. Few calls wait, so that memory stays bounded."""
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        for arguments in calls:
            waiting.append(self.submit(*arguments))
            if len(waiting) > 2 * self.count:
                yield self.result(waiting.popleft())
        while waiting:
            yield self.result(waiting.popleft())

    def close(self) -> None:
        """Stops the processes. Calls that have not started are cancelled."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _start(function):
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


def _call(*arguments):
    return _function(*arguments)
