"""Optimisers as nodes of a step: ONNX's own operators where they mean what is wanted.

A step has the learning rate and its own number (from 1 on) as inputs, so neither is compiled in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import onnx
from onnx import helper

from graft.core.importer.gradients import DOMAIN
from graft.runtime.arguments import BELOW_ONE, NOT_NEGATIVE, Kind, require
from graft.training.editing import Writer

RATE, NUMBER = "learning_rate", "step"
"""Inputs of a step: float32, and int64."""


class Optimizer(Protocol):
    """What takes weights a step further."""

    @property
    def learning_rate(self) -> float:
        """The rate of a step that is given none."""

    @property
    def states(self) -> Sequence[str]:
        """The names of tensors that each weight has beside itself, zeros at first."""

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str], rate: str = RATE) -> None:
        """Add nodes that make ``<weight>_next``, and ``<weight>_<state>_next`` of ``<weight>_<state>``.

        ``rate`` is the value that is the learning rate.
        """


def _require(optimizer: Optimizer, kind: Kind, *settings: str) -> None:
    """Raise ArgumentError for a setting that is not of a kind."""
    for name in settings:
        require(type(optimizer).__name__, name, getattr(optimizer, name), kind)


def _are_betas(value: Any) -> bool:
    return len(value) == 2 and all(map(BELOW_ONE.fits, value))


def _operator(
    graph: onnx.GraphProto, name: str, gradients: Mapping[str, str], states: Sequence[str], rate: str,
    weights: Sequence[str] | None = None, **attributes: Any,
) -> None:  # fmt: skip
    """Add a node for each weight; ``weights`` are what it takes for them, if not themselves.

    Apart from others a weight is updated as soon as its gradient is there.
    """
    for (weight, gradient), taken in zip(gradients.items(), weights or gradients, strict=True):
        inputs = [rate, NUMBER, taken, gradient, *(f"{weight}_{state}" for state in states)]
        outputs = [f"{weight}_next", *(f"{weight}_{state}_next" for state in states)]
        graph.node.append(helper.make_node(name, inputs, outputs, f"{weight}/optimizer", domain=DOMAIN, **attributes))


@dataclass(frozen=True, slots=True)
class SGD:
    """Steepest descent, with momentum as PyTorch has it (``v = momentum v + g``)."""

    learning_rate: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _require(self, NOT_NEGATIVE, "learning_rate", "momentum", "weight_decay")

    @property
    def states(self) -> Sequence[str]:
        """The velocity."""
        return ("velocity",)

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str], rate: str = RATE) -> None:
        """Add ONNX's Momentum."""
        mode = "nesterov" if self.nesterov else "standard"
        _operator(
            graph, "Momentum", gradients, self.states, rate, alpha=self.momentum, beta=1.0, mode=mode,
            norm_coefficient=self.weight_decay,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (arXiv 1412.6980) as ONNX has it: the deviation is added to the root before its bias is corrected."""

    learning_rate: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _require(self, NOT_NEGATIVE, "learning_rate", "epsilon", "weight_decay")
        _require(self, Kind("two numbers of at least 0 and below 1", _are_betas), "betas")

    @property
    def states(self) -> Sequence[str]:
        """The running means of gradients and of their squares."""
        return ("mean", "square")

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str], rate: str = RATE) -> None:
        """Add ONNX's Adam."""
        self._write(graph, gradients, rate, None, self.weight_decay)

    def _write(
        self, graph: onnx.GraphProto, gradients: Mapping[str, str], rate: str, weights: Sequence[str] | None,
        decay: float,
    ) -> None:  # fmt: skip
        _operator(
            graph, "Adam", gradients, self.states, rate, weights, alpha=self.betas[0], beta=self.betas[1],
            epsilon=self.epsilon, norm_coefficient=decay,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdamW(Adam):
    """Adam with weights that shrink by themselves (arXiv 1711.05101), by ``rate * weight_decay`` before each step."""

    weight_decay: float = 0.01

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str], rate: str = RATE) -> None:
        """Add ONNX's Adam over weights that are smaller already."""
        f = Writer(graph, f"decay/{rate}", onnx.TensorProto.FLOAT)
        kept = f("Sub", f.number(1.0), f("Mul", rate, f.number(self.weight_decay)))
        decayed = [f("Mul", weight, f("CastLike", kept, weight)) for weight in gradients]
        self._write(graph, gradients, rate, decayed, 0.0)
