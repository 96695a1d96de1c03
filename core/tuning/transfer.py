"""Transfer: what was found for one kernel is the first candidate for kernels of the same form and other extents."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.inline import constant_shape
from graft.core.schedule.parameters import Parameters
from graft.core.tuning.tunings import Tuning

NEIGHBOURS = 2
"""Kernels whose parameters are tried."""


def form_of(kernel: Kernel) -> str:
    """Return what kernels share that differ in extents alone, and the extents of inputs and outputs, as JSON."""
    operators = [kernel.anchor.name, kernel.node.op_type if kernel.node is not None else "", len(kernel.stages)]
    buffers = (*kernel.inputs, *kernel.outputs)
    return json.dumps([operators, [[one.dtype, constant_shape(one)] for one in buffers]])


def neighbours(form: str, known: Iterable[Tuning]) -> list[Parameters]:
    """Return what was found for the nearest kernels, the nearest first."""
    near = [(distance(form, one.form), one.parameters) for one in known if one.parameters is not None]
    ranked = sorted((one for one in near if one[0] < math.inf), key=lambda one: one[0])
    return list(dict.fromkeys(parameters for _, parameters in ranked))[:NEIGHBOURS]


def distance(left: str, right: str) -> float:
    """Return by how many powers of two the extents of two kernels differ, all together; infinity for other forms."""
    if not (left and right):
        return math.inf
    (operators, first), (others, second) = json.loads(left), json.loads(right)
    if operators != others or len(first) != len(second):
        return math.inf
    total = 0.0
    for (dtype, shape), (other, extents) in zip(first, second, strict=True):
        if dtype != other or (shape is None) != (extents is None) or len(shape or ()) != len(extents or ()):
            return math.inf
        total += sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(shape or (), extents or (), strict=True))
    return total
