"""A linker of WebAssembly objects: kernels into one module with the function that calls them in order.

LLVM's own, ``wasm-ld``, is no part of llvmlite, and there is little to do: kernels import a function or two, have
no writable data and no tables. So a program is exported wherever Graft is installed.

Memory from 0 on: the stack, so that an overflow traps; the record of a failure; constant data of kernels; and what the
caller adds. What kernels import is made here: ``graft_scratch`` takes memory behind everything else, which grows if it
must; ``graft_fail_index`` and its like note their numbers in the record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graft.errors import CompileError
from graft.runtime.export import wasm_binary as wasm
from graft.runtime.export import wasm_objects, wasm_threads
from graft.runtime.export.wasm_binary import I32, I64, address, padded, padded_signed, unsigned
from graft.runtime.export.wasm_objects import Relocation, Symbol, WasmObject
from graft.runtime.export.wasm_threads import PARALLEL, PARTS, WORK
from graft.runtime.objects import EXTENTS_SUFFIX, taken_extents

STACK_BYTES = 256 * 1024
RECORD = STACK_BYTES
"""Where a failure is noted: i32 number of the call; i32 which of `FAILURES`; its numbers as i64."""
RECORD_BYTES = 64
ERROR_RUN, ERROR_SLICES = 5, 6
SCRATCH = "graft_scratch"
FAILURES = {"graft_fail_index": 5, "graft_fail_extent": 3}
"""The functions that note why a kernel fails, with how many numbers. Their order is what the record holds."""
APPEND = "graft_append"
"""A step of this function puts blocks of rows of two tensors one behind the other: addresses of the result and of both,
how many blocks, and the bytes of a block of each."""
ROWS = "graft_rows"
"""A step of this function copies rows: addresses of the first to be written and the first to be read, how many there
are, the bytes of one, and how far it is to the next of either."""
_STACK_POINTER, _SCRATCH_POINTER = 0, 1
_END, _RETURN, _IF, _ELSE, _LOOP = b"\x0b", b"\x0f", b"\x04\x40", b"\x05", b"\x03\x40"
_LOAD_BYTE, _LOAD_LONG = b"\x2d\0\0", b"\x29\3\0"
_ALIGN = 64
_MOST_PAGES = 65536


@dataclass(frozen=True, slots=True)
class Word:
    """What stands at an address when a step begins, as i32 or i64: whoever runs the program has written it there."""

    address: int
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Moving:
    """An address that moves by ``step`` bytes with each round of a loop, whose number stands at ``round``, as i64.

    With ``last`` it begins so many steps behind ``first`` and moves back.
    """

    first: int | Word
    step: int | Word
    round: int
    last: int | Word | None = None


Operand = int | Word | Moving
"""An i32 that is known, a word, or an address in a loop."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the program: a call of function ``function`` (its key, `APPEND` or `ROWS`), or a copy of some bytes."""

    function: str
    """Empty for a copy of ``size`` bytes from ``operands[0]`` to ``operands[1]``."""
    operands: tuple[Operand, ...]
    size: Operand = 0
    origin: tuple[str, ...] = ()
    """The nodes of a call."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of two lists of steps where the byte at ``condition`` is not 0, else the second."""

    condition: Operand
    branches: tuple[tuple[Item, ...], tuple[Item, ...]]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps over and over: as often as the i64 at ``trips`` says, but not once the byte at ``go`` is 0.

    The i64 at ``round`` counts. Where the loop makes ``slices`` of something, another number of rounds is an error.
    """

    trips: Operand
    go: int
    round: int
    steps: tuple[Item, ...]
    slices: int | Word | None


Item = Step | Choice | Repeat


def calls(items: Iterable[Item]) -> Iterator[Step]:
    """Yield the steps that call a function, in the order of the code."""
    for item in items:
        match item:
            case Step(function=""):
                pass
            case Step():
                yield item
            case Choice(branches=branches):
                yield from (step for branch in branches for step in calls(branch))
            case Repeat(steps=steps):
                yield from calls(steps)


@dataclass(slots=True)
class _Placed:
    """An object with the numbers of its functions in the module, and the addresses of its segments."""

    object: WasmObject
    first: int = 0
    addresses: list[int] = field(default_factory=list)


class Linker:
    """One module under construction: objects first, then data, then the steps."""

    def __init__(self, functions: Iterable[tuple[str, str, bytes]]) -> None:
        """``functions`` are keys, symbols and objects; equal objects are placed once. Raises CompileError."""
        self._types: dict[bytes, int] = {}
        self._segments: list[tuple[int, bytes]] = []
        self._objects: dict[bytes, _Placed] = {}
        self._keys: dict[str, tuple[_Placed, str]] = {}
        self.end = RECORD + RECORD_BYTES
        """The first byte of memory that is free."""
        self.pages = (0, 0)
        """Of memory, at first and at most, once there is a module."""
        for key, symbol, data in functions:
            if data not in self._objects:
                self._objects[data] = _Placed(wasm_objects.parse(data))
            self._keys[key] = (self._objects[data], symbol)
        self._imported = {name for one in self._objects.values() for name, _ in one.object.imported}
        for name in sorted(self._imported - {SCRATCH, PARALLEL, *FAILURES}):
            raise CompileError(
                f"a kernel needs the function '{name}', which a WebAssembly module of Graft does not have", symbol=name
            )
        self.job = self.place(wasm_threads.JOB_BYTES) if PARALLEL in self._imported else None
        """Where the job of its threads lies, for a program that has parallel loops; its memory is shared then."""
        self._tasks: dict[int, int] = {}
        for placed in self._objects.values():
            notes = {symbol.index for symbol in placed.object.symbols if _is_note(symbol)}
            for number, segment in enumerate(placed.object.segments):
                placed.addresses.append(-1 if number in notes else self.place(len(segment.data), segment.alignment))

    def place(self, size: int, alignment: int = _ALIGN) -> int:
        """Return the address of so many bytes of memory, zero at first."""
        self.end = (self.end + alignment - 1) // alignment * alignment
        self.end += size
        return self.end - size

    def add(self, data: bytes) -> int:
        """Return the address of constant bytes in the module."""
        self._segments.append((self.place(len(data)), data))
        return self._segments[-1][0]

    def extents(self, key: str) -> tuple[tuple[int, int, int], ...]:
        """Return the extents that a function takes: tensor, axis and kind of each (`graft.runtime.objects`)."""
        placed, name = self._keys[key]
        for symbol in placed.object.symbols:
            if _is_note(symbol) and symbol.name == name + EXTENTS_SUFFIX:
                return taken_extents(placed.object.segments[symbol.index].data)
        return ()

    def fails(self, key: str) -> bool:
        """Whether a function checks something, so that it may fail."""
        return any(name in FAILURES for name, _ in self._keys[key][0].object.imported)

    def module(self, steps: Sequence[Item], free: Word | None = None) -> bytes:
        """Return the module, which exports ``memory`` and ``run``; raise CompileError if it takes more than 4 GiB.

        Scratch memory begins behind what is placed, or where the word ``free`` says, for memory that the caller plans.
        """
        scratch = self.place(0)
        pages = -(-scratch // wasm.PAGE)
        if pages > _MOST_PAGES:
            raise CompileError(
                f"the program needs {scratch} bytes of memory, and WebAssembly has 4 GiB ({_MOST_PAGES * wasm.PAGE}): "
                f"{scratch - _MOST_PAGES * wasm.PAGE} too many",
                bytes=scratch,
            )
        own = self._own(steps)
        numbers = {name: number for number, (name, _, _) in enumerate(own)}
        kinds, bodies = [self._type(kind) for _, kind, _ in own], [body for _, _, body in own]
        for placed in self._objects.values():
            placed.first = len(kinds)
            kinds += [self._type(placed.object.types[kind]) for kind in placed.object.functions]
            bodies += [b""] * len(placed.object.functions)
        for placed in self._objects.values():
            code = self._relocated(placed, wasm.CODE, numbers)
            bodies[placed.first : placed.first + len(code)] = code
            segments = self._relocated(placed, wasm.DATA, numbers)
            self._segments += (row for row in zip(placed.addresses, segments, strict=True) if row[0] >= 0)
        kinds.append(self._type(_kind((), (I32,))))
        called = {**numbers, **{key: _number(*owner, numbers) for key, owner in self._keys.items()}}
        begin = _begin_step(free or scratch) if self.job is None else wasm_threads.begin_step()
        bodies.append(_run(steps, called, begin))
        grows = SCRATCH in self._imported or free is not None or self.job is not None
        self.pages = (pages, _MOST_PAGES if grows else pages)
        limits = b"".join(map(unsigned, self.pages))
        exported = {"run": len(kinds) - 1, **({} if self.job is None else {WORK: numbers[WORK]})}
        return b"".join((
            wasm.HEADER,
            wasm.section(wasm.TYPES, wasm.vector(list(self._types))),
            *self._shared(limits),
            wasm.section(wasm.FUNCTIONS, wasm.vector([unsigned(kind) for kind in kinds])),
            *self._table(),
            *self._own_memory(limits),
            wasm.section(wasm.GLOBALS, wasm.vector([*map(_global, self._globals(scratch, free))])),
            wasm.section(wasm.EXPORTS, wasm.vector([
                wasm.name("memory") + b"\2\0",
                *(wasm.name(name) + b"\0" + unsigned(number) for name, number in exported.items()),
            ])),
            *self._elements(),
            wasm.section(wasm.CODE, wasm.vector([unsigned(len(body)) + body for body in bodies])),
            wasm.section(wasm.DATA, wasm.vector([
                b"\0" + address(place) + _END + unsigned(len(data)) + data for place, data in sorted(self._segments)
            ])),
        ))  # fmt: skip

    def _own(self, items: Sequence[Item]) -> list[tuple[str, bytes, bytes]]:
        """Return name, type and body of the functions made here that something calls."""
        shared = self.job is not None
        scratch = (_kind((I32, I64), (I32,)), wasm_threads.scratch()) if shared else _scratch()
        rows = [(SCRATCH, *scratch), *((name, *_failure(which)) for which, name in enumerate(FAILURES))]
        used = {step.function for step in calls(items)}
        own = [row for row in ((APPEND, *_append()), (ROWS, *_rows())) if row[0] in used]
        own += [row for row in rows if row[0] in self._imported]
        if self.job is not None:
            first, nothing = len(own), _kind((), ())
            task = self._type(_kind(*wasm_threads.TASK_TYPE))
            loop = _kind((I32, I64, I64, I32, I32), (I32,))
            own += [
                (PARTS, nothing, wasm_threads.parts(self.job, RECORD, task)),
                (PARALLEL, loop, wasm_threads.parallel_for(self.job, first, task)),
                (WORK, nothing, wasm_threads.work(self.job, first)),
            ]
        return own

    def _shared(self, limits: bytes) -> Iterator[bytes]:
        """Yield the import of memory that threads share."""
        if self.job is not None:
            row = wasm.name("graft") + wasm.name("memory") + b"\2\3" + limits
            yield wasm.section(wasm.IMPORTS, wasm.vector([row]))

    def _own_memory(self, limits: bytes) -> Iterator[bytes]:
        if self.job is None:
            yield wasm.section(wasm.MEMORIES, wasm.vector([b"\1" + limits]))

    def _globals(self, scratch: int, free: Word | None) -> tuple[int, ...]:
        """Return the first values of globals; with threads, what is behind ``free`` is nobody's scratch memory."""
        end = scratch if free is not None else self.pages[0] * wasm.PAGE
        return (STACK_BYTES, scratch) if self.job is None else (STACK_BYTES, scratch, scratch, end)

    def _table(self) -> Iterator[bytes]:
        """Yield the table of tasks; entry 0 is none, since a pointer of 0 is."""
        if self.job is not None:
            size = unsigned(len(self._tasks) + 1)
            yield wasm.section(wasm.TABLES, wasm.vector([b"\x70\1" + size + size]))

    def _elements(self) -> Iterator[bytes]:
        if self._tasks:
            entries = wasm.vector([unsigned(function) for function in self._tasks])
            yield wasm.section(wasm.ELEMENTS, wasm.vector([b"\0" + address(1) + _END + entries]))

    def _type(self, kind: bytes) -> int:
        return self._types.setdefault(kind, len(self._types))

    def _relocated(self, placed: _Placed, section: int, numbers: dict[str, int]) -> list[bytes]:
        """Return the bodies or segments of an object with everything that they refer to."""
        item = placed.object
        parts = item.bodies if section == wasm.CODE else item.segments
        relocations = sorted(item.relocations.get(section, []), key=lambda one: one.offset)
        found, next_one = [], 0
        for part in parts:
            data = bytearray(part.data)
            while next_one < len(relocations) and relocations[next_one].offset < part.offset + len(data):
                one = relocations[next_one]
                value = self._value(one, placed, numbers)
                data[one.offset - part.offset : one.offset - part.offset + len(value)] = value
                next_one += 1
            found.append(bytes(data))
        return found

    def _value(self, one: Relocation, placed: _Placed, numbers: dict[str, int]) -> bytes:
        if one.kind == wasm_objects.TYPE_LEB:
            return padded(self._type(placed.object.types[one.index]))
        symbol = placed.object.symbols[one.index]
        match one.kind:
            case wasm_objects.FUNCTION_LEB:
                return padded(_function(placed, symbol, numbers))
            case wasm_objects.TABLE_SLEB:
                function = _function(placed, symbol, numbers)
                return padded_signed(self._tasks.setdefault(function, len(self._tasks) + 1))
            case wasm_objects.GLOBAL_LEB:
                return padded(_STACK_POINTER)
            case wasm_objects.MEMORY_LEB:
                return padded(_address(placed, symbol) + one.addend)
            case wasm_objects.MEMORY_SLEB:
                return padded_signed(_address(placed, symbol) + one.addend)
            case wasm_objects.MEMORY_I32:
                return (_address(placed, symbol) + one.addend).to_bytes(4, "little")
        raise CompileError(
            f"WebAssembly relocation {one.kind} against '{symbol.name}' is not supported", relocation=one.kind
        )


def _is_note(symbol: Symbol) -> bool:
    """Whether a symbol is of what an object says to its linker, which has no place in memory."""
    return symbol.kind == 1 and symbol.is_defined and symbol.name.endswith(EXTENTS_SUFFIX)


def _function(placed: _Placed, symbol: Symbol, numbers: dict[str, int]) -> int:
    if symbol.is_defined:
        return placed.first + symbol.index - len(placed.object.imported)
    return numbers[symbol.name]


def _number(placed: _Placed, name: str, numbers: dict[str, int]) -> int:
    """Return the number of the function that an object calls so."""
    for symbol in placed.object.symbols:
        if symbol.kind == 0 and symbol.is_defined and symbol.name == name:
            return _function(placed, symbol, numbers)
    raise CompileError(f"no object defines '{name}'")


def _address(placed: _Placed, symbol: Symbol) -> int:
    if not symbol.is_defined:
        raise CompileError(f"native code needs the external symbol '{symbol.name}'", symbol=symbol.name)
    return placed.addresses[symbol.index] + symbol.offset


def _kind(parameters: Sequence[int], results: Sequence[int]) -> bytes:
    """Return a function type."""
    rows = (bytes((len(row), *row)) for row in (parameters, results))
    return bytes((wasm.FUNCTION,)) + b"".join(rows)


def _global(value: int) -> bytes:
    """Return a mutable i32 with its first value."""
    return bytes((I32, 1)) + address(value) + _END


def _begin_step(scratch: Operand) -> bytes:
    """Return the code that gives all scratch memory back."""
    return _pushed(scratch) + b"\x24" + unsigned(_SCRATCH_POINTER)


def _run(items: Sequence[Item], numbers: Mapping[str, int], begin: bytes) -> bytes:
    """Return the body of ``run``: the steps, until one fails; its number is noted, its status returned."""
    counter = itertools.count()
    code = (_code(item, numbers, begin, counter) for item in items)
    return b"".join((b"\1\1", bytes((I32,)), *code, address(0), _END))


def _code(item: Item, numbers: Mapping[str, int], begin: bytes, counter: Iterator[int]) -> bytes:
    """Return the code of a step, and of what is inside of one; ``counter`` numbers calls of kernels."""
    match item:
        case Step(function="", operands=(source, target), size=size):
            return b"".join((*map(_pushed, (target, source, size)), b"\xfc\x0a\0\0"))
        case Step(function=function, operands=operands):
            call, number = [b"\x10", unsigned(numbers[function])], next(counter)
            if function in (APPEND, ROWS):
                return b"".join((*map(_pushed, operands), *call))
            pushed = map(_pushed, (RECORD, *operands))  # the record stands for the context
            noted = address(RECORD) + address(number) + b"\x36\2\0"
            return b"".join((begin, *pushed, *call, b"\x22\0", _IF, noted, b"\x20\0", _RETURN, _END))
        case Choice(condition, branches):
            first, second = (b"".join(_code(one, numbers, begin, counter) for one in branch) for branch in branches)
            return b"".join((_pushed(condition), _LOAD_BYTE, _IF, first, _ELSE, second, _END))
        case Repeat(trips, go, round, steps, slices):
            inner = b"".join(_code(one, numbers, begin, counter) for one in steps)
            rounds = address(round) + _LOAD_LONG
            goes_on = rounds + _pushed(trips) + _LOAD_LONG + b"\x53" + address(go) + _LOAD_BYTE + b"\x71"
            if slices is not None:  # a round more than there is room for is refused before it begins
                inner = _refused_unless(rounds + _pushed_long(slices) + b"\x53") + inner
            counted = address(round) + rounds + _long(1) + b"\x7c\x37\3\0"
            loop = (_LOOP, goes_on, _IF, inner, counted, b"\x0c\1", _END, _END)
            made = b"" if slices is None else _refused_unless(rounds + _pushed_long(slices) + b"\x51")
            return b"".join((address(round) + _long(0) + b"\x37\3\0", *loop, made))


def _refused_unless(condition: bytes) -> bytes:
    """Return the code that ends the run unless an i32 is not 0."""
    return b"".join((condition, b"\x45", _IF, address(ERROR_SLICES), _RETURN, _END))


def _long(value: int) -> bytes:
    return b"\x42" + wasm.signed(value)


def _pushed(operand: Operand) -> bytes:
    """Return the code that puts an operand onto the stack."""
    match operand:
        case Word(place, is_long):
            return address(0) + (b"\x29\3" if is_long else b"\x28\2") + unsigned(place)
        case Moving(first, step, round, last):
            rounds = address(round) + _LOAD_LONG + b"\xa7"
            steps = rounds if last is None else _pushed(last) + rounds + b"\x6b"
            return b"".join((_pushed(first), steps, _pushed(step), b"\x6c\x6a"))
    return address(operand)


def _pushed_long(operand: int | Word) -> bytes:
    return _pushed(operand) if isinstance(operand, Word) else _long(operand)


def _append() -> tuple[bytes, bytes]:
    """Return type and body of ``graft_append`` (`APPEND`); it has no result."""
    target, old, new, blocks, old_bytes, new_bytes = (bytes((0x20, number)) for number in range(6))
    copies = [
        part
        for number, source, size in ((1, old, old_bytes), (2, new, new_bytes))
        for part in (
            target, source, size, b"\xfc\x0a\0\0",
            source, size, b"\x6a\x21", bytes((number,)),
            target, size, b"\x6a\x21\0",
        )
    ]  # fmt: skip
    loop = [b"\x03\x40", *copies, blocks, address(1), b"\x6b\x22\3\x0d\0", _END]
    return _kind((I32,) * 6, ()), b"".join((b"\0", blocks, _IF, *loop, _END, _END))


def _rows() -> tuple[bytes, bytes]:
    """Return type and body of ``graft_rows`` (`ROWS`); it has no result."""
    target, source, rows, size, target_step, source_step = (bytes((0x20, number)) for number in range(6))
    copy = target + source + size + b"\xfc\x0a\0\0"
    moves = target + target_step + b"\x6a\x21\0" + source + source_step + b"\x6a\x21\1"
    loop = (_LOOP, copy, moves, rows, address(1), b"\x6b\x22\2\x0d\0", _END)
    return _kind((I32,) * 6, ()), b"".join((b"\0", rows, _IF, *loop, _END, _END))


def _scratch() -> tuple[bytes, bytes]:
    """Return type and body of ``graft_scratch(context, i64 bytes)``: an address, 0 where memory runs out."""
    old, new = b"\2", b"\3"
    pages = b"\x20" + new + address(16) + b"\x76" + address(1) + b"\x6a"
    body = (
        b"\1\2", bytes((I32,)),
        b"\x23", unsigned(_SCRATCH_POINTER), b"\x22" + old, b"\x20\1\xa7", b"\x6a", address(63), b"\x6a",
        b"\x41\x40\x71", b"\x22" + new, b"\x24", unsigned(_SCRATCH_POINTER),  # old + bytes, up to a multiple of 64
        pages, b"\x3f\0", b"\x4b", _IF,  # more than there are
        pages, b"\x3f\0", b"\x6b", b"\x40\0", b"\x41\x7f", b"\x46", _IF, address(0), _RETURN, _END,
        _END, b"\x20" + old, _END,
    )  # fmt: skip
    return _kind((I32, I64), (I32,)), b"".join(body)


def _failure(which: int) -> tuple[bytes, bytes]:
    """Return type and body of a function that notes its numbers and returns that the kernel failed."""
    count = list(FAILURES.values())[which]
    code = (b"\x20\0", address(which), b"\x36\2\4")
    stores = (b"\x20\0\x20" + bytes((place,)) + b"\x37\3" + unsigned(8 * place) for place in range(1, count + 1))
    return _kind((I32, *(I64,) * count), (I32,)), b"".join((b"\0", *code, *stores, address(ERROR_RUN), _END))
