"""Indices out of range: an error that says which, in every operator that has some; legal ones as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.core.operators.definition.index_bounds import FROM_FRONT
from graft.errors import RunError
from graft.runtime.program import Program
from tests.plugins.llvm.models import model_of

F = np.float32
RANDOM = np.random.default_rng(3)


def random(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F)


def program(operator: str, inputs: dict[str, np.ndarray], *, threads: int = 1, **settings: Any) -> Program:
    without = settings.pop("without", ())
    return graft.compile(
        model_of(operator, inputs, **settings), ["llvm"], threads=threads, strict=True, without=without
    )


def failure(run: Callable[[], object]) -> str:
    with pytest.raises(RunError) as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 70_000])
@pytest.mark.parametrize("wrong", [5, -6])
def test_gather_takes_legal_indices_and_says_which_is_none(count: int, wrong: int, dtype: type) -> None:
    x, indices = random(5, 2), RANDOM.integers(-5, 5, count).astype(dtype)
    compiled = program("Gather", {"x": x, "i": indices}, threads=2)
    np.testing.assert_array_equal(compiled(x, indices), x[indices])
    indices[count // 2] = wrong
    assert failure(lambda: compiled(x, indices)) == (
        "node 'it': function 'llvm_0_indices_0' of module 'llvm_0' (kind 'native', plugin 'llvm'): "
        f"index {wrong} is out of range: axis 0 has extent 5, so that -5 to 4 are legal"
    )


def test_indices_that_two_nodes_read_in_other_orders_are_checked_once() -> None:
    x, i = random(5, 2), RANDOM.integers(-5, 5, (3, 4))
    text = "(float[5,2] x, int64[3,4] i) => (float[3,4,2] a, float[2,2,3,2] b) <int64[3] shape = {2, 2, 3}>"
    moves = "m = Abs(i) j = Sub(m, m) k = Add(i, j) t = Transpose(k) r = Reshape(t, shape)"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> g {text} {{ {moves} a = Gather(x, k) b = Gather(x, r) }}'
    )
    compiled = graft.compile(model, ["llvm"], strict=True)
    assert sum("indices" in (call.function or "") for call in compiled.description.procedures[0].calls) == 1
    found = compiled.run({"x": x, "i": i})
    np.testing.assert_array_equal(found["a"], x[i])
    np.testing.assert_array_equal(found["b"], x[i.T.reshape(2, 2, 3)])
    i[1, 2] = 5
    assert "index 5 is out of range" in failure(lambda: compiled.run({"x": x, "i": i}))


def test_a_node_whose_indices_count_from_the_front_refuses_negative_ones_and_is_merged_with_none_that_takes_them() -> (
    None
):
    x, indices = random(5, 2), np.array([0, -2])
    text = "(float[5,2] x, int64[2] i) => (float[2,2] y, float[2,2] z) { a = Gather(x, i) b = Gather(x, i)"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]> agraph {text} y = Relu(a) z = Neg(b) }}'
    )
    both = graft.compile(model, ["llvm"])
    np.testing.assert_array_equal(both(x, indices)[1], -x[indices])
    model.graph.node[1].metadata_props.add(key=FROM_FRONT)
    one = graft.compile(model, ["llvm"])
    np.testing.assert_array_equal(one(x, abs(indices))[1], -x[abs(indices)])
    assert failure(lambda: one(x, indices)).endswith(
        "index -2 is out of range: axis 0 has extent 5, so that 0 to 4 are legal"
    )


@pytest.mark.parametrize("rows", [1, 70_000])
def test_expanded_indices_are_checked_once_and_added_in_order(rows: int) -> None:
    text = f"(float[3,5] x, int64[{rows},1] i, float[{rows},5] u) => (float[3,5] y) <int64[2] shape = {{{rows}, 5}}>"
    nodes = 'e = Expand (i, shape) y = ScatterElements <reduction = "add"> (x, e, u)'
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {text} {{ {nodes} }}')
    x, indices, updates = random(3, 5), RANDOM.integers(-3, 3, (rows, 1)), random(rows, 5)
    compiled, expected = graft.compile(model, ["llvm"], threads=2), x.copy()
    np.add.at(expected, indices[:, 0], updates)
    np.testing.assert_array_equal(compiled(x, indices, updates), expected)
    indices[rows // 2] = 3
    assert failure(lambda: compiled(x, indices, updates)).endswith(
        "index 3 is out of range: axis 0 has extent 3, so that -3 to 2 are legal"
    )


IMAGE = random(2, 4, 3)
CASES: dict[str, tuple[dict[str, np.ndarray], str, int, dict[str, Any]]] = {
    "GatherElements": ({"x": IMAGE, "i": RANDOM.integers(-4, 4, (2, 4, 3))}, "i", 4, {"axis": 1}),
    "GatherND": ({"x": IMAGE, "i": RANDOM.integers(-2, 2, (5, 2))}, "i", 4, {}),
    "ScatterElements": (
        {"x": IMAGE, "i": np.zeros((2, 1, 3), np.int64), "u": random(2, 1, 3)}, "i", -5, {"axis": 1},
    ),
    "ScatterND": ({"x": IMAGE, "i": np.array([[0, 3], [1, -1]]), "u": random(2, 3)}, "i", 4, {}),
    "ReverseSequence": ({"x": IMAGE, "n": np.array([1, 2, 0, 2])}, "n", 3, {"batch_axis": 1, "time_axis": 0}),
    "RotaryEmbedding": (
        {"x": random(1, 2, 3, 8), "c": random(6, 4), "s": random(6, 4), "p": np.array([[0, 5, 2]])}, "p", 6, {},
    ),
    "LSTM": (
        {"x": random(5, 2, 3), "w": random(1, 16, 3), "r": random(1, 16, 4), "n": np.array([5, 2], np.int32)}, "n", 6,
        {"order": ["x", "w", "r", "", "n"], "hidden_size": 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", CASES)
def test_every_operator_with_indices_checks_them(operator: str) -> None:
    inputs, name, wrong, settings = CASES[operator]
    compiled = program(operator, inputs, **settings)
    compiled.run(inputs)
    changed = inputs[name].copy()
    changed.reshape(-1)[-1] = wrong
    assert f": index {wrong} is out of range: axis " in failure(lambda: compiled.run({**inputs, name: changed}))


def test_each_column_of_a_tuple_has_a_range_of_its_own() -> None:
    x, indices = random(2, 40), np.stack([RANDOM.integers(-2, 2, 33), RANDOM.integers(-40, 40, 33)], 1)
    compiled = program("GatherND", {"x": x, "i": indices})
    np.testing.assert_array_equal(compiled(x, indices), x[indices[:, 0], indices[:, 1]])
    indices[20, 0] = 2
    message = failure(lambda: compiled(x, indices))
    assert message.endswith("index 2 is out of range: axis 0 has extent 2, so that -2 to 1 are legal")


def calls(compiled: Program) -> list[str]:
    (procedure,) = compiled.description.procedures
    return [call.function for call in procedure.calls]


def test_the_check_is_switched_off_by_name() -> None:
    x, indices = random(5, 2), np.array([7, -9])
    compiled = program("Gather", {"x": x, "i": indices}, without=["index-checks"])
    assert not [name for name in calls(compiled) if "indices" in name]
    np.testing.assert_array_equal(compiled(x, indices), x[[4, 0]])


def test_constant_indices_are_not_checked_again() -> None:
    compiled = program("Gather", {"x": random(5, 2)}, constants={"i": np.array([0, 4])})
    assert not [name for name in calls(compiled) if "indices" in name]


def test_indices_along_an_axis_that_varies_are_checked_by_its_extent() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[n, 2] x, int64[k] i) => (float[k, 2] y) { y = Gather(x, i) }"""
    )
    compiled = graft.compile(model, ["llvm"], strict=True)
    x = random(7, 2)
    np.testing.assert_array_equal(compiled(x, np.array([6, -7, 0])), x[[6, -7, 0]])
    assert compiled(x[:0], np.zeros(0, np.int64)).shape == (0, 2)
    for count, wrong, legal in ((7, 7, "-7 to 6"), (5, -6, "-5 to 4"), (0, 0, "0 to -1")):
        assert failure(lambda count=count, wrong=wrong: compiled(x[:count], np.array([wrong]))).endswith(  # type: ignore[misc]
            f"index {wrong} is out of range: axis 0 has extent {count}, so that {legal} are legal"
        )
