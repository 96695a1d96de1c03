"""The rows that random models are drawn from: every operator of the built-in tables, with operands that suit it.

A row takes what it needs from the values there are (`Draw.pick`), makes up the rest, and adds one node or a few. It raises
`Unfit` where nothing suits. ``exact`` results are those that moving, comparing and choosing make of exact operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tests.end_to_end.random_models import Draw, Unfit, Value


@dataclass(frozen=True, slots=True)
class Row:
    """A way to go on with a model, and how often it is taken."""

    name: str
    make: Callable[[Draw], object]
    weight: float = 1.0


def a_float(
    draw: Draw,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    rank: tuple[int, int] = (0, 8),
    exact: bool = False,
    nonempty: bool = True,
) -> Value:
    """Return a float32 value with elements in ``[low, high]``."""

    def fits(array: np.ndarray) -> bool:
        inside = array.size == 0 or bool(array.min() >= low and array.max() <= high)
        return (
            array.dtype == np.float32
            and rank[0] <= array.ndim <= rank[1]
            and inside
            and (array.size > 0 or not nonempty)
        )

    found = draw.pick(fits, exact=exact)
    if found is None:
        raise Unfit
    return found


def of_kind(draw: Draw, kinds: str, rank: tuple[int, int] = (0, 8)) -> Value:
    """Return a value of one of NumPy's kinds of types."""
    found = draw.pick(lambda one: one.dtype.kind in kinds and rank[0] <= one.ndim <= rank[1] and one.size > 0)
    if found is None:
        raise Unfit
    return found


def an_axis(draw: Draw, array: np.ndarray) -> int:
    """Return an axis, counted from either end."""
    if array.ndim == 0:
        raise Unfit
    return draw.integer(-array.ndim, array.ndim - 1)


def narrowed(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape that broadcasts to ``shape``: some extents are 1, some leading axes gone."""
    kept = tuple(1 if draw.chance(0.4) else extent for extent in shape)
    return kept[draw.integer(0, len(kept)) :] if draw.chance(0.4) else kept


# Elementwise


def unary(op_type: str, low: float = -np.inf, high: float = np.inf, *, exact: bool | None = None, **attributes: float):
    """Return a row of an operator of one operand; ``exact=True`` where its result is; it then reads exact values."""

    def make(draw: Draw) -> None:
        x = a_float(draw, low, high, exact=bool(exact), nonempty=False)
        draw.call(op_type, x, exact=exact, **attributes)

    return Row(op_type, make)


UNARY = (
    *(unary(name) for name in (
        "Relu", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "Atan", "Asinh", "Softsign", "Elu", "Selu", "Celu", "LeakyRelu",
        "HardSigmoid", "HardSwish", "Mish", "Softplus", "Gelu", "Swish", "Abs", "Neg",
    )),
    *(unary(name, exact=True) for name in ("Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf", "ThresholdedRelu", "Shrink",
                                           "Identity")),
    unary("Elu", alpha=0.7), unary("Gelu", approximate="tanh"), unary("Swish", alpha=1.5), unary("LeakyRelu", alpha=0.2),
    unary("Exp", -5, 5), unary("Sinh", -4, 4), unary("Cosh", -4, 4), unary("Sqrt", 0.01), unary("Log", 0.01),
    unary("Reciprocal", 0.1), unary("Asin", -0.9, 0.9), unary("Acos", -0.9, 0.9), unary("Atanh", -0.9, 0.9),
    unary("Acosh", 1.1), unary("Tan", -1.2, 1.2),
)  # fmt: skip


def binary(op_type: str, low: float = -np.inf, *, exact: bool = False) -> Row:
    """Return a row of two operands, one of which is broadcast to the other or both to a third shape."""

    def make(draw: Draw) -> None:
        x = a_float(draw, exact=exact, nonempty=False)
        other = draw.pick(
            lambda one: one.dtype == np.float32 and broadcasts(one.shape, x.array.shape) and not (one < low).any(),
            exact=exact,
        )
        if other is None or draw.chance(0.4):
            shape = narrowed(draw, x.array.shape)
            if draw.chance(0.15):
                shape = tuple(draw.one_of((1, 2, 3)) if extent == 1 else extent for extent in x.array.shape)
            other = draw.operand(draw.floats(shape, max(low, -2.0), 2.0))
        swap = low == -np.inf and draw.chance(0.4)
        draw.call(op_type, *((other, x) if swap else (x, other)), exact=exact or None)

    return Row(op_type, make, 3.0 if op_type in ("Add", "Mul", "Sub", "Div") else 1.0)


def broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast to one of at most 4,096 elements."""
    try:
        return int(np.prod(np.broadcast_shapes(left, right))) <= 4096
    except ValueError:
        return False


def power(draw: Draw) -> None:
    """A constant exponent, or a computed one over positive bases."""
    exponent = draw.one_of((2.0, 3.0, 0.5, -1.0, 1.0, 1.7))
    x = a_float(draw, 0.1 if exponent not in (1.0, 2.0, 3.0) else -np.inf)
    shape = draw.one_of(((), (1,), (1,) * x.array.ndim))
    draw.call("Pow", x, draw.constant(np.full(shape, exponent, np.float32)))


def clip(draw: Draw) -> None:
    x = a_float(draw, nonempty=False)
    low = draw.constant(np.float32(-0.5)) if draw.chance(0.7) else None
    high = draw.constant(np.float32(0.6)) if draw.chance(0.7) else None
    draw.call("Clip", *((x, low, high) if high is not None else (x, low) if low is not None else (x,)), exact=True)


def variadic(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw)
        others = [draw.operand(draw.floats(narrowed(draw, x.array.shape))) for _ in range(draw.integer(0, 2))]
        draw.call(op_type, x, *others, x)

    return Row(op_type, make)


def prelu(draw: Draw) -> None:
    x = a_float(draw)
    draw.call("PRelu", x, draw.constant(draw.floats(narrowed(draw, x.array.shape))))


def where(draw: Draw) -> None:
    x = a_float(draw)
    condition = draw.pick(lambda one: one.dtype == np.bool_ and broadcasts(one.shape, x.array.shape))
    if condition is None:
        condition = draw.constant(draw.rng.random(narrowed(draw, x.array.shape)) < 0.5)
    both = [x, draw.operand(draw.floats(narrowed(draw, x.array.shape)))]
    draw.call("Where", condition, *(both if draw.chance(0.5) else both[::-1]), exact=True)


def logical(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = of_kind(draw, "b")
        if op_type == "Not":
            draw.call("Not", x)
        else:
            draw.call(op_type, x, draw.constant(draw.rng.random(narrowed(draw, x.array.shape)) < 0.5))

    return Row(op_type, make)


def bitwise(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        dtype = draw.one_of((np.int32, np.uint8, np.int64)) if op_type != "BitShift" else np.uint32
        x = draw.pick(lambda one: one.dtype == dtype) or draw.input(
            draw.rng.integers(0, 100, draw.extents(draw.integer(0, 3))).astype(dtype)
        )
        other = draw.constant(draw.rng.integers(0, 7, narrowed(draw, x.array.shape)).astype(dtype))
        match op_type:
            case "BitwiseNot":
                draw.call(op_type, x)
            case "BitShift":
                draw.call(op_type, x, other, direction=draw.one_of(("LEFT", "RIGHT")))
            case _:
                draw.call(op_type, x, other)

    return Row(op_type, make, 0.5)


def integers(draw: Draw) -> None:
    """Arithmetic on integers."""
    dtype = draw.one_of((np.int32, np.int64))
    x = draw.pick(lambda one: one.dtype == dtype and one.size > 0)
    if x is None or np.abs(x.array).max() > 1000:
        x = draw.input(draw.rng.integers(-50, 50, draw.extents(draw.integer(0, 3))).astype(dtype))
    other = draw.constant(draw.rng.integers(1, 9, narrowed(draw, x.array.shape)).astype(dtype))
    draw.call(draw.one_of(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")), x, other)


def float_remainder(draw: Draw) -> None:
    x = a_float(draw, exact=True)
    draw.call("Mod", x, draw.constant(draw.floats(narrowed(draw, x.array.shape), 0.5, 2.0)), fmod=1, exact=True)


def cast(draw: Draw) -> None:
    """To another type and, of numbers, back to float32."""
    x = draw.pick(lambda one: one.dtype in (np.float32, np.int64, np.int32, np.bool_), exact=True)
    if x is None:
        raise Unfit
    to = draw.one_of((1, 6, 7, 9, 11))
    (y,) = draw.call("Cast", x, to=to, exact=True)
    if to in (6, 7, 9, 11) and draw.chance(0.7):
        draw.call("Cast", y, to=1, exact=True) if draw.chance(0.6) else draw.call(
            "CastLike", y, draw.constant(np.float32(1)), exact=True
        )


ELEMENTWISE = (
    *UNARY,
    *(binary(name) for name in ("Add", "Sub", "Mul")),
    *(binary(name, exact=True) for name in ("Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")),
    binary("Div", 0.25),
    *(variadic(name) for name in ("Sum", "Mean", "Max", "Min")),
    *(logical(name) for name in ("And", "Or", "Xor", "Not")),
    *(bitwise(name) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift")),
    Row("Pow", power, 2.0), Row("Clip", clip, 2.0), Row("PRelu", prelu), Row("Where", where, 2.0),
    Row("integers", integers, 2.0), Row("Mod", float_remainder), Row("Cast", cast, 2.0),
)  # fmt: skip


# Moves


def moved(op_type: str, rank: tuple[int, int] = (1, 6)) -> Callable[[Callable[[Draw, Value], None]], Row]:
    """Make a row of a function that moves a value (mostly float32)."""

    def row(make: Callable[[Draw, Value], None]) -> Row:
        return Row(op_type, lambda draw: make(draw, a_float(draw, rank=rank, nonempty=draw.chance(0.9))), 2.0)

    return row


@moved("Transpose")
def transpose(draw: Draw, x: Value) -> None:
    perm = draw.rng.permutation(x.array.ndim).tolist()
    (y,) = draw.call("Transpose", x, perm=perm, exact=True)
    if draw.chance(0.2):
        draw.call("Transpose", y, perm=np.argsort(perm).tolist() if draw.chance(0.5) else perm, exact=True)


def factors(draw: Draw, size: int) -> list[int]:
    """Return a shape of ``size`` elements, with extents of 1 strewn in."""
    shape: list[int] = []
    while size > 1 and len(shape) < 4:
        divisors = [one for one in range(2, size + 1) if size % one == 0]
        shape.append(draw.one_of(divisors))
        size //= shape[-1]
    if size > 1:
        shape.append(size)
    for _ in range(draw.integer(0, 2)):
        shape.insert(draw.integer(0, len(shape)), 1)
    return shape


@moved("Reshape", (0, 6))
def reshape(draw: Draw, x: Value) -> None:
    if x.array.size == 0:
        raise Unfit
    shape = factors(draw, x.array.size)
    if shape and draw.chance(0.3):
        shape[draw.integer(0, len(shape) - 1)] = -1
    draw.call("Reshape", x, draw.constant(shape), exact=True)


@moved("Unsqueeze", (0, 4))
def unsqueeze(draw: Draw, x: Value) -> None:
    axes = draw.rng.permutation(x.array.ndim + 2)[: draw.integer(1, 2)]
    if len(axes) == 1:
        axes = axes % (x.array.ndim + 1)
    draw.call("Unsqueeze", x, draw.constant(axes.tolist()), exact=True)


@moved("Squeeze")
def squeeze(draw: Draw, x: Value) -> None:
    ones = [axis for axis, extent in enumerate(x.array.shape) if extent == 1]
    if not ones:
        raise Unfit
    draw.call("Squeeze", x, draw.constant([draw.one_of(ones)]) if draw.chance(0.7) else None, exact=True)


@moved("Flatten")
def flatten(draw: Draw, x: Value) -> None:
    draw.call("Flatten", x, axis=draw.integer(0, x.array.ndim), exact=True)


@moved("Slice")
def slice_(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    extent = x.array.shape[axis]
    if extent == 0:
        raise Unfit
    start = draw.integer(0, extent - 1)
    end = draw.integer(start + 1, extent) if draw.chance(0.8) else 2**31
    step = 1 if draw.chance(0.7) else draw.one_of((2, 3))
    if draw.chance(0.1):
        start, end, step = -1, -(2**31), -1
    draw.call(
        "Slice",
        x,
        draw.constant([start]),
        draw.constant([end]),
        draw.constant([axis]),
        draw.constant([step]),
        exact=True,
    )


@moved("Split")
def split(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    extent = x.array.shape[axis]
    if extent < 2:
        raise Unfit
    if draw.chance(0.4):
        draw.call("Split", x, outputs=2, axis=axis, num_outputs=2, exact=True)
    else:
        first = draw.integer(1, extent - 1)
        draw.call("Split", x, draw.constant([first, extent - first]), outputs=2, axis=axis, exact=True)


@moved("Concat")
def concat(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    parts = [x]
    for _ in range(draw.integer(1, 3)):
        same = draw.pick(
            lambda one: one.dtype == np.float32 and one.ndim == x.array.ndim
            and np.delete(one.shape, axis).tolist() == np.delete(x.array.shape, axis).tolist()
        )  # fmt: skip
        shape = list(x.array.shape)
        shape[axis] = draw.integer(1, 3)
        parts.append(same if same is not None and draw.chance(0.7) else draw.constant(draw.floats(shape)))
    draw.rng.shuffle(parts)  # type: ignore[arg-type]
    draw.call("Concat", *parts, axis=axis, exact=True)


@moved("Expand", (0, 5))
def expand(draw: Draw, x: Value) -> None:
    shape = [draw.one_of((1, 2, 3)) if extent == 1 else draw.one_of((1, extent)) for extent in x.array.shape]
    draw.call("Expand", x, draw.constant([draw.one_of((1, 2))] * draw.integer(0, 1) + shape), exact=True)


@moved("Tile")
def tile(draw: Draw, x: Value) -> None:
    draw.call("Tile", x, draw.constant([draw.one_of((1, 1, 2, 3)) for _ in x.array.shape]), exact=True)


@moved("Pad")
def pad(draw: Draw, x: Value) -> None:
    mode = draw.one_of(("constant", "edge", "reflect", "wrap"))
    least = min(x.array.shape)
    if least == 0 or (mode in ("reflect", "wrap") and least < 3):
        mode = "constant" if least == 0 else "edge"
    widths = [draw.integer(0, 2) if draw.chance(0.5) else 0 for _ in range(2 * x.array.ndim)]
    if mode == "constant" and draw.chance(0.5):
        draw.call("Pad", x, draw.constant(widths), draw.constant(np.float32(0.5)), exact=True)
    else:
        draw.call("Pad", x, draw.constant(widths), mode=mode, exact=True)


@moved("CenterCropPad")
def center_crop_pad(draw: Draw, x: Value) -> None:
    draw.call("CenterCropPad", x, draw.constant([draw.integer(1, 5) for _ in x.array.shape]), exact=True)


@moved("Trilu", (2, 5))
def trilu(draw: Draw, x: Value) -> None:
    draw.call("Trilu", x, draw.constant(np.int64(draw.integer(-1, 1))), upper=draw.integer(0, 1), exact=True)


@moved("DepthToSpace", (4, 4))
def depth_to_space(draw: Draw, x: Value) -> None:
    _, c, h, w = x.array.shape
    if c % 4 == 0 and c > 0:
        draw.call("DepthToSpace", x, blocksize=2, mode=draw.one_of(("DCR", "CRD")), exact=True)
    elif h % 2 == 0 and w % 2 == 0 and min(h, w) > 0:
        draw.call("SpaceToDepth", x, blocksize=2, exact=True)
    else:
        raise Unfit


@moved("ReverseSequence", (2, 5))
def reverse_sequence(draw: Draw, x: Value) -> None:
    batch, time = draw.one_of(((0, 1), (1, 0)))
    if min(x.array.shape[:2]) == 0:
        raise Unfit
    lengths = [draw.integer(1, x.array.shape[time]) for _ in range(x.array.shape[batch])]
    draw.call("ReverseSequence", x, draw.constant(lengths), batch_axis=batch, time_axis=time, exact=True)


@moved("Gather")
def gather(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    extent = x.array.shape[axis]
    if extent == 0:
        raise Unfit
    shape = draw.extents(draw.integer(0, 2)) if x.array.size < 256 else ()
    indices = draw.rng.integers(-extent, extent, shape)
    draw.call("Gather", x, draw.operand(np.asarray(indices, np.int64)), axis=axis, exact=True)


@moved("GatherElements")
def gather_elements(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    if x.array.size == 0:
        raise Unfit
    shape = list(x.array.shape)
    shape[axis] = draw.integer(1, 4)
    indices = draw.rng.integers(0, x.array.shape[axis], shape)
    draw.call("GatherElements", x, draw.constant(indices), axis=axis, exact=True)


@moved("GatherND")
def gather_nd(draw: Draw, x: Value) -> None:
    if x.array.size == 0:
        raise Unfit
    depth = draw.integer(1, x.array.ndim)
    rows = [[draw.integer(0, extent - 1) for extent in x.array.shape[:depth]] for _ in range(draw.integer(1, 4))]
    draw.call("GatherND", x, draw.constant(rows), exact=True)


@moved("Scatter")
def scatter(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    if x.array.size == 0:
        raise Unfit
    if draw.chance(0.5):
        rows = draw.rng.permutation(x.array.shape[0])[: draw.integer(1, 3)].reshape(-1, 1)
        updates = draw.constant(draw.floats((len(rows), *x.array.shape[1:])))
        draw.call("ScatterND", x, draw.constant(rows), updates, reduction=draw.one_of(("none", "add", "max")))
    else:
        shape = [
            extent if place == axis % x.array.ndim else draw.integer(1, extent)
            for place, extent in enumerate(x.array.shape)
        ]
        order = np.argsort(draw.rng.random(shape), axis=axis)
        updates = draw.constant(draw.floats(shape))
        draw.call(
            "ScatterElements", x, draw.constant(order), updates, axis=axis, reduction=draw.one_of(("none", "mul"))
        )


def one_hot(draw: Draw) -> None:
    indices = draw.constant(draw.rng.integers(0, 4, draw.extents(draw.integer(1, 2))))
    draw.call("OneHot", indices, draw.constant(np.int64(4)), draw.constant(np.array([0.25, 1.5], np.float32)),
              axis=draw.one_of((-1, 0)), exact=True)  # fmt: skip


def shapes(draw: Draw) -> None:
    """What is known of a shape, and values made from it."""
    x = a_float(draw, rank=(1, 5), nonempty=False)
    (shape,) = draw.call("Shape", x) if draw.chance(0.7) else draw.call("Shape", x, start=draw.integer(0, 1))
    if x.array.size > 1000:
        return
    match draw.integer(0, 3):
        case 0:
            draw.call("Size", x)
        case 1:
            value = np.array([draw.one_of((0.0, 1.5))], np.float32)
            import onnx

            draw.call("ConstantOfShape", shape, value=onnx.numpy_helper.from_array(value), exact=True)
        case 2:
            draw.call("Reshape", x, draw.constant([*x.array.shape, 1]), exact=True)
        case _:
            start = draw.constant(np.float32(draw.integer(0, 2)))
            draw.call("Range", start, draw.constant(np.float32(8)), draw.constant(np.float32(1.5)), exact=True)


@moved("EyeLike", (2, 2))
def eye_like(draw: Draw, x: Value) -> None:
    draw.call("EyeLike", x, k=draw.integer(-1, 1), exact=True)


MOVES = (
    transpose, reshape, unsqueeze, squeeze, flatten, slice_, split, concat, expand, tile, pad, center_crop_pad, trilu,
    depth_to_space, reverse_sequence, gather, gather_elements, gather_nd, scatter, eye_like,
    Row("OneHot", one_hot), Row("Shape", shapes),
)  # fmt: skip


# Reductions, normalisations


def reduction(op_type: str, low: float = -np.inf) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw, low, 8 if op_type in ("ReduceProd", "ReduceLogSumExp") else np.inf)
        if op_type == "ReduceProd" and x.array.size > 64:  # in another order a product of many may overflow on its way
            raise Unfit
        axes = draw.rng.permutation(x.array.ndim)[: draw.integer(0, x.array.ndim)].tolist()
        given = draw.constant([axis - x.array.ndim * draw.integer(0, 1) for axis in axes]) if axes else None
        draw.call(op_type, x, given, keepdims=draw.integer(0, 1), exact=op_type in ("ReduceMax", "ReduceMin"))

    return Row(op_type, make, 3.0 if op_type == "ReduceMean" else 1.0)


def spatial_mean(draw: Draw) -> None:
    x = a_float(draw, rank=(3, 5))
    draw.call("ReduceMean", x, draw.constant(list(range(2, x.array.ndim))))


def arg(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw, rank=(1, 5), exact=True)
        draw.call(op_type, x, axis=an_axis(draw, x.array), keepdims=draw.integer(0, 1),
                  select_last_index=draw.integer(0, 1))  # fmt: skip

    return Row(op_type, make)


def along(op_type: str, *, exact: bool = False, weight: float = 1.0) -> Row:
    """Return a row of an operator along one axis."""

    def make(draw: Draw) -> None:
        x = a_float(draw, rank=(1, 5), exact=exact)
        draw.call(op_type, x, axis=an_axis(draw, x.array), exact=exact or None)

    return Row(op_type, make, weight)


def cumulative(op_type: str) -> Row:
    def make(draw: Draw) -> None:
        x = a_float(draw, rank=(1, 4))
        axis = draw.constant(np.int64(an_axis(draw, x.array)))
        draw.call(op_type, x, axis, exclusive=draw.integer(0, 1), reverse=draw.integer(0, 1))

    return Row(op_type, make)


def top_k(draw: Draw) -> None:
    x = a_float(draw, rank=(1, 4), exact=True)
    axis = an_axis(draw, x.array)
    if len(np.unique(x.array)) < x.array.size:
        raise Unfit
    k = draw.integer(1, x.array.shape[axis])
    draw.call("TopK", x, draw.constant([k]), outputs=2, axis=axis, largest=draw.integer(0, 1), exact=True)


def layer_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(1, 5))
    axis = draw.integer(0, x.array.ndim - 1) if draw.chance(0.3) else x.array.ndim - 1
    shape = x.array.shape[axis:]
    scale = draw.operand(draw.floats(shape, 0.5, 1.5))
    if draw.chance(0.4):
        draw.call("RMSNormalization", x, scale, axis=axis)
    else:
        draw.call("LayerNormalization", x, scale, draw.constant(draw.floats(shape)) if draw.chance(0.7) else None,
                  axis=axis - x.array.ndim * draw.integer(0, 1))  # fmt: skip


def channel_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(3, 5))
    channels = x.array.shape[1]
    scale, shift = (draw.constant(draw.floats((channels,), 0.5, 1.5)) for _ in range(2))
    match draw.integer(0, 3):
        case 0:
            draw.call("InstanceNormalization", x, scale, shift)
        case 1:
            groups = draw.one_of([one for one in (1, 2, 4) if channels % one == 0])
            draw.call("GroupNormalization", x, scale, shift, num_groups=groups)
        case 2:
            if channels != x.array.shape[0]:  # onnx.reference goes over as many channels as there are images
                raise Unfit
            draw.call("LRN", x, size=draw.one_of((3, 5, 4)), alpha=0.01, beta=0.6, bias=2.0)
        case _:
            mean, variance = draw.constant(draw.floats((channels,))), draw.constant(draw.floats((channels,), 0.3, 2))
            draw.call("BatchNormalization", x, scale, shift, mean, variance)


def flat_batch_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(2, 2))
    rows = [draw.constant(draw.floats((x.array.shape[1],), 0.3, 2)) for _ in range(4)]
    draw.call("BatchNormalization", x, *rows)


def mean_variance_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(4, 4))
    if x.array.std(axis=(0, 2, 3)).min() < 0.1:
        raise Unfit
    draw.call("MeanVarianceNormalization", x)


def lp_normalization(draw: Draw) -> None:
    x = a_float(draw, rank=(1, 4))
    axis = an_axis(draw, x.array)
    if np.abs(x.array).max(axis=axis).min() < 0.1:
        raise Unfit
    draw.call("LpNormalization", x, axis=axis)  # p = 1: onnx.reference leaves out the absolute values


REDUCTIONS = (
    *(reduction(name) for name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1",
                                   "ReduceSumSquare", "ReduceLogSumExp")),
    reduction("ReduceL2", 0.1), reduction("ReduceLogSum", 0.1), Row("ReduceMean", spatial_mean),
    arg("ArgMax"), arg("ArgMin"), along("Softmax", weight=3.0), along("LogSoftmax"), along("Hardmax", exact=True),
    cumulative("CumSum"), Row("TopK", top_k), Row("LayerNormalization", layer_normalization, 2.0),
    Row("InstanceNormalization", channel_normalization, 2.0), Row("BatchNormalization", flat_batch_normalization),
    Row("LpNormalization", lp_normalization), Row("MeanVarianceNormalization", mean_variance_normalization),
)  # fmt: skip


# Products, windows, recurrences


def matmul(draw: Draw) -> None:
    """A product, with what often follows it."""
    x = a_float(draw, -20, 20, rank=(1, 5))
    k, n = x.array.shape[-1], draw.one_of((1, 2, 5, 16))
    other = draw.pick(
        lambda one: one.dtype == np.float32 and one.ndim >= 2 and one.size > 0 and one.shape[-2] == k
        and broadcasts(one.shape[:-2], x.array.shape[:-2]) and np.abs(one).max() < 20
    )  # fmt: skip
    if other is None or draw.chance(0.6):
        batch = narrowed(draw, x.array.shape[:-2]) if draw.chance(0.3) else ()
        other = draw.operand(draw.floats((*batch, k, n) if draw.chance(0.95) else (k,), -0.7, 0.7))
    (y,) = draw.call("MatMul", x, other)
    if draw.chance(0.5) and y.array.ndim:
        shape = y.array.shape[-1:] if draw.chance(0.6) else narrowed(draw, y.array.shape)
        (y,) = draw.call("Add", *draw.rng.permutation([y, draw.constant(draw.floats(shape))]).tolist())
    if draw.chance(0.4):
        draw.call(draw.one_of(("Relu", "Gelu", "Tanh", "Sigmoid", "Mish", "HardSwish")), y)


def gemm(draw: Draw) -> None:
    x = a_float(draw, rank=(2, 2))
    a, b = draw.integer(0, 1), draw.integer(0, 1)
    k, m = x.array.shape[:: 1 if a else -1]
    n = draw.one_of((1, 3, 8))
    weights = draw.operand(draw.floats((n, k) if b else (k, n), -0.7, 0.7))
    bias = draw.constant(draw.floats(narrowed(draw, (m, n)))) if draw.chance(0.7) else None
    more = {"alpha": 0.5, "beta": 0.25} if draw.chance(0.2) else {}
    draw.call("Gemm", x, weights, bias, transA=a, transB=b, **more)


def einsum(draw: Draw) -> None:
    x = a_float(draw, -20, 20, rank=(2, 4))
    letters = "abcd"[: x.array.ndim]
    weights = draw.constant(draw.floats((x.array.shape[-1], 3), -0.7, 0.7))
    draw.call("Einsum", x, weights, equation=f"{letters},{letters[-1]}z->{letters[:-1]}z")


def an_image(draw: Draw) -> Value:
    """Return a value with one to three spatial axes, a new input where there is none."""
    if draw.chance(0.3):
        spatial = draw.one_of((1, 2, 2, 2, 3))
        channels = draw.one_of((1, 3, 4, 16, 17))
        return draw.input(
            draw.floats((draw.one_of((1, 1, 2)), channels, *(draw.one_of((1, 4, 7)) for _ in range(spatial))))
        )
    return a_float(draw, rank=(3, 5))


def convolution(draw: Draw) -> None:
    """A convolution, with what often follows it."""
    x = an_image(draw)
    n, c, *sizes = x.array.shape
    groups = draw.one_of([1, 1, *(one for one in (2, c) if c % one == 0)])
    m = groups * draw.one_of((1, 2, 16 // groups or 1))
    kernel = [draw.one_of((1, 3)) for _ in sizes]
    attributes: dict[str, object] = {
        "group": groups,
        "strides": [draw.one_of((1, 1, 2)) for _ in sizes],
        "pads": [size // 2 for size in kernel] * 2,
    }
    if draw.chance(0.2):
        attributes["auto_pad"] = draw.one_of(("SAME_UPPER", "SAME_LOWER"))
        del attributes["pads"]
    elif draw.chance(0.2):
        attributes["dilations"] = [draw.one_of((1, 2)) for _ in sizes]
        attributes["pads"] = [size - 1 for size in kernel] * 2
    weights = draw.constant(draw.floats((m, c // groups, *kernel), -0.5, 0.5))
    bias = draw.constant(draw.floats((m,))) if draw.chance(0.5) else None
    (y,) = draw.call("Conv", x, weights, bias, **attributes)
    if draw.chance(0.3):
        other = draw.operand(draw.floats(y.array.shape if draw.chance(0.6) else (m, *(1,) * len(sizes))))
        (y,) = draw.call("Add", *draw.rng.permutation([y, other]).tolist())
    if draw.chance(0.4):
        draw.call(draw.one_of(("Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Mish")), y)


def transposed_convolution(draw: Draw) -> None:
    x = an_image(draw)
    _, c, *sizes = x.array.shape
    draw.call("ConvTranspose", x, draw.constant(draw.floats((c, 2, *(2 for _ in sizes)), -0.5, 0.5)),
              strides=[draw.one_of((1, 2)) for _ in sizes])  # fmt: skip


def pooling(draw: Draw) -> None:
    x = an_image(draw)
    sizes = x.array.shape[2:]
    op_type = draw.one_of(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    exact = op_type.endswith("MaxPool")
    if op_type.startswith("Global"):
        (y,) = draw.call(op_type, x, exact=exact)
        if y.array.ndim != x.array.ndim:  # onnx.reference's GlobalMaxPool of three spatial axes
            raise Unfit
        return
    kernel = [min(draw.one_of((1, 2, 3)), size) for size in sizes]
    strides = [draw.one_of((1, 2)) for _ in sizes]
    pads = [draw.integer(0, size // 2) for size in kernel] * 2 if op_type != "LpPool" else [0] * (2 * len(sizes))
    more = {"count_include_pad": draw.integer(0, 1)} if op_type == "AveragePool" else {}
    draw.call(op_type, x, kernel_shape=kernel, strides=strides, pads=pads, exact=exact, **more)


def resize(draw: Draw) -> None:
    x = a_float(draw, rank=(4, 4))
    scales = draw.constant(np.array([1, 1, draw.one_of((1, 2)), 2], np.float32))
    mode = draw.one_of(("nearest", "linear"))
    draw.call("Resize", x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
              nearest_mode="floor", exact=mode == "nearest")  # fmt: skip


def recurrence(draw: Draw) -> None:
    """RNN, GRU or LSTM over few steps; one step is what decoding does."""
    steps, batch, size, hidden = draw.one_of((1, 1, 3)), draw.one_of((1, 2)), draw.one_of((1, 4)), draw.one_of((1, 5))
    op_type, gates = draw.one_of((("RNN", 1), ("GRU", 3), ("LSTM", 4)))
    x = draw.pick(lambda one: one.dtype == np.float32 and one.ndim == 3 and 0 < one.size < 300) or draw.input(
        draw.floats((steps, batch, size))
    )
    size = x.array.shape[2]
    weights = draw.constant(draw.floats((1, gates * hidden, size), -0.7, 0.7))
    recurrent = draw.constant(draw.floats((1, gates * hidden, hidden), -0.7, 0.7))
    bias = draw.constant(draw.floats((1, 2 * gates * hidden))) if draw.chance(0.6) else None
    draw.call(op_type, x, weights, recurrent, bias, outputs=2, hidden_size=hidden)


def attention(draw: Draw) -> None:
    batch, heads, queries, keys, size = 1, draw.one_of((1, 2)), draw.one_of((1, 1, 4)), draw.one_of((1, 4)), 8
    q = draw.input(draw.floats((batch, heads, queries, size)))
    k, v = (draw.operand(draw.floats((batch, heads, keys, size))) for _ in range(2))
    mask = draw.constant(draw.floats((queries, keys))) if draw.chance(0.4) else None
    draw.call("Attention", q, k, v, mask)


def rotary(draw: Draw) -> None:
    heads, steps, size = draw.one_of((1, 2)), draw.one_of((1, 3)), draw.one_of((2, 8))
    x = draw.input(draw.floats((1, heads, steps, size)))
    cos, sin = (draw.constant(draw.floats((1, steps, size // 2), -1, 1)) for _ in range(2))
    draw.call("RotaryEmbedding", x, cos, sin, interleaved=draw.integer(0, 1))


def quantized(draw: Draw) -> None:
    """Rounding to 8 bits and back, of exact values, for a value near a tie may go either way."""
    x = a_float(draw, exact=True)
    if x.array.size == 0:
        raise Unfit
    scale, zero = draw.constant(np.float32(0.0625)), draw.constant(np.uint8(draw.integer(100, 140)))
    if draw.chance(0.2):
        draw.call("DynamicQuantizeLinear", draw.input(draw.floats((2, 3))), outputs=3)
        return
    (y,) = draw.call("QuantizeLinear", x, scale, zero, exact=True)
    draw.call("DequantizeLinear", y, scale, zero, exact=True)


def integer_product(draw: Draw) -> None:
    x = draw.input(draw.rng.integers(0, 255, (draw.one_of((1, 3)), 5)).astype(np.uint8))
    weights = draw.constant(draw.rng.integers(-9, 9, (5, draw.one_of((1, 4)))).astype(np.int8))
    if draw.chance(0.5):
        draw.call("MatMulInteger", x, weights, draw.constant(np.uint8(3)))
        return
    scale, zero, shift = (draw.constant(one) for one in (np.float32(0.0625), np.uint8(3), np.int8(0)))
    draw.call("QLinearMatMul", x, scale, zero, weights, scale, shift, draw.constant(np.float32(0.37)), zero)


def integer_convolution(draw: Draw) -> None:
    x = draw.input(draw.rng.integers(0, 255, (1, 3, 4, 4)).astype(np.uint8))
    weights = draw.constant(draw.rng.integers(0, 9, (4, 3, 3, 3)).astype(np.uint8))
    zero = draw.constant(np.uint8(3))
    if draw.chance(0.5):
        draw.call("ConvInteger", x, weights, zero)
        return
    scale = draw.constant(np.float32(0.0625))
    draw.call("QLinearConv", x, scale, zero, weights, scale, zero, draw.constant(np.float32(0.37)), zero)


PRODUCTS = (
    Row("MatMul", matmul, 8.0), Row("Gemm", gemm, 3.0), Row("Einsum", einsum), Row("Conv", convolution, 6.0),
    Row("ConvTranspose", transposed_convolution), Row("pooling", pooling, 3.0), Row("Resize", resize),
    Row("recurrence", recurrence), Row("Attention", attention), Row("RotaryEmbedding", rotary),
    Row("QuantizeLinear", quantized), Row("MatMulInteger", integer_product), Row("ConvInteger", integer_convolution),
)  # fmt: skip


# What exporters write for one decoding step


def split_heads(draw: Draw) -> None:
    """Projection, heads apart, scores, and heads together again; sequences of length 1 mostly."""
    steps, heads, size = draw.one_of((1, 1, 1, 3)), draw.one_of((1, 2)), draw.one_of((1, 4))
    width = heads * size
    x = draw.input(draw.floats((1, steps, width)))
    parts = []
    for _ in range(3):
        (y,) = draw.call("MatMul", x, draw.constant(draw.floats((width, width), -0.7, 0.7)))
        (y,) = draw.call("Reshape", y, draw.constant([1, steps, heads, size]))
        (y,) = draw.call("Transpose", y, perm=[0, 2, 1, 3])
        parts.append(rms_normalized(draw, y) if draw.chance(0.4) else y)
    q, k, v = (rotated(draw, one) if draw.chance(0.4) else one for one in parts)
    (k,) = draw.call("Transpose", k, perm=[0, 1, 3, 2])
    (scores,) = draw.call("MatMul", q, k)
    (scores,) = draw.call("Mul", scores, draw.constant(np.float32(size**-0.5)))
    (scores,) = draw.call("Add", scores, draw.constant(draw.floats((1, 1, steps, steps))))
    (weights,) = draw.call("Softmax", scores, axis=-1)
    (y,) = draw.call("MatMul", weights, v)
    (y,) = draw.call("Transpose", y, perm=[0, 2, 1, 3])
    (y,) = draw.call("Reshape", y, draw.constant([1, steps, width]))
    draw.call("Add", x, y)


def rms_normalized(draw: Draw, x: Value) -> Value:
    """Return ``x / sqrt(mean(x^2) + epsilon) * scale`` as exporters write it out."""
    (square,) = draw.call("Pow", x, draw.constant(np.float32(2)))
    (mean,) = draw.call("ReduceMean", square, draw.constant([-1]))
    (shifted,) = draw.call("Add", mean, draw.constant(np.float32(0.01)))
    (root,) = draw.call("Sqrt", shifted)
    if draw.chance(0.5):
        (factor,) = draw.call("Reciprocal", root)
        (y,) = draw.call("Mul", x, factor)
    else:
        (y,) = draw.call("Div", x, root)
    shape = (1,) * draw.integer(0, x.array.ndim - 1) + x.array.shape[-1:]
    (y,) = draw.call("Mul", y, draw.constant(draw.floats(shape, 0.5, 1.5)))
    return y


def rotated(draw: Draw, x: Value) -> Value:
    """Return ``x * cos + rotate_half(x) * sin``."""
    size = x.array.shape[-1]
    if size < 2:
        return x
    bounds = [draw.constant([place]) for place in (0, size // 2, 2**31)]
    axes = draw.constant([-1])
    (front,) = draw.call("Slice", x, bounds[0], bounds[1], axes)
    (behind,) = draw.call("Slice", x, bounds[1], bounds[2], axes)
    (behind,) = draw.call("Neg", behind)
    (turned,) = draw.call("Concat", behind, front, axis=-1)
    cos, sin = (draw.constant(draw.floats((1, 1, x.array.shape[2], size), -1, 1)) for _ in range(2))
    (left,) = draw.call("Mul", x, cos)
    (right,) = draw.call("Mul", turned, sin)
    return draw.call("Add", left, right)[0]


def normalized(draw: Draw) -> None:
    rms_normalized(draw, a_float(draw, rank=(1, 4)))


def gated(draw: Draw) -> None:
    """Swish as exporters write it, behind a product, or a gate by another branch."""
    x = a_float(draw, rank=(1, 4))
    (gate,) = draw.call("Sigmoid", x)
    (y,) = draw.call("Mul", x, gate)
    if draw.chance(0.5):
        draw.call("Mul", y, a_float(draw, rank=(x.array.ndim, x.array.ndim))) if draw.chance(0.3) else draw.call(
            "Add", y, x
        )


def channel_gate(draw: Draw) -> None:
    """Squeeze-and-excite: channels weighted by what their means say."""
    x = an_image(draw)
    (mean,) = draw.call("GlobalAveragePool", x)
    (gate,) = draw.call("HardSigmoid", mean)
    draw.call("Mul", *((x, gate) if draw.chance(0.5) else (gate, x)))


BLOCKS = (
    Row("split_heads", split_heads, 3.0), Row("rms", normalized, 2.0), Row("gated", gated, 2.0),
    Row("channel_gate", channel_gate),
)  # fmt: skip

ROWS = (*ELEMENTWISE, *MOVES, *REDUCTIONS, *PRODUCTS, *BLOCKS)
