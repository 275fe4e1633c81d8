"""Export to ONNX: `model.onnx` with the whole search, and `encoder.onnx` and `decoder.onnx` for other searches."""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import warnings
from pathlib import Path

import keras
import numpy as np
import onnx
import tensorflow as tf
from keras import ops
from onnx import numpy_helper

from keras_transformer.cache import KeyValue
from keras_transformer.decoding import BeamSearch
from keras_transformer.export.format import Exported, Program
from keras_transformer.export.onnx.attention import fold_scales, simplify_masks
from keras_transformer.export.onnx.external_weights import WeightsFile
from keras_transformer.export.onnx.fusions import fuse_layer_normalizations, merge_products, simplify_gathers
from keras_transformer.export.onnx.graphs import captured
from keras_transformer.export.onnx.greedy_decoder import OnnxGreedySearch
from keras_transformer.export.onnx.loops import hoist_loop_invariants, sink_constants
from keras_transformer.export.onnx.quantization import quantize_matrices
from keras_transformer.export.onnx.translator import OnnxTranslator
from keras_transformer.export.verify.attention import compare_attention
from keras_transformer.export.verify.equality import compare
from keras_transformer.export.verify.quality import compare_likelihood
from keras_transformer.masks import padding_mask
from keras_transformer.models.teacher_forcing import attention_scores, mean_attention
from keras_transformer.storage.model_directory import ModelDirectory, export_name

_OPSET = 18


def write_onnx(exported: Exported, path: Path, quantize: str | None = None) -> None:
    """Writes `model.onnx`, `encoder.onnx`, `decoder.onnx` and `alignment.onnx`, their weights, and the tokenizers.

    Weights become int8 with `quantize="int8"`; weights and activations become float16 with `quantize="float16"`.
    """
    path.mkdir()
    ModelDirectory(path).write_tokenizers(exported.directory.tokenizer_models())
    if quantize == "float16":
        exported = exported._replace(model=copy_with_dtype(exported.model, "float16"))
    weights = WeightsFile(path)
    for name in GRAPHS:
        proto = make_graph(name, exported, quantize)
        weights.take_from(proto)
        onnx.save(proto, path / f"{name}.onnx")
        onnx.checker.check_model(path / f"{name}.onnx", full_check=True)


def programs(path: Path, strategy: BeamSearch, quantize: str | None = None) -> dict[str, Program]:
    """The programs of an export; see `ExportFormat`."""
    name, verify = export_name("onnx", quantize), compare_likelihood if quantize else compare
    greedy = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=strategy.extra_length)
    verify_attention = functools.partial(compare_attention, is_approximate=quantize is not None)
    translator = OnnxTranslator(path, protect="off")
    return {
        name: Program(translator, strategy, verify),
        f"{name} alignment": Program(translator, strategy, verify_attention),
        f"{name} encoder and decoder": Program(
            OnnxGreedySearch(path, strategy.extra_length), greedy, verify, has_search=False
        ),
    }


def make_graph(name: str, exported: Exported, quantize: str | None = None) -> onnx.ModelProto:
    """Makes one of `GRAPHS`, with its weights and with the metadata that `OnnxTranslator` reads."""
    proto = convert(*GRAPHS[name](exported), exported.model.weights)
    if quantize == "int8":
        quantize_matrices(proto.graph)
    sink_constants(proto.graph)
    metadata = {
        "config": json.dumps(dataclasses.asdict(exported.model.config)),
        "search": json.dumps(exported.strategy.options),
        "source_tokenizer_sha256": exported.tokenizers[0].sha256,
        "target_tokenizer_sha256": exported.tokenizers[1].sha256,
    }
    onnx.helper.set_model_props(proto, metadata)
    return proto


def copy_with_dtype(model, dtype: str):
    """Copies a model with other weight and compute dtypes. Operations that require float32 keep it."""
    copy = type(model).from_config({**model.get_config(), "dtype": dtype})
    copy.set_weights(model.get_weights())
    return copy


def search_program(exported, ids="source"):
    """The arguments of `convert` for the search of an `Exported`, or of another object with `search` and `strategy`."""
    strategy = exported.strategy

    def search(ids):
        return tuple(keras.tree.flatten(exported.search(ids, strategy)))  # Omits token scores that are `None`.

    outputs = {"tokens": ("batch", strategy.n_best, "length"), "scores": ("batch", strategy.n_best)}
    if strategy.token_scores:
        outputs["token_scores"] = outputs["tokens"]
    return search, [tf.TensorSpec([None, None], tf.int32, name=ids)], {ids: ("batch", f"{ids}_length")}, outputs


def _encoder(exported):
    model = exported.model

    def encode(source):
        mask = padding_mask(source, model.config.pad_id)
        memory = model.decoder.project_memory(model.encode(source, mask))
        return *_stacked(memory), mask

    inputs = {"source": ("batch", "source_length")}
    return encode, [tf.TensorSpec([None, None], tf.int32, name="source")], inputs, _memory_shapes(model)


def _decoder(exported):
    model = exported.model

    def decode(tokens, memory_key, memory_value, memory_mask, cache_key, cache_value):
        logits, cache = model.decode(
            tokens[:, 0],
            _unstacked(memory_key, memory_value),
            memory_mask=memory_mask,
            cache=_unstacked(cache_key, cache_value),
            offset=ops.shape(cache_key)[3],
        )
        return ops.cast(logits, "float32"), *_stacked(cache)

    def cache_shapes(prefix, length):
        layers = model.config.depths[1]
        key, value = ((layers, "rows", heads, length, width) for heads, width in _cache_sizes(model))
        return {f"{prefix}_key": key, f"{prefix}_value": value}

    inputs = {"tokens": ("rows", 1), **_memory_shapes(model), **cache_shapes("cache", "time")}
    outputs = {"logits": ("rows", model.config.vocab_size), **cache_shapes("next_cache", "next_time")}
    dtypes = {"tokens": tf.int32, "memory_mask": tf.bool}
    signature = [
        tf.TensorSpec(
            [d if isinstance(d, int) else None for d in shape], dtypes.get(name, model.compute_dtype), name=name
        )
        for name, shape in inputs.items()
    ]
    return decode, signature, inputs, outputs


def _alignment(exported):
    model = exported.model

    def align(source, target):
        return (mean_attention(attention_scores(model, source, target)),)

    inputs = {"source": ("batch", "source_length"), "target": ("batch", "target_length")}
    outputs = {"weights": ("batch", "target_length", "source_length")}
    return align, [tf.TensorSpec([None, None], tf.int32, name=name) for name in inputs], inputs, outputs


#: Names of the graphs, and the functions that make them.
GRAPHS = {"model": search_program, "encoder": _encoder, "decoder": _decoder, "alignment": _alignment}


def _memory_shapes(model):
    layers = model.config.depths[1]
    key, value = ((layers, "batch", heads, "source_length", width) for heads, width in _cache_sizes(model))
    return {"memory_key": key, "memory_value": value, "memory_mask": ("batch", "source_length")}


def _cache_sizes(model):
    """Number of heads and width, of the keys and of the values."""
    first, *_ = model.decoder.empty_cache(np.zeros((1, 1), "int32"), 1, 1)
    return [(part.shape[1], part.shape[3]) for part in first]


def _stacked(caches):
    """Stacks the layers' keys, and their values. The first axis is the layer."""
    return tuple(ops.stack(parts) for parts in zip(*caches, strict=True))


def _unstacked(key, value):
    return tuple(KeyValue(key[i], value[i]) for i in range(key.shape[0]))


def convert(function, signature, inputs, outputs, variables=()) -> onnx.ModelProto:
    """Converts a function to ONNX and optimizes the graph.

    Args:
        function: maps tensors to a tuple of tensors.
        signature: a named `tf.TensorSpec` for each input.
        inputs: shapes of the inputs by name, in order. Axes with a name are dynamic.
        outputs: shapes of the outputs, likewise.
        variables: Keras variables. Those that the function uses become initializers.

    Returns:
        The model, with its weights.
    """
    weights = {f"weight_{i}": variable for i, variable in enumerate(variables)}
    proto = _converted(function, signature, outputs, weights)
    used = {*captured(proto.graph)}
    for name, variable in weights.items():
        if name in used:
            proto.graph.initializer.append(numpy_helper.from_array(ops.convert_to_numpy(variable), name))
    hoist_loop_invariants(proto.graph)
    fuse_layer_normalizations(proto.graph)
    simplify_gathers(proto.graph)
    fold_scales(proto.graph)
    merge_products(proto.graph)
    simplify_masks(proto.graph)
    _describe(proto.graph.input, inputs)
    _describe(proto.graph.output, outputs)
    proto.producer_name, proto.producer_version = "keras-transformer", f"keras {keras.__version__}"
    return proto


def _converted(function, signature, outputs, weights):
    """The tf2onnx conversion. The weights are inputs, because tf2onnx copies constants dozens of times."""
    import tf2onnx
    from keras.src.export.tf2onnx_lib import patch_tf2onnx  # No public function makes tf2onnx work with NumPy 2.

    def program(*args):
        values = zip(weights.values(), args[len(signature) :], strict=True)
        with keras.StatelessScope(state_mapping=values):
            # A dictionary names the outputs. tf2onnx sorts its keys.
            return dict(zip(outputs, function(*args[: len(signature)]), strict=True))

    specs = [tf.TensorSpec(variable.shape, variable.dtype, name=name) for name, variable in weights.items()]
    all_specs = [*signature, *specs]
    named = tf.function(program, input_signature=all_specs)
    with warnings.catch_warnings(), _without_gemm_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        patch_tf2onnx()
        # By default tf2onnx copies the graph before each pass, in case the pass fails: over 40 % of the time.
        os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "false")
        proto, _ = tf2onnx.convert.from_function(
            named, input_signature=all_specs, opset=_OPSET, custom_op_handlers=_HANDLERS
        )
    return proto


@contextlib.contextmanager
def _without_gemm_warnings():
    """Suppresses the warnings of tf2onnx that it does not fuse products in float16, one for each product."""

    def is_other(record):
        return "Gemm rewriter" not in str(record.msg)

    logging.getLogger().addFilter(is_other)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_other)


def _select(context, node, name, arguments):
    """Writes an ONNX `Where`. tf2onnx would write a sum of products."""
    node.type = "Where"


#: Handlers of operators that tf2onnx converts badly.
_HANDLERS = {"SelectV2": (_select, [])}


def _describe(values, shapes):
    """Sets the order of graph inputs or outputs, and the names of their axes."""
    by_name = {value.name: value for value in values}
    ordered = [
        onnx.helper.make_tensor_value_info(name, by_name[name].type.tensor_type.elem_type, shape)
        for name, shape in shapes.items()
    ]
    del values[:]
    values.extend(ordered)
