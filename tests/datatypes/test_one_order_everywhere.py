"""Normalisations, pooling, attention, recurrent layers: one order of summation on every machine, by every schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.machine.target import OPTIMISATIONS
from graft.datatypes.conversion import convert
from tests.datatypes.proofs.running import format_of
from tests.datatypes.test_summation_order import Sums

DTYPE = "custom[posit]16"


@dataclass(frozen=True)
class Case:
    """A node: its operator, attributes and inputs by name, the first given at run time; "" is one left out."""

    operator: str
    inputs: dict[str, list[int] | np.ndarray]
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: int = 1


def recurrent(operator: str, gates: int, direction: str, **attributes: object) -> Case:
    """Return a layer of 21 input and 19 hidden features: with a rest behind the lanes of every machine."""
    directions, hidden = (2 if direction == "bidirectional" else 1), 19
    shapes: dict[str, list[int] | np.ndarray] = {
        "x": [3, 2, 21],
        "w": [directions, gates * hidden, 21],
        "r": [directions, gates * hidden, hidden],
        "b": [directions, 2 * gates * hidden],
    }
    return Case(operator, shapes, {"hidden_size": hidden, "direction": direction, **attributes}, 2)


HEADS = {"q": [1, 2, 21, 16], "k": [1, 2, 37, 16], "v": [1, 2, 37, 16]}
CASES: dict[str, Case] = {
    "LayerNormalization": Case("LayerNormalization", {"x": [3, 5, 67], "w": [67], "b": [67]}),
    "LayerNormalization of a plane": Case("LayerNormalization", {"x": [2, 5, 33], "w": [5, 33]}, {"axis": 1}),
    "RMSNormalization": Case("RMSNormalization", {"x": [7, 130], "w": [130]}),
    "InstanceNormalization": Case("InstanceNormalization", {"x": [2, 5, 7, 9], "w": [5], "b": [5]}),
    "GroupNormalization": Case("GroupNormalization", {"x": [1, 8, 7, 7], "w": [8], "b": [8]}, {"num_groups": 2}),
    "BatchNormalization": Case("BatchNormalization", {"x": [2, 5, 9], "w": [5], "b": [5], "m": [5], "v": np.ones(5)}),
    "MeanVarianceNormalization": Case("MeanVarianceNormalization", {"x": [2, 5, 7, 9]}, {"axes": [2, 3]}),
    "LpNormalization": Case("LpNormalization", {"x": [5, 70]}, {"axis": 1, "p": 1}),
    "LpNormalization of columns": Case("LpNormalization", {"x": [70, 40]}, {"axis": 0, "p": 2}),
    "LRN": Case("LRN", {"x": [1, 7, 5, 5]}, {"size": 3}),
    "LogSoftmax": Case("LogSoftmax", {"x": [5, 70]}, {"axis": 1}),
    "Softmax of columns": Case("Softmax", {"x": [70, 40]}, {"axis": 0}),
    "Attention": Case("Attention", HEADS),
    "Attention, causal": Case("Attention", {name: [1, 2, 21, 16] for name in "qkv"}, {"is_causal": 1}),
    "Attention of one query": Case("Attention", {"q": [1, 2, 1, 16], "k": [1, 2, 130, 16], "v": [1, 2, 130, 16]}),
    "AveragePool": Case("AveragePool", {"x": [1, 33, 9, 9]}, {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "LpPool": Case("LpPool", {"x": [1, 3, 12, 40]}, {"kernel_shape": [3, 3]}),
    "GlobalAveragePool": Case("GlobalAveragePool", {"x": [2, 5, 7, 9]}),
    "CumSum": Case("CumSum", {"x": [6, 45], "a": np.array(1)}),
    "CumSum of columns": Case("CumSum", {"x": [45, 40], "a": np.array(0)}, {"reverse": 1, "exclusive": 1}),
    "Einsum": Case("Einsum", {"x": [4, 5, 9], "w": [5, 9, 17]}, {"equation": "ijk,jkl->il"}),
    "Einsum of a trace": Case("Einsum", {"x": [19, 19]}, {"equation": "ii->"}),
    "ReduceL2": Case("ReduceL2", {"x": [70, 40], "a": np.array([0])}),
    "ReduceLogSumExp": Case("ReduceLogSumExp", {"x": [5, 70], "a": np.array([1])}),
    "RNN": recurrent("RNN", 1, "bidirectional"),
    "GRU": recurrent("GRU", 3, "forward"),
    "GRU, reset last": recurrent("GRU", 3, "forward", linear_before_reset=1),
    "LSTM": recurrent("LSTM", 4, "forward"),
}  # fmt: skip


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model and all its inputs; weights are constants, of a size that keeps functions off their limits."""
    random = np.random.default_rng(5)
    arrays = {
        name: given if isinstance(given, np.ndarray) else random.normal(0, 0.4, given).astype("f")
        for name, given in case.inputs.items()
    }
    arrays = {name: array.astype("f") if array.dtype.kind == "f" else array for name, array in arrays.items()}
    first, *_ = arrays
    given = [helper.make_tensor_value_info(first, TensorProto.FLOAT, arrays[first].shape)]
    constants = [numpy_helper.from_array(array, name) for name, array in list(arrays.items())[1:]]
    names = [f"y{number}" for number in range(case.outputs)]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    node = helper.make_node(case.operator, list(arrays), names, name="it", **case.attributes)
    graph = helper.make_graph([node], "sums", given, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model), arrays


def results(found: np.ndarray | tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return found if isinstance(found, tuple) else (found,)


SLOW = ("GRU", "GRU, reset last", "LSTM", "RNN", "Attention, causal")


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in CASES])
def test_machines_and_schedules_sum_alike(name: str) -> None:
    model, arrays = model_of(CASES[name])
    converted, first = convert(model, DTYPE), next(iter(arrays.values()))
    native = graft.compile(converted, ["llvm"], threads=2)(first)
    narrow = graft.compile(converted, ["llvm"], threads=1, cpu="x86-64")(first)
    plain = graft.compile(converted, ["llvm"], threads=1, cpu="x86-64-v3", without=list(OPTIMISATIONS))(first)
    for other in (narrow, plain):
        for one, same in zip(results(native), results(other), strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, same)


# ---- One operation after another ----

Inputs = dict[str, np.ndarray]


def cumulative(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    total, results = np.zeros(x.shape[0]), []
    for column in x.T:
        total = sums.apply("Add", total, column)
        results.append(total)
    return np.stack(results, 1)


def log_softmax(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    difference = sums.apply("Sub", x, x.max(1, keepdims=True))
    total = sums.total(list(sums.apply("Exp", difference).T))
    return sums.apply("Sub", difference, sums.apply("Log", total)[:, None])


def one_norm(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    return sums.apply("Div", x, sums.total(list(np.abs(x).T))[:, None])


def two_norm_of_columns(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    return sums.apply("Div", x, sums.apply("Sqrt", sums.dots([(row, row) for row in x])))


def lp_pool(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    rows, columns = x.shape[2] - 2, x.shape[3] - 2
    parts = [x[:, :, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return sums.apply("Sqrt", sums.dots([(part, part) for part in parts]))


def global_average(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    flat = x.reshape(*x.shape[:2], -1)
    total = sums.total([flat[:, :, place] for place in range(flat.shape[2])])
    return sums.apply("Div", total, np.array(float(flat.shape[2])))[:, :, None, None]


def two_axes(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    w = inputs["w"]
    return sums.dots([(x[:, j, k, None], w[None, j, k]) for j in range(x.shape[1]) for k in range(x.shape[2])])


def trace(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    return sums.total(list(np.diagonal(x)))


def layer(sums: Sums, x: np.ndarray, inputs: Inputs) -> np.ndarray:
    """The hidden states of both directions: the sum of both biases, input features, hidden features."""
    results = np.zeros((x.shape[0], 2, x.shape[1], 19))
    for direction, steps in ((0, range(3)), (1, reversed(range(3)))):
        w, r, bias = (inputs[name][direction] for name in "wrb")
        state = np.zeros((x.shape[1], 19))
        for step in steps:
            pairs = [(x[step, :, k, None], w[None, :, k]) for k in range(x.shape[2])]
            pairs += [(state[:, k, None], r[None, :, k]) for k in range(19)]
            total = np.broadcast_to(sums.apply("Add", bias[:19], bias[19:]), state.shape)
            for pair in pairs:
                total = sums.apply("Add", total, sums.apply("Mul", *pair))
            state = results[step, direction] = sums.apply("Tanh", total)
    return results


SEQUENTIAL: dict[str, Callable[[Sums, np.ndarray, Inputs], np.ndarray]] = {
    "CumSum": cumulative,
    "LogSoftmax": log_softmax,
    "LpNormalization": one_norm,
    "LpNormalization of columns": two_norm_of_columns,
    "LpPool": lp_pool,
    "GlobalAveragePool": global_average,
    "Einsum": two_axes,
    "Einsum of a trace": trace,
    "RNN": layer,
}


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_sums_are_those_of_one_operation_after_another(name: str) -> None:
    model, arrays = model_of(CASES[name])
    sums = Sums(format_of(DTYPE))
    rounded = {key: sums.rounded(array) if array.dtype.kind == "f" else array for key, array in arrays.items()}
    expected = SEQUENTIAL[name](sums, rounded["x"], rounded)
    found = graft.compile(convert(model, DTYPE), ["llvm"], threads=2)(arrays["x"])
    np.testing.assert_array_equal(results(found)[0], expected)
