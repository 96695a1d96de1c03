"""What the outputs of a program hold, as expressions of the layers that it was made of.

The walk along a program (``native/contents.c``) gives each slot of each memory the number of the expression that it
holds. Here the same numbers come from the stages alone, which know neither tiles nor addresses nor instructions. Each
operation is one that nothing is known of, so that equal numbers mean equal outputs whatever the inputs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import product
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator._simulator import constants, fold
from graft.plugins.accelerator.isa import Finish, Memory, Operation, Store
from graft.plugins.accelerator.nests import times_of
from graft.plugins.accelerator.program import Program, Role
from graft.plugins.accelerator.proof.hazards import conflicts_of
from graft.plugins.accelerator.proof.tokens import named, refuse
from graft.plugins.accelerator.stages import VECTORS, Action, Operand, Stage
from graft.plugins.accelerator.tiling import Kind

Numbers: TypeAlias = npt.NDArray[np.uint64]
Indices: TypeAlias = npt.NDArray[np.int64]


class Tag(IntEnum):
    """What tells expressions apart, as native/contents.c numbers it."""

    CONSTANT = 1
    INPUT = 2
    WIDE = 3
    WIDENED = 4
    NARROW = 5
    PRODUCT = 6
    LANES = 7
    OPERATION = 8


@dataclass(frozen=True, slots=True)
class Source:
    """What a program was made of: its stages in order, and where their results lie in DRAM by the tensors' names.

    Whatever a stage stores is stored before the instruction of ``ends``.
    """

    stages: tuple[Stage, ...]
    ends: tuple[int, ...]
    addresses: Mapping[str, int]


def contents_before(program: Program) -> bytearray:
    """Return what DRAM holds before a program, by ``block_out`` bytes each: its inputs, and bytes that are known."""
    lanes = program.configuration.block_out
    found = np.zeros(program.dram_bytes // lanes + 1, np.uint64)
    for tensor in program.tensors:
        first = tensor.offset // lanes
        part = found[first : first + tensor.size // lanes]
        if tensor.role is Role.CONSTANT:
            part[:] = _constants(tensor.data, lanes)
        elif tensor.role is Role.INPUT:
            part[:] = _fold(np.uint64(Tag.INPUT), np.arange(first, first + len(part), dtype=np.uint64))
    return bytearray(found.tobytes())


def check_contents(program: Program, source: Source, behind: bytearray) -> None:
    """Raise ProofError, naming a store, where an output holds something else than the source of a program means.

    ``behind`` is what DRAM holds when the program has run.
    """
    lanes, before = program.configuration.block_out, contents_before(program)
    found, known = (np.frombuffer(one, np.uint64) for one in (behind, before))
    parts = {one.name: slice(one.offset // lanes, one.end // lanes) for one in program.tensors}
    roles = {one.name: one.role for one in program.tensors}
    values = {name: known[part] for name, part in parts.items() if roles[name] is Role.INPUT}
    for stage in source.stages:
        entries, meant = _Meaning(stage, values, lanes).result()
        size = stage.shape.images * stage.output.blocks * stage.output.plane
        whole = values.setdefault(stage.output.tensor, np.zeros(size, np.uint64))
        whole[entries] = meant
    for name, role in roles.items():
        if role is Role.OUTPUT and not np.array_equal(found[parts[name]], values[name]):
            _refuse(program, source, values, name)


def _refuse(program: Program, source: Source, values: Mapping[str, Numbers], output: str) -> None:
    """Name the first store of something wrong, each stage by itself."""
    lanes = program.configuration.block_out
    hidden = tuple(replace(one, role=Role.WORKSPACE) if one.role is Role.OUTPUT else one for one in program.tensors)
    for stage, end in zip(source.stages, source.ends, strict=True):
        part = replace(program, tensors=hidden, instructions=(*program.instructions[:end], Finish()))
        behind = contents_before(program)
        conflicts_of(part, range(end + 1), behind)
        entries, _ = _Meaning(stage, values, lanes).result()
        places = source.addresses[stage.output.tensor] // lanes + entries
        wrong = np.frombuffer(behind, np.uint64)[places] != values[stage.output.tensor][entries]
        if wrong.any():
            entry, place = (int(one[wrong][0]) for one in (entries, places))
            stores = [
                i for i, one in enumerate(program.instructions) if isinstance(one, Store) and place in _range(one)
            ]
            index = max((i for i in stores if i < end), default=min(stores, default=end - 1))
            text = f"entry {entry} of '{stage.output.tensor}', and it does not hold what '{stage.name}' means"
            refuse(f"{named(program, index)} stores {text}", index)
    refuse(f"the output '{output}' does not hold what its source means")


def _range(store: Store) -> set[int]:
    """Return the entries of DRAM that a store of narrow numbers writes."""
    assert store.memory is Memory.OUTPUT, store
    rows = range(store.dram, store.dram + store.rows * store.stride, store.stride) if store.stride else [store.dram]
    return {row + column for row in rows for column in range(store.columns)}


# ---- Numbers ------------------------------------------------------------------------------------------------------


def _constants(data: bytes, lanes: int) -> Numbers:
    return np.frombuffer(constants(data, lanes), np.uint64)


def _fold(a: Numbers | np.uint64, b: Numbers | np.uint64) -> Numbers:
    left, right = np.broadcast_arrays(a, b)
    data = fold(np.ascontiguousarray(left).data, np.ascontiguousarray(right).data)
    return np.frombuffer(data, np.uint64).reshape(left.shape)


def _wide(granules: Numbers) -> Numbers:
    """Return entries of several granules, which the last axis counts."""
    found: Numbers | np.uint64 = np.uint64(Tag.WIDE)
    for one in np.moveaxis(granules, -1, 0):
        found = _fold(found, one)
    assert isinstance(found, np.ndarray), granules
    return found


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The outputs of a stage, [image, block, row, column], given what its inputs hold."""

    stage: Stage
    values: Mapping[str, Numbers]
    lanes: int

    def result(self) -> tuple[Indices, Numbers]:
        """Return the entries of the output's tensor that the stage makes, and what they hold."""
        stage, (rows, columns) = self.stage, self.stage.shape.result
        images, blocks = np.arange(stage.shape.images), np.arange(stage.output.count) + stage.output.first
        planes = (images[:, None] * stage.output.blocks + blocks) * stage.output.plane
        entries = planes[:, :, None] + np.arange(rows * columns)
        return entries.reshape(-1), _fold(np.uint64(Tag.NARROW), self._acted(self._total())).reshape(-1)

    def _acted(self, total: Numbers) -> Numbers:
        """Return what the ALU makes of sums, beside which lies what is moved."""
        beside = np.zeros(0, np.uint64)
        if self.stage.moved is not None:
            (rows, columns), blocks = self.stage.shape.result, np.arange(self.stage.shape.outputs)
            moved, width = self.stage.moved, self.stage.shape.result[1]
            beside = self._as_they_are(self._read(moved, blocks, np.arange(rows), np.arange(columns), width))
        for action in self.stage.actions:
            x = beside if action.on_moved else total
            found = _fold(x, _key(action.operation, action.immediate))
            for y in [beside] if action.with_moved else self._vectors(action):
                found = _fold(found, y)
            if action.on_moved:
                beside = found
            else:
                total = found
        return total

    def _vectors(self, action: Action) -> list[Numbers]:
        if action.vector is None:
            return []
        assert self.stage.vectors is not None, self.stage.name
        rows = _wide(
            _constants(np.ascontiguousarray(self.stage.vectors, np.int32).tobytes(), self.lanes).reshape(-1, 4)
        )
        blocks = np.arange(self.stage.shape.outputs) * (VECTORS if action.by_block else 0) + action.vector
        count = 3 if action.operation is Operation.REQUANTIZE else 1
        return [rows[blocks + number][:, None, None] for number in range(count)]

    # ---- Sums -----------------------------------------------------------------------------------------------------

    def _total(self) -> Numbers:
        match self.stage.shape.kind:
            case Kind.BLOCKS:
                return self._blocks()
            case Kind.LANES | Kind.SUM:
                return self._by_lanes()
            case Kind.MAXIMUM | Kind.MOVE:
                found = self._as_they_are(self._tap(self.stage.inputs[0], 0, (0, 0)))
                taps = self.stage.shape.taps if self.stage.shape.kind is Kind.MAXIMUM else 1
                for number in range(1, taps):
                    tap = divmod(number, self.stage.shape.kernel[1])
                    found = _fold(found, _key(Operation.MAX, 0))
                    found = _fold(found, self._as_they_are(self._tap(self.stage.inputs[0], 0, tap)))
                return found

    def _blocks(self) -> Numbers:
        """Add up products of blocks, and of what takes zero points away."""
        stage, shape, total = self.stage, self.stage.shape, self._zeros()
        weights, block = self._weights(), 0
        for operand in stage.inputs:
            count = shape.inputs if len(stage.inputs) == 1 else operand.count
            for number, p, q in product(range(count), *map(range, shape.kernel)):
                x = self._tap(operand, number, (p, q))
                for part in range(shape.parts):
                    total += _fold(x, self._factor(weights[:, :, block + number, part, p, q]))
            block += count
        left, right = stage.corrections
        for number in range(shape.inputs if left or right else 0):
            x, w = self._tap(stage.inputs[0], number, (0, 0)), weights[:, :, number, 0, 0, 0]
            if right:
                entry = _wide(np.repeat(self._constant(-right // times_of(right)), self.lanes))
                total += np.uint64(times_of(right)) * _fold(x, entry ^ np.uint64(Tag.PRODUCT))
            if left:
                ones = self._constant(-left // times_of(left))
                total += np.uint64(times_of(left)) * _fold(ones, self._factor(w))
        return total

    def _by_lanes(self) -> Numbers:
        """Add up lanes, by rows of weights or as they are."""
        stage, shape, total = self.stage, self.stage.shape, self._zeros()
        for part, (p, q) in product(range(shape.parts), product(*map(range, shape.kernel))):
            x = self._tap(stage.inputs[0], 0, (p, q))
            if shape.kind is Kind.SUM:
                total += self._as_they_are(x)
                continue
            assert isinstance(stage.weights, bytes), stage.name
            rows = _constants(stage.weights, self.lanes).reshape(shape.outputs, -1)
            row = rows[:, (part * shape.kernel[0] + p) * shape.kernel[1] + q]
            total += _fold(x, row[:, None, None] ^ np.uint64(Tag.LANES))
        return total

    def _weights(self) -> Numbers:
        """Return blocks of weights [image or 1, output, input, part, row, column]."""
        stage, shape = self.stage, self.stage.shape
        own = stage.weights
        rows = _constants(own, self.lanes) if isinstance(own, bytes) else self.values[own]
        extents = (-1, shape.outputs, shape.inputs, shape.parts, *shape.kernel)
        return _wide(rows.reshape(-1, self.lanes)).reshape(extents)

    def _factor(self, weights: Numbers) -> Numbers:
        return weights[:, :, None, None] ^ np.uint64(Tag.PRODUCT)

    def _as_they_are(self, x: Numbers) -> Numbers:
        """Return lanes by ones."""
        return _fold(x, self._constant(1) ^ np.uint64(Tag.LANES))

    def _constant(self, value: int) -> Numbers:
        return _constants(bytes([value & 255]) * self.lanes, self.lanes)

    def _zeros(self) -> Numbers:
        return np.zeros((self.stage.shape.images, self.stage.shape.outputs, *self.stage.shape.result), np.uint64)

    # ---- Inputs ---------------------------------------------------------------------------------------------------

    def _tap(self, operand: Operand, number: int, tap: tuple[int, int]) -> Numbers:
        """Return what each output reads of an input, of a block counted from its first, at a place of the kernel."""
        shape = self.stage.shape
        rows, columns = (
            np.arange(shape.result[axis]) * shape.strides[axis] - shape.pads[axis] + tap[axis] * shape.dilations[axis]
            for axis in (0, 1)
        )
        step = shape.step if shape.kind is Kind.BLOCKS else 1
        blocks = np.arange(shape.outputs) * step + number
        return self._read(operand, blocks if step else blocks[:1], rows, columns, shape.pitch)

    def _read(self, operand: Operand, blocks: Indices, rows: Indices, columns: Indices, pitch: int) -> Numbers:
        """Return what lies at places of a tensor, padding around them."""
        shape = self.stage.shape
        height, width = shape.size if operand in self.stage.inputs else shape.result
        planes = self.values[operand.tensor].reshape(shape.images, operand.blocks, operand.plane)
        inside = ((rows >= 0) & (rows < height))[:, None] & ((columns >= 0) & (columns < width))
        entries = np.where(inside, rows[:, None] * pitch + columns, 0)
        found = planes[:, operand.first + blocks][:, :, entries]
        return np.where(inside, found, self._constant(self.stage.pad_value))


def _key(operation: Operation, immediate: int) -> np.uint64:
    return np.uint64(Tag.OPERATION << 32 | operation << 16 | (immediate & 0xFFFF))
