"""How many threads a runtime uses."""


def check_threads(num_threads: int) -> None:
    """Checks a number of threads.

    Args:
        num_threads: 0 is one a core.

    Raises:
        ValueError: if it is negative.
    """
    if num_threads < 0:
        raise ValueError(f"`num_threads` must be at least 0. Received: num_threads={num_threads}")


def set_tensorflow_threads(num_threads: int) -> None:
    """Sets TensorFlow's threads, which are the whole process's and cannot be changed once it has run anything.

    Args:
        num_threads: threads within and between operations. 0 leaves TensorFlow as it is: one a core,
            unless it has been told otherwise.

    Raises:
        ValueError: if it is negative, or TensorFlow has started with another number.
    """
    check_threads(num_threads)
    if not num_threads:
        return
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(num_threads)
    except RuntimeError as error:
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
