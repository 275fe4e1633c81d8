"""The faster clean-up of tf2onnx makes the same graphs as its own."""

import contextlib
from collections import Counter

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from tf2onnx.graph import Graph
from tf2onnx.optimizer.optimizer_base import GraphOptimizerBase

from keras_transformer.export.onnx import export
from keras_transformer.export.onnx.cleanup import fast_cleanup
from keras_transformer.export.onnx.graphs import subgraphs


def program(x, unused):
    """A loop in which a branch uses tensors from outside, with transposes that cancel out, and unused nodes."""
    scale = tf.reduce_sum(tf.transpose(tf.transpose(x)), axis=0)
    largest = tf.sinh(tf.reduce_max(x, axis=0))
    tf.nn.relu(unused)

    def body(i, y):
        return i + 1, tf.cond(i % 2 > 0, lambda: y * scale, lambda: y + largest)

    looped = tf.while_loop(lambda i, y: i < 5, body, (0, scale))[1]
    return tf.cond(tf.reduce_sum(x) > 0, lambda: looped + largest, lambda: tf.sin(largest)), tf.nn.tanh(x)


def count(graph):
    """How often each operator occurs in a graph and its subgraphs."""
    return sum((count(subgraph) for subgraph in subgraphs(graph)), Counter(node.op_type for node in graph.node))


def convert():
    specs = [tf.TensorSpec([None, 3], tf.float32, name=name) for name in ("x", "unused")]
    shapes = {name: ("rows", 3) for name in ("x", "unused")}
    return export.convert(program, specs, shapes, {"first": (3,), "second": ("rows", 3)})


def test_the_graph_is_the_same(monkeypatch):
    found = convert()
    with monkeypatch.context() as patch:
        patch.setattr(export, "fast_cleanup", contextlib.nullcontext)
        expected = convert()
    assert {"Loop", "If", "Tanh"} <= count(expected.graph).keys() and not {"Relu", "Transpose"} & {*count(found.graph)}
    assert count(found.graph) == count(expected.graph)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    session = onnxruntime.InferenceSession(found.SerializeToString())
    for result, output in zip(session.run(None, {"x": x, "unused": x}), program(x, x), strict=True):
        np.testing.assert_allclose(result, output, rtol=1e-5)


def test_tf2onnx_is_as_before_afterwards():
    before = GraphOptimizerBase.optimize, Graph.extract_sub_graph_nodes
    with pytest.raises(ValueError), fast_cleanup():
        assert GraphOptimizerBase.optimize is not before[0] and Graph.extract_sub_graph_nodes is not before[1]
        raise ValueError
    assert (GraphOptimizerBase.optimize, Graph.extract_sub_graph_nodes) == before
