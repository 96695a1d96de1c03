"""Shapes of operators over images: convolution, pooling, and what changes an image's size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from graft.core.affine import expressions as affine
from graft.core.operators.definition.facts import BoundsRule, Dimension, Facts, Shape, ShapeRule
from graft.core.operators.definition.implied_bounds import natural_bounds
from graft.runtime.extents import Extent, Symbol

MOST_DENOMINATOR = 64
"""Scales with a larger denominator are not exact where they are multiplied in float32."""
Rounded = Callable[[Facts, Extent, Extent, int, tuple[int, int]], Extent]
"""Of an extent, the steps that a window can take, its stride and pads: the places that it has."""


def convolution(weights: int = 1) -> ShapeRule:
    """Return the rule of a convolution with weights in this input: the places of a window, for each output channel."""

    def rule(facts: Facts) -> list[Shape | None]:
        image, kernels = facts.known(0), facts.known(weights)
        sizes = facts.attribute("kernel_shape") or kernels[2:]
        return [(image[0], kernels[0], *_places(facts, image[2:], sizes, _always_down))]

    return rule


def convolution_bounds(weights: int = 1) -> BoundsRule:
    """Return the rule that an image has room for windows, and the channels of the weights in this input."""

    def rule(facts: Facts, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
        found = natural_bounds(_room(facts, facts.shape(weights)), ranges)
        return found | _channels_of_weights(facts, facts.shape(weights), {**ranges, **found})

    return rule


def _channels_of_weights(facts: Facts, weights: Shape | None, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """Return the range of a symbol that is an image's channels: the one number that a convolution's weights say."""
    image = facts.shape(0)
    if not image or not weights or not isinstance(image[1], Symbol) or not isinstance(weights[1], int):
        return {}
    number = weights[1] * int(facts.attribute("group", 1))
    found = affine.Range(number, number)
    return {} if ranges.get(image[1]) == found else {image[1]: found}


def pool(facts: Facts) -> list[Shape | None]:
    """The places of a window, for each channel.

    A window that is wider than its image by less than a stride counts, as in onnx and ONNX Runtime, whose quotients are
    rounded towards 0. Where the extent has one symbol no such image is taken (`pool_bounds`).
    """
    image = facts.known(0)
    shape = (*image[:2], *_places(facts, image[2:], facts.attribute("kernel_shape"), _as_pools_round))
    return [shape, shape]


def pool_bounds(facts: Facts, ranges: affine.Ranges) -> dict[Extent, affine.Range]:
    """The ranges that are narrower because an image has room for windows."""
    return natural_bounds(_room(facts, None), ranges)


def _sliding(facts: Facts, count: int) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Return the strides, dilations and pads of a window over so many axes."""
    strides, dilations = (facts.attribute(name) or [1] * count for name in ("strides", "dilations"))
    return strides, dilations, facts.attribute("pads") or [0] * (2 * count)


def _reach(size: Extent, dilation: int) -> Extent:
    """Return how far a window of so many places reaches."""
    return affine.add(affine.multiply(dilation, affine.subtract(size, 1)), 1)


def _places(facts: Facts, image: Shape, kernel: Sequence[Dimension], rounded: Rounded) -> Shape:
    """Return how often a window fits along each axis of an image; ``rounded`` divides."""
    count = len(image)
    strides, dilations, pads = _sliding(facts, count)
    automatic = facts.attribute("auto_pad", "NOTSET")
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(image, kernel, strict=True)):
        if extent is None or size is None:
            found.append(None)
            continue
        window = _reach(size, dilations[axis])
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            least = (
                0 if affine.is_at_least(window, strides[axis]) else 1
            )  # onnx's quotient of an empty image is 0 steps then
            found.append(affine.maximum(least, affine.ceildiv(extent, strides[axis])))
        else:
            padding = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            steps = affine.subtract(affine.add(extent, padding), window)
            found.append(rounded(facts, extent, steps, strides[axis], (pads[axis], pads[axis + count])))
    return tuple(found)


def _always_down(facts: Facts, extent: Extent, steps: Extent, stride: int, pads: tuple[int, int]) -> Extent:
    return affine.add(affine.floordiv(steps, stride), 1)


def _as_pools_round(facts: Facts, extent: Extent, steps: Extent, stride: int, pads: tuple[int, int]) -> Extent:
    if _rounds_up(facts):
        return _rounded_up(facts, extent, steps, stride, pads)
    return affine.add(_towards_zero(steps, stride, facts.ranges), 1)


def _rounds_up(facts: Facts) -> bool:
    """Whether the last window of a pool may hang over the padding behind."""
    return bool(facts.attribute("ceil_mode", 0)) and facts.attribute("auto_pad", "NOTSET") != "VALID"


def _towards_zero(steps: Extent, stride: int, ranges: affine.Ranges | None = None) -> Extent:
    """Return a quotient rounded towards 0, in a form that is seen to rise with what is divided."""
    down = affine.floordiv(steps, stride)
    if stride == 1 or affine.is_at_least(steps, 0, ranges):
        return down
    return affine.maximum(
        down, 0 if affine.is_at_least(steps, 1 - stride, ranges) else affine.minimum(0, affine.ceildiv(steps, stride))
    )


def _room(facts: Facts, weights: Shape | None) -> Sequence[Dimension]:
    """Return by how much the images of a convolution or pool with strides are larger than its windows: by 0 or more.

    Where a pool rounds up the last window may hang over by less than a stride: so many are added. What onnx computes of
    smaller ones depends on how its quotients are rounded, and extents that say so are equal to no other; ONNX Runtime
    refuses a convolution of them.
    """
    image, kernel = facts.shape(0), facts.attribute("kernel_shape") or (weights or ())[2:]
    if image is None or not kernel or facts.attribute("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return ()
    count = len(image) - 2
    strides, dilations, pads = _sliding(facts, count)
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(image[2:], kernel, strict=True)):
        if extent is not None and size is not None and strides[axis] > 1:
            window = _reach(size, dilations[axis])
            over = strides[axis] - 1 if _rounds_up(facts) else 0
            found.append(affine.subtract(affine.add(extent, pads[axis], pads[axis + count], over), window))
    return found


def _rounded_up(facts: Facts, extent: Extent, steps: Extent, stride: int, pads: tuple[int, int]) -> Extent:
    """Return the windows where the last may hang over; one that would begin in the padding behind is left out."""
    before, after = pads
    fits = affine.add(_towards_zero(affine.add(steps, stride - 1), stride, facts.ranges), 1)
    begun = affine.minimum(fits, affine.ceildiv(affine.add(extent, before), stride))
    return begun if after <= stride else affine.maximum(affine.subtract(fits, 1), begun)


def transposed_convolution(facts: Facts) -> list[Shape | None]:
    """The extents that a convolution has to be given for these."""
    image, weights = facts.known(0), facts.known(1)
    count = len(image) - 2
    kernel = facts.attribute("kernel_shape") or weights[2:]
    strides, dilations, pads = _sliding(facts, count)
    more = facts.attribute("output_padding") or [0] * count
    stated = facts.attribute("output_shape")
    automatic = facts.attribute("auto_pad", "NOTSET")
    channels = None if weights[1] is None else affine.multiply(weights[1], facts.attribute("group", 1))
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(image[2:], kernel, strict=True)):
        if stated:
            found.append(stated[axis])
        elif extent is None or size is None:
            found.append(None)
        elif automatic in ("SAME_UPPER", "SAME_LOWER"):
            found.append(affine.multiply(extent, strides[axis]))
        else:
            padding = 0 if automatic == "VALID" else pads[axis] + pads[axis + count]
            window = _reach(size, dilations[axis])
            found.append(
                affine.add(affine.multiply(strides[axis], affine.subtract(extent, 1)), more[axis], window, -padding)
            )
    return [(image[0], channels, *found)]


def resize(facts: Facts) -> list[Shape | None]:
    """The sizes that are asked for, or extents times scales."""
    return _resized(facts, facts.elements(3), _scales(facts, 2))


def upsample(facts: Facts) -> list[Shape | None]:
    """Extents times scales."""
    return _resized(facts, None, _scales(facts, 1))


def _resized(facts: Facts, sizes: Sequence[Dimension] | None, scales: Sequence[Fraction] | None) -> list[Shape | None]:
    image = facts.known(0)
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
    return affine.floordiv(affine.multiply(extent, scale.numerator), scale.denominator)


def grid_sample(facts: Facts) -> list[Shape | None]:
    """A place of the image for each of the grid."""
    image, grid = facts.shape(0), facts.shape(1)
    return [] if image is None or grid is None else [(image[0], image[1], *grid[1:-1])]


def affine_grid(facts: Facts) -> list[Shape | None]:
    """Coordinates for each place of an image of the size that is asked for."""
    size = facts.elements(1)
    return [] if size is None else [(size[0], *size[2:], len(size) - 2)]


def fold_columns(facts: Facts) -> list[Shape | None]:
    """The image that blocks are put together to."""
    columns, image, block = facts.known(0), facts.elements(1), facts.numbers(2)
    if image is None or block is None or columns[1] is None:
        return []
    size = 1
    for extent in block:
        size *= extent
    return [(columns[0], affine.floordiv(columns[1], size), *image)]


def unpooled(facts: Facts) -> list[Shape | None]:
    """The image that an input says, else the least one that the windows are of."""
    pooled, kernel = facts.known(0), facts.attribute("kernel_shape")
    if facts.has(2):
        return [facts.elements(2) or (None,) * len(pooled)]
    strides, _, pads = _sliding(facts, len(kernel))
    found: list[Dimension] = []
    for axis, (extent, size) in enumerate(zip(pooled[2:], kernel, strict=True)):
        more = size - strides[axis] - pads[axis] - pads[axis + len(kernel)]
        found.append(None if extent is None else affine.add(affine.multiply(extent, strides[axis]), more))
    return [(*pooled[:2], *found)]


def deformed_convolution(facts: Facts) -> list[Shape | None]:
    """The places of the offsets, for each output channel."""
    image, weights, offsets = facts.known(0), facts.known(1), facts.known(2)
    return [(image[0], weights[0], *offsets[2:])]


def global_pool(facts: Facts) -> list[Shape | None]:
    """One number for each channel."""
    shape = facts.shape(0)
    return [] if shape is None else [(*shape[:2], *(1 for _ in shape[2:]))]
