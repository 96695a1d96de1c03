"""Rows of operators that move, repeat and choose elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from graft.testkit.models.draw import Draw, Unfit, Value
from graft.testkit.models.rows import Row, a_float, an_axis


def moved(op_type: str, rank: tuple[int, int] = (1, 6)) -> Callable[[Callable[[Draw, Value], None]], Row]:
    """Make a row of a function that moves a value (mostly float32)."""

    def row(make: Callable[[Draw, Value], None]) -> Row:
        return Row(op_type, lambda draw: make(draw, a_float(draw, rank=rank, nonempty=draw.chance(0.9))), 2.0)

    return row


@moved("Transpose")
def transpose(draw: Draw, x: Value) -> None:
    perm = draw.rng.permutation(x.array.ndim).tolist()
    y = draw.Transpose(x, perm=perm, exact=True)
    if draw.chance(0.2):
        draw.Transpose(y, perm=np.argsort(perm).tolist() if draw.chance(0.5) else perm, exact=True)


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
    draw.Reshape(x, draw.constant(shape), exact=True)


@moved("Unsqueeze", (0, 4))
def unsqueeze(draw: Draw, x: Value) -> None:
    axes = draw.rng.permutation(x.array.ndim + 2)[: draw.integer(1, 2)]
    if len(axes) == 1:
        axes = axes % (x.array.ndim + 1)
    draw.Unsqueeze(x, draw.constant(axes.tolist()), exact=True)


@moved("Squeeze")
def squeeze(draw: Draw, x: Value) -> None:
    ones = [axis for axis, extent in enumerate(x.array.shape) if extent == 1]
    if not ones:
        raise Unfit
    draw.Squeeze(x, draw.constant([draw.one_of(ones)]) if draw.chance(0.7) else None, exact=True)


@moved("Flatten")
def flatten(draw: Draw, x: Value) -> None:
    draw.Flatten(x, axis=draw.integer(0, x.array.ndim), exact=True)


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
    draw.Slice(
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
        draw.Split(x, outputs=2, axis=axis, num_outputs=2, exact=True)
    else:
        first = draw.integer(1, extent - 1)
        draw.Split(x, draw.constant([first, extent - first]), outputs=2, axis=axis, exact=True)


@moved("Concat")
def concat(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    parts = [x]
    for _ in range(draw.integer(1, 3)):
        same = draw.pick(
            lambda one: one.dtype == draw.real and one.ndim == x.array.ndim
            and np.delete(one.shape, axis).tolist() == np.delete(x.array.shape, axis).tolist()
        )  # fmt: skip
        shape = list(x.array.shape)
        shape[axis] = draw.integer(1, 3)
        parts.append(same if same is not None and draw.chance(0.7) else draw.constant(draw.floats(shape)))
    draw.rng.shuffle(parts)
    draw.Concat(*parts, axis=axis, exact=True)


@moved("Expand", (0, 5))
def expand(draw: Draw, x: Value) -> None:
    shape = [draw.one_of((1, 2, 3)) if extent == 1 else draw.one_of((1, extent)) for extent in x.array.shape]
    draw.Expand(x, draw.constant([draw.one_of((1, 2))] * draw.integer(0, 1) + shape), exact=True)


@moved("Tile")
def tile(draw: Draw, x: Value) -> None:
    draw.Tile(x, draw.constant([draw.one_of((1, 1, 2, 3)) for _ in x.array.shape]), exact=True)


@moved("Pad")
def pad(draw: Draw, x: Value) -> None:
    mode = draw.one_of(("constant", "edge", "reflect", "wrap"))
    least = min(x.array.shape)
    if least == 0 or (mode in ("reflect", "wrap") and least < 3):
        mode = "constant" if least == 0 else "edge"
    widths = [draw.integer(0, 2) if draw.chance(0.5) else 0 for _ in range(2 * x.array.ndim)]
    if mode == "constant" and draw.chance(0.5):
        draw.Pad(x, draw.constant(widths), draw.constant(draw.real(0.5)), exact=True)
    else:
        draw.Pad(x, draw.constant(widths), mode=mode, exact=True)


@moved("CenterCropPad")
def center_crop_pad(draw: Draw, x: Value) -> None:
    draw.CenterCropPad(x, draw.constant([draw.integer(1, 5) for _ in x.array.shape]), exact=True)


@moved("Trilu", (2, 5))
def trilu(draw: Draw, x: Value) -> None:
    draw.Trilu(x, draw.constant(np.int64(draw.integer(-1, 1))), upper=draw.integer(0, 1), exact=True)


def depth_to_space(draw: Draw) -> None:
    x = draw.input(draw.floats((draw.one_of((1, 2)), 4, draw.one_of((2, 4)), 2)))
    if draw.chance(0.5):
        draw.DepthToSpace(x, blocksize=2, mode=draw.one_of(("DCR", "CRD")), exact=True)
    else:
        draw.SpaceToDepth(x, blocksize=2, exact=True)


@moved("ReverseSequence", (2, 5))
def reverse_sequence(draw: Draw, x: Value) -> None:
    batch, time = draw.one_of(((0, 1), (1, 0)))
    if min(x.array.shape[:2]) == 0:
        raise Unfit
    lengths = [draw.integer(1, x.array.shape[time]) for _ in range(x.array.shape[batch])]
    draw.ReverseSequence(x, draw.constant(lengths), batch_axis=batch, time_axis=time, exact=True)


@moved("Gather")
def gather(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    extent = x.array.shape[axis]
    if extent == 0:
        raise Unfit
    shape = draw.extents(draw.integer(0, 2)) if x.array.size < 256 else ()
    indices = draw.rng.integers(-extent, extent, shape)
    draw.Gather(x, draw.operand(np.asarray(indices, np.int64)), axis=axis, exact=True)


@moved("GatherElements")
def gather_elements(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    if x.array.size == 0:
        raise Unfit
    shape = list(x.array.shape)
    shape[axis] = draw.integer(1, 4)
    indices = draw.rng.integers(0, x.array.shape[axis], shape)
    draw.GatherElements(x, draw.constant(indices), axis=axis, exact=True)


@moved("GatherND")
def gather_nd(draw: Draw, x: Value) -> None:
    if x.array.size == 0:
        raise Unfit
    depth = draw.integer(1, x.array.ndim)
    rows = [[draw.integer(0, extent - 1) for extent in x.array.shape[:depth]] for _ in range(draw.integer(1, 4))]
    draw.GatherND(x, draw.constant(rows), exact=True)


@moved("Scatter")
def scatter(draw: Draw, x: Value) -> None:
    axis = an_axis(draw, x.array)
    if x.array.size == 0:
        raise Unfit
    if draw.chance(0.5):
        rows = draw.rng.permutation(x.array.shape[0])[: draw.integer(1, 3)].reshape(-1, 1)
        updates = draw.constant(draw.floats((len(rows), *x.array.shape[1:])))
        draw.ScatterND(x, draw.constant(rows), updates, reduction=draw.one_of(("none", "add", "max")))
    else:
        shape = [
            extent if place == axis % x.array.ndim else draw.integer(1, extent)
            for place, extent in enumerate(x.array.shape)
        ]
        order = np.argsort(draw.rng.random(shape), axis=axis)
        updates = draw.constant(draw.floats(shape))
        draw.ScatterElements(x, draw.constant(order), updates, axis=axis, reduction=draw.one_of(("none", "mul")))


def one_hot(draw: Draw) -> None:
    indices = draw.constant(draw.rng.integers(0, 4, draw.extents(draw.integer(1, 2))))
    draw.OneHot(indices, draw.constant(np.int64(4)), draw.constant(np.array([0.25, 1.5], draw.real)),
              axis=draw.one_of((-1, 0)), exact=True)  # fmt: skip


def shapes(draw: Draw) -> None:
    """What is known of a shape, and values made from it."""
    x = a_float(draw, rank=(1, 5), nonempty=False)
    shape = draw.Shape(x) if draw.chance(0.7) else draw.Shape(x, start=draw.integer(0, 1))
    if x.array.size > 1000:
        return
    match draw.integer(0, 3):
        case 0:
            draw.Size(x)
        case 1:
            value = np.array([draw.one_of((0.0, 1.5))], draw.real)
            draw.ConstantOfShape(shape, value=onnx.numpy_helper.from_array(value), exact=True)
        case 2:
            draw.Reshape(x, draw.constant([*x.array.shape, 1]), exact=True)
        case _:
            start = draw.constant(draw.real(draw.integer(0, 2)))
            draw.Range(start, draw.constant(draw.real(8)), draw.constant(draw.real(1.5)), exact=True)


@moved("EyeLike", (2, 2))
def eye_like(draw: Draw, x: Value) -> None:
    draw.EyeLike(x, k=draw.integer(-1, 1), exact=True)


@moved("Dropout", (0, 6))
def dropout(draw: Draw, x: Value) -> None:
    draw.Dropout(x, exact=True)


MOVES = (
    dropout, transpose, reshape, unsqueeze, squeeze, flatten, slice_, split, concat, expand, tile, pad, center_crop_pad,
    trilu, reverse_sequence, gather, gather_elements, gather_nd, scatter, eye_like,
    Row("depth_and_space", depth_to_space, 2.0), Row("OneHot", one_hot), Row("shapes", shapes),
)  # fmt: skip
