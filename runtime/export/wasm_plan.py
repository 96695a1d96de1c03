"""Where everything of a program lies in the memory of a WebAssembly module: known before it runs, down to each address.

The parts of a program that a module cannot have are refused here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from graft.errors import CompileError
from graft.runtime.dtypes import element_type
from graft.runtime.export.wasm_link import Linker, Step
from graft.runtime.objects import KIND, unpack_objects
from graft.runtime.procedure import ALIGNMENT, Call, Procedure, ProgramDescription, TensorSpec, shape_texts

WEIGHTS_MAGIC = b"GRAFTWTS\1\0\0\0"
WEIGHTS_HEADER = 64
"""Bytes at the beginning of the file of weights: the magic, zeros, and the last 32 the sha256 of what follows."""


@dataclass(frozen=True, slots=True)
class Place:
    """An input or output of the program: its type, its shape and where it lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class WasmProgram:
    """A module and what its host needs to run it."""

    module: bytes
    weights: bytes
    """The file of weights, header and all."""
    weights_address: int
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    failing: Mapping[int, tuple[str, ...]]
    """The nodes of each step that may find an index out of range."""

    @property
    def digest(self) -> str:
        """What the file of weights has to begin with, in hexadecimal."""
        return self.weights[:WEIGHTS_HEADER].hex()


def wasm_program(description: ProgramDescription) -> WasmProgram:
    """Return a program linked into one WebAssembly module.

    Raises CompileError for one that was not compiled for WebAssembly, has symbols, or runs control flow.
    """
    _check(description)
    procedure = description.procedures[0]
    linker = Linker(_functions(description))
    weights, offsets = _weights(procedure, description.constants)
    begin = linker.place(len(weights))
    addresses = _addresses(procedure, linker, {key: begin + offset for key, offset in offsets.items()})
    steps = [_step(call, procedure, addresses) for call in procedure.calls]
    failing = {
        number: call.origin
        for number, (call, step) in enumerate(zip(procedure.calls, steps, strict=True))
        if step.function and linker.fails(step.function)
    }
    header = WEIGHTS_MAGIC.ljust(WEIGHTS_HEADER - 32, b"\0") + hashlib.sha256(weights).digest()
    inputs, outputs = (
        tuple(_place(procedure.tensors[number], addresses[number]) for number in numbers)
        for numbers in (procedure.inputs, procedure.outputs)
    )
    return WasmProgram(linker.module(steps), header + weights, begin, inputs, outputs, failing)


def _check(description: ProgramDescription) -> None:
    compiled_for = ", ".join(str(target.get("arch")) for target in description.targets)
    again = "compile it with target 'wasm32+simd128' and the backend 'llvm'"
    if compiled_for != "wasm32":
        raise CompileError(f"the program was compiled for {compiled_for or 'no machine'}, not for wasm32; {again}")
    for module in description.modules:
        if module.kind != KIND:
            raise CompileError(
                f"module '{module.name}' is of kind '{module.kind}', of which WebAssembly has nothing to run; {again}",
                module=module.name,
                kind=module.kind,
            )
    procedure = description.procedures[0]
    if procedure.symbols:
        names = ", ".join(f"'{symbol.name}'" for symbol in procedure.symbols)
        _refuse(f"its shapes vary with {names}; give each a number, as in --dim {procedure.symbols[0].name}=1")
    for call in procedure.calls:
        if call.kind not in ("call", "copy"):
            nodes = ", ".join(f"'{node}'" for node in call.origin) or call.kind
            _refuse(f"{nodes} is of kind '{call.kind}', and a module runs calls one after another; take it out")
    for tensor in procedure.tensors:
        if tensor.static_shape is None or tensor.storage == "dynamic":
            shape = shape_texts(tensor)
            _refuse(f"tensor '{tensor.name}' has the shape {shape or 'that a run finds'}; only numbers have a place")


def _refuse(reason: str) -> NoReturn:
    raise CompileError(f"the program cannot be one WebAssembly module: {reason}")


def _functions(description: ProgramDescription) -> Iterator[tuple[str, str, bytes]]:
    """Yield a key, the symbol and the object of every function."""
    for number, module in enumerate(description.modules):
        for function in unpack_objects(module.data):
            yield f"{number}.{function.name}", function.symbol, function.data


def _weights(procedure: Procedure, constants: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, int]]:
    """Return the constants that the procedure uses one behind another, and where each begins."""
    offsets: dict[str, int] = {}
    parts: list[bytes] = []
    end = 0
    for tensor in procedure.tensors:
        if tensor.storage == "constant" and tensor.constant not in offsets:
            data = np.ascontiguousarray(constants[tensor.constant]).tobytes()
            offsets[tensor.constant] = end
            parts.append(data + bytes(-len(data) % ALIGNMENT))
            end += len(parts[-1])
    return b"".join(parts), offsets


def _addresses(procedure: Procedure, linker: Linker, weights: Mapping[str, int]) -> list[int]:
    """Return the address of every tensor, and place those that have none yet."""
    arena = linker.place(procedure.arena_bytes)
    places: dict[tuple[str, int], int] = {}
    addresses: list[int] = []
    for tensor in procedure.tensors:
        match tensor.storage:
            case "constant":
                addresses.append(weights[tensor.constant])
            case "arena":
                addresses.append(arena + tensor.offset)
            case "view":
                addresses.append(addresses[tensor.of] + tensor.offset)
            case "extents":
                values = np.array([int(str(value)) for value in tensor.values], tensor.dtype)
                addresses.append(linker.add(values.tobytes()))
            case "input" | "output":
                key = (tensor.storage, tensor.index)
                if key not in places:
                    places[key] = linker.place(_bytes(tensor))
                addresses.append(places[key])
            case "dynamic":
                raise AssertionError("was refused before")
    return addresses


def _step(call: Call, procedure: Procedure, addresses: Sequence[int]) -> Step:
    used = tuple(0 if number < 0 else addresses[number] for number in (*call.inputs, *call.outputs))
    if call.kind == "copy":
        return Step("", used, _bytes(procedure.tensors[call.outputs[0]]))
    return Step(f"{call.module}.{call.function}", used)


def _place(tensor: TensorSpec, address: int) -> Place:
    assert tensor.static_shape is not None, "was refused before"
    return Place(tensor.name, tensor.dtype, tensor.static_shape, address, _bytes(tensor))


def _bytes(tensor: TensorSpec) -> int:
    count = 1
    for extent in tensor.static_shape or ():
        count *= extent
    return count * element_type(tensor.dtype).bytes
