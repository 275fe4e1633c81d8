"""Copies of models by `copy.deepcopy`, `pickle` and Keras."""

import copy
import pickle

import keras
import numpy as np
import pytest

import keras_transformer as kt

pytestmark = pytest.mark.portable
to_numpy = keras.ops.convert_to_numpy
# Without dropout: Keras does not save the state of random seeds.
CONFIG = kt.TransformerConfig(vocab_size=11, num_layers=1, d_model=8, num_heads=2, d_ff=13, dropout=0)
IDS = np.array([[4, 5, 6, 3], [7, 3, 0, 0]], "int32")
MODELS = {
    "Transformer": lambda: (kt.Transformer(CONFIG), {"source": IDS, "target": IDS[:, :3]}),
    "LanguageModel": lambda: (kt.LanguageModel(CONFIG), IDS),
    "MaskedLanguageModel": lambda: (kt.MaskedLanguageModel(CONFIG), IDS),
    "SentenceClassifier": lambda: (kt.SentenceClassifier(CONFIG, 3), IDS),
}
COPIES = [
    copy.deepcopy,
    pytest.param(lambda model: pickle.loads(pickle.dumps(model)), id="pickle", marks=pytest.mark.nightly),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("make_copy", COPIES)
def test_a_copy_is_a_model_of_its_own_that_trains_on_as_the_original_would(kind, make_copy, few_steps):
    model, inputs = MODELS[kind]()
    labels = np.ones_like(to_numpy(model(inputs)))
    model.compile(keras.optimizers.Adam(0.1), "mse", **few_steps)
    model.train_on_batch(inputs, labels)
    copied = make_copy(model)
    assert type(copied) is type(model) and copied.name == model.name
    assert not {id(weight) for weight in copied.weights} & {id(weight) for weight in model.weights}
    assert int(copied.optimizer.iterations) == 1
    before = to_numpy(model(inputs)).copy()
    np.testing.assert_array_equal(to_numpy(copied(inputs)), before)
    copied.train_on_batch(inputs, labels)
    np.testing.assert_array_equal(to_numpy(model(inputs)), before)
    model.train_on_batch(inputs, labels)
    np.testing.assert_allclose(to_numpy(copied(inputs)), to_numpy(model(inputs)), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Transformer", "LanguageModel"])
def test_a_copy_of_a_model_that_has_generated_generates_the_same(kind):
    model, _ = MODELS[kind]()
    ids = IDS if kind == "Transformer" else IDS[:, :1]
    expected = model.generate(ids)
    copied = copy.deepcopy(model)
    np.testing.assert_array_equal(copied.generate(ids).tokens, expected.tokens)
    assert not copied.compiled


@pytest.mark.parametrize("kind", MODELS)
def test_clone_model_is_refused(kind):
    model, _ = MODELS[kind]()
    with pytest.raises(ValueError, match=r"copy.deepcopy\(model\).*from_config.*Received: model="):
        keras.models.clone_model(model)
    copied = type(model).from_config(model.get_config())
    assert type(copied) is type(model) and len(copied.weights) == len(model.weights)


def test_a_clone_of_a_model_around_ours_contains_a_model_of_the_same_class():
    tokens = keras.Input((None,), dtype="int32")
    outer = keras.Model(tokens, keras.layers.Dense(2)(kt.LanguageModel(CONFIG, name="inner")(tokens)))
    inner = keras.models.clone_model(outer).get_layer("inner")
    assert isinstance(inner, kt.LanguageModel)
    with pytest.raises(ValueError, match="`keras.models.clone_model`.*Received: model=inner"):
        keras.models.clone_model(outer, recursive=True)
