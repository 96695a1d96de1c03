"""A quantised convolution as instructions: tiles by tiles through buffers, with tokens from their addresses.

Activations lie in DRAM as blocks of channels, [block][row][column][channel]; weights as [block of outputs][block of
inputs][row][column]; and for each block of outputs the three vectors that requantisation reads. A memory is divided
into as many buffers as run ahead of each other: one hides nothing, two hide transfers behind products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.dependences import with_tokens
from graft.plugins.accelerator.isa import FLOOR, Alu, Finish, Gemm, Instruction, Load, Memory, MicroOp, Operation, Store
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from graft.plugins.accelerator.tiling import Shape, Tile, Tiling, steps_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """Integers in, integers out: the sum of (x - input_zero) * w, plus the bias, requantised.

    ``weights`` is int8 [output, input, row, column]; ``bias`` int32, ``multiplier`` float32 by output channel. The
    result is round(float(sum) * multiplier / divisor) + output_zero, not below output_zero with ``relu``.
    """

    height: int
    width: int
    weights: Array
    bias: Array
    multiplier: Array
    divisor: float
    input_zero: int = 0
    output_zero: int = 0
    relu: bool = False
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def shape(self, configuration: Configuration) -> Shape:
        """Return the extents, with channels in blocks."""
        outputs, inputs, *kernel = self.weights.shape
        return Shape(
            -(-outputs // configuration.block_out),
            -(-inputs // configuration.block_in),
            (self.height, self.width),
            (kernel[0], kernel[1]),
            self.strides,
            self.pads,
            self.dilations,
        )


def packed_activation(x: Array, block: int) -> bytes:
    """Return [channel, row, column] as blocks of channels; what is behind the last channel is zero."""
    padded = np.pad(x, ((0, -len(x) % block), (0, 0), (0, 0)))
    return padded.reshape(-1, block, *x.shape[1:]).transpose(0, 2, 3, 1).tobytes()


def unpacked_activation(data: bytes, channels: int, height: int, width: int, block: int) -> Array:
    """Return [channel, row, column] from blocks of channels."""
    blocks = np.frombuffer(data, np.int8).reshape(-1, height, width, block)
    return blocks.transpose(0, 3, 1, 2).reshape(-1, height, width)[:channels]


def packed_weights(convolution: Convolution, configuration: Configuration) -> bytes:
    """Return the weights in blocks; missing channels are zero."""
    rows, columns = configuration.block_out, configuration.block_in
    w = convolution.weights
    w = np.pad(w, ((0, -w.shape[0] % rows), (0, -w.shape[1] % columns), (0, 0), (0, 0)))
    blocks = w.reshape(len(w) // rows, rows, w.shape[1] // columns, columns, *w.shape[2:])
    return blocks.transpose(0, 2, 4, 5, 1, 3).astype(np.int8).tobytes()


def packed_requantization(convolution: Convolution, configuration: Configuration) -> bytes:
    """Return multiplier, divisor and bias by block of outputs, for each row of a batch alike."""
    missing = -len(convolution.bias) % configuration.block_out
    sums = convolution.weights.astype(np.int64).sum(axis=(1, 2, 3))
    bias = (convolution.bias - convolution.input_zero * sums).astype(np.int32)
    multiplier = convolution.multiplier.astype(np.float32).view(np.int32)
    divisor = np.full(len(bias), convolution.divisor, np.float32).view(np.int32)
    vectors = np.pad(np.stack([multiplier, divisor, bias]), ((0, 0), (0, missing)))
    return vectors.reshape(3, -1, configuration.block_out).transpose(1, 0, 2).tobytes()


def compile_convolution(convolution: Convolution, configuration: Configuration, tiling: Tiling) -> Program:
    """Return the program of a convolution, with tensors ``x`` and ``y``."""
    shape = convolution.shape(configuration)
    sizes = {
        "x": shape.inputs * shape.size[0] * shape.size[1] * configuration.block_in,
        "y": shape.outputs * shape.result[0] * shape.result[1] * configuration.block_out,
    }
    weights, vectors = packed_weights(convolution, configuration), packed_requantization(convolution, configuration)
    offsets, end = [], 0
    for size in (*sizes.values(), len(weights), len(vectors)):
        offsets.append(end)
        end += -(-size // 256) * 256
    emitter = _Emitter(convolution, configuration, shape, tiling, offsets, end)
    instructions = emitter.emit()
    micro_ops = encode_micro_ops(emitter.micro_ops, configuration)
    tensors = (
        Tensor("x", Role.INPUT, offsets[0], sizes["x"]),
        Tensor("y", Role.OUTPUT, offsets[1], sizes["y"]),
        Tensor("weights", Role.CONSTANT, offsets[2], len(weights), weights),
        Tensor("requantization", Role.CONSTANT, offsets[3], len(vectors), vectors),
        Tensor("micro_ops", Role.MICRO_OPS, end, len(micro_ops), micro_ops),
    )
    return with_tokens(Program(configuration, tensors, tuple(instructions)))


@dataclass(slots=True)
class _Emitter:
    """The instructions in the order of their meaning, and the micro-ops that they share."""

    convolution: Convolution
    configuration: Configuration
    shape: Shape
    tiling: Tiling
    offsets: Sequence[int]
    micro_op_offset: int
    micro_ops: list[MicroOp] = field(default_factory=list)
    kernels: dict[tuple[MicroOp, ...], int] = field(default_factory=dict)

    def emit(self) -> list[Instruction]:
        """Return the whole program."""
        body: list[Instruction] = []
        for step in steps_of(self.shape, self.tiling):
            if step.loads_input:
                body += self._load_input(step.tile, step.input_slot)
            if step.loads_weights:
                body.append(self._load_weights(step.tile, step.weight_slot))
            body += self._multiply(step.tile, step.input_slot, step.weight_slot, step.output_slot)
            if step.tile.inputs.stop == self.shape.inputs:
                body.append(self._requantize(step.tile, step.output_slot))
                body += self._store(step.tile, step.output_slot)
        vectors = Load(
            memory=Memory.ACCUMULATOR,
            dram=self.offsets[3] // self.configuration.entry_bytes["accumulator"],
            columns=3 * self.shape.outputs,
        )
        micro_ops = Load(memory=Memory.MICRO_OP, dram=self.micro_op_offset // 4, columns=len(self.micro_ops))
        return [micro_ops, vectors, *body, Finish()]

    def _kernel(self, micro_ops: tuple[MicroOp, ...]) -> dict[str, int]:
        """Return where micro-ops stand, once for all that use the same."""
        begin = self.kernels.setdefault(micro_ops, len(self.micro_ops))
        if begin == len(self.micro_ops):
            self.micro_ops += micro_ops
        return {"begin": begin, "end": begin + len(micro_ops)}

    def _load_input(self, tile: Tile, slot: int) -> Iterator[Instruction]:
        window, (height, width) = tile.window(self.shape), self.shape.size
        area = window.entries
        for number, block in enumerate(tile.inputs):
            first = (block * height + window.top) * width + window.left
            yield Load(
                sram=slot * self.tiling.input_room + number * area,
                dram=self.offsets[0] // self.configuration.entry_bytes["input"] + first,
                rows=window.rows,
                columns=window.columns,
                stride=width,
                pad_top=window.pad_top,
                pad_bottom=window.pad_bottom,
                pad_left=window.pad_left,
                pad_right=window.pad_right,
                pad_value=self.convolution.input_zero,
            )

    def _load_weights(self, tile: Tile, slot: int) -> Instruction:
        taps = self.shape.taps
        first = (tile.outputs.start * self.shape.inputs + tile.inputs.start) * taps
        return Load(
            memory=Memory.WEIGHT,
            sram=slot * self.tiling.weight_room,
            dram=self.offsets[2] // self.configuration.entry_bytes["weight"] + first,
            rows=len(tile.outputs),
            columns=len(tile.inputs) * taps,
            stride=self.shape.inputs * taps,
        )

    def _accumulator(self, slot: int) -> int:
        return 3 * self.shape.outputs + slot * self.tiling.output_room

    def _multiply(self, tile: Tile, input_slot: int, weight_slot: int, output_slot: int) -> Iterator[Instruction]:
        window, area = tile.window(self.shape), len(tile.rows) * len(tile.columns)
        (rows, columns), (down, right) = self.shape.kernel, self.shape.dilations
        x, w = input_slot * self.tiling.input_room, weight_slot * self.tiling.weight_room
        taps = [
            [
                MicroOp(
                    self._accumulator(output_slot) + output * area,
                    x + number * window.entries + row * down * window.width + column * right,
                    w + ((output * len(tile.inputs) + number) * rows + row) * columns + column,
                )
                for output in range(len(tile.outputs))
            ]
            for number in range(len(tile.inputs))
            for row in range(rows)
            for column in range(columns)
        ]
        loop = {
            "outer": len(tile.rows),
            "inner": len(tile.columns),
            "destination_outer": len(tile.columns),
            "destination_inner": 1,
            "source_outer": self.shape.strides[0] * window.width,
            "source_inner": self.shape.strides[1],
        }
        if tile.inputs.start == 0:
            yield Gemm(reset=True, **self._kernel(tuple(taps[0])), **loop)  # type: ignore[arg-type] # numbers all
            taps = taps[1:]
        if taps:
            rest = tuple(micro_op for tap in taps for micro_op in tap)
            yield Gemm(**self._kernel(rest), **loop)  # type: ignore[arg-type] # numbers all

    def _requantize(self, tile: Tile, slot: int) -> Instruction:
        area = len(tile.rows) * len(tile.columns)
        micro_ops = tuple(
            MicroOp(self._accumulator(slot) + number * area, 3 * block) for number, block in enumerate(tile.outputs)
        )
        return Alu(
            operation=Operation.REQUANTIZE,
            inner=area,
            destination_inner=1,
            immediate=(self.convolution.output_zero & 255) | (FLOOR if self.convolution.relu else 0),
            **self._kernel(micro_ops),  # type: ignore[arg-type] # numbers all
        )

    def _store(self, tile: Tile, slot: int) -> Iterator[Instruction]:
        height, width = self.shape.result
        entry = self.configuration.batch * self.configuration.block_out
        for number, block in enumerate(tile.outputs):
            yield Store(
                sram=self._accumulator(slot) + number * len(tile.rows) * len(tile.columns),
                dram=self.offsets[1] // entry + (block * height + tile.rows.start) * width + tile.columns.start,
                rows=len(tile.rows),
                columns=len(tile.columns),
                stride=width,
            )
