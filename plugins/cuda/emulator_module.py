"""A module that the emulator runs, launch by launch, in this process: the header of a `cuda` module and its image."""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from graft.core.tensor_ir.ir import Function
from graft.errors import GraftError, RunError
from graft.plugins.codegen.emit_analysis import FAILURES
from graft.plugins.cuda.image import Extents, FunctionRow, Image, Number, packed, unpacked
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.extents import Operation, evaluate
from graft.runtime.system.files import write

KIND = "cuda_emulator"
_Values = dict[str, int]


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


def load(
    name: str, data: bytes, constants: Mapping[str, np.ndarray]
) -> dict[str, Callable[[list[np.ndarray | None]], list[np.ndarray]]]:
    """Return the functions of a module."""
    size = int.from_bytes(data[:8], "little")
    results = json.loads(data[8 : 8 + size])
    header, (image,) = unpacked(data[8 + size :])
    library = _opened(image.data)
    return {row["name"]: _Function(row, results[row["name"]], library) for row in header["functions"]}


def _opened(data: bytes) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="graft-") as folder:
        path = Path(folder) / "kernels.so"
        write(path, data, "the kernels for the emulator")
        library = ctypes.CDLL(str(path))
    library.graft_emulator_error.restype = ctypes.c_char_p
    return library


@dataclass(frozen=True, slots=True)
class _Function:
    """The launches of one function, in turn."""

    row: Mapping[str, Any]
    results: Sequence[Any]
    library: ctypes.CDLL
    takes_shapes: ClassVar[bool] = True
    """The runtime says which shapes its results have: schedules may know one as a row of elements."""

    def __call__(
        self, inputs: list[np.ndarray | None], shapes: Sequence[Sequence[int] | None] = ()
    ) -> list[np.ndarray]:
        row, values = self.row, _Values()
        _bind(values, "i", inputs)
        _compute(values, row["extents"])
        outputs = [
            np.zeros([_number(one, values) for one in shape] if known is None else known, numpy_dtype(dtype))
            for (dtype, shape), known in zip_longest(self.results, shapes)
        ]
        _bind(values, "o", outputs)
        _compute(values, row["extents"])
        workspaces = [np.full(max(1, _number(one, values)), 0xFF, np.uint8) for one in row["workspaces"]]
        report = np.zeros(8, np.int64)
        memory: dict[str, Sequence[Any]] = {
            "input": inputs, "output": outputs, "workspace": workspaces, "report": [report],
        }  # fmt: skip
        for launch in row["launches"]:
            _launch(launch, memory, values, self.library)
            if report[0]:
                raise RunError(f"kernel '{launch['kernel']}' (node '{launch['node']}'): {said_of(report.tolist())}")
        return outputs


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
