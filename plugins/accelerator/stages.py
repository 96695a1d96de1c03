"""Stages: what the code generator knows how to tile. Every layer becomes one stage or a few.

A stage brings blocks of channels together in the GEMM unit, in one of the ways of ``Kind``, then lets the ALU act on
each block of outputs. What a layer is called by ONNX ends here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from graft.errors import CompileError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layers import HIGHEST, LOWEST, Activation, Requantize
from graft.plugins.accelerator.isa import FLOOR, WIDE, Operation
from graft.plugins.accelerator.tiling import Kind, Shape

Array = npt.NDArray[Any]
VECTORS = 3
"""Entries that requantisation reads: multiplier, divisor and bias."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Some of the blocks of channels of a tensor in DRAM; ``plane`` is the entries of one."""

    tensor: str
    blocks: int
    first: int
    count: int
    plane: int

    @classmethod
    def of(cls, tensor: Activation, lanes: int) -> Operand:
        """Return all blocks of a tensor."""
        blocks = -(-tensor.channels // lanes)
        return cls(tensor.name, blocks, 0, blocks, tensor.height * tensor.width)


@dataclass(frozen=True, slots=True)
class Action:
    """What the ALU does to each output, or, with ``on_moved``, to what was moved beside it.

    The other number is an entry of the stage's vectors (by block of outputs, if they are so), what was moved, or the
    immediate number.
    """

    operation: Operation
    vector: int | None = None
    by_block: bool = False
    on_moved: bool = False
    with_moved: bool = False
    immediate: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A layer, or a part of one, with its constants as they lie in DRAM.

    ``weights`` are bytes, or the tensor of an activation's; its zero point and the input's are then ``corrections``.
    ``useful`` are the products of real channels, in blocks.
    """

    name: str
    shape: Shape
    inputs: tuple[Operand, ...]
    output: Operand
    pad_value: int = 0
    weights: bytes | str = b""
    vectors: Array | None = None
    actions: tuple[Action, ...] = ()
    moved: Operand | None = None
    corrections: tuple[int, int] = (0, 0)
    useful: float = 0.0

    @property
    def structure(self) -> object:
        """What its loops depend on: equal for stages that differ in names and constants alone."""
        operands = [*self.inputs, self.output, *([self.moved] if self.moved else [])]
        rows = None if self.vectors is None else len(self.vectors)
        own = (self.shape, rows, self.pad_value, self.actions, self.corrections, self.moved is None, self.is_computed)
        return (*own, *(replace(one, tensor="", first=0) for one in operands))

    @property
    def is_computed(self) -> bool:
        """Whether the weights are an activation."""
        return isinstance(self.weights, str)

    @property
    def needs_ones(self) -> bool:
        """Whether it adds up or moves lanes as they are."""
        return self.shape.moved or self.shape.kind in (Kind.SUM, Kind.MAXIMUM, Kind.MOVE)


def refuse(name: str, text: str) -> CompileError:
    """Return the error of a layer that has no stage."""
    return CompileError(f"accelerator: '{name}': {text}")


# ---- The ALU's part -----------------------------------------------------------------------------------------------


def limits(lower: int, upper: int, zero: int) -> tuple[int, tuple[Action, ...]]:
    """Return the flag of a quantising operation and the actions behind it that keep results between limits."""
    actions = []
    if lower > LOWEST and lower != zero:
        actions.append(Action(Operation.MAX, immediate=lower))
    if upper < HIGHEST:
        actions.append(Action(Operation.MIN, immediate=upper))
    return FLOOR if lower == zero and zero > LOWEST else 0, tuple(actions)


def requantizing(requantize: Requantize, zero: int, offsets: Array, lanes: int) -> tuple[Array, tuple[Action, ...]]:
    """Return vectors by block and actions; ``offsets`` are added to the bias, by output channel."""
    bias = (np.broadcast_to(requantize.bias, offsets.shape) + offsets).astype(np.int32)
    multiplier = np.broadcast_to(requantize.multiplier.astype(np.float32), offsets.shape)
    divisor = np.full(offsets.shape, requantize.divisor, np.float32)
    missing = -len(bias) % lanes
    columns = [
        np.pad(multiplier, (0, missing)).view(np.int32),
        np.pad(divisor, (0, missing), constant_values=1).view(np.int32),
        np.pad(bias, (0, missing)),
    ]
    vectors = np.stack(columns).reshape(VECTORS, -1, lanes).transpose(1, 0, 2).reshape(-1, lanes)
    flag, behind = limits(requantize.lower, requantize.upper, zero)
    immediate = (zero & 255) | flag | (WIDE if requantize.wide else 0)
    return vectors, (Action(Operation.REQUANTIZE, 0, by_block=True, immediate=immediate), *behind)


def converting(
    source: Activation, output: Activation, lower: int, upper: int, lanes: int, count: int = 1
) -> tuple[Array | None, tuple[Action, ...]]:
    """Return vectors and actions that requantise sums of ``count`` numbers of a tensor; none where nothing changes."""
    flag, behind = limits(lower, upper, output.zero_point)
    same = (np.float32(source.scale), source.zero_point) == (np.float32(output.scale), output.zero_point)
    if same and count == 1:
        least = () if not flag else (Action(Operation.MAX, immediate=output.zero_point),)
        return None, (*least, *behind)
    multiplier = np.float32(source.scale) / np.float32(count)
    row = np.array([multiplier, output.scale, 0], np.float32).view(np.int32)
    row[2] = -source.zero_point * count
    vectors = np.repeat(row[:, None], lanes, 1)
    return vectors, (Action(Operation.REQUANTIZE, 0, immediate=(output.zero_point & 255) | flag), *behind)


def adding(
    main: Activation, moved: Activation, output: Activation, lower: int, upper: int, first: int, lanes: int
) -> tuple[Array, tuple[Action, ...]]:
    """Return vectors, whose place is ``first``, and actions that add two quantised tensors."""
    flag, behind = limits(lower, upper, output.zero_point)
    scales = np.array([main.scale, moved.scale, output.scale], np.float32).view(np.int32)
    actions = (
        Action(Operation.SCALE, first, immediate=main.zero_point & 255),
        Action(Operation.SCALE, first + 1, on_moved=True, immediate=moved.zero_point & 255),
        Action(Operation.FLOAT_ADD, with_moved=True),
        Action(Operation.QUANTIZE, first + 2, immediate=(output.zero_point & 255) | flag),
        *behind,
    )
    return np.repeat(scales[:, None], lanes, 1), actions


def with_addition(stage: Stage, made: Activation, other: Activation, total: Activation, limits_: tuple[int, int],
                  lanes: int) -> Stage:  # fmt: skip
    """Return a stage that adds a second tensor to what it made."""
    before = np.zeros((0, lanes), np.int32) if stage.vectors is None else stage.vectors
    vectors, actions = adding(made, other, total, *limits_, len(before), lanes)
    place = Operand.of(other, lanes)
    return replace(
        stage,
        shape=replace(stage.shape, moved=True, alu=len(stage.actions) + len(actions)),
        output=replace(stage.output, tensor=total.name),
        vectors=np.concatenate([before, vectors]),
        actions=(*stage.actions, *actions),
        moved=replace(place, first=stage.output.first, count=stage.output.count),
    )


# ---- Weights ------------------------------------------------------------------------------------------------------


def parts_of(weights: Array) -> list[Array]:
    """Return arrays of int8 whose sum is the weights."""
    parts, left = list[Array](), weights.astype(np.int32)
    while not parts or left.any():
        parts.append(np.clip(left, LOWEST, HIGHEST).astype(np.int8))
        left = left - parts[-1]
    return parts


def packed_blocks(weights: Array, needs: Sequence[range], configuration: Configuration) -> bytes:
    """Return [output, input, row, column] as blocks of 16 x 16: for each block of outputs those that it needs."""
    rows, columns = configuration.block_out, configuration.block_in
    blocks = []
    for part in parts_of(weights):
        wide = np.pad(part, ((0, -len(part) % rows), (0, -part.shape[1] % columns), (0, 0), (0, 0)))
        split = wide.reshape(len(wide) // rows, rows, wide.shape[1] // columns, columns, -1)
        blocks.append(split.transpose(0, 2, 4, 1, 3))
    whole = np.stack(blocks, axis=2)
    return b"".join(whole[output, one.start : one.stop].tobytes() for output, one in enumerate(needs))


def packed_lanes(weights: Array, lanes: int) -> bytes:
    """Return [channel, taps] as rows of lanes, those of a block of channels together, filled up to whole entries."""
    rows = np.stack(parts_of(weights), axis=1).reshape(len(weights), -1)
    wide = np.pad(rows, ((0, -len(rows) % lanes), (0, -rows.shape[1] % lanes)))
    return wide.reshape(-1, lanes, wide.shape[1]).transpose(0, 2, 1).tobytes()


def grouped(weights: Array, groups: int) -> Array:
    """Return the weights of a convolution of groups as those of one whole, with zeros between the groups."""
    outputs, inputs = len(weights) // groups, weights.shape[1]
    whole = np.zeros((len(weights), inputs * groups, *weights.shape[2:]), weights.dtype)
    for group in range(groups):
        rows = slice(group * outputs, (group + 1) * outputs)
        whole[rows, group * inputs : (group + 1) * inputs] = weights[rows]
    return whole


def needs_of(weights: Array, lanes: int) -> list[range]:
    """Return, by block of outputs, the blocks of inputs from the first to the last whose weights are not all zero."""
    sums: Array = np.abs(weights).sum(axis=(2, 3))
    used: Array = np.pad(np.sign(sums), ((0, -len(sums) % lanes), (0, -sums.shape[1] % lanes)))
    by_block: Array = used.reshape(len(used) // lanes, lanes, -1, lanes).max(axis=(1, 3))
    places = [np.flatnonzero(row) for row in by_block]
    return [range(int(one[0]), int(one[-1]) + 1) if len(one) else range(1) for one in places]


def even_runs(needs: Sequence[range], most: int) -> Iterator[tuple[range, int]]:
    """Yield runs of at most so many blocks of outputs whose needs are as long and evenly apart, and how far apart."""
    first = 0
    while first < len(needs):
        last, step = first, 0
        while last + 1 < len(needs) and last + 1 - first < most and len(needs[last + 1]) == len(needs[first]):
            apart = needs[last + 1].start - needs[last].start
            if apart < 0 or (last > first and apart != step):
                break
            last, step = last + 1, apart
        yield range(first, last + 1), step
        first = last + 1


def moving_shape(output: Operand, result: tuple[int, int], images: int, actions: int, *, moved: bool = False) -> Shape:
    """Return the shape of a stage that brings blocks to the ALU as they are."""
    return Shape(
        Kind.MOVE, images, output.count, 1, result, result, pitch=result[1],
        step=1, moved=moved, alu=actions,
    )  # fmt: skip
