"""What a training runs on: Keras's backend, and its devices."""

import keras

from keras_transformer.training.backends.devices import Devices

__all__ = ["Devices", "make_devices"]


def make_devices(names: str | None) -> Devices:
    """The devices of these names.

    Args:
        names: such as `GPU:0,GPU:1` or `CPU:0,CPU:1`; `None` for all accelerators, or the CPU, and for the workers
            of TF_CONFIG. Several CPU names are logical devices, made here; the backend must not have run yet.

    Raises:
        ValueError: if a device does not exist or is named twice, TF_CONFIG is malformed, or the backend is none that
            training runs on.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        from keras_transformer.training.backends.jax import make_jax_devices

        return make_jax_devices(names)
    if backend == "tensorflow":
        return _make_tensorflow_devices(names)
    raise ValueError(f"Training runs on the Keras backends tensorflow, jax. Received: KERAS_BACKEND={backend}")


def _make_tensorflow_devices(names):
    from keras_transformer.training.backends.cluster import count_workers

    if count_workers() > 1:
        from keras_transformer.training.backends.workers import Workers

        if names:
            raise ValueError(f"`devices` must not be given to workers of TF_CONFIG. Received: devices={names}")
        return Workers()
    from keras_transformer.training.backends.tensorflow import TensorFlowDevices, make_strategy

    return TensorFlowDevices(make_strategy(names))
