"""Where everything of a program lies in the memory of a WebAssembly module: known before it runs, down to each address.

Of what has a shape that varies, it is known which word will hold the address (`graft.runtime.export.wasm_shapes`). The
parts of a program that a module cannot have are refused here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NoReturn

import numpy as np

from graft.errors import CompileError
from graft.runtime.dtypes import element_type
from graft.runtime.export.c_layout import Layout, axis_of, state_count
from graft.runtime.export.wasm_link import APPEND, ROWS, Choice, Item, Linker, Moving, Operand, Repeat, Step, calls
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

    Raises CompileError for one that was not compiled for WebAssembly, has shapes that depend on data, or control flow
    of shapes that vary.
    """
    _check(description)
    procedure = description.procedures[0]
    linker = Linker(_functions(description))
    reached = [description.procedures[number] for number in reversed(Layout(description.procedures).reached)]
    weights, offsets = _weights(reached, description.constants)
    begin = linker.place(len(weights))
    places = {key: begin + offset for key, offset in offsets.items()}
    bindings = Bindings(procedure, linker) if procedure.symbols else None
    addresses = _addresses(procedure, linker, places, bindings, {})
    steps = _Steps(description, procedure, linker, addresses, bindings, places).items()
    failing = {
        number: step.origin for number, step in enumerate(calls(steps)) if step.origin and linker.fails(step.function)
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
    reached = [description.procedures[number] for number in Layout(description.procedures).reached]
    for call in (call for procedure in reached for call in procedure.calls if call.bodies):
        if any(procedure.symbols for procedure in reached):
            nodes = ", ".join(f"'{node}'" for node in call.origin) or call.kind
            _refuse(f"{nodes} is of kind '{call.kind}', of shapes that vary; give each dimension a number")
    for tensor in (tensor for procedure in reached for tensor in procedure.tensors):
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


def _weights(procedures: Sequence[Procedure], constants: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, int]]:
    """Return the constants that procedures use one behind another, and where each begins."""
    offsets: dict[str, int] = {}
    parts: list[bytes] = []
    end = 0
    for tensor in (tensor for procedure in procedures for tensor in procedure.tensors):
        if tensor.storage == "constant" and tensor.constant not in offsets:
            data = np.ascontiguousarray(constants[tensor.constant]).tobytes()
            offsets[tensor.constant] = end
            parts.append(data + bytes(-len(data) % ALIGNMENT))
            end += len(parts[-1])
    return b"".join(parts), offsets


def _addresses(
    procedure: Procedure,
    linker: Linker,
    weights: Mapping[str, int],
    bindings: Bindings | None,
    places: dict[tuple[str, int], int],
) -> list[Operand]:
    """Return the address of every tensor, or the word with it, and place those that have none yet.

    ``places`` are those of inputs and outputs that have one, by storage and index.
    """
    arena = linker.place(procedure.arena_bytes)
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
    """Calls of a procedure as steps of a module. A body has fixed places of its own, and stands where it is called."""

    description: ProgramDescription
    procedure: Procedure
    linker: Linker
    addresses: Sequence[Operand]
    bindings: Bindings | None
    weights: Mapping[str, int]

    def items(self) -> tuple[Item, ...]:
        """Return the steps of all calls."""
        return tuple(item for call in self.procedure.calls for item in self._items(call))

    def _items(self, call: Call) -> Iterator[Item]:
        match call.kind:
            case "if":
                yield self._choice(call)
            case "loop" | "scan":
                yield from self._repeat(call)
            case _:
                yield self._step(call)

    # ---- Control flow ----

    def _fixed(self, number: int) -> int:
        """Return the address of a tensor; 0 of one that is absent."""
        place = 0 if number < 0 else self.addresses[number]
        assert isinstance(place, int), "shapes that vary were refused before"
        return place

    def _result(self, number: int, size: int) -> int:
        """Return the address of an output, somewhere for one that nobody wants."""
        return self._fixed(number) if number >= 0 else self.linker.place(size)

    def _body(self, number: int, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[Item, ...]:
        body = self.description.procedures[number]
        places = {("input", index): place for index, place in enumerate(inputs)}
        places |= {("output", index): place for index, place in enumerate(outputs)}
        addresses = _addresses(body, self.linker, self.weights, None, places)
        return _Steps(self.description, body, self.linker, addresses, None, self.weights).items()

    def _choice(self, call: Call) -> Choice:
        bodies = [self.description.procedures[number] for number in call.bodies]
        sizes = [
            max(_bytes(body.tensors[body.outputs[place]]) for body in bodies) for place in range(len(call.outputs))
        ]
        outputs = [self._result(number, size) for number, size in zip(call.outputs, sizes, strict=True)]
        first, second = (
            self._body(body, [*map(self._fixed, arguments)], outputs)
            for body, arguments in zip(call.bodies, call.arguments, strict=True)
        )
        return Choice(self._fixed(call.inputs[0]), (first, second))

    def _repeat(self, call: Call) -> Iterator[Item]:
        """Yield a loop or a scan: values that go round are copied behind each round, slices before or behind it."""
        linker, is_loop, count = self.linker, call.kind == "loop", state_count(call)
        body, given = self.description.procedures[call.bodies[0]], call.inputs[2 if is_loop else 0 :]
        made = [_bytes(body.tensors[number]) for number in body.outputs[1 if is_loop else 0 :]]
        round, go, goes_on = linker.place(8), linker.place(1), linker.place(1)
        begins = self._fixed(call.inputs[1]) if is_loop and call.inputs[1] >= 0 else linker.add(b"\1")
        yield Step("", (begins, go), 1)
        kept = [self._result(number, size) for number, size in zip(call.outputs[:count], made[:count], strict=True)]
        new = [linker.place(size) for size in made]
        for number, place, size in zip(given, kept, made, strict=False):
            yield Step("", (self._fixed(number), place), size)
        slices = [linker.place(_bytes(body.tensors[number])) for number in body.inputs[count:][: len(given) - count]]
        before = [self._slice(call, place, slot, round, "input") for place, slot in enumerate(slices)]
        after = [Step("", (place, own), size) for own, place, size in zip(kept, new, made, strict=False)]
        after += [Step("", (goes_on, go), 1)] if is_loop else []
        stacks = [(place, slot) for place, slot in enumerate(new[count:]) if call.outputs[count + place] >= 0]
        after += [self._slice(call, place, slot, round, "output") for place, slot in stacks]
        captured = map(self._fixed, call.arguments[0])
        inside = self._body(
            call.bodies[0],
            [*([round, go] if is_loop else []), *kept, *slices, *captured],
            [*([goes_on] if is_loop else []), *new],
        )
        lengths = [(self._static(call.outputs[count + place]) or (0,))[0] for place, _ in stacks] if is_loop else []
        yield Repeat(self._trips(call, given), go, round, (*before, *inside, *after), lengths[0] if lengths else None)

    def _trips(self, call: Call, given: Sequence[int]) -> int:
        """Return the address of how often a loop goes round."""
        if call.kind == "loop":
            unlimited = np.iinfo(np.int64).max.to_bytes(8, "little")
            return self._fixed(call.inputs[0]) if call.inputs[0] >= 0 else self.linker.add(unlimited)
        first = given[state_count(call)]
        length = self._static(first)[axis_of(call, "input", 0, self.procedure)]
        return self.linker.add(length.to_bytes(8, "little"))

    def _slice(self, call: Call, place: int, slot: int, round: int, role: str) -> Step:
        """Return the copy of the slice of this round out of an input, or into an output."""
        number = (call.inputs if role == "input" else call.outputs)[state_count(call) + place]
        axis, shape = axis_of(call, role, place, self.procedure), self._static(number)
        inner = prod(shape[axis + 1 :]) * element_type(self.procedure.tensors[number].dtype).bytes
        is_backward = call.kind == "scan" and call.attributes[f"{role}_directions"][place]
        last = (shape[axis] - 1) * inner if is_backward else 0
        whole = Moving(self._fixed(number) + last, -inner if is_backward else inner, round)
        rows, step = prod(shape[:axis]), shape[axis] * inner
        if role == "input":
            return Step(ROWS, (slot, whole, rows, inner, inner, step))
        return Step(ROWS, (whole, slot, rows, inner, step, inner))

    def _static(self, number: int) -> tuple[int, ...]:
        shape = self.procedure.tensors[number].static_shape
        assert shape is not None, "shapes that vary were refused before"
        return shape

    # ---- Calls ----

    def _step(self, call: Call) -> Step:
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
        return Step(key, tuple(operand for row in rows for operand in row), origin=call.origin)

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
