"""Optimizers."""

import keras


@keras.saving.register_keras_serializable(package="keras_transformer")
class AveragingAdam(keras.optimizers.Adam):
    """Adam that keeps a moving average of the weights beside them: a ← m · a + (1 - m) · w after each update.

    With `use_ema` Keras copies the average over the weights whenever `fit` ends, which ends the training;
    here that is done when asked for, so that training in several calls of `fit` is training in one.

    Args:
        learning_rate: a number or a schedule.
        ema_momentum: m, in [0, 1].
        **kwargs: of `keras.optimizers.Adam`.

    Example:

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(AveragingAdam(0.1, ema_momentum=0.9), loss="mse")
    >>> history = model.fit(np.ones((4, 1)), np.ones((4, 1)), verbose=0)
    >>> model.optimizer.copy_average(model.trainable_variables)

    Reference:
        Polyak and Juditsky 1992, in the exponential form of `keras.optimizers.Optimizer`.
    """

    def __init__(self, learning_rate=0.001, ema_momentum=0.999, use_ema=True, **kwargs):
        super().__init__(learning_rate, ema_momentum=ema_momentum, use_ema=use_ema, **kwargs)

    def finalize_variable_values(self, var_list):
        """Leaves the weights as they are, where Keras puts the average in their place."""

    def copy_average(self, var_list) -> None:
        """Puts the average in the place of the weights.

        Args:
            var_list: the model's trainable variables.
        """
        super().finalize_variable_values(var_list)
