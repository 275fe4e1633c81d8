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


class WorkerStopped(RuntimeError):
    """Raised if a worker process has stopped."""


class WorkerProcesses:
    """Processes that call one function. They ignore Ctrl-C, which the main process handles, and end with it.

    Args:
        function: the function. It is sent to each process once.
        count: number of processes. Default: one per core.
    """

    def __init__(self, function: Callable, count: int | None = None):
        self.count = count or os.cpu_count() or 1
        self._pool = concurrent.futures.ProcessPoolExecutor(
            self.count, multiprocessing.get_context("spawn"), _start, (function,)
        )

    def submit(self, *arguments) -> concurrent.futures.Future:
        """Calls the function in a process. Read the result with `result`."""
        return self._pool.submit(_call, *arguments)

    def result(self, future: concurrent.futures.Future):
        """Waits for the result of a call.

        Args:
            future: the result of `submit`.

        Raises:
            WorkerStopped: if a process has stopped.
        """
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise WorkerStopped(
                "A process that prepares data has stopped: it was killed, for example for lack of memory, or a script "
                "without `if __name__ == '__main__'` started the work"
            ) from error

    def map(self, calls: Iterable[tuple]) -> Iterator[Any]:
        """Calls the function for each tuple of arguments. Few calls wait, so that memory stays bounded.

        Args:
            calls: the arguments of each call.

        Yields:
            The results, in order.

        Raises:
            WorkerStopped: if a process has stopped.
        """
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
