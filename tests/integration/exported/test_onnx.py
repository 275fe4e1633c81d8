import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from keras_transformer import Transformer
from keras_transformer.decoding import BeamSearch
from keras_transformer.export import OnnxTranslator
from keras_transformer.export.onnx import translator as onnx_translator
from keras_transformer.export.verify.equality import random_source_batches
from keras_transformer.export.verify.quality import MOST_SCORE_ERROR
from keras_transformer.text.tokenization import Tokenizer, TokenizerConfig, train_sentencepiece
from keras_transformer.translate import load_translator

NAMES = ["model", "encoder", "decoder", "alignment"]
GREEDY = BeamSearch(beam_size=1, length_penalty=0.0, extra_length=5)
PROGRAM = """
import json, sys
from keras_transformer.export import OnnxTranslator

translations = OnnxTranslator(sys.argv[1]).translate(json.loads(sys.argv[2]))
assert not {"tensorflow", "keras"} & set(sys.modules)
print(json.dumps([translation.text for translation in translations]))
"""


@pytest.fixture(scope="module")
def folder(exported):
    return exported / "export" / "onnx"


@pytest.fixture(scope="module")
def model(keras_translator):
    return keras_translator.model


@pytest.fixture(scope="module", params=NAMES)
def proto(request, folder):
    return onnx.load(folder / f"{request.param}.onnx")


def graphs(graph):
    """A graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def interface(values):
    return {
        value.name: (
            onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type),
            tuple(axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim),
        )
        for value in values
    }


def test_the_folder_has_all_files(folder):
    names = {*(f"{name}.onnx" for name in NAMES), "weights.data", "tokenizer.model", "origin.json"}
    assert {file.name for file in folder.iterdir()} == names


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantize", ["", "_int8", "_float16"])
def test_each_graph_is_valid(exported, quantize, name):
    onnx.checker.check_model(exported / "export" / f"onnx{quantize}" / f"{name}.onnx", full_check=True)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("quantize", "type_of_matrices"), [("int8", "INT8"), ("float16", "FLOAT16")])
def test_all_matrices_are_quantised(exported, quantize, type_of_matrices, name):
    proto = onnx.load(exported / "export" / f"onnx_{quantize}" / f"{name}.onnx")
    tensors = [tensor for graph in graphs(proto.graph) for tensor in graph.initializer if len(tensor.dims) == 2]
    types = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in tensors if min(tensor.dims) > 1}
    assert types - {"BOOL"} == {type_of_matrices}  # The table of allowed tokens is boolean.


@pytest.mark.parametrize("quantize", ["", "_int8", "_float16"])
def test_the_embedding_is_stored_once(exported, quantize):
    """All graphs of the models share one embedding of shape (300, 16), also where they transpose it."""
    places = set()
    for name in NAMES:
        proto = onnx.load(exported / "export" / f"onnx{quantize}" / f"{name}.onnx", load_external_data=False)
        tensors = [tensor for graph in graphs(proto.graph) for tensor in graph.initializer]
        embeddings = [tensor for tensor in tensors if sorted(tensor.dims) == [16, 300]]
        places |= {tuple((entry.key, entry.value) for entry in tensor.external_data) for tensor in embeddings}
    assert len(places) == 1 and dict(*places)["location"] == "weights.data"


@pytest.mark.parametrize(("quantize", "most_error"), [("int8", 0.1), ("float16", 0.005)])
def test_quantised_clients_translate(exported, lines, quantize, most_error):
    """Scores are within the accepted error of the float32 export's, and closer but not equal for equal texts."""
    found = OnnxTranslator(exported, quantize=quantize).translate(lines, batch_size=1)
    expected = OnnxTranslator(exported).translate(lines)
    pairs = list(zip(expected, found, strict=True))
    errors = np.array([abs(a.score - b.score) / abs(a.score) for a, b in pairs])
    is_equal = np.array([a.text == b.text for a, b in pairs])
    assert is_equal.any() and 0 < errors[is_equal].mean() < most_error
    assert errors.mean() < MOST_SCORE_ERROR
    assert all(translation.text for translation in found)


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_sentence_does_not_depend_on_its_neighbours(exported, quantize):
    """The result is the same for any number, contents and lengths of the other sentences."""
    translator = OnnxTranslator(exported, quantize=quantize)
    source = random_source_batches(300, longest=12, seed=3)[-1]
    together, scores = translator.search(source)
    for row, sentence in enumerate(source):
        alone, score = translator.search(np.trim_zeros(sentence, "b")[None])
        np.testing.assert_array_equal(np.trim_zeros(together[row, 0], "b"), np.trim_zeros(alone[0, 0], "b"))
        np.testing.assert_allclose(scores[row, 0], score[0, 0], atol=1e-4)


def test_graphs_have_standard_operators_only(proto):
    assert {node.domain for graph in graphs(proto.graph) for node in graph.node} == {""}
    assert not proto.functions


def test_no_loop_carries_what_it_never_changes(proto):
    loops = [node for graph in graphs(proto.graph) for node in graph.node if node.op_type == "Loop"]
    for loop in loops:
        body = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
        states = zip(body.input[2:], body.output[1:], strict=False)
        assert [given.name for given, made in states if given.name == made.name] == []


def test_loops_capture_no_constants(proto):
    """onnxruntime does not pre-pack captured weights, and passes them to each iteration again."""

    def captured_constants(graph, outside):
        names = {name for node in graph.node for name in node.input}
        own = {tensor.name for tensor in graph.initializer}
        inner = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        return (names & outside).union(*(captured_constants(subgraph, outside | own) for subgraph in inner))

    assert captured_constants(proto.graph, set()) == set()


def test_the_search_is_a_loop(folder):
    proto = onnx.load(folder / "model.onnx")
    assert any(node.op_type == "Loop" for graph in graphs(proto.graph) for node in graph.node)


def test_graphs_have_the_documented_interfaces(folder):
    found = {
        name: (interface(proto.graph.input), interface(proto.graph.output))
        for name in NAMES
        for proto in [onnx.load(folder / f"{name}.onnx")]
    }
    source = {"source": ("INT32", ("batch", "source_length"))}
    memory = {
        "memory_key": ("FLOAT", (1, "batch", 2, "source_length", 8)),
        "memory_value": ("FLOAT", (1, "batch", 2, "source_length", 8)),
        "memory_mask": ("BOOL", ("batch", "source_length")),
    }

    def cache(prefix, time):
        return {f"{prefix}_{part}": ("FLOAT", (1, "rows", 2, time, 8)) for part in ("key", "value")}

    assert found["model"] == (source, {"tokens": ("INT32", ("batch", 4, "length")), "scores": ("FLOAT", ("batch", 4))})
    assert found["encoder"] == (source, memory)
    assert found["decoder"] == (
        {"tokens": ("INT32", ("rows", 1)), **memory, **cache("cache", "time")},
        {"logits": ("FLOAT", ("rows", 300)), **cache("next_cache", "next_time")},
    )


def test_metadata_records_the_search(proto, exported):
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    search = BeamSearch(extra_length=5, n_best=4).options
    assert json.loads(metadata["search"]) == search
    assert json.loads(metadata["config"])["vocab_size"] == 300
    sha256 = Tokenizer(exported / "tokenizer.model").sha256
    assert metadata["source_tokenizer_sha256"] == metadata["target_tokenizer_sha256"] == sha256
    assert proto.producer_name == "keras-transformer"


def test_tokens_equal_those_of_keras(folder, model, keras_translator):
    search = BeamSearch(extra_length=5, n_best=4)
    constraints = keras_translator.target_tokenizer.text_constraints
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    for source in random_source_batches(300, longest=12, seed=9)[4:12]:
        tokens, scores = session.run(["tokens", "scores"], {"source": source})
        expected = model.generate(source, search, text_constraints=constraints)
        width = max(tokens.shape[2], expected.tokens.shape[2])
        both = [np.pad(x, [(0, 0), (0, 0), (0, width - x.shape[2])]) for x in (tokens, expected.tokens)]
        np.testing.assert_array_equal(*both)
        np.testing.assert_allclose(scores, expected.scores, atol=1e-4)


def test_encoder_and_decoder_serve_another_search(folder, model):
    """Greedy search written from the interfaces of the two models only, which allows every token."""
    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    source = random_source_batches(300, longest=9, seed=2)[9]
    names = ["memory_key", "memory_value", "memory_mask"]
    memory = dict(zip(names, encoder.run(names, {"source": source}), strict=True))
    cache = [np.zeros((1, 7, 2, 0, 8), "float32")] * 2
    newest, found = np.full((7, 1), 2, "int32"), []
    limits = (source != 0).sum(axis=1) + 5
    for step in range(limits.max()):
        feed = {"tokens": newest, "cache_key": cache[0], "cache_value": cache[1], **memory}
        logits, *cache = decoder.run(["logits", "next_cache_key", "next_cache_value"], feed)
        assert cache[0].shape == (1, 7, 2, step + 1, 8)
        token = np.where(step + 1 >= limits, 3, logits.argmax(axis=1))
        ended = np.array([3 in row for row in np.stack(found, axis=1)]) if found else np.zeros(7, bool)
        found.append(np.where(ended, 0, token))
        newest = found[-1][:, None].astype("int32")
    expected = model.generate(source, GREEDY).tokens[:, 0]
    found = np.stack(found, axis=1)
    np.testing.assert_array_equal(found[:, : expected.shape[1]], expected)
    assert not found[:, expected.shape[1] :].any()


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_evaluator_agrees(folder, name):
    """ONNX's own evaluator computes the same as onnxruntime, for 20 sentences. It lacks the operators of int8."""
    file = folder / f"{name}.onnx"
    feed = inputs_of(onnx.load(file, load_external_data=False).graph, rows=20)
    expected = onnxruntime.InferenceSession(file).run(None, feed)
    found = ReferenceEvaluator(onnx.load(file)).run(None, feed)
    for ours, theirs in zip(expected, found, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(theirs, ours, atol=1e-4 if ours.dtype == np.float32 else 0)


def inputs_of(graph, rows, time=17):
    """Inputs of one of the graphs: sentences, and for the decoder a random memory and cache of `time` positions."""
    draw = np.random.default_rng(4)
    feed = {name: random_source_batches(300, longest=9)[i][:rows] for name, i in (("source", -1), ("target", -2))}
    feed["tokens"] = draw.integers(4, 300, (rows, 1), "int32")
    feed["memory_mask"] = draw.random((rows, 9)) < 0.7
    sizes = {"rows": rows, "batch": rows, "source_length": 9, "time": time}
    for value in graph.input:
        if value.name not in feed:
            shape = [axis.dim_value or sizes[axis.dim_param] for axis in value.type.tensor_type.shape.dim]
            feed[value.name] = draw.normal(size=shape).astype("float32")
    return {value.name: feed[value.name] for value in graph.input}


def test_the_client_needs_neither_tensorflow_nor_keras(exported, folder, run_python, lines):
    texts = [translation.text for translation in OnnxTranslator(exported).translate(lines[:5])]
    for path in (exported, folder):
        assert json.loads(run_python(PROGRAM, path, json.dumps(lines[:5]))) == texts


def test_the_sessions_of_a_process_share_their_memory(exported, monkeypatch):
    registered, register = [], onnxruntime.create_and_register_allocator
    monkeypatch.setattr(onnxruntime, "create_and_register_allocator", lambda *args: registered.append(register(*args)))
    onnx_translator._register_allocator.cache_clear()
    for _ in range(2):
        options = OnnxTranslator(exported).session.get_session_options()
        assert options.get_session_config_entry("session.use_env_allocators") == "1"
    assert len(registered) == 1


def test_released_sessions_are_loaded_again(exported):
    translator, source = OnnxTranslator(exported), np.array([[4, 5, 3]], "int32")
    before = translator.search(source), translator.mean_attention(source, source)
    assert translator._sessions.keys() == {"model", "alignment"}
    translator.release_sessions()
    assert not translator._sessions
    after = translator.search(source), translator.mean_attention(source, source)
    for a, b in zip((*before[0], before[1]), (*after[0], after[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_swapped_tokenizer_is_found(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "onnx")
    other = train_sentencepiece(["some other text of other words"], TokenizerConfig(vocab_size=280))
    (tmp_path / "onnx" / "tokenizer.model").write_bytes(other)
    with pytest.raises(ValueError, match=f"tokenizers? in {tmp_path / 'onnx'} "):
        OnnxTranslator(tmp_path / "onnx")


@pytest.mark.parametrize("change", ["cut", "deleted"])
def test_a_broken_tokenizer_is_named(folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "onnx")
    file = tmp_path / "onnx" / "tokenizer.model"
    file.unlink() if change == "deleted" else file.write_bytes(file.read_bytes()[:300])
    with pytest.raises((ValueError, OSError), match=str(file)):
        OnnxTranslator(tmp_path / "onnx")


@pytest.mark.parametrize("runtime", ["onnx", "onnx_float16", "saved_model", "ctranslate2"])
def test_an_export_older_than_the_model_is_refused(exported, keras_translator, tmp_path, runtime):
    shutil.copytree(exported / "export" / runtime, tmp_path / "export" / runtime)
    weights = keras_translator.model.get_weights()
    other = Transformer(keras_translator.model.config)
    other.set_weights([weights[0] + 1e-3, *weights[1:]])
    other.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=f"model.keras .*changed.*{runtime}.*keras-transformer export"):
        load_translator(tmp_path, runtime)


def test_a_cut_model_is_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "onnx")
    file = tmp_path / "onnx" / "model.onnx"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ValueError, match=f"ONNX .*{file} "):
        OnnxTranslator(tmp_path / "onnx")
