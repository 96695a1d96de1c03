"""The instructions of the accelerator: 128 bits each, with micro-ops of 32, and the table of their fields.

Fields lie one after another from bit 0 upwards, in the order of the table; what is left is zero. A width that depends
on the configuration follows its memories, so that programs of one configuration mean nothing to another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cache
from typing import ClassVar, NamedTuple, TypeAlias, assert_never

from graft.plugins.accelerator.configuration import INSTRUCTION_BITS, Configuration, index_bits

INSTRUCTION_BYTES = INSTRUCTION_BITS // 8


class Unit(IntEnum):
    """A unit that works through its own instructions in order."""

    LOAD = 0
    GEMM = 1
    ALU = 2
    STORE = 3


class Queue(Enum):
    """A queue of tokens: from which unit, to which; only neighbours talk to each other."""

    LOAD_TO_GEMM = (Unit.LOAD, Unit.GEMM)
    GEMM_TO_LOAD = (Unit.GEMM, Unit.LOAD)
    GEMM_TO_ALU = (Unit.GEMM, Unit.ALU)
    ALU_TO_GEMM = (Unit.ALU, Unit.GEMM)
    ALU_TO_STORE = (Unit.ALU, Unit.STORE)
    STORE_TO_ALU = (Unit.STORE, Unit.ALU)


class Memory(IntEnum):
    """What a transfer fills or reads: the last two are the accumulators with numbers of 8 bits in DRAM."""

    MICRO_OP = 0
    WEIGHT = 1
    INPUT = 2
    ACCUMULATOR = 3
    OUTPUT = 4
    ACCUMULATOR_8 = 5

    @property
    def sram(self) -> str:
        """The memory on the accelerator that is meant."""
        return "accumulator" if self in (Memory.OUTPUT, Memory.ACCUMULATOR_8) else self.name.lower()

    def dram_bytes(self, configuration: Configuration) -> int:
        """The bytes of an entry in DRAM, which are also the unit of DRAM addresses and strides."""
        size = configuration.entry_bytes[self.sram]
        return size // 4 if self in (Memory.OUTPUT, Memory.ACCUMULATOR_8) else size


class Operation(IntEnum):
    """What the ALU does to each lane of a destination, ``x``, given the source or the immediate number, ``y``.

    Integers are of 32 bits and wrap; a negative shift goes left, and none beyond 31. Floats are of 32 bits in the
    format of IEEE 754, rounded to nearest even. SCALE takes the zero point in the immediate number from x, turns it
    into a float and multiplies it by the float y; FLOAT_ADD adds floats; QUANTIZE divides the float x by y, rounds half
    to even and adds the zero point, as ONNX's QuantizeLinear does. REQUANTIZE reads three entries: the multiplier y,
    the divisor and the bias. It adds the bias to x, which SCALE and QUANTIZE then take by the multiplier and the
    divisor, or (``WIDE``) it computes one product in 64 bits, as QLinearConv and QLinearMatMul define it. Both read the
    zero point and two flags in the immediate number.
    """

    MIN = 0
    MAX = 1
    ADD = 2
    SHIFT_RIGHT = 3
    MULTIPLY = 4
    COPY = 5
    SCALE = 6
    FLOAT_ADD = 7
    QUANTIZE = 8
    REQUANTIZE = 9


QUANTIZING = (Operation.QUANTIZE, Operation.REQUANTIZE)
FLOATING = (Operation.SCALE, Operation.FLOAT_ADD, *QUANTIZING)
FLOOR = 1 << 8
"""In the immediate number of QUANTIZING operations: nothing below the zero point, which is what Relu does."""
WIDE = 1 << 9
"""Likewise, of REQUANTIZE: one product of doubles, the zero point added before it is rounded."""


class Field(NamedTuple):
    """A field of an instruction: its bits, and whether they are a number of two's complement."""

    name: str
    width: int
    signed: bool = False

    @property
    def least(self) -> int:
        """The smallest number that fits."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        """The largest number that fits."""
        return (1 << (self.width - self.signed)) - 1


@dataclass(frozen=True, slots=True)
class MicroOp:
    """The indices of one step: destination among the accumulators, source, and weights (products only)."""

    destination: int = 0
    source: int = 0
    weight: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What every instruction has: tokens awaited before it starts and handed on when it is done.

    The units stand in the order load, GEMM, ALU, store; ``previous`` and ``next`` are the neighbours.
    """

    opcode: ClassVar[int]
    mnemonic: ClassVar[str]
    pop_previous: bool = False
    pop_next: bool = False
    push_previous: bool = False
    push_next: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Tokens):
    """Rows and columns of a tensor in DRAM, ``stride`` apart, and consecutive entries of a memory from ``sram`` on."""

    memory: Memory = Memory.INPUT
    sram: int = 0
    dram: int = 0
    rows: int = 1
    columns: int = 1
    stride: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Transfer):
    """A window of a tensor, brought into consecutive entries of a memory; padding holds ``pad_value``.

    ``dram`` and ``stride`` count entries of the memory as they lie in DRAM. ``ACCUMULATOR_8`` widens signed bytes.
    """

    opcode: ClassVar[int] = 0
    mnemonic: ClassVar[str] = "load"
    pad_top: int = 0
    pad_bottom: int = 0
    pad_left: int = 0
    pad_right: int = 0
    pad_value: int = 0

    @property
    def entries(self) -> int:
        """How many entries are written."""
        return (self.pad_top + self.rows + self.pad_bottom) * (self.pad_left + self.columns + self.pad_right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Transfer):
    """Consecutive accumulators, written to a window of a tensor: whole, or (``OUTPUT``) their low bytes."""

    opcode: ClassVar[int] = 1
    mnemonic: ClassVar[str] = "store"
    memory: Memory = Memory.OUTPUT

    @property
    def entries(self) -> int:
        """How many entries are read."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm(Tokens):
    """Products of blocks, added up: for each trip and each micro-op, one block a cycle; without trips, only tokens.

    With ``reset`` the product replaces what was in the destination. With ``lanes`` the inputs are multiplied lane by
    lane with one row of weights (the index counts rows then, not blocks): a depthwise convolution's product.
    """

    opcode: ClassVar[int] = 2
    mnemonic: ClassVar[str] = "gemm"
    reset: bool = False
    lanes: bool = False
    begin: int = 0
    end: int = 1
    outer: int = 1
    inner: int = 1
    destination_outer: int = 0
    destination_inner: int = 0
    source_outer: int = 0
    source_inner: int = 0
    weight_outer: int = 0
    weight_inner: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(Tokens):
    """The end of a program."""

    opcode: ClassVar[int] = 3
    mnemonic: ClassVar[str] = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alu(Tokens):
    """An operation on lanes of accumulators, for each trip and each micro-op; without trips, only tokens."""

    opcode: ClassVar[int] = 4
    mnemonic: ClassVar[str] = "alu"
    operation: Operation = Operation.MIN
    begin: int = 0
    end: int = 1
    outer: int = 1
    inner: int = 1
    destination_outer: int = 0
    destination_inner: int = 0
    source_outer: int = 0
    source_inner: int = 0
    use_immediate: bool = False
    immediate: int = 0


Instruction: TypeAlias = Load | Store | Gemm | Finish | Alu
KINDS: tuple[type[Instruction], ...] = (Load, Store, Gemm, Finish, Alu)
"""The instructions by opcode."""
TOKENS = tuple(Field(name, 1) for name in ("pop_previous", "pop_next", "push_previous", "push_next"))
FLAGS = frozenset({*(field.name for field in TOKENS), "reset", "lanes", "use_immediate"})
"""The fields that say yes or no."""


@cache
def field_table(configuration: Configuration) -> dict[type[Instruction], tuple[Field, ...]]:
    """Return the fields of every instruction behind its opcode of 3 bits, from the lowest bit upwards."""
    destination, source, weight = configuration.micro_op_widths
    micro_op = index_bits(configuration.micro_op_entries)
    window = (
        *TOKENS, Field("memory", 3), Field("sram", configuration.sram_bits), Field("dram", 32),
        Field("rows", 16), Field("columns", 16), Field("stride", 16),
    )  # fmt: skip
    pads = tuple(Field(f"pad_{side}", 4) for side in ("top", "bottom", "left", "right"))
    loop = (
        Field("begin", micro_op), Field("end", micro_op + 1), Field("outer", 14), Field("inner", 14),
        Field("destination_outer", destination), Field("destination_inner", destination),
        Field("source_outer", source), Field("source_inner", source),
    )  # fmt: skip
    return {
        Load: (*window, *pads, Field("pad_value", 8, True)),
        Store: window,
        Gemm: (
            *TOKENS, Field("reset", 1), Field("lanes", 1), *loop,
            Field("weight_outer", weight), Field("weight_inner", weight),
        ),
        Finish: TOKENS,
        Alu: (*TOKENS, Field("operation", 4), *loop, Field("use_immediate", 1), Field("immediate", 16, True)),
    }  # fmt: skip


def micro_op_fields(configuration: Configuration) -> tuple[Field, ...]:
    """Return the fields of a micro-op, from the lowest bit upwards."""
    widths = configuration.micro_op_widths
    return tuple(Field(*one) for one in zip(("destination", "source", "weight"), widths, strict=True))


def unit_of(instruction: Instruction) -> Unit:
    """Return the unit that carries an instruction out."""
    match instruction:
        case Load():
            return Unit.LOAD
        case Gemm():
            return Unit.GEMM
        case Alu() | Finish():
            return Unit.ALU
        case Store():
            return Unit.STORE
        case _:
            assert_never(instruction)


def pops(instruction: Instruction) -> Iterator[Queue]:
    """Yield the queues from which an instruction takes a token."""
    unit = unit_of(instruction)
    if instruction.pop_previous:
        yield Queue((Unit(unit - 1), unit))
    if instruction.pop_next:
        yield Queue((Unit(unit + 1), unit))


def pushes(instruction: Instruction) -> Iterator[Queue]:
    """Yield the queues into which an instruction puts a token."""
    unit = unit_of(instruction)
    if instruction.push_previous:
        yield Queue((unit, Unit(unit - 1)))
    if instruction.push_next:
        yield Queue((unit, Unit(unit + 1)))


def fault(instruction: Instruction, configuration: Configuration) -> str | None:
    """Return why an instruction whose fields all fit has no meaning, or None."""
    unit = unit_of(instruction)
    if unit is Unit.LOAD and (instruction.pop_previous or instruction.push_previous):
        return "the load unit has no previous unit to exchange tokens with"
    if unit is Unit.STORE and (instruction.pop_next or instruction.push_next):
        return "the store unit has no next unit to exchange tokens with"
    match instruction:
        case Load(memory=Memory.OUTPUT):
            return "a load cannot fill the memory 'output'"
        case Store(memory=memory) if memory not in (Memory.OUTPUT, Memory.ACCUMULATOR):
            return f"a store cannot read the memory '{memory.name.lower()}'"
        case Load(memory=Memory.MICRO_OP, pad_top=a, pad_bottom=b, pad_left=c, pad_right=d) if a or b or c or d:
            return "micro-ops cannot be padded"
        case Gemm(begin=begin, end=end) | Alu(begin=begin, end=end) if begin >= end:
            return f"the range of micro-ops from {begin} to {end} is empty"
        case Gemm(lanes=True) if configuration.block_in != configuration.block_out:
            return (
                f"lanes need square blocks, and {configuration.block_in} inputs meet {configuration.block_out} outputs"
            )
        case Alu(operation=operation, use_immediate=True) if operation in FLOATING:
            return f"{operation.name.lower()} takes its number from accumulators, not from the instruction"
        case Alu(operation=Operation.SCALE, immediate=immediate) if immediate >> 8:
            return f"the immediate number of scale is {immediate}, and a zero point has 8 bits"
        case Alu(operation=operation, immediate=flags) if operation in QUANTIZING and flags >> 8 not in (0, 1, 2, 3):
            return f"the flags of {operation.name.lower()} are {flags >> 8}, and only 0 to 3 mean something"
        case _:
            return None
