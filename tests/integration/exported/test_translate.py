import gc
import shutil

import numpy as np
import pytest

from keras_transformer.decoding import BeamSearch, GreedySearch
from keras_transformer.export import OnnxTranslator
from keras_transformer.export.saved_model.translator import SavedModelTranslator
from keras_transformer.translate import load_translator
from keras_transformer.translate.batching import pad
from keras_transformer.translate.keras_translator import KerasTranslator

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


def test_greedy_search_equals_a_beam_of_one(exported, keras_translator, lines):
    """Beam search with beam size 1 and no length penalty equals greedy search."""
    greedy = KerasTranslator(exported, GreedySearch(extra_length=5)).translate(lines[:4])
    source = pad(keras_translator.source_tokenizer.encode(lines[:4]))
    search = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=5)
    constraints = keras_translator.target_tokenizer.text_constraints
    beam = keras_translator.model.generate(source, search, text_constraints=constraints).tokens[:, 0]
    assert [translation.tokens for translation in greedy] == [tuple(row[row != 0].tolist()) for row in beam]


@pytest.mark.parametrize("runtime", ["saved_model", "onnx"])
def test_wrong_types_are_refused(exported, runtime):
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


@pytest.mark.parametrize(("runtime", "error"), [("onnx", 1e-5), ("onnx_int8", 0.05), ("onnx_float16", 0.01)])
def test_alignments_are_those_of_keras(exported, keras_translator, lines, runtime, error):
    lines = [*lines, *ODD_LINES]
    translations = keras_translator.translate(lines)
    expected = keras_translator.align(lines, translations)
    found = load_translator(exported, runtime).align(lines, translations)
    errors = []
    for line, translation, ours, theirs in zip(lines, translations, expected, found, strict=True):
        assert (theirs.source, theirs.target) == (ours.source, ours.target)
        assert ours.weights.shape == (len(ours.target), len(ours.source))
        assert ours.source == [] or ours.source[-1][1] == len(line.rstrip())
        assert ours.target == [] or ours.target[-1][1] == len(translation.text)
        errors.append(np.abs(theirs.weights - ours.weights).ravel())
    assert np.concatenate(errors).mean() < error


def test_alignments_of_ctranslate2_are_those_of_the_last_layer(exported, keras_translator, lines):
    source = pad(keras_translator.source_tokenizer.encode(lines))
    target = pad([translation.tokens for translation in keras_translator.translate(lines)])
    found = load_translator(exported, "ctranslate2").mean_attention(source, target)
    expected = keras_translator.model.attention_scores(source, target)[-1].mean(axis=1)
    is_text = (target != 0) & (target != 3)  # CTranslate2 returns no weights for the end token.
    np.testing.assert_allclose(found[is_text], expected[is_text], atol=1e-4)


def test_an_export_without_the_graph_of_alignments_aligns_by_position(exported, translators, tmp_path):
    shutil.copytree(exported / "export/onnx", tmp_path / "onnx", ignore=lambda *_: ["alignment.onnx"])
    translations = translators["onnx"].translate(["two nine"])
    (found,), (expected,) = (
        translator.align(["two nine"], translations)
        for translator in (OnnxTranslator(tmp_path / "onnx"), translators["saved_model"])
    )
    np.testing.assert_array_equal(found.weights, expected.weights)


def test_a_saved_model_aligns_by_position(translators):
    translations = translators["saved_model"].translate(["two nine"])
    (alignment,) = translators["saved_model"].align(["two nine"], translations)
    assert alignment.weights.shape == (len(translations[0].text.split()), 2)
    assert translators["saved_model"].count_tokens(["", "two nine"]) == [
        len(ids) - 1 for ids in translators["keras"].source_tokenizer.encode(["", "two nine"])
    ]
