"""Optimizers."""

import keras
from keras import ops

__all__ = ["Adam"]


@keras.saving.register_keras_serializable(package="keras_transformer")
class Adam(keras.optimizers.Adam):
    """Adam that knows the norm of the last gradient, and keeps a moving average of the weights beside them.

    An embedding that is not tied learns as it would from the dense gradient, on any number of replicas.

    The norm is the global one, √Σ g², of the gradient that the update is made from: after accumulation, after the sum
    over replicas, and without the scale of a scaled loss.

    The average, where `use_ema` asks for it, is that of the weights after each update, a ← m · a + (1 - m) · w, and
    begins with the first. Keras copies it over the weights whenever `fit` ends, which ends the training; here that is
    done when asked for, so that training in several calls of `fit` is training in one.

    Args:
        learning_rate: a number or a schedule.
        **kwargs: of `keras.optimizers.Adam`.

    Example:

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    >>> model.compile(Adam(0.1, use_ema=True, ema_momentum=0.9), loss="mse")
    >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    >>> round(model.optimizer.gradient_norm, 3)  # d/dw and d/db of (w + b - 1)² are -2.
    2.828
    >>> model.optimizer.copy_average(model.trainable_variables)

    Reference:
        Kingma and Ba 2015; Polyak and Juditsky 1992, in the exponential form of `keras.optimizers.Optimizer`.
    """

    @property
    def gradient_norm(self) -> float:
        """Global norm of the gradient of the last update."""
        return float(ops.sqrt(self._squared_norm))

    def build(self, variables):
        if not self.built:
            self._squared_norm = self.add_variable((), name="squared_norm", aggregation="only_first_replica")
        super().build(variables)

    def apply(self, grads, trainable_variables=None):
        if self.built:
            self._squared_norm.assign(0.0)
        # Once for all variables: for each apart, as Keras has it, that is a sixth of the operations of a whole step.
        step = ops.cast(self.iterations + 1, "float32")
        self._correction = ops.sqrt(1 - ops.power(self.beta_2, step)) / (1 - ops.power(self.beta_1, step))
        super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        # Dense: TensorFlow gives an embedding's in slices that overlap, of which Keras squares each apart.
        gradient = ops.reshape(gradient, variable.shape)
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
        """Leaves the weights as they are, where Keras puts the average in their place."""

    def copy_average(self, var_list) -> None:
        """Puts the average in the place of the weights.

        Args:
            var_list: the model's trainable variables.
        """
        super().finalize_variable_values(var_list)
        for variable in var_list:  # JAX would let both share one array, and a step that takes the one lose the other.
            variable.assign(ops.copy(variable))


def adam_of(model: keras.Model) -> Adam:
    """The `Adam` that a model is compiled with, which may stand in a loss-scaling optimizer.

    Args:
        model: the model.
    """
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)
