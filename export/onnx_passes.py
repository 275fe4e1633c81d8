"""Passes over ONNX graphs that make what tf2onnx writes fit for serving."""

import onnx


def hoist_loop_invariants(graph: onnx.GraphProto) -> None:
    """Lets Loop bodies capture from outside what the loops never change.

    tf2onnx carries every tensor that a loop uses as state, the weights among them, and runtimes
    neither pre-pack nor quantise state.

    Args:
        graph: changed in place, subgraphs too.
    """
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                hoist_loop_invariants(attribute.g)
    for node in [node for node in graph.node if node.op_type == "Loop"]:
        body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        _hoist(graph, node, body)


def _hoist(graph, node, body):
    # Loop inputs: trip count, condition, state …; body inputs: iteration, condition, state …;
    # body outputs: condition, state …, scans …; loop outputs: state …, scans ….
    states = range(len(node.input) - 2)
    invariant = [i for i in states if body.input[i + 2].name == body.output[i + 1].name]
    inner = {body.input[i + 2].name: node.input[i + 2] for i in invariant}
    outer = {node.output[i]: node.input[i + 2] for i in invariant if node.output[i]}
    _rename_inputs(body, inner)
    _rename_inputs(graph, outer)
    for i in reversed(invariant):
        del node.input[i + 2], body.input[i + 2], body.output[i + 1], node.output[i]


def _rename_inputs(graph, names):
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename_inputs(attribute.g, names)
