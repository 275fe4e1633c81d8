import gc

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export import load_translator
from keras_transformer.export.saved_model.translator import SavedModelTranslator
from keras_transformer.text.batching import pad
from keras_transformer.text.keras_translator import KerasTranslator

ODD_LINES = ["", "   ", "two \N{GRINNING FACE}", "three \ud800", "nine nine"]


@pytest.fixture
def translators(exported, keras_translator):
    """One translator per runtime. New for each test, because seeding clears TensorFlow's tokenizers."""
    return {"keras": keras_translator} | {
        runtime: load_translator(exported, runtime) for runtime in ("saved_model", "onnx")
    }


def test_every_runtime_gives_the_same_translations(translators, lines):
    lines = [*lines, *ODD_LINES]
    expected = translators["keras"].translate(lines, batch_size=8)
    texts = [translation.text for translation in expected]
    assert len(set(texts)) > 3 and texts[20:22] == ["", ""]
    for name, batch_size in (("keras", 1), ("onnx", 1), ("onnx", 8), ("saved_model", 1), ("saved_model", 8)):
        found = translators[name].translate(lines, batch_size=batch_size)
        assert [translation.text for translation in found] == texts
        scores = [[translation.score for translation in part] for part in (found, expected)]
        np.testing.assert_allclose(*scores, atol=1e-4)
        if name != "saved_model":
            assert [translation.tokens for translation in found] == [translation.tokens for translation in expected]


def test_greedy_search_in_keras(exported, keras_translator, lines):
    """Beam search with beam size 1 and no length penalty equals greedy search."""
    greedy = KerasTranslator(exported, GreedySearch(extra_length=5)).translate(lines[:4])
    source = pad(keras_translator.source_tokenizer.encode(lines[:4]))
    search = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=5)
    beam = keras_translator.model.generate(source, search).tokens[:, 0]
    assert [translation.tokens for translation in greedy] == [tuple(row[row != 0].tolist()) for row in beam]


@pytest.mark.parametrize("runtime", ["saved_model", "onnx"])
def test_wrong_types(exported, runtime):
    translator = load_translator(exported, runtime)
    for lines, message in (("text", "list of strings"), (["a", None], "strings.*Received: None")):
        with pytest.raises(ValueError, match=message):
            translator.translate(lines)
    with pytest.raises(ValueError, match="`batch_size` .*Received: batch_size=0"):
        translator.translate(["two"], batch_size=0)
    assert translator.translate([]) == []


def test_a_saved_model_lives_as_long_as_its_translator(exported):
    translator = SavedModelTranslator(exported)
    gc.collect()
    assert translator.translate(["two"])[0].text == SavedModelTranslator(exported).translate(["two"])[0].text
