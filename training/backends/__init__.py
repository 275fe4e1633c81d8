"""Training backends: TensorFlow and JAX, each with its devices."""

import keras

from keras_transformer.training.backends.devices import Devices

__all__ = ["Devices", "make_devices"]


def make_devices(names: str | None) -> Devices:
    """Makes the devices of a training.

    Args:
        names: such as `GPU:0,GPU:1` or `CPU:0,CPU:1`. Default: all accelerators, or the CPU; with several workers in
            TF_CONFIG, the devices of all workers. Several CPU names create logical devices, which is only possible
            before the backend has run an operation.

    Raises:
        ValueError: if a device does not exist or is named twice, TF_CONFIG is malformed, or the Keras backend does not
            support training.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        from keras_transformer.training.backends.jax import make_jax_devices

        return make_jax_devices(names)
    if backend == "tensorflow":
        return _make_tensorflow_devices(names)
    raise ValueError(f"The Keras backend must be tensorflow or jax for training. Received: KERAS_BACKEND={backend}")


def _make_tensorflow_devices(names):
    from keras_transformer.training.backends.cluster import count_workers

    if count_workers() > 1:
        from keras_transformer.training.backends.workers import Workers

        if names:
            raise ValueError(f"`devices` must not be given if TF_CONFIG has several workers. Received: devices={names}")
        return Workers()
    from keras_transformer.training.backends.tensorflow import TensorFlowDevices, make_strategy

    return TensorFlowDevices(make_strategy(names))
