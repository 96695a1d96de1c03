"""The compilation of ATen graphs: what is put in place of parts, what a failure leaves to PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.errors import UnsupportedError  # noqa: E402
from graft.torch import explain  # noqa: E402
from graft.torch.compiling import backends_of, boxed, compile_graph  # noqa: E402
from graft.torch.options import Options  # noqa: E402
from tests.torch.whole import STRICT, compiled, graph_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
LLVM = Options(backends=("llvm",))


def test_parts_that_read_each_other_are_called_in_order_and_arguments_are_cleared():
    def function(x):
        y = (x @ x).exp().tanh()
        return [torch.linalg.inv(y + torch.eye(3) * 9) @ y, y]

    x = torch.randn(3, 3)
    graph = compiled(function, x, options=LLVM)
    assert len(graph.programs) == 2
    arguments = [x]
    found = boxed(graph)(arguments)
    assert arguments == []
    for one, other in zip(found, function(x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_graph_that_is_one_part_is_called_straight_with_what_the_part_reads_in_its_order():
    x, y = torch.randn(3), torch.randn(3)
    graph = compiled(lambda x, unread, y: (y - x, y + 1), x, torch.ones(9), y, options=LLVM)
    graph.module.forward = None  # not what is called
    arguments = [x, torch.ones(9), y]
    found = boxed(graph)(arguments)
    assert arguments == []
    torch.testing.assert_close(list(found), [y - x, y + 1])


def test_a_part_whose_results_are_given_otherwise_than_it_orders_them_is_called_by_the_graph():
    x, y = torch.randn(3), torch.randn(3)
    graph = compiled(lambda x, y: [(first := y - x) + 1, x, first, first], x, y, options=LLVM)
    for one, other in zip(boxed(graph)([x, y]), (y - x + 1, x, y - x, y - x), strict=True):
        torch.testing.assert_close(one, other)


def test_constants_are_in_the_program_and_not_read_again():
    graph = graph_of(lambda x, w: [x @ w], torch.randn(2, 3), torch.randn(3, 4))
    w = torch.randn(3, 4)
    names = [one.name for one in graph.graph.nodes if one.op == "placeholder"]
    call = boxed(compile_graph(graph, STRICT, {names[1]: w}))
    x = torch.randn(2, 3)
    torch.testing.assert_close(call([x, torch.zeros(3, 4)])[0], x @ w)


def test_what_a_backend_does_not_take_stays_in_pytorch_with_the_backends_reason():
    graph = compiled(lambda x: [torch.sinh(x @ x)], torch.randn(3, 3), options=Options(backends=("onednn",)))
    (row,) = [one for one in graph.rows if not one.part]
    assert row.operator == "aten.sinh.default"
    assert "onednn" in row.reason
    with pytest.raises(UnsupportedError, match=r"aten.sinh.default \(.*\) stays in PyTorch"):
        compiled(lambda x: [torch.sinh(x @ x)], torch.randn(3, 3), options=Options(backends=("onednn",), strict=True))


def test_the_last_resort_is_no_backend_unless_it_is_named():
    assert "reference" not in backends_of(Options())
    assert "llvm" in backends_of(Options())
    assert backends_of(Options(backends="reference")) == "reference"


@pytest.mark.parametrize("backends", [("cuda",), ("llvm",)])
def test_tensors_of_cuda_stay_in_pytorch_and_are_an_error_under_strict(backends):
    from torch._subclasses.fake_tensor import FakeTensorMode

    def graph():
        with FakeTensorMode():  # without a device, too
            x = torch.empty(3, 3, device="cuda")
            return graph_of(lambda x: torch.relu(x @ x), x, mode="real")

    why = "a tensor on 'cuda': compiled parts take main memory"
    found = compile_graph(graph(), Options(backends=backends))
    assert not found.programs
    assert {row.reason for row in found.rows} == {why}
    with pytest.raises(UnsupportedError, match=why):
        compile_graph(graph(), Options(backends=backends, strict=True))


def test_a_result_with_gaps_in_memory_is_pytorchs_only_where_others_than_its_part_read_it():
    def inside(x, y):
        return torch.ops.aten.copy(x[:, ::2], y * 2) + 1

    def outside(x, y):
        return torch.ops.aten.copy(x[:, ::2], y * 2), (y * 2).exp().neg()

    x, y = torch.randn(4, 6), torch.randn(4, 3)
    assert all(row.part for row in compiled(inside, x, y).rows)
    graph = compiled(outside, x, y, options=LLVM)
    left = {row.operator: row.reason for row in graph.rows if not row.part}
    assert left["aten.copy.default"] == "its result has gaps in memory"
    for one, other in zip(boxed(graph)([x, y]), outside(x, y), strict=True):
        torch.testing.assert_close(one, other, check_stride=True)


def test_assertions_are_pytorchs_also_under_strict():
    def coded(i, weights):
        return torch.nn.functional.one_hot(i, 4).float() @ weights

    run = torch.compile(coded, backend="graft", options={"backends": ["llvm"], "strict": True})
    i, weights = torch.tensor([0, 3, 1]), torch.randn(4, 5)
    torch.testing.assert_close(run(i, weights), coded(i, weights))
    with pytest.raises(RuntimeError, match="Class values must be smaller than num_classes"):
        run(i + 1, weights)
    torch.testing.assert_close(run(i, weights), coded(i, weights))


def test_operators_with_effects_are_called_by_their_own_name():
    graph = explain(torch.linalg.cholesky, (torch.eye(3),))
    (row,) = [one for one in graph.rows if "check_errors" in one.operator]
    assert (row.operator, row.reason[:12]) == ("aten._linalg_check_errors.default", "an assertion")
