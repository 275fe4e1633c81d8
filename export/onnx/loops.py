"""Graph passes that make the loops of tf2onnx efficient."""

import itertools

import onnx
from onnx import helper

from keras_transformer.export.onnx.graphs import captured, remove_unused, rename_inputs, subgraphs
from keras_transformer.export.onnx.initializers import array_of


def hoist_loop_invariants(graph: onnx.GraphProto) -> None:
    """Moves loop invariants out of Loop bodies: unchanged state, and nodes that compute the same in every iteration.

    tf2onnx passes every tensor that a loop uses as loop state, including the weights. Runtimes neither pre-pack nor
    quantize loop state. After this pass the bodies capture these tensors from the outer graph. A loop of at most one
    iteration is a condition: the nodes of its body stay where they are. Tensor names must be unique over all
    subgraphs, as tf2onnx makes them.
    """
    for subgraph in subgraphs(graph):
        hoist_loop_invariants(subgraph)
    for i, node in reversed([*enumerate(graph.node)]):
        if node.op_type == "Loop":
            body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
            _hoist_state(graph, node, body)
            if not _is_condition(graph, node):
                for invariant in reversed(_take_invariant_nodes(body)):
                    graph.node.insert(i, invariant)
            outputs = {value.name for value in body.output}
            moved = [tensor for tensor in body.initializer if tensor.name not in outputs]
            graph.initializer.extend(moved)
            for tensor in moved:
                body.initializer.remove(tensor)


def sink_constants(graph: onnx.GraphProto) -> None:
    """Gives each subgraph its own copy of the initializers that it captures, directly or transposed.

    Runtimes pre-pack weights only in the graph that contains the product, and pass captured tensors to a loop body
    again at each iteration. `WeightsFile` stores equal weights once.
    """
    _sink(graph, {}, {}, itertools.count())
    remove_unused(graph)


def _sink(graph, constants, transposes, numbers):
    """See `sink_constants`. The dictionaries contain the tensors of the surrounding graphs, by name."""
    names = {name for node in graph.node for name in node.input}
    moved = {name: f"{name}/{next(numbers)}" for name in sorted(names & {*constants, *transposes})}
    own = {name: constants[name] for name in moved if name in constants}
    for name in moved.keys() - own.keys():
        matrix = transposes[name]
        own[matrix] = constants[matrix]
        moved.setdefault(matrix, f"{matrix}/{next(numbers)}")
        graph.node.insert(0, helper.make_node("Transpose", [moved[matrix]], [moved[name]], perm=[1, 0]))
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = moved.get(name, name)
    for name, tensor in own.items():
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = moved[name]
    constants = {**constants, **{tensor.name: tensor for tensor in graph.initializer}}
    flips = (node for node in graph.node if node.op_type == "Transpose" and node.input[0] in constants)
    transposes = {
        **transposes,
        **{node.output[0]: node.input[0] for node in flips if len(constants[node.input[0]].dims) == 2},
    }
    for subgraph in subgraphs(graph):
        _sink(subgraph, constants, transposes, numbers)


def _is_condition(graph, node):
    """Whether a Loop has at most one iteration."""
    return any(tensor.name == node.input[0] and array_of(tensor) == 1 for tensor in graph.initializer)


def _take_invariant_nodes(body):
    """Removes the loop-invariant nodes from a Loop's body, and returns them."""
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
    rename_inputs(body, inner)
    rename_inputs(graph, outer)
    for i in reversed(invariant):
        del node.input[i + 2], body.input[i + 2], body.output[i + 1], node.output[i]
