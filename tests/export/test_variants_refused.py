"""Formats that do not have the parts of a configuration refuse them by name, before any work."""

import pytest

from keras_transformer import TransformerConfig
from keras_transformer.export.ctranslate2.export import require_supported
from keras_transformer.export.interop.torch import import_torch_transformer
from keras_transformer.export.marian.export import require_expressible

MODERN = TransformerConfig.preset("modern", vocab_size=11)


@pytest.mark.parametrize("check", [require_supported, require_expressible])
def test_each_part_that_a_format_lacks_is_named(check):
    with pytest.raises(ValueError, match="does not support this model") as error:
        check(MODERN, ())
    for fault in ("`num_kv_heads` must be None", "`norm` must be 'layer'", "`positions` must be 'sinusoidal'"):
        assert str(error.value).count(fault) == 1
    assert "Received: feed_forward='gated'" in str(error.value)


def test_weights_of_pytorch_are_not_read_into_other_parts(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match="does not have the parts.*\n- `num_kv_heads`"):
        import_torch_transformer(tmp_path / "model.safetensors", MODERN)
