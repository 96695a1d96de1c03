"""Instructions and micro-ops as bytes, and back, by the table of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from graft.errors import ArtifactError, CompileError
from graft.plugins.accelerator import isa
from graft.plugins.accelerator.configuration import MICRO_OP_BYTES, Configuration

WORD_BITS = 64


def encode(instruction: isa.Instruction, configuration: Configuration) -> bytes:
    """Return the 16 bytes of an instruction, low byte first; raise CompileError where a number does not fit."""
    text = isa.fault(instruction, configuration)
    if text is not None:
        raise CompileError(f"accelerator: {instruction.mnemonic}: {text}")
    word = instruction.opcode | _pack(instruction, isa.field_table(configuration)[type(instruction)]) << 3
    return word.to_bytes(isa.INSTRUCTION_BYTES, "little")


def decode(data: bytes, configuration: Configuration) -> isa.Instruction:
    """Return the instruction of 16 bytes; raise ArtifactError where there is none."""
    word = int.from_bytes(data, "little")
    if word & 7 >= len(isa.KINDS):
        raise ArtifactError(f"no instruction has the opcode {word & 7}; the highest is {len(isa.KINDS) - 1}")
    kind = isa.KINDS[word & 7]
    values, rest = _unpack(word >> 3, isa.field_table(configuration)[kind])
    if rest:
        raise ArtifactError(f"{kind.mnemonic}: the bits behind the last field are {rest:#x} and must be zero")
    for name, choices in (("memory", isa.Memory), ("operation", isa.Operation)):
        if name in values:
            try:
                values[name] = choices(values[name])
            except ValueError:
                raise ArtifactError(f"{kind.mnemonic}: no {name} has the number {values[name]}") from None
    fields = {name: bool(value) if name in isa.FLAGS else value for name, value in values.items()}
    instruction: isa.Instruction = kind(**fields)  # type: ignore[arg-type] # the table's names are the class's
    text = isa.fault(instruction, configuration)
    if text is not None:
        raise ArtifactError(f"{kind.mnemonic}: {text}")
    return instruction


def encode_all(instructions: Sequence[isa.Instruction], configuration: Configuration) -> bytes:
    """Return the bytes of instructions, one after another: those of a kind at once, field by field."""
    words = np.zeros((len(instructions), 2), np.uint64)
    kinds: dict[type[isa.Instruction], list[int]] = {}
    for index, instruction in enumerate(instructions):
        kinds.setdefault(type(instruction), []).append(index)
    for kind, places in kinds.items():
        fields = isa.field_table(configuration)[kind]
        group = [instructions[place] for place in places]
        values = attrgetter(*(field.name for field in fields))
        rows = np.array([values(one) for one in group], np.int64)
        limits = np.array([(field.least, field.most) for field in fields], np.int64)
        fits = ((limits[:, 0] <= rows) & (rows <= limits[:, 1])).all()
        if not fits or any(isa.fault(one, configuration) for one in group):
            for one in group:
                encode(one, configuration)  # says which, and why
        words[places] = _joined(rows, kind, fields)
    return words.astype("<u8").tobytes()


def _joined(
    rows: npt.NDArray[np.int64], kind: type[isa.Instruction], fields: Sequence[isa.Field]
) -> npt.NDArray[np.uint64]:
    """Return the low and the high half of instructions whose fields are columns, each in its range."""
    words = np.zeros((len(rows), 2), np.uint64)
    words[:, 0] = kind.opcode
    shift = 3
    for column, field in enumerate(fields):
        value = (rows[:, column] & ((1 << field.width) - 1)).astype(np.uint64)
        if shift < WORD_BITS:
            words[:, 0] |= value << np.uint64(shift)
        if shift + field.width > WORD_BITS:
            words[:, 1] |= (
                value << np.uint64(shift - WORD_BITS) if shift >= WORD_BITS else value >> np.uint64(WORD_BITS - shift)
            )
        shift += field.width
    return words


def decode_all(data: bytes, configuration: Configuration) -> tuple[isa.Instruction, ...]:
    """Return the instructions of a stream; an error names the instruction by its place."""
    if len(data) % isa.INSTRUCTION_BYTES:
        raise ArtifactError(
            f"a stream of {len(data)} bytes is no whole number of {isa.INSTRUCTION_BYTES}-byte instructions"
        )
    found: list[isa.Instruction] = []
    for index in range(len(data) // isa.INSTRUCTION_BYTES):
        try:
            found.append(
                decode(data[index * isa.INSTRUCTION_BYTES : (index + 1) * isa.INSTRUCTION_BYTES], configuration)
            )
        except ArtifactError as error:
            raise ArtifactError(f"instruction {index}: {error.message}", index=index) from None
    return tuple(found)


def encode_micro_op(micro_op: isa.MicroOp, configuration: Configuration) -> bytes:
    """Return the 4 bytes of a micro-op, low byte first."""
    return _pack(micro_op, isa.micro_op_fields(configuration)).to_bytes(MICRO_OP_BYTES, "little")


def decode_micro_op(data: bytes, configuration: Configuration) -> isa.MicroOp:
    """Return the micro-op of 4 bytes; bits behind the last field mean nothing."""
    values, _ = _unpack(int.from_bytes(data, "little"), isa.micro_op_fields(configuration))
    return isa.MicroOp(**values)


def _pack(item: isa.Instruction | isa.MicroOp, fields: Sequence[isa.Field]) -> int:
    word, shift = 0, 0
    for field in fields:
        value = int(getattr(item, field.name))
        if not field.least <= value <= field.most:
            name = "micro-op" if isinstance(item, isa.MicroOp) else item.mnemonic
            raise CompileError(
                f"accelerator: {name}: '{field.name}' is {value} and its {field.width} bits hold {field.least} to "
                f"{field.most}",
                field=field.name,
            )
        word |= (value & ((1 << field.width) - 1)) << shift
        shift += field.width
    return word


def _unpack(word: int, fields: Sequence[isa.Field]) -> tuple[dict[str, int], int]:
    values = {}
    for field in fields:
        value = word & ((1 << field.width) - 1)
        values[field.name] = value - (1 << field.width) if field.signed and value > field.most else value
        word >>= field.width
    return values, word
