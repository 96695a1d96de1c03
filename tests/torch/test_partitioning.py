"""Parts of graphs: no circles, none too small, views left to PyTorch."""

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.torch.partitioning import parts_of  # noqa: E402
from tests.torch.whole import graph_of  # noqa: E402


def split(function, *inputs, without=("sin",)):
    graph = graph_of(function, *inputs)
    calls = [one for one in graph.graph.nodes if one.op == "call_function"]
    return graph, parts_of(graph, {one: "" for one in calls if one.name.split("_")[0] in without})


def test_what_is_refused_parts_the_graph_and_no_way_leads_back():
    def function(x):
        y = x.exp().tanh().neg()
        return y + y.sin().exp().tanh().neg()

    _, parts = split(function, torch.randn(3))
    assert [[one.name for one in part.nodes] for part in parts] == [
        ["exp", "tanh", "neg"], ["exp_1", "tanh_1", "neg_1", "add"],
    ]  # fmt: skip


def test_small_parts_stay_in_pytorch_but_a_product_is_worth_its_call():
    _, parts = split(lambda x: (x.sin() + 1).sin(), torch.randn(3))
    assert parts == []
    _, parts = split(lambda x: (x @ x).sin(), torch.randn(3, 3))
    assert [one.name for one in parts[0].nodes] == ["mm"]


def test_a_whole_graph_is_one_part_and_its_last_view_pytorchs():
    graph, parts = split(lambda x: (x + 1).t(), torch.randn(2, 3))
    assert [one.name for one in parts[0].nodes] == ["add"]
    assert [one.name for one in graph.graph.nodes][-2].startswith(("t", "permute"))


def test_what_only_a_part_behind_reads_is_in_that_part():
    def function(x, w):
        wide = (w * 2).t()
        largest, _ = w.max(0)
        return x.sin() @ wide + largest

    _, parts = split(function, torch.randn(3, 3), torch.randn(3, 3))
    assert [[one.name for one in part.nodes] for part in parts] == [["mul", "t", "mm", "add"]]


@pytest.mark.parametrize("seed", range(10))
def test_parts_of_random_graphs_can_be_put_in_an_order(seed):
    draw = random.Random(seed)

    def function(x):
        values = [x]
        for _ in range(30):
            one, other = draw.choice(values), draw.choice(values)
            values.append(draw.choice([torch.sin(one), one + other, torch.exp(one)]))
        return values[-1] + values[-2]

    _, parts = split(function, torch.randn(2))
    owner = {node: number for number, part in enumerate(parts) for node in part.nodes}
    assert len(owner) == sum(len(part.nodes) for part in parts)
    reached = {}  # by node, the parts on the ways to it

    def before(node):
        if node not in reached:
            reached[node] = set().union(*(before(one) | {owner.get(one)} for one in node.all_input_nodes), set())
        return reached[node]

    for number, part in enumerate(parts):
        outside = [one for node in part.nodes for one in node.all_input_nodes if owner.get(one) != number]
        assert all(number not in before(one) for one in outside)
