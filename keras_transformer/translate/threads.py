"""Numbers of cores, and of threads: within a batch, and for batches that run in parallel."""

import math
import os
import sys
from pathlib import Path

from keras_transformer.checks import at_least, require, within

#: Largest number of batches that are translated at the same time, and of their threads. More would only wait.
MOST_THREADS = 1024
#: Linux's file with the control groups of this process, and the folder of all control groups, of version 2.
_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def num_cores() -> int:
    """Number of cores available to this process: its CPU affinity, or the limit of its control group if that is less.

    Docker, Kubernetes and systemd limit a process by control groups. A limit of 1.5 cores is rounded up to 2.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _limit())


def _limit():
    """The smallest limit of the control groups that contain this process; `sys.maxsize` if there is none."""
    try:
        groups = _GROUPS.read_text().splitlines()
        group = _ROOT / next(line[3:].strip("/") for line in groups if line.startswith("0::"))
    except (OSError, StopIteration):
        return sys.maxsize
    folders = [group, *(folder for folder in group.parents if folder.is_relative_to(_ROOT))]
    return min(map(_group_limit, folders))


def _group_limit(folder):
    """The limit of one group: its CPU time per period, divided by the period."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except OSError:
        return sys.maxsize
    return sys.maxsize if quota == "max" else math.ceil(int(quota) / int(period))


def check_threads(num_threads: int = 0, parallel_batches: int = 1) -> None:
    """Checks numbers of threads per batch and of batches translated at a time.

    Raises:
        ValueError: if `num_threads` is negative, `parallel_batches` is not positive, or they give more than 1,024
            threads.
    """
    require(at_least(0, num_threads=num_threads))
    require(within(f"[1, {MOST_THREADS}]", parallel_batches=parallel_batches))
    if num_threads * parallel_batches > MOST_THREADS:
        raise ValueError(
            f"`num_threads` times `parallel_batches` must be at most {MOST_THREADS}. "
            f"Received: num_threads={num_threads}, parallel_batches={parallel_batches}"
        )


def threads_of_a_batch(num_threads: int, parallel_batches: int) -> int:
    """Number of threads of each batch.

    Args:
        num_threads: the requested number. 0 divides the cores among the batches.
        parallel_batches: batches translated at a time.

    Returns:
        The number; 0, the default of the runtime, if a single batch may use all cores of the machine.

    Raises:
        ValueError: see `check_threads`.
    """
    check_threads(num_threads, parallel_batches)
    if num_threads:
        return num_threads
    cores = num_cores()
    if parallel_batches == 1 and cores == os.cpu_count():
        return 0
    return max(cores // parallel_batches, 1)


def default_parallel_batches(runtime: str, num_threads: int) -> int:
    """Number of batches to translate at the same time on all cores.

    Args:
        runtime: name of a runtime.
        num_threads: threads per batch. 0: one.

    Returns:
        The number of cores divided by the threads. For Keras on a GPU or on another backend than TensorFlow: 1.
    """
    if runtime == "keras":
        import keras

        if keras.backend.backend() != "tensorflow":
            return 1
        import tensorflow as tf

        if tf.config.get_visible_devices("GPU"):
            return 1
    return min(max(num_cores() // max(num_threads, 1), 1), MOST_THREADS)


def set_tensorflow_threads(num_threads: int, parallel_batches: int = 1) -> None:
    """Sets TensorFlow's threads, for the whole process. This is only possible before TensorFlow has run an operation.

    Args:
        num_threads: threads within operations. 0 divides the cores among the batches, unless TensorFlow has run
            already; see `threads_of_a_batch`.
        parallel_batches: batches translated at a time; the minimum number of threads between operations.

    Raises:
        ValueError: if a number is out of range, or TensorFlow has run with a different number.
    """
    threads = threads_of_a_batch(num_threads, parallel_batches)
    if not threads:
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(max(threads, parallel_batches))
    except RuntimeError as error:
        if not num_threads:
            return
        raise ValueError(
            "`num_threads` must be set before TensorFlow runs an operation, for the whole process. "
            f"Received: num_threads={num_threads}"
        ) from error


def set_keras_threads(num_threads: int, parallel_batches: int = 1) -> None:
    """Calls `set_tensorflow_threads` if TensorFlow is the Keras backend.

    Raises:
        ValueError: as in `set_tensorflow_threads`; or if `num_threads` is not 0 on another backend.
    """
    import keras

    backend = keras.backend.backend()
    if backend == "tensorflow":
        set_tensorflow_threads(num_threads, parallel_batches)
    elif num_threads:
        raise ValueError(f"`num_threads` must be 0 on the {backend} backend. Received: num_threads={num_threads}")
