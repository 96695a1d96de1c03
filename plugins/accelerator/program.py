"""A program of the accelerator: its instructions, and the tensors in DRAM that they read and write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from graft.errors import CompileError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.encoding import encode_micro_op
from graft.plugins.accelerator.isa import Instruction, MicroOp


class Role(StrEnum):
    """What a tensor in DRAM is for."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    MICRO_OPS = "micro_ops"
    WORKSPACE = "workspace"

    @property
    def is_constant(self) -> bool:
        """Whether the bytes are known when the program is compiled."""
        return self in (Role.CONSTANT, Role.MICRO_OPS)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A range of DRAM; a constant has its bytes in ``data``."""

    name: str
    role: Role
    offset: int
    size: int
    data: bytes = b""

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions in the order in which they are fetched, and the tensors by rising address, none upon another."""

    configuration: Configuration
    tensors: tuple[Tensor, ...]
    instructions: tuple[Instruction, ...]

    def __post_init__(self) -> None:
        end, before = 0, ""
        for tensor in self.tensors:
            if tensor.offset < end or tensor.size < 0:
                raise CompileError(
                    f"accelerator: tensor '{tensor.name}' begins at {tensor.offset}, before '{before}' ends at {end}"
                )
            if len(tensor.data) != (tensor.size if tensor.role.is_constant else 0):
                raise CompileError(
                    f"accelerator: tensor '{tensor.name}' ({tensor.role}) has {tensor.size} bytes of DRAM and "
                    f"{len(tensor.data)} bytes of data"
                )
            end, before = tensor.end, tensor.name

    @property
    def dram_bytes(self) -> int:
        """How many bytes of DRAM the program needs."""
        return self.tensors[-1].end if self.tensors else 0

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of a name."""
        return next(tensor for tensor in self.tensors if tensor.name == name)


def encode_micro_ops(micro_ops: Sequence[MicroOp], configuration: Configuration) -> bytes:
    """Return the bytes of micro-ops, as a tensor of the role ``MICRO_OPS`` holds them."""
    return b"".join(encode_micro_op(one, configuration) for one in micro_ops)
