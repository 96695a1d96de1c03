"""A stage as stages of the tensor IR, in order: what is brought near, products, actions, and the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from graft.core.operators.definition import build as b
from graft.core.schedule.primitives.plain_nest import plain_nest
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.visit import map_accesses, substitute
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.intrinsics import ACCUMULATOR, INPUT, WEIGHT, Intrinsic, operation, product
from graft.plugins.accelerator.isa import Operation
from graft.plugins.accelerator.stages import VECTORS, Action, Operand, Stage
from graft.plugins.accelerator.tiling import Kind


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage's function, and by suffix of its loops which intrinsic the loop ``m`` means.

    ``orders`` are the loops of sums, by suffix, as they should stand: terms of a sum that are brought in parts
    outermost, lanes innermost. ``inputs`` are the copies of inputs with the suffix of the products that read them.
    """

    function: ir.Function
    intrinsics: dict[str, Intrinsic]
    orders: dict[str, str]
    inputs: dict[str, str]


def nest_of(stage: Stage, configuration: Configuration) -> Nest:
    """Return the plain loops of a stage.

    Parameters are ``x0``, ``x1``, ... (the blocks of its inputs), ``w``, ``v`` (vectors), ``other`` (what is moved) and
    ``y``. Buffers in the accelerator's memories are as large as the tensors: the schedule makes them those of a tile.
    """
    return _Builder(stage, configuration.block_out).nest()


def times_of(zero: int) -> int:
    """Return in how many steps a zero point is taken away: what is taken must fit into 8 bits."""
    return 2 if zero == -128 else 1


@cache
def axes_of(suffix: str, names: str = "norcm") -> tuple[ir.Variable, ...]:
    """Return variables: images, blocks of outputs, rows, columns and lanes, or others."""
    return tuple(ir.Variable(f"{name}.{suffix}" if suffix else name) for name in names)


@dataclass(slots=True)
class _Builder:
    stage: Stage
    lanes: int
    copies: list[ir.Stage] = field(default_factory=list)
    work: list[ir.Stage] = field(default_factory=list)
    inputs: dict[str, ir.Buffer] = field(default_factory=dict)
    intrinsics: dict[str, Intrinsic] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)

    def nest(self) -> Nest:
        stage, shape, lanes = self.stage, self.stage.shape, self.lanes
        extents = (shape.images, shape.outputs, *shape.result, lanes)
        total = _buffer("total", "int32", extents, ACCUMULATOR)
        xs = [self._plane(f"x{number}", one, shape.size, shape.pitch) for number, one in enumerate(stage.inputs)]
        if stage.weights:
            self._weights()
        vectors = None
        if stage.vectors is not None:
            v = self.inputs["v"] = _buffer("v", "int32", (len(stage.vectors), lanes))
            vectors = _buffer("vectors", "int32", (len(stage.vectors), lanes), ACCUMULATOR)
            places = axes_of("vectors", "im")
            self.copies.append(ir.Stage(vectors, places, ir.Load(v, places)))
        match shape.kind:
            case Kind.BLOCKS:
                self._blocks(total, xs)
            case Kind.LANES | Kind.SUM:
                self._lanes(total, xs[0])
            case Kind.MAXIMUM if shape.taps > 1:
                self._maximum(total, xs[0])
            case Kind.MAXIMUM | Kind.MOVE:
                self._move("first", self.work, total, self._window("input0", "first", xs[0]))
        beside = None if stage.moved is None else self._beside(stage.moved, extents)
        for number, action in enumerate(stage.actions):
            self._act(f"act{number}", action, total, beside, vectors)
        y, places = self._plane("y", stage.output, shape.result, shape.result[1]), axes_of("")
        self.work.append(ir.Stage(y, places, b.cast(ir.Load(total, places), "int8")))
        function = plain_nest("stage", [*self.copies, *self.work], [*self.inputs.values()][:-1], [y])
        return Nest(function, self.intrinsics, self.orders, self.readers)

    # ---- Buffers --------------------------------------------------------------------------------------------------

    def _plane(self, name: str, operand: Operand, size: tuple[int, int], pitch: int) -> ir.Buffer:
        """Return the blocks of a tensor in DRAM, of which rows are ``pitch`` places apart."""
        lanes = self.lanes
        shape = (self.stage.shape.images, operand.count, *size, lanes)
        strides = (operand.blocks * operand.plane * lanes, operand.plane * lanes, pitch * lanes, lanes, 1)
        self.inputs[name] = ir.Buffer(name, "int8", tuple(map(b.index, shape)), tuple(map(b.index, strides)))
        return self.inputs[name]

    def _weights(self) -> None:
        shape, lanes = self.stage.shape, self.lanes
        images = (shape.images,) if self.stage.is_computed else ()
        blocks = (*images, shape.outputs, shape.inputs, shape.parts, *shape.kernel)
        blocks = (shape.outputs, shape.lane_entries) if shape.kind is Kind.LANES else blocks
        self.inputs["w"] = _buffer("w", "int8", (*blocks, lanes, lanes))

    def _constant(self, name: str, memory: str, axes: str, value: int) -> ir.Buffer:
        """Return entries that hold one number everywhere: padding is all they are."""
        buffer = _buffer(name, "int8", (self.lanes,) * len(axes), memory)
        self.copies.append(ir.Stage(buffer, axes_of(name, axes), b.constant(value, "int8")))
        return buffer

    def _window(self, name: str, reader: str, x: ir.Buffer) -> ir.Buffer:
        """Return the copy of an input with its padding around it."""
        shape = self.stage.shape
        n, o, r, c, m = axes_of(name)
        rows, extents, conditions = [], list(b.dims(x)), list[ir.Expression]()
        for axis, place in enumerate((r, c)):
            reach = shape.dilations[axis] * (shape.kernel[axis] - 1) + 1
            low, size = -shape.pads[axis], shape.size[axis]
            extents[2 + axis] = (shape.result[axis] - 1) * shape.strides[axis] + reach
            rows.append(b.subtract(place, shape.pads[axis]))
            conditions += [b.greater_equal(rows[axis], 0)] * (low < 0)
            conditions += [b.less(rows[axis], size)] * (low + extents[2 + axis] > size)
        copy, inside = _buffer(name, "int8", extents, INPUT), b.all_of(conditions)
        value = ir.Load(x, (n, o, *rows, m), inside)
        padded = value if inside is None else ir.Select(inside, value, b.constant(self.stage.pad_value, "int8"))
        self.copies.append(ir.Stage(copy, (n, o, r, c, m), padded))
        self.readers[name] = reader
        return copy

    # ---- Products -------------------------------------------------------------------------------------------------

    def _place(self, axis: int, at: ir.Expression, tap: ir.Expression) -> ir.Expression:
        """Return the place in a window that a tap of an output reads."""
        shape = self.stage.shape
        return b.add(b.multiply(at, shape.strides[axis]), b.multiply(tap, shape.dilations[axis]))

    def _sum(
        self, suffix: str, name: str, total: ir.Buffer, term: ir.Expression, order: str, terms: dict[ir.Variable, int]
    ) -> None:
        """Add terms to a total, the first of which begin with zeros."""
        self.intrinsics[suffix], self.orders[suffix] = product(name, self.lanes), order
        axes = axes_of(suffix)
        initial = b.constant(0, "int32") if suffix == "sum0" else ir.Load(total, axes)
        over = tuple(ir.Axis(variable, b.index(extent)) for variable, extent in terms.items())
        self.work.append(ir.Stage(total, axes, term, ir.Reduction("add", over, initial)))

    def _blocks(self, total: ir.Buffer, xs: Sequence[ir.Buffer]) -> None:
        shape, lanes, w, first = self.stage.shape, self.lanes, self.inputs["w"], 0
        for number, x in enumerate(xs):
            each, suffix = shape.inputs if len(xs) == 1 else b.dims(x)[1], f"sum{number}"
            near = self._window(f"input{number}", suffix, x)
            n, o, r, c, m = axes_of(suffix)
            i, t, p, q, k = axes_of(suffix, "itpqk")
            image = (n,) if self.stage.is_computed else ()
            block = b.add(b.multiply(o, shape.step), i)
            term = b.multiply(
                _number(near, n, block, self._place(0, r, p), self._place(1, c, q), k),
                _number(w, *image, o, b.add(i, first), t, p, q, m, k),
            )
            extents = (each, shape.parts, *shape.kernel, lanes)
            self._sum(suffix, "gemm", total, term, "inorctpqmk", dict(zip((i, t, p, q, k), extents, strict=True)))
            first += each
        for name, zero in zip(("right", "left"), self.stage.corrections[::-1], strict=True):
            if zero:
                self._correct(name, zero, total, xs[0])

    def _correct(self, name: str, zero: int, total: ir.Buffer, x: ir.Buffer) -> None:
        """Take away an operand's zero point as often as the other operand says, whose numbers are added up."""
        (n, o, r, c, m), (i, t, k) = axes_of(name), axes_of(name, "itk")
        taken = -zero // times_of(zero)
        if name == "right":
            near = self._window("input.right", "right", x)
            factors = self._constant("factors", WEIGHT, "mk", taken)
            term = b.multiply(_number(near, n, i, r, c, k), _number(factors, m, k))
        else:
            ones, start = self._constant("constant", INPUT, "m", taken), (b.index(0),) * 3
            term = b.multiply(_number(ones, k), _number(self.inputs["w"], n, o, i, *start, m, k))
        extents = {i: self.stage.shape.inputs, t: times_of(zero), k: self.lanes}
        self._sum(name, "gemm", total, term, "inorctmk", extents)

    def _lanes(self, total: ir.Buffer, x: ir.Buffer) -> None:
        """Add up lanes, by weights (depthwise) or as they are (means)."""
        shape, near = self.stage.shape, self._window("input0", "sum0", x)
        (n, o, r, c, m), (t, p, q) = axes_of("sum0"), axes_of("sum0", "tpq")
        term, name = _number(near, n, o, self._place(0, r, p), self._place(1, c, q), m), "gemm lanes ones"
        if shape.kind is Kind.LANES:
            row = b.add(b.add(b.multiply(t, math.prod(shape.kernel)), b.multiply(p, shape.kernel[1])), q)
            weight = _number(self.inputs["w"], o, b.divide(row, self.lanes), b.modulo(row, self.lanes), m)
            term, name = b.multiply(term, weight), "gemm lanes"
        self._sum("sum0", name, total, term, "norctpqm", {t: shape.parts, p: shape.kernel[0], q: shape.kernel[1]})

    def _first(self, suffix: str, source: ir.Buffer, strides: tuple[int, int]) -> ir.Expression:
        """Return the first number of each window, which a product without a sum brings to the accumulators."""
        self.intrinsics[suffix] = product("gemm reset lanes ones", self.lanes)
        n, o, r, c, m = axes_of(suffix.removesuffix(".first"))
        return _number(source, n, o, b.multiply(r, strides[0]), b.multiply(c, strides[1]), m)

    def _move(self, suffix: str, where: list[ir.Stage], target: ir.Buffer, source: ir.Buffer) -> None:
        strides = self.stage.shape.strides if suffix == "first" else (1, 1)
        where.append(ir.Stage(target, axes_of(suffix), self._first(suffix, source, strides)))

    def _maximum(self, total: ir.Buffer, x: ir.Buffer) -> None:
        shape, near = self.stage.shape, self._window("input0", "max0.first", x)
        wide = _buffer("wide", "int32", b.dims(near), ACCUMULATOR)
        self._move("wide", self.copies, wide, near)
        initial = self._first("max0.first", near, shape.strides)
        # Behind the first place come those beside it, then the other rows of the kernel.
        height, width = shape.kernel
        parts = [one for one in ((0, 1, 1, width - 1), (1, 0, height - 1, width)) if one[2] * one[3]]
        for number, (row, column, rows, columns) in enumerate(parts):
            suffix = f"max{number}"
            (n, o, r, c, m), (p, q) = axes_of(suffix), axes_of(suffix, "pq")
            place = (self._place(0, r, b.add(p, row)), self._place(1, c, b.add(q, column)))
            over = (ir.Axis(p, b.index(rows)), ir.Axis(q, b.index(columns)))
            start = ir.Load(total, (n, o, r, c, m)) if number else initial
            value = ir.Load(wide, (n, o, *place, m))
            self.work.append(ir.Stage(total, (n, o, r, c, m), value, ir.Reduction("max", over, start)))
            self.intrinsics[suffix], self.orders[suffix] = operation(Operation.MAX, 0, False, self.lanes), "norcpqm"

    # ---- Actions --------------------------------------------------------------------------------------------------

    def _beside(self, operand: Operand, extents: Sequence[int]) -> ir.Buffer:
        """Return what is moved beside the outputs."""
        other = self._plane("other", operand, self.stage.shape.result, self.stage.shape.result[1])
        near, beside = _buffer("moved", "int8", extents, INPUT), _buffer("beside", "int32", extents, ACCUMULATOR)
        self.copies.append(ir.Stage(near, axes_of("moved"), ir.Load(other, axes_of("moved"))))
        self._move("beside", self.copies, beside, near)
        return beside

    def _act(
        self, suffix: str, action: Action, total: ir.Buffer, beside: ir.Buffer | None, vectors: ir.Buffer | None
    ) -> None:
        use_immediate = action.vector is None and not action.with_moved
        intrinsic = operation(action.operation, action.immediate, use_immediate, self.lanes)
        n, o, r, c, m = axes_of(suffix)
        target = beside if action.on_moved else total
        assert target is not None, action
        sources: list[tuple[ir.Buffer, Sequence[ir.Expression]]] = []
        if action.with_moved:
            assert beside is not None, action
            sources.append((beside, (n, o, r, c)))
        elif action.vector is not None:
            assert vectors is not None, action
            first = b.add(b.multiply(o, VECTORS if action.by_block else 0), action.vector)
            sources += [(vectors, (b.add(first, number),)) for number in intrinsic.offsets]
        self.intrinsics[suffix] = intrinsic
        operands = dict(zip(intrinsic.meaning.parameters, [*sources, (target, (n, o, r, c))], strict=True))
        (self.copies if action.on_moved else self.work).append(
            ir.Stage(target, (n, o, r, c, m), _meant(intrinsic, operands, m))
        )


def _buffer(name: str, dtype: str, extents: Sequence[int], memory: str = "host") -> ir.Buffer:
    return ir.Buffer(name, dtype, tuple(map(b.index, extents)), None, memory)


def _number(buffer: ir.Buffer, *places: ir.Expression) -> ir.Expression:
    return b.cast(ir.Load(buffer, places), "int32")


def _meant(
    intrinsic: Intrinsic, operands: dict[ir.Buffer, tuple[ir.Buffer, Sequence[ir.Expression]]], m: ir.Variable
) -> ir.Expression:
    """Return what an operation of the ALU stores, given where its operands begin."""
    loop = intrinsic.meaning.body
    assert isinstance(loop, ir.For), intrinsic.name
    body = map_accesses(
        loop.body, set(operands), lambda buffer, lane: (operands[buffer][0], (*operands[buffer][1], *lane))
    )
    assert isinstance(body, ir.Store), intrinsic.name
    return substitute(body.value, {loop.variable: m})
