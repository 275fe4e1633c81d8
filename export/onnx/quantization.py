"""int8 weights in ONNX graphs: each matrix is stored once, with one scale per output."""

import numpy as np
import onnx
from onnx import helper

from keras_transformer.export.onnx.graphs import remove_unused, scopes
from keras_transformer.export.onnx.initializers import initializer

#: Largest int8 weight. Without VNNI, processors add two products in 16 bits, which weights up to 127 would overflow.
LARGEST = 63
#: Levels from 0 to the largest value of a row in uint8, and the zero point, for activations with and without a sign.
_LEVELS = {"signed": (127, 128), "unsigned": (255, 0)}


def quantize_matrices(graph: onnx.GraphProto) -> None:
    """Quantizes products with constant matrices, and embeddings, to int8 weights, in a graph and its subgraphs.

    A matrix W becomes round(W / s), with one scale s per output. The other factor of its products becomes uint8 at run
    time, with one scale per row x, the vector of a position of a sentence: max |x| / 127, or max x / 255 after a ReLU.
    The result of a position therefore does not depend on other positions or sentences. A matrix that is both the
    embedding and, transposed, the output projection has one scale per token. Products with some of its rows, the
    candidates of a shortlist, use the same integers and scales.

    A product is written as MatMul between DequantizeLinear nodes, which onnxruntime computes in integers.
    MatMulInteger is slower. With one scale per row it also gives wrong results in onnxruntime 1.32, which fuses the
    scaling of rows and columns into an operator with one scale for all rows.
    """
    matrices = _Matrices()
    for scope, producers, constants in scopes(graph):
        nodes, quantized = [], {}
        for node in scope.node:
            if node.op_type == "MatMul" and (found := matrices.of_product(node, producers, constants)):
                nodes += _product(node, *found, quantized, producers)
            elif _takes_rows(node, constants):
                nodes += _gather(node, *matrices.add(node.input[0], 1, constants))
            elif _transposes_rows(node, producers, constants):
                of_integers = helper.make_node("Transpose", [f"{node.input[0]}/int8"], [f"{node.output[0]}/int8"])
                nodes += [node, of_integers]
            else:
                nodes.append(node)
        del scope.node[:]
        scope.node.extend(nodes)
    matrices.put_into(graph)
    remove_unused(graph)


def _product(node, weight, scale, quantized, producers):
    """The nodes of a product. `quantized`: name of a tensor -> its uint8 rows, their largest values and their kind."""
    x, output, nodes = node.input[0], node.output[0], []
    if x not in quantized:
        nodes, quantized[x] = _quantized_rows(x, output, producers)
    rows, largest, kind = quantized[x]
    return [
        *nodes,
        helper.make_node("DequantizeLinear", [rows, *_parameters(kind)], [f"{output}/x"]),
        helper.make_node("DequantizeLinear", [weight, scale], [f"{output}/weight"], axis=1),
        helper.make_node("MatMul", [f"{output}/x", f"{output}/weight"], [f"{output}/relative"]),
        helper.make_node("Mul", [f"{output}/relative", largest], [output]),
    ]


def _quantized_rows(x, output, producers):
    """The nodes that convert x to uint8, and the names of the result and of each row's largest |x|, and the kind."""
    names = [f"{output}/x_uint8", f"{output}/x_largest"]
    relu = producers.nodes.get(x)
    kind = "unsigned" if relu is not None and relu.op_type == "Relu" else "signed"
    if kind == "unsigned":  # uint8 has no negative values, so only the largest value of each row needs the ReLU.
        x = relu.input[0]
        nodes = [
            helper.make_node("ReduceMax", [x, "quantization/last_axis"], [f"{output}/x_maximum"]),
            helper.make_node("Relu", [f"{output}/x_maximum"], names[1:]),
        ]
    else:
        nodes = [
            helper.make_node("Abs", [x], [f"{output}/x_magnitudes"]),
            helper.make_node("ReduceMax", [f"{output}/x_magnitudes", "quantization/last_axis"], names[1:]),
        ]
    nodes += [
        # A row whose largest value is 0 becomes arbitrary integers. The largest value makes the product 0 again.
        helper.make_node("Div", [x, names[1]], [f"{output}/x_relative"]),
        helper.make_node("QuantizeLinear", [f"{output}/x_relative", *_parameters(kind)], names[:1]),
    ]
    return nodes, (*names, kind)


def _parameters(kind):
    """The names of the scale and the zero point, for rows divided by their largest |x|."""
    return [f"quantization/{kind}_scale", f"quantization/{kind}_zero_point"]


def _gather(node, weight, scale):
    index, output = node.input[1], node.output[0]
    return [
        helper.make_node("Gather", [weight, index], [f"{output}/int8"], axis=0),
        helper.make_node("Cast", [f"{output}/int8"], [f"{output}/relative"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Gather", [scale, index], [f"{output}/scales"], axis=0),
        helper.make_node("Unsqueeze", [f"{output}/scales", "quantization/last_axis"], [f"{output}/scale"]),
        helper.make_node("Mul", [f"{output}/relative", f"{output}/scale"], [output]),
    ]


def _is_matrix(constant):
    return constant is not None and constant.ndim == 2 and constant.dtype == np.float32


def _takes_rows(node, constants):
    """Whether a node takes rows of a constant matrix."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return node.op_type == "Gather" and _is_matrix(constants.get(node.input[0])) and axis == 0


def _transposes_rows(node, producers, constants):
    """Whether a node transposes rows of a constant matrix."""
    permutation = next((attribute.ints for attribute in node.attribute if attribute.name == "perm"), ())
    if node.op_type != "Transpose" or permutation != [1, 0]:
        return False
    rows = producers.nodes.get(node.input[0])
    return rows is not None and _takes_rows(rows, constants)


class _Matrices:
    """The int8 matrices and their scales, in the outermost graph, where all graphs can use them."""

    def __init__(self):
        self._tensors = {"quantization/last_axis": np.array([-1])}
        for kind, (steps, zero_point) in _LEVELS.items():
            self._tensors |= zip(_parameters(kind), (np.float32(1 / steps), np.uint8(zero_point)), strict=True)
        self._nodes = []

    def of_product(self, node, producers, constants):
        """The names of the int8 second factor and its scales.

        It must be a constant matrix, its transpose, or some transposed rows of one; otherwise `None`.
        """
        name = node.input[1]
        if _is_matrix(constants.get(name)):
            return self.add(name, 0, constants)
        transpose = producers.nodes.get(name)
        if transpose is None or transpose.op_type != "Transpose":
            return None
        if _transposes_rows(transpose, producers, constants):
            return f"{name}/int8", f"{transpose.input[0]}/scales"
        if not _is_matrix(constants.get(transpose.input[0])):
            return None
        weight, scale = self.add(transpose.input[0], 1, constants)
        if not any(f"{weight}/transposed" in other.output for other in self._nodes):
            self._nodes.append(helper.make_node("Transpose", [weight], [f"{weight}/transposed"], perm=[1, 0]))
        return f"{weight}/transposed", scale

    def add(self, name, axis, constants):
        """Quantizes a matrix. Products sum over `axis`. Returns the names of the matrix and of its scales."""
        weight, scale = f"{name}/int8_{axis}", f"{name}/scale_{axis}"
        if weight not in self._tensors:
            matrix = constants[name]
            scales = np.maximum(np.abs(matrix).max(axis=axis, keepdims=True) / LARGEST, np.finfo("float32").tiny)
            self._tensors[weight] = np.round(matrix / scales).astype("int8")
            self._tensors[scale] = scales.ravel()
        return weight, scale

    def put_into(self, graph):
        """Adds everything to the outermost graph."""
        graph.initializer.extend(initializer(np.asarray(array), name) for name, array in self._tensors.items())
        for node in reversed(self._nodes):
            graph.node.insert(0, node)
