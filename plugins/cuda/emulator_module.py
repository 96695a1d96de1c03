"""A module that the emulator runs, launch by launch, in this process: the header of a `cuda` module and its image."""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graft.core.tensor_ir.ir import Function
from graft.errors import GraftError, RunError
from graft.plugins.codegen.emit_analysis import FAILURES
from graft.plugins.cuda.image import Extents, FunctionRow, Image, Number, packed, unpacked
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.extents import Extent, Operation, Symbol, evaluate, symbols_of
from graft.runtime.files import write
from graft.runtime.procedure import Call, Procedure, TensorSpec

KIND = "cuda_emulator"
_Values = dict[str, int]
_Shown = int | str | list["_Shown"]
"""A number, a leaf or operation by its name, or an operation with its operands."""


def module_bytes(images: Sequence[Image], rows: Sequence[FunctionRow], functions: Sequence[Function]) -> bytes:
    """Return the module, and before it the types and shapes of what its functions compute."""
    results = {}
    for row, function in zip(rows, functions, strict=True):
        extents = Extents(function.input_buffers, function.output_buffers)
        extents.rows = row.extents
        results[row.name] = [
            [buffer.dtype, [extents.number(extent) for extent in buffer.shape]] for buffer in function.output_buffers
        ]
    head = json.dumps(results).encode()
    return len(head).to_bytes(8, "little") + head + packed(images, rows)


def with_shapes(data: bytes, procedure: Procedure) -> tuple[bytes, Procedure]:
    """Return a module whose functions return what its calls store, and the procedure with calls that can tell them.

    Schedules may know a result as a row of elements. A result may have extents that none of its kernel's operands has:
    then the tensors of the procedure's inputs that have them are given, too, for their shapes.
    """
    size = int.from_bytes(data[:8], "little")
    results = json.loads(data[8 : 8 + size])
    calls = []
    for call in procedure.calls:
        stored = [procedure.tensors[index].shape for index in call.outputs if call.function in results]
        call = replace(call, inputs=(*call.inputs, *_origins(call, stored, procedure)))
        known = _leaves([procedure.tensors[index] for index in call.inputs])
        for number, spec in enumerate(stored):
            shape = [None] if spec is None else [_over(known, extent) for extent in spec]
            if None not in shape:
                results[call.function][number][1] = shape
        calls.append(call)
    head = json.dumps(results).encode()
    return len(head).to_bytes(8, "little") + head + data[8 + size :], replace(procedure, calls=tuple(calls))


def _origins(call: Call, stored: Sequence[Sequence[Extent] | None], procedure: Procedure) -> list[int]:
    """Return the inputs of a procedure whose extents the results of a call have and its operands have not."""
    known = _leaves([procedure.tensors[index] for index in call.inputs])
    found: list[int] = []
    for extent in (extent for shape in stored for extent in shape or ()):
        for symbol in symbols_of(extent):
            origin = next((one for one in procedure.inputs if symbol in (procedure.tensors[one].shape or ())), None)
            if _over(known, extent) is None and symbol not in known and origin is not None:
                found.append(origin)
                known |= {symbol: ""}
    return found


def _leaves(inputs: Sequence[TensorSpec]) -> dict[Extent, str]:
    """Return what the extents of a call's inputs are called."""
    found: dict[Extent, str] = {}
    for number, tensor in enumerate(inputs):
        for axis, extent in enumerate(tensor.shape or ()):
            found.setdefault(extent, f"i{number}.{axis}")
    return found


def _over(known: Mapping[Extent, str], extent: Extent | None) -> _Shown | None:
    """Return an extent over those of the inputs; None where they do not tell it."""
    if isinstance(extent, int):
        return extent
    if extent is None or extent in known:
        return None if extent is None else known[extent]
    if isinstance(extent, Symbol):
        return None
    left, right = _over(known, extent.left), _over(known, extent.right)
    return None if left is None or right is None else [extent.operator, left, right]


def load(
    name: str, data: bytes, constants: Mapping[str, np.ndarray]
) -> dict[str, Callable[[list[np.ndarray | None]], list[np.ndarray]]]:
    """Return the functions of a module."""
    size = int.from_bytes(data[:8], "little")
    results = json.loads(data[8 : 8 + size])
    header, (image,) = unpacked(data[8 + size :])
    library = _opened(image.data)
    return {row["name"]: _function(row, results[row["name"]], library) for row in header["functions"]}


def _opened(data: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="graft-") as folder:
        path = Path(folder) / "kernels.so"
        write(path, data, "the kernels for the emulator")
        library = ctypes.CDLL(str(path))
    library.graft_emulator_error.restype = ctypes.c_char_p
    return library


def _function(
    row: Mapping[str, Any], results: Sequence[Any], library: ctypes.CDLL
) -> Callable[[list[np.ndarray | None]], list[np.ndarray]]:
    def run(inputs: list[np.ndarray | None]) -> list[np.ndarray]:
        values: _Values = {}
        _bind(values, "i", inputs)
        _compute(values, row["extents"])
        outputs = [np.zeros([_number(one, values) for one in shape], numpy_dtype(dtype)) for dtype, shape in results]
        _bind(values, "o", outputs)
        _compute(values, row["extents"])
        workspaces = [np.full(max(1, _number(one, values)), 0xFF, np.uint8) for one in row["workspaces"]]
        report = np.zeros(8, np.int64)
        memory: dict[str, Sequence[Any]] = {
            "input": inputs, "output": outputs, "workspace": workspaces, "report": [report],
        }  # fmt: skip
        for launch in row["launches"]:
            _launch(launch, memory, values, library)
            if report[0]:
                raise RunError(f"kernel '{launch['kernel']}' (node '{launch['node']}'): {said_of(report.tolist())}")
        return outputs

    return run


def _launch(
    launch: Mapping[str, Any], memory: Mapping[str, Sequence[Any]], values: _Values, library: ctypes.CDLL
) -> None:
    grid = (ctypes.c_int64 * 3)(*(_number(one, values) for one in launch["grid"]))
    if 0 in grid:
        return
    given: list[Any] = []
    for argument in launch["args"]:
        ((kind, number), *_) = argument.items()
        given.append(
            ctypes.c_int32(_number(number, values))
            if kind == "extent"
            else ctypes.c_void_p(memory[kind][number].ctypes.data)
        )
    pointers = (ctypes.c_void_p * max(1, len(given)))(*(ctypes.addressof(one) for one in given))
    getattr(library, launch["kernel"])(grid, (ctypes.c_int64 * 3)(*launch["block"]), pointers)
    said = library.graft_emulator_error()
    if said is not None:
        raise GraftError(said.decode())


def said_of(words: Sequence[int]) -> str:
    """Return what a kernel reports."""
    text = list(FAILURES.values())[words[0] - 1].replace("%lld", "%d")
    return text % tuple(words[1 : 1 + text.count("%d")])


def _bind(values: _Values, letter: str, arrays: Sequence[np.ndarray | None]) -> None:
    for number, array in enumerate(arrays):
        for axis, extent in enumerate(() if array is None else array.shape):
            values[f"{letter}{number}.{axis}"] = extent


def _compute(values: _Values, rows: Sequence[Any]) -> None:
    """Compute what is known of the table of extents."""
    for number, row in enumerate(rows):
        with suppress(KeyError):
            values[f"e{number}"] = _number(row, values)


def _number(number: Number | list[Any], values: _Values) -> int:
    if not isinstance(number, list):
        return number if isinstance(number, int) else values[number]
    operator, left, right = number
    return evaluate(Operation(operator, _number(left, values), _number(right, values)), {})
