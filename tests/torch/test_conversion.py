"""Parts of ATen graphs as ONNX models, held against onnx's own reference."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import onnx_ir as ir  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from graft.torch.conversion import converted, is_dense, memory_order, refusal, where  # noqa: E402
from tests.torch.whole import graph_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def calls(graph):
    return [one for one in graph.graph.nodes if one.op == "call_function"]


def test_a_part_is_a_model_of_plain_onnx_with_its_origins():
    def function(x, y):
        return torch.relu(x @ y) + 1

    x, y = torch.randn(2, 3), torch.randn(3, 4)
    nodes = calls(graph_of(function, x, y))
    found = converted(nodes, nodes[-1:], {})
    (result,) = ReferenceEvaluator(ir.to_proto(found.model)).run(None, {"in_0": x.numpy(), "in_1": y.numpy()})
    torch.testing.assert_close(torch.from_numpy(result), function(x, y))
    assert set(found.origins.values()) >= {where(node) for node in nodes}


def test_inputs_and_outputs_come_in_the_order_of_their_memory():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    nodes = calls(graph_of(lambda x: torch.relu(x), x))
    assert (memory_order(x), is_dense(x), is_dense(x[:, ::2])) == ([0, 2, 3, 1], True, False)
    found = converted(nodes, nodes, {})
    assert list(found.model.graph.inputs[0].shape) == [2, 4, 5, 3]
    assert list(converted(nodes, nodes, {}, signature=()).model.graph.inputs[0].shape) == [2, 3, 4, 5]


def test_an_extent_that_varies_is_a_symbol():
    graph = graph_of(lambda x: x.reshape(-1) * 2, torch.randn(5, 7), mode="symbolic")
    nodes = [one for one in calls(graph) if isinstance(one.meta["val"], torch.Tensor)]
    found = converted(nodes, nodes[-1:], {})
    assert [type(one) for one in found.model.graph.inputs[0].shape] == [ir.SymbolicDim] * 2
    (result,) = ReferenceEvaluator(ir.to_proto(found.model)).run(None, {"in_0": torch.ones(3, 4).numpy()})
    assert result.shape == (12,)


def test_what_has_no_row_or_another_type_is_refused_with_the_reason():
    graph = graph_of(
        lambda x, y: (torch.linalg.det(x), y * 2), torch.randn(2, 2), torch.zeros(2, dtype=torch.complex64)
    )
    reasons = [refusal(one) for one in calls(graph) if "getitem" not in one.name]
    assert any("has no row in the table" in one for one in reasons)
    assert "elements of complex64 are not computed with" in reasons
