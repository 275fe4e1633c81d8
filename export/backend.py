"""The Keras backend that exports require."""

import keras


def require_tensorflow() -> None:
    """Checks that the Keras backend is TensorFlow.

    Raises:
        ValueError: if it is another backend.
    """
    name = keras.backend.backend()
    if name != "tensorflow":
        raise ValueError(f"The Keras backend must be tensorflow for an export. Received: KERAS_BACKEND={name}")
