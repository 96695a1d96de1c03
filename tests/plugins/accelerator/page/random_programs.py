"""Legal programs of random instructions, and random layers, for machines of random sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from graft.errors import MachineError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.layers import (
    Activation,
    Addition,
    Convolution,
    Layer,
    Pooling,
    PoolingKind,
    Requantize,
)
from graft.plugins.accelerator.isa import (
    FLOATING,
    QUANTIZING,
    Alu,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    MicroOp,
    Operation,
    Store,
    field_table,
)
from graft.plugins.accelerator.program import Program, Role, Tensor, encode_micro_ops
from graft.plugins.accelerator.proof.dependences import with_tokens

SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -3e-39, 3e38, 1.0, -0.5, 2.5, 127.5, 1e-3, 2.0**31, -(2.0**31), 1e10],
    np.float32,
)
"""Floats that operations treat each in its own way: subnormal, no number, ties, too large for 32 bits."""


def random_configuration(rng: np.random.Generator) -> Configuration:
    while True:
        batch, block_in, block_out = (
            int(rng.integers(1, 4)),
            int(rng.choice([1, 2, 3, 4, 8, 16])),
            int(rng.integers(1, 9)),
        )
        if rng.integers(2):
            batch, block_out = 1, block_in
        entries = [int(rng.integers(least, 70)) for least in (8, 6, 16, 12)]
        sizes = (batch * block_in, block_out * block_in, batch * block_out * 4, 4)
        memories = [one * size for one, size in zip(entries, sizes, strict=True)]
        depths = [int(rng.integers(1, 7)) for _ in range(2)]
        port = int(rng.choice([1, 4, 8, 13]))
        times = (port, int(rng.integers(1, 80)), *(int(rng.integers(1, 20)) for _ in range(4)))
        try:
            return Configuration(batch, block_in, block_out, *memories, *depths, *times)
        except MachineError:
            continue


@dataclass
class _Maker:
    rng: np.random.Generator
    machine: Configuration

    def below(self, most: int) -> int:
        return int(self.rng.integers(max(1, most)))

    def bytes(self, size: int) -> bytes:
        """Random bytes, a part of which are floats that are near 1 or special."""
        words = self.rng.integers(-(2**31), 2**31, size // 4 + 1).astype(np.int32)
        kinds = self.rng.integers(0, 4, len(words))
        floats = self.rng.choice(SPECIAL, len(words)).view(np.int32)
        ordinary = self.rng.uniform(-2, 2, len(words)).astype(np.float32).view(np.int32)
        return np.choose(kinds, [words, ordinary, floats, words >> 20]).astype(np.int32).tobytes()[:size]

    def tensors(self) -> tuple[Tensor, ...]:
        machine, unit = self.machine, math.lcm(*self.machine.entry_bytes.values())
        most = max(getattr(machine, f"{name}_bytes") for name in ("input", "weight", "accumulator")) + 4 * unit
        sizes = [-(-one // unit) * unit for one in (most, machine.weight_bytes * 2, machine.micro_op_bytes)]
        made = [-(-one // unit) * unit for one in (machine.accumulator_bytes, machine.accumulator_bytes // 4, unit)]
        micro_ops = encode_micro_ops([self.micro_op() for _ in range(sizes[2] // 4)], machine)
        found, end = list[Tensor](), 0
        for name, role, size, data in (
            ("x", Role.INPUT, sizes[0], b""), ("w", Role.CONSTANT, sizes[1], self.bytes(sizes[1])),
            ("m", Role.MICRO_OPS, sizes[2], micro_ops), ("wide", Role.OUTPUT, made[0], b""),
            ("narrow", Role.OUTPUT, made[1], b""), ("kept", Role.WORKSPACE, made[2], b""),
        ):  # fmt: skip
            found.append(Tensor(name, role, end, size, data))
            end += size
        return tuple(found)

    def micro_op(self) -> MicroOp:
        machine = self.machine
        accumulators = machine.accumulator_entries
        source = min(machine.input_entries, accumulators - 2)
        return MicroOp(
            self.below(accumulators // 2 + 1), self.below(source // 2), self.below(machine.weight_entries // 2)
        )

    # ---- Instructions ---------------------------------------------------------------------------------------------

    def window(self, memory: Memory, tensor: Tensor, entries: int) -> dict[str, int]:
        """Rows and columns of entries that lie in a tensor, and that a memory has room for."""
        size = memory.dram_bytes(self.machine)
        there, first = tensor.size // size, tensor.offset // size
        columns = 1 + self.below(min(there, entries, 6))
        rows = 1 + self.below(min(entries // columns, 4))
        stride = self.below((there - columns) // max(1, rows - 1) + 1) if rows > 1 else self.below(9)
        reach = columns + (rows - 1) * stride
        return {"rows": rows, "columns": columns, "stride": stride, "dram": first + self.below(there - reach + 1)}

    def load(self, tensors: tuple[Tensor, ...]) -> Load:
        memory = (Memory.INPUT, Memory.WEIGHT, Memory.ACCUMULATOR, Memory.ACCUMULATOR_8, Memory.MICRO_OP)[self.below(5)]
        entries = getattr(self.machine, f"{memory.sram}_entries")
        tensor = tensors[self.below(2)]
        if memory is Memory.MICRO_OP:
            tensor = tensors[2]
        elif not self.below(3) and memory.dram_bytes(self.machine) <= tensors[5].size:
            tensor = tensors[5]
        fields = self.window(memory, tensor, entries)
        if memory is not Memory.MICRO_OP:
            pads = {f"pad_{side}": self.below(3) for side in ("top", "bottom", "left", "right")}
            if not self.below(9):
                fields |= {"rows": 0}
            one = Load(memory=memory, pad_value=self.below(256) - 128, **fields, **pads)
            if not one.rows:
                fields |= {"dram": self.below(1 << 32)}
            if not one.entries:
                return replace(one, dram=fields["dram"], sram=self.below(1 << self.machine.sram_bits))
            if one.entries <= entries:
                return Load(memory=memory, sram=self.below(entries - one.entries + 1), pad_value=one.pad_value,
                            **fields, **pads)  # fmt: skip
        return Load(memory=memory, sram=self.below(entries - fields["rows"] * fields["columns"] + 1), **fields)

    def store(self, tensors: tuple[Tensor, ...]) -> Store:
        entries = self.machine.accumulator_entries
        fields = self.window(Memory.OUTPUT, tensors[5], entries)
        if not self.below(9):
            return Store(sram=self.below(1 << self.machine.sram_bits), dram=self.below(1 << 32), columns=0)
        return Store(sram=self.below(entries - fields["rows"] * fields["columns"] + 1), **fields)

    def loops(self, sides: dict[str, int]) -> dict[str, int]:
        """Fields of loops that stay below so many entries; micro-ops take up half of them."""
        begin = self.below(self.machine.micro_op_entries)
        end = begin + 1 + self.below(min(4, self.machine.micro_op_entries - begin))
        found = {"begin": begin, "end": end, "outer": self.below(4), "inner": 1 + self.below(4)}
        for side, entries in sides.items():
            room = (entries - 1) // 2 - 1
            for level in ("outer", "inner"):
                trips = max(1, found[level] - 1)
                found[f"{side}_{level}"] = step = self.below(max(0, room) // trips + 1)
                room -= step * trips
        return found if found["outer"] else self.anything(found)

    def anything(self, found: dict[str, int]) -> dict[str, int]:
        """The same fields of an instruction without trips, by whose indices nothing is accessed."""
        most = {field.name: field.most for field in field_table(self.machine)[Gemm]}
        found = {name: self.below(most[name] + 1) for name in found} | {"outer": 0}
        end = max(1, found["end"])
        return found | {"begin": found["begin"] % end, "end": end}

    def gemm(self) -> Gemm:
        machine = self.machine
        sides = {"destination": machine.accumulator_entries, "source": machine.input_entries}
        fields = self.loops({**sides, "weight": machine.weight_entries})
        lanes = machine.block_in == machine.block_out and not self.below(3)
        return Gemm(reset=not self.below(5), lanes=lanes, **fields)  # type: ignore[arg-type]

    def alu(self) -> Alu:
        operation, entries = Operation(self.below(len(Operation))), self.machine.accumulator_entries
        flags = self.below(1024) if operation in QUANTIZING else self.below(65536) - 32768
        flags &= 255 if operation is Operation.SCALE else -1
        use = operation not in FLOATING and bool(self.below(2))
        fields = self.loops({"destination": entries, "source": min(entries - 2, self.machine.input_entries)})
        if use:  # no source is read
            fields |= {name: value for name, value in self.anything(fields).items() if name.startswith("source")}
        return Alu(operation=operation, use_immediate=use, immediate=flags, **fields)  # type: ignore[arg-type]

    def body(self, tensors: tuple[Tensor, ...], length: int) -> Iterator[Instruction]:
        for _ in range(length):
            match self.below(5):
                case 0:
                    yield self.load(tensors)
                case 1:
                    yield self.store(tensors)
                case 2:
                    yield self.gemm()
                case _:
                    yield self.alu()


def legal_program(seed: int, machine: Configuration, length: int = 20) -> tuple[Program, dict[str, bytes]]:
    """A program whose memories are filled first, and stored last, and inputs for it."""
    maker = _Maker(np.random.default_rng(seed), machine)
    tensors = maker.tensors()
    places = {one.name: one.offset for one in tensors}
    entries = machine.accumulator_entries

    def at(name: str, memory: Memory) -> int:
        return places[name] // memory.dram_bytes(machine)

    start = [
        Load(memory=Memory.MICRO_OP, dram=at("m", Memory.MICRO_OP), columns=machine.micro_op_entries),
        Load(memory=Memory.INPUT, dram=at("x", Memory.INPUT), columns=machine.input_entries),
        Load(memory=Memory.WEIGHT, dram=at("w", Memory.WEIGHT), columns=machine.weight_entries),
        Load(memory=Memory.ACCUMULATOR, dram=at("x", Memory.ACCUMULATOR), columns=entries),
    ]
    whole = {name: tensors[number].size for number, name in ((3, "wide"), (4, "narrow"), (5, "kept"))}
    ends = []
    for name, memory in (("kept", Memory.OUTPUT), ("wide", Memory.ACCUMULATOR), ("narrow", Memory.OUTPUT)):
        count, first = whole[name] // memory.dram_bytes(machine), at(name, memory)
        for done in range(0, count, entries):
            ends.append(Store(memory=memory, dram=first + done, columns=min(entries, count - done)))
    kept = [one for one in ends if one.dram >= at("kept", Memory.OUTPUT) and one.memory is Memory.OUTPUT]
    rest = [one for one in ends if one not in kept]
    body = maker.body(tensors, length)
    program = with_tokens(Program(machine, tensors, (*start, *kept, *body, *rest, Finish())))
    return program, {"x": maker.bytes(tensors[0].size)}


# ---- Layers -------------------------------------------------------------------------------------------------------


def square_configuration(rng: np.random.Generator) -> Configuration:
    """A machine whose results can be its inputs, and whose memories are so small that everything is in parts."""
    while True:
        block = int(rng.choice([2, 4, 8, 16]))
        entries = [int(rng.integers(least, 6 * least)) for least in (80, 90, 120, 40)]
        sizes = (block, block * block, block * 4, 4)
        memories = [one * size for one, size in zip(entries, sizes, strict=True)]
        depths = [int(rng.integers(1, 9)) for _ in range(2)]
        try:
            return Configuration(1, block, block, *memories, *depths, accumulator_latency=int(rng.choice([1, 3, 4])))
        except MachineError:
            continue


def random_network(rng: np.random.Generator, block: int) -> list[Layer]:
    """One to four layers behind each other, the last of which makes ``z``."""
    size, layers = int(rng.integers(1, 9)), list[Layer]()
    x = Activation("x", int(rng.integers(1, 4 * block)), size, size, scale=0.3, zero_point=int(rng.integers(-128, 128)))
    count = int(rng.integers(1, 5))
    for number in range(count):
        layers.append(_random_layer(rng, x, block, "z" if number == count - 1 else f"y{number}"))
        x = layers[-1].output
    return layers


def _random_layer(rng: np.random.Generator, x: Activation, block: int, name: str) -> Layer:
    zero = int(rng.integers(-128, 128))
    y = Activation(name, x.channels, x.height, x.width, scale=float(np.float32(rng.uniform(0.1, 2))), zero_point=zero)
    kind = int(rng.integers(8))
    if kind == 0:
        return Addition(name, x, Activation(f"{name}r", x.channels, x.height, x.width, scale=0.2), y)
    if kind == 1:
        pads = (1, 1, 1, 1) if x.height > 1 else (0, 0, 0, 0)
        kernel = (3, 3) if x.height > 1 else (1, 1)
        return Pooling(name, PoolingKind.MAX, x, y, kernel, pads=pads)
    kernel = int(rng.choice([1, 1, 3, 3, 5]))
    depthwise = kind == 2
    y = replace(y, channels=x.channels if depthwise else int(rng.integers(1, 4 * block)))
    most = int(rng.choice([128, 128, 255]))
    weights = rng.integers(-most, most, (y.channels, 1 if depthwise else x.channels, kernel, kernel))
    multiplier = rng.uniform(1e-5, 1e-2, y.channels).astype(np.float32)
    requantize = Requantize(rng.integers(-999, 999, y.channels), multiplier, wide=bool(rng.integers(2)))
    pads = (kernel // 2,) * 4
    return Convolution(name, x, y, weights, requantize, pads=pads, groups=x.channels if depthwise else 1)
