"""A simulator of the accelerator, written from docs/accelerator.md alone; it needs NumPy and nothing of Graft.

`run(config, instructions, dram)` executes and counts cycles; with a seed, every time is drawn by chance instead, and an
instruction takes effect as it starts or as it ends.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tests.plugins.accelerator.page.instructions import (
    ADD,
    COPY,
    FLOAT_ADD,
    MAX,
    MIN,
    MULTIPLY,
    QUANTIZE,
    REQUANTIZE,
    SCALE,
    SHIFT,
    UNITS,
    decode,
    need,
)

REASONS = ("busy", "dram", "token_previous", "token_next", "room", "instructions")
"""What a unit does with a cycle: it works, or waits for one of these."""


class Fault(Exception):
    """A program that accesses what is not there, or waits forever."""


class Machine:
    """The memories and what instructions do to them."""

    def __init__(self, config, dram, rng):
        self.config, self.dram = config, dram
        shapes = {
            "micro_op": (4,), "weight": (config.block_out, config.block_in), "input": (config.batch, config.block_in),
            "accumulator": (config.batch, config.block_out),
        }  # fmt: skip
        types = {"micro_op": "<u4", "weight": "i1", "input": "i1", "accumulator": "<i4"}
        self.raw = {name: rng.integers(0, 256, getattr(config, name + "_bytes"), np.uint8) for name in shapes}
        self.memory = {name: self.raw[name].view(types[name]) for name in shapes}
        for name in ("weight", "input", "accumulator"):
            self.memory[name] = self.memory[name].reshape(-1, *shapes[name])

    def execute(self, one):
        if one.opcode != "finish":
            getattr(self, one.opcode)(one)

    def window(self, one):
        """The bytes in DRAM of every row of the window, as indices."""
        at = (one.dram + np.arange(one.rows, dtype=np.int64) * one.stride) * one.size
        index = at[:, None] + np.arange(one.columns * one.size)
        need(index.size == 0 or index.max() < len(self.dram), "outside of the DRAM", Fault)
        return index

    def load(self, one):
        top, left, rows, columns = one.pad_top, one.pad_left, one.rows, one.columns
        shape = (top + rows + one.pad_bottom, left + columns + one.pad_right)
        name = "accumulator" if one.memory == "accumulator_8" else one.memory
        memory = self.memory[name].reshape(self.config.entries[name], -1)
        need(one.sram + shape[0] * shape[1] <= len(memory) or not shape[0] * shape[1], f"outside of {name}", Fault)
        tile = np.full((*shape, memory.shape[1]), one.pad_value if name != "micro_op" else 0, memory.dtype)
        kind = np.int8 if one.memory == "accumulator_8" else memory.dtype
        data = self.dram[self.window(one)].reshape(-1).view(kind)
        tile[top : top + rows, left : left + columns] = data.reshape(rows, columns, -1) if data.size else 0
        memory[one.sram : one.sram + shape[0] * shape[1]] = tile.reshape(-1, memory.shape[1])

    def store(self, one):
        count = one.rows * one.columns
        memory = self.memory["accumulator"].reshape(self.config.entries["accumulator"], -1)
        if not count:
            return
        need(one.sram + count <= len(memory), "outside of accumulators", Fault)
        data = memory[one.sram : one.sram + count]
        data = data.astype(np.int8) if one.memory == "output" else data
        rows = np.ascontiguousarray(data).view(np.uint8).reshape(one.rows, -1)
        for index, row in zip(self.window(one), rows, strict=True):
            self.dram[index] = row

    def steps(self, one, most=4096):
        """Destinations, sources and weights of the steps in their order, at most `most` at a time."""
        count = one.end - one.begin
        total = one.outer * one.inner * count
        need(not total or one.end <= self.config.entries["micro_op"], "outside of micro-ops", Fault)
        for start in range(0, total, most):
            rest, k = np.divmod(np.arange(start, min(start + most, total)), count)
            i, j = np.divmod(rest, one.inner)
            word = self.memory["micro_op"][one.begin + k].astype(np.int64)
            yield [
                (word >> low & (1 << bits) - 1)
                + sum(trip * getattr(one, f"{name}_{loop}", 0) for trip, loop in ((i, "outer"), (j, "inner")))
                for name, (low, bits) in self.config.micro_op.items()
            ]

    def inside(self, index, name, times=1):
        need(index.max() < self.config.entries[name] * times, f"outside of {name}", Fault)

    def gemm(self, one):
        accumulator, inputs, weights = (self.memory[name] for name in ("accumulator", "input", "weight"))
        for d, s, w in self.steps(one):
            self.inside(d, "accumulator")
            self.inside(s, "input")
            self.inside(w, "weight", self.config.block_out if one.lanes else 1)
            if one.lanes:
                rows = weights.reshape(-1, self.config.block_in)[w]
                products = inputs[s].astype(np.int32) * rows[:, None, :]
            else:  # whole numbers below 2^53, so exact
                products = np.matmul(inputs[s].astype(float), weights[w].astype(float).transpose(0, 2, 1))
                products = products.astype(np.int64).astype(np.int32)
            if one.reset:
                accumulator[d] = products  # the last product of a destination stays
            else:
                np.add.at(accumulator, d, products)

    def alu(self, one):
        accumulator = self.memory["accumulator"]
        operands = 0 if one.use_immediate else 3 if one.operation == REQUANTIZE else 1
        for d, s, _ in self.steps(one):
            self.inside(d, "accumulator")
            reads = [s + n for n in range(operands)]
            if operands:
                self.inside(reads[-1], "accumulator")
            for part in independent(d, reads):
                y = [accumulator[index[part]] for index in reads] or [np.int32(one.immediate)]
                with np.errstate(all="ignore"):
                    accumulator[d[part]] = operate(one.operation, one.immediate, accumulator[d[part]], *y)


def independent(d, reads):
    """Cuts steps into ranges of which no step reads what another one before it wrote."""
    begin, written = 0, set()
    for n, (at, *others) in enumerate(zip(*(index.tolist() for index in (d, *reads)), strict=True)):
        if at in written or not written.isdisjoint(others):
            yield slice(begin, n)
            begin, written = n, set()
        written.add(at)
    yield slice(begin, len(d))


def as_float(x):
    return np.ascontiguousarray(x).view(np.float32)


def as_bits(x):
    return np.where(np.isnan(x), np.int32(0x7FC00000), x.view(np.int32))


def whole(x):
    """Rounded half to even, kept in 32 bits; NaN is 0. Wide, so that more can be added."""
    return np.clip(np.nan_to_num(np.rint(x).astype(float), nan=0.0), -(2.0**31), 2.0**31 - 1).astype(np.int64)


def operate(operation, immediate, x, y, divisor=None, bias=None):
    zero = (immediate & 255 ^ 128) - 128
    least = zero if immediate & 256 else -128
    if operation == MIN:
        return np.minimum(x, y)
    if operation == MAX:
        return np.maximum(x, y)
    if operation == ADD:
        return x + y
    if operation == MULTIPLY:
        return x * y
    if operation == COPY:
        return y
    if operation == SHIFT:
        by = np.clip(y, -31, 31)
        return np.where(by < 0, x << np.maximum(-by, 0), x >> np.maximum(by, 0))
    if operation == SCALE:
        return as_bits((x - np.int32(zero)).astype(np.float32) * as_float(y))
    if operation == FLOAT_ADD:
        return as_bits(as_float(x) + as_float(y))
    if operation == QUANTIZE:
        return np.clip(whole(as_float(x) / as_float(y)) + zero, least, 127)
    total = x + bias
    if immediate & 512:
        return np.clip(whole(total.astype(float) * as_float(y).astype(float) + float(zero)), least, 127)
    return np.clip(whole(total.astype(np.float32) * as_float(y) / as_float(divisor)) + zero, least, 127)


class Actor:
    """A unit, or fetching, as a process that yields what it waits for: `wait`.

    ("until", condition, reason): until it is true. ("cycles", n): busy so long; ("latency", n): waiting for DRAM.
    ("port", bytes): a burst.
    """

    def __init__(self, process, rank):
        self.process, self.wait = process, next(process)
        self.since, self.end = 0, None  # since when it waits, and until when, where that is known
        self.served, self.rank = -1, rank  # when the port served it last, and which is first of those that it never did


class Run:
    """A program in the machine: what it computes, and when."""

    def __init__(self, config, data, dram, seed=None):
        self.config, self.program = config, decode(config, bytes(data))
        kinds = [one.opcode for one in self.program]
        need(kinds.count("finish") == 1 and kinds[-1] == "finish", "finish is the last, and the only one")
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.machine = Machine(config, np.frombuffer(dram, np.uint8), self.rng or np.random.default_rng(0))
        self.queues = [deque() for _ in UNITS]
        self.tokens = {(a, b): 0 for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4}
        self.spans = []  # of every instruction: itself, when it started, when it was done
        self.counters = {unit: dict.fromkeys(REASONS, 0) for unit in (*UNITS, "fetch")}
        self.now, self.over = 0, False
        self.go()

    def unit(self, me):
        queue = self.queues[me]
        while True:
            yield "until", lambda: queue, "instructions"
            one, takes, gives = queue[0], [], []
            for to, end in ((me - 1, "previous"), (me + 1, "next")):
                if getattr(one, "pop_" + end):
                    takes.append((to, me))
                    yield "until", lambda link=takes[-1]: self.tokens[link], "token_" + end
                if getattr(one, "push_" + end):
                    gives.append((me, to))
            queue.popleft()
            for link in takes:
                self.tokens[link] -= 1
            start, early = self.now, self.rng is not None and self.rng.integers(2)
            if early:
                self.machine.execute(one)
            work = self.transfer(one) if one.opcode in ("load", "store") else [("cycles", self.duration(one))]
            yield from work
            if not early:
                self.machine.execute(one)
            self.spans.append((one, start, self.now))
            yield "until", lambda gives=gives: all(self.tokens[one] < self.config.token_depth for one in gives), "room"
            for link in gives:
                self.tokens[link] += 1
            self.over = self.over or one.opcode == "finish"

    def bursts(self, rows, size):
        for _ in range(rows):
            for done in range(0, size, self.config.burst_bytes):
                yield "port", min(self.config.burst_bytes, size - done)

    def transfer(self, one):
        start, rows, size = self.now, one.rows, one.columns * one.size
        if one.stride == one.columns:
            rows, size = 1, rows * size
        if rows * size:
            yield "latency", self.config.latency
            yield from self.bursts(rows, size)
        if one.opcode == "load":
            window = one.rows * one.columns
            filled = (one.pad_top + one.rows + one.pad_bottom) * (one.pad_left + one.columns + one.pad_right)
            if filled > window and self.now - start < filled:
                yield "cycles", filled - (self.now - start)

    def duration(self, one):
        if one.opcode == "finish" or not one.outer * one.inner:
            return 1
        steps = one.outer * one.inner * (one.end - one.begin)
        if one.opcode == "alu":
            return self.config.pipeline + self.config.alu_interval * steps
        if self.config.accumulator_latency > 1:
            last, at, apart = {}, -1, self.config.accumulator_latency
            for d, _, _ in self.machine.steps(one):
                for destination in d.tolist():
                    at = max(at + 1, last.get(destination, -apart) + apart)
                    last[destination] = at
            steps = at + 1
        return self.config.pipeline + steps

    def fetch(self):
        for first in range(0, len(self.program), 16):
            group = self.program[first : first + 16]
            yield "latency", self.config.latency
            yield from self.bursts(1, 16 * len(group))
            for one in group:
                queue = self.queues[one.unit]
                yield "until", lambda queue=queue: len(queue) < self.config.queue_depth, "room"
                queue.append(one)

    def go(self):
        units = zip(range(4), (0, 3, 4, 1), strict=True)
        self.actors = {UNITS[me]: Actor(self.unit(me), rank) for me, rank in units} | {"fetch": Actor(self.fetch(), 2)}
        self.port_free = 0
        for actor in self.actors.values():
            self.begin(actor)
        while not self.over:
            while any(self.advance(name, actor) for name, actor in self.actors.items()):
                pass
            if not self.over:
                self.grant()
                ends = [actor.end for actor in self.actors.values() if actor.end is not None]
                need(ends, "waits forever", Fault)
                self.now = min(ends)
        self.cycles = self.now
        for name, actor in self.actors.items():
            kind, _, *reason = actor.wait or ("until", None, "instructions")
            busy = kind == "cycles" or (kind == "port" and actor.end is not None)
            self.count(name, reason[0] if reason else "busy" if busy else "dram")

    def begin(self, actor):
        """Say until when an actor waits, where that is known; in an order by chance it is any time."""
        kind, what, *_ = actor.wait
        if kind in ("cycles", "latency") or (kind == "port" and self.rng is not None):
            if self.rng is not None:
                what = int(self.rng.exponential(10.0 ** self.rng.integers(4)))
            actor.end = self.now + what

    def advance(self, name, actor):
        """Let an actor go on as far as it can now; return whether it did."""
        moved = False
        while actor.wait and not self.over:
            kind, what, *reason = actor.wait
            if not (what() if kind == "until" else actor.end is not None and actor.end <= self.now):
                break
            self.count(name, reason[0] if reason else "dram" if kind == "latency" else "busy")
            actor.wait, actor.end, moved = next(actor.process, None), None, True
            if actor.wait:
                self.begin(actor)
        return moved

    def grant(self):
        """Serve a burst, if the port is free."""
        waiting = ((name, one) for name, one in self.actors.items() if one.wait and one.wait[0] == "port")
        asking = [(name, one) for name, one in waiting if one.end is None]
        if asking and self.port_free <= self.now:
            name, actor = min(asking, key=lambda pair: (pair[1].served, pair[1].rank))
            self.count(name, "dram")
            actor.served = self.now
            actor.end = self.port_free = self.now + -(-actor.wait[1] // self.config.port_bytes)

    def count(self, name, reason):
        """Say what an actor did until now."""
        actor = self.actors[name]
        self.counters[name][reason] += self.now - actor.since
        actor.since = self.now


def run(config, instructions, dram, seed=None):
    """Runs a program; `dram` (a bytearray) is what it was and becomes what it is."""
    return Run(config, instructions, dram, seed)
