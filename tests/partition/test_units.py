"""What is placed as one, in topological order."""

from __future__ import annotations

import random

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.rewriting.node_rewrite import RECOMPUTED
from graft.partition.graph import IndexedGraph, bodies, captures, index_graph
from graft.partition.merge_composite import MergeComposite, Table
from graft.partition.placement.partitioner import partition
from graft.partition.units import Units, crosses_bodies, in_order, make_units, strongly_connected
from graft.patterns import Composite, is_op, outputs, wildcard
from tests.partition.graphs import everything, model_of, run_reference, small, toy

SEQUENCE = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2] x, int64 i) => (float[2] y) {
  a = Relu(x)
  s = SequenceConstruct(a, x)
  b = Exp(a)
  t = SequenceInsert(s, b)
  l = SequenceAt(t, i)
  y = Relu(l)
}"""


def run_both(model: ir.Model, partitioned: ir.Model, **inputs: np.ndarray) -> None:
    np.testing.assert_array_equal(run_reference(partitioned, inputs)[0], run_reference(model, inputs)[0])


def test_what_lies_between_sequence_operators_is_placed_by_itself() -> None:
    text = SEQUENCE.replace("b = Exp(a)", "f = SequenceAt(s, i)  b = Exp(f)")
    model = model_of(text)
    result = partition(model, [toy("npu", "Relu", "Exp"), everything("reference", fallback=True)])
    assert result.plan["b"].backend == "npu"
    run_both(model, result.model, x=np.array([-1, 2], np.float32), i=np.array(1))


def reaches(start: int, end: int, successors: dict[int, set[int]]) -> bool:
    seen, stack = {start}, [start]
    while stack:
        for other in successors.get(stack.pop(), ()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return end in seen


@pytest.mark.parametrize("seed", range(30))
def test_components_are_the_vertices_that_reach_each_other(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(1, 7)
    successors = {one: {draw.randrange(count) for _ in range(draw.randint(0, 2))} for one in range(count)}
    found = strongly_connected(range(count), successors)
    assert sorted(vertex for component in found for vertex in component) == list(range(count))
    own = {vertex: number for number, component in enumerate(found) for vertex in component}
    for one in range(count):
        for other in range(count):
            together = reaches(one, other, successors) and reaches(other, one, successors)
            assert (own[one] == own[other]) == together
            if other in successors[one]:
                assert own[other] <= own[one], "what is reached comes first"


def grouped(model: ir.Model, *rows: Composite, duplicate: bool = False) -> tuple[IndexedGraph, Units]:
    graph = index_graph(model.graph)
    found = MergeComposite((Table("npu", rows),), duplicate=duplicate).run(graph)
    return graph, make_units(graph, found.groups)


def test_without_composites_every_node_is_a_unit() -> None:
    _, units = grouped(small("a = Relu(x)\nb = Exp(a)\ny = Sub(b, a)"))
    assert [unit.nodes for unit in units.units] == [(0,), (1,), (2,)]
    assert (units.unit_of, units.predecessors) == ([0, 1, 2], [[], [0], [1, 0]])
    assert not any(unit.opaque or unit.group for unit in units.units)


def test_a_composite_is_one_unit_behind_what_it_reads() -> None:
    row = Composite("npu.add_relu", is_op("Add")(is_op("Relu"), wildcard()))
    _, units = grouped(small("a = Relu(x)\nb = Exp(x)\ny = Add(a, b)"), row)
    assert [unit.nodes for unit in units.units] == [(1,), (0, 2)]
    assert (units.unit_of, units.predecessors) == ([1, 0, 1], [[], [0]])
    group = units.units[1].group
    assert group is not None
    assert group.composite is row
    assert units.units[1].body == (0, 2)


def test_what_a_composite_computes_again_is_in_its_body_and_no_predecessor() -> None:
    row = Composite("npu.add_relu", is_op("Add")(is_op("Relu"), wildcard()))
    _, units = grouped(small("a = Relu(x)\nb = Exp(a)\ny = Add(a, b)"), row, duplicate=True)
    assert [(unit.nodes, unit.body) for unit in units.units] == [((0,), (0,)), ((1,), (1,)), ((2,), (0, 2))]
    assert (units.unit_of, units.predecessors) == ([0, 1, 2], [[], [0], [1]])


def test_nodes_that_share_a_sparse_value_are_one_opaque_unit_with_all_between_them() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\nc = Add(a, b)\ny = Neg(c)")
    model.graph[0].outputs[0].type = ir.SparseTensorType(ir.DataType.FLOAT)
    graph = index_graph(model.graph)
    units = make_units(graph, [])
    assert [(unit.nodes, unit.opaque) for unit in units.units] == [((0, 1, 2), True), ((3,), False)]
    assert units.predecessors == [[], [0]]


SPARSE = ir.SparseTensorType(ir.DataType.FLOAT)
IF = """y = If(c) <
  then_branch = t () => (float[2,3] p) { p = Neg(x) },
  else_branch = e () => (float[2,3] q) { q = Abs(x) }
>"""


def test_a_value_that_cannot_leave_keeps_bodies_with_their_node() -> None:
    for place in range(4):
        model = small(IF, inputs="float[2,3] x, bool c")
        node = model.graph[0]
        captured = captures(node)
        assert not crosses_bodies(node, captured)
        ends = (model.graph.inputs[0], node.outputs[0], node.inputs[0], bodies(node)[1][1].outputs[0])
        ends[place].type = SPARSE  # type: ignore[union-attr]
        assert crosses_bodies(node, captured)


def test_control_flow_is_opened_unless_sparse_values_cross_it_and_other_bodies_never_are() -> None:
    for operator, kind, opaque in (("If", None, False), ("If", SPARSE, True), ("Custom", None, True)):
        model = small(IF, inputs="float[2,3] x, bool c")
        node = model.graph[0]
        node.op_type = operator
        if kind is not None:
            node.outputs[0].type = kind
        (unit,) = make_units(index_graph(model.graph), []).units
        assert unit.opaque == opaque


def test_nodes_on_a_cycle_of_units_become_one_with_them() -> None:
    model = small("a = Relu(x)\nb = Neg(a)\nc = Exp(b)\ny = Add(c, a)")
    model.graph[0].outputs[0].type = SPARSE
    units = make_units(index_graph(model.graph), [])
    assert [(unit.nodes, unit.opaque) for unit in units.units] == [((0, 1, 2, 3), True)]


def test_what_leads_from_a_unit_and_never_back_stays_apart() -> None:
    shared = wildcard()
    row = Composite("npu.pair", outputs(is_op("Exp")(shared), is_op("Relu")(shared)))
    graph = index_graph(small("a = Relu(x)\nb = Exp(x)\nc = Neg(a)\ny = Add(b, c)").graph)
    units = make_units(graph, MergeComposite((Table("npu", (row,)),)).run(graph).groups)
    assert [unit.nodes for unit in units.units] == [(0, 1), (2,), (3,)]
    assert units.predecessors == [[], [0], [0, 1]]


def test_units_are_numbered_behind_what_they_read() -> None:
    shared = wildcard()
    row = Composite("npu.pair", outputs(is_op("Exp")(shared), is_op("Relu")(shared)))
    graph = index_graph(small("a = Relu(x)\nc = Neg(a)\nb = Exp(x)\ny = Add(b, c)").graph)
    units = make_units(graph, MergeComposite((Table("npu", (row,)),)).run(graph).groups)
    assert [unit.nodes for unit in units.units] == [(0, 2), (1,), (3,)]
    assert units.unit_of == [0, 1, 0, 2]
    assert [sorted(before) for before in units.predecessors] == [[], [0], [0, 1]]


def test_what_computes_again_comes_behind_what_another_backend_has_before_it() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(a) c = Relu(x) d = Exp(b) e = Exp(c) y = Add(d, e) }"""
    for name, behind in (("c", [[], [0], [], [1], [2], [3, 4]]), (f"c{RECOMPUTED}", [[], [0], [1], [1], [2], [3, 4]])):
        model = model_of(text)
        list(model.graph)[2].name = name
        graph = index_graph(model.graph)
        assert in_order(graph, make_units(graph, []), ["npu", None, "npu", "npu", "npu", "npu"]) == behind
