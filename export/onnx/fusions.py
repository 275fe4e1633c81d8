"""Graph passes that replace parts of a Transformer with single ONNX operators."""

import numpy as np
import onnx
from onnx import helper

from keras_transformer.export.onnx.graphs import attribute, count_uses, remove_unused, scopes
from keras_transformer.export.onnx.initializers import initializer

#: Minimum size of the matrices of `avoid_large_transposes`, in bytes. For smaller ones, `Gemm` is up to 10 % slower
#: than `MatMul`.
_LARGE = 64 << 20


def fuse_layer_normalizations(graph: onnx.GraphProto) -> None:
    """Replaces each layer normalization, a dozen operations in Keras, with `LayerNormalization`."""
    for scope, producers, constants in scopes(graph):
        for node in scope.node:
            found = _match_layer_normalization(node, producers, constants)
            if found:
                *inputs, epsilon = found
                del node.input[:]
                node.input.extend(inputs)
                node.op_type = "LayerNormalization"
                node.attribute.append(helper.make_attribute("epsilon", epsilon))
    remove_unused(graph)


def simplify_gathers(graph: onnx.GraphProto) -> None:
    """Passes negative indices to `Gather`, which supports them. Keras adds the length of the axis before."""
    for scope, producers, constants in scopes(graph):
        for node in scope.node:
            _, where = producers.of(node, "Gather", None, "Where")
            less, resolved, _ = producers.of(where, "Where", "Less", "Add", None)
            (index,) = producers.of(less, "Less", "Cast")
            if index is None or constants.get(less.input[1]) != 0:
                continue
            is_index = index.input[0] == resolved.input[0] == where.input[2]
            if is_index and _is_length(resolved.input[1], node, producers, constants):
                node.input[1] = where.input[2]
    remove_unused(graph)


def _is_length(name, gather, producers, constants):
    """Whether a tensor is the length of the axis that a Gather takes from."""
    if gather.input[0] in constants and name in constants:
        return constants[name] == constants[gather.input[0]].shape[attribute(gather, "axis", 0)]
    return producers.is_length(name, gather)


def merge_products(graph: onnx.GraphProto) -> None:
    """Merges products of one matrix with several weights (query, key and value) into one product, with their biases."""
    for scope, _, constants in scopes(graph):
        _merge_products(scope, constants)
    remove_unused(graph)


def _merge_products(graph, constants):
    uses = count_uses(graph)
    consumers = {name: node for node in graph.node for name in node.input}
    groups = {}
    for node in graph.node:
        if node.op_type == "MatMul" and len(constants.get(node.input[1], np.zeros(0)).shape) == 2:
            add = consumers.get(node.output[0])
            has_bias = uses[node.output[0]] == 1 and add is not None and add.op_type == "Add"
            has_bias = has_bias and add.input[0] == node.output[0]
            has_bias = has_bias and np.shape(constants.get(add.input[1])) == (constants[node.input[1]].shape[1],)
            groups.setdefault((node.input[0], has_bias), []).append((node, add if has_bias else None))
    for (_, has_bias), members in groups.items():
        if len(members) > 1:
            _merge(graph, members, has_bias, constants)


def _merge(graph, members, has_bias, constants):
    first, name = members[0][0], f"{members[0][0].output[0]}/merged"
    weights = [constants[product.input[1]] for product, _ in members]
    tensors = {"weight": np.concatenate(weights, axis=1)}
    nodes = [helper.make_node("MatMul", [first.input[0], f"{name}/weight"], [f"{name}/product"])]
    if has_bias:
        tensors["bias"] = np.concatenate([constants[add.input[1]] for _, add in members])
        nodes.append(helper.make_node("Add", [f"{name}/product", f"{name}/bias"], [f"{name}/sum"]))
    tensors["sizes"] = np.array([weight.shape[1] for weight in weights], "int64")
    outputs = [(add or product).output[0] for product, add in members]
    nodes.append(helper.make_node("Split", [nodes[-1].output[0], f"{name}/sizes"], outputs, axis=-1))
    for key, value in tensors.items():
        graph.initializer.append(initializer(value, f"{name}/{key}"))
    at = next(i for i, node in enumerate(graph.node) if node.output[0] == first.output[0])
    for node in reversed(nodes):
        graph.node.insert(at, node)
    for member in members:
        for node in filter(None, member):
            graph.node.remove(node)


def avoid_large_transposes(graph: onnx.GraphProto) -> None:
    """Replaces products with a large transposed matrix by `Gemm`, which takes the matrix as it is stored.

    onnxruntime transposes constants when it loads a model. In the body of a loop it keeps them, beside the copy that it
    packs for products: the matrix of NLLB-200's logits would take a gigabyte more, and the load twice as long.
    """
    for scope, producers, constants in scopes(graph):
        for i, node in reversed([*enumerate(scope.node)]):
            _, transpose = producers.of(node, "MatMul", None, "Transpose")
            if transpose is None or attribute(transpose, "perm", [1, 0]) != [1, 0]:
                continue
            matrix = constants.get(transpose.input[0])
            if matrix is not None and matrix.ndim == 2 and matrix.dtype == np.float32 and matrix.nbytes >= _LARGE:
                scope.node.remove(node)
                for new in reversed(_multiply_by_rows(scope, node, transpose.input[0], matrix.shape)):
                    scope.node.insert(i, new)
    remove_unused(graph)


def _multiply_by_rows(graph, node, matrix, shape):
    """The nodes of the product of a tensor and a transposed matrix. `Gemm` requires tensors of two axes."""
    x, product = node.input[0], node.output[0]
    name, (num_rows, width) = f"{product}/rows", shape
    for key, value in (("flat", [-1, width]), ("size", [num_rows])):
        graph.initializer.append(initializer(np.array(value, "int64"), f"{name}/{key}"))
    return [
        helper.make_node("Reshape", [x, f"{name}/flat"], [f"{name}/x"]),
        helper.make_node("Gemm", [f"{name}/x", matrix], [f"{name}/product"], transB=1),
        helper.make_node("Shape", [x], [f"{name}/axes"], end=-1),
        helper.make_node("Concat", [f"{name}/axes", f"{name}/size"], [f"{name}/shape"], axis=0),
        helper.make_node("Reshape", [f"{name}/product", f"{name}/shape"], [product], allowzero=1),
    ]


def _match_layer_normalization(node, producers, constants):
    """Matches x · (γ/σ) + (β - μ · (γ/σ)), as Keras and tf2onnx write it. Returns x, γ, β and ε, or `None`."""
    scaled, shift = producers.of(node, "Add", "Mul", "Add")
    x, factor = producers.of(scaled, "Mul", None, "Mul")
    reciprocal, _ = producers.of(factor, "Mul", "Reciprocal", None)
    (root,) = producers.of(reciprocal, "Reciprocal", "Sqrt")
    (spread,) = producers.of(root, "Sqrt", "Add")
    variance, _ = producers.of(spread, "Add", "ReduceMean", None)
    square, _ = producers.of(variance, "ReduceMean", "Mul", None)
    difference, same_difference = producers.of(square, "Mul", "Sub", "Sub")
    _, same_mean = producers.of(difference, "Sub", None, "ReduceMean")
    product, _ = producers.of(shift, "Add", "Mul", None)
    negative, same_factor = producers.of(product, "Mul", "Neg", "Mul")
    (mean,) = producers.of(negative, "Neg", "ReduceMean")
    if mean is None or difference is None or same_factor is not factor or same_difference is not difference:
        return None
    of_x = scaled.input[0] == mean.input[0] == difference.input[0] and same_mean is mean
    axes = [constants.get(reduction.input[1]) for reduction in (mean, variance)]
    parameters = [producers.before_reshape(name) for name in (factor.input[1], shift.input[1])]
    epsilon = constants.get(spread.input[1])
    if not of_x or any(a is None or a.tolist() != [-1] for a in axes) or epsilon is None:
        return None
    if not all(name in constants and constants[name].shape[-1:] == (constants[name].size,) for name in parameters):
        return None  # γ and β vary over other axes than the last.
    return scaled.input[0], *parameters, float(epsilon)
