"""Training on TensorFlow: `MirroredStrategy`, `tf.data`; see the package."""

import functools
import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.training.backends.devices import Devices, require_known
from keras_transformer.training.checkpoints import seed_generators
from keras_transformer.training.data.batches import Batches

#: Between the seeds of replicas: more than between those of a model's layers.
_SEEDS_APART = 1_000_003


class TensorFlowDevices(Devices):
    """Those of a strategy.

    Args:
        strategy: from `make_strategy`.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy = strategy
        self.count = strategy.num_replicas_in_sync

    @property
    def kind(self) -> str:
        is_default = self.strategy is tf.distribute.get_strategy()  # Of the only GPU, where there is one.
        gpu = re.search(r"GPU:(\d+)", " ".join(_all_gpus()) if is_default else self.strategy.extended.worker_devices[0])
        if not gpu:
            return "CPU"
        device = tf.config.list_physical_devices("GPU")[int(gpu[1])]
        return tf.config.experimental.get_device_details(device).get("device_name", "GPU")

    def scope(self) -> AbstractContextManager:
        return self.strategy.scope()

    def jit_compile(self, xla: bool | None) -> bool:
        """XLA on one device; under a strategy of several GPUs only where it is asked for."""
        if xla and self.count > 1 and self.kind == "CPU":
            raise ValueError(f"`recipe.xla` must not be true on several CPU devices. Received: xla={xla}")
        return self.count == 1 if xla is None else xla

    def training_data(self, batches: Batches, seed: int, first_step: int) -> tf.data.Dataset:
        """Batches without end; under a strategy each is divided by rows."""
        return dataset(lambda i: batches.training_batch(seed, first_step + i), signature(batches))

    def validation_data(self, batches: Batches) -> dict:
        return {"validation_data": dataset(batches.validation_batch, signature(batches), batches.steps)}

    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        if accumulation_steps > 1 or (self.count > 1 and _scales_its_loss(model)):
            model.train_step = functools.partial(_train_step, model, accumulation_steps)

    def offset_replica_seeds(self, model: keras.Model) -> None:
        if self.count > 1:
            variables = [variable.value for variable in seed_generators(model)]

            @tf.function
            def spread():
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                for variable in variables:
                    variable.assign_add(tf.cast(tf.stack([_SEEDS_APART * replica, 0]), variable.dtype))

            self.strategy.run(spread)

    def sync_variables(self, model: keras.Model) -> None:
        """Nothing: TensorFlow trains the variables themselves."""


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
    require_known(names, known)
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


def signature(batches: Batches):
    """The shapes and types of batches; sizes that differ from batch to batch are `None`."""
    rows, source, target = (
        sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*map(batches.filled, batches.shapes), strict=True)
    )
    shapes = {"source": (rows, source), "target": (rows, target)}
    inputs = {name: tf.TensorSpec(shapes[name.split("_")[0]], tf.int32) for name in batches.inputs}
    return inputs, tf.TensorSpec(shapes["target"], tf.int32), tf.TensorSpec(shapes["target"], tf.float32)


def dataset(make_batch: Callable[[int], Any], signature: Any, num_batches: int | None = None) -> tf.data.Dataset:
    """Batches that are made by their number, two of them in advance.

    Args:
        make_batch: makes the batch of a number, from 0: always the same, NumPy arrays of the signature's dtypes.
        signature: `tf.TensorSpec`s in the structure of a batch.
        num_batches: how many; `None` for no end.

    Returns:
        A `tf.data.Dataset` of batches.
    """
    specs = tf.nest.flatten(signature)

    def made(number):
        # Not from a generator: that has the C library give all larger arrays back to the system when they are freed,
        # in the whole process, and each step waits for as many pages anew. (So do a strategy's own iterators.)
        arrays = tf.numpy_function(
            lambda i: tf.nest.flatten(make_batch(int(i))), [number], [spec.dtype for spec in specs], stateful=False
        )
        arrays = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, specs, strict=True)]
        return tf.nest.pack_sequence_as(signature, arrays)

    options = tf.data.Options()
    # The thread that tunes sleeps longer and longer, and at times the end of a pass waits until it wakes.
    options.autotune.enabled = False
    numbers = tf.data.Dataset.counter() if num_batches is None else tf.data.Dataset.range(num_batches)
    return numbers.map(made).prefetch(2).with_options(options)


def _train_step(model, accumulation_steps, data):
    split = tf.nest.map_structure(
        lambda x: tf.reshape(
            x, tf.concat([[accumulation_steps, tf.shape(x)[0] // accumulation_steps], tf.shape(x)[1:]], 0)
        ),
        data,
    )
    variables = model.trainable_variables

    def add_part(i, *sums):
        gradients = _gradients(model, variables, *tf.nest.map_structure(lambda x: x[i], split))
        return i + 1, *(s + tf.cast(g, s.dtype) / accumulation_steps for s, g in zip(sums, gradients, strict=True))

    start = (tf.constant(0), *(tf.zeros(v.shape, v.dtype) for v in variables))
    _, *gradients = tf.while_loop(lambda i, *_: i < accumulation_steps, add_part, start, parallel_iterations=1)
    if _scales_its_loss(model):
        gradients = _overflowing_on_all(model.optimizer, gradients)
    model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return model.get_metrics_result()


def _gradients(model, variables, inputs, labels, weights):
    """Of one part, as dense tensors; the metrics take note of it."""
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = model.compute_loss(inputs, labels, logits, weights, training=True)
        loss = model.optimizer.scale_loss(loss)
    model.compute_metrics(inputs, labels, logits, sample_weight=weights)
    return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]


def _scales_its_loss(model):
    return isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def _overflowing_on_all(optimizer, gradients):
    """Has an overflow on one replica be one on all: Keras asks each, or the first, before gradients are added up."""
    overflow = tf.cast(tf.logical_not(optimizer.check_finite(gradients)), tf.float32)
    overflows = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, overflow)
    first, *others = gradients
    return [tf.where(overflows > 0, tf.constant(math.nan, first.dtype), first), *others]
