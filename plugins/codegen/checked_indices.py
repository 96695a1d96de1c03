"""Which index inputs of a region are checked, and by which functions: one for all checks that are alike."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.machine.machine import Machine
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.index_bounds import IndexBound
from graft.core.operators.definition.table import Trait
from graft.core.operators.index_check import DTYPES, index_bounds, unexpanded
from graft.core.schedule.loops.index_check import index_check
from graft.core.tensor_ir import ir as tensor_ir


@dataclass(frozen=True, slots=True)
class Check:
    """The check of one value by the function ``name``, which ``is_new`` if no check before had it.

    ``sources``, by the number of an input, say a range that varies by their extents.
    """

    value: ValueView
    sources: Mapping[int, ValueView]
    bounds: Sequence[IndexBound]
    name: str
    structure: str
    is_new: bool
    machine: Machine
    node: str = ""
    """The only node that it is for, "" where nodes share it."""

    def function(self) -> tensor_ir.Function:
        """Return the function."""
        return replace(self._function(), origin=(self.node,)) if self.node else self._function()

    def _function(self) -> tensor_ir.Function:
        read = {number: (source.dtype, source.rank or 0) for number, source in self.sources.items()}
        extents = [tensor_ir.Variable(f"extent{n}") if one is None else one for n, one in enumerate(_known(self.value))]
        return index_check(self.name, self.value.dtype, extents, self.bounds, read, self.machine)


def _known(value: ValueView) -> tuple[int | None, ...]:
    """Return the extents of a value, None where one is known only when a program runs."""
    return tuple(one if isinstance(one, int) else None for one in value.shape or (None,) * (value.rank or 0))


def _before_moves(value: ValueView, stored: Collection[ir.Value]) -> ValueView:
    """Return the first of the stored values of which views and Transposes make this one, itself if there is none."""
    found, one = value, value
    while (node := one.producer) is not None and (node.permutation is not None or OPERATORS.has(node, Trait.VIEW)):
        source = node.input(0)
        if source is None:
            break
        one = source
        found = one if one.value in stored else found
    return found


@dataclass(slots=True)
class IndexChecks:
    """The checks of a region, whose functions begin with ``prefix``.

    On a device each node has its own checks, for the device tells later, and by the function alone, what was wrong.
    """

    prefix: str
    machine: Machine
    _names: dict[str, str] = field(default_factory=dict)
    """Functions by what they check."""
    _seen: set[tuple[ir.Value, tuple[IndexBound, ...], tuple[ValueView, ...]]] = field(default_factory=set)

    def of(self, node: NodeView, stored: Collection[ir.Value] = ()) -> Iterator[Check]:
        """Yield the checks of a node's index inputs: not of constants in range, nor of what is checked already.

        ``stored`` are in memory: of those that have the same elements in another order or shape, the first is checked.
        """
        by_input: dict[int, list[IndexBound]] = {}
        for bound in index_bounds(node, varying=True):
            by_input.setdefault(bound.input, []).append(bound)
        for number, bounds in by_input.items():
            value = node.input(number)
            assert value is not None, node.where
            if all(bound.column is None for bound in bounds):
                value = _before_moves(unexpanded(value), stored)
            numbers = sorted({one for bound in bounds for one in bound.sources})
            sources = {one: source for one in numbers if (source := node.input(one)) is not None}
            key, array = (value.value, tuple(bounds), tuple(sources.values())), value.constant
            known = array is not None and not sources and all(bound.fault(array) is None for bound in bounds)
            if known or key in self._seen or value.dtype not in DTYPES or 0 in (value.static_shape or ()):
                continue
            self._seen.add(key)
            described = [(one.axis, one.extent, one.low, one.high, one.column) for one in bounds]
            read = [(one, source.dtype, source.rank) for one, source in sources.items()]
            own = node.name if self.machine.is_device else ""
            structure = repr(("index-check", value.dtype, _known(value), described, *read, *filter(None, [own])))
            is_new = structure not in self._names
            name = self._names.setdefault(structure, f"{self.prefix}_indices_{len(self._names)}")
            yield Check(value, sources, bounds, name, structure, is_new, self.machine, own)
