import dataclasses
import json

import keras
import numpy as np
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.format import Exported
from keras_transformer.export.marian.export import read_huggingface, recorded_search, write_huggingface
from keras_transformer.export.verify.equality import compare
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece

pytest.importorskip("safetensors")
SEARCH = BeamSearch(beam_size=2, n_best=2, extra_length=5)
SIZES = {"vocab_size": 270, "num_layers": 2, "d_model": 12, "num_heads": 3, "d_ff": 17}
SOURCE = np.random.default_rng(5).integers(4, 270, (6, 9)).astype("int32")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(train_sentencepiece(["abc abd xyz"], TokenizerConfig(vocab_size=270)))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="sinusoidal"),
        pytest.param({"position_layout": "halves"}, id="halves", marks=pytest.mark.nightly),
        pytest.param({"activation": "gelu", "scale_embedding": False}, id="gelu", marks=pytest.mark.nightly),
        pytest.param({"activation": "silu", "logits_bias": True}, id="silu", marks=pytest.mark.nightly),
    ],
)
def test_the_written_model_computes_the_same(tmp_path, tokenizer, randomize, options):
    model = randomize(Transformer(TransformerConfig(**SIZES, **options)), scale=0.3)
    write_huggingface(Exported(model, None, (tokenizer, tokenizer), SEARCH), tmp_path / "out")
    reader = read_huggingface(tmp_path / "out", SEARCH)
    assert reader.model.config.position_layout == "halves"
    inputs = {"source": SOURCE, "target": np.roll(SOURCE, 1)}
    logits, others = (keras.ops.convert_to_numpy(m(inputs)) for m in (model, reader.model))
    np.testing.assert_allclose(others, logits, atol=1e-5)
    expected = KerasSearch(model, SEARCH, text_constraints=tokenizer.text_constraints)
    assert compare(expected, reader, [SOURCE]).passed
    model.set_weights([weight * 1.2 for weight in model.get_weights()])
    assert not compare(expected, reader, [SOURCE]).passed


def test_the_search_is_written_as_far_as_transformers_has_it(tmp_path, tokenizer):
    strategy = BeamSearch(beam_size=3, min_length=2, no_repeat_ngram_size=4, length_penalty_kind="length")
    options = {"num_beams": 3, "min_new_tokens": 2, "no_repeat_ngram_size": 4, "length_penalty": 0.6, "max_length": 512}
    fields = {"beam_size": 3, "min_length": 2, "no_repeat_ngram_size": 4}
    model = Transformer(TransformerConfig(**SIZES))
    write_huggingface(Exported(model, None, (tokenizer, tokenizer), strategy), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text()).items() >= options.items()
    assert recorded_search(strategy) == {**fields, "length_penalty": 0.6, "length_penalty_kind": "length"}
    assert recorded_search(dataclasses.replace(strategy, length_penalty_kind="gnmt")) == fields


@pytest.mark.parametrize("beam_size", [1, 2])
def test_the_repetition_penalty_of_greedy_search_is_written(tmp_path, tokenizer, beam_size):
    strategy = BeamSearch(beam_size=beam_size, repetition_penalty=1.5)
    model = Transformer(TransformerConfig(**SIZES))
    write_huggingface(Exported(model, None, (tokenizer, tokenizer), strategy), tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    for found in (written, recorded_search(strategy)):
        assert found.get("repetition_penalty") == (1.5 if beam_size == 1 else None)


def test_all_options_that_marian_lacks_are_named_at_once(tmp_path, tokenizer):
    options = {"norm_first": True, "use_bias": False, "d_k": 5, "activation": "mish", "layer_norm_epsilon": 1e-6}
    other = {"positions": "learned", "max_length": 11, "share_embeddings": False}
    model = Transformer(TransformerConfig(**SIZES, **options, **other))
    with pytest.raises(ValueError, match="MarianMTModel") as error:
        write_huggingface(Exported(model, None, (tokenizer, tokenizer), SEARCH), tmp_path / "out")
    for field in ("norm_first", "use_bias", "d_k", "activation", "layer_norm_epsilon", "positions", "share_embeddings"):
        assert f"\n- `{field}`" in str(error.value)
    assert not (tmp_path / "out").exists()


def test_heads_that_do_not_fill_d_model_are_refused(tmp_path, tokenizer):
    model = Transformer(TransformerConfig(**{**SIZES, "d_model": 14}, d_k=4, d_v=4))
    with pytest.raises(ValueError, match=r"`d_k` and `d_v` .*Received: \(4, 4\)"):
        write_huggingface(Exported(model, None, (tokenizer, tokenizer), SEARCH), tmp_path / "out")


def test_a_final_norm_is_refused(tmp_path, tokenizer):
    model = Transformer(TransformerConfig(**SIZES, final_norm=True))
    with pytest.raises(ValueError, match="`final_norm` .*Received: final_norm=True"):
        write_huggingface(Exported(model, None, (tokenizer, tokenizer), SEARCH), tmp_path / "out")
