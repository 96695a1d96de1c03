"""The symbols of a region's graph: which axes of its inputs say them, and what other extents are in terms of them.

A region knows the model's symbols only as far as the shapes of its inputs tell them. An axis that is a symbol alone
binds it. One that is a sum with a symbol of which nothing else is known gives it by subtraction and division:
``2*seq + past`` with ``past`` known. Any other becomes a symbol of the graph's own, ``<input>_<axis>``, which stands
for its extent wherever that appears, alone or with what is known added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from graft.core.affine.expressions import OPERATIONS, add, floordiv, multiply, names_in, substituted, subtract
from graft.core.graph.dimensions import identifier, unique
from graft.errors import ModelError
from graft.plugins.json_graph import GraphSymbol
from graft.runtime.extents import Extent, Operation, Symbol

Shape = Sequence[Extent | None] | None


@dataclass(slots=True)
class GraphSymbols:
    """The symbols of a graph whose inputs have some shapes; `said` gives other extents in terms of them."""

    symbols: list[GraphSymbol] = field(default_factory=list)
    _known: dict[str, Extent] = field(default_factory=dict)
    _own: dict[Extent, Symbol] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Sequence[str], shapes: Sequence[Shape]) -> GraphSymbols:
        """Return the symbols that inputs, by name and shape, bind."""
        found = cls()
        axes = [(place, axis, one) for place, shape in enumerate(shapes) for axis, one in enumerate(shape or ())]
        for place, axis, extent in axes:
            if isinstance(extent, Symbol) and extent.name not in found._known:
                found._bind(extent.name, place, axis)
                found._known[extent.name] = extent
        taken = names_in([extent for _, _, extent in axes])
        for place, axis, extent in axes:
            if isinstance(extent, Operation) and found.said(extent) is None:
                symbol = Symbol(unique(identifier(f"{names[place]}_{axis}"), taken))
                found._bind(symbol.name, place, axis)
                found._solve(extent, symbol)
        return found

    def _bind(self, name: str, place: int, axis: int) -> None:
        self.symbols.append(GraphSymbol(name, place, axis))

    def _solve(self, extent: Extent, symbol: Symbol) -> None:
        """Take a symbol for an extent, and know by it what is the only unknown of a sum."""
        self._own[extent] = symbol
        unknown = sorted(names_in([extent]) - self._known.keys())
        for name in unknown if len(unknown) == 1 else ():
            try:
                rest = substituted(extent, {name: 0})
                factor = subtract(substituted(extent, {name: 1}), rest)
            except ModelError:  # it divides by the unknown, or has too many terms
                continue
            is_linear = isinstance(factor, int) and factor > 0
            if is_linear and add(multiply(factor, Symbol(name)), rest) == extent:
                self._known[name] = floordiv(subtract(symbol, substituted(rest, self._known)), factor)

    def said(self, extent: Extent | None) -> Extent | None:
        """Return an extent in terms of the graph's symbols, None if they do not tell it."""
        if extent is None or isinstance(extent, int):
            return extent
        if extent in self._own:
            return self._own[extent]
        if names_in([extent]) <= self._known.keys():
            return substituted(extent, self._known)
        if isinstance(extent, Operation):
            left, right = self.said(extent.left), self.said(extent.right)
            if left is not None and right is not None:
                try:
                    return OPERATIONS[extent.operator](left, right)
                except ModelError:  # too many terms, or a divisor that is 0
                    return None
        return self._beside_own(extent)

    def _beside_own(self, extent: Extent) -> Extent | None:
        """Return an extent that differs from one that has a symbol of its own by what is known: ``seq//2 + 4``."""
        for own, symbol in self._own.items():
            try:
                rest = subtract(extent, own)
            except ModelError:  # too many terms
                continue
            if names_in([rest]) <= self._known.keys():
                return add(symbol, substituted(rest, self._known))
            if (finer := self._finer(extent, own, symbol)) is not None:
                return finer
        return None

    def _finer(self, extent: Extent, own: Extent, symbol: Symbol) -> Extent | None:
        """Return a quotient of what has a symbol of its own: ``(h + 2)//4`` is ``(h//2 + 1)//2``."""
        match extent, own:
            case (
                Operation("floordiv", whole, int() as divisor),
                Operation("floordiv", part, int() as known),
            ) if divisor % known == 0:
                rest = subtract(whole, part)
                if isinstance(rest, int) and rest % known == 0:
                    return floordiv(add(symbol, rest // known), divisor // known)
        return None

    def shape(self, shape: Shape) -> tuple[Extent | None, ...] | None:
        """Return a shape in terms of the graph's symbols."""
        return None if shape is None else tuple(map(self.said, shape))

    def __iter__(self) -> Iterator[GraphSymbol]:
        return iter(self.symbols)


@dataclass(slots=True)
class ModelSymbols(GraphSymbols):
    """The model's own symbols, for a graph that is not run by itself: every extent is what the model says it is."""

    def said(self, extent: Extent | None) -> Extent | None:
        """Return the extent."""
        return extent
