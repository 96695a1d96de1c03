"""A machine as data: what its data sheet says, and nothing that follows from it.

Everything between a region and its kernels reads this description: tiles from vectors, registers and costs, blocks from
the memories, tasks from the levels of parallelism, dot products from the instructions. A number that is a fact of a
machine stands in its row (`graft.core.machine.rows`) and nowhere else; schedules keep what is a proportion of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd

from graft.errors import MachineError

KIB, MIB = 1 << 10, 1 << 20
EVERYONE = "machine"
"""Who sees a memory that belongs to no level of parallelism."""
UNBOUNDED = 1 << 62
"""The bytes of a memory without a bound of its own, where a number is needed."""
WORTHWHILE = (32 * KIB, 1 * MIB, 32 * MIB)
"""By level, what blocks plan for of a larger cache. With all of 48 KiB and 2 MiB none of four networks became faster;
two took about 1.5 % longer, which is little more than the noise."""
REGISTER = "register"
"""The memory of buffers that live in registers, which every machine with registers has."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory, named as buffers of the tensor IR name it, or a cache, which no buffer names.

    ``bytes`` is what one unit of the level ``seen_by`` has of it, 0 where there is no bound; ``line`` what is moved at
    one time, ``ways`` the lines of one set, ``bandwidth`` the bytes per cycle that arrive from it.
    """

    name: str
    bytes: int = 0
    line: int = 64
    ways: int = 8
    bandwidth: float = 8.0
    seen_by: str = EVERYONE
    is_cache: bool = False

    @property
    def size(self) -> int:
        """The bytes, `UNBOUNDED` where there is no bound."""
        return self.bytes or UNBOUNDED

    @property
    def sets(self) -> int:
        """The sets of a cache: lines that compete for the same ``ways`` are in one."""
        return self.size // (self.ways * self.line)

    def sets_of(self, stride: int) -> int:
        """Return how many sets lines are in that lie ``stride`` bytes apart, as the rows of a matrix do."""
        apart, rest = divmod(stride, self.line)
        return self.sets if rest else self.sets // gcd(apart, self.sets)


@dataclass(frozen=True, slots=True)
class Level:
    """A level of parallelism: threads, blocks, warps, queues. ``count`` units, 0 where the system decides."""

    name: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction beyond arithmetic: what it means in the tensor IR, and beside it how languages write it.

    ``meaning`` is an expression over ``a``, ``b`` and ``c`` (`graft.core.machine.instructions` tells the types of dot
    products); ``text`` has by language (``llvm``, ``c``, ``ptx``) the name of the function or operation, in which
    ``{bits}`` stands for the width of the result. ``lanes`` are those that a result may have, () for any; ``needs``
    names the features that a machine of the architecture ``arch`` (any if "") must have.
    """

    name: str
    meaning: str
    text: Mapping[str, str] = field(hash=False)
    needs: frozenset[str] = frozenset()
    lanes: tuple[int, ...] = ()
    arch: str = ""
    unless: frozenset[str] = frozenset()
    """Features of machines that have the instruction but are faster without it."""

    def fits(self, lanes: int) -> bool:
        """Whether a result of so many lanes is one instruction."""
        return not self.lanes or lanes in self.lanes


@dataclass(frozen=True, slots=True)
class Costs:
    """What things take, in cycles of one core.

    ``fused`` and ``loads`` are how many multiply-adds and loads start in a cycle, ``latency`` how long the result of a
    multiply-add takes, ``load`` what a load takes besides. A tile of a further shape is taken only where that
    saves the share ``code`` of the cycles: its code takes flash. A task is worth giving away from ``task`` element
    operations on, and threads that wait for each other lose ``meeting`` cycles.
    """

    fused: float = 2.0
    loads: float = 2.0
    latency: int = 4
    load: float = 0.15
    code: float = 0
    task: int = 16384
    meeting: int = 100_000


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, or the least of a family of them.

    ``arch`` is the instruction set, ``cpu`` how compilers call the processor in it; ``vectors`` are the widths of
    vector registers in bits, () for a machine without; ``registers`` the number of those a kernel may hold, scalar ones
    on a machine without vectors. With ``masks``, single lanes are switched off at no cost, with ``masked_loads`` alone
    those of loads are.
    """

    name: str
    arch: str
    cpu: str = ""
    features: frozenset[str] = frozenset()
    vectors: tuple[int, ...] = ()
    registers: int = 16
    masks: bool = False
    masked_loads: bool = False
    memories: tuple[Memory, ...] = ()
    levels: tuple[Level, ...] = (Level("thread"),)
    instructions: tuple[Instruction, ...] = ()
    costs: Costs = Costs()
    unroll: int = 2
    """Terms of a sum that one pass of an innermost loop adds: 1 where an engine compiles it again, as it stands ..."""
    float_unroll: int = 0
    """... and of floats, where these are in registers of their own that are few: as ``unroll`` if 0."""

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise MachineError(f"machine '{self.name}': {fault}", machine=self.name)

    def __hash__(self) -> int:
        return hash((self.name, self.arch, self.cpu, self.features))  # few are alike in these and no more

    @property
    def vector_bytes(self) -> int:
        """The width of the widest vector register, in bytes; 0 on a machine without."""
        return max(self.vectors, default=0) // 8

    @property
    def threads(self) -> int:
        """How many threads run at a time, 0 where the system decides."""
        return next((level.count for level in self.levels if level.name == "thread"), 0)

    @property
    def is_device(self) -> bool:
        """Whether a program runs beside it, not on it: it has blocks of threads."""
        return any(level.name == "block" for level in self.levels)

    @property
    def caches(self) -> tuple[Memory, ...]:
        """The caches, the nearest first."""
        return tuple(memory for memory in self.memories if memory.is_cache)

    def cache(self, level: int) -> Memory:
        """Return the cache of a level, 1 the nearest; with fewer levels the last, without any the nearest memory."""
        near = self.caches or self.memories[:1]
        return near[min(level, len(near)) - 1]

    def working_set(self, level: int) -> int:
        """Return the bytes of the cache of a level that blocks may plan for: all of it, but at most `WORTHWHILE`."""
        return min(self.cache(level).size, WORTHWHILE[min(level, len(WORTHWHILE)) - 1])

    @property
    def far(self) -> Memory:
        """The memory behind all caches."""
        return self.memories[-1]

    def memory(self, name: str) -> Memory | None:
        """Return the memory that buffers call ``name``, None if the machine has none."""
        return next((memory for memory in self.memories if memory.name == name and not memory.is_cache), None)

    @property
    def places(self) -> tuple[str, ...]:
        """The memories that a buffer may be in."""
        own = (memory.name for memory in self.memories if not memory.is_cache)
        return (*own, REGISTER) if self.registers else tuple(own)

    def instruction(self, name: str, lanes: int = 0) -> Instruction | None:
        """Return the instruction ``name`` for a result of so many lanes (0: any), None if the machine has none."""
        for one in self.instructions:
            if one.name == name and (not lanes or one.fits(lanes)):
                return one
        return None

    def has(self, name: str) -> bool:
        """Whether the machine has an instruction for something."""
        return any(one.name == name for one in self.instructions)


def _faults(machine: Machine) -> Iterator[str]:
    """Say what contradicts itself in a row, and what to write instead."""
    if not machine.name or not machine.arch:
        yield f"its name is '{machine.name}' and its architecture '{machine.arch}'; give it both"
    for width in machine.vectors:
        if width < 8 or width & (width - 1):
            yield f"vectors of {width} bits; widths are powers of two, at least 8"
    if machine.registers < 1:
        yield f"{machine.registers} registers; a kernel needs at least one"
    if (machine.masks or machine.masked_loads) and not machine.vectors:
        yield "it switches lanes off but has no vectors; leave masks False or give it vectors"
    yield from _name_faults(machine)
    yield from _memory_faults(machine)
    yield from _instruction_faults(machine)
    for name in ("fused", "loads", "latency"):
        if getattr(machine.costs, name) <= 0:
            yield f"costs.{name} is {getattr(machine.costs, name)}; it is more than 0"
    for name in ("load", "task", "meeting"):
        if getattr(machine.costs, name) < 0:
            yield f"costs.{name} is {getattr(machine.costs, name)}; it is at least 0"


def _name_faults(machine: Machine) -> Iterator[str]:
    kinds = (("memories", machine.memories), ("levels", machine.levels))
    for kind, rows in kinds:
        names = [row.name for row in rows]
        for name in names:
            if not name:
                yield f"one of its {kind} has no name; give it one"
            elif names.count(name) > 1:
                yield f"two {kind} are called '{name}'; give each its own name"
    if machine.memory(REGISTER) is not None:
        yield f"a memory is called '{REGISTER}', as its registers are; give it another name"
    for level in machine.levels:
        if level.count < 0:
            yield f"level '{level.name}' has {level.count} units; 0 stands for as many as the system gives"


def _memory_faults(machine: Machine) -> Iterator[str]:
    if not machine.memories or machine.memories[-1].is_cache:
        yield "no memory behind its caches; name the one that tensors are in last"
    levels = (EVERYONE, *(level.name for level in machine.levels))
    for memory in machine.memories:
        if memory.seen_by not in levels:
            yield f"memory '{memory.name}' is seen by '{memory.seen_by}'; there are {', '.join(levels)}"
        if memory.bytes < 0 or memory.bandwidth <= 0:
            yield (
                f"memory '{memory.name}' has {memory.bytes} bytes, {memory.bandwidth} a cycle; 0 stands for as many as "
                "there are, and some come in a cycle"
            )
        if memory.line < 1 or memory.line & (memory.line - 1) or memory.ways < 1:
            yield (
                f"memory '{memory.name}' has lines of {memory.line} bytes, {memory.ways} of a set; a line is a power "
                "of two, a set at least one"
            )
        if memory.is_cache and not memory.bytes:
            yield f"cache '{memory.name}' has no size; give it bytes"
    for inner, outer in pairwise(machine.caches):
        if outer.bytes < inner.bytes:
            yield (
                f"cache '{outer.name}' ({outer.bytes} bytes) is outside '{inner.name}' ({inner.bytes} bytes) and "
                "smaller; list caches from the nearest on"
            )


def _instruction_faults(machine: Machine) -> Iterator[str]:
    for one in machine.instructions:
        if one.arch not in ("", machine.arch):
            yield f"instruction '{one.name}' is of '{one.arch}', not of '{machine.arch}'; leave it out"
        if missing := sorted(one.needs - machine.features):
            lacking = ", ".join(missing)
            yield f"instruction '{one.name}' needs {lacking}, which it lacks; add the feature or leave it out"
        if not one.text:
            yield f"instruction '{one.name}' has no text in any language; give it one"
    known = [(one.name, lanes) for one in machine.instructions for lanes in one.lanes or (0,)]
    for name, lanes in known:
        if known.count((name, lanes)) > 1:
            of = f" of {lanes} lanes" if lanes else ""
            yield f"instruction '{name}'{of} stands twice; leave one of them out"
