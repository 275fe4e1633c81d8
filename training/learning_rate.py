"""The learning rate of a run. Its defaults depend on the number of steps."""

import warnings
from typing import NamedTuple

import keras

from keras_transformer.counting import counted
from keras_transformer.schedules import WarmupCosine, WarmupInverseSqrt

#: Default warm-up of long runs, as in the paper.
_MAX_WARMUP = 4000
#: Default warm-up of shorter runs, as a share of the run.
_WARMUP_SHARE = 0.1
#: Minimum warm-up in the formula of the default peak. With a smaller number the peak is too high for stable training.
_MIN_WARMUP_FOR_PEAK = 2000
#: Default peak of fine-tuning, relative to training from scratch.
_FINE_TUNING_SHARE = 0.5


class Peak(NamedTuple):
    """The maximum of the learning rate: its step, which is the end of the linear warm-up, and its rate."""

    step: int
    rate: float


def learning_rate_peak(recipe, d_model: int, total: int, is_fine_tuning: bool = False) -> Peak:
    """The peak of a run's learning rate; fills in the defaults of the recipe."""
    warmup = recipe.warmup_steps or min(_MAX_WARMUP, max(1, round(_WARMUP_SHARE * total)))
    if recipe.peak_learning_rate:
        return Peak(warmup, recipe.peak_learning_rate)
    rate = (d_model * max(warmup, _MIN_WARMUP_FOR_PEAK)) ** -0.5
    return Peak(warmup, rate * _FINE_TUNING_SHARE if is_fine_tuning else rate)


def learning_rate(
    recipe, d_model: int, total: int, is_fine_tuning: bool = False
) -> keras.optimizers.schedules.LearningRateSchedule:
    """The learning rate schedule of a run of `total` steps.

    Raises:
        ValueError: if the warm-up of a cosine schedule is not shorter than the run.

    Warns:
        UserWarning: if the run ends during the warm-up.
    """
    warmup, peak = learning_rate_peak(recipe, d_model, total, is_fine_tuning)
    if recipe.schedule == "inverse_sqrt":
        if warmup > total:
            warnings.warn(
                f"The run ends after {counted(total, 'step')}, before its warm-up of {counted(warmup, 'step')}. "
                f"The learning rate does not reach {peak:.2g}. "
                "Decrease or omit `recipe.warmup_steps`, or train for more steps",
                stacklevel=2,
            )
        return WarmupInverseSqrt(d_model, warmup, peak)
    if warmup >= total:
        raise ValueError(
            f"`warmup_steps` must be less than the number of steps, {total}, with the cosine schedule. "
            f"Received: warmup_steps={warmup}"
        )
    return WarmupCosine(peak, warmup, total)


def describe(schedule: keras.optimizers.schedules.LearningRateSchedule) -> str:
    """Describes a schedule of `learning_rate` in one line."""
    decay = "inverse square root decay" if isinstance(schedule, WarmupInverseSqrt) else "cosine decay to 0"
    return f"peak {schedule.peak:.2g} after {schedule.warmup_steps:,} warm-up steps, then {decay}"
