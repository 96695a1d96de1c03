"""The loops of recurrent layers: all sums of a chunk of units in register tiles, then what is computed of them.

Threads share the chunks of a phase; or the directions of a layer, where chunks would occupy no more threads, since
these need not meet at each step. What one step leaves for the next is behind their end. What is needed for more than
one vector of units is kept for all steps, with the state before the first one. Its last axis is padded to whole chunks,
and so are the weights: by chunk, term, gate and unit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from graft.core.machine.machine import Machine
from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block, loop, tiles
from graft.core.schedule.primitives.vectorize import vector_load, vectorize_expression
from graft.core.schedule.strategies.sequential.recurrence import Part, Phase, Recurrence, Sums, side_by_side, stages_of
from graft.core.schedule.strategies.sequential.sequential_loops import loops_of
from graft.core.schedule.strategies.sequential.vector_tiles import Lanes
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import map_stage, scan_of, stage_expressions
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import ExpressionMap, loads
from graft.core.types import Type, element_bits

Places = dict[Sums, tuple[ir.Buffer, int]]
"""Weights that are packed already: in which buffer, and where they begin."""
Row = tuple[ir.Expression, ...]
"""An index of every axis but the units."""
SMALL_STEP = 2
"""Tasks of a step, by layer side by side, up to which whole layers are shared instead, whatever the threads are."""


@dataclass(frozen=True, slots=True)
class PhaseTiling:
    """How phases are cut: register tiles of ``rows`` rows, chunks of about two tiles."""

    machine: Machine
    lanes: Lanes
    widths: Mapping[int, int]
    """Numbers of units padded to the chunks of all phases that have them."""

    @staticmethod
    def of(phases: Sequence[Phase], machine: Machine) -> PhaseTiling:
        """Return the tiles for phases of a machine with vectors, whose widest element gets whole registers."""
        size = max(4, *(element_bits(phase.stages[0].buffer.dtype) // 8 for phase in phases))
        cut = PhaseTiling(machine, Lanes(machine.vector_bytes // size), {})
        widths: dict[int, int] = {}
        for phase in phases:
            units = phase.units
            widths[units] = max(widths.get(units, 0), cut.chunks(phase) * cut.chunk(phase))
        return replace(cut, widths=widths)

    @property
    def rows(self) -> int:
        """Rows of a tile: as many as hide the latency of a vector of sums."""
        return self.machine.costs.latency

    def vectors(self, rows: int) -> int:
        """Vectors of a tile of so many rows: enough sums to hide the latency, beside their factors in registers."""
        costs = self.machine.costs
        return max(1, min(int(costs.latency * costs.fused), (self.machine.registers - 2) // (rows + 1)))

    def chunk(self, phase: Phase) -> int:
        """Units that a task computes together: with all gates one or two tiles of a row; those that pad least."""
        gates, most = sum(len(sums.stages) for sums in phase.sums) or 1, self.vectors(1)
        vectors, sizes = -(-phase.units // self.lanes.count), range(-(-most // gates), 2 * -(-most // gates) + 1)
        if vectors <= max(sizes):
            return vectors * self.lanes.count
        return min(sizes, key=lambda size: (-vectors % size, -size)) * self.lanes.count

    def chunks(self, phase: Phase) -> int:
        """The number of such chunks."""
        return -(-phase.units // self.chunk(phase))


@dataclass(frozen=True, slots=True)
class Held:
    """The memory of a stage's buffer, whose units are padded: index ``dimension`` is moved by ``shift``."""

    buffer: ir.Buffer
    dimension: int = 0
    shift: int = 0

    def place(self, indices: Sequence[ir.Expression]) -> tuple[ir.Expression, ...]:
        """Return where an element is."""
        at = b.add(indices[self.dimension], self.shift)
        return (*indices[: self.dimension], at, *indices[self.dimension + 1 :])


def recurrent_loops(
    parts: Sequence[Part], outputs: Collection[ir.Buffer], cut: PhaseTiling, places: Places, threads: int = 0
) -> ir.Statement:
    """Return the loops of all parts; ``places`` has the weights that are packed already.

    ``threads`` is how many will run, 0 where that is not known.
    """
    layer, body, kept = _Layer(parts, outputs, cut, dict(places)), list[ir.Statement](), list[ir.Buffer]()
    for group in side_by_side(parts):
        match part := group[0]:
            case Recurrence():
                body.append(layer.layers([one for one in group if isinstance(one, Recurrence)], threads))
            case Phase():
                body.append(layer.phase(part, {}, part.shape[:-1]))
            case _:
                stages = [map_stage(stage, layer.reading) for stage in part]
                wanted = [stage.buffer for stage in part if stage.buffer in outputs or stage.buffer in layer.read(part)]
                body.append(loops_of(stages, wanted, cut.machine))
                kept += [buffer for buffer in wanted if buffer not in outputs]
    whole = block(*layer.packing, *body)
    for buffer in (*kept, *layer.memory):
        whole = ir.Allocate(buffer, whole)
    return whole


@dataclass(slots=True)
class _Layer:
    """The memory of a kernel's layers, and their loops."""

    parts: Sequence[Part]
    outputs: Collection[ir.Buffer]
    cut: PhaseTiling
    packed: Places
    held: dict[ir.Buffer, Held] = field(default_factory=dict)
    memory: list[ir.Buffer] = field(default_factory=list)
    packing: list[ir.Statement] = field(default_factory=list)
    reading: ExpressionMap = field(init=False)
    """It lets expressions read what is held."""

    def __post_init__(self) -> None:
        def rule(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer not in self.held:
                return node
            held = self.held[node.buffer]
            return ir.Load(held.buffer, held.place(node.indices), node.mask)

        self.reading = ExpressionMap(rule)
        for part in self.parts:
            if isinstance(part, Phase):
                for stage in part.stages:
                    self.held[stage.buffer] = Held(self._scratch("products", stage, part.shape[:-1], part.units))
            elif isinstance(part, Recurrence):
                self._hold(part)

    def _scratch(self, name: str, stage: ir.Stage, rows: Sequence[b.Count], units: int) -> ir.Buffer:
        extents = (*rows, self.cut.widths[units])
        buffer = ir.Buffer(name, stage.buffer.dtype, tuple(map(b.extent, extents)), None, "scratch", 64)
        self.memory.append(buffer)
        return buffer

    def read(self, stages: Sequence[ir.Stage]) -> set[ir.Buffer]:
        """Return what is read in other parts than that of some stages."""
        every = [stage for part in self.parts for stage in stages_of(part) if stage not in stages]
        return {load.buffer for stage in every for load in loads(*stage_expressions(stage))}

    def _hold(self, layer: Recurrence) -> None:
        """Give memory to stages of a layer that others need than those of their phase for the same units."""
        needed = self.read(stages_of(layer))
        for phase in layer.phases:
            own = {stage.buffer for stage in phase.stages}
            found = [load for stage in phase.stages for load in loads(*stage_expressions(stage))]
            needed |= {load.buffer for load in found if load.buffer not in own or load.indices != phase.axes}
        shift = 0 if layer.scan.reverse else 1
        for stage in stages_of(layer):
            if stage.buffer in needed:
                rows = list(layer.phases[0].shape[:-1])
                rows[layer.dimension] = b.raised(rows[layer.dimension], 1)
                states = self._scratch("states", stage, rows, layer.phases[0].units)
                self.held[stage.buffer] = Held(states, layer.dimension, shift)

    # ---- Loops

    def layers(self, layers: Sequence[Recurrence], threads: int) -> ir.Statement:
        """Return the loops of layers that do not read each other, in parallel where that occupies as many threads."""
        least = min(self._work_of_a_step(layer) for layer in layers)
        if least > len(layers) * SMALL_STEP * self.cut.machine.costs.task and not 0 < threads <= len(layers):
            return block(*map(self.recurrence, layers))

        def one(number: ir.Expression) -> ir.Statement:
            *others, last = map(self.recurrence, layers)
            for at, statement in reversed(list(enumerate(others))):
                last = ir.If(b.equal(number, at), statement, last)
            return last

        return loop(len(layers), one, "parallel", name="layer")

    def _work_of_a_step(self, layer: Recurrence) -> int:
        """Return the multiplications of a step, a batch that varies counted as one row."""
        rows = prod(extent for extent in layer.phases[0].shape[:-1] if isinstance(extent, int))
        steps = layer.phases[0].shape[layer.dimension]
        rows //= steps if isinstance(steps, int) else 1
        terms = sum(sums.terms * len(sums.stages) * phase.units for phase in layer.phases for sums in phase.sums)
        return rows * terms

    def recurrence(self, layer: Recurrence) -> ir.Statement:
        """Return the loops of a layer: over the steps, with what is before the first one."""
        dimension, first = layer.dimension, layer.phases[0]
        steps, extents = first.shape[dimension], list(first.shape[:-1])
        extents[dimension] = 1
        before = b.extent(steps) if layer.scan.reverse else b.index(-1)
        starts = [start for stage in stages_of(layer) for start in self._start(stage, extents, dimension, before)]

        def step(time: ir.Expression) -> ir.Statement:
            position = b.subtract(b.subtract(b.extent(steps), 1), time) if layer.scan.reverse else time
            here = {first.axes[dimension]: position}
            return block(*(self.phase(phase, here, extents) for phase in layer.phases))

        return block(*starts, loop(steps, step, name="t"))

    def _start(
        self, stage: ir.Stage, extents: Sequence[b.Count], dimension: int, before: ir.Expression
    ) -> list[ir.Statement]:
        """Store what a state is before the first step."""
        held, initial = self.held.get(stage.buffer), scan_of(stage).initial
        if held is None or initial is None:
            return []
        (units,) = b.numbers(stage.buffer, len(stage.axes) - 1)

        def line(row: Row, column: ir.Expression) -> ir.Statement:
            at = (*row[:dimension], before, *row[dimension + 1 :])
            value = self._vector(initial, dict(zip(stage.axes, at, strict=False)), stage.axes[-1], column, units)
            return self.cut.lanes.set_vector(held.buffer, held.place((*at, column))[:-1], column, value)

        vectors = self.cut.widths[units] // self.cut.lanes.count
        return [self._rows(extents, vectors, b.index(0), line)]

    def _rows(
        self,
        extents: Sequence[b.Count],
        vectors: int,
        first: ir.Expression,
        body: Callable[[Row, ir.Expression], ir.Statement],
    ) -> ir.Statement:
        def row(number: ir.Expression) -> ir.Statement:
            def vector(v: ir.Expression) -> ir.Statement:
                return body(_place(number, extents), b.add(first, b.multiply(v, self.cut.lanes.count)))

            return loop(vectors, vector, name="v")

        return loop(b.product_of(extents), row, name="row")

    def phase(
        self, phase: Phase, here: Mapping[ir.Variable, ir.Expression], extents: Sequence[b.Count]
    ) -> ir.Statement:
        """Return the loops of a phase over its chunks; ``here`` is the step, if there is one."""
        size, lanes = self.cut.chunk(phase), self.cut.lanes
        gates = [stage for sums in phase.sums for stage in sums.stages]
        sums = None
        if here and gates:
            sums = self._scratch("sums", gates[0], (*extents, len(gates)), phase.units)

        def values(row: Row) -> dict[ir.Variable, ir.Expression]:
            return {**dict(zip(phase.axes[:-1], row, strict=True)), **here}

        def chunk(number: ir.Expression) -> ir.Statement:
            first = b.multiply(number, size)
            parts = [self._sums(one, phase, number, values, extents, gates, sums) for one in phase.sums]
            if sums is not None or not gates:
                total = {stage.buffer: gate for gate, stage in enumerate(gates)}

                def finish(row: Row, column: ir.Expression) -> ir.Statement:
                    found = {
                        buffer: lanes.vector(sums, (*row, b.index(gate)), column)
                        for buffer, gate in total.items()
                        if sums is not None
                    }
                    return self._finished(phase, values(row), column, found)

                parts.append(self._rows(extents, size // lanes.count, first, finish))
            return block(*parts)

        return loop(self.cut.chunks(phase), chunk, "parallel", name="chunk")

    def _sums(
        self,
        sums: Sums,
        phase: Phase,
        chunk: ir.Expression,
        values: Callable[[Row], dict[ir.Variable, ir.Expression]],
        extents: Sequence[b.Count],
        gates: Sequence[ir.Stage],
        totals: ir.Buffer | None,
    ) -> ir.Statement:
        """Return the register tiles of sums for a chunk; without ``totals`` they are finished and stored at once."""
        lanes, size, units = self.cut.lanes, self.cut.chunk(phase), phase.units
        unit, first = phase.axes[-1], b.multiply(chunk, size)
        weights, begin = self._weights(sums, phase)
        cells = [(gate, lane) for gate in range(len(sums.stages)) for lane in range(0, size, lanes.count)]
        state = self.reading(sums.state)

        def left(row: Row, k: ir.Expression) -> ir.Expression:
            return vectorize_expression(state, {**values(row), sums.term.variable: k})

        def right(k: ir.Expression, cell: tuple[int, int]) -> ir.Expression:
            line = b.add(b.multiply(b.add(b.multiply(chunk, sums.terms), k), len(sums.stages) * size), begin)
            return lanes.vector(weights, (), b.add(line, cell[0] * size + cell[1]))

        def initial(row: Row, cell: tuple[int, int]) -> ir.Expression:
            reduction = sums.stages[cell[0]].reduction
            assert reduction is not None, "a sum of nothing"
            return self._vector(reduction.initial, values(row), unit, b.add(first, cell[1]), units)

        def sink(at: Row, cell: tuple[int, int], total: ir.Expression) -> ir.Statement:
            stage, column = sums.stages[cell[0]], b.add(first, cell[1])
            if totals is not None:
                return lanes.set_vector(totals, (*at, b.index(gates.index(stage))), column, total)
            value = self._epilogue(stage, values(at), column, units, total)
            return lanes.set_vector(self.held[stage.buffer].buffer, at, column, value)

        def lines(begin: ir.Expression, height: int) -> ir.Statement:
            rows, bound = _places([b.add(begin, line) for line in range(height)], extents)
            count = -(-len(cells) // self.cut.vectors(height))
            groups = [cells[len(cells) * i // count : len(cells) * (i + 1) // count] for i in range(count)]
            tiled = (lanes.tile(rows, group, sums.terms, left, right, initial, sink) for group in groups)
            return bind(bound, block(*tiled))

        return tiles(b.product_of(extents), self.cut.rows, lines)

    def _weights(self, sums: Sums, phase: Phase) -> tuple[ir.Buffer, int]:
        """Return the packed weights and where they begin; what is not constant is packed at the start."""
        if sums in self.packed:
            return self.packed[sums]
        lanes, size, gates = self.cut.lanes, self.cut.chunk(phase), len(sums.stages)
        count = b.index(self.cut.chunks(phase) * size * sums.terms * gates)
        packed = ir.Buffer("weights", sums.stages[0].value.type.dtype, (count,), None, "scratch", 64)
        self.memory.append(packed)
        self.packed[sums] = packed, 0

        def line(chunk: ir.Expression, k: ir.Expression) -> ir.Statement:
            begin = b.multiply(b.add(b.multiply(chunk, sums.terms), k), gates * size)
            stores = []
            for gate, weights in enumerate(map(self.reading, sums.weights)):
                for lane in range(0, size, lanes.count):
                    column, at = b.add(b.multiply(chunk, size), lane), {sums.term.variable: k}
                    value = self._vector(weights, at, phase.axes[-1], column, phase.units)
                    stores.append(lanes.set_vector(packed, (), b.add(begin, gate * size + lane), value))
            return ir.Block(tuple(stores))

        chunks = self.cut.chunks(phase)
        self.packing.append(loop(chunks, lambda chunk: loop(sums.terms, lambda k: line(chunk, k), name="k")))
        return packed, 0

    # ---- Values

    def _vector(
        self,
        expression: ir.Expression,
        values: Mapping[ir.Variable, ir.Expression],
        unit: ir.Variable,
        column: ir.Expression,
        units: int,
    ) -> ir.Expression:
        """Return an expression for a vector of units; of the caller's tensors nothing past the last unit is read."""
        lanes = self.cut.lanes
        known = {**values, unit: lanes.ramp(column)}
        mask = lanes.tail_mask(column, units, self.cut.widths[units])
        vector = vectorize_expression(self.reading(expression), known)

        def masked(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer in self.memory or node.type.lanes == 1:
                return node
            return vector_load(node, mask)

        result = ExpressionMap(masked)(vector) if mask is not None else vector
        return lanes.splat(result) if result.type.lanes == 1 else result

    def _epilogue(
        self,
        stage: ir.Stage,
        values: Mapping[ir.Variable, ir.Expression],
        column: ir.Expression,
        units: int,
        total: ir.Expression,
    ) -> ir.Expression:
        if stage.epilogue is None or stage.epilogue_variable is None:
            return total
        return self._vector(stage.epilogue, {**values, stage.epilogue_variable: total}, stage.axes[-1], column, units)

    def _finished(
        self,
        phase: Phase,
        values: Mapping[ir.Variable, ir.Expression],
        column: ir.Expression,
        totals: Mapping[ir.Buffer, ir.Expression],
    ) -> ir.Statement:
        """Compute all stages of a phase for a vector of units, then store what is held."""
        units, lanes = phase.units, self.cut.lanes
        now = {stage.buffer: ir.Variable("now", Type(stage.buffer.dtype, lanes.count)) for stage in phase.stages}

        def rule(node: ir.Expression) -> ir.Expression:
            here = isinstance(node, ir.Load) and node.buffer in now and node.indices == phase.axes
            return now[node.buffer] if here and isinstance(node, ir.Load) else node

        here = ExpressionMap(rule)
        place = tuple(values[axis] for axis in phase.axes[:-1])
        stores: list[ir.Statement] = []
        for stage in phase.stages:
            held = self.held.get(stage.buffer)
            if held is not None:
                stores.append(
                    lanes.set_vector(held.buffer, held.place((*place, column))[:-1], column, now[stage.buffer])
                )
            if stage.buffer in self.outputs:
                width = self.cut.widths[units]
                stores.append(lanes.set_part(stage.buffer, place, column, units, now[stage.buffer], width))
        body: ir.Statement = ir.Block(tuple(stores))
        for stage in reversed(phase.stages):
            if stage.reduction is None:
                value = self._vector(here(stage.value), values, stage.axes[-1], column, units)
            else:
                changed = stage if stage.epilogue is None else replace(stage, epilogue=here(stage.epilogue))
                value = self._epilogue(changed, values, column, units, totals[stage.buffer])
            body = ir.Let(now[stage.buffer], value, body)
        return body


def _place(row: ir.Expression, extents: Sequence[b.Count]) -> Row:
    """Return the index of a row by its number."""
    place = []
    for axis, extent in enumerate(extents):
        index = b.divide(row, b.product_of(extents[axis + 1 :]))
        place.append(index if b.product_of(extents[:axis]) == 1 else b.modulo(index, extent))
    return tuple(b.index(0) if extent == 1 else index for index, extent in zip(place, extents, strict=True))


def _places(
    rows: Sequence[ir.Expression], extents: Sequence[b.Count]
) -> tuple[list[Row], list[tuple[ir.Variable, ir.Expression]]]:
    """Return the indices of rows; what is divided by extents that vary is bound, since that takes time."""
    places = [_place(row, extents) for row in rows]
    if isinstance(b.product_of(extents), int) or sum(extent != 1 for extent in extents) < 2:
        return places, []
    bound: list[tuple[ir.Variable, ir.Expression]] = []
    for number, place in enumerate(places):
        names = tuple(ir.Variable(f"at{axis}") for axis in range(len(place)))
        bound += zip(names, place, strict=True)
        places[number] = names
    return places, bound
