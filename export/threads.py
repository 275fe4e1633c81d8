"""How many threads a runtime uses, in a batch and for batches side by side."""

import os


def num_cores() -> int:
    """How many cores this process may use: those that it is bound to, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def threads_of_a_batch(num_threads: int, parallel_batches: int) -> int:
    """How many threads each batch has.

    Args:
        num_threads: what was asked for; 0 shares the cores out among the batches.
        parallel_batches: batches translated at a time.

    Returns:
        A number; 0 where the one batch has all cores.

    Raises:
        ValueError: if `num_threads` is negative, or `parallel_batches` is not positive.
    """
    if num_threads < 0:
        raise ValueError(f"`num_threads` must be at least 0. Received: num_threads={num_threads}")
    if parallel_batches < 1:
        raise ValueError(f"`parallel_batches` must be at least 1. Received: parallel_batches={parallel_batches}")
    if num_threads or parallel_batches == 1:
        return num_threads
    return max(num_cores() // parallel_batches, 1)


def set_tensorflow_threads(num_threads: int, parallel_batches: int = 1) -> None:
    """Sets TensorFlow's threads, which are the whole process's and cannot be changed once it has run anything.

    Args:
        num_threads: threads within operations. 0 shares the cores out among the batches, unless TensorFlow
            has started; and leaves it as it is for one batch.
        parallel_batches: batches translated at a time: so many threads between operations, at least.

    Raises:
        ValueError: if a number is out of range, or TensorFlow has started with another.
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
            "`num_threads` must be set before TensorFlow has started, since its threads are the whole process's. "
            f"Received: num_threads={num_threads}"
        ) from error


def set_keras_threads(num_threads: int) -> None:
    """`set_tensorflow_threads`, where Keras runs on TensorFlow.

    Args:
        num_threads: see there.

    Raises:
        ValueError: see there; and if Keras runs on another backend.
    """
    if num_threads > 0:
        import keras

        if keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"`num_threads` must be 0 on the {keras.backend.backend()} backend. Received: num_threads={num_threads}"
            )
    set_tensorflow_threads(num_threads)
