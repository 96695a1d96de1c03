"""The cycles of a program, written from docs/accelerator.md alone: it imports nothing of Graft."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.plugins.accelerator.page.simulator import (
    ALU,
    FINISH,
    LOAD,
    MICRO_OP,
    STORE,
    UNIT_OF,
    Damaged,
    Fields,
    Machine,
    neighbours,
)

UNITS, FETCH, AT_ONCE, INSTRUCTION = range(4), 4, 16, 16
PORT = (0, 3, FETCH)
"""Who asks for the port, in the order in which it serves those that it never served."""


@dataclass
class Transfer:
    """Rows of bytes that are left to be moved, from when on the next burst is wanted, and when one was last served."""

    rows: deque[int] = field(default_factory=deque)
    ready: int = 0
    served: int = 0


@dataclass
class Clock:
    """All that changes with time."""

    machine: Machine
    program: list[tuple[int, Fields]]
    now: int = 0
    port_free: int = 0
    brought: int = 0
    fetched: int = 0
    fetching: bool = False
    queues: list[deque[int]] = field(default_factory=lambda: [deque() for _ in UNITS])
    current: list[int | None] = field(default_factory=lambda: [None] * 4)
    done_at: list[int] = field(default_factory=lambda: [0] * 4)
    tokens: dict[tuple[int, int], int] = field(default_factory=dict)
    transfers: dict[int, Transfer] = field(default_factory=lambda: {one: Transfer() for one in PORT})

    def size(self, name: str) -> int:
        return self.machine.sizes[name]

    def run(self) -> int:
        """Go from event to event; return when `finish` has given its tokens."""
        while True:
            while self.fetch() | self.units() | self.serve():
                if self.current[2] == -1:
                    return self.now
            times = [one.ready for one in self.transfers.values()] + self.done_at + [self.port_free]
            later = [time for time in times if time > self.now]
            if not later:
                raise Damaged("a unit waits forever")
            self.now = min(later)

    # ---- The port -------------------------------------------------------------------------------------------------

    def serve(self) -> bool:
        asking = [who for who in PORT if self.transfers[who].rows and self.transfers[who].ready <= self.now]
        if self.port_free > self.now or not asking:
            return False
        one = self.transfers[min(asking, key=lambda who: self.transfers[who].served)]
        size = min(one.rows[0], self.size("burst_bytes"))
        one.rows[0] -= size
        if not one.rows[0]:
            one.rows.popleft()
        self.port_free = one.ready = one.served = self.now - (-size // self.size("port_bytes"))
        return True

    def fetch(self) -> bool:
        moved, one = False, self.transfers[FETCH]
        if self.fetching and not one.rows and one.ready <= self.now:
            self.brought, self.fetching, moved = min(self.brought + AT_ONCE, len(self.program)), False, True
        while self.fetched < self.brought:
            queue = self.queues[UNIT_OF[self.program[self.fetched][0]]]
            if len(queue) == self.size("queue_depth"):
                break
            queue.append(self.fetched)
            self.fetched, moved = self.fetched + 1, True
        if not self.fetching and self.fetched == self.brought < len(self.program):
            count = min(AT_ONCE, len(self.program) - self.brought)
            one.rows.append(count * INSTRUCTION)
            one.ready, self.fetching, moved = self.now + self.size("latency"), True, True
        return moved

    # ---- Units ----------------------------------------------------------------------------------------------------

    def units(self) -> bool:
        moved = [self.end(unit) | self.start(unit) for unit in UNITS]
        return any(moved)

    def end(self, unit: int) -> bool:
        index = self.current[unit]
        if index is None or index < 0 or self.done_at[unit] > self.now:
            return False
        opcode, fields = self.program[index]
        if opcode in (LOAD, STORE) and (self.transfers[unit].rows or self.transfers[unit].ready > self.now):
            return False
        given = neighbours(unit, fields, "push", taken=False)
        if any(self.tokens.get(queue, 0) == self.size("token_depth") for queue in given):
            return False
        for queue in given:
            self.tokens[queue] = self.tokens.get(queue, 0) + 1
        self.current[unit] = -1 if opcode == FINISH else None
        return True

    def start(self, unit: int) -> bool:
        if self.current[unit] is not None or not self.queues[unit]:
            return False
        opcode, fields = self.program[self.queues[unit][0]]
        wanted = neighbours(unit, fields, "pop", taken=True)
        if not all(self.tokens.get(queue, 0) for queue in wanted):
            return False
        for queue in wanted:
            self.tokens[queue] -= 1
        self.current[unit] = self.queues[unit].popleft()
        self.done_at[unit] = self.now + self.work(unit, opcode, fields)
        if opcode == LOAD and fields["memory"] == MICRO_OP:
            self.machine.execute(opcode, fields)
        return True

    def work(self, unit: int, opcode: int, fields: Fields) -> int:
        """Begin an instruction; return the cycles that it takes at least."""
        if opcode in (LOAD, STORE):
            return self.transfer(unit, opcode, fields)
        if opcode == FINISH or not fields["outer"] * fields["inner"]:
            return 1
        steps = fields["outer"] * fields["inner"] * (fields["end"] - fields["begin"])
        if opcode == ALU:
            return self.size("pipeline") + steps * self.size("alu_interval")
        return self.size("pipeline") + self.products(fields)

    def transfer(self, unit: int, opcode: int, f: Fields) -> int:
        one, size = self.transfers[unit], self.machine.entry_in_dram(f["memory"])[0]
        moved = f["rows"] * f["columns"]
        one.ready = self.now + (self.size("latency") if moved else 0)
        if moved:
            one.rows.extend([moved * size] if f["stride"] == f["columns"] else [f["columns"] * size] * f["rows"])
        if opcode == STORE:
            return 0
        entries = (f["pad_top"] + f["rows"] + f["pad_bottom"]) * (f["pad_left"] + f["columns"] + f["pad_right"])
        return entries if entries > moved else 0

    def products(self, f: Fields) -> int:
        """Cycles from the first step to the last, both counted."""
        last: dict[int, int] = {}
        time = -1
        for i in range(f["outer"]):
            for j in range(f["inner"]):
                for k in range(f["begin"], f["end"]):
                    d = int(self.machine.memory[MICRO_OP][k]) & ((1 << self.machine.d) - 1)
                    d += i * f["destination_outer"] + j * f["destination_inner"]
                    time = max(time + 1, last.get(d, -(1 << 30)) + self.size("accumulator_latency"))
                    last[d] = time
        return time + 1


def cycles(sizes: Mapping[str, int], stream: bytes, dram: bytearray) -> int:
    """Return the cycles of a program, whose micro-ops are in DRAM."""
    machine = Machine(sizes, dram)
    return Clock(machine, [machine.decode(stream[at : at + 16]) for at in range(0, len(stream), 16)]).run()
