"""Traversal of ONNX graphs and their subgraphs."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from keras_transformer.export.onnx.initializers import array_of


def remove_unused(graph: onnx.GraphProto) -> None:
    """Removes the nodes and initializers of a graph and its subgraphs whose results are not used."""
    for subgraph in subgraphs(graph):
        remove_unused(subgraph)
    needed = {output.name for output in graph.output}
    for node in reversed([*graph.node]):
        if needed & {*node.output}:
            needed.update(node.input, *(captured(subgraph) for subgraph in subgraphs(node)))
        else:
            graph.node.remove(node)
    for tensor in [*graph.initializer]:
        if tensor.name not in needed:
            graph.initializer.remove(tensor)


def subgraphs(graph_or_node: onnx.GraphProto | onnx.NodeProto) -> list[onnx.GraphProto]:
    """The subgraphs in the attributes of a node, or of all nodes of a graph."""
    nodes = graph_or_node.node if isinstance(graph_or_node, onnx.GraphProto) else [graph_or_node]
    return [a.g for node in nodes for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def captured(graph: onnx.GraphProto) -> list[str]:
    """The names that a graph and its subgraphs use."""
    own = [name for node in graph.node for name in node.input] + [output.name for output in graph.output]
    return own + [name for subgraph in subgraphs(graph) for name in captured(subgraph)]


def rename_inputs(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Renames inputs of the nodes of a graph and its subgraphs."""
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
        for subgraph in subgraphs(node):
            rename_inputs(subgraph, names)


def attribute(node: onnx.NodeProto, name: str, default=None):
    """The value of an attribute of a node, or the default."""
    found = (a for a in node.attribute if a.name == name)
    return next((helper.get_attribute_value(a) for a in found), default)


def count_uses(graph: onnx.GraphProto) -> Counter:
    """How often each name is used by the nodes of a graph, as its output, and in its subgraphs."""
    return Counter(captured(graph))


def scopes(
    graph: onnx.GraphProto, outer_nodes: dict | None = None, outer_constants: dict | None = None
) -> Iterator[tuple[onnx.GraphProto, "Producers", dict[str, np.ndarray]]]:
    """A graph, which comes last, and all graphs within it, each with the producers and constants visible to it."""
    producers = Producers({**(outer_nodes or {}), **{name: node for node in graph.node for name in node.output}})
    own = {tensor.name: array_of(tensor) for tensor in graph.initializer}
    constants = {**(outer_constants or {}), **own}
    for subgraph in subgraphs(graph):
        yield from scopes(subgraph, producers.nodes, constants)
    yield graph, producers, constants


class Producers:
    """Finds the node that produces a tensor, from nodes by the names of their outputs."""

    def __init__(self, nodes):
        self.nodes = nodes

    def of(self, node, op_type, *expected):
        """The producers of a node's first inputs if all operators are as expected, otherwise `None` for each.

        The node may be `None`. An expected operator of `None` stands for any.
        """
        nothing = (None,) * len(expected)
        if node is None or node.op_type != op_type:
            return nothing
        found = tuple(self.nodes.get(name) for name in node.input[: len(expected)])
        fits = all(e is None or (f is not None and f.op_type == e) for f, e in zip(found, expected, strict=True))
        return found if fits else nothing

    def is_length(self, name, gather):
        """Whether a tensor is the length of the axis that a Gather takes from."""
        node = self.nodes.get(name)
        while node is not None and node.op_type in ("Squeeze", "Slice", "Cast"):
            node = self.nodes.get(node.input[0])
        return node is not None and node.op_type == "Shape" and node.input[0] == gather.input[0]

    def before_reshape(self, name):
        """The name of a tensor before its reshape, or its own name if it is not reshaped."""
        node = self.nodes.get(name)
        return node.input[0] if node is not None and node.op_type == "Reshape" else name
