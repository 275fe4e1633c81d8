"""Each part alone, and some together, in every format that has them: verified by the rule of the format."""

import contextlib

import keras
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.config import _VARIANTS, PRESETS
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.ctranslate2.export import require_supported
from keras_transformer.export.format import Exported
from keras_transformer.export.marian.export import require_expressible
from keras_transformer.export.registry import FORMATS
from keras_transformer.export.verify.equality import random_source_batches
from keras_transformer.export.verify.keras_search import KerasSearch
from keras_transformer.storage.languages import Languages
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
SIZES = {"vocab_size": 270, "num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 12, "dropout": 0.0}
ALONE = {
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "no positions": {"positions": "none"},
    "groups": {"num_kv_heads": 2},
    "norms of queries and keys": {"qk_norm": True},
    "soft cap": {"soft_cap": 2.0},
    "window": {"window": 3},
    "RMS norms": {"norm": "rms"},
    "gate": {"feed_forward": "gated"},
    "norms of embeddings": {"embedding_norm": True},
    "scaled logits": {"logits_scale": 0.5},
}
TOGETHER = {
    "modern": {**PRESETS["modern"], "d_ff": 12},
    "T5": {"positions": "relative", "norm": "rms", "norm_first": True, "logits_scale": 0.5, "scale_embedding": False},
    "many": {"positions": "rotary", "qk_norm": True, "window": 4, "num_kv_heads": 1, "soft_cap": 5.0, "norm": "rms"},
}
STRATEGY = BeamSearch(beam_size=3, n_best=2, extra_length=4)


def test_each_field_that_names_a_part_is_here():
    fields = set().union(*(TransformerConfig(**SIZES, **parts).variants() for parts in ALONE.values()))
    assert fields == {*_VARIANTS, "positions"}


#: Parts that CTranslate2 has, and the export writes.
IN_CTRANSLATE2 = {"relative", "RMS norms", "gate", "norms of embeddings", "scaled logits"}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("check", [require_supported, require_expressible], ids=["ctranslate2", "huggingface"])
def test_each_part_alone_is_refused_by_its_name(check, name):
    (field, value), *_ = ALONE[name].items()
    is_refused = check is require_expressible or name not in IN_CTRANSLATE2
    message = f"(?s)does not support this model.*Received: {field}={value!r}"
    with pytest.raises(ValueError, match=message) if is_refused else contextlib.nullcontext():
        check(TransformerConfig(**SIZES, **ALONE[name]), (), Languages())


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = ModelDirectory(tmp_path_factory.mktemp("model"))
    directory.write_tokenizers((train_sentencepiece(["one two three"], TokenizerConfig(vocab_size=270)),))
    return directory


@pytest.mark.nightly
@pytest.mark.parametrize("format", ["saved_model", "onnx", "onnx_int8", "onnx_float16"])
@pytest.mark.parametrize("name", [*ALONE, *TOGETHER])
def test_a_variant_is_exported_and_verified(name, format, directory, tmp_path, randomize):
    keras.utils.set_random_seed(5)
    config = TransformerConfig(**{**SIZES, **{**ALONE, **TOGETHER}[name]})
    model, tokenizer = randomize(Transformer(config), scale=0.4), Tokenizer(directory.tokenizer_files[0])
    exported = Exported(model, directory, (tokenizer, tokenizer), STRATEGY)
    FORMATS[format].write(exported, tmp_path / "export")
    batches = [source for source in random_source_batches(270, longest=9, seed=1) if len(source) < 30]
    programs = FORMATS[format].programs(tmp_path / "export", exported)
    assert format in programs
    for title, program in programs.items():
        constraints = tokenizer.text_constraints if program.has_search else None
        found = program.verify(KerasSearch(model, program.strategy, None, constraints), program.client, batches)
        assert found.passed, f"{title}: {found}"
