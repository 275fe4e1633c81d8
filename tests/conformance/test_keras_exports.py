"""Every layer and every model through `Model.export` of Keras: each format and backend, any length, with masks."""

import keras
import numpy as np
import pytest

from keras_transformer import layers

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # The converters warn about themselves.
]
to_numpy = keras.ops.convert_to_numpy
BACKEND = keras.backend.backend()
#: The formats in which Keras exports a model with dynamic lengths, by backend. LiteRT on PyTorch has static lengths.
FORMATS = {
    "tensorflow": ("litert", "onnx", "openvino", "tf_saved_model"),
    "torch": ("onnx", "openvino"),
    "jax": ("onnx", "tf_saved_model"),
}[BACKEND]
SUFFIXES = {"litert": ".tflite", "onnx": ".onnx", "openvino": ".xml", "tf_saved_model": ""}


def run_litert(path, inputs):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(path)
    run = interpreter.get_signature_runner()
    # The names of the inputs end with those of a dictionary, or are numbered.
    names = sorted(run.get_input_details())
    return next(iter(run(**dict(zip(names, keras.tree.flatten(inputs), strict=True))).values()))


def run_onnx(path, inputs):
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    return session.run(None, dict(zip(names, keras.tree.flatten(inputs), strict=True)))[0]


def run_openvino(path, inputs):
    openvino = pytest.importorskip("openvino")
    # By default OpenVINO computes in bfloat16 on CPUs that can.
    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return model(keras.tree.flatten(inputs))[0]


def run_tf_saved_model(path, inputs):
    served = pytest.importorskip("tensorflow").saved_model.load(path)  # Its functions need the variables that it holds.
    return served.serve(inputs).numpy()


class AddPositions(keras.layers.Layer):
    """Adds the numbers of the positions."""

    def call(self, inputs):
        positions = keras.ops.arange(keras.ops.shape(inputs)[1], dtype="int32")
        return inputs + keras.ops.expand_dims(keras.ops.cast(positions, inputs.dtype), -1)


#: Layers of plain Keras that Keras cannot export, by backend and format. Remove what a later Keras can.
PLAIN = {
    ("jax", "onnx"): AddPositions,
    ("jax", "openvino"): lambda: keras.layers.Dense(3),
    ("tensorflow", "onnx"): lambda: keras.layers.Dense(3, activation="gelu"),
    ("torch", "onnx"): keras.layers.LayerNormalization,
}
#: Rows of the tables that add positions or mask later ones.
HAS_POSITIONS = {
    *("CausalDecoder", "CausalDecoderLayer", "Decoder", "DecoderLayer", "LearnedPositionalEmbedding"),
    *("PositionalEncoding", "LanguageModel", "MaskedLanguageModel", "SentenceClassifier", "Transformer"),
    *("Encoder of copies", "LanguageModel of other parts", "Transformer of other parts"),
    "Transformer with relative positions",
    *("ALiBi", "PositionScheme", "QKNorm", "RelativePositionBias", "RotaryPositions", "SlidingWindow"),
}


@pytest.fixture
def format(request):
    """A format in which Keras exports. Rows of the tables that it cannot export are expected to fail."""
    parameters = request.node.callspec.params
    row = parameters.get("case") or parameters.get("model_case", "Transformer")
    if (BACKEND, request.param) == ("jax", "onnx") and row in HAS_POSITIONS:
        request.applymarker(pytest.mark.xfail(reason="see AddPositions", strict=True))
    return request.param


RUN = {"litert": run_litert, "onnx": run_onnx, "openvino": run_openvino, "tf_saved_model": run_tf_saved_model}
PACKAGES = {
    "litert": "ai_edge_litert",
    "onnx": "jax2onnx" if BACKEND == "jax" else "onnxruntime",
    "openvino": "openvino",
    "tf_saved_model": "tensorflow",
}


def assert_exported(model, format, calls, path):
    """Exports a model once and compares the outputs of each call."""
    pytest.importorskip(PACKAGES[format])
    model(calls[0])  # Keras exports what has been called.
    path = str(path / f"model{SUFFIXES[format]}")
    model.export(path, format=format, verbose=False)
    for inputs in calls:
        np.testing.assert_allclose(RUN[format](path, inputs), to_numpy(model(inputs)), rtol=1e-4, atol=1e-4)


def padded(arrays):
    """The arrays with padding at the end of the second row."""
    for array in arrays:
        array[1, max(1, array.shape[1] - 2) :] = 0
    return arrays


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS, indirect=True)
def test_many_layers_in_one_model_are_exported(format, randomize, tmp_path):
    block = {"d_model": 6, "num_heads": 2, "d_ff": 7, "activation": "gelu"}
    ids = keras.Input((None,), dtype="int32")
    embedding = layers.TokenEmbedding(11, 6)
    x = layers.PositionalEncoding()(embedding(ids))
    memory = layers.EncoderLayer(**block)(x)
    model = randomize(keras.Model(ids, layers.TiedLogits(embedding)(layers.DecoderLayer(**block)(x, memory))))
    rows = np.random.default_rng(0).integers(1, 11, (2, 7)).astype("int32")
    assert_exported(model, format, [*padded([rows.copy()]), rows[:, :4], rows[:, :1]], tmp_path)


def test_a_trace_of_length_one_serves_other_lengths(case, randomize):
    """Keras exports from PyTorch by tracing a call of length 1. Other lengths must not run another path."""
    if BACKEND != "torch":
        pytest.skip("the contract is PyTorch's own: the backend is another")
    import torch

    model = randomize(case.functional(case.make("float32")))
    traced = torch.jit.trace(model, ([*map(torch.tensor, case.arrays([1, 1], rows=1))],))
    for arrays in (case.arrays(), case.arrays([9, 4])):
        np.testing.assert_allclose(to_numpy(traced([*map(torch.tensor, arrays)])), to_numpy(model(arrays)), atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("format", FORMATS, indirect=True)
def test_each_layer_is_exported(case, format, masked, randomize, tmp_path):
    inputs = case.symbolic()
    hidden = inputs
    if masked:
        hidden = [keras.layers.Masking()(x) if len(x.shape) == 3 else x for x in inputs]
    model = randomize(keras.Model(inputs, case.make("float32")(*hidden)))
    calls = [case.arrays(lengths) for lengths in (None, [9, 4], [1, 1])]
    assert_exported(model, format, [padded(arrays) if masked else arrays for arrays in calls], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("format", [format for backend, format in PLAIN if backend == BACKEND])
def test_plain_keras_fails(format, tmp_path):
    inputs = keras.Input((None, 5))
    model = keras.Model(inputs, PLAIN[BACKEND, format]()(inputs))
    with pytest.raises(Exception, match="."):  # Converters and runtimes have exceptions of their own.
        assert_exported(model, format, [np.ones((2, 3, 5), "float32")], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("format", FORMATS, indirect=True)
def test_each_model_is_exported(model_case, format, randomize, tmp_path):
    model = randomize(model_case.make(dtype="float32"), scale=0.3)
    assert_exported(model, format, [model_case.inputs(length) for length in (5, 9, 1)], tmp_path)
