"""Tables of a FlatBuffers file, read without a schema: a field is a number, as schemas count them from 0.

Every offset is checked, for files may be damaged; the package `flatbuffers` reads beside them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


class DamagedError(Exception):
    """An offset leads out of the file, or text is none."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table at a position of a file; fields that it does not have are the defaults of their types."""

    data: bytes
    position: int

    @classmethod
    def root(cls, data: bytes, identifier: str) -> Table | None:
        """Return the root table of a file, None if the file does not say that it is of a kind."""
        return cls(data, _number(data, 0, "I")) if data[4:8] == identifier.encode() else None

    def number(self, field: int, kind: str, default: float = 0) -> float:
        """Return a number of a type of `struct`."""
        place = self._place(field)
        return default if place is None else _number(self.data, place, kind)

    def text(self, field: int) -> str:
        """Return a text; raise DamagedError where it is none."""
        try:
            return self.raw(field).decode()
        except UnicodeDecodeError as error:
            raise DamagedError from error

    def raw(self, field: int) -> bytes:
        """Return the bytes of a vector of bytes."""
        return self._vector(field, 1)

    def integers(self, field: int) -> tuple[int, ...]:
        """Return a vector of int64."""
        return tuple(number for (number,) in struct.iter_unpack("<q", self._vector(field, 8)))

    def table(self, field: int) -> Table | None:
        """Return a table inside of this one."""
        place = self._place(field)
        return None if place is None else self._at(place)

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables."""
        count = len(self._vector(field, 4)) // 4
        place = self._place(field)
        if place is None:
            return []
        start = place + _number(self.data, place, "I") + 4
        return [self._at(start + 4 * number) for number in range(count)]

    def _at(self, place: int) -> Table:
        return Table(self.data, place + _number(self.data, place, "I"))

    def _place(self, field: int) -> int | None:
        """Return where a field is, as the table of offsets says that stands in front of many tables."""
        offsets = self.position - _number(self.data, self.position, "i")
        entry = 4 + 2 * field
        offset = _number(self.data, offsets + entry, "H") if entry < _number(self.data, offsets, "H") else 0
        return self.position + offset if offset else None

    def _vector(self, field: int, size: int) -> bytes:
        place = self._place(field)
        if place is None:
            return b""
        start = place + _number(self.data, place, "I")
        end = start + 4 + size * _number(self.data, start, "I")
        if end > len(self.data):
            raise DamagedError
        return self.data[start + 4 : end]


def _number(data: bytes, place: int, kind: str) -> int:
    if not 0 <= place <= len(data) - struct.calcsize(f"<{kind}"):
        raise DamagedError
    (number,) = struct.unpack_from(f"<{kind}", data, place)
    return number  # type: ignore[no-any-return]
