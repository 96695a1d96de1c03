"""Derivatives of convolutions and resizing, for images of any rank.

The gradient of the image is a transposed convolution, that of the weights products of matrices or a convolution of the
image with the gradient, strides and dilations exchanged (all of which have derivatives themselves).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graft.core.operators.definition.adjoint import Adjoint
from graft.core.operators.images.windows import patch_places
from graft.core.tensor_ir.anchors import outweighs

FINITE = "graft.finite-weights"
"""The key of the metadata of a ConvTranspose whose weights may be taken for finite: that of a gradient."""
MOST_PLACES = 64
"""The most places of a kernel whose weights have their gradients one after another."""
FEWEST_COLUMNS = 32
"""Columns of a product under which most of its vectors would be empty."""
LONG_ROW = 8
"""Pixels of a row from which on a depthwise convolution's image is padded first, so that sums go along whole rows."""
LONG_SUM = 128
"""Elements of a result's image from which on the sums for the weights are taken image by image."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Windows of a node: how many elements a window has, how far they are apart, and what is padded."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    def reach(self, axis: int) -> int:
        """Return how many elements of the image a window spans."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    @property
    def are_apart(self) -> bool:
        """Whether no two windows reach over one element."""
        return all(self.reach(axis) <= stride for axis, stride in enumerate(self.strides))


def geometry_of(f: Adjoint, kernel: Sequence[int], image: str, windows: str) -> Geometry:
    """Return the windows of a node over an image, with pads that follow from extents where it says so."""
    rank = len(kernel)
    strides = tuple(f.attribute("strides") or [1] * rank)
    dilations = tuple(f.attribute("dilations") or [1] * rank)
    pads = f.attribute("pads") or [0] * (2 * rank)
    plain = Geometry(tuple(kernel), strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))
    mode, is_transposed = f.attribute("auto_pad", "NOTSET"), f.node.op_type == "ConvTranspose"
    if not mode.startswith("SAME") and not f.attribute("output_shape"):
        return plain
    inner, outer = f.extents(image)[2:], f.extents(windows)[2:]
    extra = f.attribute("output_padding") or [0] * rank
    totals = [
        (outer[axis] - 1) * strides[axis] + plain.reach(axis) - inner[axis] + (extra[axis] if is_transposed else 0)
        for axis in range(rank)
    ]
    totals = totals if is_transposed else [max(total, 0) for total in totals]
    small, large = tuple(one // 2 for one in totals), tuple(one - one // 2 for one in totals)
    begins, ends = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Geometry(plain.kernel, strides, dilations, begins, ends)


def _conv_geometry(f: Adjoint, image: str, windows: str) -> Geometry:
    return geometry_of(f, f.attribute("kernel_shape") or f.extents(f.input(1))[2:], image, windows)


def _bias(f: Adjoint) -> str:
    axes = [axis for axis in range(f.rank(f.gradient)) if axis != 1]
    return f("ReduceSum", f.gradient, f.ints(*axes), keepdims=0)


def convolved(f: Adjoint) -> list[str]:
    """The gradients of image, weights and bias."""
    x, weights, group = f.input(0), f.input(1), f.attribute("group", 1)
    w = _conv_geometry(f, x, f.result())
    found = ["", "", ""]
    if f.wanted(0):
        found[0] = spread(f, f.gradient, weights, x, w, group)
    if f.wanted(1):
        found[1] = _of_weights(f, x, f.gradient, weights, w, group)
    if f.wanted(2):
        found[2] = _bias(f)
    return found


def convolved_back(f: Adjoint) -> list[str]:
    """The gradients of image, weights and bias of a transposed convolution: image and result have changed places."""
    x, weights, group = f.input(0), f.input(1), f.attribute("group", 1)
    w, image = _without_surplus(f, _conv_geometry(f, f.result(), x))
    found = ["", "", ""]
    if f.wanted(0):
        pads, strides, dilations = [*w.begins, *w.ends], list(w.strides), list(w.dilations)
        gradient = f.convolved(image, weights, pads=pads, strides=strides, dilations=dilations, group=group)
        found[0] = f.typed(_cropped(f, gradient, f("Shape", x, start=2), len(w.kernel)), x)
    if f.wanted(1):
        found[1] = _of_weights(f, image, x, weights, w, group)
    if f.wanted(2):
        found[2] = _bias(f)
    return found


def _without_surplus(f: Adjoint, w: Geometry) -> tuple[Geometry, str]:
    """Return windows that begin and end in the image, and the gradient without what no window reaches."""
    sides = [*w.begins, *w.ends]
    if min(sides) >= 0:
        return w, f.gradient
    cut, rank = [min(one, 0) for one in sides], len(w.kernel)
    image = f("Pad", f.gradient, f.ints(0, 0, *cut[:rank], 0, 0, *cut[rank:]))
    begins, ends = (tuple(max(one, 0) for one in side) for side in (w.begins, w.ends))
    return replace(w, begins=begins, ends=ends), image


def spread(f: Adjoint, windows: str, weights: str, image: str, w: Geometry, group: int = 1) -> str:
    """Return what windows give back to an image: a transposed convolution in its extents."""
    given = {"strides": list(w.strides), "dilations": list(w.dilations), "group": group}
    inner, outer = f.shape(image)[2:], f.shape(windows)[2:]
    full = [
        (count - 1) * w.strides[axis] + w.reach(axis) if isinstance(count, int) else None
        for axis, count in enumerate(outer)
    ]
    rest = [
        extent - (one - w.begins[axis] - w.ends[axis]) if isinstance(extent, int) and one is not None else -1
        for axis, (extent, one) in enumerate(zip(inner, full, strict=True))
    ]
    if all(0 <= one < stride for one, stride in zip(rest, w.strides, strict=True)):
        pads = [*w.begins, *w.ends]
        found = f.typed(f("ConvTranspose", windows, weights, pads=pads, output_padding=rest, **given), image)
        f.nodes[-1].metadata_props.add(key=FINITE)
        return found
    whole = f("ConvTranspose", windows, weights, **given)
    behind = f("Add", f("Sub", f("Shape", image, start=2), f("Shape", whole, start=2)), f.ints(*w.begins))
    sides = f.concatenated(f.ints(0, 0, *(-one for one in w.begins), 0, 0), behind, axis=0)
    return f.typed(f("Pad", whole, sides), image)


def _of_weights(f: Adjoint, image: str, windows: str, weights: str, w: Geometry, group: int) -> str:
    """Return the gradient of weights ``[m, c / group, ...]`` of windows ``[n, m, ...]`` over an image ``[n, c, ...]``.

    Each place of the kernel has a product of matrices (`_of_places`). Sums over large images are taken image by image,
    which threads share and caches hold, and then added; of small ones whose extents are known all places have one
    product, of the patches of all images, whose result lies as the weights do.
    Of a known batch, where there are many places, or large images whose windows have no steps along rows, all are one
    convolution, of batches as channels and channels as batch. Where each channel has its own window they are a
    depthwise one, or, of an unknown batch, sums over elements.
    """
    rank = len(w.kernel)
    batch, is_depthwise = f.shape(windows)[0], f.extents(weights)[:2] == [group, 1]
    if is_depthwise and isinstance(batch, int):
        return _of_own_weights(f, image, windows, weights, w, batch)
    sums = [one for one in f.shape(windows)[2:] if isinstance(one, int)]
    by_image = len(sums) == rank and math.prod(sums) >= LONG_SUM
    are_large = by_image and w.strides[-1] == 1 < math.prod(w.kernel) and outweighs(sums, w.kernel)
    if isinstance(batch, int) and ((are_large and not is_depthwise) or math.prod(w.kernel) > MOST_PLACES):
        return _of_many_weights(f, image, windows, weights, w, group)
    if not by_image and not is_depthwise and all(isinstance(one, int) for one in (*f.shape(windows), *f.shape(image))):
        return _of_patches(f, image, windows, weights, w, group)
    image, w = _padded(f, image, w)
    if not is_depthwise:
        return _of_places(f, image, windows, weights, w, group, by_image=by_image)
    axes = f.ints(0, *range(2, 2 + rank))
    sums_of = [f("ReduceSum", f("Mul", windows, one), axes, keepdims=0) for one in _met(f, image, windows, w)]
    return f.reshaped_like(f.concatenated(*(f.unsqueezed(one, 1) for one in sums_of), axis=1), weights)


def _met(f: Adjoint, image: str, windows: str, w: Geometry, first: int = 2) -> Iterator[str]:
    """Yield what each place of the kernel meets over all windows of an image; spatial axes begin at ``first``."""
    reach = f("Mul", f("Sub", f("Shape", windows, start=2), f.ints(1)), f.ints(*w.strides))
    axes, strides = f.ints(*range(first, first + len(w.kernel))), f.ints(*w.strides)
    for place in np.ndindex(*w.kernel):
        starts = [one * step for one, step in zip(place, w.dilations, strict=True)]
        ends = f("Add", reach, f.ints(*(one + 1 for one in starts)))
        yield f("Slice", image, f.ints(*starts), ends, axes, strides)


def _of_places(f: Adjoint, image: str, windows: str, weights: str, w: Geometry, group: int, *, by_image: bool) -> str:
    """Return the gradient of weights as a product of the windows and what they meet for each place of the kernel.

    Where these are few channels, several places have one, so that it is of `FEWEST_COLUMNS`. Few channels, and pixels
    that lie apart, are copied faster where the channels of a pixel are neighbours (of 3 channels: 0.57 to 0.78 of the
    time of a Zen 5; of pixels two apart: 0.91 to 0.99).
    """
    (rows, columns), spatial = f.extents(weights)[:2], range(2, 2 + len(w.kernel))
    before = [0, group] if by_image else [group]
    if group == 1 and math.prod(w.kernel) > 1 and (columns < FEWEST_COLUMNS or max(w.strides) > 1):
        image = f.transposed(image, 0, *spatial, 1)
        parts = [f.reshaped(one, *before, -1, columns) for one in _met(f, image, windows, w, first=1)]
    else:
        image = image if by_image else f.transposed(image, 1, 0, *spatial)
        parts = [f.swapped(f.reshaped(one, *before, columns, -1)) for one in _met(f, image, windows, w)]
    windows = windows if by_image else f.transposed(windows, 1, 0, *spatial)
    left = f.reshaped(windows, *before, rows // group, -1)
    several = -(-FEWEST_COLUMNS // columns)
    stacks = [parts[place : place + several] for place in range(0, len(parts), several)]
    products = [f("MatMul", left, f.concatenated(*one, axis=-1) if len(one) > 1 else one[0]) for one in stacks]
    if by_image:
        products = [f("ReduceSum", one, f.ints(0), keepdims=0) for one in products]
    of_places = f.reshaped(f.concatenated(*products, axis=-1), group, rows // group, len(parts), columns)
    return f.reshaped_like(f.transposed(of_places, 0, 1, 3, 2), weights)


def _of_patches(f: Adjoint, image: str, windows: str, weights: str, w: Geometry, group: int) -> str:
    """Return the gradient of weights as the product of the windows and the patches of all images."""
    (batch, channels, *inner), outer, rank = f.extents(image), f.extents(windows)[2:], len(w.kernel)
    source = [extent + begin + end for extent, begin, end in zip(inner, w.begins, w.ends, strict=True)]
    image, w = _padded(f, image, w)
    spatial, columns = range(2, 2 + rank), batch * math.prod(outer)
    left = f.reshaped(f.transposed(windows, 1, 0, *spatial), group, -1, columns)
    places = patch_places(batch, source, w.kernel, outer, w.strides, w.dilations).reshape(-1)
    are_pixels = np.array_equal(places, np.arange(batch * math.prod(source)))
    if are_pixels and group == 1:
        right = f.reshaped(f.transposed(image, 0, *spatial, 1), 1, columns, channels)
        return f.reshaped_like(f("MatMul", left, right), weights)
    right = f.reshaped(f.transposed(image, 1, 0, *spatial), channels, batch * math.prod(source))
    if not are_pixels:
        right = f("Gather", right, f.constant(places), axis=1)
    return f.reshaped_like(f("MatMul", left, f.swapped(f.reshaped(right, group, -1, columns))), weights)


def _of_own_weights(f: Adjoint, image: str, windows: str, weights: str, w: Geometry, batch: int) -> str:
    """Return the gradient of depthwise weights: each channel's windows slide over it, and batches are summed."""
    channels = f.extents(weights)[0]
    row = f.shape(windows)[-1]
    if w.strides[-1] == 1 and isinstance(row, int) and row >= LONG_ROW:
        image, w = _padded(f, image, w)
    rows = f("Reshape", image, f.concatenated(f.ints(1, -1), f("Shape", image, start=2), axis=0))
    strides, dilations, pads = list(w.dilations), list(w.strides), [*w.begins, *w.ends]
    kernels, group = single_channel(f, windows), batch * channels
    found = f.convolved(rows, kernels, strides=strides, dilations=dilations, pads=pads, group=group)
    found = _cropped(f, found, f.ints(*w.kernel), len(w.kernel))
    each = f.reshaped(found, batch, channels, 1, *w.kernel)
    return f.typed(f("ReduceSum", each, f.ints(0), keepdims=0), weights)


def _padded(f: Adjoint, image: str, w: Geometry) -> tuple[str, Geometry]:
    """Return an image with the zeros beside it, and windows that stay inside."""
    if not any((*w.begins, *w.ends)):
        return image, w
    padded = f("Pad", image, f.ints(0, 0, *w.begins, 0, 0, *w.ends))
    return padded, replace(w, begins=(0,) * len(w.kernel), ends=(0,) * len(w.kernel))


def _of_many_weights(f: Adjoint, image: str, windows: str, weights: str, w: Geometry, group: int) -> str:
    """Return the gradient of weights as a convolution whose windows are the upstream gradient's images."""
    rank = len(w.kernel)
    spatial = range(2, 2 + rank)
    kernels = f.transposed(windows, 1, 0, *spatial)
    image, w = _padded(f, image, w)
    extents = f("Shape", image, start=2)
    parts = f("Reshape", image, f.concatenated(f.ints(0, group, -1), extents, axis=0))
    parts = f.transposed(parts, 2, 1, 0, *(axis + 1 for axis in spatial))
    count = f("Mul", f.extent(image, 0), f.ints(group))
    batches = f("Reshape", parts, f.concatenated(f.ints(-1), count, extents, axis=0))
    found = f.convolved(batches, kernels, strides=list(w.dilations), dilations=list(w.strides), group=group)
    found = f.transposed(found, 1, 0, *spatial)
    return f.typed(_cropped(f, found, f.ints(*w.kernel), rank), weights)


def _cropped(f: Adjoint, value: str, extents: str, rank: int) -> str:
    """Return the first elements of the spatial axes."""
    return f("Slice", value, f.ints(*[0] * rank), extents, f.ints(*range(2, 2 + rank)))


def single_channel(f: Adjoint, value: str) -> str:
    """``[n, c, ...]`` as ``[n c, 1, ...]``."""
    return f("Reshape", value, f.concatenated(f.ints(-1, 1), f("Shape", value, start=2), axis=0))


# ---- Columns and resizing -----------------------------------------------------------------------------------------


def columns(f: Adjoint) -> list[str]:
    """Col2Im adds up columns: each has the elements of the gradient under its window."""
    x, block = f.input(0), f.numbers(f.input(2))
    f.require(block is not None, "its derivative needs a block_shape that is constant")
    assert block is not None
    size = math.prod(block)
    picks = f("Cast", f.constant(np.eye(size).reshape(size, 1, *block)), to=f.dtype(x))
    found = f.convolved(single_channel(f, f.gradient), picks, **f.attributes("dilations", "pads", "strides"))
    return [f.reshaped_like(found, x)]


_SAMPLING = (
    "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode",
)  # fmt: skip


def resized(f: Adjoint) -> list[str]:
    """Resizing is a matrix along each axis: what it makes of the identity. The gradient takes its transpose."""
    x, gradient, rank = f.input(0), f.gradient, f.rank(f.input(0))
    f.require(
        f.attribute("keep_aspect_ratio_policy", "stretch") == "stretch", "of its aspect ratio no derivative is known"
    )
    axes = [axis % rank for axis in f.attribute("axes", range(rank))]
    is_same = [f.shape(x)[axis] == f.shape(f.result())[axis] and isinstance(f.shape(x)[axis], int) for axis in axes]
    for number, axis in enumerate(axes):
        if not is_same[number] or f.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
            order = [place for place in range(rank) if place != axis]
            last = f.transposed(gradient, *order, axis)
            last = f("MatMul", last, _matrix(f, number, axis, len(axes)))
            places = [*order, axis]
            gradient = f.transposed(last, *(places.index(place) for place in range(rank)))
    return [f.typed(gradient, x)]


def _matrix(f: Adjoint, number: int, axis: int, count: int) -> str:
    """Return the matrix ``[after, before]`` of an axis."""
    x, (roi, scales, sizes) = f.input(0), (f.input(place) for place in (1, 2, 3))
    extent = f.extent(x, axis)
    identity = f("EyeLike", f("Expand", f.like(1.0, x), f.concatenated(extent, extent, axis=0)))
    own = [f.sliced(one, 0, number, number + 1) if one else "" for one in (scales, sizes)]
    if roi and f.shape(roi) != (0,):
        sides = [f.sliced(roi, 0, place, place + 1) for place in (number, number + count)]
        roi = f.concatenated(*sides, axis=0)
    given = [identity, roi if roi and f.shape(roi) != (0,) else "", *own]
    while not given[-1]:
        given.pop()
    return f("Resize", *given, axes=[0], extrapolation_value=0.0, **f.attributes(*_SAMPLING))
