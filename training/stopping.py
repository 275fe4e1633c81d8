"""Early ends of the work: a signal, a diverged loss, a lost worker, a process that has stopped."""

import signal
import threading


class Stopped(Exception):
    """An early end of the work. The command line prints the message, without a traceback.

    Attributes:
        status: exit status.
    """

    status = 1


class Interrupted(Stopped):
    """A signal stopped the run, which has saved a checkpoint to resume from.

    Args:
        number: number of the signal.
        where: a sentence that names the checkpoint.
    """

    def __init__(self, number: int, where: str):
        super().__init__(f"stopped by {signal.Signals(number).name}. {where}. Rerun the same command to resume")
        #: Exit status in the shell's convention: 128 + signal, which is 143 for SIGTERM and 130 for SIGINT.
        self.status = 128 + number


class Diverged(Stopped):
    """The loss or a weight is NaN, infinite or too large."""


class WorkerStopped(Stopped):
    """A process that prepares data has stopped."""

    def __init__(self):
        super().__init__(
            "a process that prepares data has stopped: it was killed, for example for lack of memory, or a script "
            "without `if __name__ == '__main__'` started the work. Rerun the same command; a training resumes"
        )


class WorkerLost(Stopped):
    """Another worker has stopped.

    Args:
        worker: number of this worker.
    """

    def __init__(self, worker: int):
        super().__init__(
            f"worker {worker} has lost another worker, which has stopped or cannot be reached; see the messages of "
            "the other workers. Rerun the same command on all workers to resume from the last checkpoint"
        )


class StopRequest:
    """Records the first SIGTERM or SIGINT, so that the run can stop after the current step.

    A second signal has its default effect. This is a context manager. Outside the main thread, where Python does not
    allow signal handlers, it does nothing.
    """

    #: The received signal, or `None`.
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
