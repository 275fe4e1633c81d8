"""Training on JAX: data parallelism over a mesh of devices, batches from a `PyDataset`; see the package."""

import contextlib
import functools
import re

import jax
import keras

from keras_transformer.training.backends.cluster import count_workers
from keras_transformer.training.backends.devices import Devices, require_known
from keras_transformer.training.data.batches import Batches


class JaxDevices(Devices):
    """Those of Keras's distribution.

    Args:
        count: how many.
    """

    def __init__(self, count: int):
        self.count = count

    @property
    def kind(self) -> str:
        distribution = keras.distribution.distribution()
        is_cpu = distribution is not None and distribution.device_mesh.devices.flat[0].startswith("cpu")
        return "CPU" if is_cpu else jax.devices()[0].device_kind

    def scope(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def jit_compile(self, xla: bool | None) -> bool:
        """Always XLA."""
        if xla is False:
            raise ValueError("`recipe.xla` must not be false on JAX, which runs through XLA. Received: xla=False")
        return True

    def training_data(self, batches: Batches, seed: int, first_step: int) -> keras.utils.PyDataset:
        return _Feed(lambda i: batches.training_batch(seed, first_step + i))

    def validation_data(self, batches: Batches) -> dict:
        return {"validation_data": _Feed(batches.validation_batch, batches.steps)}

    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        if accumulation_steps > 1:
            model.train_step = functools.partial(_train_step, model, accumulation_steps)

    def sync_variables(self, model: keras.Model) -> None:
        """`fit` takes the values from the variables while it runs; here they get them back, until the next step."""
        model.jax_state_sync()


def make_jax_devices(names: str | None) -> Devices:
    """`DataParallel` over these devices, which becomes the distribution of the process."""
    if count_workers() > 1:
        raise ValueError("Several workers, as TF_CONFIG names them, train on the tensorflow backend alone, not on jax")
    chosen = [name.strip() for name in names.split(",")] if names else _accelerators()
    cpus = {int(found[1]) for name in chosen if (found := re.fullmatch(r"CPU:(\d+)", name.upper()))}
    if len(cpus) > 1:
        with contextlib.suppress(RuntimeError):  # Initialised already: what is there must do.
            jax.config.update("jax_num_cpu_devices", 1 + max(cpus))
    if names:
        kinds = {device.platform for device in jax.devices()} | {"cpu"}
        require_known(chosen, [name for kind in kinds for name in keras.distribution.list_devices(kind)])
    is_default = not names and len(chosen) < 2
    devices = None if is_default else keras.distribution.DataParallel(devices=[name.lower() for name in chosen])
    keras.distribution.set_distribution(devices)
    return JaxDevices(max(len(chosen), 1))


def _accelerators():
    return [name for name in keras.distribution.list_devices() if not name.startswith("cpu")]


class _Feed(keras.utils.PyDataset):
    """Batches by their number. To make one takes far less than a step: threads would not pay."""

    def __init__(self, make_batch, num_batches=None):
        super().__init__()
        self._make_batch = make_batch
        self._num_batches = num_batches

    @property
    def num_batches(self):
        return self._num_batches

    def __getitem__(self, index):
        return self._make_batch(index)


def _train_step(model, accumulation_steps, state, data):
    """Of Keras's JAX trainer: `state` are the values of all variables, in and out."""
    trainable, non_trainable, optimizer_variables, metrics_variables = state
    gradients_of = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)

    def add_part(carry, part):
        sums, non_trainable, metrics_variables = carry
        inputs, labels, weights = part
        (_, (_, logits, non_trainable, metrics_variables)), gradients = gradients_of(
            trainable,
            non_trainable,
            metrics_variables,
            *part,
            training=True,
            optimizer_variables=optimizer_variables,
        )
        with keras.StatelessScope(zip(model.metrics_variables, metrics_variables, strict=True)) as scope:
            model.compute_metrics(inputs, labels, logits, weights)
        metrics_variables = [scope.get_current_value(variable) for variable in model.metrics_variables]
        sums = [total + gradient / accumulation_steps for total, gradient in zip(sums, gradients, strict=True)]
        return (sums, non_trainable, metrics_variables), None

    start = [jax.numpy.zeros_like(value) for value in trainable], non_trainable, metrics_variables
    (gradients, non_trainable, metrics_variables), _ = jax.lax.scan(add_part, start, _divided(data, accumulation_steps))
    trainable, optimizer_variables = model.optimizer.stateless_apply(optimizer_variables, gradients, trainable)
    with keras.StatelessScope(zip(model.metrics_variables, metrics_variables, strict=True)):
        logs = model.get_metrics_result()
    return logs, (trainable, non_trainable, optimizer_variables, metrics_variables)


def _divided(data, accumulation_steps):
    """Every so-manieth row is of one part, so that each device divides its own rows."""
    return jax.tree.map(lambda x: x.reshape(-1, accumulation_steps, *x.shape[1:]).swapaxes(0, 1), data)
