"""A scheduled function as instructions: copies are transfers, intrinsics in loops are products and operations.

The walk runs the loops over tiles and turns what they hold into instructions: loops around an intrinsic become the
two of the instruction and its micro-ops, loops of a copy the window of a transfer, conditions their bounds. Buffers of
a tile go round the places that a memory is divided into; what a place still holds is not loaded again. Actions and
stores of a tile follow the products of the next, so that a unit never waits for what was just begun: tiles are virtual
threads. Tokens are put in later, from the addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from graft.core.affine.linear import Linear
from graft.core.operators.definition.build import dims
from graft.core.schedule.primitives.step import bounded
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.plugins.accelerator.affine import Leaf, Place, Values, fixed, in_units, leaf_of, value_at
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.intrinsics import ACCUMULATOR, INPUT, WEIGHT, Intrinsic
from graft.plugins.accelerator.isa import Alu, Gemm, Instruction, Load, Memory, MicroOp, Store
from graft.plugins.accelerator.kernels import Kernels
from graft.plugins.accelerator.schedule import Scheduled
from graft.plugins.accelerator.stages import Stage
from graft.plugins.accelerator.tiling import Kind, Rooms, Slots
from graft.plugins.accelerator.windows import Axis, Window, windows_of

MEMORIES = {INPUT: Memory.INPUT, WEIGHT: Memory.WEIGHT, ACCUMULATOR: Memory.ACCUMULATOR}
ONES = 0
"""The row of weights, and with it the first entry, that holds ones."""
LOAD_ONES = Load(memory=Memory.WEIGHT, sram=ONES, rows=0, columns=1, pad_top=1, pad_value=1)
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

    What may be loaded at once, the tiles, and the last tile's actions and stores, with which the next stage begins.
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


@dataclass(frozen=True, slots=True)
class Region:
    """Where a buffer lies on the accelerator, and how many entries each of its dimensions is apart."""

    base: int
    strides: tuple[int, ...]


@dataclass(slots=True)
class Emitter:
    """One stage: ``addresses`` are of the function's parameters, ``number`` says at which end vectors lie.

    Between two products with one destination lie ``distance`` steps, if loops allow it.
    """

    stage: Stage
    scheduled: Scheduled
    plan: Plan
    buffers: Buffers
    addresses: Mapping[str, int]
    number: int
    distance: int = 1
    emitted: Emitted = field(default_factory=Emitted)
    regions: dict[ir.Buffer, Region] = field(default_factory=dict)
    zeroed: set[ir.Buffer] = field(default_factory=set)
    tile: list[Instruction] = field(default_factory=list)
    used: int = 0
    known: dict[object, Any] = field(default_factory=dict)

    def emit(self) -> Emitted:
        """Return the instructions of the stage."""
        emitted, kernels = self.emitted, Kernels(self.plan.configuration, self.distance)
        self._walk(self.scheduled.function.body, _Walk(bounded(self.scheduled.function.body), kernels), {})
        constants = takewhile(_is_constant, emitted.body)
        emitted.head = list(constants)
        emitted.body, emitted.micro_ops = emitted.body[len(emitted.head) :], kernels.micro_ops
        return emitted

    # ---- The walk -------------------------------------------------------------------------------------------------

    def _walk(self, statement: ir.Statement, walk: _Walk, at: Values) -> None:
        match statement:
            case ir.Block(statements):
                for one in statements:
                    self._walk(one, walk, at)
            case ir.Allocate(buffer, body):
                self.regions.pop(buffer, None)
                self._walk(body, walk, at)
                if buffer.name == "total":
                    self._end_tile()
            case ir.For(variable, ir.Constant(extent), _, body):
                leaf = walk.leaf(statement)
                if leaf is not None:
                    self._emit(leaf, walk, at)
                    return
                for value in range(int(extent)):
                    self._walk(body, walk, {**at, variable: value})
            case _:
                raise AssertionError(statement)

    def _end_tile(self) -> None:
        """Let the tile's actions and stores follow the products of the next."""
        emitted, self.used = self.emitted, 0
        self.buffers.tiles += 1
        after = [one for one in self.tile if isinstance(one, Alu | Store)]
        emitted.body += [one for one in self.tile if not isinstance(one, Alu | Store)]
        self.tile = []
        if self.plan.rooms.buffers == 1:
            emitted.body += after
        else:
            emitted.body += emitted.rest
            emitted.rest = [*after]

    def _emit(self, leaf: Leaf, walk: _Walk, at: Values) -> None:
        """Emit the instructions of loops with nothing but one statement in them."""
        turn = (id(leaf), *(at[one] for one in leaf.outer))
        extents = walk.extents(turn, leaf, at)
        if not all(extents.values()):
            return
        match leaf.statement:
            case ir.CallExtern(name, operands):
                reads = [one for one in operands if isinstance(one, ir.Load)]
                self.tile += self._computed(leaf, self.scheduled.intrinsics[name], reads, walk, turn)
            case ir.Store(buffer, indices, ir.Constant(0)) if buffer.memory == ACCUMULATOR:
                self._define(leaf, buffer, indices, extents)
                self.zeroed.add(buffer)
            case ir.Store(buffer, indices, ir.Constant(value)):
                base = CORRECTION if buffer.memory == WEIGHT else self.plan.constant_input
                self._define(leaf, buffer, indices, extents, base)
                memory = MEMORIES[buffer.memory]
                self.tile.append(Load(memory=memory, sram=base, rows=0, columns=1, pad_top=1, pad_value=int(value)))
            case ir.Store(value=ir.Cast(ir.Load() as near)) as write:
                self.tile += self._stored(leaf, write, near, extents, at)
            case ir.Store(value=(ir.Load() | ir.Select()) as value) as write:
                if turn not in self.known:
                    self.known[turn] = self._windows(leaf, write, value, extents, at)
                self._load(leaf, write, *self.known[turn])
            case _:
                raise AssertionError(leaf.statement)

    # ---- Places ---------------------------------------------------------------------------------------------------

    def _define(
        self, leaf: Leaf, buffer: ir.Buffer, indices: Sequence[ir.Expression], extents: Values, base: int | None = None
    ) -> None:
        """Give a buffer a place, the tile's next accumulators unless another is given.

        Its entries, as many as the loops that fill it make, lie there one after another.
        """
        sizes = [extents[one] if isinstance(one, ir.Variable) else 1 for one in indices[: -_inner(buffer)]]
        if base is None:
            base = self.plan.accumulator(self.buffers.tiles % self.plan.rooms.outputs) + self.used
            self.used += math.prod(sizes)
        self.regions[buffer] = Region(base, tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes))))

    def _near(self, leaf: Leaf, read: ir.Load) -> Place:
        """Return the entry of an access to a memory of the accelerator; the row of weights in those of lanes."""
        region = self.regions[read.buffer]
        if read.buffer.memory == WEIGHT and self.stage.shape.kind is Kind.LANES:
            rows = self.plan.configuration.block_out
            strides = (*(stride * rows for stride in region.strides), 1)
            return leaf.place(read.indices[:-1], strides, region.base * rows)
        return leaf.place(read.indices[: -_inner(read.buffer)], region.strides, region.base)

    def _far(self, leaf: Leaf, buffer: ir.Buffer, indices: Sequence[ir.Expression], inner: int) -> Place:
        """Return the address of an access to a tensor in DRAM, in entries of its last dimensions."""
        key = ("far", id(leaf))
        if key not in self.known:
            strides = [int(one.value) for one in buffer.strides or () if isinstance(one, ir.Constant)]
            if not strides:
                strides = [math.prod(dims(buffer)[place + 1 :]) for place in range(len(buffer.shape))]
            place = in_units(leaf.place(indices[:-inner], strides[:-inner], 0), math.prod(dims(buffer)[-inner:]))
            self.known[key] = place.plus(Linear(self.addresses[buffer.name]))
        found = self.known[key]
        assert isinstance(found, Linear), found
        return found

    # ---- Transfers ------------------------------------------------------------------------------------------------

    def _windows(
        self, leaf: Leaf, write: ir.Store, value: ir.Load | ir.Select, extents: Values, at: Values
    ) -> tuple[tuple[Window, ...], Values, int]:
        """Return the windows of a copy to the accelerator, how far its loops go, and what padding holds.

        What a mask leaves out without saying what stands there instead is not needed.
        """
        read, pad = (value.on_true, value.on_false) if isinstance(value, ir.Select) else (value, None)
        assert isinstance(read, ir.Load), value
        inside = leaf.inside(extents, at)
        is_padding = inside is None
        if inside is None:
            inside = dict.fromkeys(extents, (0, 0))
        if pad is None:
            extents = {**extents, **{variable: stop for variable, (_, stop) in inside.items()}}
            inside = {}
        far, axes = self._far(leaf, read.buffer, read.indices, _inner(write.buffer)), []
        for one in leaf.order(write.indices[: -_inner(write.buffer)]):
            axes.append(Axis(extents[one], *inside.get(one, (0, extents[one])), far.terms.get(one, 0)))
        if is_padding and not axes:
            axes = [Axis(1, 0, 0, 1)]
        return (
            tuple(windows_of(value_at(far, at), axes)),
            extents,
            int(pad.value) if isinstance(pad, ir.Constant) else 0,
        )

    def _load(self, leaf: Leaf, write: ir.Store, windows: Sequence[Window], extents: Values, pad_value: int) -> None:
        """Give the copy a place, and load what is not there yet."""
        buffer = write.buffer
        size = windows[-1].sram + windows[-1].rows.extent * windows[-1].columns.extent
        base, is_new = self._room(buffer, (self.number, windows), size)
        self._define(leaf, buffer, write.indices, extents, base)
        if is_new:
            self.tile += [one.load(MEMORIES[buffer.memory], base, pad_value) for one in windows]

    def _room(self, buffer: ir.Buffer, key: object, size: int) -> tuple[int, bool]:
        """Return the place of what is loaded, and whether it is not there yet."""
        plan, buffers, rooms = self.plan, self.buffers, self.plan.rooms
        if buffer.memory == ACCUMULATOR:
            return plan.vector(self.number), True
        if buffer.memory == WEIGHT and self.stage.shape.kind is Kind.LANES:
            slot, is_new = buffers.lanes.take(key)
            return LANES_AT + slot * rooms.lanes, is_new
        if buffer.memory == WEIGHT:
            slot, is_new = buffers.weights.take(key)
            return plan.weights_before + slot * rooms.weight, is_new
        if buffer.name == "moved":
            slot, is_new = buffers.moved.take(key)
            return (slot + 1) * rooms.input - size, is_new
        slot, is_new = buffers.inputs.take(key)
        return slot * rooms.input, is_new

    def _stored(self, leaf: Leaf, write: ir.Store, near: ir.Load, extents: Values, at: Values) -> Iterator[Instruction]:
        far = self._far(leaf, write.buffer, write.indices, 1)
        axes = [Axis(extents[one], 0, extents[one], far.terms.get(one, 0)) for one in leaf.order(near.indices[:-1])]
        base = self.regions[near.buffer].base
        return (one.store(base) for one in windows_of(value_at(far, at), axes))

    # ---- Products and operations ----------------------------------------------------------------------------------

    def _computed(
        self, leaf: Leaf, intrinsic: Intrinsic, operands: Sequence[ir.Load], walk: _Walk, turn: tuple[int, ...]
    ) -> list[Instruction]:
        target, extents = operands[0].buffer, walk.lengths[turn]
        if target not in self.regions:
            self._define(leaf, target, operands[0].indices, extents)
        zeroed = target in self.zeroed
        self.zeroed.discard(target)
        key = (turn, *(self.regions[one.buffer] for one in operands), zeroed)
        if key not in self.known:
            at = dict(zip(leaf.outer, turn[1:], strict=True))
            places = [fixed(self._near(leaf, one), at) for one in operands]
            for one, offset in zip(places[1:], intrinsic.offsets, strict=False):
                assert one == places[1].plus(Linear(offset)), intrinsic.name
            places = [*places, Linear(ONES)][:3] if isinstance(intrinsic.instruction, Gemm) else places[:2]
            self.known[key] = list(walk.kernels.steps(intrinsic.instruction, places, extents, zeroed))
        return list(self.known[key])


@dataclass(slots=True)
class _Walk:
    """What is known of the function that is walked, whatever the tile."""

    simplifier: Simplifier
    kernels: Kernels
    leaves: dict[int, Leaf | None] = field(default_factory=dict)
    lengths: dict[tuple[int, ...], Values] = field(default_factory=dict)

    def leaf(self, loop: ir.For) -> Leaf | None:
        """Return a loop as a leaf, None where it is none."""
        if id(loop) not in self.leaves:
            self.leaves[id(loop)] = leaf_of(loop, self.simplifier)
        return self.leaves[id(loop)]

    def extents(self, turn: tuple[int, ...], leaf: Leaf, at: Values) -> Values:
        """Return how far the loops of a leaf go."""
        if turn not in self.lengths:
            self.lengths[turn] = leaf.extents(at)
        return self.lengths[turn]


def _inner(buffer: ir.Buffer) -> int:
    """Return how many of a buffer's last dimensions are within an entry."""
    return 2 if buffer.memory == WEIGHT else 1


def _is_constant(instruction: Instruction) -> bool:
    """Whether an instruction loads what no other makes."""
    if not isinstance(instruction, Load):
        return False
    return instruction.memory is not Memory.INPUT or not instruction.rows or not instruction.columns
