"""One order of summation per operator, whatever the machine and the schedule: bit for bit what NumPy sums in a loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.datatypes.conversion import convert
from graft.datatypes.formats import Format
from graft.datatypes.native_float import ORDERED
from graft.datatypes.operations import operate
from tests.datatypes.proofs.running import format_of

CPUS = ("native", "x86-64-v3", "x86-64")
"""512, 256 and 128 bits wide where this machine is of level 4; the last has no fused multiply-add."""
DTYPES = ("custom[posit]16", "custom[float8e5m2]8")


class Sums:
    """Numbers of a format in float64, combined by the format's own operations, one after another."""

    def __init__(self, format: Format) -> None:
        self.format = format

    def rounded(self, numbers: np.ndarray) -> np.ndarray:
        return self.format.to_numbers(self.format.to_bits(numbers))

    def apply(self, operation: str, *numbers: np.ndarray) -> np.ndarray:
        from graft.core.tensor_ir.scalar_math import Value
        from graft.datatypes.formats import evaluate

        def formula(*values: Value) -> Value:
            carried = tuple(value.cast(self.format.carrier) for value in values)
            return operate(self.format, operation, carried).cast("float64")

        return evaluate(formula, *np.broadcast_arrays(*(np.asarray(one, np.float64) for one in numbers)))

    def total(self, terms: list[np.ndarray]) -> np.ndarray:
        total = np.zeros_like(terms[0])
        for term in terms:
            total = self.apply("Add", total, term)
        return total

    def dots(self, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return self.total([self.apply("Mul", *pair) for pair in pairs])


Reference = Callable[[Sums, np.ndarray, dict[str, np.ndarray]], np.ndarray]


def matmul(sums: Sums, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    return sums.dots([(x[:, k, None], w["w"][k][None]) for k in range(x.shape[1])])


def convolution(group: int) -> Reference:
    def reference(sums: Sums, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
        weights, padded = w["w"], np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        outputs, channels, height, width = weights.shape
        first = np.arange(outputs) // (outputs // group) * channels
        rows, columns = x.shape[2:]
        return sums.dots([
            (weights[None, :, c, i, j, None, None], padded[:, first + c, i : i + rows, j : j + columns])
            for i in range(height)
            for j in range(width)
            for c in range(channels)
        ])  # fmt: skip

    return reference


def transposed(sums: Sums, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    """Stride 1: the convolution with the window transposed; channels come first."""
    weights, padded = w["w"], np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    channels, _, height, width = weights.shape
    rows, columns = x.shape[2] + height - 1, x.shape[3] + width - 1
    return sums.dots([
        (weights[c, :, i, j][None, :, None, None], padded[:, c, None, 2 - i : 2 - i + rows, 2 - j : 2 - j + columns])
        for c in range(channels)
        for i in range(height)
        for j in range(width)
    ])  # fmt: skip


def reduced(sums: Sums, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    return sums.total([x[:, k] for k in range(x.shape[1])])


def averaged(sums: Sums, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    terms = [x[:, :, i : x.shape[2] - 2 + i, j : x.shape[3] - 2 + j] for i in range(3) for j in range(3)]
    return sums.apply("Div", sums.total(terms), sums.rounded(np.array([9.0])))


def softmax(sums: Sums, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    powers = sums.apply("Exp", sums.apply("Sub", x, x.max(1, keepdims=True)))
    return sums.apply("Div", powers, reduced(sums, powers, w)[:, None])


CASES: dict[str, tuple[dict[str, object], list[int], dict[str, list[int]], Reference]] = {
    "MatMul": ({}, [3, 90], {"w": [90, 40]}, matmul),
    "Gemm": ({}, [5, 40], {"w": [40, 9]}, matmul),
    "Einsum": ({"equation": "ij,jk->ik"}, [4, 30], {"w": [30, 33]}, matmul),
    "Conv": ({"pads": [1, 1, 1, 1]}, [1, 5, 9, 9], {"w": [6, 5, 3, 3]}, convolution(1)),
    "Conv.depthwise": ({"pads": [1, 1, 1, 1], "group": 6}, [1, 6, 7, 7], {"w": [6, 1, 3, 3]}, convolution(6)),
    "Conv.groups": ({"pads": [1, 1, 1, 1], "group": 2}, [1, 6, 9, 9], {"w": [8, 3, 3, 3]}, convolution(2)),
    "ConvTranspose": ({}, [1, 5, 8, 8], {"w": [5, 4, 3, 3]}, transposed),
    "ReduceSum": ({"keepdims": 0}, [3, 150], {}, reduced),
    "AveragePool": ({"kernel_shape": [3, 3]}, [1, 4, 12, 12], {}, averaged),
    "Softmax": ({"axis": 1}, [3, 70], {}, softmax),
}


def model_of(case: str) -> tuple[onnx.ModelProto, np.ndarray, dict[str, np.ndarray]]:
    attributes, shape, parameters, _ = CASES[case]
    random = np.random.default_rng(sum(map(ord, case)))
    weights = {name: random.normal(0, 1, extents) for name, extents in parameters.items()}
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    names = ["x", *weights]
    if case == "ReduceSum":
        initializers.append(numpy_helper.from_array(np.array([1]), "axes"))
        names.append("axes")
    node = helper.make_node(case.partition(".")[0], names, ["y"], **attributes)
    given = [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)]
    result = [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)]
    graph = helper.make_graph([node], "sums", given, result, initializers)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(proto), random.normal(0, 1, shape), weights


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_every_machine_sums_in_the_stated_order(case: str, dtype: str) -> None:
    proto, x, weights = model_of(case)
    sums = Sums(format_of(dtype))
    rounded = {name: sums.rounded(array) for name, array in weights.items()}
    expected = CASES[case][3](sums, sums.rounded(x), rounded)
    model = convert(proto, dtype)
    for cpu in CPUS:
        actual = graft.compile(model, ["llvm"], threads=2, cpu=cpu)(x)
        np.testing.assert_array_equal(sums.format.to_bits(actual), sums.format.to_bits(expected), err_msg=cpu)


@pytest.mark.parametrize("case", ["MatMul", "Conv", "Conv.depthwise", "ReduceSum", "AveragePool"])
@pytest.mark.parametrize("accumulate", ["float32", "custom[posit]32"])
def test_a_wider_type_sums_in_the_same_order(case: str, accumulate: str) -> None:
    proto, x, weights = model_of(case)
    narrow = Sums(format_of("custom[posit]16"))
    wide = Sums(format_of(ORDERED.get(accumulate, accumulate)))
    rounded = {name: narrow.rounded(array) for name, array in weights.items()}
    if case == "AveragePool":
        given = narrow.rounded(x)
        terms = [given[:, :, i : x.shape[2] - 2 + i, j : x.shape[3] - 2 + j] for i in range(3) for j in range(3)]
        expected = narrow.apply("Div", narrow.rounded(wide.total(terms)), np.array([9.0]))
    else:
        expected = narrow.rounded(CASES[case][3](wide, narrow.rounded(x), rounded))
    model = convert(proto, "custom[posit]16", accumulate=accumulate)
    for cpu in ("native", "x86-64"):
        actual = graft.compile(model, ["llvm"], threads=2, cpu=cpu)(x)
        np.testing.assert_array_equal(actual, expected, err_msg=cpu)
