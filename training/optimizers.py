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

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str]) -> None:
        """Add nodes that make ``<weight>_next``, and ``<weight>_<state>_next`` of ``<weight>_<state>``."""


def _operator(
    graph: onnx.GraphProto, name: str, gradients: Mapping[str, str], states: Sequence[str],
    weights: Sequence[str] | None = None, **attributes: Any,
) -> None:  # fmt: skip
    """Add one node for all weights; ``weights`` are what it takes for them, if not themselves."""
    inputs = [RATE, NUMBER, *(weights or gradients), *gradients.values()]
    inputs += [f"{weight}_{state}" for state in states for weight in gradients]
    outputs = [f"{weight}_next" for weight in gradients]
    outputs += [f"{weight}_{state}_next" for state in states for weight in gradients]
    graph.node.append(helper.make_node(name, inputs, outputs, "optimizer", domain=DOMAIN, **attributes))


@dataclass(frozen=True, slots=True)
class SGD:
    """Steepest descent, with momentum as PyTorch has it (``v = momentum v + g``)."""

    learning_rate: float = 0.01
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def states(self) -> Sequence[str]:
        """The velocity."""
        return ("velocity",)

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str]) -> None:
        """Add ONNX's Momentum."""
        mode = "nesterov" if self.nesterov else "standard"
        _operator(
            graph, "Momentum", gradients, self.states, alpha=self.momentum, beta=1.0, mode=mode,
            norm_coefficient=self.weight_decay,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (arXiv 1412.6980) as ONNX has it: the deviation is added to the root before its bias is corrected."""

    learning_rate: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    @property
    def states(self) -> Sequence[str]:
        """The running means of gradients and of their squares."""
        return ("mean", "square")

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str]) -> None:
        """Add ONNX's Adam."""
        self._write(graph, gradients, None, self.weight_decay)

    def _write(
        self, graph: onnx.GraphProto, gradients: Mapping[str, str], weights: Sequence[str] | None, decay: float
    ) -> None:
        _operator(
            graph, "Adam", gradients, self.states, weights, alpha=self.betas[0], beta=self.betas[1],
            epsilon=self.epsilon, norm_coefficient=decay,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdamW(Adam):
    """Adam with weights that shrink by themselves (arXiv 1711.05101), by ``rate * weight_decay`` before each step."""

    weight_decay: float = 0.01

    def write(self, graph: onnx.GraphProto, gradients: Mapping[str, str]) -> None:
        """Add ONNX's Adam over weights that are smaller already."""
        decay = helper.make_node("Constant", [], ["decay"], "decay", value_float=self.weight_decay)
        one = helper.make_node("Constant", [], ["decay/one"], "decay/one", value_float=1.0)
        share = helper.make_node("Mul", [RATE, "decay"], ["decay/share"], "decay/share")
        rest = helper.make_node("Sub", ["decay/one", "decay/share"], ["decay/kept"], "decay/kept")
        graph.node.extend([decay, one, share, rest])
        for weight in gradients:
            kept = f"{weight}/kept"
            graph.node.append(helper.make_node("CastLike", ["decay/kept", weight], [kept], kept))
            graph.node.append(helper.make_node("Mul", [weight, kept], [f"{weight}/decayed"], f"{weight}/decayed"))
        self._write(graph, gradients, [f"{weight}/decayed" for weight in gradients], 0.0)
