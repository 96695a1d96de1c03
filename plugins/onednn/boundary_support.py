"""What oneDNN takes only between its own primitives (moves, elementwise operators), and what it is slow at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.core.reject import Yield
from graft.plugins.onednn.eltwise import BINARY, is_eltwise

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView

MOVES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Concat"})
JIT_BETA = 0.75
"""The exponent that the fast kernels of local response normalisation are written for."""
MOST_FOLDED = 3
"""How many axes a broadcast may have for the fast kernel, once neighbours that are broadcast alike are folded."""


def declined_at_boundary(node: NodeView) -> Yield | None:
    """Return why others compute the node faster, everywhere or at the boundary of a region; None if they do not."""
    slow = _slow(node)
    if slow is not None:
        return Yield(f"oneDNN has only its reference implementation of {slow}", everywhere=True)
    if node.op_type in MOVES:
        return Yield(f"{node.op_type} by itself is a copy in oneDNN, and part of a fused kernel elsewhere")
    if node.op_type in BINARY or is_eltwise(node.op_type) or node.op_type == "BatchNormalization":
        return Yield(f"{node.op_type} by itself is a pass over memory in oneDNN, and part of a fused kernel elsewhere")
    return None


def _slow(node: NodeView) -> str | None:
    """Return what of the node oneDNN computes by plain loops, as it says of its implementations."""
    if node.op_type == "MaxPool" and any(step != 1 for step in node.attribute("dilations") or ()):
        return "dilated pooling"
    if node.op_type == "LRN":
        rank = len(_shape(node, 0))
        beta = node.attribute("beta", JIT_BETA)
        return None if rank == 4 and beta == JIT_BETA else f"LRN with {rank} axes and beta {beta:g}"
    if node.op_type in BINARY and _folded(node) > MOST_FOLDED:
        shapes = [", ".join(map(str, _shape(node, index))) for index in range(2)]
        return f"{node.op_type} of [{shapes[0]}] and [{shapes[1]}]"
    return None


def _folded(node: NodeView) -> int:
    """Return how many axes are left where neighbours are folded along which the same operands are broadcast."""
    output = node.outputs[0].shape or ()
    kinds: list[tuple[bool, ...]] = []
    for axis, size in enumerate(output):
        wide = tuple(_size(node, index, axis - len(output)) == size for index in range(len(node.inputs)))
        if size != 1 and (not kinds or kinds[-1] != wide):
            kinds.append(wide)
    return len(kinds)


def _size(node: NodeView, index: int, axis: int) -> int | str | None:
    shape = _shape(node, index)
    return shape[axis] if -axis <= len(shape) else 1


def _shape(node: NodeView, index: int) -> tuple[int | str | None, ...]:
    value = node.input(index)
    return () if value is None else value.shape or ()
