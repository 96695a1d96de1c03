"""Derivatives of pools, for images of any rank.

Where windows lie apart, each element looks up the one that it belongs to, so nothing is scattered. Where they overlap,
what they choose is added up in the order of the windows, and means are a transposed convolution.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from onnx import TensorProto, helper

from graft.core.operators.definition.adjoint import Adjoint
from graft.core.operators.definition.function_body import Body
from graft.core.operators.definition.index_bounds import FROM_FRONT
from graft.core.operators.images.derivatives import Geometry, geometry_of, single_channel, spread


def _are_apart(f: Adjoint, w: Geometry) -> bool:
    """Whether no windows of the node overlap, of an image whose extents are numbers."""
    return w.are_apart and all(len(_extents(f, one)) == len(w.kernel) for one in (f.input(0), f.result()))


def _extents(f: Adjoint, value: str) -> list[int]:
    """Return those extents of an image that are numbers."""
    return [one for one in f.shape(value)[2:] if isinstance(one, int)]


def _beside(f: Adjoint, windows: str) -> str:
    """Return ``[n, c, h, w]`` as ``[n, c, h, 1, w, 1]``: one of each window, which broadcasts to its elements."""
    return f.unsqueezed(windows, *range(3, 2 * f.rank(windows) - 2, 2))


def _offsets(w: Geometry, axis: int) -> np.ndarray:
    """Return the places of the elements of a window and of what lies before the next, -1 where no element is."""
    places = np.arange(w.strides[axis])
    return np.where((places % w.dilations[axis] == 0) & (places < w.reach(axis)), places, -1)


def _along(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Return a vector along one of ``rank`` axes."""
    return values.reshape([-1 if place == axis else 1 for place in range(rank)])


def _are_elements(w: Geometry) -> np.ndarray:
    """Whether there is an element of a window, ``[stride, 1, stride]``, or what lies before the next."""
    rank = len(w.strides)
    return reduce(np.logical_and, [_along(_offsets(w, axis) >= 0, 2 * axis, 2 * rank - 1) for axis in range(rank)])


def _of_elements(f: Adjoint, values: str, w: Geometry) -> str:
    """Return what elements of windows that lie apart have, ``[n, c, h, stride, w, stride]``, in the image's order."""
    x = f.input(0)
    covered = [count * stride for count, stride in zip(_extents(f, f.result()), w.strides, strict=True)]
    image = f("Reshape", values, f.concatenated(f("Shape", x, end=2), f.ints(*covered), axis=0))
    begins = [-one for one in w.begins]
    ends = [extent - (end + begin) for extent, end, begin in zip(_extents(f, x), covered, begins, strict=True)]
    if any((*begins, *ends)):
        image = f("Pad", image, f.ints(0, 0, *begins, 0, 0, *ends))
    return f.typed(image, x)


def maximum(f: Adjoint) -> list[str]:
    """Each window's gradient goes to the first of its largest elements."""
    x = f.input(0)
    indices = f.result(1)
    if f.attribute("storage_order", 0):
        given = f.attributes("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
        indices = f.several(2, "MaxPool", x, **given)[1]
    w = geometry_of(f, f.attribute("kernel_shape"), x, f.result())
    if _are_apart(f, w):
        return [_of_elements(f, f.masked(_is_chosen(f, indices, w), _beside(f, f.gradient)), w)]
    gradient, places, zeros = (f.reshaped(one, 0, 0, -1) for one in (f.gradient, indices, f.filled(0.0, x)))
    places = f.cast(f("Sub", places, _begins(f, f.extent(zeros, 2), 1)), _index_type(f))
    sums = f("ScatterElements", zeros, places, gradient, axis=2, reduction="add")
    f.nodes[-1].metadata_props.add(key=FROM_FRONT)
    return [f.reshaped_like(sums, x)]


def _begins(f: Adjoint, size: str, ones: int) -> str:
    """Return the number of elements before each channel of ``size`` elements, ``[n, c, 1, ...]``."""
    x = f.input(0)
    begins = f("Mul", f.counted(f("Mul", f.extent(x, 0), f.extent(x, 1))), size)
    return f("Reshape", begins, f.concatenated(f("Shape", x, end=2), f.ints(*[1] * ones), axis=0))


def _index_type(f: Adjoint) -> int:
    """Return the type of places in the image: int32 where all are known to fit it."""
    extents = [one for one in f.shape(f.input(0)) if isinstance(one, int)]
    is_small = len(extents) == f.rank(f.input(0)) and math.prod(extents) < 2**31
    return int(TensorProto.INT32 if is_small else TensorProto.INT64)


def _is_chosen(f: Adjoint, indices: str, w: Geometry) -> str:
    """Whether an element of windows that lie apart is that of its window's index, ``[n, c, h, stride, w, stride]``."""
    x, rank = f.input(0), len(w.strides)
    inner, outer = _extents(f, x), _extents(f, f.result())
    steps = [math.prod(inner[axis + 1 :]) for axis in range(rank)]
    begins = [
        _along((np.arange(outer[axis]) * w.strides[axis] - w.begins[axis]) * steps[axis], 2 * axis, 2 * rank)
        for axis in range(rank)
    ]
    offsets = [_along(_offsets(w, axis), 2 * axis, 2 * rank - 1) for axis in range(rank)]
    places = np.where(_are_elements(w), sum(one * step for one, step in zip(offsets, steps, strict=True)), -1)
    images, kind = _begins(f, f.ints(math.prod(inner)), 2 * rank), _index_type(f)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    within = f("Sub", f.cast(_beside(f, indices), kind), f.cast(images, kind))
    return f("Equal", f("Sub", within, f.constant(sum(begins), dtype)), f.constant(places, dtype))


def unpooled(f: Adjoint) -> list[str]:
    """Elements have the gradients of the places that they went to."""
    f.require(not f.input(2), "of its output_shape no derivative is known")
    taken = f("GatherElements", f.reshaped(f.gradient, -1), f.reshaped(f.input(1), -1), axis=0)
    return [f.reshaped_like(taken, f.input(0))]


def average(f: Adjoint) -> list[str]:
    """Each element of a window has its part of the gradient."""
    x = f.input(0)
    w = geometry_of(f, f.attribute("kernel_shape"), x, f.result())
    if _are_apart(f, w):
        return [_of_elements(f, _shared(f, w), w)]
    gradient = f("Div", f.gradient, _counts(f, x, w))
    image, windows = (single_channel(f, one) for one in (x, gradient))
    ones = f("Cast", f.constant(np.ones((1, 1, *w.kernel))), to=f.dtype(x))
    return [f.reshaped_like(spread(f, windows, ones, image, w), x)]


def _shared(f: Adjoint, w: Geometry) -> str:
    """Return the parts of the elements of windows that lie apart, ``[n, c, h, stride, w, stride]``."""
    size = math.prod(w.kernel)
    parts = _beside(f, f.gradient if _are_whole(f, w) else f("Div", f.gradient, _counts(f, f.input(0), w)))
    is_element = _are_elements(w)
    parts = f.masked(f.constant(is_element), parts)
    return f.scaled(parts, 1 / size) if _are_whole(f, w) else parts


def _are_whole(f: Adjoint, w: Geometry) -> bool:
    """Whether all windows are the mean of as many elements."""
    is_padded = any((*w.begins, *w.ends)) and not f.attribute("count_include_pad", 0)
    return not is_padded and not f.attribute("ceil_mode", 0)


def _counts(f: Adjoint, x: str, w: Geometry) -> str:
    """Return how many elements each window is the mean of."""
    if _are_whole(f, w):
        return f.like(float(math.prod(w.kernel)), x)
    includes_pads = f.attribute("count_include_pad", 0)
    inner, outer = f.extents(x)[2:], f.extents(f.result())[2:]
    ones = np.ones((1, 1, *inner))
    sides = [(0, 0), (0, 0), *zip(w.begins, w.ends, strict=True)]
    ones = np.pad(ones, sides, constant_values=float(bool(includes_pads)))
    for axis, count in enumerate(outer):
        past = (count - 1) * w.strides[axis] + w.reach(axis) - ones.shape[2 + axis]
        ones = np.pad(ones, [(0, max(past, 0)) if place == 2 + axis else (0, 0) for place in range(ones.ndim)])
    kernel = f.constant(np.ones((1, 1, *w.kernel)))
    counts = f.convolved(f.constant(ones), kernel, strides=list(w.strides), dilations=list(w.dilations))
    return f("Cast", counts, to=f.dtype(x))


def mean_over_image(f: Body) -> None:
    """GlobalAveragePool."""
    x = f.input(0)
    f.give(0, f("ReduceMean", x, f.ints(*range(2, f.rank(x))), keepdims=1))


def largest_of_image(f: Body) -> None:
    """GlobalMaxPool: the first of the largest elements."""
    x = f.input(0)
    flat = f.reshaped(x, 0, 0, -1)
    taken = f("GatherElements", flat, f("ArgMax", flat, axis=2), axis=2)
    f.give(0, f("Unsqueeze", taken, f.ints(*range(3, f.rank(x)))) if f.rank(x) > 3 else taken)


def norm_over_image(f: Body) -> None:
    """GlobalLpPool."""
    x, p = f.input(0), f.attribute("p", 2)
    axes = f.ints(*range(2, f.rank(x)))
    if p <= 2:
        return f.give(0, f("ReduceL1" if p == 1 else "ReduceL2", x, axes, keepdims=1))
    total = f("ReduceSum", f("Pow", f("Abs", x), f.like(float(p), x)), axes, keepdims=1)
    return f.give(0, f("Pow", total, f.like(1.0 / p, x)))


def norm_of_windows(f: Body) -> None:
    """LpPool: a root of means of powers."""
    x, p, kernel = f.input(0), f.attribute("p", 2), f.attribute("kernel_shape")
    f.require(not f.attribute("ceil_mode", 0), "of its ceil_mode no derivative is known")
    given = f.attributes("auto_pad", "dilations", "pads", "strides")
    powers = f("Pow", f("Abs", x), f.like(float(p), x))
    means = f("AveragePool", powers, kernel_shape=kernel, count_include_pad=1, **given)
    f.give(0, f("Pow", f.scaled(means, float(math.prod(kernel))), f.like(1.0 / p, x)))
