"""Programs and their inputs, as the verbs that run something take them: an artifact or a model, files or samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import State, is_artifact, names_or_none
from graft.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from graft.runtime.loaders import Loader
    from graft.runtime.program import Program

Shapes = Sequence[tuple[str, tuple[int, ...]]]


def input_argument(text: str) -> tuple[str, str]:
    """Return name and contents of ``x=@x.npy`` or ``x=[1, 2]``."""
    name, separator, contents = text.partition("=")
    if not (separator and name and contents):
        raise click.BadParameter(f"'{text}' is not an input; write NAME=@FILE.npy or NAME=[1, 2]")
    return name, contents


input_option = click.option(
    "--input",
    "given",
    metavar="NAME=@FILE.npy",
    type=input_argument,
    multiple=True,
    help="An input; those not given are random.",
)


def open_program(
    state: State,
    path: Path,
    backends: Sequence[str] | None,
    shapes: Shapes,
    threads: int | None,
    strict: bool,
    precision: str = "float32",
) -> Program:
    """Return the program of an artifact, or of a model compiled now; raise what the API raises."""
    if not is_artifact(path):
        import graft

        return graft.compile(
            str(path), names_or_none(backends), shapes=dict(shapes), threads=threads, strict=strict,
            without=state.switched_off, precision=precision, manager=state.manager(),
        )  # fmt: skip
    given = {
        "-b": backends,
        "--shape": shapes,
        "--precision": precision != "float32",
        "--switch-off": state.switched_off,
    }
    if named := [option for option, value in given.items() if value]:
        verb = "is" if len(named) == 1 else "are"
        raise click.UsageError(f"'{path}' is compiled already: {', '.join(named)} {verb} for models")
    return load_artifact(state, path, threads, strict)


def load_artifact(state: State, path: Path, threads: int | None, strict: bool = False) -> Program:
    """Return the program of an artifact; the loaders of ``--plugin`` files take part."""
    runtime = import_module("graft.runtime")
    loaders: list[Loader] = []
    if state.plugin_files:
        loaders += state.manager().module_loaders({Path(file).stem for file in state.plugin_files}).values()
    program: Program = runtime.load(path, threads=threads, strict=strict, loaders=loaders)
    return program


def inputs_of(program: Program, given: Sequence[tuple[str, str]], seed: int) -> dict[str, np.ndarray]:
    """Return an array for every input of the program: those that were given, seeded random ones for the others.

    Floats are standard normal, integers and bools 0 or 1. Raises InputError for an unreadable file, and for an input
    without a static shape that was not given; names and types are checked by the program.
    """
    import numpy as np

    dtypes = {one.name: one.dtype for one in program.inputs}
    arrays = {name: _read(name, text, dtypes.get(name)) for name, text in given}
    generator = np.random.default_rng(seed)
    for one in program.inputs:
        if one.name not in arrays:
            arrays[one.name] = _sample(one.name, one.dtype, one.shape, generator)
    return arrays


def _read(name: str, text: str, dtype: str | None) -> np.ndarray:
    import numpy as np

    from graft.runtime.dtypes import numpy_dtype

    try:
        if text.startswith("@"):
            array: np.ndarray = np.load(text[1:], allow_pickle=False)
            return array
        return np.array(json.loads(text), None if dtype is None else numpy_dtype(dtype))
    except OSError as error:
        raise InputError(f"input '{name}': cannot read '{text[1:]}': {error.strerror or error}", input=name) from error
    except (ValueError, EOFError, TypeError) as error:
        what = f"'{text[1:]}' is not a .npy file" if text.startswith("@") else f"{text} is not an array in JSON"
        raise InputError(f"input '{name}': {what}: {error}", input=name) from error


def _sample(name: str, dtype: str, shape: Sequence[int] | None, generator: np.random.Generator) -> np.ndarray:
    import numpy as np

    from graft.runtime.dtypes import numpy_dtype

    if shape is None:
        raise InputError(f"input '{name}' has no static shape; give it with --input {name}=@FILE.npy", input=name)
    kind = numpy_dtype(dtype)
    if kind.kind in "biu":
        return generator.integers(0, 2, shape).astype(kind)
    return np.asarray(generator.standard_normal(shape)).astype(kind)


def facts(arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return name, dtype, shape and range of arrays, as JSON data."""
    from graft.runtime.dtypes import dtype_name

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
