"""How a training ends before its time: it is told to, or its loss has run away."""

import signal
import threading


class Interrupted(Exception):
    """The run was told to stop, and has saved a checkpoint to go on from.

    Args:
        number: of the signal.
        where: the checkpoint, in words.
    """

    def __init__(self, number: int, where: str):
        super().__init__(f"stopped by {signal.Signals(number).name}; the same command goes on. {where}")
        #: Exit status, as the shell's for a process that the signal has ended: 143 for SIGTERM, 130 for SIGINT.
        self.status = 128 + number


class Diverged(Exception):
    """The loss is no number or has run away; training on would be in vain."""

    status = 1


class WorkerLost(Exception):
    """Another worker has ended before its time.

    Args:
        worker: the number of this one.
    """

    status = 1

    def __init__(self, worker: int):
        super().__init__(
            f"worker {worker} has lost another worker, which has ended or cannot be reached. Its own message says why; "
            "the same command on all workers goes on from the last checkpoint"
        )


class StopRequest:
    """Takes the first SIGTERM or SIGINT as a wish to stop after the step that runs; the second has its usual effect.

    A context manager; outside the main thread, where Python lets nobody take signals, it does nothing.
    """

    #: The signal that has come, or `None`.
    number: int | None = None

    def __enter__(self):
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        self.number = number
        for known, handler in self._before.items():
            signal.signal(known, handler)
