"""The symbols of one procedure: which are bound, and what the shapes of its tensors are in terms of them.

A procedure knows only the symbols that axes of its inputs, and of the results of its calls, are alone. An extent over
others (of an outer graph, or of a value inside a region) becomes a symbol of the procedure's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from graft.core.affine.expressions import add, names_in, subtract
from graft.core.graph.dimensions import identifier, unique
from graft.core.graph.view import is_packed
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.runtime.extents import Extent, ExtentEquation, Symbol, evaluate
from graft.runtime.procedure import Procedure

TensorShape = tuple[Extent, ...] | None


@dataclass(slots=True)
class ExtentScope:
    """Symbols in the order in which a procedure comes to know them."""

    bound: set[str] = field(default_factory=set)
    own: dict[Extent, Symbol] = field(default_factory=dict)
    """By extent that no bound symbols say, the symbol that stands for it here."""
    taken: set[str] = field(default_factory=set)

    def inputs(self, values: Sequence[ir.Value]) -> list[TensorShape]:
        """Return the shapes of a procedure's inputs, whose axes bind symbols."""
        return [shape for shape, _ in self._bind(values)]

    def results(self, values: Sequence[ir.Value]) -> list[tuple[TensorShape, bool]]:
        """Return the shapes of a call's results, each with whether it is known only when the call is done."""
        return self._bind(values)

    def with_symbols(self, compiled: Procedure) -> Procedure:
        """Return a region's procedure with the symbols that stand for extents here."""
        if not self.own:
            return compiled
        shapes = (one.shape and tuple(self.own.get(extent, extent) for extent in one.shape) for one in compiled.tensors)
        tensors = (replace(one, shape=shape) for one, shape in zip(compiled.tensors, shapes, strict=True))
        return replace(compiled, tensors=tuple(tensors))

    def numbers(self, binding: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers of the procedure's own symbols, where those that they stand for have some."""
        return {
            symbol.name: evaluate(extent, binding)
            for extent, symbol in self.own.items()
            if names_in([extent]) <= binding.keys()
        }

    def equations(self, equations: Sequence[ExtentEquation]) -> list[ExtentEquation]:
        """Return equations in terms of the symbols that are bound here."""
        return [replace(one, left=self._here(one.left), right=self._here(one.right)) for one in equations]

    def _here(self, extent: Extent) -> Extent:
        """Return an extent with the symbols that stand for others here, as far as there are such."""
        if extent in self.own:
            return self.own[extent]
        if names_in([extent]) <= self.bound:
            return extent
        for known, symbol in self.own.items():
            rest = subtract(extent, known)
            if names_in([rest]) <= self.bound:
                return add(rest, symbol)
        return extent

    def _bind(self, values: Sequence[ir.Value]) -> list[tuple[TensorShape, bool]]:
        shapes = [self._bytes(value) if is_packed(value) else dimensions_of(value) for value in values]
        before = set(self.bound)
        alone = (extent for shape in shapes for extent in shape or () if isinstance(extent, Symbol))
        new = {extent.name for extent in alone if extent not in self.own}
        self.taken |= new
        known = before | new
        found: list[tuple[TensorShape, bool]] = []
        for value, shape in zip(values, shapes, strict=True):
            if shape is None:
                found.append((None, True))
                continue
            said = tuple(self._said(value, axis, extent, known) for axis, extent in enumerate(shape))
            found.append((said, bool(names_in(said) - before)))
        self.bound |= known | {name for shape, _ in found for name in names_in(shape or ())}
        return found

    def _bytes(self, value: ir.Value) -> TensorShape:
        """Return the shape of a packed value: one axis, as long as it is found to be."""
        return (Symbol(unique(identifier(f"{value.name}_bytes"), self.taken)),)

    def _said(self, value: ir.Value, axis: int, extent: Extent | None, known: set[str]) -> Extent:
        if extent in self.own:
            return self.own[extent]
        if extent is not None and names_in([extent]) <= known:
            return extent
        symbol = Symbol(unique(identifier(f"{value.name}_{axis}"), self.taken))
        if extent is not None:
            self.own[extent] = symbol
        return symbol
