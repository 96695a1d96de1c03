"""A stage as instructions: tile by tile through buffers, in the order of their meaning.

Actions and stores of a tile follow the products of the next, so that a unit never waits for what was just begun. What
a buffer still holds is not loaded again. Tokens are put in later, from the addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import Alu, Gemm, Instruction, Load, Memory, MicroOp, Operation, Store
from graft.plugins.accelerator.stages import VECTORS, Action, Operand, Stage
from graft.plugins.accelerator.tiling import MOST_ROW, Kind, Rooms, Slots, Tile, Tiling, Window

ONES = 0
"""The row of weights, and with it the first entry, that holds ones."""
CORRECTION = 1
"""The entry of weights that holds what multiplies the sums of inputs: see ``Stage.corrections``."""
LANES_AT = 2
"""The first entry of the weights of ``Kind.LANES``."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What of the memories a whole program has set aside, and the buffers of the rest.

    The vectors of a stage lie at one end of the accumulators, those of the next at the other.
    """

    configuration: Configuration
    rooms: Rooms
    weights_before: int
    vectors: int

    def accumulator(self, slot: int) -> int:
        """Return the first accumulator of a buffer."""
        return self.vectors + slot * self.rooms.accumulator

    def vector(self, number: int) -> int:
        """Return where the vectors of the stage of a number lie."""
        return 0 if number % 2 == 0 else self.configuration.accumulator_entries - self.vectors

    @property
    def constant_input(self) -> int:
        """The entry of inputs behind all buffers: see ``Stage.corrections``."""
        return self.rooms.buffers * self.rooms.input


@dataclass(slots=True)
class Buffers:
    """What the buffers hold, from stage to stage, and which one outputs are next for."""

    inputs: Slots
    weights: Slots
    lanes: Slots
    moved: Slots
    tiles: int = 0

    @classmethod
    def of(cls, rooms: Rooms) -> Buffers:
        """Return empty buffers."""
        inputs, weights, lanes, moved = (Slots(rooms.buffers) for _ in range(4))
        return cls(inputs, weights, lanes, moved)


@dataclass(slots=True)
class Emitted:
    """The instructions of a stage, whose micro-ops count from 0, in three parts.

    What may be loaded at once, what follows behind the last stage's ``rest``, and the last tile's actions and stores.
    """

    head: list[Instruction] = field(default_factory=list)
    body: list[Instruction] = field(default_factory=list)
    rest: list[Instruction] = field(default_factory=list)
    micro_ops: list[MicroOp] = field(default_factory=list)

    def at(self, base: int) -> Emitted:
        """Return the same with micro-ops from another place."""
        head, body, rest = (_moved(part, base) for part in (self.head, self.body, self.rest))
        return Emitted(head, body, rest, self.micro_ops)


def _moved(instructions: Sequence[Instruction], base: int) -> list[Instruction]:
    return [
        replace(one, begin=one.begin + base, end=one.end + base) if isinstance(one, Gemm | Alu) and base else one
        for one in instructions
    ]


@dataclass(slots=True)
class Emitter:
    """One stage: ``addresses`` are of tensors in DRAM, ``number`` says at which end vectors lie."""

    stage: Stage
    tiling: Tiling
    plan: Plan
    buffers: Buffers
    addresses: Mapping[str, int]
    number: int
    emitted: Emitted = field(default_factory=Emitted)
    kernels: dict[tuple[MicroOp, ...], int] = field(default_factory=dict)
    input_slot: int = 0
    weight_at: int = 0

    def emit(self) -> Emitted:
        """Return the instructions of the stage."""
        emitted, stage = self.emitted, self.stage
        if stage.vectors is not None:
            emitted.head.append(self._load_vectors())
        emitted.head += self._load_constants()
        for count, tile in enumerate(self.tiling.tiles(stage.shape)):
            slot = self.buffers.tiles % self.plan.rooms.outputs
            self.buffers.tiles += 1
            body: list[Instruction] = []
            for place, chunk in enumerate(self.tiling.chunks(stage.shape, tile)):
                (body if count or place else emitted.head).extend(self._bring_weights(tile, chunk))
                body += self._bring_input(tile, chunk)
                body += self._multiply(tile, chunk, slot)
            body += self._move(tile, slot)
            after = [*self._act(tile, slot), *self._store(tile, slot)]
            if self.plan.rooms.buffers == 1:
                emitted.body += [*body, *after]
            else:
                emitted.body += [*body, *emitted.rest]
                emitted.rest = after
        return emitted

    def _kernel(self, micro_ops: tuple[MicroOp, ...]) -> dict[str, Any]:
        """Return where micro-ops stand, once for all that use the same."""
        begin = self.kernels.setdefault(micro_ops, len(self.emitted.micro_ops))
        if begin == len(self.emitted.micro_ops):
            self.emitted.micro_ops += micro_ops
        return {"begin": begin, "end": begin + len(micro_ops)}

    # ---- Loads ----------------------------------------------------------------------------------------------------

    def _load_vectors(self) -> Instruction:
        entry = self.plan.configuration.entry_bytes["accumulator"]
        assert self.stage.vectors is not None
        return Load(
            memory=Memory.ACCUMULATOR,
            sram=self.plan.vector(self.number),
            dram=self.addresses[f"{self.stage.output.tensor}/{self.number}/vectors"] // entry,
            columns=len(self.stage.vectors),
        )

    def _load_constants(self) -> Iterator[Instruction]:
        """Fill the entries that hold one number everywhere: padding is all they are."""
        left, right = self.stage.corrections
        if right:
            yield Load(
                memory=Memory.WEIGHT, sram=CORRECTION, rows=0, columns=1, pad_top=1, pad_value=-right // _times(right)
            )
        if left:
            yield Load(sram=self.plan.constant_input, rows=0, columns=1, pad_top=1, pad_value=-left // _times(left))

    def _bring_input(self, tile: Tile, chunk: range) -> Iterator[Instruction]:
        slot, is_new = self.buffers.inputs.take((self.number, tile.image, chunk, tile.rows, tile.columns))
        self.input_slot = slot
        if is_new:
            yield from self._load_input(tile.window(self.stage.shape), chunk, tile.image)

    def _load_input(self, window: Window, chunk: range, image: int) -> Iterator[Instruction]:
        shape = self.stage.shape
        places = [(operand, operand.first + block) for operand in self.stage.inputs for block in range(operand.count)]
        at = self.input_slot * self.plan.rooms.input
        if len(self.stage.inputs) == 1 and window.columns == shape.size[1] == shape.pitch and not window.is_padded:
            yield from self._load_blocks(places[chunk.start], len(chunk), image, window.top * shape.pitch,
                                         window.entries, at)  # fmt: skip
            return
        for number, block in enumerate(chunk):
            operand, place = places[block]
            first = (image * operand.blocks + place) * operand.plane + window.top * shape.pitch + window.left
            yield Load(
                sram=at + number * window.entries,
                dram=self._entry(operand.tensor, "input") + first,
                rows=window.rows,
                columns=window.columns,
                stride=shape.pitch,
                pad_top=window.pad_top,
                pad_bottom=window.pad_bottom,
                pad_left=window.pad_left,
                pad_right=window.pad_right,
                pad_value=self.stage.pad_value,
            )

    def _load_blocks(
        self, place: tuple[Operand, int], count: int, image: int, start: int, entries: int, at: int
    ) -> Iterator[Instruction]:
        """Load places that lie together in each of some blocks, at once if an instruction can say so."""
        operand, block = place
        first = self._entry(operand.tensor, "input") + (image * operand.blocks + block) * operand.plane + start
        if operand.plane < MOST_ROW:
            yield Load(sram=at, dram=first, rows=count, columns=entries, stride=operand.plane)
        else:
            for number in range(count):
                yield Load(sram=at + number * entries, dram=first + number * operand.plane, columns=entries)

    def _entry(self, tensor: str, memory: str) -> int:
        return self.addresses[tensor] // self.plan.configuration.entry_bytes[memory]

    def _bring_weights(self, tile: Tile, chunk: range) -> Iterator[Instruction]:
        shape, rooms, stage = self.stage.shape, self.plan.rooms, self.stage
        if shape.kind not in (Kind.BLOCKS, Kind.LANES):
            return
        is_computed = isinstance(stage.weights, str)
        key = (self.number, chunk, tile.outputs, tile.image if is_computed else 0)
        slots = self.buffers.weights if shape.kind is Kind.BLOCKS else self.buffers.lanes
        slot, is_new = slots.take(key)
        self.weight_at = (self.plan.weights_before + slot * rooms.weight) if shape.kind is Kind.BLOCKS else (
            LANES_AT + slot * rooms.lanes)  # fmt: skip
        if not is_new:
            return
        name = stage.weights if isinstance(stage.weights, str) else f"{stage.output.tensor}/{self.number}/weights"
        base, taps = self._entry(name, "weight"), shape.taps
        if shape.kind is Kind.LANES or shape.needs:
            size = shape.lane_entries if shape.kind is Kind.LANES else taps
            before = sum(stop - start for start, stop in shape.needs[: tile.outputs.start]) * size
            count = sum(stop - start for start, stop in shape.needs[tile.outputs.start : tile.outputs.stop]) * size
            yield Load(memory=Memory.WEIGHT, sram=self.weight_at, dram=base + before, columns=count)
            return
        first = (tile.outputs.start * shape.inputs + chunk.start) * taps
        yield Load(
            memory=Memory.WEIGHT,
            sram=self.weight_at,
            dram=base + first + tile.image * shape.outputs * shape.inputs * is_computed,
            rows=len(tile.outputs),
            columns=len(chunk) * taps,
            stride=shape.inputs * taps,
        )

    # ---- The GEMM unit --------------------------------------------------------------------------------------------

    def _multiply(self, tile: Tile, chunk: range, slot: int) -> Iterator[Instruction]:
        shape, window = self.stage.shape, tile.window(self.stage.shape)
        x, to = self.input_slot * self.plan.rooms.input, self.plan.accumulator(slot)
        loop: dict[str, Any] = {
            "outer": len(tile.rows),
            "inner": len(tile.columns),
            "destination_outer": len(tile.columns),
            "destination_inner": 1,
            "source_outer": shape.strides[0] * window.width,
            "source_inner": shape.strides[1],
        }
        lanes = shape.kind is not Kind.BLOCKS
        if shape.kind is Kind.SUM and tile.area == 1:
            yield from self._sum_all(tile, window, x, to)
            return
        taps = self._taps(tile, chunk, window, x, to)
        if chunk.start == shape.inputs_of(tile.outputs).start:
            first = tuple(of_output[0] for of_output in taps)
            yield Gemm(reset=True, lanes=lanes, **self._kernel(first), **loop)
            taps = [of_output[1:] for of_output in taps]
        if shape.kind is Kind.MAXIMUM:
            yield from self._spread(tile, window, x, to)
        elif rest := tuple(chain.from_iterable(taps)):
            yield Gemm(lanes=lanes, **self._kernel(rest), **loop)
        if self.stage.corrections[0]:
            constant = tuple(
                replace(one, source=self.plan.constant_input)
                for one in chain.from_iterable(self._taps(tile, chunk, window, x, to, corrected=False))
            )
            loop |= {"source_outer": 0, "source_inner": 0}
            yield Gemm(
                **self._kernel(constant * _times(self.stage.corrections[0])),
                **loop,
            )

    def _taps(
        self, tile: Tile, chunk: range, window: Window, x: int, to: int, *, corrected: bool = True
    ) -> list[list[MicroOp]]:
        """Return, by block of outputs, the steps that add up to it."""
        shape, found, weight = self.stage.shape, [], self.weight_at
        right = self.stage.corrections[1] if corrected else 0
        for number, output in enumerate(tile.outputs):
            destination, steps = to + number * tile.area, list[MicroOp]()
            start, stop = shape.needs[output] if shape.needs else (chunk.start, chunk.stop)
            for block in range(start, stop):
                source = x + (block - chunk.start) * window.entries
                for tap in range(shape.taps if shape.kind is not Kind.MAXIMUM else 1):
                    match shape.kind:
                        case Kind.BLOCKS:
                            row = weight + tap
                        case Kind.LANES:
                            row = weight * self.plan.configuration.block_out + tap
                        case _:
                            row = ONES
                    steps.append(MicroOp(destination, source + shape.place(tap, window.width), row))
                weight += shape.taps if shape.kind is Kind.BLOCKS else shape.lane_entries
                steps += [MicroOp(destination, source, CORRECTION)] * (_times(right) if right else 0)
            found.append(steps)
        return found

    def _sum_all(self, tile: Tile, window: Window, x: int, to: int) -> Iterator[Instruction]:
        """Add up a whole window: its places are the loops."""
        shape = self.stage.shape
        micro_ops = tuple(MicroOp(to + n, x + n * window.entries, ONES) for n in range(len(tile.outputs)))
        down, right = shape.dilations[0] * window.width, shape.dilations[1]
        # The first place replaces what was there; then come the rest of its row, and the rows below.
        yield Gemm(reset=True, lanes=True, **self._kernel(micro_ops))
        if shape.kernel[1] > 1:
            row = tuple(replace(one, source=one.source + right) for one in micro_ops)
            yield Gemm(lanes=True, inner=shape.kernel[1] - 1, source_inner=right, **self._kernel(row))
        if shape.kernel[0] > 1:
            below = tuple(replace(one, source=one.source + down) for one in micro_ops)
            yield Gemm(
                lanes=True,
                outer=shape.kernel[0] - 1,
                inner=shape.kernel[1],
                source_outer=down,
                source_inner=right,
                **self._kernel(below),
            )

    def _spread(self, tile: Tile, window: Window, x: int, to: int) -> Iterator[Instruction]:
        """Bring whole windows beside the outputs, for the ALU to compare."""
        if self.stage.shape.taps > 1:
            count = len(tile.outputs)
            beside = to + count * tile.area
            micro_ops = tuple(MicroOp(beside + n * window.entries, x + n * window.entries, ONES) for n in range(count))
            yield self._copy(micro_ops, window.entries)

    def _copy(self, micro_ops: tuple[MicroOp, ...], entries: int) -> Instruction:
        return Gemm(
            reset=True, lanes=True, inner=entries, destination_inner=1, source_inner=1, **self._kernel(micro_ops)
        )  # fmt: skip

    def _move(self, tile: Tile, slot: int) -> Iterator[Instruction]:
        """Bring the second tensor's tile behind the outputs; among inputs it lies at the end of a buffer."""
        operand, shape = self.stage.moved, self.stage.shape
        if operand is None:
            return
        slot_, _ = self.buffers.moved.take((self.number, tile))
        at = (slot_ + 1) * self.plan.rooms.input - len(tile.outputs) * tile.area
        block = operand.first + tile.outputs.start
        start = tile.rows.start * shape.result[1] + tile.columns.start
        if len(tile.columns) == shape.result[1]:
            yield from self._load_blocks((operand, block), len(tile.outputs), tile.image, start, tile.area, at)
        else:
            base = self._entry(operand.tensor, "input") + start
            for number in range(len(tile.outputs)):
                first = base + (tile.image * operand.blocks + block + number) * operand.plane
                yield Load(
                    sram=at + number * tile.area,
                    dram=first,
                    rows=len(tile.rows),
                    columns=len(tile.columns),
                    stride=shape.result[1],
                )
        to = self.plan.accumulator(slot) + len(tile.outputs) * tile.area
        micro_ops = tuple(MicroOp(to + n * tile.area, at + n * tile.area, ONES) for n in range(len(tile.outputs)))
        yield self._copy(micro_ops, tile.area)

    # ---- The ALU and the store unit -------------------------------------------------------------------------------

    def _act(self, tile: Tile, slot: int) -> Iterator[Instruction]:
        if self.stage.shape.kind is Kind.MAXIMUM and self.stage.shape.taps > 1:
            yield self._maximum(tile, slot)
        main = self.plan.accumulator(slot)
        moved = main + len(tile.outputs) * tile.area
        for action in self.stage.actions:
            yield self._action(action, tile, main, moved)

    def _action(self, action: Action, tile: Tile, main: int, moved: int) -> Instruction:
        vectors = self.plan.vector(self.number)
        micro_ops = []
        for number, block in enumerate(tile.outputs):
            place = number * tile.area
            source = moved + place if action.with_moved else 0
            if action.vector is not None:
                source = vectors + action.vector + (VECTORS * block if action.by_block else 0)
            micro_ops.append(MicroOp((moved if action.on_moved else main) + place, source))
        return Alu(
            operation=action.operation,
            inner=tile.area,
            destination_inner=1,
            source_inner=1 if action.with_moved else 0,
            use_immediate=action.vector is None and not action.with_moved,
            immediate=action.immediate,
            **self._kernel(tuple(micro_ops)),
        )

    def _maximum(self, tile: Tile, slot: int) -> Instruction:
        shape, window = self.stage.shape, tile.window(self.stage.shape)
        main = self.plan.accumulator(slot)
        beside = main + len(tile.outputs) * tile.area
        micro_ops = tuple(
            MicroOp(main + number * tile.area, beside + number * window.entries + shape.place(tap, window.width))
            for tap in range(1, shape.taps)
            for number in range(len(tile.outputs))
        )
        return Alu(
            operation=Operation.MAX,
            outer=len(tile.rows),
            inner=len(tile.columns),
            destination_outer=len(tile.columns),
            destination_inner=1,
            source_outer=shape.strides[0] * window.width,
            source_inner=shape.strides[1],
            **self._kernel(micro_ops),
        )

    def _store(self, tile: Tile, slot: int) -> Iterator[Instruction]:
        width, operand = self.stage.shape.result[1], self.stage.output
        entry = self.plan.configuration.batch * self.plan.configuration.block_out
        base = self.addresses[operand.tensor] // entry + tile.rows.start * width + tile.columns.start
        first = base + (tile.image * operand.blocks + operand.first + tile.outputs.start) * operand.plane
        at = self.plan.accumulator(slot)
        if len(tile.columns) == width and operand.plane < MOST_ROW:
            yield Store(sram=at, dram=first, rows=len(tile.outputs), columns=tile.area, stride=operand.plane)
            return
        for number in range(len(tile.outputs)):
            yield Store(
                sram=at + number * tile.area,
                dram=first + number * operand.plane,
                rows=len(tile.rows),
                columns=len(tile.columns),
                stride=width,
            )


def _times(zero: int) -> int:
    """Return in how many steps a zero point is taken away: what is taken must fit into 8 bits."""
    return 2 if zero == -128 else 1
