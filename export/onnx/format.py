"""The records of the format `onnx`: float32, int8 and float16."""

import functools

from keras_transformer.decoding import BeamSearch
from keras_transformer.export.format import ExportFormat, Program


def _write(*arguments, quantize):
    from keras_transformer.export.onnx.export import write_onnx

    write_onnx(*arguments, quantize=quantize)


def _programs(path, strategy, name, is_approximate):
    from keras_transformer.export.onnx.greedy_decoder import OnnxGreedySearch
    from keras_transformer.export.onnx.translator import OnnxTranslator
    from keras_transformer.export.verify.attention import compare_attention
    from keras_transformer.export.verify.equality import compare
    from keras_transformer.export.verify.quality import compare_likelihood

    verify = compare_likelihood if is_approximate else compare
    greedy = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=strategy.extra_length)
    verify_attention = functools.partial(compare_attention, is_approximate=is_approximate)
    translator = OnnxTranslator(path, protect="off")
    return {
        name: Program(translator, strategy, verify),
        f"{name} alignment": Program(translator, strategy, verify_attention),
        f"{name} encoder and decoder": Program(
            OnnxGreedySearch(path, strategy.extra_length), greedy, verify, has_search=False
        ),
    }


def _load(directory, quantize, **options):
    from keras_transformer.export.onnx.translator import OnnxTranslator

    return OnnxTranslator(directory, quantize=quantize, **options)


def _make(quantize=None):
    name = f"onnx_{quantize}" if quantize else "onnx"
    return ExportFormat(
        "onnx",
        "ONNX graphs",
        functools.partial(_write, quantize=quantize),
        functools.partial(_programs, name=name, is_approximate=quantize is not None),
        functools.partial(_load, quantize=quantize),
        client_packages=("onnxruntime",),
        quantize=quantize,
    )


ONNX, ONNX_INT8, ONNX_FLOAT16 = _make(), _make("int8"), _make("float16")
