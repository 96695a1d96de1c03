"""What folding may use of memory: what it reads no longer is given back."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from graft.core.importer.load import load
from graft.core.rewriting import fold_constants
from graft.core.rewriting.fold_constants import FoldConstants, widens_weights

COUNT, BYTES = 6, 256


def unpacking() -> ir.Model:
    """Return a model that takes weights apart, two numbers a byte, and adds them up with its input."""
    constants = {"four": np.array([0, 4], np.uint8), "mask": np.array(15, np.uint8)}
    nodes, total = [], "x"
    for number in range(COUNT):
        constants[f"w{number}"] = np.arange(BYTES, dtype=np.uint8).reshape(BYTES, 1) + np.uint8(number)
        nodes += [
            helper.make_node("BitShift", [f"w{number}", "four"], [f"s{number}"], direction="RIGHT"),
            helper.make_node("BitwiseAnd", [f"s{number}", "mask"], [f"a{number}"]),
            helper.make_node("Add", [total, f"a{number}"], [f"t{number}"]),
        ]
        total = f"t{number}"
    nodes[-1].output[0] = "y"
    x, y = (helper.make_tensor_value_info(name, 2, [BYTES, 2]) for name in "xy")
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "unpacking", [x], [y], initializers)
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def test_as_many_packed_weights_as_there_are_become_constants() -> None:
    model = unpacking()
    assert FoldConstants(limit=0, total=3 * BYTES).run(model)
    assert [node.op_type for node in model.graph] == ["Add"] * COUNT
    contents = model.graph.initializers["a1"].const_value
    assert contents is not None
    expected = np.arange(BYTES, dtype=np.uint8) + np.uint8(1)
    np.testing.assert_array_equal(contents.numpy(), np.stack([expected & 15, expected >> 4], -1))
    assert not {"w0", "s0"} & set(model.graph.initializers)


def test_what_has_no_room_is_left_for_the_run() -> None:
    model = unpacking()
    FoldConstants(limit=0, total=-COUNT * BYTES).run(model)
    assert "BitShift" in {node.op_type for node in model.graph}


def folded(body: str, output: str, constants: dict[str, np.ndarray], limit: int = 1 << 20) -> list[str]:
    """The operators that are left of nodes between an input x of [2, 3] and an output y."""
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3] x) => ({output} y) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True))
    FoldConstants(limit).run(model)
    return [node.op_type for node in model.graph]


FLOATS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("body", "output", "left"),
    [
        ("s = Shape (x) y = Identity (s)", "int64[2]", ["Identity"]),
        ("a = Neg (w) y = Add (x, a)", "float[2, 3]", ["Add"]),
        ("a = Unsqueeze (w, axes) y = Add (x, a)", "float[1, 2, 3]", ["Add"]),
        ("a = ConstantOfShape <value = float[1] {2}> (sizes) y = Add (x, a)", "float[2, 3]", ["Add"]),
        ("a = ConstantOfShape (sizes) y = Add (x, a)", "float[2, 3]", ["Add"]),
        ("a = MatMul (w, square) y = Add (x, a)", "float[2, 3]", ["Add"]),
        ("a = Gemm <transA = 1> (v, square) y = Add (x, a)", "float[2, 3]", ["Add"]),
        ("a = MatMul (x, square) y = Add (x, a)", "float[2, 3]", ["MatMul", "Add"]),
        ("a = ReduceSum <keepdims = 0> (w, axes) y = Add (x, a)", "float[2, 3]", ["Add"]),
        ("a = MatMul (cube, square) y = Add (x, a)", "float[2, 2, 3]", ["Add"]),
        ("a = Div (one, zero) b = Cast <to = 1> (a) y = Add (x, b)", "float[2, 3]", ["Div", "Cast", "Add"]),
        ("a, i = TopK (w, one) y = Add (x, a)", "float[2, 3]", ["TopK", "Add"]),
    ],
)
def test_nodes_of_constants_become_constants(body: str, output: str, left: list[str]) -> None:
    constants = {
        "w": FLOATS, "v": np.ones((3, 2), np.float32), "axes": np.array([0]), "sizes": np.array([2, 3]),
        "square": np.ones((3, 3), np.float32), "cube": np.ones((2, 2, 3), np.float32),
        "one": np.array([1]), "zero": np.array([0]),
    }  # fmt: skip
    assert folded(body, output, constants) == left


def test_a_product_of_many_multiplications_is_left_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {"w": np.ones((2, 5), np.float32), "v": np.ones((5, 3), np.float32), "u": np.ones((5, 2), np.float32)}
    for most, products in ((30, []), (29, ["MatMul", "Gemm"])):
        monkeypatch.setattr(fold_constants, "MOST_MULTIPLICATIONS", most)
        body = "a = MatMul (w, v) b = Gemm <transA = 1> (u, v) c = Add (a, b) y = Add (x, c)"
        left = folded(body, "float[2, 3]", constants)
        assert [operator for operator in left if operator != "Add"] == products
    constants = {"w": np.ones((2, 2, 5), np.float32), "v": np.ones((5, 3), np.float32)}
    for most, products in ((60, []), (59, ["MatMul"])):
        monkeypatch.setattr(fold_constants, "MOST_MULTIPLICATIONS", most)
        left = folded("a = MatMul (w, v) y = Add (x, a)", "float[2, 2, 3]", constants)
        assert left == [*products, "Add"]


@pytest.mark.parametrize(
    ("sizes", "told", "value"),
    [([2, 3], [2, 4], "float[1] {2}"), ([2, 3], [2, 3], "int64[1] {2}"), (None, [2, 3], "float[1] {2}")],
)
def test_a_result_that_is_not_what_was_inferred_stays(sizes: list[int] | None, told: list[int], value: str) -> None:
    given = "float[2, 3] x" + ("" if sizes else ", int64[2] sizes")
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({given}) => (float[2, 3] y)'
    proto = onnx.parser.parse_model(f"{text} {{ a = ConstantOfShape <value = {value}> (sizes) y = Add (x, a) }}")
    if sizes:
        proto.graph.initializer.append(numpy_helper.from_array(np.array(sizes), "sizes"))
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, told))
    model = ir.from_proto(proto)
    assert not FoldConstants().run(model)
    assert len(model.graph) == 2


def test_a_result_is_at_most_the_limit_or_four_times_what_it_is_computed_from() -> None:
    tiled = "a = Expand (w, sizes) b = ReduceSum <keepdims = 1> (a) y = Add (x, b)"
    for repeats, left in ((3, ["Add"]), (5, ["Expand", "ReduceSum", "Add"])):
        constants = {"w": np.ones((1, 64), np.float32), "sizes": np.array([repeats, 64])}
        assert folded(tiled, "float[2, 3]", constants, limit=0) == left
        assert folded(tiled, "float[2, 3]", constants, limit=4 * 64 * repeats) == ["Add"]


def widening(
    *, columns: int = 16, blocks: int = 2, scales: tuple[int, ...] | None = None, body: str = "y = MatMul (x, d)",
    kind: str = "uint8", attributes: str = "axis = 0, block_size = 32", constant: bool = True, output: str = "y",
) -> ir.Node:  # fmt: skip
    """A DequantizeLinear of weights [64, columns] in front of products of 3 rows."""
    scales = (blocks, columns) if scales is None else scales
    inputs = "float[3, 64] x, float[64, 64] v" + ("" if constant else f", float[{','.join(map(str, scales))}] s")
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float[m, n] {output}) {{'
    proto = onnx.parser.parse_model(f"{text} d = DequantizeLinear <{attributes}> (w, s) {body} }}")
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((64, columns), kind), "w"))
    if constant:
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(scales, np.float32), "s"))
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    return next(node for node in model.graph if node.op_type == "DequantizeLinear")


def test_weights_that_products_read_as_bytes_are_widened_by_blocks_columns_or_as_a_whole() -> None:
    assert widens_weights(widening())
    assert widens_weights(widening(kind="int8", body="y = Gemm (x, d)"))
    assert widens_weights(widening(scales=(16,), attributes="axis = 1"))
    assert widens_weights(widening(scales=(16,), attributes="axis = -1"))
    assert widens_weights(widening(scales=(16,), attributes="block_size = 0"))
    assert widens_weights(widening(scales=(), attributes="axis = 1"))
    assert widens_weights(widening(body="a = MatMul (x, d) b = MatMul (x, d) y = Add (a, b)"))
    assert widens_weights(widening(), most=3) and not widens_weights(widening(), most=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": 17}, {"scales": (64,), "attributes": "axis = 0"}, {"constant": False},
        {"scales": (64, 1), "attributes": "axis = 1, block_size = 16"}, {"body": "y = Neg (d)"},
        {"body": "y = Gemm <transB = 1> (v, d)", "columns": 64}, {"body": "y = Gemm <transA = 1> (x, d)"},
        {"body": "y = MatMul (d, v)", "columns": 64}, {"body": "a = MatMul (x, d) y = Neg (d)"},
        {"body": "y = MatMul (x, d)", "output": "d"}, {"body": ""}, {"kind": "uint16"},
    ],
)  # fmt: skip
def test_other_weights_are_not_read_as_bytes(changes: dict[str, object]) -> None:
    assert not widens_weights(widening(**changes))  # type: ignore[arg-type]


def test_what_is_no_dequantisation_widens_nothing() -> None:
    (user, _), *_ = widening().outputs[0].uses()
    assert not widens_weights(user)


def test_a_transposed_constant_is_a_view_of_the_constant() -> None:
    source = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["w"], ["t"], perm=[2, 0, 1]), helper.make_node("Add", ["t", "x"], ["y"])],
        "transposing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2, 3])],
        [numpy_helper.from_array(source, "w")],
    )
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    model.graph.initializers["w"].const_value = ir.Tensor(source, name="w")
    assert FoldConstants().run(model)
    folded = model.graph.initializers["t"].const_value
    assert folded is not None
    np.testing.assert_array_equal(folded.numpy(), source.transpose(2, 0, 1))
    assert np.shares_memory(folded.numpy(), source)
    assert folded.tobytes() == np.ascontiguousarray(source.transpose(2, 0, 1)).tobytes()
