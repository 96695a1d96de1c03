"""Where the symbols of a procedure get their values: the first axis whose extent is the symbol alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graft.runtime.extents import Extent, ExtentEquation, Operation, Symbol, symbols_of
from graft.runtime.procedure import Call, ExtentBound, SymbolSpec, TensorSpec

Ranges = Mapping[Extent, tuple[int, int | None]]
"""The least and the greatest (None: open) by symbol or operation on symbols."""


class Unbound(AssertionError):
    """A procedure with a symbol that nothing gives a value: a fault of who made it, or damage to an artifact."""


def bound_symbols(
    tensors: Sequence[TensorSpec], inputs: Sequence[int], calls: Sequence[Call], ranges: Ranges
) -> tuple[SymbolSpec, ...]:
    """Return the symbols that the tensors' shapes and values use, in the order in which they are bound.

    Inputs bind before the results of calls; a symbol without a range may be any natural number. Every symbol must have
    a place that binds it; raises Unbound.
    """
    used = {symbol.name: None for tensor in tensors for symbol in _used(tensor)}
    found: dict[str, SymbolSpec] = {}
    for tensor, axis, name in _places(tensors, inputs, calls):
        if name in used and name not in found:
            low, high = ranges.get(Symbol(name), (0, None))
            found[name] = SymbolSpec(name, low, high, tensor, axis)
    unbound = sorted(used.keys() - found.keys())
    if unbound:
        raise Unbound(f"nothing binds the symbols {unbound}: no axis of an input or result is one of them alone")
    return tuple(found.values())


def bounds_of(symbols: Sequence[SymbolSpec], ranges: Ranges) -> tuple[ExtentBound, ...]:
    """Return what operations on a procedure's symbols may be."""
    known = {symbol.name for symbol in symbols}
    return tuple(
        ExtentBound(extent, low, high)
        for extent, (low, high) in ranges.items()
        if isinstance(extent, Operation) and {symbol.name for symbol in symbols_of(extent)} <= known
    )


def checkable(equations: Sequence[ExtentEquation], symbols: Sequence[SymbolSpec]) -> tuple[ExtentEquation, ...]:
    """Return the equations over a procedure's symbols, those of the same extents once."""
    known = {symbol.name for symbol in symbols}
    found: dict[tuple[object, ...], ExtentEquation] = {}
    for one in equations:
        if {symbol.name for side in (one.left, one.right) for symbol in symbols_of(side)} <= known:
            found.setdefault((one.kind, one.left, one.right), one)
    return tuple(found.values())


def _used(tensor: TensorSpec) -> Iterator[Symbol]:
    for extent in (*(tensor.shape or ()), *tensor.values):
        yield from symbols_of(extent)


def _places(
    tensors: Sequence[TensorSpec], inputs: Sequence[int], calls: Sequence[Call]
) -> Iterator[tuple[int, int, str]]:
    results = (index for call in calls for index in call.outputs if index >= 0)
    written = [index for index in results if tensors[index].storage in ("dynamic", "output")]
    for index in (*inputs, *written):
        for axis, extent in enumerate(tensors[index].shape or ()):
            if isinstance(extent, Symbol):
                yield index, axis, extent.name
