"""What a convolution multiplies: elements of an image and of its weights, one by one or as packed dot operands.

Bytes are multiplied as they are, whatever their zero points: that of the image is what lies around it, and what it adds
to each sum is where the sum starts from; that of the weights is taken off when they are packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.narrowing import rounded
from graft.core.schedule.products.convolution import Convolution
from graft.core.schedule.products.dot_grouping import (
    BYTES,
    PACKED_DTYPE,
    as_byte,
    multiplies_pairs,
    packed_operand,
    small_factor,
)
from graft.core.schedule.products.product_axes import Multiply
from graft.core.schedule.products.tiling import lanes_of
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Bitcast, Buffer, Expression, Load, Select, Stage, Variable
from graft.core.tensor_ir.ordered_stages import uses_of
from graft.core.tensor_ir.visit import free_variables, loads, substitute
from graft.core.types import FLOATS


@dataclass(frozen=True, slots=True)
class ImageElements:
    """The factors of a convolution: ``image``, of which elements of type ``dtype`` are multiplied, and ``weights``.

    ``multiply`` takes groups of ``width`` channels. Outside of the image lies ``border``, which is ``point`` as an
    element; without a point it is zero. Where channels are few, groups may be of all that a window sees of a row, which
    lies together: then ``image`` has rows of elements, and stands for ``source``, with pixels.
    """

    image: Buffer
    weights: Buffer
    dtype: str
    contents: np.ndarray
    """The weights ``[output channel, input channel or group of them, window ...]``; a row is one of groups alone."""
    sums: np.ndarray | None = None
    """Of the weights of each output channel, where sums start from them."""
    multiply: Multiply = field(default_factory=Multiply)
    border: Expression | None = None
    point: Expression | None = None
    source: Buffer | None = None

    @property
    def width(self) -> int:
        """The channels that are multiplied at a time."""
        return DOTS[self.multiply.dot].width if self.multiply.dot else 1

    @property
    def extents(self) -> list[int]:
        """The extents of a sum: of a window, and of the groups of channels."""
        return [*self.contents.shape[2:], self.contents.shape[1]]

    @property
    def is_copied(self) -> bool:
        """Whether the elements are no bits of the image: it has another type."""
        return self.width > 1 and self.image.dtype != self.dtype

    def element(self, raw: Expression) -> Expression:
        """Return an element from one of the image."""
        if raw.type.dtype == self.dtype:
            return raw
        if self.dtype == "bfloat16":
            return rounded(b.cast(raw, "float32"))
        return _unsigned(raw) if self.dtype == "uint8" else b.cast(raw, self.dtype)


def elements_of(stages: Sequence[Stage], found: Convolution, kernel: Kernel, target: Target) -> ImageElements | None:
    """Return the factors of a convolution by constant weights; None of one whose factors are of another form."""
    kind = found.anchor.value.type.dtype
    if kind == "int32":
        dot = "dot2_s16" if multiplies_pairs(target) else "dot4_u8s8"
        # A microcontroller has no vectors, but few weights' room.
        is_grouped = lanes_of("int32", target) > 1 or not target.machine.caches
        return _bytes(stages, found, kernel, dot if is_grouped else "")
    image, weights = found.image(kind), found.weights(kernel, stages, kind, kind)
    if rounds(found, target):
        return _pairs(found, kernel, image, found.weights(kernel, stages, kind))
    if image is None or weights is None or kind not in FLOATS:
        return None
    return ImageElements(image, weights, kind, kernel.constants[weights])


def rounds(found: Convolution, target: Target) -> bool:
    """Whether the factors of a convolution are rounded to bfloat16, and multiplied in pairs."""
    is_wanted = found.anchor.value.type.dtype == "float32" and target.precision == "bf16"
    has_vectors = lanes_of("int32", target) > 1
    return is_wanted and has_vectors and not found.window.is_depthwise and not _channels_are_cut(found, 2)


def _pairs(found: Convolution, kernel: Kernel, image: Buffer | None, weights: Buffer | None) -> ImageElements | None:
    """Return factors that are rounded to bfloat16."""
    if image is None or weights is None:
        return None
    constants = {weights: kernel.constants[weights]}
    packed = _packed_weights(found, rounded(found.weight), _extents(found), constants, 2)
    return ImageElements(image, weights, "bfloat16", packed, multiply=Multiply("dot2_bf16"))


def _bytes(stages: Sequence[Stage], found: Convolution, kernel: Kernel, dot: str) -> ImageElements | None:
    """Return bytes less their zero points: where they fit as operands of ``dot`` ("" for none), else one by one."""
    factor, anchor = small_factor(found.pixel), found.anchor
    if factor is None or anchor.epilogue is not None or anchor.reduction is None:
        return None
    element = _inside(factor.value)
    inner = {*anchor.axes, *(axis.variable for axis in anchor.reduction.axes)}
    if not isinstance(element, Load) or element.buffer.dtype not in BYTES:
        return None
    border = as_byte(factor.point, element.buffer.dtype)
    if border is None or (factor.point is not None and inner & free_variables(factor.point)):
        return None
    weights = _weights(stages, found, kernel)
    if weights is None:
        return None
    centred = _evaluated(found, found.weight, kernel.constants)
    sums = None if factor.point is None else centred.reshape(len(centred), -1).sum(1, dtype=np.int32)
    image = element.buffer
    own = ImageElements(image, weights, image.dtype, centred, sums, border=border, point=factor.point)
    kinds = DOTS[dot] if dot else None
    if kinds is None or found.window.is_depthwise or _channels_are_cut(found, kinds.width):
        return own
    limits = np.iinfo(kinds.right)
    if centred.min() < limits.min or centred.max() > limits.max:
        return own
    is_there = kinds.left == image.dtype and not uses_of(image, stages[1:])
    if is_there and _sees_rows(found, kinds.width):
        *outer, pixels, channels = image.shape
        own = replace(own, image=replace(image, shape=(*outer, b.multiply(pixels, channels))), source=image)
        centred = np.moveaxis(centred, 1, -1).reshape(*centred.shape[:1], *centred.shape[2:-1], 1, -1)
        centred = np.moveaxis(centred, -1, 1)
    small = Buffer("small", kinds.right, tuple(map(b.index, centred.shape)))
    value, narrow = Load(small, _weight_axes(found)), {small: centred.astype(kinds.right)}
    packed = _packed_weights(found, value, centred.shape, narrow, kinds.width)
    if kinds.left == "int16":  # a copy of the image is widened
        own = replace(own, dtype=kinds.left, border=b.cast(border, kinds.left))
    elif image.dtype == "int8":
        point = b.constant(0, PACKED_DTYPE) if factor.point is None else factor.point
        sums = centred.reshape(len(centred), -1).sum(1, dtype=np.int32)
        own = replace(own, dtype="uint8", sums=sums, border=_unsigned(border), point=b.add(point, BYTES["uint8"]))
    return replace(own, contents=packed, multiply=Multiply(dot))


def _inside(value: Expression) -> Expression:
    """Return what is selected inside of the image; a masked load that was moved is selected twice by one condition."""
    if not isinstance(value, Select):
        return value
    inner = value.on_true
    return inner.on_true if isinstance(inner, Select) and inner.condition == value.condition else inner


def _unsigned(value: Expression) -> Expression:
    """Return an int8 with its highest bit transposed: greater by 128."""
    return b.binary("xor", Bitcast(value, "uint8"), b.constant(128, "uint8"))


def _weights(stages: Sequence[Stage], found: Convolution, kernel: Kernel) -> Buffer | None:
    """Return the weights; None unless all that their factor reads is constant, and nothing else reads them."""
    read = [load.buffer for load in loads(found.weight)]
    if not read or any(buffer not in kernel.constants for buffer in read):
        return None
    weights = max(read, key=lambda buffer: len(buffer.shape))
    others = uses_of(weights, stages[1:]) or any(load.buffer is weights for load in loads(found.pixel))
    return None if others or len(weights.shape) != found.windows.rank + 2 else weights


def _channels_are_cut(found: Convolution, width: int) -> bool:
    """Whether groups of channels would reach into the next group of the convolution."""
    return found.window.groups > 1 and found.window.inputs % width > 0


def _sees_rows(found: Convolution, width: int) -> bool:
    """Whether what a window sees of a row fills groups of elements, and its pixels do not."""
    window, w = found.window, found.windows
    fills = window.inputs % width > 0 and window.inputs * w.kernel[-1] % width == 0
    return fills and window.groups == w.dilations[-1] == 1 and window.reads_channels_last and not w.leaves


def _weight_axes(found: Convolution) -> tuple[Variable, ...]:
    """Return the variables for ``[output channel, input channel, window ...]``."""
    reduction, window = found.anchor.reduction, found.window
    assert reduction is not None, found.anchor.buffer.name
    places = {number: axis.variable for number, axis in zip(window.reduced, reduction.axes, strict=True)}
    return (found.anchor.axes[window.result.index(1)], *(places[number] for number in sorted(places)))


def _extents(found: Convolution) -> tuple[int, ...]:
    window = found.window
    return (window.groups * window.outputs, window.inputs, *window.windows.kernel)


def _evaluated(found: Convolution, value: Expression, constants: Mapping[Buffer, np.ndarray]) -> np.ndarray:
    """Return an expression over the weights' axes at all of them."""
    return _filled(value, _weight_axes(found), _extents(found), constants)


def _packed_weights(
    found: Convolution, value: Expression, extents: Sequence[int], constants: Mapping[Buffer, np.ndarray], width: int
) -> np.ndarray:
    """Return groups of small elements along the input channels as packed operands, zeros behind the last."""
    outputs, inputs, *window = extents
    output, channel, *taps = _weight_axes(found)
    group = Variable("group")
    grouped = packed_operand(value, channel, group, inputs, width)
    return _filled(grouped, (output, group, *taps), (outputs, -(-inputs // width), *window), constants)


def _filled(
    value: Expression, axes: tuple[Variable, ...], extents: tuple[int, ...], constants: Mapping[Buffer, np.ndarray]
) -> np.ndarray:
    own = tuple(Variable(axis.name) for axis in axes)
    whole = Buffer("whole", value.type.dtype, tuple(map(b.index, extents)), memory="scratch")
    stage = Stage(whole, own, substitute(value, dict(zip(axes, own, strict=True))))
    read = {load.buffer: constants[load.buffer] for load in loads(value)}
    return run_stages([stage], read)[whole]
