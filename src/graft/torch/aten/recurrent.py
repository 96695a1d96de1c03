"""Rows of ATen operators that are recurrent layers: whole ones, which PyTorch's decompositions write step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from graft.torch.aten.builder import Builder, Tensor, numbers, require

aten = torch.ops.aten
Row = Callable[..., Any]
GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2), "RNN": (0,)}
"""PyTorch's gates in ONNX's order: reset, update, new as update, reset, hidden; i, f, g, o as i, o, f, c."""
TYPES = (torch.float32, torch.float64, torch.float16)
PARAMETERS = 4
"""Of a layer in one direction: weights of inputs and of states, and their biases."""


def _layer(kind: str, **attributes: Any) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """Return what writes layers of a kind: it gives the output and the last states, each of all layers."""

    def layers(
        b: Builder, x: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor], has_biases: bool, count: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
        require(x.dtype in TYPES, f"recurrent layers of {str(x.dtype).removeprefix('torch.')}")
        require(not (train and dropout), "recurrent layers with dropout")
        directions, each = 1 + bidirectional, PARAMETERS if has_biases else PARAMETERS // 2
        require(len(parameters) == count * directions * each, "recurrent layers with projections")
        (hidden,) = numbers([parameters[1].extents[-1]], "the width of a recurrent layer")
        x = b.transposed(x, [1, 0, 2]) if batch_first else x
        steps, batch, _ = x.extents
        last: list[list[Tensor]] = [[] for _ in states]
        for layer in range(count):
            begin = layer * directions
            own = [parameters[(begin + way) * each :][:each] for way in range(directions)]
            operands = [_joined(b, [one[place] for one in own], GATES[kind]) for place in range(2)]
            bias = _biases(b, [one[2:] for one in own], GATES[kind]) if has_biases else None
            first = [_part(b, one, begin, directions) for one in states]
            y, *ends = b.many(
                kind, [x, *operands, bias, None, *first], [x.dtype] * (1 + len(states)), hidden_size=hidden,
                direction="bidirectional" if bidirectional else "forward",
                **{name: value * directions if name == "activations" else value for name, value in attributes.items()},
            )  # fmt: skip
            x = b.reshaped(b.op("Transpose", y, perm=[0, 2, 1, 3]), [steps, batch, directions * hidden])
            for place, end in enumerate(ends):
                last[place].append(end)
        return b.transposed(x, [1, 0, 2]) if batch_first else x, [b.concatenated(one) for one in last]

    return layers


def _by_gate(b: Builder, x: Tensor, order: Sequence[int]) -> Tensor:
    """Return rows of gates in another order."""
    if len(order) == 1:
        return x
    size = numbers([x.extents[0]], "the width of a recurrent layer")[0] // len(order)
    parts = [
        b.op("Slice", x, b.integers([one * size]), b.integers([(one + 1) * size]), b.integers([0])) for one in order
    ]
    return b.concatenated(parts)


def _joined(b: Builder, weights: Sequence[Tensor], order: Sequence[int]) -> Tensor:
    return b.concatenated([b.op("Unsqueeze", _by_gate(b, one, order), b.integers([0])) for one in weights])


def _biases(b: Builder, ways: Sequence[Sequence[Tensor]], order: Sequence[int]) -> Tensor:
    """Return the biases of each direction, those of inputs before those of states."""
    rows = (b.concatenated([_by_gate(b, one, order) for one in way]) for way in ways)
    return b.concatenated([b.op("Unsqueeze", one, b.integers([0])) for one in rows])


def _part(b: Builder, states: Tensor, begin: int, count: int) -> Tensor:
    """Return the states of one layer."""
    if states.extents[0] == count:
        return states
    return b.op("Slice", states, b.integers([begin]), b.integers([begin + count]), b.integers([0]))


def _of_one_state(kind: str, **attributes: Any) -> Row:
    layers = _layer(kind, **attributes)

    def row(b: Builder, out: Any, x: Tensor, state: Tensor, *given: Any) -> list[Tensor]:
        y, (last,) = layers(b, x, [state], *given)
        return [y, last]

    return row


def _lstm(b: Builder, out: Any, x: Tensor, states: Sequence[Tensor], *given: Any) -> list[Tensor]:
    y, last = _layer("LSTM")(b, x, states, *given)
    return [y, *last]


ROWS: dict[Any, Row] = {
    aten.gru.input: _of_one_state("GRU", linear_before_reset=1),
    aten.lstm.input: _lstm,
    aten.rnn_relu.input: _of_one_state("RNN", activations=["Relu"]),
    aten.rnn_tanh.input: _of_one_state("RNN"),
}
"""Operators by overload."""
