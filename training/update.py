"""The part of a step behind the gradients: accumulated, brought to size, handed to optimisers, or left out.

What a step leaves out, because gradients are not finite or more batches are to come, is chosen element by element, so a
step is one program without branches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from graft.training.editing import Writer
from graft.training.optimizers import RATE, Optimizer

SCALE, LAST = "loss_scale", "is_last"
"""Inputs of a step: what the loss is multiplied by (float32), and whether weights are updated after it (bool)."""
SUM = "sum"
"""What gradients are accumulated in, as a state of each weight."""


@dataclass(frozen=True, slots=True)
class Update:
    """How gradients become a step of the weights, by groups of them: ``groups`` has an optimiser for each."""

    groups: Sequence[tuple[Optimizer, Sequence[str]]]
    clip_norm: float | None = None
    """The largest norm of all gradients together; larger ones are scaled down to it."""
    clip_value: float | None = None
    """The largest magnitude of an element."""
    accumulate: int = 1
    """The number of batches whose gradients are averaged for a step."""
    is_scaled: bool = False
    """Whether the loss is multiplied by `SCALE`, which the gradients are divided by again."""

    def states(self, weight: str) -> list[str]:
        """Return the names of a weight's states, zeros at first."""
        own = next(optimizer.states for optimizer, names in self.groups if weight in names)
        return [*own, *([SUM] if self.accumulate > 1 else [])]

    @property
    def may_leave_out(self) -> bool:
        """Whether a step may leave weights as they are."""
        return self.accumulate > 1 or self.is_scaled

    def write(self, graph: onnx.GraphProto, statistics: Collection[str]) -> list[str]:
        """Add nodes that make ``<name>_next`` of weights and states; return further outputs: ``is_finite``, if any.

        The next of ``statistics`` are there; they, too, stay what they were where numbers are not finite.
        """
        f = Writer(graph, "update", TensorProto.FLOAT)
        gradients = {name: f"{name}_grad" for _, names in self.groups for name in names}
        if self.is_scaled:
            gradients = {name: f("Div", one, f("CastLike", SCALE, one)) for name, one in gradients.items()}
        if self.accumulate > 1:
            gradients = {
                name: f("Add", f"{name}_{SUM}", f("Mul", one, f("CastLike", f.number(1 / self.accumulate), one)))
                for name, one in gradients.items()
            }
        sums = dict(gradients)
        norm = self._norm(f, gradients) if self.clip_norm is not None or self.is_scaled else ""
        if self.clip_norm is not None:
            room = f("Div", f.number(self.clip_norm), f("Add", norm, f.number(1e-6)))
            factor = f("Min", room, f.number(1.0))
            gradients = {name: f("Mul", one, f("CastLike", factor, one)) for name, one in gradients.items()}
        if self.clip_value is not None:
            ends = [f.number(-self.clip_value), f.number(self.clip_value)]
            gradients = {
                name: f("Clip", one, *(f("CastLike", end, one) for end in ends)) for name, one in gradients.items()
            }
        for optimizer, names in self.groups:
            share = optimizer.learning_rate / (self.groups[0][0].learning_rate or 1.0)
            rate = RATE if share == 1 else f("Mul", RATE, f.number(share))
            optimizer.write(graph, {name: gradients[name] for name in names}, rate)
        return self._chosen(f, sums, norm, statistics) if self.may_leave_out else []

    def _norm(self, f: Writer, gradients: Mapping[str, str]) -> str:
        """Return the root of the sum of squares of all gradients: finite only if all are."""
        squares = [f("ReduceSumSquare", f("Cast", one, to=TensorProto.FLOAT), keepdims=0) for one in gradients.values()]
        return f("Sqrt", f("Sum", *squares))

    def _chosen(self, f: Writer, sums: Mapping[str, str], norm: str, statistics: Collection[str]) -> list[str]:
        """Let weights and states be what they were where a step is left out; sums begin anew behind the last batch."""
        is_finite = f("Less", norm, f.number(float("inf"))) if self.is_scaled else ""
        conditions = [*([LAST] if self.accumulate > 1 else []), *([is_finite] if is_finite else [])]
        taken = conditions[0] if len(conditions) == 1 else f("And", *conditions)
        chosen = {
            name: taken
            for optimizer, names in self.groups
            for name in (*names, *(f"{one}_{state}" for state in optimizer.states for one in names))
        } | (dict.fromkeys(statistics, is_finite) if is_finite else {})
        stepped = {f"{name}_next": f"{name}/stepped" for name in chosen}
        for node in f.graph.node:
            for place, output in enumerate(node.output):
                node.output[place] = stepped.get(output, output)
        for name, condition in chosen.items():
            choice = [condition, f"{name}/stepped", name]
            f.graph.node.append(helper.make_node("Where", choice, [f"{name}_next"], f"{name}_next"))
        if self.accumulate > 1:
            for name, total in sums.items():
                zero = f("CastLike", f.number(0.0), total)
                f.graph.node.append(helper.make_node("Where", [LAST, zero, total], [f"{name}_{SUM}_next"]))
        if not is_finite:
            return []
        f.graph.node.append(helper.make_node("Identity", [is_finite], ["is_finite"]))
        return ["is_finite"]
