"""Passes over ONNX graphs that make what tf2onnx writes fit for serving."""

import onnx

from keras_transformer.export.onnx_graphs import captured, subgraphs


def hoist_loop_invariants(graph: onnx.GraphProto) -> None:
    """Takes out of Loop bodies what the loops never change: state, and what is computed from it.

    tf2onnx carries every tensor that a loop uses as state, the weights among them, and runtimes
    neither pre-pack nor quantise state. The bodies capture it from outside instead.

    Args:
        graph: changed in place, subgraphs too. No name may stand for two tensors, be it in two
            subgraphs; tf2onnx sees to that.
    """
    for subgraph in subgraphs(graph):
        hoist_loop_invariants(subgraph)
    for i, node in reversed([*enumerate(graph.node)]):
        if node.op_type == "Loop":
            body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
            _hoist_state(graph, node, body)
            for invariant in reversed(_take_invariant_nodes(body)):
                graph.node.insert(i, invariant)
            outputs = {value.name for value in body.output}
            moved = [tensor for tensor in body.initializer if tensor.name not in outputs]
            graph.initializer.extend(moved)
            for tensor in moved:
                body.initializer.remove(tensor)


def _take_invariant_nodes(body):
    """Removes from a Loop's body the nodes that depend on nothing in it, and returns them."""
    varying = {value.name for value in body.input}
    invariant = []
    for node in [*body.node]:
        needed = {*node.input, *(name for graph in subgraphs(node) for name in captured(graph))}
        if needed & varying or {*node.output} & {value.name for value in body.output}:
            varying.update(node.output)
        else:
            invariant.append(node)
            body.node.remove(node)
    return invariant


def _hoist_state(graph, node, body):
    # Loop inputs: trip count, condition, state …; body inputs: iteration, condition, state …;
    # body outputs: condition, state …, scans …; loop outputs: state …, scans ….
    states = range(len(node.input) - 2)
    results = {value.name for value in graph.output}
    is_state_kept = [body.input[i + 2].name == body.output[i + 1].name for i in states]
    invariant = [i for i in states if is_state_kept[i] and node.output[i] not in results]
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
        for subgraph in subgraphs(node):
            _rename_inputs(subgraph, names)
