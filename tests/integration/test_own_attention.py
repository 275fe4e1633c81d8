"""An attention layer of a user trains, is saved, loads in a new process, decodes with a cache, and is exported."""

import importlib.util

import keras
import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.decoding import BeamSearch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
to_numpy = keras.ops.convert_to_numpy

#: The file of the user. Its layer is no subclass of an attention of this package.
MODULE = '''
import keras
import keras_transformer as kt
from keras import ops


@keras.saving.register_keras_serializable(package="test_own_attention")
class TemperatureAttention(keras.layers.Layer):
    """Causal self-attention with one head, whose scores are divided by a learned temperature."""

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.projections = [keras.layers.Dense(d_model, dtype=self.dtype_policy, name=name) for name in "qkvo"]

    def build(self, query_shape):
        for projection in self.projections:
            projection.build(query_shape)
        self.temperature = self.add_weight((), "ones", name="temperature")

    def call(self, query, value_mask=None, use_causal_mask=False, cache=None, offset=0):
        x = ops.expand_dims(query, 1) if len(query.shape) == 2 else query  # (rows, length, d_model)
        q, k, v = (ops.expand_dims(project(x), 1) for project in self.projections[:3])  # (rows, 1, length, d_model)
        new, length = kt.layers.KeyValue(k, v), ops.shape(x)[1]
        filled = new if cache is None else cache.append(new, offset)
        offset = 0 if cache is None else offset
        causal = kt.masks.causal_mask(length, ops.shape(filled.key)[2], offset) if use_causal_mask else None
        mask = kt.masks.attention_mask(value_mask, None, causal)
        q = q / ops.cast(self.temperature, q.dtype)
        attended, _ = kt.layers.scaled_dot_product_attention(q, *filled, mask)
        output = self.projections[3](ops.squeeze(attended, 1))
        output = ops.squeeze(output, 1) if len(query.shape) == 2 else output
        return output if cache is None else (output, filled)

    def empty_cache(self, batch_size, max_length):
        return kt.layers.KeyValue.empty(batch_size, 1, self.d_model, self.d_model, max_length, self.compute_dtype)

    def compute_output_shape(self, query_shape):
        return query_shape

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model}
'''
#: Loads the model and writes its logits and hypotheses.
LOAD = """
import importlib.util, sys
import keras, numpy as np

spec = importlib.util.spec_from_file_location("own", sys.argv[1])
spec.loader.exec_module(importlib.util.module_from_spec(spec))
import keras_transformer as kt
from keras_transformer.decoding import BeamSearch

model = kt.load_model(sys.argv[2])
ids = np.load(sys.argv[3])
found = model.generate(ids[:, :3], BeamSearch(beam_size=3, n_best=2, extra_length=4))
np.savez(sys.argv[4], logits=keras.ops.convert_to_numpy(model(ids)), tokens=found.tokens, scores=found.scores)
"""
IDS = np.random.default_rng(0).integers(4, 19, (5, 7)).astype("int32")
STRATEGY = BeamSearch(beam_size=3, n_best=2, extra_length=4)


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """The path of the user's file, and its module."""
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("own", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return path, module


@pytest.fixture(scope="module")
def model(module):
    """A language model with the layer in both of its blocks, after an epoch of `fit`."""
    keras.utils.set_random_seed(3)
    config = kt.TransformerConfig(vocab_size=19, num_layers=2, d_model=8, num_heads=1, d_ff=13, dropout=0.0)
    attention = module[1].TemperatureAttention(8)
    block = kt.layers.CausalDecoderLayer(attention=attention, feed_forward=kt.layers.FeedForward(8, 13), dropout=0.0)
    model = kt.LanguageModel(config, block)
    compilation = {"jit_compile": False} if keras.backend.backend() == "tensorflow" else {}  # XLA would take longer.
    model.compile(keras.optimizers.Adam(0.05), kt.losses.LabelSmoothedCrossEntropy(), **compilation)
    model.fit(IDS[:, :-1], IDS[:, 1:], batch_size=2, verbose=0)
    return model


def test_the_temperature_of_each_layer_is_learned(model):
    found = [float(to_numpy(weight)) for weight in model.weights if weight.name == "temperature"]
    assert len({*found, 1.0}) == 3


def test_cached_steps_equal_one_full_pass(model):
    full, cache = to_numpy(model(IDS)), model.decoder.empty_cache(len(IDS), IDS.shape[1])
    for offset in range(IDS.shape[1]):
        logits, cache = model.decode(IDS[:, offset], cache=cache, offset=offset)
        np.testing.assert_allclose(to_numpy(logits), full[:, offset], atol=1e-5)


def test_a_new_process_loads_the_model(model, module, tmp_path, run_python):
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "ids.npy", IDS)
    run_python(LOAD, module[0], *(tmp_path / name for name in ("model.keras", "ids.npy", "found.npz")))
    loaded, found = np.load(tmp_path / "found.npz"), model.generate(IDS[:, :3], STRATEGY)
    np.testing.assert_allclose(loaded["logits"], to_numpy(model(IDS)), atol=1e-6)
    np.testing.assert_array_equal(loaded["tokens"], found.tokens)
    np.testing.assert_allclose(loaded["scores"], found.scores, atol=1e-5)


def test_beam_search_in_onnx_finds_what_keras_finds(model, tensorflow, tmp_path):
    import onnxruntime

    from keras_transformer.export import export_model

    export_model(model, tmp_path / "export", STRATEGY, ["onnx"])
    session = onnxruntime.InferenceSession(tmp_path / "export" / "onnx" / "model.onnx")
    for prompt in (IDS[:, :3], IDS[:2, :1], np.pad(IDS[:3, :2], ((0, 0), (0, 2)))):
        expected = model.generate(prompt, STRATEGY)
        tokens, scores = session.run(["tokens", "scores"], {"prompt": prompt})
        np.testing.assert_array_equal(tokens[:, :, : expected.tokens.shape[2]], expected.tokens)
        assert not tokens[:, :, expected.tokens.shape[2] :].any()
        np.testing.assert_allclose(scores, expected.scores, atol=1e-4)
    assert len({tuple(row) for row in expected.tokens[:, 0]}) > 1
