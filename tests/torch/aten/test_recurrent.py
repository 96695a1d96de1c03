"""Recurrent layers of exported modules, beside eager PyTorch."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

import graft  # noqa: E402
import graft.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Recurrent(torch.nn.Module):
    """A layer and what it gives, its last states too."""

    def __init__(self, kind, **given):
        super().__init__()
        torch.manual_seed(0)
        self.layer = kind(6, 8, **given)

    def forward(self, x, *states):
        state = states if len(states) > 1 else states[0] if states else None
        return self.layer(x, state)


RECURRENT = [
    (torch.nn.GRU, {}), (torch.nn.GRU, {"bidirectional": True, "num_layers": 2, "batch_first": True}),
    (torch.nn.GRU, {"bias": False}), (torch.nn.LSTM, {"batch_first": True, "dropout": 0.5, "num_layers": 3}),
    (torch.nn.LSTM, {"bidirectional": True}), (torch.nn.LSTM, {"bias": False, "num_layers": 2}),
    (torch.nn.RNN, {}), (torch.nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
]  # fmt: skip


@pytest.mark.parametrize(("number", "kind", "given"), [(n, *one) for n, one in enumerate(RECURRENT)])
def test_a_recurrent_layer_is_one_operator_of_any_batch(number, kind, given):
    net = Recurrent(kind, **given).eval()
    layers, axis = given.get("num_layers", 1), 1 - int(given.get("batch_first", False))
    count = layers * (1 + given.get("bidirectional", False))

    def inputs(batch):
        first = [torch.randn(count, batch, 8) for _ in range(1 + (kind is torch.nn.LSTM))]
        return torch.randn(5, batch, 6).movedim(1, axis).contiguous(), *(first if number % 2 else ())

    args, batch = inputs(4), torch.export.Dim("batch", max=64)
    shapes = ({axis: batch}, *([tuple({1: batch} for _ in args[1:])] if args[1:] else []))
    model = graft.torch.export(net, args, dynamic_shapes=shapes)
    kinds = [node.op_type for node in model.graph]
    assert kinds.count(kind.__name__) == layers and not {"Sigmoid", "Tanh", "MatMul", "Gemm"} & {*kinds}
    program = graft.compile(model, ["llvm"])
    for own in (inputs(1), inputs(7)):
        expected = torch.utils._pytree.tree_leaves(net(*own))
        for found, one in zip(program(*(each.numpy() for each in own)), expected, strict=True):
            np.testing.assert_allclose(found, one.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_recurrent_layer_with_projections_is_written_step_by_step():
    net, x = Recurrent(torch.nn.LSTM, proj_size=3).eval(), torch.randn(4, 5, 6)
    model = graft.torch.export(net, (x,))
    assert not any(node.op_type == "LSTM" for node in model.graph)
    expected = torch.utils._pytree.tree_leaves(net(x))
    for found, one in zip(graft.compile(model, ["llvm"])(x.numpy()), expected, strict=True):
        np.testing.assert_allclose(found, one.detach().numpy(), rtol=1e-5, atol=1e-6)
