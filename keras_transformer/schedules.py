"""Learning-rate schedules."""

import keras
from keras import ops

from keras_transformer.checks import positive, require


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupInverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), for steps counted from 1.

    Rises linearly for `warmup_steps` steps, then falls with the inverse square root of the step.

    Args:
        d_model: width of the model.
        warmup_steps: number of steps until the peak.
        peak: learning rate at the peak. Default: d_model^-0.5 · warmup_steps^-0.5.

    Call arguments:
        step: int, number of completed updates (`optimizer.iterations`).

    Returns:
        Float32 scalar.

    Raises:
        ValueError: if an argument is not positive.

    Example:

    >>> round(float(WarmupInverseSqrt(d_model=512)(3999)), 7)
    0.0006988

    Reference:
        Vaswani et al. 2017, §5.3, equation 3.
    """

    def __init__(self, d_model, warmup_steps=4000, peak=None):
        require(positive(d_model=d_model, warmup_steps=warmup_steps, peak=peak))
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.peak = peak

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        peak = self.peak or (self.d_model * self.warmup_steps) ** -0.5
        return peak * ops.minimum(step / self.warmup_steps, ops.rsqrt(step / self.warmup_steps))

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "peak": self.peak}


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, then half a cosine down to 0: peak · (1 + cos(π (step - w) / (total_steps - w))) / 2.

    This is `keras.optimizers.schedules.CosineDecay` with a warm-up of w = `warmup_steps` steps from `peak` / w.
    After `total_steps` the learning rate is 0.

    Args:
        peak: learning rate at the peak.
        warmup_steps: number of steps until the peak.
        total_steps: number of training steps, including the warm-up.

    Call arguments:
        step: int, number of completed updates (`optimizer.iterations`).

    Returns:
        Float32 scalar.

    Raises:
        ValueError: if an argument is not positive, or `total_steps` is not greater than `warmup_steps`.

    Example:

    >>> schedule = WarmupCosine(peak=1e-3, warmup_steps=100, total_steps=1100)
    >>> [round(float(schedule(step)), 5) for step in (0, 50, 100, 600, 1100)]
    [1e-05, 0.00051, 0.001, 0.0005, 0.0]

    Reference:
        Loshchilov and Hutter 2017, "SGDR", §3 (without restarts).
    """

    def __init__(self, peak, warmup_steps, total_steps):
        require(positive(peak=peak, warmup_steps=warmup_steps, total_steps=total_steps))
        if warmup_steps >= total_steps:
            raise ValueError(
                "`total_steps` must be greater than `warmup_steps`. "
                f"Received: total_steps={total_steps}, warmup_steps={warmup_steps}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self._schedule = keras.optimizers.schedules.CosineDecay(
            peak / warmup_steps, total_steps - warmup_steps, warmup_target=peak, warmup_steps=warmup_steps
        )

    def __call__(self, step):
        return self._schedule(step)

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps, "total_steps": self.total_steps}
