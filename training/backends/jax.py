"""Training on JAX: data parallelism over a device mesh, with batches from a `PyDataset`."""

import contextlib
import functools

import jax
import keras

from keras_transformer.training.backends.cluster import count_workers
from keras_transformer.training.backends.devices import Devices, count_logical_cpus, require_known
from keras_transformer.training.data.batches import Batches


class JaxDevices(Devices):
    """The devices of the Keras distribution."""

    def __init__(self, count: int):
        self.count = count

    @property
    def kind(self) -> str:
        distribution = keras.distribution.distribution()
        default = jax.devices()[0]
        name = default.platform if distribution is None else distribution.device_mesh.devices.flat[0]
        return "CPU" if name.startswith("cpu") else default.device_kind

    def scope(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def jit_compile(self, xla: bool | None) -> bool:
        """Always true: JAX compiles with XLA."""
        if xla is False:
            raise ValueError("`recipe.xla` must not be false on JAX, which compiles with XLA. Received: xla=False")
        return True

    def training_data(self, batches: Batches, seed: int, first_step: int) -> keras.utils.PyDataset:
        return _Feed(lambda i: batches.training_batch(seed, first_step + i))

    def validation_data(self, batches: Batches) -> dict:
        return {"validation_data": _Feed(batches.validation_batch, batches.steps)}

    def set_steps(self, model: keras.Model, accumulation_steps: int) -> None:
        if accumulation_steps > 1:
            model.train_step = functools.partial(_train_step, model, accumulation_steps)

    def sync_variables(self, model: keras.Model) -> None:
        """Writes the current values into the variables. On JAX, `fit` keeps them elsewhere while it runs."""
        model.jax_state_sync()


def make_jax_devices(names: str | None) -> Devices:
    """`DataParallel` over the named devices. Sets the Keras distribution of the process."""
    if count_workers() > 1:
        raise ValueError("The Keras backend must be tensorflow to train with several workers of TF_CONFIG, not jax")
    chosen = [name.strip() for name in names.split(",")] if names else _accelerators()
    if cpus := count_logical_cpus(chosen):
        with contextlib.suppress(RuntimeError):  # JAX is initialized already; `require_known` checks its devices.
            jax.config.update("jax_num_cpu_devices", cpus)
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
    """Batches by index. One takes far less time than a training step, so no worker threads are needed."""

    def __init__(self, make_batch, num_batches=None):
        super().__init__()
        self._make_batch, self._num_batches = make_batch, num_batches

    @property
    def num_batches(self):
        return self._num_batches

    def __getitem__(self, index):
        return self._make_batch(index)


def _train_step(model, accumulation_steps, state, data):
    """Replaces `train_step` of Keras's JAX trainer. `state` holds the values of all variables."""
    trainable, non_trainable, optimizer_variables, metrics_variables = state
    gradients_of = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)

    def add_micro_batch(carry, micro_batch):
        sums, non_trainable, metrics_variables = carry
        inputs, labels, weights = micro_batch
        (_, (_, logits, non_trainable, metrics_variables)), gradients = gradients_of(
            trainable,
            non_trainable,
            metrics_variables,
            *micro_batch,
            training=True,
            optimizer_variables=optimizer_variables,
        )
        with keras.StatelessScope(zip(model.metrics_variables, metrics_variables, strict=True)) as scope:
            model.compute_metrics(inputs, labels, logits, weights)
        metrics_variables = [scope.get_current_value(variable) for variable in model.metrics_variables]
        sums = [total + gradient / accumulation_steps for total, gradient in zip(sums, gradients, strict=True)]
        return (sums, non_trainable, metrics_variables), None

    start = [jax.numpy.zeros_like(value) for value in trainable], non_trainable, metrics_variables
    micro_batches = _split_micro_batches(data, accumulation_steps)
    (gradients, non_trainable, metrics_variables), _ = jax.lax.scan(add_micro_batch, start, micro_batches)
    trainable, optimizer_variables = model.optimizer.stateless_apply(optimizer_variables, gradients, trainable)
    with keras.StatelessScope(zip(model.metrics_variables, metrics_variables, strict=True)):
        logs = model.get_metrics_result()
    return logs, (trainable, non_trainable, optimizer_variables, metrics_variables)


def _split_micro_batches(data, accumulation_steps):
    """Puts every n-th row into one micro-batch, so that the rows stay on their devices."""
    return jax.tree.map(lambda x: x.reshape(-1, accumulation_steps, *x.shape[1:]).swapaxes(0, 1), data)
