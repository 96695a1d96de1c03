"""A stage as plain loops of the tensor IR, in order: what is brought near, products, actions, and the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from graft.core.operators.definition import build as b
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import allocate, loops_over
from graft.core.tensor_ir.visit import map_accesses, map_statement, substitution
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.intrinsics import ACCUMULATOR, INPUT, WEIGHT, Intrinsic, operation, product
from graft.plugins.accelerator.isa import Operation
from graft.plugins.accelerator.stages import VECTORS, Action, Operand, Stage
from graft.plugins.accelerator.tiling import Kind

Places = Sequence[ir.Expression]


@dataclass(frozen=True, slots=True)
class Nest:
    """A stage's function, and the intrinsic that the loops ``m`` of each suffix mean.

    ``inputs`` are the copies of inputs with the suffix of the products that read them.
    """

    function: ir.Function
    intrinsics: dict[str, Intrinsic]
    inputs: dict[str, str]


def nest_of(stage: Stage, configuration: Configuration) -> Nest:
    """Return the plain loops of a stage.

    Parameters are ``x0``, ``x1``, ... (its inputs), ``w``, ``v`` (vectors), ``other`` (what is moved) and ``y``.
    Buffers in the accelerator's memories are still as large as the tensors: the schedule makes them those of a tile.
    """
    return _Builder(stage, configuration.block_out).nest()


def times_of(zero: int) -> int:
    """Return in how many steps a zero point is taken away: what is taken must fit into 8 bits."""
    return 2 if zero == -128 else 1


@dataclass(slots=True)
class _Builder:
    stage: Stage
    lanes: int
    near: list[ir.Buffer] = field(default_factory=list)
    copies: list[ir.Statement] = field(default_factory=list)
    work: list[ir.Statement] = field(default_factory=list)
    inputs: list[ir.Buffer] = field(default_factory=list)
    intrinsics: dict[str, Intrinsic] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)

    def nest(self) -> Nest:
        stage, shape, lanes = self.stage, self.stage.shape, self.lanes
        extents = (shape.images, shape.outputs, *shape.result, lanes)
        total = self._near("total", "int32", extents, ACCUMULATOR)
        xs = [self._tensor(f"x{number}", one) for number, one in enumerate(stage.inputs)]
        if stage.weights:
            self._weights()
        if stage.vectors is not None:
            self._resident("v", "vectors", len(stage.vectors), ACCUMULATOR)
        match shape.kind:
            case Kind.BLOCKS:
                self._blocks(total, xs)
            case Kind.LANES | Kind.SUM:
                self._lanes(total, xs[0])
            case Kind.MAXIMUM:
                self._maximum(total, xs[0])
            case Kind.MOVE:
                self._moved(
                    "total", total, self._window("input0", "first", xs[0], stage.inputs[0].first, shape.outputs)
                )
        beside = self._beside(extents)
        for number, action in enumerate(stage.actions):
            self._act(f"act{number}", action, total, beside)
        y = self._plane("y", stage.output, shape.result, shape.result[1])
        n, o, r, c, m = (ir.Variable(name) for name in "norcm")
        stored = ir.Store(
            y, (n, b.add(o, stage.output.first), r, c, m), b.cast(ir.Load(total, (n, o, r, c, m)), "int8")
        )
        self.work.append(_around((n, o, r, c, m), extents, stored))
        body = allocate(self.near, ir.Block((*self.copies, *self.work)))
        return Nest(ir.Function("stage", (*self.inputs, y), 1, body), self.intrinsics, self.readers)

    # ---- Buffers --------------------------------------------------------------------------------------------------

    def _near(self, name: str, dtype: str, extents: Sequence[int], memory: str) -> ir.Buffer:
        buffer = ir.Buffer(name, dtype, tuple(map(b.index, extents)), None, memory)
        self.near.append(buffer)
        return buffer

    def _buffer(self, name: str) -> ir.Buffer:
        return next(one for one in (*self.near, *self.inputs) if one.name == name)

    def _plane(self, name: str, operand: Operand, size: tuple[int, int], pitch: int) -> ir.Buffer:
        """Return a tensor in DRAM: blocks of channels, of which rows are ``pitch`` places apart."""
        lanes = self.lanes
        shape = (self.stage.shape.images, operand.blocks, *size, lanes)
        strides = (operand.blocks * operand.plane * lanes, operand.plane * lanes, pitch * lanes, lanes, 1)
        return ir.Buffer(name, "int8", tuple(map(b.index, shape)), tuple(map(b.index, strides)))

    def _tensor(self, name: str, operand: Operand) -> ir.Buffer:
        self.inputs.append(self._plane(name, operand, self.stage.shape.size, self.stage.shape.pitch))
        return self.inputs[-1]

    def _weights(self) -> None:
        shape, lanes = self.stage.shape, self.lanes
        if shape.kind is Kind.LANES:
            extents: tuple[int, ...] = (shape.outputs, shape.lane_entries, lanes, lanes)
        else:
            blocks = (shape.outputs, shape.inputs)
            images = (shape.images,) if self.stage.is_computed else ()
            extents = (*images, *blocks, shape.parts, *shape.kernel, lanes, lanes)
        self.inputs.append(ir.Buffer("w", "int8", tuple(map(b.index, extents))))

    def _resident(self, name: str, near: str, count: int, memory: str) -> None:
        """Copy entries that stay as long as the stage runs."""
        self.inputs.append(ir.Buffer(name, "int32", (b.index(count), b.index(self.lanes))))
        source, copy = self.inputs[-1], self._near(near, "int32", (count, self.lanes), memory)
        places = (ir.Variable(f"i.{near}"), ir.Variable(f"m.{near}"))
        self.copies.append(_around(places, (count, self.lanes), ir.Store(copy, places, ir.Load(source, places))))

    def _constant(self, name: str, memory: str, extents: tuple[int, ...], value: int) -> ir.Buffer:
        """Return entries that hold one number everywhere: padding is all they are."""
        buffer = self._near(name, "int8", extents, memory)
        places = tuple(ir.Variable(f"{axis}.{name}") for axis in "mk"[: len(extents)])
        self.copies.append(_around(places, extents, ir.Store(buffer, places, b.constant(value, "int8"))))
        return buffer

    def _window(self, name: str, reader: str, x: ir.Buffer, first: int, count: int) -> ir.Buffer:
        """Return the copy of an input with its padding around it."""
        shape = self.stage.shape
        extents = [shape.images, count, 0, 0, self.lanes]
        for axis in (0, 1):
            reach = shape.dilations[axis] * (shape.kernel[axis] - 1) + 1
            extents[2 + axis] = (shape.result[axis] - 1) * shape.strides[axis] + reach
        copy = self._near(name, "int8", extents, INPUT)
        self.readers[name] = reader
        places = tuple(ir.Variable(f"{axis}.{name}") for axis in "norcm")
        n, o, r, c, m = places
        rows = (b.subtract(r, shape.pads[0]), b.subtract(c, shape.pads[1]))
        inside: ir.Expression | None = None
        for axis, place in enumerate(rows):
            low, high = -shape.pads[axis], extents[2 + axis] - shape.pads[axis]
            conditions = [b.greater_equal(place, 0)] * (low < 0) + [b.less(place, shape.size[axis])] * (
                high > shape.size[axis]
            )
            for one in conditions:
                inside = one if inside is None else b.both(inside, one)
        loaded = ir.Load(x, (n, b.add(o, first), *rows, m), inside)
        value = loaded if inside is None else ir.Select(inside, loaded, b.constant(self.stage.pad_value, "int8"))
        self.copies.append(_around(places, extents, ir.Store(copy, places, value)))
        return copy

    # ---- Products -------------------------------------------------------------------------------------------------

    def _apply(self, suffix: str, intrinsic: Intrinsic, operands: Sequence[tuple[ir.Buffer, Places]]) -> ir.Statement:
        """Return what an intrinsic means, for operands that begin at places."""
        self.intrinsics[suffix] = intrinsic
        moved = dict(zip(intrinsic.meaning.parameters, operands, strict=True))
        body = map_accesses(
            intrinsic.meaning.body,
            set(moved),
            lambda buffer, indices: (moved[buffer][0], (*moved[buffer][1], *indices)),
        )
        names: dict[ir.Variable, ir.Expression] = {}
        inner = body
        while isinstance(inner, ir.For):
            names[inner.variable] = ir.Variable(f"{inner.variable.name}.{suffix}")
            inner = inner.body

        def renamed(one: ir.Statement) -> ir.Statement:
            if not isinstance(one, ir.For):
                return one
            variable = names[one.variable]
            assert isinstance(variable, ir.Variable), variable
            return ir.For(variable, one.extent, one.kind, one.body)

        return map_statement(body, substitution(names), renamed)

    def _loops(self, suffix: str, names: str, extents: Sequence[int]) -> tuple[list[ir.Variable], list[int]]:
        return [ir.Variable(f"{name}.{suffix}") for name in names], list(extents)

    def _zero(self, total: ir.Buffer) -> None:
        extents = b.dims(total)
        places = tuple(ir.Variable(f"{axis}.first") for axis in "norcm")
        self.work.append(_around(places, extents, ir.Store(total, places, b.constant(0, "int32"))))

    def _place(self, axis: int, at: ir.Expression, tap: ir.Expression) -> ir.Expression:
        """Return the place in a window that a tap of an output reads."""
        shape = self.stage.shape
        return b.add(b.multiply(at, shape.strides[axis]), b.multiply(tap, shape.dilations[axis]))

    def _blocks(self, total: ir.Buffer, xs: Sequence[ir.Buffer]) -> None:
        stage, shape, lanes = self.stage, self.stage.shape, self.lanes
        self._zero(total)
        first, w = 0, self._buffer("w")
        for number, (x, operand) in enumerate(zip(xs, stage.inputs, strict=True)):
            count = (shape.outputs - 1) * shape.step + shape.inputs if len(xs) == 1 else operand.count
            each = shape.inputs if len(xs) == 1 else operand.count
            suffix = f"sum{number}"
            near = self._window(f"input{number}", suffix, x, operand.first, count)
            loops, extents = self._loops(suffix, "inorctpq", (each, *b.dims(total)[:4], shape.parts, *shape.kernel))
            i, n, o, r, c, t, p, q = loops
            image = (n,) if stage.is_computed else ()
            read = (n, b.add(b.multiply(o, shape.step), i), self._place(0, r, p), self._place(1, c, q))
            weights = (*image, o, b.add(i, first), t, p, q)
            operands = [(near, read), (w, weights), (total, (n, o, r, c))]
            body = self._apply(suffix, product("gemm", lanes), operands)
            self.work.append(_around(loops, extents, body))
            first += each
        left, right = stage.corrections
        if right:
            factors = self._constant("factors", WEIGHT, (lanes, lanes), -right // times_of(right))
            near = self._window("input.right", "right", xs[0], stage.inputs[0].first, shape.inputs)
            loops, extents = self._loops("right", "inorct", (shape.inputs, *b.dims(total)[:4], times_of(right)))
            i, n, o, r, c, _ = loops
            operands = [(near, (n, i, r, c)), (factors, ()), (total, (n, o, r, c))]
            self.work.append(_around(loops, extents, self._apply("right", product("gemm", lanes), operands)))
        if left:
            ones = self._constant("constant", INPUT, (lanes,), -left // times_of(left))
            loops, extents = self._loops("left", "inorct", (shape.inputs, *b.dims(total)[:4], times_of(left)))
            i, n, o, r, c, _ = loops
            zero = b.index(0)
            operands = [(ones, ()), (w, (n, o, i, zero, zero, zero)), (total, (n, o, r, c))]
            self.work.append(_around(loops, extents, self._apply("left", product("gemm", lanes), operands)))

    def _lanes(self, total: ir.Buffer, x: ir.Buffer) -> None:
        """Add up lanes, by weights (depthwise) or as they are (means)."""
        stage, shape = self.stage, self.stage.shape
        self._zero(total)
        near = self._window("input0", "sum0", x, stage.inputs[0].first, shape.outputs)
        loops, extents = self._loops("sum0", "norctpq", (*b.dims(total)[:4], shape.parts, *shape.kernel))
        n, o, r, c, t, p, q = loops
        operands: list[tuple[ir.Buffer, Places]] = [(near, (n, o, self._place(0, r, p), self._place(1, c, q)))]
        if shape.kind is Kind.LANES:
            kernel = math.prod(shape.kernel)
            row = b.add(b.add(b.multiply(t, kernel), b.multiply(p, shape.kernel[1])), q)
            operands.append((self._buffer("w"), (o, b.divide(row, self.lanes), b.modulo(row, self.lanes))))
        operands.append((total, (n, o, r, c)))
        intrinsic = product("gemm lanes" if shape.kind is Kind.LANES else "gemm lanes ones", self.lanes)
        self.work.append(_around(loops, extents, self._apply("sum0", intrinsic, operands)))

    def _moved(self, name: str, target: ir.Buffer, source: ir.Buffer) -> None:
        """Bring the first place of each window to the accumulators."""
        extents, suffix = b.dims(target)[:4], "first" if name == "total" else name
        loops, _ = self._loops(suffix, "norc", extents)
        n, o, r, c = loops
        strides = self.stage.shape.strides if name == "total" else (1, 1)
        places = (n, o, b.multiply(r, strides[0]), b.multiply(c, strides[1]))
        intrinsic = product("gemm reset lanes ones", self.lanes)
        operands = [(source, places), (target, (n, o, r, c))]
        where = self.work if name == "total" else self.copies
        where.append(_around(loops, extents, self._apply(suffix, intrinsic, operands)))

    def _maximum(self, total: ir.Buffer, x: ir.Buffer) -> None:
        shape = self.stage.shape
        near = self._window("input0", "first", x, self.stage.inputs[0].first, shape.outputs)
        if shape.taps > 1:
            wide = self._near("wide", "int32", b.dims(near), ACCUMULATOR)
            self._moved("wide", wide, near)
        self._moved("total", total, near)
        if shape.taps > 1:
            loops, extents = self._loops("max", "norct", (*b.dims(total)[:4], shape.taps - 1))
            n, o, r, c, t = loops
            row, column = (part(b.add(t, 1), shape.kernel[1]) for part in (b.divide, b.modulo))
            read = (n, o, self._place(0, r, row), self._place(1, c, column))
            operands = [(wide, read), (total, (n, o, r, c))]
            body = self._apply("max", operation(Operation.MAX, 0, False, self.lanes), operands)
            self.work.append(_around(loops, extents, body))

    # ---- Actions --------------------------------------------------------------------------------------------------

    def _beside(self, extents: Sequence[int]) -> ir.Buffer | None:
        """Return what is moved beside the outputs."""
        operand, shape = self.stage.moved, self.stage.shape
        if operand is None:
            return None
        self.inputs.append(self._plane("other", operand, shape.result, shape.result[1]))
        other, near = self.inputs[-1], self._near("moved", "int8", extents, INPUT)
        places = tuple(ir.Variable(f"{axis}.moved") for axis in "norcm")
        n, o, r, c, m = places
        loaded = ir.Load(other, (n, b.add(o, operand.first), r, c, m))
        self.copies.append(_around(places, extents, ir.Store(near, places, loaded)))
        beside = self._near("beside", "int32", extents, ACCUMULATOR)
        self._moved("beside", beside, near)
        return beside

    def _act(self, suffix: str, action: Action, total: ir.Buffer, beside: ir.Buffer | None) -> None:
        extents = b.dims(total)[:4]
        loops, _ = self._loops(suffix, "norc", extents)
        n, o, r, c = loops
        target = beside if action.on_moved else total
        assert target is not None, action
        use_immediate = action.vector is None and not action.with_moved
        intrinsic = operation(action.operation, action.immediate, use_immediate, self.lanes)
        sources: list[tuple[ir.Buffer, Places]] = []
        if action.with_moved:
            assert beside is not None, action
            sources.append((beside, loops))
        elif action.vector is not None:
            first = b.add(b.multiply(o, VECTORS if action.by_block else 0), action.vector)
            sources += [(self._buffer("vectors"), (b.add(first, number),)) for number in intrinsic.offsets]
        body = self._apply(suffix, intrinsic, [*sources, (target, (n, o, r, c))])
        where = self.copies if action.on_moved else self.work
        where.append(_around(loops, extents, body))


def _around(variables: Sequence[ir.Variable], extents: Sequence[int], body: ir.Statement) -> ir.Statement:
    return loops_over(zip(variables, map(b.index, extents), strict=True), body)
