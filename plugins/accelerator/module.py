"""Modules of kind ``accelerator``: a program, and how the arguments of its function lie in DRAM, as bytes and back.

The bytes are numbers of 64 bits, low byte first: magic, version, configuration, size of DRAM, how many constants,
inputs and outputs there are, the lengths of instructions and notes; where constants lie; the borders; the instructions
themselves; notes for reports, which are JSON; a checksum of all that. Constants are handed over apart, ``dram0`` and
so on by rising address.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np

from graft.errors import ArtifactError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import decode_all, encode_all
from graft.plugins.accelerator.frontend.layers import Packing
from graft.plugins.accelerator.program import Program, Role, Tensor
from graft.runtime.procedure import Module

KIND = "accelerator"
MAGIC = int.from_bytes(b"GRAFTACC", "little")
VERSION = 2
WORD = 8
CONFIGURATION = len(fields(Configuration))
HEAD = 2 + CONFIGURATION + 6
BORDER = 26
"""Numbers of a border, as `Border` in native/border.h lists them."""
UNSIGNED = 0x80
"""What turns an unsigned byte into a signed one: its highest bit flipped."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output of a module's function: which one, its shape, and whether its bytes are unsigned."""

    index: int
    shape: tuple[int, ...]
    is_unsigned: bool


def module_of(
    name: str,
    program: Program,
    inputs: Sequence[tuple[str, Packing, Argument]],
    outputs: Sequence[tuple[str, Packing, Argument]],
    notes: Mapping[str, Any],
) -> Module:
    """Return a module; inputs and outputs are tensors of the program, by name, with the arguments that fill them."""
    constants = [tensor for tensor in program.tensors if tensor.role.is_constant and tensor.size]
    stream = encode_all(program.instructions, program.configuration)
    numbers = [MAGIC, VERSION, *astuple(program.configuration), program.dram_bytes]
    tensors = [[tensor.name, tensor.role.value, tensor.offset, tensor.size] for tensor in program.tensors]
    text = json.dumps({**notes, "tensors": tensors}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % WORD)
    numbers += [len(constants), len(inputs), len(outputs), len(stream), len(text)]
    for tensor in constants:
        numbers += [tensor.offset, tensor.size]
    for tensor_name, packing, argument in (*inputs, *outputs):
        numbers += _border(program.tensor(tensor_name), packing, argument)
    data = struct.pack(f"<{len(numbers)}Q", *(number & (1 << 64) - 1 for number in numbers)) + stream + text
    arrays = {f"dram{index}": np.frombuffer(tensor.data, np.uint8) for index, tensor in enumerate(constants)}
    return Module(name, KIND, (name,), data + struct.pack("<Q", checksum(data)), arrays)


def _border(tensor: Tensor, packing: Packing, argument: Argument) -> list[int]:
    view, elements = packing.tensor, int(np.prod(argument.shape))
    _, channels, height, width = view.shape
    if argument.shape == view.shape or view.is_sequence:
        steps = [channels * height * width, height * width, width, 1]
    else:
        assert width == 1 and elements == np.prod(view.shape), f"'{view.name}' {view.shape} is {argument.shape}"
        steps = [channels * height, 1, channels, 0]
    return [
        tensor.offset, tensor.size, argument.index, elements, UNSIGNED if argument.is_unsigned else 0,
        *view.shape, *steps, packing.lanes, packing.rows, packing.columns, *packing.kernel, *packing.strides,
        *packing.pads, *packing.dilations, packing.fill, int(packing.transposed),
    ]  # fmt: skip


def checksum(data: bytes) -> int:
    """Return the words by odd factors, added bit by bit, as native/loader.c does."""
    words = np.frombuffer(data + bytes(-len(data) % WORD), "<u8")
    return int(np.bitwise_xor.reduce(words * (2 * np.arange(len(words), dtype=np.uint64) + 1))) if len(words) else 0


def program_of(data: bytes, constants: Mapping[str, np.ndarray]) -> Program:
    """Return the program in a module's bytes; raise ArtifactError if they are damaged."""
    if len(data) < (HEAD + 1) * WORD or len(data) % WORD or _words(data[:WORD])[0] != MAGIC:
        raise ArtifactError("this is no program of an accelerator")
    head = _words(data[: HEAD * WORD])
    if head[1] != VERSION:
        raise ArtifactError(f"the program has version {head[1]}, and {VERSION} is known; compile the model again")
    _, *counts, size, length = head[2 + CONFIGURATION :]
    at = [HEAD, HEAD + 2 * counts[0], HEAD + 2 * counts[0] + BORDER * (counts[1] + counts[2])]
    damaged = _words(data[-WORD:])[0] != checksum(data[:-WORD]) & (1 << 64) - 1
    if damaged or (at[2] + 1) * WORD + size + length != len(data):
        raise ArtifactError("the program is damaged; compile the model again")
    configuration = Configuration(*head[2 : 2 + CONFIGURATION])
    instructions = decode_all(data[at[2] * WORD : at[2] * WORD + size], configuration)
    try:
        tensors = tuple(_tensors(notes_of(data)["tensors"], constants))
    except (ValueError, KeyError, TypeError) as error:  # no JSON, or none that was written here
        raise ArtifactError(f"the notes of the program are damaged ({error}); compile the model again") from None
    return Program(configuration, tensors, instructions)


def _tensors(rows: Sequence[tuple[str, str, int, int]], constants: Mapping[str, np.ndarray]) -> Iterator[Tensor]:
    number = 0
    for name, text, offset, size in rows:
        role, content = Role(text), b""
        if role.is_constant and size:
            array = constants.get(f"dram{number}")
            if array is None or array.nbytes != size:
                raise ArtifactError(f"constant 'dram{number}' is missing, or has another size than {size} bytes")
            content, number = array.tobytes(), number + 1
        yield Tensor(name, role, offset, size, content)


def notes_of(data: bytes) -> dict[str, Any]:
    """Return the notes in the bytes of a module that `program_of` takes."""
    length = _words(data[(HEAD - 1) * WORD : HEAD * WORD])[0]
    notes: dict[str, Any] = json.loads(data[len(data) - WORD - length : -WORD])
    return notes


def _words(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // WORD}Q", data))
