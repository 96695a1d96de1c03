"""The extents of a procedure as its manifest holds them: each distinct operation once, in a table.

A number is a JSON integer, symbol number n is ``"s<n>"``, operation number n is ``"e<n>"``; the operands of an
operation are such dimensions, of earlier entries only. So the native runtime evaluates the table in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graft.runtime.extents import Extent, Operation, Symbol

MAXIMUM_OPERATIONS = 4096
"""How many operations an extent may have, written out; beyond it a table could hide more than anyone can evaluate."""
MAXIMUM_NESTING = 256
"""How deep they may be nested."""

Dimension = int | str
Row = tuple[str, Dimension, Dimension]
_OPERATORS = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max"})


class ExtentWriter:
    """Gives extents their dimensions, and collects the rows of the operations on the way."""

    def __init__(self, symbols: Iterable[str]) -> None:
        self._symbols = {name: number for number, name in enumerate(symbols)}
        self._dimensions: dict[Operation, Dimension] = {}
        self.rows: list[Row] = []

    def dimension(self, extent: Extent) -> Dimension:
        """Return the dimension of an extent; its symbols are among those of the procedure."""
        match extent:
            case Symbol(name):
                assert name in self._symbols, f"symbol '{name}' is not among those of its procedure"
                return f"s{self._symbols[name]}"
            case Operation(operator, left, right):
                if extent not in self._dimensions:
                    row = (operator, self.dimension(left), self.dimension(right))
                    self._dimensions[extent] = f"e{len(self.rows)}"
                    self.rows.append(row)
                return self._dimensions[extent]
            case _:
                return extent

    def shape(self, shape: Sequence[Extent] | None) -> list[Dimension] | None:
        """Return the dimensions of a shape."""
        return None if shape is None else [self.dimension(extent) for extent in shape]


class ExtentReader:
    """Gives dimensions their extents.

    Raises ValueError for a name, a row or a dimension that is none, and for extents beyond what a table may hold.
    """

    def __init__(self, symbols: Iterable[str], rows: Iterable[Sequence[Dimension]]) -> None:
        self._symbols = [Symbol(name) for name in symbols]
        if not all(isinstance(symbol.name, str) for symbol in self._symbols):
            raise ValueError("the name of a symbol is not a text")
        self._operations: list[Operation] = []
        self._sizes: list[tuple[int, int]] = []  # operations and nesting of each, written out
        for row in rows:
            self._add(row)

    def _add(self, row: Sequence[Dimension]) -> None:
        operator, *operands = row
        if operator not in _OPERATORS or len(operands) != 2:
            raise ValueError(f"entry {len(self._operations)} of 'extents' is no operation on two extents")
        sizes = [self._size(operand) for operand in operands]
        size = 1 + sum(operations for operations, _ in sizes), 1 + max(nesting for _, nesting in sizes)
        if size[0] > MAXIMUM_OPERATIONS or size[1] > MAXIMUM_NESTING:
            raise ValueError(
                f"entry {len(self._operations)} of 'extents' has more than {MAXIMUM_OPERATIONS} operations, "
                f"or is nested more than {MAXIMUM_NESTING} deep"
            )
        left, right = map(self.extent, operands)
        self._operations.append(Operation(operator, left, right))  # type: ignore[arg-type]  # checked above
        self._sizes.append(size)

    def _size(self, dimension: Dimension) -> tuple[int, int]:
        extent = self.extent(dimension)
        return self._sizes[int(str(dimension)[1:])] if isinstance(extent, Operation) else (0, 0)

    def extent(self, dimension: Dimension) -> Extent:
        """Return the extent of a dimension; raise ValueError where it is neither a number nor a row."""
        if isinstance(dimension, int) and not isinstance(dimension, bool):
            return dimension
        entries: dict[str, Sequence[Extent]] = {"s": self._symbols, "e": self._operations}
        kind, number = str(dimension)[:1], str(dimension)[1:]
        found = entries.get(kind, ())
        if not (number.isascii() and number.isdecimal() and int(number) < len(found)):
            raise ValueError(f"{dimension!r} is neither a number nor an earlier symbol or extent")
        return found[int(number)]

    def shape(self, shape: Sequence[Dimension] | None) -> tuple[Extent, ...] | None:
        """Return the extents of a shape."""
        return None if shape is None else tuple(self.extent(dimension) for dimension in shape)
