"""Explanations of compiled modules."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.torch import explain  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
LLVM = {"backends": ["llvm"]}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.linalg.inv(torch.tanh(self.inner(x))) @ x


def test_operators_have_their_module_their_line_and_their_reason():
    found = explain(Net(), (torch.randn(3, 3),), options=LLVM, backward=True)
    assert len(found.graphs) == 2  # forward and backward
    (inverse,) = [row for row in found.rows if "linalg_inv_ex" in row.operator]
    assert "test_explaining.py:" in inverse.place
    assert "has no row in the table" in inverse.reason
    assert any(row.part and row.place.startswith("inner/") for row in found.rows)
    assert "part_0: llvm" in str(found)


def test_modules_of_pytorchs_own_code_have_the_line_of_their_forward():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
    found = explain(module, (torch.randn(2, 3),), options=LLVM, backward=True)
    line = torch.nn.GELU.forward.__code__.co_firstlineno
    assert any(row.place == f"1/gelu (activation.py:{line})" for row in found.graphs[0])
    assert all(row.place.startswith(("0/", "1/")) for row in found.rows)  # also those of the backward graph


def test_graph_breaks_are_listed():
    def function(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    found = explain(function, (torch.ones(2),), options=LLVM)
    assert len(found.breaks) == 1
    assert found.breaks[0].startswith("Call to `torch._dynamo.graph_break()` (test_explaining.py:")
    assert found.coverage == 1


def test_a_branch_on_a_tensor_is_a_break_with_its_line():
    def function(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    (found,) = explain(function, (torch.ones(3),), options=LLVM).breaks
    line = function.__code__.co_firstlineno + 2
    assert found == f"a branch on what a tensor holds (test_explaining.py:{line})"
