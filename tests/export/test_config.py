import pytest

from keras_transformer.decoding import BeamSearch
from keras_transformer.export.config import ExportConfig


def test_defaults_are_two_formats_and_the_beam_search():
    config = ExportConfig()
    assert config.formats == ["saved_model", "onnx"]
    assert config.strategy == BeamSearch(n_best=4)


def test_the_search_is_the_configurations():
    config = ExportConfig(format="onnx", beam_size=3, length_penalty=0.0, extra_length=7, length_penalty_kind="length")
    assert config.formats == ["onnx"]
    assert config.strategy == BeamSearch(
        beam_size=3, length_penalty=0.0, extra_length=7, length_penalty_kind="length", n_best=3
    )
    assert type(config.strategy) is BeamSearch


def test_quantised_exports_have_separate_folders():
    assert ExportConfig().names == ["saved_model", "onnx"]
    assert ExportConfig(format="onnx", quantize="int8").names == ["onnx_int8"]
    assert ExportConfig(quantize="int8").names == ["onnx_int8"] and ExportConfig().names == [
        "saved_model",
        "onnx",
    ]


def test_spaces_between_formats_are_ignored():
    assert ExportConfig(format=" onnx , saved_model,").formats == ["onnx", "saved_model"]


@pytest.mark.parametrize("name", ["tflite", "onnx,tflite", "", ",", "ONNX"])
def test_an_unknown_format_is_refused(name):
    with pytest.raises(ValueError, match=f"`format` .*saved_model, onnx.*Received: format={name!r}"):
        ExportConfig(format=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "`beam_size` .*Received: beam_size=0"),
        ({"beam_size": 2, "n_best": 3}, "`n_best` .*`beam_size`.*Received: n_best=3, beam_size=2"),
        ({"n_best": 0}, "`n_best` .*Received: n_best=0"),
        ({"length_penalty": -0.5}, "`length_penalty` .*Received: length_penalty=-0.5"),
        ({"extra_length": -1}, "`extra_length` .*Received: extra_length=-1"),
        ({"length_penalty_kind": "none"}, "`length_penalty_kind` .*Received: length_penalty_kind='none'"),
        ({"format": "onnx", "quantize": "int4"}, "`quantize` .*int8, float16.*Received: quantize='int4'"),
        ({"format": "saved_model,onnx", "quantize": "int8"}, "`quantize` .*Received: format='saved_model,onnx'"),
        ({"format": "onnx", "quantize": "int8", "source": "s"}, "`reference` .*Received: source='s', reference=None"),
        ({"source": "s", "reference": "r"}, "`quantize`.*Received: .*quantize=None"),
        ({"format": "ctranslate2", "token_scores": True}, "`token_scores` .*ctranslate2.*Received: token_scores=True"),
        (
            {"format": "onnx,huggingface", "token_scores": True},
            "`token_scores` .*huggingface.*Received: token_scores=True",
        ),
    ],
)
def test_a_search_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        ExportConfig(**options)
