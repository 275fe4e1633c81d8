"""int8 weights in ONNX graphs: each matrix stored once, with a scale for each of its outputs."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from keras_transformer.export.onnx.graphs import remove_unused, scopes

#: Largest int8 weight. With all eight bits, processors without VNNI would overflow their 16-bit sums of two products.
LARGEST = 63
#: Activations of any sign, and those that are never negative -> uint8 steps from 0 to a row's largest, and zero point.
_STEPS = {"signed": (127, 128), "unsigned": (255, 0)}


def quantize_matrices(graph: onnx.GraphProto) -> None:
    """Writes the products with constant matrices, and the embeddings, with int8 weights.

    A matrix W becomes round(W / s) with one s for each output. Its products take their other side as
    uint8, where each row x has a scale of its own, max |x| / 127, found at run time: a row's result does not
    depend on other rows. After a ReLU it is max x / 255. A matrix that is an embedding and, transposed, the
    output's too has one s for each subword.

    The products are written as MatMul between DequantizeLinear, which onnxruntime runs in integers. As
    MatMulInteger they are slower, and with a tensor of scales for the rows onnxruntime (1.32) gives wrong results:
    it fuses the scaling of rows and columns into an operator that takes one scale for all rows.

    Args:
        graph: changed in place, subgraphs too.
    """
    matrices = _Matrices()
    for scope, producers, constants in scopes(graph):
        nodes, quantized = [], {}
        for node in scope.node:
            if node.op_type == "MatMul" and (found := matrices.of_product(node, producers, constants)):
                nodes += _product(node, *found, quantized, producers)
            elif node.op_type == "Gather" and _is_matrix(constants.get(node.input[0])) and _axis(node) == 0:
                nodes += _gather(node, *matrices.add(node.input[0], 1, constants))
            else:
                nodes.append(node)
        del scope.node[:]
        scope.node.extend(nodes)
    matrices.put_into(graph)
    remove_unused(graph)


def _product(node, weight, scale, quantized, producers):
    """The nodes of a product; `quantized` are the names of what was made uint8 before."""
    x, output, nodes = node.input[0], node.output[0], []
    if x not in quantized:
        nodes, quantized[x] = _quantized_rows(x, output, producers)
    rows, largest, kind = quantized[x]
    return [
        *nodes,
        helper.make_node("DequantizeLinear", [rows, *_parameters(kind)], [f"{output}/x"]),
        helper.make_node("DequantizeLinear", [weight, scale], [f"{output}/weight"], axis=1),
        helper.make_node("MatMul", [f"{output}/x", f"{output}/weight"], [f"{output}/unscaled"]),
        helper.make_node("Mul", [f"{output}/unscaled", largest], [output]),
    ]


def _quantized_rows(x, output, producers):
    """The nodes that make uint8 of x, and the names of the result, of each row's largest |x| and of their kind."""
    kind = "unsigned" if x in producers.nodes and producers.nodes[x].op_type == "Relu" else "signed"
    names = [f"{output}/x_uint8", f"{output}/x_largest"]
    sizes = x if kind == "unsigned" else f"{output}/x_sizes"
    nodes = [
        helper.make_node("ReduceMax", [sizes, "quantization/last_axis"], names[1:]),
        # A row of zeros becomes 0/0, thus any integers, which its largest, 0, makes zeros again.
        helper.make_node("Div", [x, names[1]], [f"{output}/x_relative"]),
        helper.make_node("QuantizeLinear", [f"{output}/x_relative", *_parameters(kind)], names[:1]),
    ]
    if kind == "signed":
        nodes.insert(0, helper.make_node("Abs", [x], [sizes]))
    return nodes, (*names, kind)


def _parameters(kind):
    """The names of the scale and the zero point of rows divided by their largest |x|."""
    return [f"quantization/{kind}_scale", f"quantization/{kind}_zero_point"]


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
        for kind, (steps, zero_point) in _STEPS.items():
            self._tensors |= zip(_parameters(kind), (np.float32(1 / steps), np.uint8(zero_point)), strict=True)
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
        graph.initializer.extend(
            numpy_helper.from_array(np.asarray(array), name) for name, array in self._tensors.items()
        )
        for node in reversed(self._nodes):
            graph.node.insert(0, node)
