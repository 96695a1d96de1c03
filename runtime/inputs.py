"""Inputs of a program as a command line gives them, and facts about its outputs: NumPy and the runtime alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from graft.errors import InputError
from graft.runtime.dtypes import dtype_name, numpy_dtype
from graft.runtime.extents import Symbol
from graft.runtime.procedure import ProgramDescription
from graft.runtime.system.files import make_folder, writing
from graft.runtime.system.json_text import parse_json
from graft.runtime.system.numpy_files import read_numpy
from graft.runtime.tensor_info import TensorInfo
from graft.runtime.typical_shapes import Shapes, shape_at, typical_values


class HasInputs(Protocol):
    """What `inputs_of` reads of a program."""

    description: ProgramDescription
    inputs: tuple[TensorInfo, ...]


def inputs_of(
    program: HasInputs, given: Sequence[tuple[str, str]], seed: int, dims: Mapping[str, int] | None = None
) -> dict[str, np.ndarray]:
    """Return an array for every input of the program: those that were given, seeded random ones for the others.

    ``given`` are names with ``@FILE.npy`` or an array in JSON, ``dims`` values of symbols; what these leave open has
    the symbols of the arrays, else small ones. Floats are standard normal, integers and bools 0 or 1. Raises InputError
    for an unreadable file, for an input that is given twice, and for an input of unknown rank that was not given, and
    GraftError for an unknown symbol; names and types are checked by the program.
    """
    dtypes = {one.name: one.dtype for one in program.inputs}
    arrays: dict[str, np.ndarray] = {}
    for name, text in given:
        if name in arrays:
            raise InputError(f"input '{name}' is given twice; give it once", input=name)
        arrays[name] = read_array(name, text, dtypes.get(name))
    generator = np.random.default_rng(seed)
    entry = program.description.procedures[0]
    shapes = {entry.tensors[index].name: entry.tensors[index].shape for index in entry.inputs}
    ranges = {one.name: (one.low, one.high) for one in entry.symbols}
    values = typical_values(shapes, ranges, {**_bound(shapes, arrays), **(dims or {})}, entry.equations)
    for one in program.inputs:
        if one.name not in arrays:
            extents = shapes[one.name]
            shape = None if extents is None else shape_at(extents, values)
            arrays[one.name] = _sample(one.name, one.dtype, shape, generator)
    return arrays


def _bound(shapes: Shapes, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the values of symbols that given arrays have, by the axes that are one alone."""
    values: dict[str, int] = {}
    for name, array in arrays.items():
        for extent, size in zip(shapes.get(name) or (), array.shape, strict=False):
            if isinstance(extent, Symbol):
                values.setdefault(extent.name, size)
    return values


def read_array(name: str, text: str, dtype: str | None) -> np.ndarray:
    """Return the array of ``@FILE.npy`` or ``[1, 2]``; raise InputError if it is neither."""
    try:
        if text.startswith("@"):
            array = read_numpy(text[1:])
            if isinstance(array, dict):
                raise ValueError("it is an .npz archive of several arrays")
            kind = array.dtype if dtype is None or array.dtype.kind != "V" else numpy_dtype(dtype)
            return array.view(kind) if kind.itemsize == array.dtype.itemsize else array  # .npy knows no bfloat16
        return np.array(parse_json(text), None if dtype is None else numpy_dtype(dtype))
    except OSError as error:
        raise InputError(f"input '{name}': cannot read '{text[1:]}': {error.strerror or error}", input=name) from error
    except (ValueError, TypeError, OverflowError) as error:
        what = f"'{text[1:]}' is not a .npy file" if text.startswith("@") else f"{text} is not an array in JSON"
        raise InputError(f"input '{name}': {what}: {error}", input=name) from error


def _sample(name: str, dtype: str, shape: Sequence[int] | None, generator: np.random.Generator) -> np.ndarray:
    if shape is None:
        raise InputError(f"input '{name}' has no known rank; give it with --input {name}=@FILE.npy", input=name)
    kind = numpy_dtype(dtype)
    if kind.kind in "biu":
        return generator.integers(0, 2, shape).astype(kind)
    return np.asarray(generator.standard_normal(shape)).astype(kind)


def facts(arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return name, dtype, shape and range of arrays, as JSON data."""
    rows = []
    for name, array in arrays.items():
        row: dict[str, Any] = {"name": name, "dtype": dtype_name(array.dtype), "shape": list(array.shape)}
        if array.size:
            wide = array.astype("complex128" if array.dtype.kind == "c" else "float64")
            row |= {"min": float(abs(wide).min()) if wide.dtype.kind == "c" else float(wide.min())}
            row |= {"mean": float(abs(wide.mean()) if wide.dtype.kind == "c" else wide.mean())}
            row |= {"max": float(abs(wide).max()) if wide.dtype.kind == "c" else float(wide.max())}
        rows.append(row)
    return rows


def write_arrays(arrays: Mapping[str, np.ndarray], rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Write each array to the folder as .npy, and note the file in its row; raise GraftError if that fails."""
    make_folder(folder, "outputs")
    for number, (row, array) in enumerate(zip(rows, arrays.values(), strict=True)):
        row["file"] = str(folder / f"{file_name(row['name'], number)}.npy")
        with writing(row["file"], "output") as opened:
            np.save(_Stream(opened), array, allow_pickle=False)


class _Stream:
    """A file as NumPy is to see it: in what it knows for one it asks for the position, and a pipe has none."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def file_name(name: str, number: int) -> str:
    """Return a file's name for an output's: those that would leave the folder or name nothing become their number."""
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    return kept if kept.strip("._") else f"output_{number}"
