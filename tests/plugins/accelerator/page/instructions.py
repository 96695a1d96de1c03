"""Configurations and instructions of the accelerator, from their bits: written from docs/accelerator.md alone."""

from __future__ import annotations

from types import SimpleNamespace

DEFAULTS = {
    "batch": 1, "block_in": 16, "block_out": 16,
    "input_bytes": 32 << 10, "weight_bytes": 256 << 10, "accumulator_bytes": 128 << 10, "micro_op_bytes": 32 << 10,
    "queue_depth": 512, "token_depth": 256, "port_bytes": 8, "burst_bytes": 256,
    "latency": 64, "pipeline": 4, "alu_interval": 2, "accumulator_latency": 1,
}  # fmt: skip
TIMES = ("latency", "pipeline", "alu_interval", "accumulator_latency")
MEMORIES = {"micro_op": 0, "weight": 1, "input": 2, "accumulator": 3, "output": 4, "accumulator_8": 5}
MIN, MAX, ADD, SHIFT, MULTIPLY, COPY, SCALE, FLOAT_ADD, QUANTIZE, REQUANTIZE = range(10)
UNITS = ("load", "gemm", "alu", "store")
"""In the order in which they are neighbours."""
OPCODES = ("load", "store", "gemm", "finish", "alu")
TOKENS = ("pop_previous", "pop_next", "push_previous", "push_next")


class Damaged(Exception):
    """A configuration, or a program, that is none."""


def need(condition, message, error=Damaged):
    if not condition:
        raise error(message)


class Configuration(SimpleNamespace):
    def __init__(self, **given):
        need(given.keys() <= DEFAULTS.keys(), f"unknown: {given.keys() - DEFAULTS.keys()}")
        super().__init__(**DEFAULTS | given)
        for name in DEFAULTS:
            need(1 <= getattr(self, name) <= (1 << 20 if name in TIMES else (1 << 31) - 1), name)
        self.sizes = {  # bytes of an entry, as it lies in DRAM
            "micro_op": 4, "weight": self.block_out * self.block_in, "input": self.batch * self.block_in,
            "accumulator": 4 * self.batch * self.block_out, "output": self.batch * self.block_out,
            "accumulator_8": self.batch * self.block_out,
        }  # fmt: skip
        self.entries = {}
        for name in ("micro_op", "weight", "input", "accumulator"):
            size, total = self.sizes[name], getattr(self, name + "_bytes")
            need(size <= 1 << 24 and total % size == 0, f"{name}: {total} bytes, entries of {size}")
            self.entries[name] = total // size
        bits = {name: max(1, (count - 1).bit_length()) for name, count in self.entries.items()}
        d, w, m, a = bits["accumulator"], bits["weight"], bits["micro_op"], max(bits.values())
        s = max(d, bits["input"])
        need(d + s + w <= 32, f"a micro-op of {d + s + w} bits")
        self.micro_op = {"destination": (0, d), "source": (d, s), "weight": (d + s, w)}
        self.fields = fields_of(d, s, w, m, a)
        for name, fields in zip(OPCODES, self.fields, strict=True):
            width = 3 + sum(abs(bits) for _, bits in fields)
            need(width <= 128, f"{name} has {width} bits")


def fields_of(d, s, w, m, a):
    """By opcode, the names and bits of the fields of its instructions, negative where they are signed."""
    tokens = [(name, 1) for name in TOKENS]
    window = [("memory", 3), ("sram", a), ("dram", 32), ("rows", 16), ("columns", 16), ("stride", 16)]
    pads = [("pad_" + side, 4) for side in ("top", "bottom", "left", "right")] + [("pad_value", -8)]
    loops = [("begin", m), ("end", m + 1), ("outer", 14), ("inner", 14), ("destination_outer", d)]
    loops += [("destination_inner", d), ("source_outer", s), ("source_inner", s)]
    return [
        tokens + window + pads,
        tokens + window,
        [*tokens, ("reset", 1), ("lanes", 1), *loops, ("weight_outer", w), ("weight_inner", w)],
        tokens,
        [*tokens, ("operation", 4), *loops, ("use_immediate", 1), ("immediate", -16)],
    ]


def decode(config, data):
    """The instructions that 16 bytes each say."""
    need(len(data) % 16 == 0, "half an instruction")
    return [decode_one(config, data[i : i + 16]) for i in range(0, len(data), 16)]


def decode_one(config, data):
    word = int.from_bytes(data, "little")
    opcode, word = word & 7, word >> 3
    need(opcode < len(OPCODES), f"opcode {opcode}")
    one = SimpleNamespace(opcode=OPCODES[opcode], unit=UNITS.index({3: "alu"}.get(opcode, OPCODES[opcode])))
    for name, bits in config.fields[opcode]:
        value, word = word & ((1 << abs(bits)) - 1), word >> abs(bits)
        setattr(one, name, value - (1 << -bits) if bits < 0 and value >> (-bits - 1) else value)
    need(word == 0, "bits behind the last field")
    check(config, one)
    return one


def check(config, one):
    if one.opcode == "load":
        need(one.memory in (0, 1, 2, 3, 5), f"load of memory {one.memory}")
        need(not (one.pop_previous or one.push_previous), "load has no previous unit")
        pads = one.pad_top or one.pad_bottom or one.pad_left or one.pad_right
        need(one.memory != 0 or not pads, "micro-ops with padding")
    elif one.opcode == "store":
        need(one.memory in (3, 4), f"store of memory {one.memory}")
        need(not (one.pop_next or one.push_next), "store has no next unit")
    elif one.opcode in ("gemm", "alu"):
        need(one.begin < one.end, "begin is not less than end")
        if one.opcode == "gemm":
            need(not one.lanes or config.block_in == config.block_out, "lanes of other blocks")
        else:
            need(one.operation <= REQUANTIZE, f"operation {one.operation}")
            if one.operation >= SCALE:
                need(not one.use_immediate, "use_immediate of floats")
                most = {SCALE: 255, QUANTIZE: 1023, REQUANTIZE: 1023}.get(one.operation)
                need(most is None or 0 <= one.immediate <= most, f"immediate {one.immediate}")
    if one.opcode in ("load", "store"):
        names = {number: name for name, number in MEMORIES.items()}
        one.size = config.sizes[names[one.memory]]
        one.memory = names[one.memory]
