"""Gradients of tables of which few rows were read, beside eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.torch.fallbacks import COUNTS  # noqa: E402
from graft.torch.tables import add_rows_in_place, rows_added  # noqa: E402
from tests.torch.whole import STRICT, check, compiled, graph_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
aten = torch.ops.aten


def gradient(rows):
    return lambda grad, ids: aten.embedding_dense_backward(grad, ids, rows, -1, False)


IDS = torch.tensor([[3, 7], [3, 900]])
GRAD = torch.arange(16.0).reshape(2, 2, 4)


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def test_few_rows_are_added_to_zeros_in_place():
    COUNTS.clear()
    graph = compiled(lambda grad, ids: gradient(1000)(grad * 2, ids), GRAD, IDS, options=STRICT)
    assert [operator for operator, _ in COUNTS] == ["aten.index_put.default"]
    assert rows_added in targets(graph.module)
    assert aten.full.default not in targets(graph.module)
    (found,) = graph.module.forward([GRAD, IDS])
    torch.testing.assert_close(found, gradient(1000)(GRAD * 2, IDS))
    assert found[3].equal(2 * (GRAD[0, 0] + GRAD[1, 0]))
    assert found.count_nonzero() == found[[3, 7, 900]].count_nonzero()


def test_many_rows_are_added_by_a_kernel():
    ids = IDS % 5
    check(gradient(8), GRAD, ids)
    assert rows_added not in targets(compiled(gradient(8), GRAD, ids).module)


@pytest.mark.parametrize(("value", "is_read"), [(0.0, False), (0.0, True), (1.0, False)])
def test_what_is_added_to_must_be_zeros_that_nobody_else_reads(value, is_read):
    def function(grad, ids):
        table = torch.full((1000, 4), value)
        return [torch.index_put(table, [ids], grad, accumulate=True), *([table * 1] if is_read else [])]

    graph = graph_of(function, GRAD, IDS)
    add_rows_in_place(graph)
    assert (rows_added in targets(graph)) == (value == 0 and not is_read)
