"""Costs of nodes and boundaries whose shapes vary."""

from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx import parser

import graft
from graft.compiler.driver import prepare
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Cost, Operator, OperatorTable
from graft.partition.costs import UNKNOWN_BYTES, Work, kernel_cost, value_bytes
from graft.partition.placement.partitioner import partition
from graft.partition.region import regions
from graft.plugins.llvm.backend import LlvmBackend

PRODUCT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 8] x, float[8, 4] w) => (float[batch, seq, 4] y) { y = MatMul(x, w) }"""


@pytest.mark.parametrize(
    ("dims", "rows"),
    [(None, 2 * 16), ({"seq": (32, 64)}, 2 * 45), ({"seq": (128, 512)}, 2 * 256), ({"batch": (5, None)}, 6 * 16)],
)
def test_a_node_counts_with_a_typical_number_of_each_symbol_within_its_range(dims: graft.Dims, rows: int) -> None:
    model = prepare(parser.parse_model(PRODUCT), dims=dims)
    assert Work.of_model(OPERATORS, model).flops(NodeView(model.graph[0])) == 2 * rows * 8 * 4


def test_a_node_whose_row_has_no_cost_or_that_has_no_row_counts_nothing() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]> g (float[n, 4] x) => (float[a, b] y)'
    for operator in ("Identity", "own.Unheard"):
        model = ir.from_proto(parser.parse_model(f"{text} {{ y = {operator} (x) }}"))
        assert Work(OPERATORS, {}).flops(NodeView(model.graph[0])) == 0


def test_a_node_of_numbers_counts_with_these_though_an_input_is_absent() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[3, 4] x) => (float[3, 4] y) { y = Clip (x, , m) }'
    proto = parser.parse_model(text.replace("g (float", "g (float m, float"))
    model = prepare(proto)
    view = NodeView(model.graph[0])
    row = OPERATORS.of(view)
    assert row is not None and row.cost is not None
    assert Work(OPERATORS, {}).flops(view) == row.cost(view).flops > 0


def test_regions_are_priced_at_the_ranges_of_the_symbols() -> None:
    costs = []
    for dims in ({"seq": (1, 512)}, {"seq": (128, 512)}):
        model = partition(prepare(parser.parse_model(PRODUCT), dims=dims), [LlvmBackend()]).model
        (region,) = regions(model)
        costs += LlvmBackend().cost(region)
    weights = 8 * 4 * 4
    assert [one.flops for one in costs] == [2 * 2 * 16 * 8 * 4, 2 * 2 * 256 * 8 * 4]
    assert [one.bytes - weights for one in costs] == [2 * 16 * (8 + 4) * 4, 2 * 256 * (8 + 4) * 4]


def test_an_expression_counts_with_what_its_symbols_have() -> None:
    value = ir.Value(name="x", shape=ir.Shape(["2*seq + 1", 8]), type=ir.TensorType(ir.DataType.FLOAT))
    assert value_bytes(value, {}) == (2 * 16 + 1) * 8 * 4


def test_a_value_of_unknown_rank_has_the_bytes_of_the_unknown() -> None:
    assert value_bytes(ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT)), {}) == UNKNOWN_BYTES


def test_a_plan_of_any_shape_says_shares_of_operations() -> None:
    plan = graft.plan(parser.parse_model(PRODUCT), ["llvm", "reference"])
    assert plan.summary() == "llvm 1/1 ops (100.0 %, 1 region, 100 % of FLOPs)"


def test_an_extent_below_none_counts_as_none() -> None:
    value = ir.Value(name="x", shape=ir.Shape(["seq - 20", 8]), type=ir.TensorType(ir.DataType.FLOAT))
    assert value_bytes(value, {}) == 0
    assert value_bytes(value, {"seq": 21}) == 8 * 4


def nodes_of(inputs: str, body: str) -> list[NodeView]:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g ({inputs}) => (float[a, b] y) {{ {body} }}'
    return [NodeView(node) for node in prepare(parser.parse_model(text)).graph]


def test_a_node_of_any_shape_counts_though_an_input_is_absent() -> None:
    (node,) = nodes_of("float[n, 4] x, float m", "y = Clip (x, , m)")
    (whole,) = nodes_of("float[6, 4] x, float m", "y = Clip (x, , m)")
    assert Work(OPERATORS, {"n": 6}).flops(node) == Work(OPERATORS).flops(whole) > 0


def test_nodes_are_counted_once_for_all_that_are_alike_and_as_they_are_where_shapes_are_numbers() -> None:
    seen: list[NodeView] = []

    def cost(view: NodeView) -> Cost:
        seen.append(view)
        return Cost(7, 0)

    operators = OperatorTable()
    operators.add(Operator("Relu", cost=cost))
    first, second, third = nodes_of("float[3, 4] x", "a = Relu (x) b = Relu (a) y = Relu (b)")
    work = Work(operators)
    assert [work.flops(one) for one in (first, second, third)] == [7, 7, 7]
    assert len(seen) == 1 and seen[0] is first


def test_a_kernel_moves_what_its_nodes_read_from_outside_and_the_last_one_writes() -> None:
    nodes = nodes_of("float[3, 4] x, float[4] z", "a = Add (x, z) b = Clip (a, , ) y = Mul (b, x)")
    work = Work(OPERATORS)
    cost = kernel_cost(nodes, work)
    assert cost.bytes == (12 + 4 + 12) * 4
    assert cost.flops == sum(map(work.flops, nodes)) > 0
