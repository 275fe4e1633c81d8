"""A report for OpenVINO: attention over a growing cache is wrong after a first call with a cache of one position.

The graph is MatMul, Softmax, MatMul. It is compiled once and called with 1 position, then with more. From as many
positions as float32 numbers fit in a vector register (8 with AVX2), the result is wrong by more than 1. It is right if
the first call has more than one position, and with `SNIPPETS_MODE=DISABLE`, so the fused subgraph of the CPU plugin is
at fault. onnxruntime and `onnx.reference.ReferenceEvaluator` agree with NumPy.

    pip install openvino onnx numpy
    python benchmarks/openvino_attention.py

Seen with OpenVINO 2026.4.1 on Linux, x86-64 with AVX2:

    1 position first: 1: 0e+00, 7: 2e-07, 8: 4e+01, 16: 5e+01
    2 positions first: 2: 1e-07, 7: 2e-07, 8: 5e-07, 16: 5e-07
    1 position first, SNIPPETS_MODE=DISABLE: 1: 0e+00, 7: 2e-07, 8: 2e-07, 16: 4e-07
"""

import numpy as np
import onnx
from onnx import TensorProto, helper

ROWS, HEADS, WIDTH = 4, 2, 8


def attention_graph() -> onnx.ModelProto:
    """Makes softmax(query · key) · value, with any number of positions. The key is transposed."""
    shapes = {
        "query": ["rows", HEADS, 1, WIDTH],
        "key": ["rows", HEADS, WIDTH, "positions"],
        "value": ["rows", HEADS, "positions", WIDTH],
        "output": ["rows", HEADS, 1, WIDTH],
    }
    *inputs, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    nodes = [
        helper.make_node("MatMul", ["query", "key"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "value"], ["output"]),
    ]
    graph = helper.make_graph(nodes, "attention", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def errors(numbers_of_positions: list[int], **options) -> list[float]:
    """The largest error of each call.

    Args:
        numbers_of_positions: number of positions of each call.
        **options: properties of OpenVINO's CPU plugin.
    """
    import openvino

    core, draw, found = openvino.Core(), np.random.default_rng(0), []
    model = core.read_model(attention_graph().SerializeToString())
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", **options})
    for positions in numbers_of_positions:
        query, value = (draw.normal(size=(ROWS, HEADS, n, WIDTH)).astype("float32") for n in (1, positions))
        key = np.ascontiguousarray(value.swapaxes(2, 3))
        weights = np.exp(query @ key)
        expected = weights / weights.sum(axis=-1, keepdims=True) @ value
        (result,) = compiled({"query": query, "key": key, "value": value}).values()
        found.append(float(np.abs(result - expected).max()))
    return found


def main() -> None:
    """Prints the errors of each number of positions."""
    for title, positions, options in (
        ("1 position first", [1, 7, 8, 16], {}),
        ("2 positions first", [2, 7, 8, 16], {}),
        ("1 position first, SNIPPETS_MODE=DISABLE", [1, 7, 8, 16], {"SNIPPETS_MODE": "DISABLE"}),
    ):
        pairs = zip(positions, errors(positions, **options), strict=True)
        print(f"{title}: {', '.join(f'{count}: {error:.0e}' for count, error in pairs)}")


if __name__ == "__main__":
    main()
