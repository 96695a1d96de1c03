"""A graph by numbers: order, neighbours, unique names."""

from __future__ import annotations

import random
from itertools import permutations

import onnx_ir as ir
import pytest

from graft.errors import ModelError
from graft.partition.graph import (
    IndexedGraph,
    bodies,
    captures,
    has_bodies,
    index_graph,
    index_tree,
    is_call,
    is_constant_node,
    is_control_flow,
    is_exchanged,
    is_tensor,
    topological,
    unique_name,
)
from graft.partition.placement.partitioner import partition
from graft.partition.region import regions
from tests.partition.graphs import everything, small


def test_nodes_of_one_name_are_told_apart() -> None:
    model = small("a = Relu(x)\ny = Exp(a)")
    for node in model.graph:
        node.name = "same"
    result = partition(model, [everything()])
    assert [row.node for row in result.plan.placements] == ["same", "same_2"]
    assert regions(result.model)[0].origin == ("same", "same_2")


def names(found: list[int], graph: IndexedGraph) -> list[str]:
    return [graph.names[number] for number in found]


def test_numbers_follow_the_graph_and_neighbours_are_told_once() -> None:
    model = small("c = Constant <value = float {1.0}> ()\na = Mul(x, c)\nb = Add(a, a)\ny = Sub(b, a)")
    graph = index_graph(model.graph)
    assert [node.op_type for node in graph.nodes] == ["Mul", "Add", "Sub"]
    assert graph.predecessors == [[], [0], [1, 0]]
    assert graph.successors == [[1, 2], [2], []]
    assert [graph.number[node] for node in graph.nodes] == [0, 1, 2]
    assert [value.name for value in graph.reads(2)] == ["b", "a"]


def test_a_graph_out_of_order_is_numbered_in_one_and_a_cycle_is_refused() -> None:
    model = small("a = Relu(x)\nb = Exp(a)\ny = Neg(b)")
    first, second, third = model.graph
    model.graph.remove([first, second])
    model.graph.extend([second, first])
    graph = index_graph(model.graph)
    assert [node.op_type for node in graph.nodes] == ["Relu", "Exp", "Neg"]
    assert graph.predecessors == [[], [0], [1]]
    first.replace_input_with(0, third.outputs[0])
    with pytest.raises(ModelError) as caught:
        index_graph(model.graph)
    assert str(caught.value) == "graph 'g' has a cycle; ONNX graphs must be acyclic"


def test_the_canonical_order_is_by_depth_and_then_by_name() -> None:
    model = small("b = Relu(x)\na = Exp(x)\nd = Tanh(a)\ny = Add(d, b)")
    for node, name in zip(model.graph, ("second", "first", "below", "last"), strict=True):
        node.name = name
    graph = index_graph(model.graph)
    assert names(graph.canonical(), graph) == ["first", "second", "below", "last"]


def test_names_that_are_taken_get_the_first_free_number() -> None:
    taken = {"a", "a_2"}
    assert [unique_name("a", taken), unique_name("a", taken), unique_name("b", taken)] == ["a_3", "a_4", "b"]
    assert taken == {"a", "a_2", "a_3", "a_4", "b"}


@pytest.mark.parametrize("seed", range(20))
def test_an_order_keeps_to_the_numbering_where_it_can(seed: int) -> None:
    draw = random.Random(seed)
    order = list(range(6))
    draw.shuffle(order)
    before = [[draw.choice(order[:place]) for _ in range(2)] if place else [] for place in range(6)]
    predecessors = [before[order.index(number)] for number in range(6)]
    wanted = next(
        one
        for one in permutations(range(6))
        if all(one.index(other) < one.index(number) for number in range(6) for other in predecessors[number])
    )
    assert topological(predecessors) == list(wanted)


IF = """y = If(c) <
  then_branch = t () => (float[2,3] p) { p = Neg(x) },
  else_branch = e () => (float[2,3] q) { k = Add(x, x)
    q = If(c) < then_branch = u () => (float[2,3] r) { r = Mul(k, z) },
                else_branch = v () => (float[2,3] s) { s = Identity(z) } > }
>"""


def test_bodies_read_values_from_outside_each_once() -> None:
    model = small(IF, inputs="float[2,3] x, float[2,3] z, bool c")
    node = model.graph[0]
    assert has_bodies(node)
    assert is_control_flow(node)
    assert [key for key, _ in bodies(node)] == ["else_branch", "then_branch"]
    assert [value.name for value in captures(node)] == ["x", "c", "z"]
    assert [value.name for value in index_graph(model.graph).reads(0)] == ["c", "x", "c", "z"]


def test_a_tree_holds_the_graphs_of_all_bodies() -> None:
    tree = index_tree(small(IF, inputs="float[2,3] x, float[2,3] z, bool c").graph, set())
    assert [len(graph.nodes) for graph in tree.all()] == [1, 2, 1, 1, 1]
    assert list(tree.bodies[0]) == ["else_branch", "then_branch"]


def test_arithmetic_of_shapes_is_marked_in_the_main_graph_alone() -> None:
    graph = small("s = Shape(x)\ny = Reshape(x, s)", inputs="float[n,3] x", outputs="float[n,3] y").graph
    assert index_tree(graph, set()).graph.arithmetic == {0}
    assert index_tree(graph, set(), is_main=False).graph.arithmetic == frozenset()


def test_kinds_of_nodes_are_told_by_operator_and_domain() -> None:
    assert not is_control_flow(ir.Node("com.acme", "If", []))
    assert not is_control_flow(ir.Node("", "SequenceMap", []))
    assert is_control_flow(ir.Node("ai.onnx", "Scan", []))
    assert [is_call(ir.Node(domain, "f", [])) for domain in ("graft.region", "graft.composite", "")] == [
        True,
        True,
        False,
    ]
    assert not has_bodies(ir.Node("", "Relu", []))
    assert not is_constant_node(ir.Node("", "Constant", []))
    assert not is_constant_node(ir.Node("com.acme", "Constant", [], [ir.AttrTensor("value", ir.tensor([1.0]))]))
    assert not is_constant_node(ir.Node("", "Constant", [], [ir.AttrFloat32("value", 1.0)]))
    assert is_constant_node(ir.Node("", "Constant", [], [ir.AttrTensor("value", ir.tensor([1.0]))]))


def test_sparse_tensors_alone_cannot_leave_a_region() -> None:
    dense, sparse = ir.TensorType(ir.DataType.FLOAT), ir.SparseTensorType(ir.DataType.FLOAT)
    kinds = (dense, sparse, ir.SequenceType(dense), None)
    assert [is_exchanged(ir.Value(name="v", type=kind)) for kind in kinds] == [True, False, True, True]
    assert [is_tensor(ir.Value(name="v", type=kind)) for kind in (dense, ir.SequenceType(dense))] == [True, False]
