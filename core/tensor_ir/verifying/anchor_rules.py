"""The rules of structures: what a stage must be to be what it says, and what its structure tells about its value."""

from __future__ import annotations

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir.anchors import VARIES, Contraction, Elementwise, Pooling, RowReduction, Window
from graft.core.tensor_ir.ir import Binary, Bitcast, Cast, Constant, Expression, Intrinsic, Load, Select, Stage


def factors_of(stage: Stage) -> tuple[Expression, Expression, str] | None:
    """Return the factors of a sum of products and "", or their words and the name of the dot product; None of others.

    Only a stage that says that it is one has factors, whatever its value looks like.
    """
    return _operands(stage.value) if isinstance(stage.structure, Contraction | Window) else None


def _operands(value: Expression) -> tuple[Expression, Expression, str] | None:
    match value:
        case Binary("mul", left, right):
            return left, right, ""
        case Intrinsic(name, (_, Bitcast(left), Bitcast(right))) if name in DOTS:
            return left, right, name
    return None


def image_and_weights(stage: Stage) -> tuple[Expression, Expression] | None:
    """Return the factor of a convolution that reads the image and the one that reads the weights; None of others."""
    factors = factors_of(stage)
    if factors is None or not isinstance(stage.structure, Window):
        return None
    left, right, _ = factors
    return (left, right) if stage.structure.image == "left" else (right, left)


def element_of(factor: Expression) -> Load | None:
    """Return the load of the image in a factor: it may be cast, masked, and less a zero point."""
    match factor:
        case Load():
            return factor
        case Cast(value) | Select(_, value) | Binary("sub", value):
            return element_of(value)
    return None


def structure_fault(stage: Stage) -> str | None:
    """Return what is wrong with what a stage says of its structure; None if it is true."""
    operator = None if stage.reduction is None else stage.reduction.operator
    match stage.structure:
        case Contraction() | Window():
            if operator != "add" or _operands(stage.value) is None:
                return "a sum of products that is none"
            return _window_fault(stage, stage.structure) if isinstance(stage.structure, Window) else None
        case Pooling(windows):
            return (
                None if _reduced(stage) == windows.kernel else f"a pool of windows {list(windows.kernel)} that is none"
            )
        case RowReduction(axes):
            same = stage.reduction is not None and len(axes) == len(stage.reduction.axes)
            return None if same else f"a reduction over axes {list(axes)} that is none"
        case Elementwise():
            return None if stage.reduction is None else "an elementwise stage that reduces"
        case None:
            return None


def _window_fault(stage: Stage, window: Window) -> str | None:
    """The first part of a convolution that is not as it is said to be."""
    spatial = window.windows
    channels = window.groups * window.outputs
    extents = [channels if axis == 1 else spatial.target[axis - 2] if axis else None for axis in window.result]
    shape = [extent.value if isinstance(extent, Constant) else VARIES for extent in stage.buffer.shape]
    if len(extents) != len(shape) or any(one not in (None, other) for one, other in zip(extents, shape, strict=True)):
        return f"a convolution whose result of axes {list(window.result)} has the shape {shape}"
    if _reduced(stage) != window.extents:
        return f"a convolution of terms {list(window.extents)} that sums {list(_reduced(stage) or ())}"
    parts = image_and_weights(stage)
    image = None if parts is None else element_of(parts[0])
    if image is None:
        return None
    shape = [extent.value if isinstance(extent, Constant) else VARIES for extent in image.buffer.shape]
    inputs = window.groups * window.inputs
    extents = [inputs if axis == 1 else spatial.source[axis - 2] if axis else None for axis in window.layout]
    if len(extents) != len(shape) or any(one not in (None, other) for one, other in zip(extents, shape, strict=True)):
        return f"a convolution whose image of axes {list(window.layout)} has the shape {shape}"
    return None


def _reduced(stage: Stage) -> tuple[int | float | bool | None, ...] | None:
    """The extents over which a stage reduces, None for one that is not constant."""
    if stage.reduction is None:
        return None
    return tuple(axis.extent.value if isinstance(axis.extent, Constant) else None for axis in stage.reduction.axes)
