import keras
import numpy as np
import pytest

from keras_transformer.optimizers import Adam, inner_adam
from keras_transformer.saving import load_model

DATA = np.arange(12, dtype="float32").reshape(4, 3), np.ones((4, 2), "float32")


@pytest.fixture
def make(few_steps):
    """A linear model, compiled with the optimizer, and its first weights."""

    def make(optimizer):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile(optimizer, "mse", **few_steps)
        return model, model.get_weights()

    return make


def gradient_norm_by_hand(weights):
    """Of the mean of (x W + b - y)² over rows and columns."""
    x, y = DATA
    slope = 2 * (x @ weights[0] + weights[1] - y) / y.size
    return np.sqrt(np.sum((x.T @ slope) ** 2) + np.sum(slope.sum(0) ** 2))


@pytest.mark.parametrize("scaled", [False, True])
def test_the_norm_is_that_of_the_last_gradient(make, scaled):
    optimizer = keras.optimizers.LossScaleOptimizer(Adam(0.1)) if scaled else Adam(0.1)
    model, weights = make(optimizer)
    for _ in range(2):
        weights = model.get_weights()
        model.fit(*DATA, batch_size=4, verbose=0)
        assert inner_adam(model).gradient_norm == pytest.approx(gradient_norm_by_hand(weights), rel=1e-4)


def test_an_embedding_learns_as_from_its_dense_gradient(few_steps):
    """One row is looked up twice: its slices count as their sum, in the norm and in the moments."""
    ids, labels, rows = np.array([[1, 1]], "int32"), np.ones((1, 3)), np.zeros((5, 3))
    layers = [keras.layers.Embedding(5, 3), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile(Adam(0.1, beta_1=0.0, beta_2=0.5, epsilon=1e-9), "mse", **few_steps)
    model.set_weights([rows])
    velocity = 0.0
    for step in (1, 2):
        gradient = 2 * (rows[1] - 1) / 3
        velocity = 0.5 * velocity + 0.5 * gradient**2
        rows[1] -= 0.1 * gradient * np.sqrt(1 - 0.5**step) / np.sqrt(velocity)
        model.fit(ids, labels, verbose=0)
        assert model.optimizer.gradient_norm == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
        np.testing.assert_allclose(model.get_weights()[0], rows, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.01},
        {"amsgrad": True},
        {"clipnorm": 0.1},
        {"global_clipnorm": 0.1},
    ],
)
def test_it_learns_as_the_adam_of_keras(make, options):
    (ours, _), (theirs, first) = make(Adam(0.1, **options)), make(keras.optimizers.Adam(0.1, **options))
    ours.set_weights(first)
    for model in (ours, theirs):
        model.fit(*DATA, batch_size=2, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_weight_decay_applies_to_matrices_also_after_loading(make, tmp_path):
    model, (matrix, bias) = make(Adam(0.1, weight_decay=0.5, epsilon=1.0))
    model.build_from_config({"input_shape": (None, 3)})
    model.set_weights([matrix, bias + 1])
    x, y = DATA[0], DATA[0] @ matrix + bias + 1  # The gradient is 0.
    for decayed in (0.95, 0.95**2):
        model.fit(x, y, batch_size=4, verbose=0)
        for ours, expected in zip(model.get_weights(), (matrix * decayed, bias + 1), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-3)
        model.save(tmp_path / "model.keras")
        model = load_model(tmp_path / "model.keras")
        y = x @ model.get_weights()[0] + bias + 1


def test_the_norm_is_that_before_clipping(make):
    model, weights = make(Adam(0.1, global_clipnorm=0.01))
    model.fit(*DATA, batch_size=4, verbose=0)
    assert model.optimizer.gradient_norm == pytest.approx(gradient_norm_by_hand(weights), rel=1e-4)


def test_the_average_is_kept_beside_the_weights_and_is_saved(make, tmp_path):
    model, _ = make(Adam(0.1, use_ema=True, ema_momentum=0.75))
    model.fit(*DATA, batch_size=4, verbose=0)
    average = model.get_weights()
    for _ in range(2):
        model.fit(*DATA, batch_size=4, verbose=0)
        average = [0.75 * a + 0.25 * w for a, w in zip(average, model.get_weights(), strict=True)]
    weights = model.get_weights()
    model.save(tmp_path / "model.keras")
    for one in (model, load_model(tmp_path / "model.keras")):
        for ours, expected in zip(one.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(ours, expected)
        inner_adam(one).copy_average(one.trainable_variables)
        for ours, expected in zip(one.get_weights(), average, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-5)
        assert abs(average[0] - weights[0]).max() > 0.01


def test_the_norm_stays_until_the_next_update(make):
    model, weights = make(Adam(0.1, gradient_accumulation_steps=2))
    assert Adam().gradient_norm == 0
    expected = [0.0, gradient_norm_by_hand(weights), gradient_norm_by_hand(weights)]
    for norm in expected:
        model.fit(*DATA, batch_size=4, verbose=0)
        assert model.optimizer.gradient_norm == pytest.approx(norm, rel=1e-4)
    assert expected[1] > 0
