"""Shapes of operators with windows over images: convolution, pooling, and what changes an image's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from graft.core.affine.expressions import (
    Range,
    Ranges,
    add,
    ceildiv,
    floordiv,
    is_at_least,
    maximum,
    minimum,
    multiply,
    subtract,
)
from graft.core.operators.definition.facts import Dimension, Facts, Shape, ShapeRule
from graft.runtime.extents import Extent, Symbol

CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv"})
POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
MOST_DENOMINATOR = 64
"""Scales with a larger denominator are not exact where they are multiplied in float32."""


def _convolution(facts: Facts) -> list[Shape | None]:
    return _convolved(facts, facts.shape(0), facts.shape(1))


def _quantized_convolution(facts: Facts) -> list[Shape | None]:
    return _convolved(facts, facts.shape(0), facts.shape(3))


def _convolved(facts: Facts, image: Shape | None, weights: Shape | None) -> list[Shape | None]:
    if image is None or weights is None:
        return []
    kernel = facts.attribute("kernel_shape") or weights[2:]
    return [(image[0], weights[0], *_windows(facts, image[2:], kernel))]


def channels_of_weights(facts: Facts, ranges: Ranges) -> dict[Extent, Range]:
    """Return the range of a symbol that is an image's channels: the one number that a convolution's weights say."""
    if facts.view.op_type not in CONVOLUTIONS:
        return {}
    image, weights = facts.shape(0), facts.shape(3 if facts.view.op_type == "QLinearConv" else 1)
    if not image or not weights or not isinstance(image[1], Symbol) or not isinstance(weights[1], int):
        return {}
    number = weights[1] * int(facts.attribute("group", 1))
    found = Range(number, number)
    return {} if ranges.get(image[1]) == found else {image[1]: found}


def _pool(facts: Facts) -> list[Shape | None]:
    image = facts.shape(0)
    if image is None:
        return []
    shape = (*image[:2], *_windows(facts, image[2:], facts.attribute("kernel_shape")))
    return [shape, shape]


def _windows(facts: Facts, image: Shape, kernel: Sequence[Dimension]) -> Shape:
    """Return how often a window fits along each axis of an image.

    A pool's window that is wider than its image by less than a stride counts, as in onnx and ONNX Runtime, whose
    quotients are rounded towards 0. Where the extent has one symbol no such image is taken (`room_of_windows`).
    """
    count = len(image)
    strides = facts.attribute("strides") or [1] * count
    dilations = facts.attribute("dilations") or [1] * count
    pads = facts.attribute("pads") or [0] * (2 * count)
    automatic = facts.attribute("auto_pad", "NOTSET")
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(image, kernel, strict=True)):
        if extent is None or size is None:
            found.append(None)
            continue
        window = add(multiply(dilations[axis], subtract(size, 1)), 1)
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            least = 0 if is_at_least(window, strides[axis]) else 1  # onnx's quotient of an empty image is 0 steps then
            found.append(maximum(least, ceildiv(extent, strides[axis])))
        else:
            padding = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            steps = subtract(add(extent, padding), window)
            if facts.view.op_type in CONVOLUTIONS:
                found.append(add(floordiv(steps, strides[axis]), 1))
            elif not _rounds_up(facts):
                found.append(add(_towards_zero(steps, strides[axis], facts.ranges), 1))
            else:
                found.append(_rounded_up(facts, extent, steps, strides[axis], (pads[axis], pads[axis + count])))
    return tuple(found)


def _rounds_up(facts: Facts) -> bool:
    """Whether the last window of a pool may hang over the padding behind."""
    return bool(facts.attribute("ceil_mode", 0)) and facts.attribute("auto_pad", "NOTSET") != "VALID"


def _towards_zero(steps: Extent, stride: int, ranges: Ranges | None = None) -> Extent:
    """Return a quotient rounded towards 0, in a form that is seen to rise with what is divided."""
    down = floordiv(steps, stride)
    if stride == 1 or is_at_least(steps, 0, ranges):
        return down
    return maximum(down, 0 if is_at_least(steps, 1 - stride, ranges) else minimum(0, ceildiv(steps, stride)))


def room_of_windows(facts: Facts) -> Sequence[Dimension]:
    """Return by how much the images of a convolution or pool with strides are larger than its windows: by 0 or more.

    Where a pool rounds up the last window may hang over by less than a stride: so many are added. What onnx computes of
    smaller ones depends on how its quotients are rounded, and extents that say so are equal to no other; ONNX Runtime
    refuses a convolution of them.
    """
    image, weights = facts.shape(0), facts.shape(3 if facts.view.op_type == "QLinearConv" else 1)
    kernel = facts.attribute("kernel_shape") or (weights or ())[2:]
    if image is None or not kernel or facts.attribute("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return ()
    count = len(image) - 2
    strides, dilations = (facts.attribute(name) or [1] * count for name in ("strides", "dilations"))
    pads = facts.attribute("pads") or [0] * (2 * count)
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(image[2:], kernel, strict=True)):
        if extent is not None and size is not None and strides[axis] > 1:
            window = add(multiply(dilations[axis], subtract(size, 1)), 1)
            over = strides[axis] - 1 if _rounds_up(facts) else 0
            found.append(subtract(add(extent, pads[axis], pads[axis + count], over), window))
    return found


def _rounded_up(facts: Facts, extent: Extent, steps: Extent, stride: int, pads: tuple[int, int]) -> Extent:
    """Return the windows where the last may hang over; one that would begin in the padding behind is left out."""
    before, after = pads
    fits = add(_towards_zero(add(steps, stride - 1), stride, facts.ranges), 1)
    begun = minimum(fits, ceildiv(add(extent, before), stride))
    return begun if after <= stride else maximum(subtract(fits, 1), begun)


def _transposed_convolution(facts: Facts) -> list[Shape | None]:
    image, weights = facts.shape(0), facts.shape(1)
    if image is None or weights is None:
        return []
    count = len(image) - 2
    kernel = facts.attribute("kernel_shape") or weights[2:]
    strides = facts.attribute("strides") or [1] * count
    dilations = facts.attribute("dilations") or [1] * count
    pads = facts.attribute("pads") or [0] * (2 * count)
    more = facts.attribute("output_padding") or [0] * count
    stated = facts.attribute("output_shape")
    automatic = facts.attribute("auto_pad", "NOTSET")
    channels = None if weights[1] is None else multiply(weights[1], facts.attribute("group", 1))
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(image[2:], kernel, strict=True)):
        if stated:
            found.append(stated[axis])
        elif extent is None or size is None:
            found.append(None)
        elif automatic in ("SAME_UPPER", "SAME_LOWER"):
            found.append(multiply(extent, strides[axis]))
        else:
            padding = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            window = add(multiply(dilations[axis], subtract(size, 1)), 1)
            found.append(add(multiply(strides[axis], subtract(extent, 1)), more[axis], window, -padding))
    return [(image[0], channels, *found)]


def _resize(facts: Facts) -> list[Shape | None]:
    image = facts.shape(0)
    if image is None:
        return []
    legacy = facts.view.op_type == "Upsample"
    sizes = None if legacy else facts.elements(3)
    scales = _scales(facts, 1 if legacy else 2)
    axes = [axis % len(image) for axis in facts.attribute("axes") or range(len(image))]
    found: list[Dimension] = list(image)
    for place, axis in enumerate(axes):
        extent = image[axis]
        if sizes is not None:
            found[axis] = sizes[place] if facts.attribute("keep_aspect_ratio_policy", "stretch") == "stretch" else None
        elif (
            scales is None
            or extent is None
            or facts.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
        ):
            found[axis] = None
        else:
            found[axis] = _scaled(extent, scales[place])
    return [tuple(found)]


def _scales(facts: Facts, index: int) -> list[Fraction] | None:
    """Return the constant scales exactly, None where there are none or float32 products may round."""
    given = facts.view.input(index)
    numbers = facts.attribute("scales") if given is None else given.constant
    if numbers is None or not len(numbers):
        return None
    return [Fraction(float(number)) for number in numbers]


def _scaled(extent: Extent, scale: Fraction) -> Dimension:
    if scale.denominator > MOST_DENOMINATOR:
        return None
    return floordiv(multiply(extent, scale.numerator), scale.denominator)


def _grid_sample(facts: Facts) -> list[Shape | None]:
    image, grid = facts.shape(0), facts.shape(1)
    return [] if image is None or grid is None else [(image[0], image[1], *grid[1:-1])]


def _affine_grid(facts: Facts) -> list[Shape | None]:
    size = facts.elements(1)
    return [] if size is None else [(size[0], *size[2:], len(size) - 2)]


def _regions_of_interest(facts: Facts) -> list[Shape | None]:
    image, regions = facts.shape(0), facts.shape(1)
    if image is None or regions is None:
        return []
    pooled = facts.attribute("pooled_shape") or [facts.attribute(f"output_{side}", 1) for side in ("height", "width")]
    return [(regions[0], image[1], *pooled)]


def _fold_columns(facts: Facts) -> list[Shape | None]:
    columns, image, block = facts.shape(0), facts.elements(1), facts.numbers(2)
    if columns is None or image is None or block is None or columns[1] is None:
        return []
    size = 1
    for extent in block:
        size *= extent
    return [(columns[0], floordiv(columns[1], size), *image)]


def _deformed(facts: Facts) -> list[Shape | None]:
    image, weights, offsets = facts.shape(0), facts.shape(1), facts.shape(2)
    if image is None or weights is None or offsets is None:
        return []
    return [(image[0], weights[0], *offsets[2:])]


def _frames(facts: Facts) -> list[Shape | None]:
    """Return the shape of an STFT: frames that fit into the signal, and the points, or half of them, of each."""
    signal, steps, window, lengths = facts.shape(0), facts.numbers(1), facts.shape(2), facts.numbers(3)
    length = lengths[0] if lengths else window[0] if window else None
    if signal is None or not steps or not isinstance(length, int):
        return []
    count = None if signal[1] is None else add(floordiv(subtract(signal[1], length), steps[0]), 1)
    return [(signal[0], count, length // 2 + 1 if facts.attribute("onesided", 1) else length, 2)]


def _transformed(facts: Facts) -> list[Shape | None]:
    """Return the shape of a DFT: its points, or half of them, along the axis, with two parts each, or one."""
    signal, lengths, axes = facts.shape(0), facts.elements(1), facts.numbers(2)
    given = facts.view.input(2)
    place = facts.attribute("axis", -2) if given is None else axes[0] if axes else None
    if signal is None or not isinstance(place, int):
        return []
    place, is_half, is_inverse = place % len(signal), facts.attribute("onesided", 0), facts.attribute("inverse", 0)
    extent = signal[place]
    if facts.view.input(1) is not None:
        length = lengths[0] if lengths else None
    elif extent is not None and is_half and is_inverse:
        length = multiply(2, subtract(extent, 1))
    else:
        length = extent
    if length is not None and is_half and not is_inverse:
        length = add(floordiv(length, 2), 1)
    return [(*signal[:place], length, *signal[place + 1 : -1], 1 if is_half and is_inverse else 2)]


RULES: Mapping[str, ShapeRule] = {
    "AffineGrid": _affine_grid,
    "AveragePool": _pool,
    "Col2Im": _fold_columns,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "DFT": _transformed,
    "DeformConv": _deformed,
    "GridSample": _grid_sample,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MaxRoiPool": _regions_of_interest,
    "QLinearConv": _quantized_convolution,
    "Resize": _resize,
    "RoiAlign": _regions_of_interest,
    "STFT": _frames,
    "Upsample": _resize,
}
