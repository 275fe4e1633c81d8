"""Optimizers."""

import functools

import keras
from keras import ops

__all__ = ["Adam"]


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """Adam that records the gradient norm and leaves the averaged weights separate from the model.

    `gradient_norm` is the global norm √Σ g² of the gradient of the last update: after gradient accumulation, after the
    sum over replicas, and after loss scaling is undone, but before clipping. It is 0 before the first update.

    Gradients are clipped after their sum over replicas. `keras.optimizers.Adam` clips the gradient of each replica,
    which gives another update on several replicas.

    Weight decay (`weight_decay`, decoupled as in AdamW) applies to matrices. Biases and the parameters of layer
    normalization are not decayed.

    With `use_ema`, the optimizer keeps a moving average of the weights after each update, a ← m · a + (1 - m) · w,
    starting with the weights after the first update. `keras.optimizers.Adam` overwrites the weights with the average
    at the end of `fit`. This class does so only in `copy_average`, so several calls of `fit` equal one longer call.

    Sparse embedding gradients are converted to dense ones, which gives the same update on any number of replicas.

    Args:
        learning_rate: a float or a `LearningRateSchedule`.
        **kwargs: arguments of `keras.optimizers.Adam`.

    Example:

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    >>> model.compile(Adam(0.1, use_ema=True, ema_momentum=0.9), loss="mse")
    >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    >>> round(model.optimizer.gradient_norm, 3)  # d/dw and d/db of (w + b - 1)² are -2.
    2.828
    >>> model.optimizer.copy_average(model.trainable_variables)

    Reference:
        Kingma and Ba 2015; Loshchilov and Hutter 2019 (weight decay); Polyak and Juditsky 1992 (average), in the
        exponential form of `keras.optimizers.Optimizer`.
    """

    @property
    def gradient_norm(self) -> float:
        """Global norm of the gradient of the last update."""
        return float(ops.sqrt(self._squared_norm)) if self.built else 0.0

    def build(self, variables):
        if not self.built:
            self._squared_norm = self.add_variable((), name="squared_norm", aggregation="only_first_replica")
        super().build(variables)

    def apply(self, grads, trainable_variables=None):
        if self.built:
            kept = 0.0
            if steps := self.gradient_accumulation_steps:
                is_update = ops.equal((self._iterations + 1) % steps, 0)
                kept = ops.where(is_update, 0.0, ops.convert_to_tensor(self._squared_norm))
            self._squared_norm.assign(kept)
        # Computed once per step. Keras computes it per variable, which is a sixth of the operations of a training step.
        step = ops.cast(self.iterations + 1, "float32")
        self._correction = ops.sqrt(1 - ops.power(self.beta_2, step)) / (1 - ops.power(self.beta_1, step))
        super().apply(grads, trainable_variables)

    def _clip_gradients(self, grads):
        # With TensorFlow this runs before the sum over replicas; `_all_reduce_sum_gradients` clips there.
        return grads if keras.backend.backend() == "tensorflow" else self._clipped(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        grads, variables = zip(*super()._all_reduce_sum_gradients(grads_and_vars), strict=True)
        return list(zip(self._clipped(grads), variables, strict=True))

    def _clipped(self, grads):
        if not self._clips:
            return grads
        grads = [ops.convert_to_tensor(gradient) for gradient in grads]  # Densify; see `update_step`.
        norms = [ops.sum(ops.square(ops.cast(gradient, "float32"))) for gradient in grads]
        self.assign(self._squared_norm, functools.reduce(ops.add, norms))
        return super()._clip_gradients(grads)

    @property
    def _clips(self):
        return bool(self.clipnorm or self.clipvalue or self.global_clipnorm)

    def _use_weight_decay(self, variable):
        return len(variable.shape) > 1 and super()._use_weight_decay(variable)

    def update_step(self, gradient, variable, learning_rate):
        # Densify: TensorFlow's sparse embedding gradients may repeat a row, and Keras would square each repetition.
        gradient = ops.reshape(gradient, variable.shape)
        if not self._clips:
            self.assign_add(self._squared_norm, ops.sum(ops.square(ops.cast(gradient, "float32"))))
        if self.amsgrad:
            super().update_step(gradient, variable, learning_rate)
            return
        gradient = ops.cast(gradient, variable.dtype)
        rate = ops.cast(learning_rate * self._correction, variable.dtype)
        index = self._get_variable_index(variable)
        mean, square = self._momentums[index], self._velocities[index]
        self.assign_add(mean, ops.multiply(ops.subtract(gradient, mean), 1 - self.beta_1))
        self.assign_add(square, ops.multiply(ops.subtract(ops.square(gradient), square), 1 - self.beta_2))
        self.assign_sub(variable, ops.divide(ops.multiply(mean, rate), ops.add(ops.sqrt(square), self.epsilon)))

    def finalize_variable_values(self, var_list):
        """Does nothing. Keras would overwrite the weights with their average here; see `copy_average`."""

    def copy_average(self, var_list) -> None:
        """Overwrites the weights with their moving average.

        Args:
            var_list: the model's trainable variables.
        """
        super().finalize_variable_values(var_list)
        for variable in var_list:  # On JAX both would share one array, and a step that donates it deletes both.
            variable.assign(ops.copy(variable))


def inner_adam(model: keras.Model) -> Adam:
    """Returns the `Adam` of a compiled model, unwrapped from a loss-scaling optimizer."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)
