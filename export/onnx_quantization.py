"""int8 weights in ONNX graphs: each matrix stored once, with a scale for each of its outputs."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from keras_transformer.export.onnx_graphs import remove_unused, scopes

#: Largest int8 weight. With all eight bits, processors without VNNI would overflow their 16-bit sums of two products.
LARGEST = 63


def quantize_matrices(graph: onnx.GraphProto) -> None:
    """Writes the products with constant matrices, and the embeddings, with int8 weights.

    A matrix W becomes round(W / s) with one s for each output. Its products take their other side as
    uint8, with one scale and zero point found at run time for the whole tensor, and sum in int32. A
    matrix that is an embedding and, transposed, the output's too has one s for each subword.

    Args:
        graph: changed in place, subgraphs too.
    """
    matrices = _Matrices()
    for scope, producers, constants in scopes(graph):
        nodes, quantized = [], {}
        for node in scope.node:
            if node.op_type == "MatMul" and (found := matrices.of_product(node, producers, constants)):
                nodes += _product(node, *found, quantized)
            elif node.op_type == "Gather" and _is_matrix(constants.get(node.input[0])) and _axis(node) == 0:
                nodes += _gather(node, *matrices.add(node.input[0], 1, constants))
            else:
                nodes.append(node)
        del scope.node[:]
        scope.node.extend(nodes)
    matrices.put_into(graph)
    remove_unused(graph)


def _product(node, weight, scale, quantized):
    """The nodes of a product; `quantized` are the names of what was made uint8 before."""
    x, output, nodes = node.input[0], node.output[0], []
    if x not in quantized:
        quantized[x] = [f"{output}/x", f"{output}/x_scale", f"{output}/x_zero_point"]
        nodes = [helper.make_node("DynamicQuantizeLinear", [x], quantized[x])]
    x, x_scale, x_zero_point = quantized[x]
    return [
        *nodes,
        helper.make_node("MatMulInteger", [x, weight, x_zero_point], [f"{output}/int32"]),
        helper.make_node("Cast", [f"{output}/int32"], [f"{output}/unscaled"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [x_scale, scale], [f"{output}/scale"]),
        helper.make_node("Mul", [f"{output}/unscaled", f"{output}/scale"], [output]),
    ]


def _gather(node, weight, scale):
    index, output = node.input[1], node.output[0]
    return [
        helper.make_node("Gather", [weight, index], [f"{output}/int8"], axis=0),
        helper.make_node("Cast", [f"{output}/int8"], [f"{output}/unscaled"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Gather", [scale, index], [f"{output}/scales"], axis=0),
        helper.make_node("Unsqueeze", [f"{output}/scales", "quantization/last_axis"], [f"{output}/scale"]),
        helper.make_node("Mul", [f"{output}/unscaled", f"{output}/scale"], [output]),
    ]


def _is_matrix(constant):
    return constant is not None and constant.ndim == 2 and constant.dtype == np.float32


def _axis(gather):
    return next((attribute.i for attribute in gather.attribute if attribute.name == "axis"), 0)


class _Matrices:
    """The int8 matrices and their scales. All graphs see those of the outermost."""

    def __init__(self):
        self._tensors = {"quantization/last_axis": np.array([-1])}
        self._nodes = []

    def of_product(self, node, producers, constants):
        """The names of a MatMul's int8 matrix and its scales, or `None` if it multiplies by no constant matrix."""
        name = node.input[1]
        if _is_matrix(constants.get(name)):
            return self.add(name, 0, constants)
        transpose = producers.nodes.get(name)
        if transpose is None or transpose.op_type != "Transpose" or not _is_matrix(constants.get(transpose.input[0])):
            return None
        weight, scale = self.add(transpose.input[0], 1, constants)
        if not any(f"{weight}/transposed" in other.output for other in self._nodes):
            self._nodes.append(helper.make_node("Transpose", [weight], [f"{weight}/transposed"], perm=[1, 0]))
        return f"{weight}/transposed", scale

    def add(self, name, axis, constants):
        """Quantises a matrix along the axis that its products sum over; the names of both parts."""
        weight, scale = f"{name}/int8_{axis}", f"{name}/scale_{axis}"
        if weight not in self._tensors:
            matrix = constants[name]
            scales = np.maximum(np.abs(matrix).max(axis=axis, keepdims=True) / LARGEST, np.finfo("float32").tiny)
            self._tensors[weight] = np.round(matrix / scales).astype("int8")
            self._tensors[scale] = scales.ravel()
        return weight, scale

    def put_into(self, graph):
        """Adds everything to the outermost graph."""
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self._tensors.items())
        for node in reversed(self._nodes):
            graph.node.insert(0, node)
