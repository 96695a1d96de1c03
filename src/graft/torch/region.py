"""A compiled part of an FX graph: called with PyTorch's tensors, it writes into tensors that PyTorch allocates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from graft.runtime.program import Program
from graft.torch.conversion import Converted, fake, is_dense, memory_order

EXCHANGE = torch.Tensor.__dlpack_c_exchange_api__
"""DLPack's table of functions in C: a tensor's address and shape without a capsule."""


ALLOCATE = torch._C._dynamo.guards._empty_strided_cpu
"""What inductor allocates with: a third of the time of `torch.empty`, which looks for modes and devices first."""

Preparations = list[tuple[int, Callable[[torch.Tensor], torch.Tensor]]]
Allocation = Callable[[Sequence[Any]], tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]]


@lru_cache(maxsize=4096)
def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return tuple(math.prod(max(one, 1) for one in shape[axis + 1 :]) for axis in range(len(shape)))


class Region:
    """A program with the way of PyTorch's tensors into it and out of it.

    It takes tensors in the order of `Converted.inputs`, then the numbers of its symbols. What fails while it runs, such
    as an index beyond its axis, raises RunError with the operator's place.
    """

    def __init__(self, program: Program, parts: Converted) -> None:
        self.program = program
        self.parts = parts
        self.__name__ = "graft_region"
        inputs, outputs = ([fake(one) for one in nodes] for nodes in (parts.inputs, parts.outputs))
        make = _allocation(inputs, [str(one) for one in parts.symbols], outputs)
        carriers = [_number if one in parts.numbers else _extent for one in parts.symbols]
        self.run = _runner(program._native.run_exchanged, make, _preparations(inputs), carriers)
        """Takes a tuple of what a call takes, and returns what a call returns."""

    def __call__(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        """Return the outputs, each a tensor of its own with the strides that PyTorch expects."""
        return self.run(arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Region:
        return self  # a program has no state that calls change

    def __reduce__(self) -> Any:
        raise TypeError("a compiled part is not pickled; pickle the module, and compile it where it is loaded")


def _extent(value: int) -> torch.Tensor:
    return torch.empty((value, 0), dtype=torch.uint8)


def _number(value: int) -> torch.Tensor:
    return torch.tensor([value])


def _runner(
    run: Callable[..., None], make: Allocation, preparations: Preparations,
    carriers: Sequence[Callable[[int], torch.Tensor]],
) -> Callable[[tuple[Any, ...]], tuple[torch.Tensor, ...]]:  # fmt: skip
    """Return what runs a program on tensors that may have to be prepared, and on the carriers of symbols."""

    def plain(arguments: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        results, written = make(arguments)
        run(EXCHANGE, arguments, written)
        return results

    def prepared(arguments: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        tensors = list(arguments)
        for place, carrier in enumerate(carriers, len(arguments) - len(carriers)):
            tensors[place] = carrier(arguments[place])
        for place, prepare in preparations:
            tensors[place] = prepare(tensors[place])
        results, written = make(arguments)
        run(EXCHANGE, tuple(tensors), written)
        return results

    return prepared if preparations or carriers else plain


def _preparations(values: Sequence[torch.Tensor]) -> Preparations:
    """Return what brings tensors into the order of their memory, by place, for those that are not there."""
    found: Preparations = []
    for place, value in enumerate(values):
        if value.is_neg():
            found.append((place, torch.resolve_neg))
        if not is_dense(value):
            found.append((place, torch.Tensor.contiguous))
        elif (order := memory_order(value)) != list(range(value.dim())):
            found.append((place, lambda one, order=order: one.permute(order)))  # type: ignore[misc]
    return found


def _allocation(inputs: Sequence[torch.Tensor], symbols: Sequence[str], outputs: Sequence[torch.Tensor]) -> Allocation:
    """Return what makes the outputs for the arguments of a call, and the contiguous views of them that are written."""
    orders = [memory_order(value) for value in outputs]
    kinds = [value.dtype for value in outputs]
    backs = [None if order == sorted(order) else sorted(range(len(order)), key=order.__getitem__) for order in orders]
    shapes_of = _shapes(
        inputs, symbols, [[value.shape[axis] for axis in order] for value, order in zip(outputs, orders, strict=True)]
    )
    is_plain = all(back is None for back in backs)

    def make(arguments: Sequence[Any]) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        shapes = shapes_of(arguments)
        written = tuple(ALLOCATE(shape, dense_strides(shape), kind) for shape, kind in zip(shapes, kinds, strict=True))
        if is_plain:
            return written, written
        results = tuple(one if back is None else one.permute(back) for one, back in zip(written, backs, strict=True))
        return results, written

    def fixed(arguments: Sequence[Any]) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        written = (*[ALLOCATE(shape, strides, kind) for shape, strides, kind in known],)
        return written, written

    if not is_plain or any(isinstance(one, torch.SymInt) for value in outputs for one in value.shape):
        return make
    known = [(tuple(value.shape), dense_strides(tuple(value.shape)), value.dtype) for value in outputs]
    return fixed


def _shapes(
    inputs: Sequence[torch.Tensor], symbols: Sequence[str], wanted: Sequence[Sequence[Any]]
) -> Callable[[Sequence[Any]], Sequence[Sequence[int]]]:
    """Return what computes shapes from the arguments of a call."""
    if all(isinstance(one, int) for shape in wanted for one in shape):
        fixed = [tuple(shape) for shape in wanted]
        return lambda arguments: fixed
    from torch.utils._sympy.printers import PythonPrinter

    printer = PythonPrinter()
    sources = {name: f"a[{len(inputs) + place}]" for place, name in enumerate(symbols)}
    for place, value in enumerate(inputs):
        for axis, extent in enumerate(value.shape):
            if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol:
                sources.setdefault(str(extent.node.expr), f"a[{place}].shape[{axis}]")
    texts = [
        "(" + "".join(f"{one if isinstance(one, int) else printer.doprint(one.node.expr)}," for one in shape) + ")"
        for shape in wanted
    ]
    names = ", ".join(sources)
    call = f"lambda a: (lambda {names}: [{', '.join(texts)}])({', '.join(sources.values())})"
    found: Callable[[Sequence[Any]], Sequence[Sequence[int]]] = eval(call, {"math": math})  # texts of sympy's printer
    return found
