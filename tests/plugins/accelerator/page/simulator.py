"""A simulator of the accelerator, written from docs/accelerator.md alone: it imports nothing of Graft.

It takes the bytes of instructions and of DRAM, for any configuration. Where the page leaves an order open, this takes
one that tokens allow: whatever can go on does, the unit nearest to memory first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LOAD, STORE, GEMM, FINISH, ALU = range(5)
UNIT_OF = {LOAD: 0, GEMM: 1, ALU: 2, FINISH: 2, STORE: 3}
TOKENS = ("pop_previous", "pop_next", "push_previous", "push_next")
MICRO_OP, WEIGHT, INPUT, ACCUMULATOR, OUTPUT, ACCUMULATOR_8 = range(6)
MIN, MAX, ADD, SHIFT_RIGHT, MULTIPLY, COPY, SCALE, FLOAT_ADD, QUANTIZE, REQUANTIZE = range(10)
Fields = dict[str, int]


class Damaged(Exception):
    """The bytes are no program, or it never ends."""


def bits(count: int) -> int:
    return max(1, (count - 1).bit_length())


@dataclass
class Machine:
    """A configuration by the names of the page, DRAM, and the memories."""

    sizes: Mapping[str, int]
    dram: bytearray
    memory: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batch, block_in, block_out = (self.sizes[name] for name in ("batch", "block_in", "block_out"))
        count = {
            INPUT: self.sizes["input_bytes"] // (batch * block_in),
            WEIGHT: self.sizes["weight_bytes"] // (block_out * block_in),
            ACCUMULATOR: self.sizes["accumulator_bytes"] // (4 * batch * block_out),
            MICRO_OP: self.sizes["micro_op_bytes"] // 4,
        }
        unknown = np.random.default_rng(99)
        self.memory = {
            INPUT: unknown.integers(-128, 128, (count[INPUT], batch, block_in)).astype(np.int8),
            WEIGHT: unknown.integers(-128, 128, (count[WEIGHT], block_out, block_in)).astype(np.int8),
            ACCUMULATOR: unknown.integers(-(2**31), 2**31, (count[ACCUMULATOR], batch, block_out)).astype(np.int32),
            MICRO_OP: np.zeros(count[MICRO_OP], np.uint32),
        }
        self.d = bits(count[ACCUMULATOR])
        self.s = max(self.d, bits(count[INPUT]))
        self.w = bits(count[WEIGHT])
        self.m = bits(count[MICRO_OP])
        self.a = max(map(bits, count.values()))

    # ---- Instructions ---------------------------------------------------------------------------------------------

    def widths(self, opcode: int) -> dict[str, int]:
        """The fields behind the opcode in their order; the page's tables."""
        tokens = dict.fromkeys(TOKENS, 1)
        window = {"memory": 3, "sram": self.a, "dram": 32, "rows": 16, "columns": 16, "stride": 16}
        pads = {"pad_top": 4, "pad_bottom": 4, "pad_left": 4, "pad_right": 4, "pad_value": 8}
        loops = {"begin": self.m, "end": self.m + 1, "outer": 14, "inner": 14}
        loops |= {
            "destination_outer": self.d,
            "destination_inner": self.d,
            "source_outer": self.s,
            "source_inner": self.s,
        }
        return {
            LOAD: {**tokens, **window, **pads},
            STORE: {**tokens, **window},
            GEMM: {**tokens, "reset": 1, "lanes": 1, **loops, "weight_outer": self.w, "weight_inner": self.w},
            FINISH: tokens,
            ALU: {**tokens, "operation": 4, **loops, "use_immediate": 1, "immediate": 16},
        }[opcode]

    def decode(self, data: bytes) -> tuple[int, Fields]:
        word = int.from_bytes(data, "little")
        opcode, word = word & 7, word >> 3
        if opcode > ALU:
            raise Damaged("opcode")
        found: Fields = {}
        for name, width in self.widths(opcode).items():
            found[name], word = word & ((1 << width) - 1), word >> width
            if name in ("pad_value", "immediate") and found[name] >> (width - 1):
                found[name] -= 1 << width
        if word or not self.has_meaning(opcode, found):
            raise Damaged("fields")
        return opcode, found

    def has_meaning(self, opcode: int, f: Fields) -> bool:
        if opcode == LOAD:
            padded = f["pad_top"] or f["pad_bottom"] or f["pad_left"] or f["pad_right"]
            known = f["memory"] in (MICRO_OP, WEIGHT, INPUT, ACCUMULATOR, ACCUMULATOR_8)
            return known and not (f["pop_previous"] or f["push_previous"] or (f["memory"] == MICRO_OP and padded))
        if opcode == STORE:
            return f["memory"] in (OUTPUT, ACCUMULATOR) and not (f["pop_next"] or f["push_next"])
        if opcode == GEMM and f["lanes"] and self.sizes["block_in"] != self.sizes["block_out"]:
            return False
        if opcode == ALU:
            most = {SCALE: 255, QUANTIZE: 1023, REQUANTIZE: 1023}.get(f["operation"], 65535)
            if f["operation"] > REQUANTIZE or (f["operation"] >= SCALE and f["use_immediate"]):
                return False
            if f["operation"] in (SCALE, QUANTIZE, REQUANTIZE) and not 0 <= f["immediate"] <= most:
                return False
        return opcode == FINISH or f["begin"] < f["end"]

    # ---- What they do ---------------------------------------------------------------------------------------------

    def execute(self, opcode: int, f: Fields) -> None:
        if opcode == LOAD:
            self.load(f)
        elif opcode == STORE:
            self.store(f)
        elif opcode in (GEMM, ALU):
            self.take_steps(opcode, f)

    def entry_in_dram(self, memory: int) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        """Bytes, numbers and extents of an entry in DRAM."""
        narrow = memory in (ACCUMULATOR_8, OUTPUT)
        like = self.memory[ACCUMULATOR if narrow else memory]
        dtype = np.dtype(np.int8) if narrow else like.dtype
        return int(np.prod(like.shape[1:])) * dtype.itemsize, dtype, like.shape[1:]

    def load(self, f: Fields) -> None:
        target = self.memory[ACCUMULATOR if f["memory"] == ACCUMULATOR_8 else f["memory"]]
        size, dtype, extents = self.entry_in_dram(f["memory"])
        width = f["pad_left"] + f["columns"] + f["pad_right"]
        for row in range(f["pad_top"] + f["rows"] + f["pad_bottom"]):
            entries = target[f["sram"] + row * width : f["sram"] + (row + 1) * width]
            if len(entries) < width:
                raise Damaged("outside of a memory")
            entries[...] = f["pad_value"] & 0xFFFFFFFF if f["memory"] == MICRO_OP else f["pad_value"]
            inside = row - f["pad_top"]
            if 0 <= inside < f["rows"] and f["columns"]:
                first = (f["dram"] + inside * f["stride"]) * size
                data = self.dram[first : first + f["columns"] * size]
                numbers = np.frombuffer(bytes(data), dtype).reshape(f["columns"], *extents)
                entries[f["pad_left"] : f["pad_left"] + f["columns"]] = numbers

    def store(self, f: Fields) -> None:
        size, dtype, _ = self.entry_in_dram(f["memory"])
        for row in range(f["rows"]):
            first = f["sram"] + row * f["columns"]
            data = self.memory[ACCUMULATOR][first : first + f["columns"]].astype(dtype).tobytes()
            at = (f["dram"] + row * f["stride"]) * size
            if at + len(data) > len(self.dram):
                raise Damaged("outside of DRAM")
            self.dram[at : at + len(data)] = data

    def take_steps(self, opcode: int, f: Fields) -> None:
        accumulators = self.memory[ACCUMULATOR]
        for i in range(f["outer"]):
            for j in range(f["inner"]):
                for k in range(f["begin"], f["end"]):
                    word = int(self.memory[MICRO_OP][k])
                    d = word & ((1 << self.d) - 1)
                    s = word >> self.d & ((1 << self.s) - 1)
                    w = word >> (self.d + self.s) & ((1 << self.w) - 1)
                    d += i * f["destination_outer"] + j * f["destination_inner"]
                    s += i * f["source_outer"] + j * f["source_inner"]
                    if opcode == GEMM:
                        w += i * f["weight_outer"] + j * f["weight_inner"]
                        product = self.product(s, w, bool(f["lanes"]))
                        accumulators[d] = product if f["reset"] else accumulators[d] + product
                    else:
                        accumulators[d] = self.operation(f, accumulators[d], s)

    def product(self, s: int, w: int, lanes: bool) -> Array:
        x = self.memory[INPUT][s].astype(np.int32)
        rows = self.sizes["block_out"]
        if lanes:
            return x * self.memory[WEIGHT][w // rows][w % rows].astype(np.int32)
        return x @ self.memory[WEIGHT][w].astype(np.int32).T

    def operation(self, f: Fields, x: Array, s: int) -> Array:
        accumulators, code, immediate = self.memory[ACCUMULATOR], f["operation"], f["immediate"]
        y = np.full_like(x, immediate) if f["use_immediate"] else accumulators[s]
        point = (immediate & 255) - 256 * (immediate >> 7 & 1)
        with np.errstate(all="ignore"):
            if code in (MIN, MAX):
                return np.minimum(x, y) if code == MIN else np.maximum(x, y)
            if code in (ADD, MULTIPLY):
                return x + y if code == ADD else x * y
            if code == SHIFT_RIGHT:
                right, left = np.clip(y, 0, 31), np.clip(-y.astype(np.int64), 0, 31)
                return np.where(y < 0, (x.astype(np.int64) << left).astype(np.int32), x >> right)
            if code == COPY:
                return y.copy()
            if code == SCALE:
                return as_bits((x - np.int32(point)).astype(np.float32) * y.view(np.float32))
            if code == FLOAT_ADD:
                return as_bits(x.view(np.float32) + y.view(np.float32))
            least = point if immediate >> 8 & 1 else -128
            if code == QUANTIZE:
                return in_8_bits(whole(x.view(np.float32) / y.view(np.float32)) + point, least)
            divisor, total = accumulators[s + 1].view(np.float32), x + accumulators[s + 2]
            multiplier = y.view(np.float32)
            if immediate >> 9 & 1:
                return in_8_bits(whole(total.astype(np.float64) * multiplier.astype(np.float64) + point), least)
            return in_8_bits(whole(total.astype(np.float32) * multiplier / divisor) + point, least)


def as_bits(numbers: Array) -> Array:
    return np.where(np.isnan(numbers), np.int32(0x7FC00000), numbers.view(np.int32))


def whole(numbers: Array) -> Array:
    """Half to even, kept in 32 bits, no number as 0; in 64 bits, so that what is added does not wrap."""
    rounded = np.rint(numbers.astype(np.float64))
    kept = np.clip(np.where(np.isnan(rounded), 0.0, rounded), -(2.0**31), 2.0**31 - 1)
    return kept.astype(np.int64)


def in_8_bits(numbers: Array, least: int) -> Array:
    return np.clip(numbers, least, 127).astype(np.int32)


# ---- Order --------------------------------------------------------------------------------------------------------


def neighbours(unit: int, f: Fields, action: str, *, taken: bool) -> list[tuple[int, int]]:
    """The queues, from a unit to one, that an instruction takes from or gives to."""
    found = []
    for side, other in (("previous", unit - 1), ("next", unit + 1)):
        if f[f"{action}_{side}"]:
            found.append((other, unit) if taken else (unit, other))
    return found


def simulate(sizes: Mapping[str, int], stream: bytes, dram: bytearray) -> None:
    """Run a program on its DRAM, in place."""
    machine = Machine(sizes, dram)
    program = [machine.decode(stream[at : at + 16]) for at in range(0, len(stream), 16)]
    queues: list[deque[tuple[int, Fields]]] = [deque() for _ in range(4)]
    started: list[tuple[int, Fields] | None] = [None] * 4
    tokens: dict[tuple[int, int], int] = {}
    fetched = 0
    while True:
        moved = False
        while fetched < len(program) and len(queues[UNIT_OF[program[fetched][0]]]) < sizes["queue_depth"]:
            queues[UNIT_OF[program[fetched][0]]].append(program[fetched])
            fetched, moved = fetched + 1, True
        for unit in range(4):
            one = started[unit]
            if one is None and queues[unit]:
                wanted = neighbours(unit, queues[unit][0][1], "pop", taken=True)
                if all(tokens.get(queue, 0) for queue in wanted):
                    for queue in wanted:
                        tokens[queue] -= 1
                    one = started[unit] = queues[unit].popleft()
                    machine.execute(*one)
                    moved = True
            if one is not None:
                given = neighbours(unit, one[1], "push", taken=False)
                if all(tokens.get(queue, 0) < sizes["token_depth"] for queue in given):
                    for queue in given:
                        tokens[queue] = tokens.get(queue, 0) + 1
                    started[unit], moved = None, True
                    if one[0] == FINISH:
                        return
        if not moved:
            raise Damaged("a unit waits forever")
