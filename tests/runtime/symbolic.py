"""Programs of symbolic shapes for tests: symbols, and programs of tensors in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graft.runtime.extents import ExtentEquation, Operation, Symbol
from graft.runtime.procedure import AxisReason, Call, ExtentBound, Procedure, SymbolSpec, TensorSpec
from graft.runtime.program import Program

from .programs import Function, describe, loader

BATCH, SEQ, PAST, FOUND = (Symbol(name) for name in ("batch", "seq", "past", "found"))
DOUBLE = Operation("mul", 2, SEQ)
NEXT = Operation("add", SEQ, 1)


def program(
    tensors: Sequence[TensorSpec],
    calls: Sequence[Call],
    symbols: Sequence[SymbolSpec],
    functions: dict[str, Function],
    bodies: Sequence[Procedure] = (),
    bounds: Sequence[ExtentBound] = (),
    equations: Sequence[ExtentEquation] = (),
    reasons: Sequence[AxisReason] = (),
) -> Program:
    """Return a program of these; inputs and outputs are the tensors of those storages, in order."""
    main = procedure("main", tensors, calls, symbols)
    main = replace(main, bounds=tuple(bounds), equations=tuple(equations), reasons=tuple(reasons))
    return Program.from_description(describe((main, *bodies), list(functions)), threads=1, loaders=[loader(functions)])


def procedure(
    name: str, tensors: Sequence[TensorSpec], calls: Sequence[Call], symbols: Sequence[SymbolSpec]
) -> Procedure:
    places = {kind: tuple(i for i, one in enumerate(tensors) if one.storage == kind) for kind in ("input", "output")}
    return Procedure(name, tuple(tensors), places["input"], places["output"], tuple(calls), symbols=tuple(symbols))


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)
