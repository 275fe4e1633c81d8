"""Training on TensorFlow: `MirroredStrategy` and `tf.data`."""

import contextlib
import functools
import math
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from keras_transformer.training.backends.devices import Devices, count_logical_cpus, require_known
from keras_transformer.training.checkpoints import seed_generators
from keras_transformer.training.data.batches import Batches

#: Difference between the seeds of two replicas. It exceeds the differences between a model's layers.
_SEED_STRIDE = 1_000_003


class TensorFlowDevices(Devices):
    """The devices of a strategy from `make_strategy`."""

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy = strategy
        self.count = strategy.num_replicas_in_sync

    @property
    def kind(self) -> str:
        is_default = self.strategy is tf.distribute.get_strategy()  # It uses the only GPU, if there is one.
        gpu = re.search(r"GPU:(\d+)", " ".join(_all_gpus()) if is_default else self.strategy.extended.worker_devices[0])
        if not gpu:
            return "CPU"
        device = tf.config.list_physical_devices("GPU")[int(gpu[1])]
        return tf.config.experimental.get_device_details(device).get("device_name", "GPU")

    def scope(self) -> AbstractContextManager:
        return self.strategy.scope()

    def check_recipe(self, recipe) -> None:
        """Also requires plain attention: TensorFlow has no fused one."""
        super().check_recipe(recipe)
        if recipe.attention == "fused":
            raise ValueError("`recipe.attention` must not be 'fused' on TensorFlow. Received: attention='fused'")

    def jit_compile(self, xla: bool | None) -> bool:
        """XLA by default on one device; on several GPUs only if requested."""
        if xla and self.count > 1 and self.kind == "CPU":
            raise ValueError(f"`recipe.xla` must not be true on several CPU devices. Received: xla={xla}")
        return self.count == 1 if xla is None else xla

    def training_data(self, batches: Batches, seed: int, first_step: int) -> tf.data.Dataset:
        """An infinite dataset of batches. A strategy splits each batch by rows."""
        return dataset(lambda i: batches.training_batch(seed, first_step + i), signature(batches))

    def validation_data(self, batches: Batches) -> dict:
        return {"validation_data": dataset(batches.validation_batch, signature(batches), batches.steps)}

    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        if accumulation_steps > 1 or (self.count > 1 and _uses_loss_scaling(model)):
            model.train_step = functools.partial(_train_step, model, accumulation_steps)

    def offset_replica_seeds(self, model: keras.Model) -> None:
        if self.count > 1:
            variables = [variable.value for variable in seed_generators(model)]

            @tf.function
            def offset():
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                for variable in variables:
                    variable.assign_add(tf.cast(tf.stack([_SEED_STRIDE * replica, 0]), variable.dtype))

            self.strategy.run(offset)

    def sync_variables(self, model: keras.Model) -> None:
        """Does nothing: TensorFlow trains the variables in place."""


def make_strategy(devices: str | None) -> tf.distribute.Strategy:
    """`MirroredStrategy` over several devices, the default strategy on one. The names are those of `make_devices`."""
    names = [name.strip() for name in devices.split(",")] if devices else _all_gpus()
    if cpus := count_logical_cpus(names):
        # TensorFlow may be initialized already. `require_known` then checks its devices.
        with contextlib.suppress(RuntimeError):
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cpus)
    known = {device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()}
    require_known(names, known)
    if len(names) == 1:
        return tf.distribute.OneDeviceStrategy(f"/{names[0]}") if devices else tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(names) if names else tf.distribute.get_strategy()


def _all_gpus():
    return [f"GPU:{i}" for i in range(len(tf.config.list_physical_devices("GPU")))]


def signature(batches: Batches):
    """The `tf.TensorSpec`s of a batch. Sizes that vary between batches are `None`."""
    rows, source, target = (
        sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*map(batches.filled, batches.shapes), strict=True)
    )
    shapes = {"source": (rows, source), "target": (rows, target)}
    inputs = {name: tf.TensorSpec(shapes[name.split("_")[0]], tf.int32) for name in batches.inputs}
    return inputs, tf.TensorSpec(shapes["target"], tf.int32), tf.TensorSpec(shapes["target"], tf.float32)


def dataset(make_batch: Callable[[int], Any], signature: Any, num_batches: int | None = None) -> tf.data.Dataset:
    """A dataset that makes batches by index and prefetches two of them.

    Args:
        make_batch: maps an index to a batch of NumPy arrays with the signature's dtypes. It must be deterministic.
        signature: `tf.TensorSpec`s in the structure of a batch.
        num_batches: number of batches; `None` for an infinite dataset.
    """
    specs = tf.nest.flatten(signature)

    def made(number):
        # `from_generator` makes the C library return every large freed array to the system, in the whole process, and
        # each step then waits for new memory pages. The iterators of a strategy have the same effect.
        arrays = tf.numpy_function(
            lambda i: tf.nest.flatten(make_batch(int(i))), [number], [spec.dtype for spec in specs], stateful=False
        )
        arrays = [tf.ensure_shape(array, spec.shape) for array, spec in zip(arrays, specs, strict=True)]
        return tf.nest.pack_sequence_as(signature, arrays)

    options = tf.data.Options()
    # The autotuning thread sleeps for increasing times, and the end of a pass sometimes waits for it.
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

    def add_micro_batch(i, *sums):
        gradients = _gradients(model, variables, *tf.nest.map_structure(lambda x: x[i], split))
        return i + 1, *(s + tf.cast(g, s.dtype) / accumulation_steps for s, g in zip(sums, gradients, strict=True))

    start = (tf.constant(0), *(tf.zeros(v.shape, v.dtype) for v in variables))
    _, *gradients = tf.while_loop(lambda i, *_: i < accumulation_steps, add_micro_batch, start, parallel_iterations=1)
    if _uses_loss_scaling(model):
        gradients = _share_overflow(model.optimizer, gradients)
    model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return model.get_metrics_result()


def _gradients(model, variables, inputs, labels, weights):
    """The gradients of a micro-batch, as dense tensors. Updates the metrics."""
    with tf.GradientTape() as tape:
        logits = model(inputs, training=True)
        loss = model.compute_loss(inputs, labels, logits, weights, training=True)
        loss = model.optimizer.scale_loss(loss)
    model.compute_metrics(inputs, labels, logits, sample_weight=weights)
    return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)]


def _uses_loss_scaling(model):
    return isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def _share_overflow(optimizer, gradients):
    """Puts NaN into the gradients of all replicas if one overflows.

    Keras looks for an overflow before it sums the gradients, on each replica or only on the first.
    """
    overflow = tf.cast(tf.logical_not(optimizer.check_finite(gradients)), tf.float32)
    overflows = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, overflow)
    first, *others = gradients
    return [tf.where(overflows > 0, tf.constant(math.nan, first.dtype), first), *others]
