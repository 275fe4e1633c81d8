"""Graph passes that make attention cheaper. They need no other operators, and change results by rounding at most."""

import numpy as np
import onnx
from onnx import helper

from keras_transformer.export.onnx.graphs import Producers, count_uses, remove_unused, rename_inputs, scopes, subgraphs
from keras_transformer.export.onnx.initializers import initializer

#: Masked scores are replaced by a constant below this value. The sum of the constant and a score is the constant again.
_MASKED = -1e38


def fold_scales(graph: onnx.GraphProto) -> None:
    """Multiplies the weights and biases of queries by their scale 1 / √d_k, instead of the queries in each call.

    Otherwise onnxruntime merges the scale of a single query with the product of queries and keys, for which it then
    has no fast kernel.
    """
    for scope, _, constants in scopes(graph):
        own = {name: node for node in scope.node for name in node.output}
        uses, results = count_uses(scope), {output.name for output in scope.output}
        for node in scope.node:
            if node.op_type != "Mul" or node.output[0] in results or np.ndim(constants.get(node.input[1], [0])):
                continue
            projection = _projection(node.input[0], own, uses, constants)
            if projection:
                _scale(scope, projection, constants, node.output[0], constants[node.input[1]])
                rename_inputs(scope, {node.output[0]: node.input[0]})
    remove_unused(graph)


def _projection(name, own, uses, constants):
    """The addition of a bias, if there is one, and the product before it and before reshapes; or `None`."""
    found = []
    for op_type, rank in ("Add", 1), ("MatMul", 2):
        while uses[name] == 1 and name in own and own[name].op_type in ("Reshape", "Transpose"):
            name = own[name].input[0]
        node = own.get(name)
        if node is not None and node.op_type == op_type and uses[name] == 1:
            if np.ndim(constants.get(node.input[1])) != rank:
                return None
            found.append(node)
            name = node.input[0]
    return found if found and found[-1].op_type == "MatMul" else None


def _scale(graph, projection, constants, name, scale):
    for node in projection:
        old = constants[node.input[1]]
        node.input[1] = f"{name}/{node.op_type}"
        graph.initializer.append(initializer((old * scale).astype(old.dtype), node.input[1]))


def simplify_masks(graph: onnx.GraphProto) -> None:
    """Adds masks that stay the same in a loop to the scores, as 0 and -3e38, which is cheaper than `Where`.

    Attention also multiplies the weights of queries with nothing to attend to by 0. If the mask is the same for all
    queries of a sentence, this multiplies the values instead, before the loop.
    """
    for scope, producers, constants in scopes(graph):
        for i, node in reversed([*enumerate(scope.node)]):
            for body in subgraphs(node):
                for added in reversed(_simplify_masks(body, producers, constants)):
                    scope.node.insert(i, added)
    remove_unused(graph)


def _simplify_masks(body, outside, constants):
    """Changes the body of a loop, and returns the nodes that it needs before the loop."""
    nodes = {name: node for node in body.node for name in node.output}
    own = {value.name for value in body.input} | nodes.keys()
    producers, uses = Producers({**outside.nodes, **nodes}), count_uses(body)
    added = []
    scores = {node.input[0] for node in body.node if node.op_type == "Softmax"}
    for node in body.node:
        if node.output[0] in scores and _is_invariant_mask(node, own, constants):
            added += _add_mask(node)
        weights, _ = producers.of(node, "MatMul", "Mul", None)
        softmax, _ = producers.of(weights, "Mul", "Softmax", None)
        if softmax is None or uses[node.input[0]] > 1 or {weights.input[1], node.input[1]} & own:
            continue
        if _is_of_sentences(weights.input[1], producers, constants):
            values = f"{node.output[0]}/values"
            added.append(helper.make_node("Mul", [node.input[1], weights.input[1]], [values]))
            node.input[:] = [weights.input[0], values]
    return added


def _is_invariant_mask(node, own, constants):
    """Whether a node replaces masked scores, with a mask from outside of its graph, whose own tensors are `own`."""
    if node.op_type != "Where" or node.input[0] in own:
        return False
    masked = constants.get(node.input[2], np.zeros(2))
    return masked.size == 1 and masked.dtype == np.float32 and bool(masked < _MASKED)


def _add_mask(node):
    """Replaces a choice by a sum, and returns the nodes that make the summand."""
    (mask, scores, masked), bias = node.input, f"{node.output[0]}/bias"
    node.op_type, node.input[:] = "Add", [scores, bias]
    zero = helper.make_node("Constant", [], [f"{bias}/zero"], value_float=0.0)
    return [zero, helper.make_node("Where", [mask, f"{bias}/zero", masked], [bias])]


def _is_of_sentences(name, producers, constants):
    """Whether a tensor (batch, heads, queries, keys), made from a mask (batch, keys), has one query."""
    node = producers.nodes.get(name)
    while node is not None and node.op_type in ("Cast", "Greater", "ReduceSum"):
        node = producers.nodes.get(node.input[0])
    axes = []
    while node is not None and node.op_type == "Unsqueeze" and np.size(constants.get(node.input[1])) == 1:
        axes.append(constants[node.input[1]].item())
        node = producers.nodes.get(node.input[0])
    # (batch, keys) -> (batch, 1, keys) -> (batch, 1, 1, keys)
    return len(axes) == 2 and axes[0] in (1, 2, -2, -3) and axes[1] in (1, -2)
