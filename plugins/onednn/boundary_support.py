"""What oneDNN takes only between its own primitives (moves, elementwise operators), and what it is slow at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graft.core.reject import Yield
from graft.plugins.onednn.operators import row_of

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView

JIT_BETA = 0.75
"""The exponent that the fast kernels of local response normalisation are written for."""
MOST_FOLDED = 3
"""How many axes a broadcast may have for the fast kernel, once neighbours that are broadcast alike are folded."""


def declined_at_boundary(node: NodeView) -> Yield | None:
    """Return why others compute the node faster, everywhere or at the boundary of a region; None if they do not."""
    slow = _slow(node)
    if slow is not None:
        return Yield(f"oneDNN has only its reference implementation of {slow}", everywhere=True)
    alone = row_of(node).alone
    text = f"{node.op_type} by itself is {alone} in oneDNN, and part of a fused kernel elsewhere"
    return Yield(text) if alone else None


def _slow(node: NodeView) -> str | None:
    """Return what of the node oneDNN computes by plain loops, as it says of its implementations."""
    kind = row_of(node).kind
    if kind == "pooling" and any(step != 1 for step in node.attribute("dilations") or ()):
        return "dilated pooling"
    if kind == "local response normalization":
        rank = len(_shape(node, 0))
        beta = node.attribute("beta", JIT_BETA)
        return None if rank == 4 and beta == JIT_BETA else f"LRN with {rank} axes and beta {beta:g}"
    if kind == "binary" and _folded(node) > MOST_FOLDED:
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
