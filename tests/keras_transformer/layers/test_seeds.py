"""Explicit seeds: equal layers for equal seeds, and different weights and dropout for each part and each copy."""

import itertools
import random

import keras
import numpy as np
import pytest

from keras_transformer.layers import Dropout, FeedForward, MultiHeadAttention, TokenEmbedding
from keras_transformer.layers.seeds import fold_seed, mix_seed

pytestmark = pytest.mark.portable
to_numpy = keras.ops.convert_to_numpy
X = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
#: Layers all of whose kernels have the shape (12, 12).
SQUARE = {
    "attention": lambda **arguments: MultiHeadAttention(12, 3, dropout=0.4, **arguments),
    "feed-forward": lambda **arguments: FeedForward(12, 12, dropout=0.4, **arguments),
    "gated": lambda **arguments: FeedForward(12, 12, dropout=0.4, gated=True, **arguments),
}
INITIALIZERS = {
    "name": "he_normal",
    "class": keras.initializers.HeNormal,
    "configuration": keras.initializers.serialize(keras.initializers.HeNormal()),
    "without seed": keras.initializers.HeNormal(),
    "with seed": keras.initializers.HeNormal(seed=5),
    "with generator": keras.initializers.HeNormal(seed=keras.random.SeedGenerator(5)),
}


@pytest.fixture(params=SQUARE)
def make(request):
    return SQUARE[request.param]


def kernels(layer):
    layer.build(X.shape)
    return [to_numpy(weight) for weight in layer.weights if weight.name == "kernel"]


def assert_all_different(arrays):
    for one, other in itertools.combinations(arrays, 2):
        assert np.abs(one - other).max() > 1e-2


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_no_two_projections_start_alike(initializer, seed, make):
    given = INITIALIZERS[initializer]
    assert_all_different(kernels(make(kernel_initializer=given, seed=seed)))


@pytest.mark.parametrize("arguments", [{"seed": 7}, {"kernel_initializer": INITIALIZERS["with seed"]}])
def test_an_attention_and_a_feed_forward_layer_with_one_seed_do_not_start_alike(arguments):
    assert_all_different([kernel for name in ("attention", "gated") for kernel in kernels(SQUARE[name](**arguments))])


@pytest.mark.parametrize("initializer", INITIALIZERS)
def test_equal_seeds_give_equal_layers_in_every_run(initializer, make):
    found = []
    for run in range(2):
        keras.utils.set_random_seed(run)
        layer = make(kernel_initializer=INITIALIZERS[initializer], bias_initializer="random_normal", seed=7)
        found.append([*map(to_numpy, (layer(X, training=True), layer(X, training=True), *layer.weights))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    layer = make(kernel_initializer=INITIALIZERS[initializer], seed=8)
    assert np.abs(to_numpy(layer(X, training=True)) - found[0][0]).max() > 1e-2


def test_an_initializer_with_a_seed_needs_no_seed_of_the_layer(make):
    given = keras.initializers.HeNormal(seed=5)
    pairs = [kernels(make(kernel_initializer=given)), kernels(make(kernel_initializer=given, seed=7))]
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_distribution_is_that_of_the_initializer():
    layer = FeedForward(211, 211, kernel_initializer=keras.initializers.RandomNormal(2.0, 0.1, seed=3), gated=True)
    layer.build((None, 211))
    for kernel in (layer.inner.kernel, layer.outer.kernel, layer.gate.kernel):
        values = to_numpy(kernel)
        assert values.mean() == pytest.approx(2, abs=0.01) and values.std() == pytest.approx(0.1, rel=0.02)


def test_biases_and_kernels_have_seeds_of_their_own():
    layer = MultiHeadAttention(
        1, 1, 12, 12, kernel_initializer="random_normal", bias_initializer="random_normal", seed=3
    )
    layer.build((None, 5, 1))
    assert_all_different([to_numpy(weight).ravel() for weight in layer.weights[:6]])


def test_initializers_without_a_seed_and_functions_are_used_as_they_are(make):
    for given in ("ones", keras.initializers.Constant(1.0), lambda shape, dtype: keras.ops.ones(shape, dtype)):
        layer = make(kernel_initializer=given, bias_initializer=given, seed=7)
        layer.build(X.shape)
        assert all((to_numpy(weight) == 1).all() for weight in layer.weights)


def test_a_regularizer_adds_the_loss_of_each_kernel(make):
    layer = make(kernel_regularizer=keras.regularizers.L2(0.3))
    layer(X)
    expected = 0.3 * sum((to_numpy(weight) ** 2).sum() for weight in layer.weights if weight.name == "kernel")
    assert to_numpy(sum(layer.losses)) == pytest.approx(expected, rel=1e-5)
    assert not make().losses


@pytest.mark.parametrize("arguments", [{"seed": 7}, {"kernel_initializer": INITIALIZERS["with seed"]}])
def test_a_configuration_keeps_seeds_initializers_and_regularizers(arguments, make):
    layer = make(kernel_regularizer="l1", bias_initializer="ones", **arguments)
    copy = type(layer).from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    expected = kernels(layer)
    for one, other in zip(kernels(copy), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(copy.losses) == len(expected)


def test_configurations_of_earlier_versions_are_loaded():
    for layer in (FeedForward(3, 5), TokenEmbedding(7, 3), Dropout(0.5)):
        config = layer.get_config()
        new = {"gated", "kernel_initializer", "bias_initializer", "kernel_regularizer", "seed", "noise_shape"}
        new |= {"embeddings_initializer", "embeddings_regularizer", "embeddings_constraint"}
        earlier = {name: value for name, value in config.items() if name not in new}
        assert type(layer).from_config(earlier).get_config() == config


def test_without_a_seed_each_part_draws_as_keras_draws():
    """In order: the projections, then the dropout of attention; the dropout of feed-forward before `outer`."""
    keras.utils.set_random_seed(3)
    attention, feed_forward = SQUARE["attention"](), SQUARE["feed-forward"]()
    state = random.getstate()
    parts = [keras.layers.Dense(12) for _ in range(4)], Dropout(0.4), keras.layers.Dense(12), Dropout(0.4)
    keras.utils.set_random_seed(3)
    projections, dropout = [keras.layers.Dense(12) for _ in range(4)], Dropout(0.4)
    inner, inner_dropout, outer = keras.layers.Dense(12), Dropout(0.4), keras.layers.Dense(12)
    assert random.getstate() == state and len(parts) == 4
    for layer in (attention, feed_forward):
        layer.build(X.shape)
    for dense in (*projections, inner, outer):
        dense.build(X.shape)
    found = [weight for layer in (attention, feed_forward) for weight in layer.weights]
    expected = [weight for dense in (*projections, inner, outer) for weight in dense.weights]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    for one, other in ((attention.weights_dropout, dropout), (feed_forward.inner_dropout, inner_dropout)):
        np.testing.assert_array_equal(to_numpy(one(X, training=True)), to_numpy(other(X, training=True)))


def test_mixed_seeds_differ_and_are_accepted_by_every_backend():
    mixed = {mix_seed(seed, index) for seed in (0, 1, 7, -7, 2**31, 2**40) for index in range(100)}
    assert len(mixed) == 600 and 0 <= min(mixed) and max(mixed) < 2**31
    keras.random.SeedGenerator(max(mixed))
    assert mix_seed(np.int64(7), 1) == mix_seed(7, 1) and mix_seed(None, 1) is None
    # A seed that is folded twice has nothing in common with others.
    twice = {mix_seed(mix_seed(7, i), j) for i in range(10) for j in range(10)}
    assert len(twice | mixed) == 700


def test_folding_replaces_every_explicit_seed_and_nothing_else():
    config = {
        "seed": 3,
        "units": 5,
        "drop_seed": 4,
        "rate": 0.5,
        "parts": [{"config": {"seed": None}}, ({"seed": 6},)],
        "generator": {"class_name": "SeedGenerator", "config": {"seed": np.int64(8), "name": "seed"}},
        "seedling": 9,
        "use_seed": True,
    }
    expected = {
        **config,
        "seed": mix_seed(3, 2),
        "drop_seed": mix_seed(4, 2),
        "parts": [{"config": {"seed": None}}, ({"seed": mix_seed(6, 2)},)],
        "generator": {"class_name": "SeedGenerator", "config": {"seed": mix_seed(8, 2), "name": "seed"}},
    }
    assert fold_seed(config, 2) == expected
    assert config["seed"] == 3 and config["parts"][1][0]["seed"] == 6
