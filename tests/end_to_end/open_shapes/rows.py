"""Rows that exporters of open shapes write: sizes read from shapes and computed with, and operators that take them."""

from __future__ import annotations

import numpy as np

from graft.testkit.models.draw import Draw, Unfit, Value
from graft.testkit.models.moves import moved
from graft.testkit.models.products import an_image
from graft.testkit.models.rows import Row, a_float, an_axis


def size_of(draw: Draw, x: Value, axis: int) -> Value:
    """Return the extent of an axis as a tensor of one element, in one of the ways in which exporters write it."""
    axis %= x.array.ndim
    if draw.chance(0.4):
        return draw.Shape(x, start=axis, end=axis + 1)
    shape = draw.Shape(x)
    if draw.chance(0.5):
        return draw.Gather(shape, draw.constant([axis]), axis=0)
    one = draw.Gather(shape, draw.constant(np.int64(axis)), axis=0)
    return draw.Unsqueeze(one, draw.constant([0]))


def scalar(draw: Draw, one: Value) -> Value:
    """Return a tensor of one element without an axis."""
    return draw.Squeeze(one, draw.constant([0]))


def computed_size(draw: Draw, x: Value, axis: int) -> Value:
    """Return a size that depends on an extent: a half, one less, a multiple, the remainder."""
    size = size_of(draw, x, axis)
    match draw.integer(0, 5):
        case 0:
            return draw.Div(size, draw.constant([2]))
        case 1:
            less = draw.Sub(size, draw.constant([1]))
            return draw.Max(less, draw.constant([0]))
        case 2:
            rest = draw.Mod(size, draw.constant([draw.one_of((2, 3, 4))]))
            return draw.Sub(size, rest)
        case 3:
            return draw.Min(size, draw.constant([draw.integer(1, 6)]))
        case 4:
            more = draw.Add(size, draw.constant([draw.integer(1, 3)]))
            return draw.Div(more, draw.constant([2]))
        case _:
            return size


@moved("run_time_slice")
def run_time_slice(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    bound = computed_size(draw, x, axis)
    if draw.chance(0.3):
        bound = draw.Neg(bound)
    start, end = (draw.constant([draw.integer(-2, 2)]), bound) if draw.chance(0.6) else (bound, draw.constant([2**31]))
    if draw.chance(0.15):
        step, (start, end) = draw.constant([-1]), (end, start)
    else:
        step = draw.constant([draw.one_of((1, 1, 1, 2, 3))])
    draw.Slice(x, start, end, draw.constant([axis]), step, exact=True)


@moved("two_axis_slice", (2, 5))
def two_axis_slice(draw: Draw, x: Value) -> None:
    first, second = draw.rng.permutation(x.array.ndim)[:2].tolist()
    starts = draw.constant([draw.integer(-1, 1), draw.integer(0, 1)])
    ends = draw.Concat(computed_size(draw, x, first), computed_size(draw, x, second), axis=0)
    draw.Slice(x, starts, ends, draw.constant([first, second]), exact=True)


@moved("copied_reshape", (1, 5))
def copied_reshape(draw: Draw, x: Value) -> None:
    """Some axes as they are by 0, the others as one by -1, or with one divided."""
    kept = draw.integer(0, x.array.ndim - 1)
    last = x.array.shape[-1]
    if draw.chance(0.5):
        tail = [-1]
    else:
        divisors = [one for one in (1, 2, 3, 4) if last and last % one == 0]
        if not divisors:
            raise Unfit
        tail = [-1, draw.one_of(divisors)]
    draw.Reshape(x, draw.constant([0] * kept + tail), exact=True)


@moved("computed_reshape", (2, 5))
def computed_reshape(draw: Draw, x: Value) -> None:
    """Two neighbours as one, their product computed or by -1; or an axis divided by a number."""
    axis = draw.integer(0, x.array.ndim - 2)
    sizes = [size_of(draw, x, one) for one in range(x.array.ndim)]
    if draw.chance(0.5):
        joined = draw.Mul(sizes[axis], sizes[axis + 1]) if draw.chance(0.5) else draw.constant([-1])
        parts = [*sizes[:axis], joined, *sizes[axis + 2 :]]
    else:
        by = draw.one_of([one for one in (1, 2, 4) if x.array.shape[axis] % one == 0])
        part = draw.Div(sizes[axis], draw.constant([by]))
        parts = [*sizes[:axis], part, draw.constant([by]), *sizes[axis + 1 :]]
    shape = draw.Concat(*parts, axis=0)
    y = draw.Reshape(x, shape, exact=True)
    if draw.chance(0.3):
        whole = draw.Shape(x)
        draw.Reshape(y, whole, exact=True)


@moved("computed_expand", (0, 4))
def computed_expand(draw: Draw, x: Value) -> None:
    shape = draw.Shape(a_float(draw, rank=(1, 4)) if draw.chance(0.5) else x)
    if draw.chance(0.5):
        shape = draw.Concat(draw.constant([draw.integer(1, 3)]), shape, axis=0)
    draw.Expand(x, shape, exact=True)


@moved("computed_tile", (1, 3))
def computed_tile(draw: Draw, x: Value) -> None:
    other = a_float(draw, rank=(1, 4))
    axis = draw.integer(0, x.array.ndim - 1)
    count = computed_size(draw, other, an_axis(draw, other.array))
    parts = [count if one == axis else draw.constant([1]) for one in range(x.array.ndim)]
    draw.Tile(x, draw.Concat(*parts, axis=0), exact=True)


@moved("computed_pad", (1, 4))
def computed_pad(draw: Draw, x: Value) -> None:
    """An axis filled up to a multiple, or by a size that is computed."""
    axis = an_axis(draw, x.array)
    size = size_of(draw, x, axis)
    by = draw.constant([draw.one_of((2, 3, 4, 8))])
    width = draw.Mod(draw.Neg(size), by)
    zero = draw.constant([0])
    before, after = (width, zero) if draw.chance(0.3) else (zero, width)
    widths = draw.Concat(before, after, axis=0)
    mode = draw.one_of(("constant", "constant", "edge", "reflect", "wrap"))
    draw.Pad(x, widths, None, draw.constant([axis]), mode=mode, exact=True)


@moved("joined", (1, 5))
def joined(draw: Draw, x: Value) -> None:
    """A value with itself, with what was sliced of it, with an input of another length."""
    axis = an_axis(draw, x.array)
    match draw.integer(0, 2):
        case 0:
            parts = [x, x]
        case 1:
            part = draw.Slice(x, draw.constant([1]), draw.constant([2**31]), draw.constant([axis]),
                                exact=True)  # fmt: skip
            parts = [part, x]
        case _:
            shape = list(x.array.shape)
            shape[axis] = draw.integer(1, 5)
            parts = [x, draw.input(draw.floats(shape))]
    draw.Concat(*parts, axis=axis, exact=True)


@moved("uneven_split")
def uneven_split(draw: Draw, x: Value) -> None:
    axis, count = an_axis(draw, x.array), draw.integer(2, 3)
    if draw.chance(0.6):
        parts = draw.Split(x, outputs=count, axis=axis, num_outputs=count, exact=True)
    else:
        size = size_of(draw, x, axis)
        half = draw.Div(size, draw.constant([2]))
        rest = draw.Sub(size, half)
        sizes = draw.Concat(half, rest, axis=0)
        parts = draw.Split(x, sizes, outputs=2, axis=axis, exact=True)
    if draw.chance(0.5):
        draw.Concat(*reversed(parts), axis=axis, exact=True)


@moved("positions", (1, 4))
def positions(draw: Draw, x: Value) -> None:
    """The numbers of an axis, to gather with, to embed or to compare."""
    axis = an_axis(draw, x.array)
    end = scalar(draw, size_of(draw, x, axis))
    numbers = draw.Range(draw.constant(np.int64(0)), end, draw.constant(np.int64(draw.one_of((1, 1, 2)))))
    match draw.integer(0, 3):
        case 0:
            draw.Gather(x, numbers, axis=axis, exact=True)
        case 1:
            wrapped = draw.Mod(numbers, draw.constant(np.int64(5)))
            draw.Gather(draw.constant(draw.floats((5, draw.one_of((2, 3))))), wrapped, axis=0, exact=True)
        case 2:
            column = draw.Unsqueeze(numbers, draw.constant([1]))
            draw.LessOrEqual(numbers, column)
        case _:
            draw.Cast(numbers, to=1)


@moved("causal", (2, 4))
def causal(draw: Draw, x: Value) -> None:
    """A triangle of the size of the last two axes, added before a softmax."""
    sizes = [size_of(draw, x, axis) for axis in (-2, -1)]
    shape = draw.Concat(*sizes, axis=0)
    ones = draw.Expand(draw.constant(np.array([[-100.0]], draw.real)), shape, exact=True)
    mask = draw.Trilu(ones, draw.constant(np.int64(draw.integer(0, 2))), upper=1, exact=True)
    draw.Softmax(draw.Add(x, mask), axis=draw.one_of((-1, -2)))


def ceiling_pool(draw: Draw) -> None:
    x = an_image(draw)
    count = x.array.ndim - 2
    kernel = [draw.integer(1, 3) for _ in range(count)]
    kind = draw.one_of(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
    more = {"count_include_pad": draw.integer(0, 1)} if kind == "AveragePool" else {}
    if kind != "LpPool" and draw.chance(0.5):
        more["dilations"] = [draw.integer(1, 2) for _ in range(count)]
    if draw.chance(0.25):
        more["auto_pad"] = draw.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        more["ceil_mode"] = draw.one_of((1, 1, 0))
        more["pads"] = [draw.integer(0, one // 2) for one in kernel * 2]
    draw.call(kind, x, kernel_shape=kernel, strides=[draw.integer(1, 3) for _ in range(count)],
              exact=kind == "MaxPool", **more)  # fmt: skip


def open_resize(draw: Draw) -> None:
    """Sizes computed from shapes or scales, in all ways to say coordinates."""
    x = a_float(draw, rank=(3, 4))
    mode = draw.one_of(("nearest", "linear", "cubic"))
    coordinates = draw.one_of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    more = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        more |= {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    spatial = x.array.ndim - 2
    if draw.chance(0.5):
        lead = draw.Shape(x, start=0, end=2)
        tail = [computed_size(draw, x, 2 + axis) for axis in range(spatial)]
        sizes = draw.Concat(lead, *tail, axis=0)
        draw.Resize(x, None, None, sizes, exact=mode == "nearest", **more)
    else:
        scales = np.array([1, 1, *(draw.one_of((0.5, 1, 1.5, 2, 3)) for _ in range(spatial))], np.float32)
        draw.Resize(x, None, draw.constant(scales), exact=mode == "nearest", **more)


EQUATIONS = (
    "ij,kj->ik", "bij,bkj->bik", "bij,bjk->bik", "i,j->ij", "bhid,bhjd->bhij", "bi,bj->bij", "ij,ij->i", "ij->ji",
    "bij->bj", "...i,...i->...", "...ij,...jk->...ik",
)  # fmt: skip


def open_einsum(draw: Draw) -> None:
    """Products of a value with itself or an input that has its extents, summed as an equation says."""
    equation = draw.one_of(EQUATIONS)
    left, _, right = equation.partition("->")[0].partition(",")
    x = a_float(draw, -20, 20, rank=(len(left.replace("...", "")), len(left.replace("...", ""))))
    sizes = dict(zip(left.replace("...", ""), x.array.shape, strict=True))
    if not right:
        draw.Einsum(x, equation=equation)
        return
    shape = [sizes.get(one, draw.integer(1, 4)) for one in right.replace("...", "")]
    y = x if tuple(shape) == x.array.shape and draw.chance(0.5) else draw.input(draw.floats(shape))
    draw.Einsum(x, y, equation=equation)


def self_attention(draw: Draw) -> None:
    """Attention over an open length, heads given or apart, causal or with a mask, with what is past."""
    batch, length, heads, size = draw.one_of((1, 2)), draw.integer(1, 5), draw.one_of((1, 2)), draw.one_of((2, 4))
    groups = draw.one_of([one for one in (1, 2) if heads % one == 0])
    keys = draw.integer(1, 5)
    more: dict[str, int] = {"is_causal": 1} if draw.chance(0.4) else {}
    if draw.chance(0.5):
        q = draw.input(draw.floats((batch, heads, length, size)))
        k, v = (draw.input(draw.floats((batch, groups, keys, size))) for _ in range(2))
    else:
        more |= {"q_num_heads": heads, "kv_num_heads": groups}
        q = draw.input(draw.floats((batch, length, heads * size)))
        k, v = (draw.input(draw.floats((batch, keys, groups * size))) for _ in range(2))
    past = [draw.input(draw.floats((batch, groups, draw.integer(1, 3), size))) for _ in range(1)] * 2
    mask = draw.input(draw.floats((length, keys))) if draw.chance(0.3) else None
    if mask is None and draw.chance(0.3):
        draw.Attention(q, k, v, None, *past, outputs=3, **more)
    else:
        draw.Attention(q, k, v, mask, **more)


def open_recurrence(draw: Draw) -> None:
    """Every form of a recurrence: directions, lengths, initial states, layouts, activations."""
    steps, batch, size, hidden = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 4), draw.integer(1, 4)
    op_type, gates = draw.one_of((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    direction = draw.one_of(("forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    x = draw.input(draw.floats((steps, batch, size)))
    weights = draw.constant(draw.floats((count, gates * hidden, size), -0.7, 0.7))
    recurrent = draw.constant(draw.floats((count, gates * hidden, hidden), -0.7, 0.7))
    bias = draw.constant(draw.floats((count, 2 * gates * hidden))) if draw.chance(0.5) else None
    initial = draw.input(draw.floats((count, batch, hidden))) if draw.chance(0.4) else None
    more = {"linear_before_reset": draw.integer(0, 1)} if op_type == "GRU" else {}
    draw.call(op_type, x, weights, recurrent, bias, None, initial, outputs=2, hidden_size=hidden,
              direction=direction, **more)  # fmt: skip


@moved("flattened", (1, 5))
def flattened(draw: Draw, x: Value) -> None:
    """A mean over all but the first axis, or over axes that are computed."""
    axes = [axis for axis in range(x.array.ndim) if draw.chance(0.5)] or [-1]
    kind = draw.one_of(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp"))
    total = draw.call(kind, x, draw.constant(axes), keepdims=1, exact=kind == "ReduceMax")
    draw.call(draw.one_of(("Sub", "Mul", "Add")), x, total)


@moved("mean_by_size", (1, 4))
def mean_by_size(draw: Draw, x: Value) -> None:
    """A sum divided by a count that is read from the shape."""
    axis = an_axis(draw, x.array)
    total = draw.ReduceSum(x, draw.constant([axis]), keepdims=draw.integer(0, 1))
    size = draw.CastLike(size_of(draw, x, axis), total)
    draw.Div(total, size)


@moved("broadcast", (1, 4))
def broadcast(draw: Draw, x: Value) -> None:
    """An input whose extents are those of a value or 1, or are there without being needed."""
    shape = [extent if draw.chance(0.6) else 1 for extent in x.array.shape]
    other = draw.input(draw.floats(shape[draw.integer(0, len(shape) - 1) :]))
    draw.call(draw.one_of(("Add", "Mul", "Sub", "Max", "Min")), *((x, other) if draw.chance(0.5) else (other, x)))


@moved("outer", (1, 2))
def outer(draw: Draw, x: Value) -> None:
    """All pairs of the last axis, by two views of one value."""
    rows = draw.Unsqueeze(x, draw.constant([-1]))
    columns = draw.Unsqueeze(x, draw.constant([-2]))
    draw.call(draw.one_of(("Sub", "Mul", "Max")), rows, columns)


@moved("chosen", (1, 3))
def chosen(draw: Draw, x: Value) -> None:
    """As many as the data say: what is not zero, or what a condition takes."""
    mask = draw.Greater(x, draw.constant(draw.real(0.3)))
    if draw.chance(0.5):
        places = draw.NonZero(mask)
        if draw.chance(0.5):
            rows = draw.Transpose(places, perm=[1, 0])
            draw.GatherND(x, rows, exact=True)
    elif draw.chance(0.5):
        flat = draw.Reshape(mask, draw.constant([-1]))
        draw.Compress(x, flat, exact=True)


@moved("largest_of_all", (1, 3))
def largest_of_all(draw: Draw, x: Value) -> None:
    """TopK with a count that is computed."""
    if not x.exact:
        raise Unfit
    axis = an_axis(draw, x.array)
    draw.TopK(x, computed_size(draw, x, axis), axis=axis, outputs=2, exact=True)


@moved("instances", (3, 4))
def instances(draw: Draw, x: Value) -> None:
    c = x.array.shape[1]
    scale, bias = (draw.operand(draw.floats((c,), 0.5, 1.5)) for _ in range(2))
    kind = draw.one_of(("InstanceNormalization", "GroupNormalization", "BatchNormalization", "LRN"))
    match kind:
        case "BatchNormalization":
            draw.call(kind, x, scale, bias, draw.operand(draw.floats((c,))), draw.operand(draw.floats((c,), 0.5, 1)))
        case "GroupNormalization":
            draw.call(kind, x, scale, bias, num_groups=draw.one_of([one for one in (1, 2, c) if c % one == 0]))
        case "LRN":
            draw.call(kind, x, size=draw.one_of((1, 3)))
        case _:
            draw.call(kind, x, scale, bias)


@moved("dequantised", (1, 4))
def dequantised(draw: Draw, x: Value) -> None:
    """Quantised with a scale for each channel, and back, with a product of whole numbers or none."""
    if not x.exact:
        raise Unfit
    axis = an_axis(draw, x.array) % x.array.ndim
    scales = draw.constant(draw.rng.integers(1, 4, (x.array.shape[axis],)).astype(draw.real) / draw.real(32))
    zero = draw.constant(draw.rng.integers(-9, 9, (x.array.shape[axis],)).astype(np.int8))
    y = draw.QuantizeLinear(x, scales, zero, axis=axis, exact=True)
    draw.DequantizeLinear(y, scales, zero, axis=axis, exact=True)


def whole_numbers(draw: Draw) -> None:
    """Products and convolutions of eight-bit numbers with open extents."""
    m, k, n = draw.integer(1, 4), draw.integer(1, 6), draw.integer(1, 4)
    a = draw.input(draw.rng.integers(0, 255, (m, k)).astype(np.uint8))
    b = draw.input(draw.rng.integers(-128, 127, (k, n)).astype(np.int8))
    y = draw.MatMulInteger(a, b, draw.constant(np.uint8(draw.integer(0, 200))))
    y = draw.Cast(y, to=1)
    draw.Mul(y, draw.constant(np.float32(0.001)))


OPEN = (
    run_time_slice, two_axis_slice, copied_reshape, computed_reshape, computed_expand, computed_tile, computed_pad,
    joined, uneven_split, positions, causal, Row("ceiling_pool", ceiling_pool, 3.0),
    Row("open_resize", open_resize, 2.0), Row("open_einsum", open_einsum, 2.0),
    Row("self_attention", self_attention, 2.0), Row("open_recurrence", open_recurrence, 2.0), flattened, mean_by_size,
    broadcast, outer, chosen, largest_of_all, instances, dequantised, Row("whole_numbers", whole_numbers),
)  # fmt: skip
