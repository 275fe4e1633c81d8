"""Copies, dtype policies and owners of the layers that a user gives as parts of a block."""

import gc
import itertools
import json

import keras
import numpy as np
import pytest

from keras_transformer import layers
from keras_transformer.layers.parts import adopt, claim, copy_layer

pytestmark = pytest.mark.portable
to_numpy = keras.ops.convert_to_numpy
X = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")


@keras.saving.register_keras_serializable(package="tests")
class Noisy(keras.layers.Layer):
    """A user's layer: a nested layer of Keras, a weight and a generator of its own, and a seed."""

    def __init__(self, inner, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.seed = inner, seed
        self.generator = keras.random.SeedGenerator(seed)

    def build(self, inputs_shape):
        self.inner.build(inputs_shape)
        initializer = keras.initializers.RandomNormal(seed=self.seed)
        self.shift = self.add_weight((inputs_shape[-1],), initializer, name="shift")

    def call(self, inputs, training=False):
        noise = keras.random.normal(keras.ops.shape(inputs), seed=self.generator) if training else 0.0
        return self.inner(inputs) + self.shift + noise

    def get_config(self):
        inner = keras.saving.serialize_keras_object(self.inner)
        return {**super().get_config(), "inner": inner, "seed": self.seed}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "inner": keras.saving.deserialize_keras_object(config["inner"])})


def he():
    return keras.initializers.HeNormal(seed=4)


def dense():
    return keras.layers.Dense(12, kernel_initializer=he())


#: Parts with explicit seeds, which keep the shape `(batch, length, 12)`.
PARTS = {
    "MultiHeadAttention": lambda: layers.MultiHeadAttention(12, 6, num_kv_heads=2, dropout=0.4, seed=3),
    "FeedForward": lambda: layers.FeedForward(12, 12, gated=True, dropout=0.4, kernel_initializer=he(), seed=3),
    "nested": lambda: layers.ResidualConnection(layers.FeedForward(12, 12, seed=3), dropout=0.4),
    "Dense": dense,
    "Dropout": lambda: keras.layers.Dropout(0.4, seed=3),
    "ours": lambda: layers.Dropout(0.4, seed=3),
    "Sequential": lambda: keras.Sequential([dense(), keras.layers.Dropout(0.4, seed=3), dense()]),
    "user's": lambda: Noisy(dense(), seed=3),
}


@pytest.fixture(params=PARTS)
def part(request):
    return PARTS[request.param]()


def test_no_two_copies_start_or_drop_alike(part):
    copies = [copy_layer(part, f"copy_{i}", index=i) for i in range(3)]
    outputs = [to_numpy(copy(X, training=True)) for copy in copies]
    for one, other in itertools.combinations(range(3), 2):
        assert np.abs(outputs[one] - outputs[other]).max() > 1e-3
        for a, b in zip(copies[one].trainable_weights, copies[other].trainable_weights, strict=True):
            is_random = len(np.unique(to_numpy(a))) > 1
            assert not is_random or np.abs(to_numpy(a) - to_numpy(b)).max() > 1e-3, a.path
    assert [copy.name for copy in copies] == ["copy_0", "copy_1", "copy_2"]


@pytest.mark.parametrize("name", ["MultiHeadAttention", "FeedForward", "Dense", "Dropout", "user's"])
def test_a_copy_is_the_same_in_every_run(name):
    outputs = []
    for run in range(2):
        keras.utils.set_random_seed(run)
        outputs.append(to_numpy(copy_layer(PARTS[name](), "copy", index=2)(X, training=True)))
    np.testing.assert_array_equal(*outputs)


def test_a_copy_differs_in_name_and_seeds_only(part):
    found = keras.saving.serialize_keras_object(copy_layer(part, part.name, index=1))
    expected = keras.saving.serialize_keras_object(part)

    def without_seeds(config):
        if isinstance(config, dict):
            return {key: without_seeds(value) for key, value in config.items() if key != "seed"}
        return [*map(without_seeds, config)] if isinstance(config, list | tuple) else config

    assert without_seeds(found) == without_seeds(expected)
    assert found != expected


def test_a_serialized_part_is_copied_too(part):
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(part)))
    copies = [copy_layer(given, "copy", index=1) for given in (part, serialized)]
    assert copies[0].get_config() == copies[1].get_config()


def test_a_copy_of_a_built_part_is_not_built(part):
    part(X)
    copy = copy_layer(part, "copy", index=1)
    if not isinstance(copy, keras.Sequential):
        assert not any(one.weights for one in copy._flatten_layers())
        copy.build(X.shape)
    assert [weight.shape for weight in copy.trainable_weights] == [weight.shape for weight in part.trainable_weights]


#: Layers by how they are made. `Wrapped` layers are the sub-layers of another.
WITHOUT_DTYPE = {
    "MultiHeadAttention": lambda **dtype: layers.MultiHeadAttention(12, 3, dropout=0.1, **dtype),
    "FeedForward": lambda **dtype: layers.FeedForward(12, 7, dropout=0.1, gated=True, **dtype),
    "Dropout": lambda **dtype: layers.Dropout(0.1, **dtype),
    "EncoderLayer": lambda **dtype: layers.EncoderLayer(12, 3, 7, **dtype),
    "ResidualConnection": lambda **dtype: layers.ResidualConnection(layers.FeedForward(12, 7, **dtype), **dtype),
    "keras Dense": lambda **dtype: keras.layers.Dense(12, **dtype),
    "keras RMSNormalization": lambda **dtype: keras.layers.RMSNormalization(**dtype),
    "keras LayerNormalization": lambda **dtype: keras.layers.LayerNormalization(**dtype),
    "keras MultiHeadAttention": lambda **dtype: keras.layers.MultiHeadAttention(3, 4, dropout=0.1, **dtype),
    "keras GroupQueryAttention": lambda **dtype: keras.layers.GroupQueryAttention(4, 6, 2, dropout=0.1, **dtype),
    "user's": lambda **dtype: Noisy(keras.layers.Dense(12, **dtype), **dtype),
}


@pytest.fixture(params=WITHOUT_DTYPE)
def make(request):
    return WITHOUT_DTYPE[request.param]


def run(layer):
    """Calls a layer, with as many inputs as it takes."""
    inputs = [X, X] if "Attention" in type(layer).__name__ else [X]
    return layer(*inputs)


@pytest.mark.parametrize("name", ["mixed_bfloat16", "float16"])
def test_a_part_without_a_policy_becomes_as_if_made_with_it(make, name):
    adopted, expected = adopt(make(), keras.DTypePolicy(name)), make(dtype=name)
    outputs = [run(layer) for layer in (adopted, expected)]
    assert outputs[0].dtype == outputs[1].dtype
    assert [weight.dtype for weight in adopted.weights] == [weight.dtype for weight in expected.weights]
    policies = [[part.dtype_policy.name for part in layer._flatten_layers()] for layer in (adopted, expected)]
    assert policies[0] == policies[1]


@pytest.mark.parametrize("name", ["float32", "mixed_float16"])
def test_a_part_with_a_policy_keeps_it(make, name):
    layer = adopt(make(dtype=name), keras.DTypePolicy("mixed_bfloat16"))
    run(layer)
    assert {part.dtype_policy.name for part in layer._flatten_layers()} <= {name, "float32"}
    assert layer.dtype_policy.name == name


def test_an_inner_part_with_a_policy_keeps_it():
    layer = adopt(Noisy(keras.layers.Dense(12, dtype="float32")), keras.DTypePolicy("mixed_bfloat16"))
    assert (layer.compute_dtype, layer.inner.compute_dtype) == ("bfloat16", "float32")


def test_a_copy_keeps_the_policy_that_the_part_adopted():
    layer = adopt(layers.FeedForward(12, 7), keras.DTypePolicy("mixed_bfloat16"))
    copy = copy_layer(layer, "copy")
    assert {part.compute_dtype for part in copy._flatten_layers()} == {"bfloat16"}


@pytest.fixture
def bfloat16_by_default():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


def test_the_global_policy_is_what_a_part_without_a_policy_has(make, bfloat16_by_default):
    layer = adopt(make(), keras.DTypePolicy("float32"))
    run(layer)
    assert {part.compute_dtype for part in layer._flatten_layers()} == {"float32"}


def test_a_part_of_two_blocks_is_refused():
    part, blocks = keras.layers.Dense(12, name="dense"), [keras.layers.Layer(name=name) for name in ("one", "two")]
    claim(part, blocks[0])
    with pytest.raises(ValueError, match="part of one block only.*Received: dense, a part of one and two"):
        claim(part, blocks[1])
    claim(keras.layers.Dense(12, name="dense"), blocks[1])


def test_a_block_that_is_gone_owns_nothing():
    part = keras.layers.Dense(12)
    claim(part, keras.layers.Layer())
    gc.collect()
    claim(part, keras.layers.Layer())
    assert not part._layers  # The owner is no sub-layer of its part.
