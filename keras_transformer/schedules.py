"""Learning-rate schedules."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupInverseSqrt(keras.optimizers.schedules.LearningRateSchedule):
    """lrate = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5), for steps counted from 1.

    Rises linearly for `warmup_steps` steps, then falls with the inverse square root of the step.

    Args:
        d_model: width of the model; decides the peak, d_model^-0.5 · warmup_steps^-0.5.
        warmup_steps: steps until the peak.
        peak: learning rate at the peak, instead of the one that `d_model` gives.

    Call arguments:
        step: int, the number of updates made before, as the optimizer counts them.

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
        for name, value in (("d_model", d_model), ("warmup_steps", warmup_steps), ("peak", peak)):
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.peak = peak

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        peak = self.peak or (self.d_model * self.warmup_steps) ** -0.5
        return peak * ops.minimum(step / self.warmup_steps, ops.rsqrt(step / self.warmup_steps))

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "peak": self.peak}
