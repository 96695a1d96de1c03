"""The plain meaning of a program: each instruction by itself, step after step, in NumPy.

This is what the simulators are compared with. It knows nothing of units, and runs in an order that tokens allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt

from graft.errors import InputError
from graft.plugins.accelerator.accesses import decoded, entries_of, steps
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES, Configuration
from graft.plugins.accelerator.isa import FLOOR, WIDE, Alu, Finish, Gemm, Instruction, Load, Memory, Operation, Store
from graft.plugins.accelerator.program import Program, Role
from graft.plugins.accelerator.proof.tokens import order_of

Lanes = npt.NDArray[Any]
MOST_SHIFT = 31


def dram_of(program: Program, inputs: Mapping[str, bytes], fill: int = 0) -> bytearray:
    """Return the DRAM before a run: constants and inputs in their places, ``fill`` in every other byte.

    Raise InputError where an input has another size than its tensor.
    """
    dram = bytearray([fill]) * program.dram_bytes
    for tensor in program.tensors:
        data = inputs[tensor.name] if tensor.role is Role.INPUT else tensor.data
        if tensor.role is Role.INPUT and len(data) != tensor.size:
            raise InputError(f"accelerator: input '{tensor.name}' takes {tensor.size} bytes, got {len(data)}")
        dram[tensor.offset : tensor.offset + len(data)] = data
    return dram


def outputs_of(program: Program, dram: bytes | bytearray) -> dict[str, bytes]:
    """Return the outputs by name after a run."""
    outputs = [tensor for tensor in program.tensors if tensor.role is Role.OUTPUT]
    return {tensor.name: bytes(dram[tensor.offset : tensor.end]) for tensor in outputs}


def run(program: Program, inputs: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the outputs of a program by name."""
    machine = _Machine(program.configuration, np.frombuffer(dram_of(program, inputs), np.uint8).copy())
    for index in order_of(program).sequence:
        machine.execute(program.instructions[index])
    return outputs_of(program, machine.dram.tobytes())


class _Machine:
    """The memories, by name, entry by entry."""

    def __init__(self, configuration: Configuration, dram: npt.NDArray[np.uint8]) -> None:
        self.configuration, self.dram = configuration, dram
        batch, rows, columns = configuration.batch, configuration.block_out, configuration.block_in
        self.memories: dict[str, Lanes] = {
            "input": np.zeros((entries_of(configuration, "input"), batch, columns), np.int8),
            "weight": np.zeros((entries_of(configuration, "weight"), rows, columns), np.int8),
            "accumulator": np.zeros((entries_of(configuration, "accumulator"), batch, rows), np.int32),
            "micro_op": np.zeros((entries_of(configuration, "micro_op"), MICRO_OP_BYTES), np.uint8),
        }

    def execute(self, instruction: Instruction) -> None:
        match instruction:
            case Load():
                self._load(instruction)
            case Store():
                self._store(instruction)
            case Gemm():
                self._multiply(instruction)
            case Alu():
                self._operate(instruction)
            case Finish():
                pass
            case _:
                assert_never(instruction)

    def _load(self, load: Load) -> None:
        target = self.memories[load.memory.sram]
        stored = np.dtype(np.int8) if load.memory is Memory.ACCUMULATOR_8 else target.dtype
        size, shape = load.memory.dram_bytes(self.configuration), target.shape[1:]
        place = load.sram
        width = load.pad_left + load.columns + load.pad_right
        for row in range(-load.pad_top, load.rows + load.pad_bottom):
            target[place : place + width] = load.pad_value
            if 0 <= row < load.rows:
                first = (load.dram + row * load.stride) * size
                data = self.dram[first : first + load.columns * size].view(stored).reshape(load.columns, *shape)
                target[place + load.pad_left : place + load.pad_left + load.columns] = data
            place += width

    def _store(self, store: Store) -> None:
        size = store.memory.dram_bytes(self.configuration)
        for row in range(store.rows):
            first, place = (store.dram + row * store.stride) * size, store.sram + row * store.columns
            entries = self.memories["accumulator"][place : place + store.columns]
            data = entries.astype(np.int8) if store.memory is Memory.OUTPUT else entries
            self.dram[first : first + store.columns * size] = np.frombuffer(data.tobytes(), np.uint8)

    def _micro_ops(self) -> npt.NDArray[np.int64]:
        return decoded(self.memories["micro_op"].tobytes(), self.configuration)

    def _multiply(self, gemm: Gemm) -> None:
        inputs, weights, accumulators = (self.memories[name] for name in ("input", "weight", "accumulator"))
        rows = weights.reshape(-1, weights.shape[-1])
        for destination, source, weight in zip(*steps(gemm, self._micro_ops()), strict=True):
            x = inputs[source].astype(np.int32)
            product = x * rows[weight] if gemm.lanes else x @ weights[weight].astype(np.int32).T
            accumulators[destination] = product if gemm.reset else accumulators[destination] + product

    def _operate(self, alu: Alu) -> None:
        accumulators = self.memories["accumulator"]
        for destination, source, _ in zip(*steps(alu, self._micro_ops()), strict=True):
            y = np.int32(alu.immediate) if alu.use_immediate else accumulators[source]
            behind = accumulators[source + 1 : source + 3] if alu.operation is Operation.REQUANTIZE else None
            accumulators[destination] = operate(alu, accumulators[destination], y, behind)


def operate(alu: Alu, x: Lanes, y: Lanes | np.int32, behind: Lanes | None) -> Lanes:
    """Return the lanes that an operation gives: int32, floats as their bits.

    ``behind`` are the two entries behind ``y``, which REQUANTIZE alone reads: the divisor and the bias.
    """
    with np.errstate(all="ignore"):
        match alu.operation:
            case Operation.MIN:
                return np.minimum(x, y)
            case Operation.MAX:
                return np.maximum(x, y)
            case Operation.ADD:
                return x + y
            case Operation.MULTIPLY:
                return x * y
            case Operation.COPY:
                return np.broadcast_to(y, x.shape)
            case Operation.SHIFT_RIGHT:
                right = x >> np.clip(y, 0, MOST_SHIFT)
                return np.where(y < 0, x << np.clip(-y.astype(np.int64), 0, MOST_SHIFT).astype(np.int32), right)
            case Operation.SCALE:
                return _bits((x - np.int32(_point(alu.immediate))).astype(np.float32) * _float(y))
            case Operation.FLOAT_ADD:
                return _bits(_float(x) + _float(y))
            case Operation.QUANTIZE:
                return _quantized(_float(x) / _float(y), alu.immediate)
            case Operation.REQUANTIZE if alu.immediate & WIDE:
                assert behind is not None
                return _bounded(
                    _whole((x + behind[1]) * _float(y).astype(np.float64) + _point(alu.immediate)), alu.immediate
                )
            case Operation.REQUANTIZE:
                assert behind is not None
                return _quantized((x + behind[1]).astype(np.float32) * _float(y) / _float(behind[0]), alu.immediate)
            case _:
                assert_never(alu.operation)


def _float(bits: Lanes | np.int32) -> Lanes:
    return np.asarray(bits, np.int32).view(np.float32)


def _bits(numbers: Lanes) -> Lanes:
    """Return floats as integers of the same bits; whatever is no number has one spelling."""
    return np.where(np.isnan(numbers), np.float32(np.nan), numbers).astype(np.float32).view(np.int32)


def _point(immediate: int) -> int:
    """Return the zero point in an immediate number."""
    return ((immediate & 255) ^ 128) - 128


def _whole(numbers: Lanes) -> Lanes:
    """Round half to even and keep what 32 bits hold; what is no number becomes zero."""
    return np.clip(np.rint(np.nan_to_num(numbers.astype(np.float64), nan=0.0)), -(2.0**31), 2.0**31 - 1)


def _quantized(numbers: Lanes, immediate: int) -> Lanes:
    return _bounded(_whole(numbers) + _point(immediate), immediate)


def _bounded(numbers: Lanes, immediate: int) -> Lanes:
    least = _point(immediate) if immediate & FLOOR else -128
    return np.clip(numbers, least, 127).astype(np.int32)
