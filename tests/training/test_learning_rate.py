import warnings

import pytest

from keras_transformer.training.config import RecipeConfig
from keras_transformer.training.learning_rate import describe, learning_rate, learning_rate_peak


@pytest.mark.parametrize(("total", "warmup"), [(100_000, 4000), (40_000, 4000), (2000, 200), (110, 11), (4, 1)])
def test_the_warmup_is_a_tenth_of_the_run_and_the_papers_at_most(total, warmup):
    assert learning_rate_peak(RecipeConfig(), 128, total).step == warmup


def test_the_peak_is_the_papers_and_no_higher_in_short_runs():
    assert learning_rate_peak(RecipeConfig(), 512, 100_000).rate == pytest.approx((512 * 4000) ** -0.5)
    assert learning_rate_peak(RecipeConfig(warmup_steps=8000), 512, 100_000).rate == pytest.approx((512 * 8000) ** -0.5)
    assert learning_rate_peak(RecipeConfig(), 128, 110).rate == pytest.approx((128 * 2000) ** -0.5)


def test_fine_tuning_has_a_lower_peak_unless_one_is_given():
    assert learning_rate_peak(RecipeConfig(), 128, 110, is_fine_tuning=True).rate == pytest.approx(
        learning_rate_peak(RecipeConfig(), 128, 110).rate / 2
    )
    assert learning_rate_peak(RecipeConfig(peak_learning_rate=0.02), 128, 110, is_fine_tuning=True).rate == 0.02


def test_small_corpora_are_seen_more_often():
    assert RecipeConfig().total_steps(1000) == 10_000
    assert RecipeConfig().total_steps(11) == 1100  # 100 epochs
    assert RecipeConfig().total_steps(150) == 14 * 150
    assert RecipeConfig().total_steps(11, is_fine_tuning=True) == 46 * 11
    assert RecipeConfig(epochs=3).total_steps(11) == 33
    assert RecipeConfig(max_steps=50).total_steps(11) == 50


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_the_default_schedule_rises_to_its_peak_and_falls(schedule):
    rate = learning_rate(RecipeConfig(schedule=schedule), 128, 200)
    rates = [float(rate(step)) for step in range(200)]
    assert max(rates) == pytest.approx((128 * 2000) ** -0.5, rel=0.01)
    assert 19 <= rates.index(max(rates)) <= 20 and rates[-1] < 0.4 * max(rates)
    assert "0.002 after 20 warm-up steps" in describe(rate)


def test_a_run_within_its_warmup_is_warned_of():
    with pytest.warns(UserWarning, match="110 steps.*4,000 steps.*warmup_steps"):
        learning_rate(RecipeConfig(warmup_steps=4000), 128, 110)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learning_rate(RecipeConfig(warmup_steps=110), 128, 110)
        learning_rate(RecipeConfig(), 128, 1)
