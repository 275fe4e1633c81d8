"""The learning rate of a run: what a recipe leaves open follows from the run's number of steps."""

import warnings
from typing import NamedTuple

import keras

from keras_transformer.schedules import WarmupCosine, WarmupInverseSqrt

#: The paper's warm-up, which longer runs have by default.
_LONGEST_WARMUP = 4000
#: Default share of a shorter run that is warm-up.
_WARMUP_SHARE = 0.1
#: A shorter warm-up has the peak of one of this many steps: the paper's formula would exceed what trains stably.
_LEAST_WARMUP_OF_PEAK = 2000
#: Default peak of fine-tuning, as a share of that of a model trained from scratch.
_FINE_TUNING_SHARE = 0.5


class Peak(NamedTuple):
    """Where a learning rate is highest.

    Attributes:
        step: steps of linear warm-up.
        rate: learning rate at its end.
    """

    step: int
    rate: float


def learning_rate_peak(recipe, d_model: int, total: int, is_fine_tuning: bool = False) -> Peak:
    """The peak of a run's learning rate, with what the recipe leaves open.

    Args:
        recipe: the `RecipeConfig`.
        d_model: width of the model.
        total: steps of the whole run.
        is_fine_tuning: whether the run begins with a trained model.

    Returns:
        `Peak`.
    """
    warmup = recipe.warmup_steps or min(_LONGEST_WARMUP, max(1, round(_WARMUP_SHARE * total)))
    if recipe.peak_learning_rate:
        return Peak(warmup, recipe.peak_learning_rate)
    rate = (d_model * max(warmup, _LEAST_WARMUP_OF_PEAK)) ** -0.5
    return Peak(warmup, rate * _FINE_TUNING_SHARE if is_fine_tuning else rate)


def learning_rate(
    recipe, d_model: int, total: int, is_fine_tuning: bool = False
) -> keras.optimizers.schedules.LearningRateSchedule:
    """The schedule of a run's learning rate.

    Args:
        recipe: the `RecipeConfig`.
        d_model: width of the model.
        total: steps of the whole run.
        is_fine_tuning: whether the run begins with a trained model.

    Returns:
        A Keras schedule.

    Raises:
        ValueError: if a cosine would have to fall before its warm-up is over.

    Warns:
        UserWarning: if the run ends before its warm-up.
    """
    warmup, peak = learning_rate_peak(recipe, d_model, total, is_fine_tuning)
    if recipe.schedule == "inverse_sqrt":
        if warmup > total:
            warnings.warn(
                f"the run ends after {total} steps, within its warm-up of {warmup} steps: its learning rate never "
                f"reaches {peak:.2g}. Lower or leave out `recipe.warmup_steps`, or train for more steps",
                stacklevel=2,
            )
        return WarmupInverseSqrt(d_model, warmup, peak)
    if warmup >= total:
        raise ValueError(
            f"`warmup_steps` must be less than the {total} steps of the run with the cosine schedule. "
            f"Received: warmup_steps={warmup}"
        )
    return WarmupCosine(peak, warmup, total)


def describe(schedule: keras.optimizers.schedules.LearningRateSchedule) -> str:
    """A schedule in words.

    Args:
        schedule: what `learning_rate` has returned.
    """
    fall = "1/√step" if isinstance(schedule, WarmupInverseSqrt) else "a cosine to 0"
    return f"{schedule.peak:.2g} after {schedule.warmup_steps:,} steps of warm-up, then falling as {fall}"
