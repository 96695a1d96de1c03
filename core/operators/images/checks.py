"""Checks of operators over images: windows, and groups of channels."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.graph.view import NodeView
from graft.core.operators.definition import checks as check


def _spatial(node: NodeView) -> int | None:
    rank = check.rank_of(node, 0)
    return None if rank is None else rank - 2


def _of_spatial_rank(*names: str) -> check.Fault:
    """Strides and the like have one number per spatial axis, pads two."""

    def rule(node: NodeView) -> str | None:
        rank = _spatial(node)
        for name in names:
            given = node.attribute(name)
            wanted = None if rank is None else 2 * rank if name == "pads" else rank
            if given is not None and wanted is not None and len(given) != wanted:
                return f"{name} has {len(given)} numbers, where an image of {rank} axes needs {wanted}"
        return None

    return rule


def groups(number: int = 1, *, transposed: bool = False) -> check.Fault:
    """The channels, and those of the result, which the weights in this input have first, fall into equal parts."""

    def rule(node: NodeView) -> str | None:
        group = node.attribute("group", 1)
        image, weights = node.input(0), node.input(number)
        if group < 1:
            return f"group is {group}, where at least 1 is expected"
        if image is None or weights is None or not image.shape or not weights.shape or len(image.shape) < 2:
            return None
        channels, parts = image.shape[1], weights.shape[0]
        if isinstance(channels, int) and channels % group:
            return f"group {group} does not divide the {channels} channels of its input"
        if not transposed and isinstance(parts, int) and parts % group:
            return f"group {group} does not divide the {parts} channels of its result"
        return None

    return rule


WINDOWS: Sequence[check.Fault] = (
    check.at_least(1, "kernel_shape", "strides", "dilations"),
    check.at_least(0, "pads", "output_padding"),
    _of_spatial_rank("kernel_shape", "strides", "dilations", "pads", "output_padding"),
    check.one_of("auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
)
