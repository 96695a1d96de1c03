"""Small programs for tests of the runtime, whose functions are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graft.runtime.loaders import PythonLoader
from graft.runtime.procedure import Call, Module, Procedure, ProgramDescription, TensorSpec
from graft.runtime.program import Program

Function = Callable[[list[Any]], Any]
KIND = "test"


def tensor(name: str, dtype: str, shape: Sequence[int] | None, storage: str, **rest: Any) -> TensorSpec:
    return TensorSpec(name, dtype, None if shape is None else tuple(shape), storage, **rest)  # type: ignore[arg-type]


def loader(functions: Mapping[str, Function]) -> PythonLoader:
    return PythonLoader(KIND, lambda name, data, constants: functions)


def call(function: str, inputs: Sequence[int], outputs: Sequence[int]) -> Call:
    return Call("call", tuple(inputs), tuple(outputs), module=0, function=function, origin=(f"node_{function}",))


def describe(
    procedures: Procedure | Sequence[Procedure],
    functions: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    **module: Any,
) -> ProgramDescription:
    """Return a program of one module of kind ``test`` that has these functions."""
    many = (procedures,) if isinstance(procedures, Procedure) else tuple(procedures)
    return ProgramDescription(many, (Module("m", KIND, tuple(functions), b"", **module),), constants or {})


def elementwise(
    function: Function,
    inputs: Sequence[tuple[str, str, Sequence[int] | None]],
    output: tuple[str, Sequence[int] | None],
) -> Program:
    """Return y = function(inputs), in one call."""
    count = len(inputs)
    procedure = Procedure(
        "main",
        (
            *(tensor(name, dtype, shape, "input", index=i) for i, (name, dtype, shape) in enumerate(inputs)),
            tensor("y", *output, "output", index=0),
        ),
        tuple(range(count)),
        (count,),
        (call("f", range(count), [count]),),
    )
    return Program.from_description(describe(procedure, ["f"]), threads=1, loaders=[loader({"f": function})])
