"""Where everything of a program lies in the memory of a WebAssembly module: known before it runs, down to each address.

Of what has a shape that varies, it is known which word will hold the address (`graft.runtime.export.wasm_shapes`). The
parts of a program that a module cannot have are refused here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from graft.errors import CompileError
from graft.runtime.dtypes import element_type
from graft.runtime.export.c_layout import Layout, axis_of, state_count
from graft.runtime.export.wasm_link import (
    APPEND,
    ROWS,
    Choice,
    Item,
    Linker,
    Moving,
    Operand,
    Repeat,
    Step,
    Word,
    calls,
)
from graft.runtime.export.wasm_shapes import OTHERWISE, Bindings, product
from graft.runtime.extents import Extent, Operation, replaced
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

    Raises CompileError for one that was not compiled for WebAssembly, or has shapes that depend on data.
    """
    _check(description)
    procedure = description.procedures[0]
    linker = Linker(_functions(description))
    reached = [description.procedures[number] for number in reversed(Layout(description.procedures).reached)]
    weights, offsets = _weights(reached, description.constants)
    begin = linker.place(len(weights))
    places = {key: begin + offset for key, offset in offsets.items()}
    bindings = Bindings(procedure, linker) if any(one.symbols for one in reached) else None
    addresses = _entry_addresses(procedure, linker, places, bindings)
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


def _entry_addresses(
    procedure: Procedure, linker: Linker, weights: Mapping[str, int], bindings: Bindings | None
) -> list[Operand]:
    """Return the address of every tensor of the entry, or the word with it, and place those that have none yet."""
    places: dict[int, Operand] = {}
    inputs_and_outputs: dict[tuple[str, int], int] = {}
    for number, tensor in enumerate(procedure.tensors):
        if bindings is not None and bindings.has_room(number):
            places[number] = bindings.address(number)
        elif tensor.storage in ("input", "output"):
            key = (tensor.storage, tensor.index)
            if key not in inputs_and_outputs:
                inputs_and_outputs[key] = linker.place(_bytes(tensor))
            places[number] = inputs_and_outputs[key]
    return _addresses(procedure, linker, weights, bindings, places)


def _addresses(
    procedure: Procedure,
    linker: Linker,
    weights: Mapping[str, int],
    bindings: Bindings | None,
    places: Mapping[int, Operand],
    step: int = 0,
) -> list[Operand]:
    """Return the address of every tensor, or the word with it; ``places`` are those that have one, by number.

    Of a body whose memory is not planned, what varies has memory of its own while its ``step`` of the entry runs.
    """
    arena = linker.place(procedure.arena_bytes)
    addresses: list[Operand] = []
    for number, tensor in enumerate(procedure.tensors):
        if number in places:
            addresses.append(places[number])
            continue
        match tensor.storage:
            case "constant":
                addresses.append(weights[tensor.constant])
            case "arena" if procedure.arena_bytes:
                addresses.append(arena + tensor.offset)
            case "arena":
                addresses.append(_somewhere(tensor, linker, bindings, step))
            case "view":
                root = addresses[tensor.of]
                if isinstance(root, int):
                    addresses.append(root + tensor.offset)
                else:
                    assert bindings is not None and isinstance(root, Word), "words are of shapes that vary"
                    addresses.append(bindings.displaced(root, tensor.offset))
            case "extents" if bindings is not None:
                addresses.append(bindings.values(tensor))
            case "extents":
                values = np.array([int(str(value)) for value in tensor.values], tensor.dtype)
                addresses.append(linker.add(values.tobytes()))
            case storage:
                raise AssertionError(f"{storage}: was refused before, or has a place")
    return addresses


def _somewhere(tensor: TensorSpec, linker: Linker, bindings: Bindings | None, step: int) -> Operand:
    """Return the address of memory for a tensor while a step of the entry runs."""
    size = product(tensor.shape or (), element_type(tensor.dtype).bytes)
    if isinstance(size, int):
        return linker.place(size)
    assert bindings is not None, "no symbol without bindings"
    return bindings.local(size, step)


def _called(body: Procedure, shapes: Sequence[Sequence[Extent]], origin: Sequence[str]) -> Procedure:
    """Return a body with the shapes that it has where its inputs have these: its symbols are those of the caller."""
    values: dict[str, Extent] = {}
    for symbol in body.symbols:
        if symbol.tensor not in body.inputs:
            _refuse(
                f"a dimension inside of '{', '.join(origin)}' is known only when "
                f"'{body.tensors[symbol.tensor].name}' is computed; only shapes that follow from those of inputs have "
                f"a place; {OTHERWISE}"
            )
        values[symbol.name] = shapes[body.inputs.index(symbol.tensor)][symbol.axis]

    def here(extents: Sequence[Extent] | None) -> tuple[Extent, ...] | None:
        return None if extents is None else tuple(replaced(one, values) for one in extents)

    tensors = (replace(one, shape=here(one.shape), values=here(one.values) or ()) for one in body.tensors)
    return replace(body, tensors=tuple(tensors), symbols=())


@dataclass(frozen=True, slots=True)
class _Steps:
    """Calls of a procedure as steps of a module. A body has fixed places of its own, and stands where it is called."""

    description: ProgramDescription
    procedure: Procedure
    linker: Linker
    addresses: Sequence[Operand]
    bindings: Bindings | None
    weights: Mapping[str, int]
    step: int | None = None
    """Of the entry, in which a body runs; None for the entry itself."""

    def items(self) -> tuple[Item, ...]:
        """Return the steps of all calls."""
        return tuple(item for number, call in enumerate(self.procedure.calls) for item in self._items(number, call))

    def _items(self, number: int, call: Call) -> Iterator[Item]:
        control = _Control(replace(self, step=number if self.step is None else self.step), call)
        match call.kind:
            case "if":
                yield control.choice()
            case "loop" | "scan":
                yield from control.repeat()
            case _:
                yield self._step(call)

    def shape(self, number: int) -> tuple[Extent, ...]:
        """Return the shape of a tensor."""
        return tuple(self.procedure.tensors[number].shape or ()) if number >= 0 else ()

    def place(self, number: int) -> Operand:
        """Return the address of a tensor; 0 of one that is absent."""
        return 0 if number < 0 else self.addresses[number]

    def somewhere(self, tensor: TensorSpec) -> Operand:
        """Return the address of memory for a tensor of a body."""
        return _somewhere(tensor, self.linker, self.bindings, self.step or 0)

    def body(self, body: Procedure, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> tuple[Item, ...]:
        """Return the steps of a body with its inputs and outputs at these addresses."""
        given = {("input", index): place for index, place in enumerate(inputs)}
        given |= {("output", index): place for index, place in enumerate(outputs)}
        keys = {number: (one.storage, one.index) for number, one in enumerate(body.tensors)}
        places = {number: given[key] for number, key in keys.items() if key in given}
        addresses = _addresses(body, self.linker, self.weights, self.bindings, places, self.step or 0)
        return replace(self, procedure=body, addresses=addresses).items()

    # ---- Calls ----

    def _step(self, call: Call) -> Step:
        """Return one call as a step."""
        used = (*call.inputs, *call.outputs)
        operands = tuple(0 if number < 0 else self.addresses[number] for number in used)
        match call.kind:
            case "copy":
                return Step("", operands, self.size(self.procedure.tensors[call.outputs[0]]))
            case "append":
                old, new = (self.procedure.tensors[number] for number in call.inputs)
                blocks = self.product((old.shape or ())[: call.axis])
                sizes = (self.size(one, call.axis) for one in (old, new))
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

    def size(self, tensor: TensorSpec, axis: int = 0) -> int | Word:
        """Return the bytes of a tensor, of its axes from ``axis`` on."""
        return self.product((tensor.shape or ())[axis:], element_type(tensor.dtype).bytes)

    def product(self, shape: Sequence[Extent], factor: int = 1) -> int | Word:
        """Return the product of extents and a number, as i32."""
        total = product(shape, factor)
        if isinstance(total, int):
            return total
        assert self.bindings is not None, "no symbol without bindings"
        return self.bindings.number(total, is_long=False)


@dataclass(frozen=True, slots=True)
class _Control:
    """A call of control flow as steps: its bodies stand where they are called."""

    steps: _Steps
    call: Call

    def choice(self) -> Choice:
        """Return the branches of an If."""
        branches = []
        for number, arguments in zip(self.call.bodies, self.call.arguments, strict=True):
            body = self._body(number, [*map(self.steps.shape, arguments)])
            made = [body.tensors[one] for one in body.outputs]
            outputs = [self._result(index, of) for index, of in zip(self.call.outputs, made, strict=True)]
            branches.append(self.steps.body(body, [*map(self.steps.place, arguments)], outputs))
        first, second = branches
        return Choice(self.steps.place(self.call.inputs[0]), (first, second))

    def _body(self, number: int, shapes: Sequence[Sequence[Extent]]) -> Procedure:
        return _called(self.steps.description.procedures[number], shapes, self.call.origin)

    def _result(self, number: int, tensor: TensorSpec) -> Operand:
        """Return the address of an output, somewhere for one that nobody wants."""
        return self.steps.place(number) if number >= 0 else self.steps.somewhere(tensor)

    def repeat(self) -> Iterator[Item]:
        """Yield a loop or a scan: values that go round are copied behind each round, slices before or behind it."""
        steps, call, linker = self.steps, self.call, self.steps.linker
        is_loop, count = call.kind == "loop", state_count(call)
        given = call.inputs[2 if is_loop else 0 :]
        body = self._body(call.bodies[0], self._shapes(given))
        made = [body.tensors[number] for number in body.outputs[1 if is_loop else 0 :]]
        self._check_states(given, made)
        round, go, goes_on = linker.place(8), linker.place(1), linker.place(1)
        begins = steps.place(call.inputs[1]) if is_loop and call.inputs[1] >= 0 else linker.add(b"\1")
        yield Step("", (begins, go), 1)
        kept = [self._result(number, of) for number, of in zip(call.outputs[:count], made[:count], strict=True)]
        new = [steps.somewhere(of) for of in made]
        for number, place, of in zip(given, kept, made, strict=False):
            yield Step("", (steps.place(number), place), steps.size(of))
        slices = [steps.somewhere(body.tensors[number]) for number in body.inputs[count:][: len(given) - count]]
        before = [self._slice(place, slot, round, "input") for place, slot in enumerate(slices)]
        after = [Step("", (place, own), steps.size(of)) for own, place, of in zip(kept, new, made, strict=False)]
        after += [Step("", (goes_on, go), 1)] if is_loop else []
        stacks = [(place, slot) for place, slot in enumerate(new[count:]) if call.outputs[count + place] >= 0]
        after += [self._slice(place, slot, round, "output") for place, slot in stacks]
        inputs = [*([round, go] if is_loop else []), *kept, *slices, *map(steps.place, call.arguments[0])]
        inside = steps.body(body, inputs, [*([goes_on] if is_loop else []), *new])
        lengths = [self._long((steps.shape(call.outputs[count + one]) or (0,))[0]) for one, _ in stacks if is_loop]
        yield Repeat(self._trips(given), go, round, (*before, *inside, *after), lengths[0] if lengths else None)

    def _shapes(self, given: Sequence[int]) -> list[Sequence[Extent]]:
        """Return the shapes of the inputs of the body: slices lack the axis along which they are taken."""
        count, is_loop = state_count(self.call), self.call.kind == "loop"
        shapes = [list(self.steps.shape(number)) for number in given]
        for place, shape in enumerate(shapes[count:]):
            del shape[axis_of(self.call, "input", place, self.steps.procedure)]
        return [*([(), ()] if is_loop else []), *shapes, *map(self.steps.shape, self.call.arguments[0])]

    def _check_states(self, given: Sequence[int], made: Sequence[TensorSpec]) -> None:
        for number, after in zip(given[: state_count(self.call)], made, strict=False):
            if self.steps.shape(number) != tuple(after.shape or ()):
                before = self.steps.procedure.tensors[number].name
                _refuse(f"'{after.name}' has another shape after a round than '{before}' before it")
        lengths = {self._length(number, place) for place, number in enumerate(given[state_count(self.call) :])}
        if len(lengths) > 1:
            _refuse(f"'{', '.join(self.call.origin)}' takes apart {' and '.join(map(str, lengths))} slices")

    def _length(self, number: int, place: int) -> Extent:
        return self.steps.shape(number)[axis_of(self.call, "input", place, self.steps.procedure)]

    def _long(self, extent: Extent) -> int | Word:
        if isinstance(extent, int):
            return extent
        assert self.steps.bindings is not None, "no symbol without bindings"
        return self.steps.bindings.number(extent, is_long=True)

    def _trips(self, given: Sequence[int]) -> Operand:
        """Return the address of how often a loop goes round."""
        if self.call.kind == "loop" and self.call.inputs[0] >= 0:
            return self.steps.place(self.call.inputs[0])
        unlimited = int(np.iinfo(np.int64).max)
        times = unlimited if self.call.kind == "loop" else self._long(self._length(given[state_count(self.call)], 0))
        return times.address if isinstance(times, Word) else self.steps.linker.add(times.to_bytes(8, "little"))

    def _slice(self, place: int, slot: Operand, round: int, role: str) -> Step:
        """Return the copy of the slice of this round out of an input, or into an output."""
        steps, call = self.steps, self.call
        number = (call.inputs if role == "input" else call.outputs)[state_count(call) + place]
        axis, tensor = axis_of(call, role, place, steps.procedure), steps.procedure.tensors[number]
        length = steps.shape(number)[axis]
        inner, step, rows = (
            steps.size(tensor, axis + 1),
            steps.size(tensor, axis),
            steps.product(steps.shape(number)[:axis]),
        )
        is_backward = call.kind == "scan" and call.attributes[f"{role}_directions"][place]
        last = steps.product((length - 1 if isinstance(length, int) else Operation("sub", length, 1),))
        first = steps.place(number)
        assert not isinstance(first, Moving), "of a tensor"
        whole = Moving(first, inner, round, last if is_backward else None)
        if role == "input":
            return Step(ROWS, (slot, whole, rows, inner, inner, step))
        return Step(ROWS, (whole, slot, rows, inner, step, inner))


def _place(tensor: TensorSpec, address: Operand) -> Place:
    assert tensor.shape is not None, "was refused before"
    return Place(tensor.name, tensor.dtype, tensor.shape, address)


def _bytes(tensor: TensorSpec) -> int:
    total = product(tensor.shape or (), element_type(tensor.dtype).bytes)
    assert isinstance(total, int), "has a room"
    return total
