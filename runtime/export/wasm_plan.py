"""Where everything of a program lies in the memory of a WebAssembly module: known before it runs, down to each address.

Of what has a shape that varies, it is known which word will hold the address (`graft.runtime.export.wasm_shapes`). The
parts of a program that a module cannot have are refused here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from graft.errors import CompileError
from graft.runtime.dtypes import element_type
from graft.runtime.export.wasm_link import APPEND, Linker, Operand, Step
from graft.runtime.export.wasm_shapes import Bindings, product
from graft.runtime.extents import Extent
from graft.runtime.objects import KIND, STRIDE, unpack_objects
from graft.runtime.procedure import ALIGNMENT, Call, Procedure, ProgramDescription, TensorSpec, shape_texts

WEIGHTS_MAGIC = b"GRAFTWTS\1\0\0\0"
WEIGHTS_HEADER = 64
"""Bytes at the beginning of the file of weights: the magic, zeros, and the last 32 the sha256 of what follows."""


@dataclass(frozen=True, slots=True)
class Place:
    """An input or output of the program: its type, its shape and where it lies."""

    name: str
    dtype: str
    shape: tuple[Extent, ...]
    address: Operand

    @property
    def size(self) -> Extent:
        """Its bytes."""
        return product(self.shape, element_type(self.dtype).bytes)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers; None where it has others."""
        numbers = tuple(extent for extent in self.shape if isinstance(extent, int))
        return numbers if len(numbers) == len(self.shape) else None


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
    bindings: Bindings | None
    """What is done when shapes change; None where all are numbers."""
    free: int
    """Where memory that the loader plans begins."""
    job: int | None
    """Where the job of its threads lies (`graft.runtime.export.wasm_threads`); None for a program of one thread."""
    pages: tuple[int, int]
    """Of memory: at first, and at most."""

    @property
    def digest(self) -> str:
        """What the file of weights has to begin with, in hexadecimal."""
        return self.weights[:WEIGHTS_HEADER].hex()


def wasm_program(description: ProgramDescription) -> WasmProgram:
    """Return a program linked into one WebAssembly module.

    Raises CompileError for one that was not compiled for WebAssembly, has shapes that depend on data, or runs control
    flow.
    """
    _check(description)
    procedure = description.procedures[0]
    linker = Linker(_functions(description))
    weights, offsets = _weights(procedure, description.constants)
    begin = linker.place(len(weights))
    bindings = Bindings(procedure, linker) if procedure.symbols else None
    addresses = _addresses(procedure, linker, {key: begin + offset for key, offset in offsets.items()}, bindings)
    steps = [_Steps(procedure, linker, addresses, bindings).step(call) for call in procedure.calls]
    failing = {
        number: call.origin
        for number, (call, step) in enumerate(zip(procedure.calls, steps, strict=True))
        if call.kind == "call" and linker.fails(step.function)
    }
    header = WEIGHTS_MAGIC.ljust(WEIGHTS_HEADER - 32, b"\0") + hashlib.sha256(weights).digest()
    inputs, outputs = (
        tuple(_place(procedure.tensors[number], addresses[number]) for number in numbers)
        for numbers in (procedure.inputs, procedure.outputs)
    )
    module = linker.module(steps, None if bindings is None else bindings.free)
    return WasmProgram(
        module, header + weights, begin, inputs, outputs, failing, bindings, linker.end, linker.job,
        linker.pages,
    )  # fmt: skip


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
    for call in procedure.calls:
        if call.kind not in ("call", "copy", "append"):
            nodes = ", ".join(f"'{node}'" for node in call.origin) or call.kind
            _refuse(f"{nodes} is of kind '{call.kind}', and a module runs calls one after another; take it out")
    for tensor in procedure.tensors:
        if tensor.shape is None or tensor.storage == "dynamic":
            shape = shape_texts(tensor)
            _refuse(
                f"tensor '{tensor.name}' has the shape {shape or 'that a run finds'}; only shapes that follow from "
                "those of inputs have a place"
            )


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


def _addresses(
    procedure: Procedure, linker: Linker, weights: Mapping[str, int], bindings: Bindings | None
) -> list[Operand]:
    """Return the address of every tensor, or the word with it, and place those that have none yet."""
    arena = linker.place(procedure.arena_bytes)
    places: dict[tuple[str, int], int] = {}
    addresses: list[Operand] = []
    for number, tensor in enumerate(procedure.tensors):
        if bindings is not None and bindings.has_room(number):
            addresses.append(bindings.address(number))
            continue
        match tensor.storage:
            case "constant":
                addresses.append(weights[tensor.constant])
            case "arena":
                addresses.append(arena + tensor.offset)
            case "view":
                root = addresses[tensor.of]
                if isinstance(root, int):
                    addresses.append(root + tensor.offset)
                else:
                    assert bindings is not None, "words are of shapes that vary"
                    addresses.append(bindings.address(tensor.of, tensor.offset))
            case "extents" if bindings is not None:
                addresses.append(bindings.values(tensor))
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


@dataclass(frozen=True, slots=True)
class _Steps:
    """Calls of a procedure as steps of a module."""

    procedure: Procedure
    linker: Linker
    addresses: Sequence[Operand]
    bindings: Bindings | None

    def step(self, call: Call) -> Step:
        """Return one call as a step."""
        used = (*call.inputs, *call.outputs)
        operands = tuple(0 if number < 0 else self.addresses[number] for number in used)
        match call.kind:
            case "copy":
                return Step("", operands, self._size(self.procedure.tensors[call.outputs[0]]))
            case "append":
                old, new = (self.procedure.tensors[number] for number in call.inputs)
                blocks = self._product((old.shape or ())[: call.axis])
                sizes = (self._size(one, call.axis) for one in (old, new))
                return Step(APPEND, (operands[2], *operands[:2], blocks, *sizes))
        key = f"{call.module}.{call.function}"
        taken: dict[int, list[Operand]] = {}
        for position, axis, kind in self.linker.extents(key):
            taken.setdefault(position, []).append(self._extent(self.procedure.tensors[used[position]], axis, kind))
        rows = ((operand, *taken.get(position, ())) for position, operand in enumerate(operands))
        return Step(key, tuple(operand for row in rows for operand in row))

    def _extent(self, tensor: TensorSpec, axis: int, kind: int) -> Operand:
        assert self.bindings is not None, f"a kernel takes extents of '{tensor.name}', and none varies"
        if kind == STRIDE:
            return self.bindings.stride(tensor, axis)
        return self.bindings.number((tensor.shape or ())[axis], is_long=True)

    def _size(self, tensor: TensorSpec, axis: int = 0) -> Operand:
        return self._product((tensor.shape or ())[axis:], element_type(tensor.dtype).bytes)

    def _product(self, shape: Sequence[Extent], factor: int = 1) -> Operand:
        if self.bindings is not None:
            return self.bindings.size(shape, factor)
        total = product(shape, factor)
        assert isinstance(total, int), "no symbol without bindings"
        return total


def _place(tensor: TensorSpec, address: Operand) -> Place:
    assert tensor.shape is not None, "was refused before"
    return Place(tensor.name, tensor.dtype, tensor.shape, address)


def _bytes(tensor: TensorSpec) -> int:
    total = product(tensor.shape or (), element_type(tensor.dtype).bytes)
    assert isinstance(total, int), "has a room"
    return total
