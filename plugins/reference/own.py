"""Operators that `onnx.reference` computes wrongly, as ONNX says; imported with onnx when a module is loaded."""

# mypy: disallow_untyped_calls=False
from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops._op import OpRunReduceNumpy
from onnx.reference.ops.aionnxml.op_normalizer import Normalizer as OnnxNormalizer
from onnx.reference.ops.aionnxml.op_svm_classifier import SVMClassifier as OnnxSvmClassifier
from onnx.reference.ops.aionnxml.op_svm_classifier import sigmoid_probability
from onnx.reference.ops.op_conv import Conv as OnnxConv
from onnx.reference.ops.op_conv import im2col
from onnx.reference.ops.op_dropout import Dropout_12 as OnnxDropout
from onnx.reference.ops.op_grid_sample import GridSample as OnnxGridSample
from onnx.reference.ops.op_one_hot import OneHot as OnnxOneHot
from onnx.reference.ops.op_pad import Pad_18 as OnnxPad
from onnx.reference.ops.op_reduce_log_sum import ReduceLogSum_18 as OnnxReduceLogSum
from onnx.reference.ops.op_reduce_log_sum_exp import ReduceLogSumExp_18 as OnnxReduceLogSumExp
from onnx.reference.ops.op_resize import Resize as OnnxResize

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.plugins.reference.pools import AveragePool, LpPool, MaxPool, auto_pads

ML = "ai.onnx.ml"


class NonMaxSuppression(OpRun):
    """Scalar limits, and absent ones, besides those of shape ``[1]``."""

    op_domain = ""

    def _run(  # type: ignore[no-untyped-def]
        self, boxes, scores, max_output=None, iou_limit=None, score_limit=None, center_point_box=None
    ):
        most = 0 if max_output is None else int(np.asarray(max_output).reshape(-1)[0])
        overlap = 0.0 if iou_limit is None else float(np.asarray(iou_limit).reshape(-1)[0])
        least = None if score_limit is None else float(np.asarray(score_limit).reshape(-1)[0])
        corners = _corners(boxes, centred=bool(center_point_box))
        found = [
            (batch, kind, box)
            for batch in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in _kept(corners[batch], scores[batch, kind], most, overlap, least)
        ]
        return (np.array(found, np.int64).reshape(-1, 3),)


def _corners(boxes: np.ndarray, *, centred: bool) -> np.ndarray:
    """Return boxes as the lesser and the greater corner."""
    if centred:
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        return np.concatenate([centre - half, centre + half], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _kept(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float | None) -> list[int]:
    """Return the boxes of one class by falling score, without those that overlap a better one too much."""
    kept: list[int] = []
    for box in np.argsort(-scores, kind="stable").tolist():
        if len(kept) >= most:
            break
        if (least is None or scores[box] > least) and all(_iou(boxes[box], boxes[o]) <= overlap for o in kept):
            kept.append(box)
    return kept


def _iou(a: np.ndarray, b: np.ndarray) -> float:
    """Return the area of the intersection of two boxes over that of their union; 0 for empty ones."""
    shared = np.prod(np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0))
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return float(shared / union) if shared > 0 else 0.0


class GatherElements(OpRun):
    """Along an axis of any length: the evaluator's own takes at most 64 elements (``numpy.choose``)."""

    op_domain = ""

    def _run(self, data, indices, axis=None):  # type: ignore[no-untyped-def]
        axis = axis % data.ndim
        there = tuple(slice(None if one == axis else extent) for one, extent in enumerate(indices.shape))
        return (np.take_along_axis(data[there], indices, axis),)


class Unique(OpRun):
    """Along any axis in the order of first occurrence, where that is asked for."""

    op_domain = ""

    def _run(self, x, axis=None, sorted=None):  # type: ignore[no-untyped-def]
        values, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
        inverse = inverse.reshape(-1)
        if not sorted:
            order = np.argsort(first)
            places = np.empty_like(order)
            places[order] = np.arange(len(order))
            values = np.take(values, order, axis=0 if axis is None else axis)
            first, inverse, counts = first[order], places[inverse], counts[order]
        results = (values, *(array.astype(np.int64) for array in (first, inverse, counts)))
        return results[: len(self.onnx_node.output)]


class ReduceL2(OpRunReduceNumpy):
    """The squares of integers summed in float64, since they may not fit their own type."""

    op_domain = ""

    def _run(self, data, axes=None, keepdims=1, noop_with_empty_axes=0):  # type: ignore[no-untyped-def]
        axes = self.handle_axes(axes, noop_with_empty_axes)
        wide = data.astype(np.float64) if np.issubdtype(data.dtype, np.integer) else data
        total = np.sum(np.square(wide), axis=axes, keepdims=bool(keepdims))
        return (np.asarray(np.sqrt(total)).astype(data.dtype),)


class ReduceLogSum(OnnxReduceLogSum):
    """Of integers, too, which ONNX allows before opset 28: in float64."""

    op_domain = ""

    def _run(self, data, axes=None, keepdims=1, noop_with_empty_axes=0):  # type: ignore[no-untyped-def]
        return _in_float64(super()._run, data, axes, keepdims, noop_with_empty_axes)


class ReduceLogSumExp(OnnxReduceLogSumExp):
    """Of integers, too, which ONNX allows before opset 28: in float64."""

    op_domain = ""

    def _run(self, data, axes=None, keepdims=1, noop_with_empty_axes=0):  # type: ignore[no-untyped-def]
        return _in_float64(super()._run, data, axes, keepdims, noop_with_empty_axes)


def _in_float64(function: Any, data: np.ndarray, *rest: Any) -> tuple[np.ndarray]:
    """Return the result of a function of floats, truncated where ``data`` are integers."""
    (result,) = function(data.astype(np.float64) if data.dtype.kind in "iu" else data, *rest)
    return (np.asarray(result).astype(data.dtype),)


class LogSoftmax(OpRun):
    """Without the logarithm of a probability, which is 0 where an element is far below the largest."""

    op_domain = ""

    def _run(self, x, axis=None):  # type: ignore[no-untyped-def]
        if x.size == 0:
            return (x,)
        below = x - x.max(axis=axis, keepdims=True)
        return ((below - np.log(np.exp(below).sum(axis=axis, keepdims=True))).astype(x.dtype),)


class LRN(OpRun):
    """Over all channels, of any rank; `onnx.reference` goes over as many as there are images."""

    op_domain = ""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):  # type: ignore[no-untyped-def]
        before, channels = (size - 1) // 2, x.shape[1]
        squares = np.square(x)
        sums = np.stack(
            [squares[:, max(0, c - before) : c - before + size].sum(axis=1) for c in range(channels)], axis=1
        )
        return ((x / (bias + (alpha / size) * sums) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):
    """The first norm is a sum of magnitudes; that of nothing but zeros leaves them."""

    op_domain = ""

    def _run(self, x, axis=-1, p=2):  # type: ignore[no-untyped-def]
        norm = np.power(np.power(np.abs(x), p).sum(axis=axis, keepdims=True), 1 / p)
        return ((x / np.where(norm == 0, 1, norm)).astype(x.dtype),)


class Dropout(OnnxDropout):
    """A ratio that is left out before ``training_mode`` is a half, as one at the end is."""

    op_domain = ""

    def _run(self, *given, seed=None):  # type: ignore[no-untyped-def]
        return super()._run(*(0.5 if one is None else one for one in given), seed=seed)


class Conv(OnnxConv):
    """A dilated kernel takes what it meets alone: zeros between its elements would make NaN of infinities."""

    op_domain = ""

    def _run(  # type: ignore[no-untyped-def]
        self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None, pads=None, strides=None
    ):
        if all(one == 1 for one in dilations or ()) or np.isfinite(x).all():
            return super()._run(x, w, b, auto_pad, dilations, group, kernel_shape, pads, strides)
        spatial, steps = w.shape[2:], strides or [1] * len(dilations)
        reach = [(extent - 1) * dilation + 1 for extent, dilation in zip(spatial, dilations, strict=True)]
        pads = auto_pads(auto_pad, x.shape[2:], reach, steps) or pads or [0] * 2 * len(spatial)
        columns, places = im2col(x, spatial, pads, steps, dilations)
        outputs, inputs = len(w), x.shape[1]
        columns = columns.reshape(group, inputs // group * int(np.prod(spatial)), -1)
        sums = w.reshape(group, outputs // group, -1) @ columns
        y = sums.reshape(outputs, len(x), *places).swapaxes(0, 1)
        return ((y if b is None else y + b.reshape(-1, *[1] * len(places))).astype(x.dtype),)


class Slice(OpRun):
    """Bounds are counted from the front, then clamped: a step back from before the first element takes that one."""

    op_domain = ""

    def _run(self, data, starts, ends, axes=None, steps=None):  # type: ignore[no-untyped-def]
        cuts = [slice(None)] * data.ndim
        axes = range(len(starts)) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            extent, low, step = data.shape[axis], -1 if step < 0 else 0, int(step)
            first, last = (int(one) + extent * (one < 0) for one in (start, end))
            first, last = min(max(first, 0), extent + low), min(max(last, low), extent + low)
            is_some = (last - first) * step > 0
            cuts[axis] = slice(first, None if last < 0 else last, step) if is_some else slice(0, 0)
        return (data[tuple(cuts)],)


class OneHot(OnnxOneHot):
    """A choice of two values: their difference times 0 would make NaN of an infinity."""

    op_domain = ""

    def _run(self, indices, depth, values, axis=None):  # type: ignore[no-untyped-def]
        (hot,) = super()._run(indices, np.asarray(depth).reshape(()), np.array([0, 1], np.int8), axis=axis)
        return (np.where(hot == 1, values[1], values[0]),)


class GlobalMaxPool(OpRun):
    """Over any number of spatial axes, not over two."""

    op_domain = ""

    def _run(self, x):  # type: ignore[no-untyped-def]
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)


class Normalizer(OnnxNormalizer):
    """``MAX`` divides by the largest number, not by the largest magnitude."""

    op_domain = ML

    def _run(self, x, norm=None):  # type: ignore[no-untyped-def]
        if norm != "MAX":
            return super()._run(x, norm=norm)
        rows = x if x.ndim > 1 else x.reshape(1, -1)
        largest = rows.max(axis=1, keepdims=True)
        return ((rows / np.where(largest == 0, 1, largest)).reshape(x.shape).astype(np.float32),)


class Resize(OnnxResize):
    """To the nearest element is a choice: a weight of 0 would make NaN of an infinity beside it."""

    op_domain = ""

    def _run(self, x, roi=None, scales=None, sizes=None, **settings):  # type: ignore[no-untyped-def,override]
        if settings.get("mode") != "nearest" or np.isfinite(x.astype(np.float64)).all():
            return super()._run(x, roi, scales, sizes, **settings)
        beyond = np.asarray(settings.get("extrapolation_value") or 0, x.dtype)
        places = np.arange(x.size, dtype=np.float64).reshape(x.shape)
        (found,) = super()._run(places, roi, scales, sizes, **settings | {"extrapolation_value": -1.0})
        return (np.where(found < 0, beyond, x.reshape(-1)[found.astype(np.int64)]),)


class Pad(OnnxPad):
    """Negative widths, too, which take elements away."""

    op_domain = ""

    def _run(self, data, pads, constant_value=None, axes=None, mode=None):  # type: ignore[no-untyped-def]
        (padded,) = super()._run(data, np.maximum(pads, 0), constant_value, axes, mode)
        axes = range(data.ndim) if axes is None else [int(axis) for axis in axes]
        kept = [slice(None)] * data.ndim
        for axis, begin, end in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
            kept[axis] = slice(max(-begin, 0), padded.shape[axis] - max(-end, 0))
        return (padded[tuple(kept)],)


class SVMClassifier(OnnxSvmClassifier):
    """Probabilities of three classes and more by pairwise coupling.

    Wu, Lin and Weng (2004), "Probability Estimates for Multi-class Classification by Pairwise Coupling", section 4.3.
    """

    op_domain = ML

    def _probabilities(self, scores: np.ndarray, class_count: int) -> np.ndarray:
        pairs = np.zeros((class_count, class_count), scores.dtype)
        attributes: Any = self._svm.atts
        limits = attributes.prob_a, attributes.prob_b
        for number, (i, j) in enumerate(zip(*np.triu_indices(class_count, 1), strict=True)):
            probability = sigmoid_probability(scores[number], limits[0][number], limits[1][number])
            pairs[i, j] = min(max(probability, 1e-7), 1 - 1e-7)
            pairs[j, i] = 1 - pairs[i, j]
        return _coupled(pairs)


def _coupled(pairs: np.ndarray) -> np.ndarray:
    """Return the probabilities p that minimise the sum over i, j of ``(pairs[j, i] p[i] - pairs[i, j] p[j])**2``."""
    count = len(pairs)
    matrix = -pairs.T * pairs
    np.fill_diagonal(matrix, np.square(pairs).sum(0))
    p = np.full(count, 1 / count, pairs.dtype)
    for _ in range(max(100, count)):
        gradient = matrix @ p
        value = p @ gradient
        if np.abs(gradient - value).max() < 0.005 / count:
            break
        for i in range(count):
            step = (value - gradient[i]) / matrix[i, i]
            p[i] += step
            value = (value + step * (step * matrix[i, i] + 2 * gradient[i])) / (1 + step) ** 2
            gradient = (gradient + step * matrix[i]) / (1 + step)
            p /= 1 + step
    return p


SUMMING = frozenset({
    Trait.ATTENTION, Trait.CONTRACTION, Trait.CONVOLUTION, Trait.POOLING, Trait.RECURRENT, Trait.REDUCTION,
    Trait.ROW_WISE,
})  # fmt: skip
"""Traits of operators that add up many terms."""
OF_FEW = ("BatchNormalization", "Mean", "Sum")
"""Elementwise operators that round several times."""


def _adds_up(node: Any) -> bool:
    row = OPERATORS.get(node.op_type, node.domain)
    return row is not None and not node.domain and (node.op_type in OF_FEW or bool(SUMMING & row.traits))


class Evaluator(ReferenceEvaluator):
    """The evaluator, with sums of bfloat16 taken in float32, as every library takes them and ONNX leaves open.

    NumPy adds numbers of foreign types one after the other, rounding each time: of 4,096 ones it makes 256. It says
    nothing of infinities and NaN, which are answers like any other.
    """

    def run(self, *arguments: Any, **settings: Any) -> Any:
        """Compute as ReferenceEvaluator does."""
        with np.errstate(all="ignore"):
            return super().run(*arguments, **settings)

    def _load_impl(self, node: Any, input_types: Any = None) -> Any:
        made = super()._load_impl(node, input_types)
        return partial(_widened, made) if _adds_up(node) else made


def _widened(made: Any, *arguments: Any) -> Any:
    """Return an operator that computes in float32 what comes and goes in bfloat16."""
    operator = made(*arguments)
    narrow, run = np.dtype(ml_dtypes.bfloat16), operator._run

    def widened(*inputs: Any, **settings: Any) -> Any:
        if not any(getattr(one, "dtype", None) == narrow for one in inputs):
            return run(*inputs, **settings)
        wide = [one.astype(np.float32) if getattr(one, "dtype", None) == narrow else one for one in inputs]
        results = run(*wide, **settings)
        return tuple(np.asarray(one).astype(narrow) if _is_float(one) else one for one in results)

    operator._run = widened
    return operator


def _is_float(result: Any) -> bool:
    return getattr(result, "dtype", None) in (np.float32, np.float64)


class GridSample(OnnxGridSample):
    """Cubic at a border as PyTorch and ONNX Runtime compute it: pixels are clamped, the place between them is not.

    The modes may have the names that they had before opset 20.
    """

    op_domain = ""

    def _run(self, x, grid, mode=None, padding_mode=None, align_corners=None):  # type: ignore[no-untyped-def]
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        if mode != "cubic" or padding_mode != "border":
            return super()._run(x, grid, mode, padding_mode, align_corners)
        sizes = np.array(x.shape[2:])
        places = (grid[..., ::-1].astype(np.float64) + 1) / 2
        places = places * (sizes - 1) if align_corners else places * sizes - 0.5
        whole = np.floor(places)
        weights = _cubic_weights(places - whole)
        images = np.arange(len(x)).reshape(-1, *[1] * len(sizes))
        total = np.zeros((*grid.shape[:-1], x.shape[1]))
        for taps in product(range(4), repeat=len(sizes)):
            pixels = np.clip(whole.astype(np.int64) + np.array(taps) - 1, 0, sizes - 1)
            found = x[(images, slice(None), *np.moveaxis(pixels, -1, 0))]
            share = np.prod([weights[tap][..., axis] for axis, tap in enumerate(taps)], axis=0)
            total = total + found * share[..., None]
        return (np.moveaxis(total, -1, 1).astype(x.dtype),)


def _cubic_weights(fraction: np.ndarray) -> list[np.ndarray]:
    """Return the weights of the four pixels around a place (Keys 1981, a = -0.75), the one behind it first."""
    a = -0.75

    def near(t: np.ndarray) -> np.ndarray:
        return np.asarray(((a + 2) * t - (a + 3)) * t * t + 1)

    def far(t: np.ndarray) -> np.ndarray:
        return np.asarray(((a * t - 5 * a) * t + 8 * a) * t - 4 * a)

    return [far(1 + fraction), near(fraction), near(1 - fraction), far(2 - fraction)]


OWN: tuple[Any, ...] = (
    AveragePool, Conv, Dropout, GatherElements, GlobalMaxPool, GridSample, LRN, LogSoftmax, LpNormalization, LpPool,
    MaxPool, NonMaxSuppression, Normalizer, OneHot, Pad, ReduceL2, ReduceLogSum, ReduceLogSumExp, Resize,
    SVMClassifier, Slice, Unique,
)  # fmt: skip
"""What the evaluator takes instead of its own."""
