"""A program for the web: one WebAssembly module, its weights beside it, and a JavaScript loader with types."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from graft.errors import CompileError
from graft.runtime.export.folder import Parts, write_files
from graft.runtime.export.wasm_link import RECORD, Word
from graft.runtime.export.wasm_plan import Place, WasmProgram, wasm_program
from graft.runtime.export.wasm_shapes import Bindings
from graft.runtime.export.wasm_threads import THREADS
from graft.runtime.extents import Extent
from graft.runtime.procedure import Procedure, ProgramDescription

TEMPLATES = Path(__file__).parent / "web"
_ARRAYS = {
    "float32": "Float32Array", "float64": "Float64Array", "int8": "Int8Array", "int16": "Int16Array",
    "int32": "Int32Array", "int64": "BigInt64Array", "uint8": "Uint8Array", "uint16": "Uint16Array",
    "uint32": "Uint32Array", "uint64": "BigUint64Array", "bool": "Uint8Array", "float16": "Uint16Array",
    "bfloat16": "Uint16Array",
}  # fmt: skip
"""What JavaScript holds a tensor in; 16-bit floats are their bits."""
_DIGITS = 10


def export_wasm(description: ProgramDescription, folder: str | os.PathLike[str], name: str = "model") -> list[Path]:
    """Write ``name.wasm``, ``name.js``, ``name.d.ts`` and ``name.weights``; return the files.

    A classifier of digits, one image in and ten numbers out, gets a page to draw on: ``index.html``. All files
    are written or none (`write_files`). Raises CompileError for a program that cannot be a module (`wasm_program`), and
    ArtifactError if a file cannot be written.
    """
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise CompileError(f"files cannot be called {name!r}; give a name of letters, digits, '_', '.' and '-'")
    program = wasm_program(description)
    for place in (*program.inputs, *program.outputs):
        if place.dtype not in _ARRAYS:
            raise CompileError(f"'{place.name}' is {place.dtype}, for which JavaScript has no array; cast it before")
    features = sorted({str(one) for target in description.targets for one in target.get("features", ())})
    files: dict[str, Parts] = {
        f"{name}.wasm": program.module,
        f"{name}.weights": program.weights,
        f"{name}.js": _loader(program, name, features),
        f"{name}.d.ts": _types(program),
    }
    if program.job is not None:
        files[f"{name}.worker.js"] = _filled("worker.js", {})
    if _classifies_digits(program):
        files["index.html"] = _page(program, name)
    return write_files(folder, files)


def _loader(program: WasmProgram, name: str, features: list[str]) -> str:
    weights = {
        "file": f"{name}.weights",
        "header": program.digest,
        "bytes": len(program.weights),
        "address": program.weights_address,
    }
    plan: dict[str, object] = {
        "module": f"{name}.wasm",
        "features": features,
        "weights": weights,
        "inputs": [_row(place, program.bindings) for place in program.inputs],
        "outputs": [_row(place, program.bindings) for place in program.outputs],
        "record": RECORD,
        "failing": {str(step): list(nodes) for step, nodes in program.failing.items()},
    }
    shapes = "fixed_shapes.js"
    if program.bindings is not None:
        plan |= _bindings(program.bindings, program.free)
        shapes = "varying_shapes.js"
    threads = "one_thread.js"
    if program.job is not None:
        plan |= {"worker": f"{name}.worker.js", "pages": program.pages, "threads": program.job + THREADS}
        threads = "many_threads.js"
    parts = {"// @SHAPES@\n": shapes, "// @THREADS@\n": threads}
    texts = {key: (TEMPLATES / part).read_text(encoding="utf-8") for key, part in parts.items()}
    return _filled("model.js", {'"@PLAN@"': json.dumps(plan), **texts})


def _row(place: Place, bindings: Bindings | None) -> dict[str, object]:
    row: dict[str, object] = {"name": place.name, "dtype": place.dtype, "shape": list(place.shape)}
    if bindings is None:
        return row | {"address": place.address, "bytes": place.size}
    row["shape"] = bindings.writer.shape(place.shape)
    row["says"] = f"{place.dtype}[{','.join(map(str, place.shape))}]"
    where = {"word": place.address.address} if isinstance(place.address, Word) else {"address": place.address}
    return row | where | ({} if place.static_shape is None else {"is_fixed": True})


def _bindings(bindings: Bindings, begin: int) -> dict[str, object]:
    """Return what the loader needs to bind symbols; everything that has extents comes before their table."""
    procedure, writer = bindings.procedure, bindings.writer
    symbols = [
        {
            "name": one.name,
            "low": one.low,
            "high": one.high,
            "input": procedure.inputs.index(one.tensor),
            "axis": one.axis,
        }
        for one in procedure.symbols
    ]
    bounds = [
        {"says": str(one.extent), "extent": writer.dimension(one.extent), "low": one.low, "high": one.high}
        for one in procedure.bounds
    ]
    return {
        "symbols": symbols,
        "bounds": bounds,
        "reasons": [
            {"input": procedure.inputs.index(one.tensor), "axis": one.axis, "says": list(one.says)}
            for one in procedure.reasons
        ],
        "equations": [
            {
                "kind": one.kind,
                "left": writer.dimension(one.left),
                "right": writer.dimension(one.right),
                "says": list(one.says),
            }
            for one in procedure.equations
        ],
        "extents": writer.rows,
        "texts": {str(writer.dimension(one)): str(one) for one in _varying(procedure)},
        "rooms": [[room.bytes, room.first, room.last] for room in bindings.rooms],
        "addresses": bindings.addresses,
        "numbers": [[place, dimension, 8 if is_long else 4] for place, dimension, is_long in bindings.numbers],
        "free": bindings.free.address,
        "begin": begin,
    }


def _varying(procedure: Procedure) -> Iterator[Extent]:
    """Yield the extents of inputs and outputs that are no numbers."""
    for number in (*procedure.inputs, *procedure.outputs):
        yield from (one for one in procedure.tensors[number].shape or () if not isinstance(one, int))


def _types(program: WasmProgram) -> str:
    def kind(place: Place, is_input: bool) -> str:
        array = _ARRAYS[place.dtype]
        if place.static_shape is not None:
            return array
        shaped = f"{{ data: {array}; shape: {'readonly ' if is_input else ''}number[] }}"
        return f"{array} | {shaped}" if is_input else shaped

    def fields(places: tuple[Place, ...], is_input: bool) -> str:
        rows = (
            f"  /** {place.dtype}[{', '.join(map(str, place.shape))}] */\n"
            f"  {json.dumps(place.name)}: {kind(place, is_input)};"
            for place in places
        )
        return "\n".join(rows)

    extent = "number" if program.bindings is None else "number | string"
    values = {
        "  @INPUTS@": fields(program.inputs, True),
        "  @OUTPUTS@": fields(program.outputs, False),
        "@EXTENT@": extent if extent == "number" else f"({extent})",
    }
    return _filled("model.d.ts", values)


def _classifies_digits(program: WasmProgram) -> bool:
    """Whether the one input is a grey image and the one output ten scores."""
    if (len(program.inputs), len(program.outputs)) != (1, 1):
        return False
    (image,), (scores,) = program.inputs, program.outputs
    is_grey = len(image.shape) == 4 and image.shape[:2] == (1, 1) and image.dtype == "float32"
    return is_grey and scores.shape == (1, _DIGITS) and scores.dtype == "float32"


def _page(program: WasmProgram, name: str) -> str:
    (image,), (scores,) = program.inputs, program.outputs
    values: dict[str, object] = {
        "@MODEL@": f"./{name}.js",
        '"@IMAGE@"': json.dumps(image.name),
        '"@SCORES@"': json.dumps(scores.name),
        '"@HEIGHT@"': image.shape[2],
        '"@WIDTH@"': image.shape[3],
    }
    return _filled("digits.html", values)


def _filled(template: str, values: Mapping[str, object]) -> str:
    """Return a template with each of some texts, which stands there once or more, replaced."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for key, value in values.items():
        assert key in text, (template, key)
        text = text.replace(key, str(value))
    return text
