"""What an export runs on."""

import keras


def require_tensorflow() -> None:
    """Refuses the other backends of Keras.

    Raises:
        ValueError: if Keras runs on one.
    """
    name = keras.backend.backend()
    if name != "tensorflow":
        raise ValueError(f"Export runs on the Keras backend tensorflow. Received: KERAS_BACKEND={name}")
