"""The loops of recurrent layers in vectors.

For each direction the input projection of all steps is one product. A step then computes chunks of hidden units, which
threads share: for each it adds the product of the previous state and applies the gates. The state is kept twice, so
that a step reads the one and writes the other. The weights are read along the gates, so they are used transposed:
``[features, gates * padded(hidden)]``, each gate's part padded to whole chunks, those of the state chunk by chunk.

Formulas and names are those of the ONNX operator specification, and of the stages (`graft.core.operators.recurrent`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graft.core.operators import build as b
from graft.core.operators.control_loops import COLUMN_TILES, ROW_TILE, Lanes, block, let, loop, tiles
from graft.core.operators.recurrent_layer import Layer
from graft.core.tensor_ir.ir import Allocate, Buffer, Expression, Load, Statement, Store

CHUNK_TILES = {1: (8, 7, 6, 5, 4), 3: (4, 3), 4: (4, 3, 2)}
"""Vectors of hidden units that are computed together, by the number of gates: with all gates one or two tiles."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """The hidden units of a layer, cut into chunks of whole vectors."""

    layer: Layer
    lanes: Lanes

    @property
    def chunk(self) -> int:
        """The vectors of hidden units that a step computes together: the number that pads least, the larger one."""
        vectors, sizes = -(-self.layer.hidden // self.lanes.count), CHUNK_TILES[self.layer.gates]
        return vectors if vectors <= max(sizes) else min(sizes, key=lambda size: (-vectors % size, -size))

    @property
    def chunks(self) -> int:
        """The number of such chunks."""
        return -(-self.layer.hidden // (self.chunk * self.lanes.count))

    @property
    def width(self) -> int:
        """The hidden size padded to whole chunks: the distance between two gates."""
        return self.chunks * self.chunk * self.lanes.count

    def packed_shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of the transposed W (``number`` 0) or R (1): R by chunks, all gates of a chunk together."""
        directions, columns = len(self.layer.reverse), self.layer.gates * self.width
        if number == 0:
            return directions, self.layer.features, columns
        return directions, self.chunks, self.layer.hidden, columns // self.chunks


class Direction:
    """The loops of one direction, and the scratch memory that they share."""

    def __init__(self, size: Chunks, number: int, packed: tuple[Buffer, Buffer] | None) -> None:
        layer, self.size, self.lanes, self.number = size.layer, size, size.lanes, number
        self.layer = layer
        self.columns = layer.gates * self.size.width
        self.packed = packed
        self.scratch: list[Buffer] = []
        self.projected = self._scratch("projected", layer.steps * layer.batch, self.columns)
        self.sums = self._scratch("sums", layer.batch, self.columns)
        self.h = self._scratch("h", 2, layer.batch, self.size.width)
        self.c = self._scratch("c", layer.batch, self.size.width) if layer.kind == "LSTM" else self.h
        self.gated = self._scratch("gated", layer.batch, self.size.width) if layer.kind == "GRU" else self.h
        if packed is None:
            self.w = self._scratch("w", layer.features, self.columns)
            self.r = self._scratch("r", self.size.chunks, layer.hidden, self.columns // self.size.chunks)

    def _scratch(self, name: str, *shape: int) -> Buffer:
        extents = tuple(b.index(extent) for extent in shape)
        buffer = Buffer(f"{name}{self.number}", self.layer.dtype, extents, None, "scratch", 64)
        self.scratch.append(buffer)
        return buffer

    # ---- Parts ----

    def statement(self) -> Statement:
        """Return everything that this direction does."""
        packing = [] if self.packed is not None else [self._pack(1, self.w), self._pack(2, self.r)]
        body = block(
            *packing,
            self._project(),
            self._start(),
            loop(self.layer.steps, self._step, name="t"),
            *self._finish(),
        )
        for buffer in reversed(self.scratch):
            body = Allocate(buffer, body)
        return body

    def _pack(self, number: int, target: Buffer) -> Statement:
        """Transpose weights ``[gates * hidden, k]`` to the shape of `packed_shape` with zeros in the padding."""
        layer, source = self.layer, self.layer.input(number)
        size = self.size.chunk * self.lanes.count

        def column(gate: int, k: Expression, chunk: Expression, j: int) -> Statement:
            start = b.add(b.multiply(chunk, size), j * self.lanes.count)
            row = self.lanes.ramp(b.add(start, gate * layer.hidden))
            value = Load(
                source, (b.index(self.number), row, k), self.lanes.tail_mask(start, layer.hidden, self.size.width)
            )
            if number == 1:
                return self.lanes.set_vector(target, (k,), b.add(start, gate * self.size.width), value)
            return self.lanes.set_vector(target, (chunk, k), b.index(gate * size + j * self.lanes.count), value)

        def line(k: Expression) -> Statement:
            def part(chunk: Expression) -> Statement:
                cells = [(gate, j) for gate in range(layer.gates) for j in range(self.size.chunk)]
                return block(*(column(gate, k, chunk, j) for gate, j in cells))

            return loop(self.size.chunks, part)

        return loop(b.dims(target)[-2], line)

    def _input_weight(self, k: Expression, column: Expression) -> Expression:
        if self.packed is not None:
            return self.lanes.vector(self.packed[0], (b.index(self.number), k), column)
        return self.lanes.vector(self.w, (k,), column)

    def _state_weight(self, chunk: Expression, k: Expression, column: int) -> Expression:
        if self.packed is not None:
            return self.lanes.vector(self.packed[1], (b.index(self.number), chunk, k), b.index(column))
        return self.lanes.vector(self.r, (chunk, k), b.index(column))

    def _bias(self, gate: int, column: Expression, *, recurrent: bool) -> Expression:
        layer, bias = self.layer, self.layer.optional(3)
        if bias is None:
            return self.lanes.zeros(layer.dtype)
        start = (gate + (layer.gates if recurrent else 0)) * layer.hidden
        return self.lanes.part(bias, (b.index(self.number),), start, column, layer.hidden, self.size.width)

    def _project(self) -> Statement:
        """``projected[step * batch + row] = X W^T + Wb + Rb`` (without Rb where a reset gate comes before it)."""
        layer, x = self.layer, self.layer.input(0)

        def left(row: Expression, k: Expression) -> Expression:
            step, line = b.divide(row, layer.batch), b.modulo(row, layer.batch)
            return Load(x, (*layer.sequence(step, line), k))

        def gate(number: int) -> Statement:
            def initial(row: Expression, column: Expression) -> Expression:
                bias = self._bias(number, column, recurrent=False)
                late = layer.kind == "GRU" and layer.linear_before_reset and number == 2
                return bias if late else b.add(bias, self._bias(number, column, recurrent=True))

            def sink(row: Expression, column: Expression, value: Expression) -> Statement:
                return self.lanes.set_vector(self.projected, (row,), b.add(column, number * self.size.width), value)

            def right(k: Expression, column: Expression) -> Expression:
                return self._input_weight(k, b.add(column, number * self.size.width))

            rows, columns = layer.steps * layer.batch, self.size.width
            return self.lanes.product(rows, columns, layer.features, left, right, initial, sink, "parallel")

        return block(*(gate(number) for number in range(layer.gates)))

    def _start(self) -> Statement:
        """Set the states to their initial values or zero."""
        layer, parts = self.layer, []
        for buffer, number in ((self.h, 5), (self.c, 6)) if layer.kind == "LSTM" else ((self.h, 5),):
            given = layer.optional(number)
            place = (b.index(0),) if buffer is self.h else ()
            parts.append(self._rows(lambda row, v, of=buffer, by=given, at=place: self._initial(of, by, (*at, row), v)))  # type: ignore[misc]
        return block(*parts)

    def _initial(self, state: Buffer, given: Buffer | None, place: Sequence[Expression], v: Expression) -> Statement:
        value = self.lanes.zeros(state.dtype)
        if given is not None:
            value = self.lanes.part(
                given, self.layer.state(self.number, place[-1]), 0, v, self.layer.hidden, self.size.width
            )
        return self.lanes.set_vector(state, place, v, value)

    def _rows(self, body: Callable[[Expression, Expression], Statement], chunk: Expression | None = None) -> Statement:
        """The loop over batch rows and vectors of hidden units: of a chunk, or of all of them."""
        vectors = self.size.width // self.lanes.count if chunk is None else self.size.chunk
        first = b.index(0) if chunk is None else b.multiply(chunk, self.size.chunk * self.lanes.count)

        def line(row: Expression) -> Statement:
            return loop(vectors, lambda v: body(row, b.add(first, b.multiply(v, self.lanes.count))), name="v")

        return loop(self.layer.batch, line, name="row")

    def _accumulate(
        self, gates: Sequence[int], state: Buffer, step: Expression, chunk: Expression, *, late: bool = False
    ) -> Statement:
        """``sums = projected + state R^T`` for a chunk; with Rb for ``projected`` where ``late``."""
        layer, size = self.layer, self.size.chunk * self.lanes.count
        cells = [(gate, j * self.lanes.count) for gate in gates for j in range(self.size.chunk)]

        def column(cell: tuple[int, int]) -> Expression:
            gate, lane = cell
            return b.add(b.multiply(chunk, size), gate * self.size.width + lane)

        def left(row: Expression, k: Expression) -> Expression:
            return Load(state, (*self._before(state, step), row, k))

        def right(k: Expression, cell: tuple[int, int]) -> Expression:
            return self._state_weight(chunk, k, cell[0] * size + cell[1])

        def initial(row: Expression, cell: tuple[int, int]) -> Expression:
            if late:
                return self._bias(cell[0], b.add(b.multiply(chunk, size), cell[1]), recurrent=True)
            place = b.add(b.multiply(self.layer.time(self.number, step, row)[0], layer.batch), row)
            return self.lanes.vector(self.projected, (place,), column(cell))

        def sink(row: Expression, cell: tuple[int, int], value: Expression) -> Statement:
            return self.lanes.set_vector(self.sums, (row,), column(cell), value)

        def rows(first: Expression, height: int) -> Statement:
            lines, width = [b.add(first, i) for i in range(height)], COLUMN_TILES[height]
            groups = [cells[begin : begin + width] for begin in range(0, len(cells), width)]
            return block(*(self.lanes.tile(lines, group, layer.hidden, left, right, initial, sink) for group in groups))

        return tiles(layer.batch, ROW_TILE, rows)

    def _before(self, state: Buffer, step: Expression) -> tuple[Expression, ...]:
        """The leading index of a state as a step finds it."""
        return (b.modulo(step, 2),) if state is self.h else ()

    def _after(self, state: Buffer, step: Expression) -> tuple[Expression, ...]:
        """The leading index of a state as a step leaves it."""
        return (b.modulo(b.add(step, 1), 2),) if state is self.h else ()

    def _hidden(self, step: Expression, row: Expression, v: Expression) -> Expression:
        return self.lanes.vector(self.h, (*self._before(self.h, step), row), v)

    def _chunks(self, body: Callable[[Expression], Statement]) -> Statement:
        return loop(self.size.chunks, body, "parallel", name="chunk")

    def _step(self, step: Expression) -> Statement:
        layer = self.layer
        if layer.kind != "GRU":
            cell = self._lstm if layer.kind == "LSTM" else self._rnn
            return self._chunks(
                lambda chunk: block(
                    self._accumulate(range(layer.gates), self.h, step, chunk),
                    self._rows(lambda row, v: cell(step, row, v), chunk),
                )
            )

        def gates(chunk: Expression) -> Statement:
            return self._accumulate((0, 1), self.h, step, chunk)

        def candidate(chunk: Expression, state: Buffer, late: bool) -> Statement:
            return block(
                self._accumulate((2,), state, step, chunk, late=late),
                self._rows(lambda row, v: self._gru(step, row, v), chunk),
            )

        if layer.linear_before_reset:
            return self._chunks(lambda chunk: block(gates(chunk), candidate(chunk, self.h, True)))
        return block(
            self._chunks(
                lambda chunk: block(gates(chunk), self._rows(lambda row, v: self._reset(step, row, v), chunk))
            ),
            self._chunks(lambda chunk: candidate(chunk, self.gated, False)),
        )

    # ---- Cells ----

    def _gate(self, number: int, row: Expression, v: Expression) -> Expression:
        return self.lanes.vector(self.sums, (row,), b.add(v, number * self.size.width))

    def _apply(self, function: int, x: Expression) -> Expression:
        return self.layer.apply(self.number, function, x)

    def _rnn(self, step: Expression, row: Expression, v: Expression) -> Statement:
        return self._emit(step, row, v, [(self.h, self._apply(0, self._gate(0, row, v)))])

    def _peephole(self, gate: int, x: Expression, cell: Expression, v: Expression) -> Expression:
        weights, hidden = self.layer.optional(7), self.layer.hidden
        if weights is None:
            return x
        factor = self.lanes.part(weights, (b.index(self.number),), gate * hidden, v, hidden, self.size.width)
        return b.add(x, b.multiply(factor, cell))

    def _lstm(self, step: Expression, row: Expression, v: Expression) -> Statement:
        """``i, o, f, c`` in this order; peepholes in the order ``i, o, f``."""
        i_sum, o_sum, f_sum, c_sum = (self._gate(number, row, v) for number in range(4))

        def with_cell(before: Expression) -> Statement:
            i = self._apply(0, self._peephole(0, i_sum, before, v))

            def with_input(i: Expression) -> Statement:
                couple = self.layer.couple
                f = (
                    b.subtract(b.literal(1, i.type), i)
                    if couple
                    else self._apply(0, self._peephole(2, f_sum, before, v))
                )
                cell = b.add(b.multiply(f, before), b.multiply(i, self._apply(1, c_sum)))
                return let(cell, with_new_cell, "cell")

            return let(i, with_input, "input")

        def with_new_cell(cell: Expression) -> Statement:
            o = self._apply(0, self._peephole(1, o_sum, cell, v))
            h = b.multiply(o, self.layer.functions[self.number][2](cell))
            return self._emit(step, row, v, [(self.h, h), (self.c, cell)])

        return let(self.lanes.vector(self.c, (row,), v), with_cell, "before")

    def _reset(self, step: Expression, row: Expression, v: Expression) -> Statement:
        r = self._apply(0, self._gate(1, row, v))
        return self.lanes.set_vector(self.gated, (row,), v, b.multiply(r, self._hidden(step, row, v)))

    def _gru(self, step: Expression, row: Expression, v: Expression) -> Statement:
        """``z, r, h`` in this order."""
        z = self._apply(0, self._gate(0, row, v))
        candidate = self._gate(2, row, v)
        if self.layer.linear_before_reset:
            place = b.add(b.multiply(self.layer.time(self.number, step, row)[0], self.layer.batch), row)
            given = self.lanes.vector(self.projected, (place,), b.add(v, 2 * self.size.width))
            candidate = b.add(given, b.multiply(self._apply(0, self._gate(1, row, v)), candidate))
        new = self._apply(1, candidate)

        def with_update(z: Expression) -> Statement:
            kept = b.multiply(z, self._hidden(step, row, v))
            h = b.add(b.multiply(b.subtract(b.literal(1, z.type), z), new), kept)
            return self._emit(step, row, v, [(self.h, h)])

        return let(z, with_update, "update")

    # ---- Results ----

    def _emit(
        self, step: Expression, row: Expression, v: Expression, states: list[tuple[Buffer, Expression]]
    ) -> Statement:
        """Store the new states and Y; a row that has ended keeps its states and writes no Y."""
        layer, y = self.layer, self.layer.output(0)
        place, runs = self.layer.time(self.number, step, row)
        values = [value for _, value in states]

        def store(*new: Expression) -> Statement:
            parts = []
            for (buffer, _), value in zip(states, new, strict=True):
                old = self.lanes.vector(buffer, (*self._before(buffer, step), row), v)
                kept = value if runs is None else b.select(self.lanes.splat(runs), value, old)
                parts.append(self.lanes.set_vector(buffer, (*self._after(buffer, step), row), v, kept))
            if y is not None:
                parts.append(self._store_y(y, layer.result(place, self.number, row), v, new[0], runs))
            return block(*parts)

        if len(values) == 2:
            return let(values[0], lambda h: store(h, values[1]), "hidden")
        return let(values[0], store, "hidden")

    def _store_y(
        self, y: Buffer, row: tuple[Expression, ...], v: Expression, value: Expression, runs: Expression | None
    ) -> Statement:
        mask = self.lanes.tail_mask(v, self.layer.hidden, self.size.width)
        if runs is not None:
            mask = self.lanes.splat(runs) if mask is None else b.both(mask, self.lanes.splat(runs))
        return Store(y, (*row, self.lanes.ramp(v)), value, mask)

    def _finish(self) -> list[Statement]:
        layer, parts = self.layer, []
        for number, state in ((1, self.h), (2, self.c)):
            target = layer.output(number)
            if target is not None:
                parts.append(self._rows(lambda row, v, of=state, to=target: self._final(of, to, row, v)))  # type: ignore[misc]
        return parts

    def _final(self, state: Buffer, target: Buffer, row: Expression, v: Expression) -> Statement:
        value = self.lanes.vector(state, (*self._before(state, b.index(self.layer.steps)), row), v)
        return self.lanes.set_part(
            target, self.layer.state(self.number, row), v, self.layer.hidden, value, self.size.width
        )


def recurrent_loops(size: Chunks, packed: tuple[Buffer, Buffer] | None) -> Statement:
    """Return the loops of a layer; ``packed`` gives W and R already transposed (see `Chunks.packed_shape`)."""
    layer = size.layer
    parts = [Direction(size, number, packed).statement() for number in range(len(layer.reverse))]
    y = layer.output(0)
    if y is not None and layer.optional(4) is not None:
        parts.insert(0, _cleared(y, size.lanes))
    return block(*parts)


def _cleared(y: Buffer, lanes: Lanes) -> Statement:
    *outer, last = b.dims(y)

    def nest(row: tuple[Expression, ...], rest: list[int]) -> Statement:
        if rest:
            return loop(rest[0], lambda i: nest((*row, i), rest[1:]))

        def clear(v: Expression) -> Statement:
            return lanes.set_part(y, row, b.multiply(v, lanes.count), last, lanes.zeros(y.dtype))

        return loop(lanes.padded(last) // lanes.count, clear)

    return nest((), list(outer))
