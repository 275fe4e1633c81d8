import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the tokenizer's operations

from keras_transformer.translate.batching import pad
from keras_transformer.translate.protection import Protection

#: A server without this package, which loads the folder with TensorFlow and tensorflow-text.
PROGRAM = """
import json, sys
import tensorflow as tf
import tensorflow_text

loaded = tf.saved_model.load(sys.argv[1])
result = loaded.signatures["serving_default"](text=tf.constant(json.loads(sys.argv[2])))
print(json.dumps({
    "texts": [text.decode() for text in result["translation"].numpy()],
    "scores": result["score"].numpy().tolist(),
    "ours": [name for name in sys.modules if name.split(".")[0] == "keras_transformer"],
}))
"""


@pytest.fixture
def loaded(exported):
    return tf.saved_model.load(str(exported / "export" / "saved_model"))


def specs(structure):
    return {name: (spec.dtype.name, tuple(spec.shape)) for name, spec in structure.items()}


def test_signatures_have_the_documented_interfaces(loaded):
    assert set(loaded.signatures) == {"serving_default", "n_best", "tokens"}
    found = {
        name: (specs(signature.structured_input_signature[1]), specs(signature.structured_outputs))
        for name, signature in loaded.signatures.items()
    }
    text = {"text": ("string", (None,))}
    one = {"translation": ("string", (None,)), "score": ("float32", (None,))}
    assert found["serving_default"] == (text, one)
    inputs, outputs = found["n_best"]
    assert inputs == text
    assert {name: (dtype, len(shape)) for name, (dtype, shape) in outputs.items()} == {
        "translations": ("string", 2),
        "scores": ("float32", 2),
    }
    inputs, outputs = found["tokens"]
    assert inputs == {"source": ("int32", (None, None))}
    assert {name: (dtype, len(shape)) for name, (dtype, shape) in outputs.items()} == {
        "tokens": ("int32", 3),
        "scores": ("float32", 2),
    }


@pytest.mark.nightly
def test_it_runs_where_this_package_is_not(exported, keras_translator, run_python, lines, monkeypatch):
    monkeypatch.setattr(keras_translator, "protection", Protection("off"))  # A graph translates everything.
    texts = [*lines[:3], "", "drei \N{GRINNING FACE}"]
    printed = json.loads(run_python(PROGRAM, exported / "export" / "saved_model", json.dumps(texts)).splitlines()[-1])
    assert printed["ours"] == []
    expected = keras_translator.translate(texts)
    assert printed["texts"] == [translation.text for translation in expected]
    np.testing.assert_allclose(printed["scores"], [translation.score for translation in expected], atol=1e-4)
    assert printed["texts"][3] == "" and printed["scores"][3] == 0


def test_n_best_gives_sorted_hypotheses(loaded, lines):
    result = loaded.signatures["n_best"](text=tf.constant([*lines[:3], ""]))
    assert result["translations"].shape == result["scores"].shape == (4, 4)
    best = loaded.signatures["serving_default"](text=tf.constant([*lines[:3], ""]))
    np.testing.assert_array_equal(result["translations"][:, 0], best["translation"])
    np.testing.assert_allclose(result["scores"][:, 0], best["score"], rtol=1e-5)
    assert (np.diff(result["scores"][:3], axis=1) <= 0).all()
    assert not any(text for text in result["translations"].numpy()[3])


def test_tokens_are_those_of_keras(loaded, keras_translator, lines):
    source = pad(keras_translator.source_tokenizer.encode(lines[:5]))
    result = loaded.signatures["tokens"](source=tf.constant(source))
    assert result["tokens"].shape[:2] == result["scores"].shape == (5, 4)
    texts = [
        text.decode()
        for text in loaded.signatures["serving_default"](text=tf.constant(lines[:5]))["translation"].numpy()
    ]
    assert keras_translator.target_tokenizer.decode(result["tokens"].numpy()[:, 0]) == texts


def test_an_empty_batch_has_no_translations(loaded):
    empty = loaded.signatures["serving_default"](text=tf.constant([], tf.string))
    assert empty["translation"].shape == empty["score"].shape == (0,)
    empty = loaded.signatures["n_best"](text=tf.constant([], tf.string))
    assert empty["translations"].shape[0] == 0
    empty = loaded.signatures["tokens"](source=tf.zeros((0, 3), tf.int32))
    assert empty["tokens"].shape[0] == 0


def test_empty_lines_alone_have_empty_translations(loaded):
    result = loaded.signatures["serving_default"](text=tf.constant(["", "  "]))
    assert result["translation"].numpy().tolist() == [b"", b""]
    assert result["score"].numpy().tolist() == [0, 0]


def test_unlike_lines_share_the_batch_of_a_server(loaded, lines):
    """TensorFlow Serving concatenates requests in order and pads the batch with copies of the first line."""
    lines = [*lines[:3], "", "two " * 60, "nine"]
    translate = loaded.signatures["serving_default"]
    together = translate(text=tf.constant([*lines, lines[0], lines[0]]))["translation"].numpy()
    alone = [translate(text=tf.constant([line]))["translation"].numpy()[0] for line in lines]
    assert together.tolist() == [*alone, alone[0], alone[0]]
