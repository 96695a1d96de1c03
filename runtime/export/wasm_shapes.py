"""Shapes that vary in a WebAssembly module: words of memory that the loader writes for each binding of the symbols.

The module reads addresses and extents from words. The loader evaluates the extents, plans the memory of tensors that
have no place yet (*rooms*), and writes the words; it does so when shapes change, and never else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from graft.errors import CompileError
from graft.runtime.dtypes import element_type
from graft.runtime.export.wasm_link import Linker, Operand, Word
from graft.runtime.extent_table import Dimension, ExtentWriter
from graft.runtime.extents import Extent, Operation
from graft.runtime.procedure import Procedure, TensorSpec

OTHERWISE = "export a C project, whose caller has room for slices that a loop counts, or a library"
"""What takes dimensions that depend on data."""


@dataclass(slots=True)
class Room:
    """Memory of a tensor, or of several that take turns: a size, and the first and the last step that use it."""

    bytes: Dimension
    first: int
    last: int


@dataclass(slots=True)
class Bindings:
    """What the loader does when symbols are bound; `graft.runtime.export.wasm` writes it into the loader's plan."""

    procedure: Procedure
    linker: Linker
    rooms: list[Room] = field(default_factory=list)
    addresses: list[tuple[int, int, int]] = field(default_factory=list)
    """Words that hold an address: where each is, the room, and how far behind its beginning."""
    numbers: list[tuple[int, Dimension, bool]] = field(default_factory=list)
    """Words that hold an extent: where each is, the extent, and whether it has 64 bits."""
    writer: ExtentWriter = field(init=False)
    free: Word = field(init=False)
    """The word with the address behind all rooms."""
    _room_of: dict[int, int] = field(default_factory=dict)
    _words: dict[tuple[object, ...], Word] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for symbol in self.procedure.symbols:
            bound_by = self.procedure.tensors[symbol.tensor]
            if bound_by.storage != "input":
                raise CompileError(
                    f"the program cannot be one WebAssembly module: dimension '{symbol.name}' is known only when "
                    f"'{bound_by.name}' is computed; only shapes that follow from those of inputs have a place; "
                    f"{OTHERWISE}",
                    dimension=symbol.name,
                )
        self.writer = ExtentWriter(symbol.name for symbol in self.procedure.symbols)
        self.free = Word(self.linker.place(4, 4))
        self._make_rooms()

    # ---- Words ----

    def address(self, tensor: int, offset: int = 0) -> Word:
        """Return the word with the address of a tensor that has a room, or of a place in it."""
        return self._address(self._room_of[tensor], offset)

    def local(self, size: Extent, step: int) -> Word:
        """Return the word with the address of so many bytes that one step of the program has."""
        self.rooms.append(Room(self.writer.dimension(size), step, step))
        return self._address(len(self.rooms) - 1, 0)

    def displaced(self, word: Word, offset: int) -> Word:
        """Return the word with the address so far behind that of another."""
        room, first = next((room, first) for at, room, first in self.addresses if at == word.address)
        return self._address(room, first + offset)

    def _address(self, room: int, offset: int) -> Word:
        key = ("address", room, offset)
        if key not in self._words:
            self._words[key] = Word(self.linker.place(4, 4))
            self.addresses.append((self._words[key].address, room, offset))
        return self._words[key]

    def number(self, extent: Extent, is_long: bool) -> Word:
        """Return the word with the value of an extent."""
        dimension = self.writer.dimension(extent)
        key = (dimension, is_long)
        if key not in self._words:
            size = 8 if is_long else 4
            self._words[key] = Word(self.linker.place(size, size), is_long)
            self.numbers.append((self._words[key].address, dimension, is_long))
        return self._words[key]

    def size(self, shape: Sequence[Extent], element_bytes: int = 1) -> Operand:
        """Return the product of some extents and a number: an i32, or the word with it."""
        total = product(shape, element_bytes)
        return total if isinstance(total, int) else self.number(total, is_long=False)

    def stride(self, tensor: TensorSpec, axis: int) -> Word:
        """Return the word with the elements from one row of an axis to the next."""
        return self.number(product((tensor.shape or ())[axis + 1 :]), is_long=True)

    def values(self, tensor: TensorSpec) -> int:
        """Return the address of a tensor of extents, which the loader fills."""
        is_long = tensor.dtype == "int64"
        size = 8 if is_long else 4
        begin = self.linker.place(size * len(tensor.values), size)
        for place, extent in enumerate(tensor.values):
            self.numbers.append((begin + size * place, self.writer.dimension(extent), is_long))
        return begin

    # ---- Rooms ----

    def has_room(self, tensor: int) -> bool:
        """Whether the loader plans where a tensor lies."""
        return tensor in self._room_of

    def _make_rooms(self) -> None:
        """Inputs and outputs have theirs as long as the program runs, others from what writes to what reads last."""
        procedure = self.procedure
        ends = len(procedure.calls)
        places: dict[tuple[str, int], int] = {}
        for number, tensor in enumerate(procedure.tensors):
            if tensor.storage in ("input", "output"):
                key = (tensor.storage, tensor.index)
                if key not in places:
                    places[key] = self._add_room(tensor, 0, ends)
                self._room_of[number] = places[key]
        if not procedure.arena_bytes:
            self._share_arena()

    def _share_arena(self) -> None:
        last = {number: len(self.procedure.calls) for number in map(self._root, self.procedure.outputs)}
        for step, call in enumerate(self.procedure.calls):
            for number in (*call.inputs, *call.outputs, *(one for row in call.arguments for one in row)):
                last[self._root(number)] = max(step, last.get(self._root(number), 0))
        for step, call in enumerate(self.procedure.calls):
            written = [(number, self._root(number)) for number in call.outputs if number >= 0]
            for number, root in written:
                tensor = self.procedure.tensors[root]
                if tensor.storage != "arena" or root in self._room_of:
                    continue
                shared = next(self._dying(step, number, last), None) if root == number else None
                if shared is None:
                    self._room_of[root] = self._add_room(tensor, step, last[root])
                else:
                    self._room_of[root] = shared
                    self.rooms[shared].last = last[root]

    def _dying(self, step: int, output: int, last: dict[int, int]) -> Iterator[int]:
        """Yield the rooms of inputs that a call uses last, and whose place its output may take."""
        call = self.procedure.calls[step]
        for position in call.in_place if len(call.outputs) == 1 else ():
            number = call.inputs[position]
            seen, root = self.procedure.tensors[number], self._root(number)
            room = self._room_of.get(root)
            is_arena = self.procedure.tensors[root].storage == "arena" and not seen.offset
            if room is None or not is_arena or last[root] != step or self.rooms[room].last != step:
                continue
            if self.rooms[room].bytes == self._bytes(self.procedure.tensors[output]) == self._bytes(seen):
                yield room

    def _root(self, number: int) -> int:
        if number < 0 or self.procedure.tensors[number].storage != "view":
            return number
        return self.procedure.tensors[number].of

    def _add_room(self, tensor: TensorSpec, first: int, last: int) -> int:
        self.rooms.append(Room(self._bytes(tensor), first, last))
        return len(self.rooms) - 1

    def _bytes(self, tensor: TensorSpec) -> Dimension:
        return self.writer.dimension(product(tensor.shape or (), element_type(tensor.dtype).bytes))


def product(extents: Sequence[Extent], factor: int = 1) -> Extent:
    """Return the product of extents and a number; numbers are multiplied here."""
    total: Extent | None = None
    for extent in extents:
        if isinstance(extent, int):
            factor *= extent
        else:
            total = extent if total is None else Operation("mul", total, extent)
    if total is None:
        return factor
    return total if factor == 1 else Operation("mul", total, factor)
