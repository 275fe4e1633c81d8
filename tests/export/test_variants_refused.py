"""Formats that do not have the parts of a configuration refuse them by name, before any work."""

import contextlib
from types import SimpleNamespace

import keras
import pytest

from keras_transformer import Transformer, TransformerConfig
from keras_transformer.export.ctranslate2.export import require_supported
from keras_transformer.export.format import Exported
from keras_transformer.export.interop.torch import import_torch_transformer
from keras_transformer.export.marian.export import require_expressible
from keras_transformer.export.pipeline import check_supported
from keras_transformer.export.registry import FORMATS
from keras_transformer.layers import EncoderLayer
from keras_transformer.storage.languages import Languages

MODERN = TransformerConfig.preset("modern", vocab_size=11)


@pytest.mark.parametrize(
    ("check", "faults"),
    [
        (
            require_supported,
            ["`positions` must be 'sinusoidal' or 'learned' or 'relative'. Received: positions='rotary'"],
        ),
        (require_expressible, ["`norm` must be 'layer'", "`positions` must be 'sinusoidal'", "feed_forward='gated'"]),
    ],
)
def test_each_part_that_a_format_lacks_is_named(check, faults):
    with pytest.raises(ValueError, match="does not support this model") as error:
        check(MODERN, (), Languages())
    for fault in ("`num_kv_heads` must be None", *faults):
        assert str(error.value).count(fault) == 1


@pytest.mark.parametrize(
    ("pieces", "forces_target", "received"),
    [
        (["<2de>", "<2fr>"], False, "<2de>, <2fr>"),
        ([">>de<<"], True, ">>de<< at the start of the target"),
        ([">>de<<", ">>fr<<"], False, None),
    ],
)
def test_language_tokens_that_marian_lacks_are_refused(pieces, forces_target, received):
    config = TransformerConfig(vocab_size=11, num_layers=1, d_model=4, num_heads=2, d_ff=3)
    languages = Languages(target_tokens={piece[2:4]: i for i, piece in enumerate(pieces)}, forces_target=forces_target)
    tokenizers = (SimpleNamespace(pieces=pieces),) * 2
    message = f"MarianMTModel does not support.*\n- tokens of languages must be .*Received: {received}"
    with pytest.raises(ValueError, match=message) if received else contextlib.nullcontext():
        require_expressible(config, tokenizers, languages)


def test_weights_of_pytorch_are_not_read_into_other_parts(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match="does not have the parts.*\n- `num_kv_heads`"):
        import_torch_transformer(tmp_path / "model.safetensors", MODERN)


@pytest.mark.parametrize("name", ["ctranslate2", "huggingface"])
def test_own_layers_of_a_model_are_refused(name):
    """The configuration of such a model does not describe its layers."""
    config = TransformerConfig(vocab_size=11, num_layers=1, d_model=4, num_heads=2, d_ff=3)
    model = Transformer(config, encoder_layer=EncoderLayer(4, 2, 3, norm=keras.layers.RMSNormalization()))
    with pytest.raises(ValueError, match=f"{name} does not support layers of your own.*Received: encoder_layer"):
        check_supported(FORMATS[name], Exported(model, None, None, None))
    check_supported(FORMATS["onnx"], Exported(model, None, None, None))
