"""The sizes and speeds of an accelerator as data, and the widths of instruction fields that follow from them."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields

from graft.errors import MachineError

KIB = 1024
ACCUMULATOR_BYTES = 4
MICRO_OP_BYTES = 4
INSTRUCTION_BITS = 128
MICRO_OP_BITS = 32
LIMIT = 2**31
MOST_TIME = 2**20
MOST_ENTRY = 2**24
"""Cycles of one time and bytes of one entry: sums of them fit into 64 bits."""
TIMES = ("latency", "pipeline", "alu_interval", "accumulator_latency")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What an accelerator consists of; the defaults are those of VTA's sample configurations.

    One product takes a ``batch`` x ``block_in`` block of inputs and a ``block_out`` x ``block_in`` block of weights.
    An entry of a memory is what one index means: such a block, a ``batch`` x ``block_out`` block of accumulators of 32
    bits, or one micro-op. Depths are in instructions and tokens, times in cycles, ``port_bytes`` in bytes a cycle. A
    product starts no sooner than ``accumulator_latency`` cycles behind the last of its instruction with the same
    destination: 1 where the unit forwards its sums, as many as it has stages where it does not.
    """

    batch: int = 1
    block_in: int = 16
    block_out: int = 16
    input_bytes: int = 32 * KIB
    weight_bytes: int = 256 * KIB
    accumulator_bytes: int = 128 * KIB
    micro_op_bytes: int = 32 * KIB
    queue_depth: int = 512
    token_depth: int = 256
    port_bytes: int = 8
    burst_bytes: int = 256
    latency: int = 64
    pipeline: int = 4
    alu_interval: int = 2
    accumulator_latency: int = 1

    def __post_init__(self) -> None:
        for field in fields(Configuration):
            value, most = getattr(self, field.name), MOST_TIME if field.name in TIMES else LIMIT - 1
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise MachineError(
                    f"accelerator configuration: '{field.name}' is {value!r}, a number from 1 to {most} is needed",
                    field=field.name,
                )
        for memory, entry in self.entry_bytes.items():
            size = getattr(self, f"{memory}_bytes")
            if entry > MOST_ENTRY:
                raise MachineError(
                    f"accelerator configuration: an entry of '{memory}' has {entry} bytes, and at most {MOST_ENTRY} "
                    "are allowed; make its blocks smaller",
                    field=f"{memory}_bytes",
                )
            if size % entry:
                raise MachineError(
                    f"accelerator configuration: '{memory}_bytes' is {size}, which is no multiple of an entry of "
                    f"{entry} bytes",
                    field=f"{memory}_bytes",
                )
        self._check_fits("a micro-op", sum(self.micro_op_widths), MICRO_OP_BITS)
        self._check_fits("a GEMM instruction", self._gemm_bits, INSTRUCTION_BITS)
        self._check_fits("an ALU instruction", self._alu_bits, INSTRUCTION_BITS)
        self._check_fits("a LOAD instruction", self._load_bits, INSTRUCTION_BITS)

    def _check_fits(self, what: str, needed: int, available: int) -> None:
        if needed > available:
            raise MachineError(
                f"accelerator configuration: {what} needs {needed} bits and has {available}; make a memory smaller or "
                f"its blocks larger (entries now: input {self.input_entries}, weight {self.weight_entries}, "
                f"accumulator {self.accumulator_entries}, micro_op {self.micro_op_entries})"
            )

    @property
    def entry_bytes(self) -> dict[str, int]:
        """The bytes of an entry by memory."""
        return {
            "input": self.batch * self.block_in,
            "weight": self.block_out * self.block_in,
            "accumulator": self.batch * self.block_out * ACCUMULATOR_BYTES,
            "micro_op": MICRO_OP_BYTES,
        }

    @property
    def input_entries(self) -> int:
        """How many blocks of inputs there is room for."""
        return self.input_bytes // self.entry_bytes["input"]

    @property
    def weight_entries(self) -> int:
        """How many blocks of weights there is room for."""
        return self.weight_bytes // self.entry_bytes["weight"]

    @property
    def accumulator_entries(self) -> int:
        """How many blocks of accumulators there is room for."""
        return self.accumulator_bytes // self.entry_bytes["accumulator"]

    @property
    def micro_op_entries(self) -> int:
        """How many micro-ops there is room for."""
        return self.micro_op_bytes // MICRO_OP_BYTES

    @property
    def micro_op_widths(self) -> tuple[int, int, int]:
        """The bits of a micro-op's destination (accumulator), source (input or accumulator) and weight."""
        destination = index_bits(self.accumulator_entries)
        return destination, max(destination, index_bits(self.input_entries)), index_bits(self.weight_entries)

    @property
    def sram_bits(self) -> int:
        """The bits of an index into any memory of the accelerator."""
        return index_bits(max(self.input_entries, self.weight_entries, self.accumulator_entries, self.micro_op_entries))

    @property
    def digest(self) -> str:
        """A name of what programs depend on: two configurations of one digest run the same programs."""
        timing = {"port_bytes", "burst_bytes", *TIMES}
        text = ",".join(f"{name}={value}" for name, value in sorted(asdict(self).items()) if name not in timing)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def _loop_bits(self) -> int:
        """Opcode, tokens, range of micro-ops and two trip counts."""
        return 7 + 2 * index_bits(self.micro_op_entries) + 1 + 2 * 14

    @property
    def _gemm_bits(self) -> int:
        return self._loop_bits + 2 + 2 * sum(self.micro_op_widths)

    @property
    def _alu_bits(self) -> int:
        return self._loop_bits + 4 + 1 + 16 + 2 * sum(self.micro_op_widths[:2])

    @property
    def _load_bits(self) -> int:
        return 7 + 3 + self.sram_bits + 32 + 3 * 16 + 4 * 4 + 8


def index_bits(entries: int) -> int:
    """Return the bits of an index below ``entries``."""
    return max(1, (entries - 1).bit_length())
