import keras
import numpy as np
import pytest

from keras_transformer.schedules import WarmupCosine, WarmupInverseSqrt


@pytest.mark.parametrize("updates", [0, 1, 98, 99, 100, 101, 5000])
def test_is_equation_3(updates, reference):
    rate = float(WarmupInverseSqrt(d_model=512, warmup_steps=100)(updates))
    assert rate == pytest.approx(reference.learning_rate(updates + 1, 512, 100), rel=1e-5)


def test_defaults_are_the_papers(reference):
    assert float(WarmupInverseSqrt(512)(3999)) == pytest.approx(reference.learning_rate(4000, 512, 4000), rel=1e-5)


def test_highest_at_the_end_of_the_warmup():
    schedule = WarmupInverseSqrt(d_model=64, warmup_steps=10)
    rates = [float(schedule(updates)) for updates in range(30)]
    assert np.argmax(rates) == 9
    assert rates[0] == pytest.approx(rates[9] / 10, rel=1e-5)
    assert min(rates) > 0


def test_peak_replaces_the_one_of_the_width():
    schedule = WarmupInverseSqrt(d_model=64, warmup_steps=10, peak=0.25)
    assert float(schedule(9)) == pytest.approx(0.25)
    assert float(schedule(4)) == pytest.approx(0.125)
    assert float(schedule(39)) == pytest.approx(0.125)


def test_optimizer_uses_it():
    optimizer = keras.optimizers.SGD(WarmupInverseSqrt(d_model=4, warmup_steps=2))
    variable = keras.Variable(0.0)
    optimizer.build([variable])
    optimizer.apply([keras.ops.ones(())])
    assert float(variable.value) == pytest.approx(-(4**-0.5) * 2**-1.5, rel=1e-5)


@pytest.mark.parametrize("arguments", [{"d_model": 0}, {"d_model": 4, "warmup_steps": -1}, {"d_model": 4, "peak": 0.0}])
def test_arguments_must_be_positive(arguments):
    name, value = list(arguments.items())[-1]
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}={value}"):
        WarmupInverseSqrt(**arguments)


def test_configuration_round_trip():
    schedule = WarmupInverseSqrt(64, warmup_steps=10, peak=0.25)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert copy.get_config() == schedule.get_config() == {"d_model": 64, "warmup_steps": 10, "peak": 0.25}


def test_cosine_is_that_of_keras():
    keras_schedule = keras.optimizers.schedules.CosineDecay(0.3 / 4, 6, warmup_target=0.3, warmup_steps=4)
    schedule = WarmupCosine(peak=0.3, warmup_steps=4, total_steps=10)
    rates = [float(schedule(step)) for step in range(13)]
    assert rates == [float(keras_schedule(step)) for step in range(13)]
    assert np.argmax(rates) == 4 and rates[4] == pytest.approx(0.3) and rates[10:] == pytest.approx([0, 0, 0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"peak": 0}, "`peak`.*Received: peak=0"),
        ({"warmup_steps": 0}, "`warmup_steps`.*Received: warmup_steps=0"),
        ({"total_steps": 4}, "`total_steps`.*Received: total_steps=4, warmup_steps=4"),
    ],
)
def test_bad_arguments_of_the_cosine_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupCosine(**{"peak": 0.3, "warmup_steps": 4, "total_steps": 10, **arguments})


def test_cosine_round_trip():
    schedule = WarmupCosine(0.3, 4, 10)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert type(copy) is WarmupCosine and float(copy(7)) == float(schedule(7))
    assert copy.get_config() == schedule.get_config() == {"peak": 0.3, "warmup_steps": 4, "total_steps": 10}
