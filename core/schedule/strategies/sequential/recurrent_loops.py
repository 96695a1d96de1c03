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
from graft.core.schedule.loops.loop_frames import taken
from graft.core.schedule.primitives.loop_kinds import Vectorize
from graft.core.schedule.primitives.statements import multiply_add, registers
from graft.core.schedule.primitives.vectorize import both, lower_loops
from graft.core.schedule.strategies.sequential.recurrence import Part, Phase, Recurrence, Sums, side_by_side, stages_of
from graft.core.schedule.strategies.sequential.sequential_loops import loops_of
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.ordered_stages import map_stage, scan_of, stage_expressions
from graft.core.tensor_ir.statements import allocate, bind, loops_over
from graft.core.tensor_ir.visit import ExpressionMap, free_variables, loads, substitute
from graft.core.types import Type, element_bits

Places = dict[Sums, tuple[ir.Buffer, int]]
"""Weights that are packed already: in which buffer, and where they begin."""
Row = tuple[ir.Expression, ...]
"""An index of every axis but the units."""
SMALL_STEP = 2
"""Tasks of a step, by layer side by side, up to which whole layers are shared instead, whatever the threads are."""


@dataclass(frozen=True, slots=True)
class PhaseTiling:
    """How phases are cut: register tiles of ``rows`` rows, chunks of about a tile."""

    machine: Machine
    lanes: int
    widths: Mapping[int, int]
    """Numbers of units padded to the chunks of all phases that have them."""

    @staticmethod
    def of(phases: Sequence[Phase], machine: Machine) -> PhaseTiling:
        """Return the tiles for phases of a machine with vectors, whose widest element gets whole registers."""
        size = max(4, *(element_bits(phase.stages[0].buffer.dtype) // 8 for phase in phases))
        cut = PhaseTiling(machine, machine.vector_bytes // size, {})
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
        """Units that a task computes together: those that pad least, and so few that a tile reads a line of weights.

        Twice as many took 1.1 of the time (a Zen 5 with AVX-512, thirty layers): weights come from the second cache.
        """
        gates = sum(len(sums.stages) for sums in phase.sums) or 1
        vectors, least = -(-phase.units // self.lanes), -(-self.rows // gates)
        sizes = range(least, 2 * least + 1)
        if vectors <= max(sizes):
            return vectors * self.lanes
        return min(sizes, key=lambda size: (-vectors % size, size)) * self.lanes

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
    lane: ir.Variable = field(default_factory=lambda: ir.Variable("lane"))
    """The place of a unit in its vector."""

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

        def line(row: Row, unit: ir.Expression) -> ir.Statement:
            at = (*row[:dimension], before, *row[dimension + 1 :], unit)
            value = self._value(initial, dict(zip(stage.axes, at, strict=True)), unit, units)
            return ir.Store(held.buffer, held.place(at), value)

        vectors = self.cut.widths[units] // self.cut.lanes
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
                place, unit = _place(number, extents), self._unit(b.add(first, b.multiply(v, self.cut.lanes)))
                return self._in_lanes(body(place, unit))

            return loop(vectors, vector, name="v")

        return loop(b.product_of(extents), row, name="row")

    def _unit(self, first: ir.Expression) -> ir.Expression:
        """Return the unit in a lane of the vector of units that begins at ``first``."""
        return b.add(first, self.lane) if self.cut.lanes > 1 else first

    def _in_lanes(self, body: ir.Statement) -> ir.Statement:
        """Return what is done for a unit, for all those of a vector."""
        if self.cut.lanes == 1:
            return body
        return lower_loops(taken(loops_over([(self.lane, b.index(self.cut.lanes))], body), (Vectorize("lane"),)))

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

                def finish(row: Row, unit: ir.Expression) -> ir.Statement:
                    found = {} if sums is None else {
                        stage.buffer: ir.Load(sums, (*row, b.index(gate), unit)) for gate, stage in enumerate(gates)
                    }  # fmt: skip
                    return self._finished(phase, {**values(row), phase.axes[-1]: unit}, found)

                parts.append(self._rows(extents, size // lanes, first, finish))
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
        first, last = b.multiply(chunk, size), phase.axes[-1]
        weights, begin = self._weights(sums, phase)
        every = [(stage, gate, at) for gate, stage in enumerate(sums.stages) for at in range(0, size, lanes)]
        state, term = self.reading(sums.state), ir.Variable("k")
        line = b.add(b.multiply(b.add(b.multiply(chunk, sums.terms), term), len(sums.stages) * size), begin)

        def tile(rows: Sequence[Row], cells: Sequence[tuple[ir.Stage, int, int]]) -> ir.Statement:
            """Return the sums of some rows and vectors of units, each held in a register."""
            kind = sums.stages[0].value.type
            own = registers("sums", kind.dtype, len(rows) * len(cells))
            left = [ir.Variable(f"a{number}", kind) for number in range(len(rows))]
            right = [ir.Variable(f"w{number}", kind) for number in range(len(cells))]
            starts, adding, ends = list[ir.Statement](), list[ir.Statement](), list[ir.Statement]()
            for number, (row, (stage, _, at)) in enumerate((row, cell) for row in rows for cell in cells):
                unit, place = self._unit(b.add(first, at)), (b.index(number),)
                assert stage.reduction is not None, "a sum of nothing"
                known, sofar = {**values(row), last: unit}, ir.Load(own, place)
                starts.append(ir.Store(own, place, self._value(stage.reduction.initial, known, unit, units)))
                added = multiply_add(left[number // len(cells)], right[number % len(cells)], sofar)
                adding.append(ir.Store(own, place, added))
                if totals is not None:
                    ends.append(ir.Store(totals, (*row, b.index(gates.index(stage)), unit), sofar))
                else:
                    whole = self._epilogue(stage, known, unit, units, sofar)
                    ends.append(ir.Store(self.held[stage.buffer].buffer, (*row, unit), whole))
            factors = [substitute(state, {**values(row), sums.term.variable: term}) for row in rows]
            packed = [ir.Load(weights, (self._unit(b.add(line, gate * size + at)),)) for _, gate, at in cells]
            bound = list(zip((*left, *right), (*factors, *packed), strict=True))[::-1]
            step = loops_over([(term, b.index(sums.terms))], bind(bound, ir.Block(tuple(adding))))
            return self._in_lanes(allocate((own,), block(*starts, step, *ends)))

        def lines(start: ir.Expression, height: int) -> ir.Statement:
            rows, bound = _places([b.add(start, row) for row in range(height)], extents)
            count = -(-len(every) // self.cut.vectors(height))
            groups = [every[len(every) * i // count : len(every) * (i + 1) // count] for i in range(count)]
            return bind(bound, block(*(tile(rows, group) for group in groups)))

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
                for at in range(0, size, lanes):
                    unit = self._unit(b.add(b.multiply(chunk, size), at))
                    value = self._value(weights, {sums.term.variable: k, phase.axes[-1]: unit}, unit, phase.units)
                    stores.append(ir.Store(packed, (self._unit(b.add(begin, gate * size + at)),), value))
            return self._in_lanes(ir.Block(tuple(stores)))

        chunks = self.cut.chunks(phase)
        self.packing.append(loop(chunks, lambda chunk: loop(sums.terms, lambda k: line(chunk, k), name="k")))
        return packed, 0

    # ---- Values

    def _exists(self, unit: ir.Expression, units: int) -> ir.Expression | None:
        """Return whether a unit is none that pads the others; None if none does."""
        return None if units == self.cut.widths[units] else b.less(unit, units)

    def _value(
        self, expression: ir.Expression, values: Mapping[ir.Variable, ir.Expression], unit: ir.Expression, units: int
    ) -> ir.Expression:
        """Return an expression for a unit; of the caller's tensors nothing past the last one is read."""
        exists = self._exists(unit, units)

        def masked(node: ir.Expression) -> ir.Expression:
            if not isinstance(node, ir.Load) or node.buffer in self.memory or self.lane not in free_variables(node):
                return node
            return replace(node, mask=both(node.mask, exists))

        known = substitute(self.reading(expression), values)
        return known if exists is None else ExpressionMap(masked)(known)

    def _epilogue(
        self,
        stage: ir.Stage,
        values: Mapping[ir.Variable, ir.Expression],
        unit: ir.Expression,
        units: int,
        total: ir.Expression,
    ) -> ir.Expression:
        if stage.epilogue is None or stage.epilogue_variable is None:
            return total
        return self._value(stage.epilogue, {**values, stage.epilogue_variable: total}, unit, units)

    def _finished(
        self,
        phase: Phase,
        values: Mapping[ir.Variable, ir.Expression],
        totals: Mapping[ir.Buffer, ir.Expression],
    ) -> ir.Statement:
        """Compute all stages of a phase for a unit, then store what is held."""
        units, now = phase.units, {one.buffer: ir.Variable("now", Type(one.buffer.dtype)) for one in phase.stages}

        def rule(node: ir.Expression) -> ir.Expression:
            here = isinstance(node, ir.Load) and node.buffer in now and node.indices == phase.axes
            return now[node.buffer] if here and isinstance(node, ir.Load) else node

        here = ExpressionMap(rule)
        place = tuple(values[axis] for axis in phase.axes)
        stores: list[ir.Statement] = []
        for stage in phase.stages:
            held = self.held.get(stage.buffer)
            if held is not None:
                stores.append(ir.Store(held.buffer, held.place(place), now[stage.buffer]))
            if stage.buffer in self.outputs:
                stores.append(ir.Store(stage.buffer, place, now[stage.buffer], self._exists(place[-1], units)))
        body: ir.Statement = ir.Block(tuple(stores))
        for stage in reversed(phase.stages):
            if stage.reduction is None:
                value = self._value(here(stage.value), values, place[-1], units)
            else:
                changed = stage if stage.epilogue is None else replace(stage, epilogue=here(stage.epilogue))
                value = self._epilogue(changed, values, place[-1], units, totals[stage.buffer])
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
