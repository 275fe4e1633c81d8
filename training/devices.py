"""The devices a training runs on."""

import re

import tensorflow as tf


def make_strategy(devices: str | None) -> tf.distribute.Strategy:
    """`MirroredStrategy` over several devices, the default strategy on one.

    Args:
        devices: names such as `GPU:0,GPU:1` or `CPU:0,CPU:1`; `None` for all visible GPUs, or the
            CPU. Several CPU names are logical devices, made here; TensorFlow must not have run yet.

    Returns:
        A strategy.

    Raises:
        ValueError: if a device does not exist or is named twice.
    """
    names = [name.strip() for name in devices.split(",")] if devices else _all_gpus()
    cpus = {int(found[1]) for name in names if (found := re.fullmatch(r"CPU:(\d+)", name.upper()))}
    if len(cpus) > 1:
        _make_logical_cpus(1 + max(cpus))
    known = {device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()}
    unknown = [name for name in names if name.upper() not in known]
    if unknown:
        raise ValueError(f"`devices` must be among {sorted(known)}. Received: {', '.join(unknown)}")
    if len({name.upper() for name in names}) < len(names):
        raise ValueError(f"`devices` must be different ones. Received: {devices}")
    if len(names) == 1:
        return tf.distribute.OneDeviceStrategy(f"/{names[0]}") if devices else tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(names) if names else tf.distribute.get_strategy()


def _all_gpus():
    return [f"GPU:{i}" for i in range(len(tf.config.list_physical_devices("GPU")))]


def _make_logical_cpus(count):
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:  # Initialised already: what is there must do.
        return
