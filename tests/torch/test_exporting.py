"""Modules and files of `torch.export` as models."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import graft  # noqa: E402
import graft.torch  # noqa: E402
from graft.errors import InputError, ModelError, UnsupportedError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def module():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()


def test_a_module_is_a_model_whose_batch_varies():
    net = module()
    model = graft.torch.export(net, (X,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    program = graft.compile(model, ["llvm"])
    for rows in (4, 1, 9):
        x = torch.randn(rows, 6)
        np.testing.assert_allclose(program(x.numpy()), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_saved_program_is_a_model_for_functions_and_verbs(tmp_path):
    net, path = module(), tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (X,)), path)
    np.testing.assert_allclose(
        graft.compile(path, ["llvm"])(X.numpy()), net(X).detach().numpy(), rtol=1e-5, atol=1e-6
    )  # fmt: skip
    assert graft.plan(str(path), ["llvm"]).coverage("llvm") == 1


class Signed(torch.nn.Module):
    """Inputs that are read in another order, or not at all; results that are inputs, twice the same, or no tensors."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, first, unread, second, scale=2):
        found = second * scale - first
        return {"a": found, "b": [found, first, None], "c": self.table, "d": 7}


def test_inputs_and_outputs_are_the_modules_in_its_order():
    first, unread, second = torch.ones(3), torch.zeros(2), torch.full((3,), 5.0)
    model = graft.torch.export(Signed(), (first, unread, second))
    assert [one.name for one in model.graph.inputs] == ["first", "unread", "second"]
    found = graft.compile(model, ["llvm"])(first.numpy(), unread.numpy(), second.numpy())
    for one, expected in zip(found, ([9, 9, 9], [9, 9, 9], [1, 1, 1], [0, 1, 2]), strict=True):
        np.testing.assert_array_equal(one, np.float32(expected))


def test_a_module_that_gives_no_tensor_is_an_error():
    class Nothing(torch.nn.Module):
        def forward(self, x):
            return None

    with pytest.raises(UnsupportedError, match="the module gives no tensor, so there is nothing to export"):
        graft.torch.export(Nothing(), (X,))


def test_numbers_in_a_row_as_long_as_an_input_are_exported():
    class Placed(torch.nn.Module):
        def forward(self, x):
            places = torch.arange(x.shape[0])
            return x + places[:, None], torch.arange(1, x.shape[0] * 2, 2), torch.arange(x.shape[0], dtype=x.dtype)

    rows = torch.export.Dim("rows", min=1, max=64)
    program = graft.compile(graft.torch.export(Placed(), (X,), dynamic_shapes=({0: rows},)), ["llvm"])
    for count in (4, 1, 9):
        x = torch.randn(count, 6)
        for one, expected in zip(program(x.numpy()), Placed()(x), strict=True):
            np.testing.assert_allclose(one, expected.numpy(), rtol=1e-6)


def test_extents_that_are_multiples_of_a_dimension_are_computed_from_the_input_and_kept_to_their_range():
    class Halves(torch.nn.Module):
        def forward(self, x, y):
            wide = torch.nn.functional.interpolate(x.unsqueeze(0).unsqueeze(0), scale_factor=2.0)[0, 0]
            return x.view(x.shape[0] // 4, 4, -1).mean(1), wide, y[1:] + x.sum()

    rows = torch.export.Dim("rows", min=1, max=8)
    model = graft.torch.export(
        Halves(), (torch.randn(8, 3), torch.randn(3)), dynamic_shapes=({0: 4 * rows}, {0: rows + 1})
    )
    assert [one.name for one in model.graph.inputs] == ["x", "y"]
    program = graft.compile(model, ["llvm"])
    for count in (2, 1, 8):
        given = torch.randn(4 * count, 3), torch.randn(count + 1)
        for one, expected in zip(program(*(one.numpy() for one in given)), Halves()(*given), strict=True):
            np.testing.assert_allclose(one, expected.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"has 36 at axis 0, but dimension '.*' is at most 32"):
        program(np.zeros((36, 3), np.float32), np.zeros(10, np.float32))


def test_what_cannot_be_exported_is_named_with_its_line(tmp_path):
    class Inverse(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x)

    with pytest.raises(UnsupportedError, match=r"linalg_inv_ex.default \(.*test_exporting.py:\d+\)\): .* has no row"):
        graft.torch.export(Inverse(), (torch.eye(3),))
    with pytest.raises(UnsupportedError, match="the module writes to"):
        graft.torch.export(torch.nn.BatchNorm1d(6), (X,))
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"is no program of torch\.export"):
        graft.load(broken)
    with pytest.raises(ModelError, match="there is no such file"):
        graft.load(tmp_path / "missing.pt2")


def test_an_operator_that_a_library_registers_later_is_decomposed():
    graft.torch.export(module(), (X,))
    library = torch.library.Library("registered_later", "DEF")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x + x, "CompositeImplicitAutograd")

    class Doubling(torch.nn.Module):
        def forward(self, x):
            return torch.ops.registered_later.doubled(x)

    assert [node.op_type for node in graft.torch.export(Doubling(), (X,)).graph] == ["Add", "Identity"]


def test_assertions_are_not_in_a_model():
    class Coded(torch.nn.Module):
        def forward(self, i):
            return torch.nn.functional.one_hot(i, 4)

    i = torch.tensor([0, 3, 1])
    program = graft.compile(graft.torch.export(Coded(), (i,)), ["llvm"])
    np.testing.assert_array_equal(program(i.numpy()), Coded()(i).numpy())
