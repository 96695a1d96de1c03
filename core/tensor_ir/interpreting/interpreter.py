"""The interpreter: what stages and functions of the tensor IR mean, in NumPy.

`run_stages` evaluates stages whole arrays at a time, so it says what an operator computes; `run_function` (in
`machine_arithmetic`) walks the loops of a scheduled function one iteration after another, so it says what generated
code must do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

import numpy as np

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir import ir, numerics
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.interpreting.machine_operations import pure
from graft.core.tensor_ir.numerics import Array
from graft.core.tensor_ir.ordered_stages import at_first, carried_dimension, scan_of, stage_loops, with_carried
from graft.core.tensor_ir.visit import children, unknown

__all__ = ["CHUNK", "bind_symbols", "run_function", "run_stages", "static_value"]

_Item = TypeVar("_Item")
CHUNK = 1 << 21
"""Elements of a stage's iteration space that are evaluated at once, which bounds memory."""


def run_stages(stages: Sequence[ir.Stage], arrays: Mapping[ir.Buffer, Array]) -> dict[ir.Buffer, Array]:
    """Evaluate stages in order and return the contents of every buffer, inputs included.

    Symbolic extents are bound from the shapes of the arrays. An index outside a buffer raises AssertionError.
    """
    contents = {buffer: np.asarray(array) for buffer, array in arrays.items()}
    symbols = bind_symbols(contents)
    with np.errstate(all="ignore"):
        for loop in stage_loops(stages):
            if isinstance(loop[0].order, ir.Scan):
                _run_scan(loop, contents, symbols)
            else:
                contents[loop[0].buffer] = _run_stage(loop[0], contents, symbols)
    return contents


def bind_symbols(contents: Mapping[ir.Buffer, Array]) -> dict[ir.Variable, int]:
    """Return the values of the symbolic extents that stand alone in a shape; check the constant ones."""
    symbols: dict[ir.Variable, int] = {}
    for buffer, array in contents.items():
        assert array.ndim == len(buffer.shape), f"'{buffer.name}' has rank {len(buffer.shape)}, the array {array.ndim}"
        assert array.dtype == numerics.storage(buffer.dtype), f"'{buffer.name}' is {buffer.dtype}, not {array.dtype}"
        for extent, size in zip(buffer.shape, array.shape, strict=True):
            if isinstance(extent, ir.Variable):
                assert symbols.setdefault(extent, size) == size, f"'{extent.name}' is both {symbols[extent]} and {size}"
            elif isinstance(extent, ir.Constant):
                assert extent.value == size, f"'{buffer.name}' has shape {array.shape}, expected {extent.value}"
    return symbols


def static_value(expression: ir.Expression, symbols: Mapping[ir.Variable, int]) -> int:
    """Return the value of an index expression that depends on symbolic extents only."""
    if isinstance(expression, ir.Constant):
        return int(expression.value)
    grid = _Grid({}, {variable: np.asarray(value, np.int64) for variable, value in symbols.items()})
    return int(grid.evaluate(expression))


def _run_stage(stage: ir.Stage, contents: Mapping[ir.Buffer, Array], symbols: Mapping[ir.Variable, int]) -> Array:
    match stage.order:
        case ir.Scatter():
            held = _run_values(stage, contents, symbols)
            _scatter(stage.order, held, contents, symbols)
            return held
        case ir.Selection():
            return _select(stage, stage.order, contents, symbols)
        case ir.Scan() | None:
            return _run_values(stage, contents, symbols)
        case _:
            assert_never(stage.order)


def _run_scan(loop: Sequence[ir.Stage], contents: dict[ir.Buffer, Array], symbols: Mapping[ir.Variable, int]) -> None:
    """Evaluate the stages of a scan, position after position."""
    scan = scan_of(loop[0])
    for stage in loop:
        shape = tuple(static_value(extent, symbols) for extent in stage.buffer.shape)
        contents[stage.buffer] = np.empty(shape, numerics.storage(stage.buffer.dtype))
    extent = contents[loop[0].buffer].shape[carried_dimension(loop[0])]
    first = with_carried(loop, at_first)
    for step in range(extent):
        position = extent - 1 - step if scan.reverse else step
        for stage in first if step == 0 else loop:
            dimension = carried_dimension(stage)
            window = (slice(None),) * dimension + (position,)
            row = replace(
                stage,
                buffer=replace(stage.buffer, shape=_without(stage.buffer.shape, dimension)),
                axes=_without(stage.axes, dimension),
                order=None,
            )
            contents[stage.buffer][window] = _run_values(row, contents, {**symbols, scan.carried: position})


def _without(items: tuple[_Item, ...], place: int) -> tuple[_Item, ...]:
    return items[:place] + items[place + 1 :]


def _scatter(
    scatter: ir.Scatter, held: Array, contents: Mapping[ir.Buffer, Array], symbols: Mapping[ir.Variable, int]
) -> None:
    """Combine ``held`` with the updates, one after the other."""
    extents = tuple(static_value(axis.extent, symbols) for axis in scatter.axes)
    if 0 in extents:
        return
    block = tuple((0, extent) for extent in extents)
    grid = _grid(tuple(axis.variable for axis in scatter.axes), block, len(extents), contents, symbols)
    places = [np.broadcast_to(grid.evaluate(index), extents) for index in scatter.indices]
    updates = np.broadcast_to(grid.evaluate(scatter.update), extents)
    numerics.check_bounds("scatter", places, held.shape)
    for number in np.ndindex(extents):
        at, update = tuple(place[number] for place in places), np.asarray(updates[number])
        if scatter.operator == "set":
            held[at] = update
        else:
            held[at] = numerics.binary(scatter.operator, np.asarray(held[at]), update)


def _select(
    stage: ir.Stage, selection: ir.Selection, contents: Mapping[ir.Buffer, Array], symbols: Mapping[ir.Variable, int]
) -> Array:
    """Return the positions of the best candidates along the axis of their rank."""
    dimension = stage.axes.index(selection.rank)
    count = static_value(stage.buffer.shape[dimension], symbols)
    keys = replace(
        stage,
        buffer=replace(
            stage.buffer,
            dtype=stage.value.type.dtype,
            shape=(*_without(stage.buffer.shape, dimension), selection.candidate.extent),
        ),
        axes=(*_without(stage.axes, dimension), selection.candidate.variable),
        order=None,
    )
    values = _run_values(keys, contents, symbols)
    if stage.value.type.is_float:
        values = values.astype(np.float64)
    order = np.unique(values, return_inverse=True)[1].reshape(values.shape)  # NaN, all alike, comes last
    best = np.argsort(-order if selection.largest else order, axis=-1, kind="stable")[..., :count]
    return np.moveaxis(best, -1, dimension).astype(np.int64)


def _run_values(stage: ir.Stage, contents: Mapping[ir.Buffer, Array], symbols: Mapping[ir.Variable, int]) -> Array:
    shape = tuple(static_value(extent, symbols) for extent in stage.buffer.shape)
    inner = () if stage.reduction is None else stage.reduction.axes
    extents = shape + tuple(static_value(axis.extent, symbols) for axis in inner)
    variables = stage.axes + tuple(axis.variable for axis in inner)
    result = np.empty(shape, numerics.storage(stage.buffer.dtype))
    rank = len(shape)
    for block in _blocks(shape, math.prod(extents[rank:])):
        window = tuple(slice(start, stop) for start, stop in block)
        grid = _grid(variables[:rank], block, rank, contents, symbols)
        if stage.reduction is None:
            value = grid.evaluate(stage.value)
        else:
            value = _reduce(stage, block, extents, contents, symbols, grid)
        assert value.dtype == result.dtype, f"stage of '{stage.buffer.name}' gives {value.dtype}, not {result.dtype}"
        result[window] = value
    return result


def _reduce(
    stage: ir.Stage,
    block: tuple[tuple[int, int], ...],
    extents: tuple[int, ...],
    contents: Mapping[ir.Buffer, Array],
    symbols: Mapping[ir.Variable, int],
    outer: _Grid,
) -> Array:
    reduction = stage.reduction
    assert reduction is not None
    rank, shape = len(block), tuple(stop - start for start, stop in block)
    variables = stage.axes + tuple(axis.variable for axis in reduction.axes)
    total = np.broadcast_to(outer.evaluate(reduction.initial), shape)
    for part in _blocks(extents[rank:], math.prod(shape)):
        full = block + part
        value = _grid(variables, full, len(full), contents, symbols).evaluate(stage.value)
        value = np.broadcast_to(value, tuple(stop - start for start, stop in full))
        reduced = numerics.reduce(reduction.operator, value, tuple(range(rank, len(full))))
        total = numerics.binary(reduction.operator, total, reduced)
    if stage.epilogue is None:
        return total
    assert stage.epilogue_variable is not None, f"stage of '{stage.buffer.name}' has an epilogue without variable"
    return _Grid(outer.contents, {**outer.environment, stage.epilogue_variable: total}).evaluate(stage.epilogue)


def _blocks(extents: tuple[int, ...], inner: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Cut an iteration space into boxes of about `CHUNK` elements, each element standing for ``inner`` more."""
    if not extents:
        yield ()
        return
    below = max(1, inner) * max(1, math.prod(extents[1:]))
    step = max(1, CHUNK // below)
    for start in range(0, extents[0], step):
        head = (start, min(start + step, extents[0]))
        for rest in _blocks(extents[1:], inner * (head[1] - head[0])):
            yield (head, *rest)


def _grid(
    variables: tuple[ir.Variable, ...],
    block: tuple[tuple[int, int], ...],
    rank: int,
    contents: Mapping[ir.Buffer, Array],
    symbols: Mapping[ir.Variable, int],
) -> _Grid:
    environment = {variable: np.asarray(value, np.int64) for variable, value in symbols.items()}
    for position, (variable, (start, stop)) in enumerate(zip(variables, block, strict=True)):
        shape = [1] * rank
        shape[position] = stop - start
        environment[variable] = np.arange(start, stop, dtype=np.int64).reshape(shape)
    return _Grid(contents, environment)


@dataclass(slots=True)
class _Grid:
    """Scalar expressions over index grids: every variable is an array, shapes broadcast."""

    contents: Mapping[ir.Buffer, Array]
    environment: Mapping[ir.Variable, Array]
    known: dict[int, Array] = field(default_factory=dict)

    def evaluate(self, expression: ir.Expression) -> Array:
        """Return the values of an expression; a shared subexpression is computed once."""
        for node in unknown(expression, self.known):
            self.known[id(node)] = np.asarray(self._compute(node))
        return self.known[id(expression)]

    def _compute(self, expression: ir.Expression) -> Array:
        match expression:
            case ir.Constant(value, kind):
                return numerics.constant(value, kind.dtype)
            case ir.Variable():
                assert expression in self.environment, f"variable '{expression.name}' is not bound"
                return self.environment[expression]
            case ir.Load(buffer, indices, mask):
                return self._load(buffer, indices, mask)
            case ir.Bitcast(value, dtype) if expression.type.lanes > 1:
                assert value.type.lanes == 1, "a vector in a stage is made of one word"
                return numerics.regroup(self.evaluate(value), dtype)
            case ir.Intrinsic(name, arguments) if name in DOTS:
                return numerics.dot(*map(self.evaluate, arguments))
        if isinstance(expression, ir.Ramp | ir.Broadcast | ir.Shuffle | ir.Horizontal):
            raise AssertionError(f"{type(expression).__name__} in a stage; stages are scalar")
        return pure(expression)(*map(self.evaluate, children(expression)))

    def _load(self, buffer: ir.Buffer, indices: tuple[ir.Expression, ...], mask: ir.Expression | None) -> Array:
        assert buffer in self.contents, f"buffer '{buffer.name}' is read before it is written"
        data = self.contents[buffer]
        assert len(indices) == data.ndim, f"'{buffer.name}' has rank {data.ndim}, {len(indices)} indices given"
        places = [self.evaluate(index) for index in indices]
        if mask is None:
            numerics.check_bounds(buffer.name, places, data.shape)
            return np.asarray(data[tuple(places)])
        on = self.evaluate(mask)
        if not on.any():
            return np.zeros(np.broadcast_shapes(on.shape, *(place.shape for place in places)), data.dtype)
        places = [np.where(on, place, 0) for place in places]
        numerics.check_bounds(buffer.name, places, data.shape)
        return np.where(on, data[tuple(places)], data.dtype.type(0))
