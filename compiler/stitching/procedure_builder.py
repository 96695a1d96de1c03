"""Procedures under construction: tensors without addresses and calls, until views, outputs and memory are decided.

A region compiled to several kernels is inlined, so that the memory of all regions is planned together; views are
resolved to the tensor that owns the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graft.compiler.memory.lifetimes import Lifetime
from graft.compiler.memory.plan import MemoryPlan, plan_memory, plan_without_reuse
from graft.compiler.stitching.most_memory import Memory, most_bytes
from graft.compiler.stitching.symbol_binding import Ranges, bound_symbols, bounds_of, checkable
from graft.core.affine.expressions import TooLargeError, canonical, multiply, substituted
from graft.errors import UnsupportedError
from graft.runtime.dtypes import element_type
from graft.runtime.extents import Extent, ExtentEquation, Symbol, symbols_of
from graft.runtime.procedure import MOST_DIMENSIONS, AxisReason, Call, Procedure, Storage, TensorSpec, contiguous_bytes
from graft.runtime.spans import is_upload, owner_of, spans_of, touched


@dataclass(slots=True)
class ProcedureBuilder:
    """A procedure under construction: tensors without addresses, calls in order."""

    name: str
    tensors: list[TensorSpec] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    reuse: bool = True
    """Whether tensors that are not live at the same time may have the same memory; with symbols they always may."""
    ranges: Ranges = field(default_factory=dict)
    """The ranges of symbols and of operations on them: those that shapes use become the procedure's."""
    equations: list[ExtentEquation] = field(default_factory=list)
    """What its nodes demand of extents."""
    reasons: list[AxisReason] = field(default_factory=list)
    """Why axes of its inputs have the extents that they have."""
    memory: Memory = "binding"
    """Whether, with symbols, memory is planned once for the largest shapes, or by the runtime for each binding."""
    _copies: dict[tuple[int, int], int] = field(default_factory=dict)
    """Values in another memory than the one they were made in, by tensor and device."""

    @classmethod
    def reopen(cls, procedure: Procedure) -> ProcedureBuilder:
        """Return a builder that holds a finished procedure."""
        ranges: dict[Extent, tuple[int, int | None]] = {
            Symbol(symbol.name): (symbol.low, symbol.high) for symbol in procedure.symbols
        }
        ranges |= {bound.extent: (bound.low, bound.high) for bound in procedure.bounds}
        tensors, calls = list(procedure.tensors), list(procedure.calls)
        memory: Memory = "maximum" if procedure.symbols and procedure.arena_bytes else "binding"
        return cls(
            procedure.name, tensors, calls, list(procedure.inputs), list(procedure.outputs), ranges=ranges,
            equations=list(procedure.equations), reasons=list(procedure.reasons), memory=memory,
        )  # fmt: skip

    def add(self, tensor: TensorSpec) -> int:
        """Add a tensor and return its index; raise UnsupportedError for one of more axes than the runtime takes."""
        if (rank := len(tensor.shape or ())) > MOST_DIMENSIONS:
            raise UnsupportedError(
                f"'{tensor.name}' has rank {rank}, and a tensor of a program has at most {MOST_DIMENSIONS} axes; join "
                "some of them by a Reshape",
                tensor=tensor.name,
            )
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def add_input(self, name: str, dtype: str, shape: tuple[Extent, ...] | None) -> int:
        """Add the next input and return its index."""
        self.inputs.append(self.add(TensorSpec(name, dtype, shape, "input", index=len(self.inputs))))
        return self.inputs[-1]

    def result(
        self, name: str, dtype: str, shape: tuple[Extent, ...] | None, *, is_dynamic: bool = False, device: int = 0
    ) -> int:
        """Add a tensor that a call will write and return its index; ``is_dynamic``: the callee gives it its memory.

        Raises UnsupportedError for such memory on a device.
        """
        storage: Storage = "dynamic" if shape is None or is_dynamic else "arena"
        if device and storage == "dynamic":
            raise UnsupportedError(
                f"'{name}' is computed on a device, and its shape is known only when it is there; leave its node to a "
                "backend that computes in main memory",
                tensor=name,
            )
        return self.add(TensorSpec(name, dtype, shape, storage, device=device))

    def on(self, index: int, device: int) -> int:
        """Return a tensor's value in a memory: itself, or a copy, which is made once. -1 stays -1.

        An input that is first wanted on a device comes there, and one that both want is in main memory.
        """
        if index < 0 or self.tensors[index].device == device:
            return index
        if (index, device) not in self._copies:
            self._copies[index, device] = self._copied(index, device)
        return self._copies[index, device]

    def _copied(self, index: int, device: int) -> int:
        """Add a tensor with a value of another memory, and the copy right behind what writes it.

        A constant has its bytes in each memory, and needs no call. From one device to another is by way of main memory.
        """
        tensor = self.tensors[index]
        if tensor.storage == "constant":
            return self.add(replace(tensor, device=device))
        if tensor.device and device:
            return self.on(self.on(index, 0), device)
        if tensor.shape is None:
            raise UnsupportedError(
                f"'{tensor.name}' is to be copied to a device, and its rank is not known; leave the nodes that read it "
                "to a backend that computes in main memory",
                tensor=tensor.name,
            )
        copy = self.result(tensor.name, tensor.dtype, tensor.shape, device=device)
        self.calls.insert(self._written_by(index), Call("copy", (index,), (copy,)))
        return copy

    def _written_by(self, index: int) -> int:
        """Return the number of the first call before which the bytes of a tensor are there."""
        if self.tensors[index].storage == "extents":
            return len(self.calls)  # its symbols may be bound by any call so far
        owner = self._root(index)
        for step in reversed(range(len(self.calls))):
            if any(one >= 0 and self._root(one) == owner for one in self.calls[step].outputs):
                return step + 1
        return 0

    def _root(self, index: int) -> int:
        while self.tensors[index].storage == "view":
            index = self.tensors[index].of
        return index

    def take_inputs_on_devices(self, outputs: Sequence[int]) -> list[int]:
        """Let the caller give the inputs that nobody reads in main memory on the device that reads them.

        Returns the tensors that are ``outputs`` then.
        """
        results = list(outputs)
        uploaded = {call.inputs[0] for call in self.calls if is_upload(self.tensors, call)}
        for index in (one for one in self.inputs if one in uploaded):
            users = [call for call in self.calls if index in touched(call)]
            viewed = any(one.storage == "view" and one.of == index for one in self.tensors)
            copies = [call.outputs[0] for call in users if is_upload(self.tensors, call)]
            if viewed or index in results or len(users) != 1 or len(copies) != 1:
                continue
            (copy,) = copies
            self.tensors[index] = replace(self.tensors[index], device=self.tensors[copy].device)
            number = {one: index if one == copy else one for one in range(len(self.tensors))}
            self.calls = [_renumber(call, number) for call in self.calls if call is not users[0]]
            for other, tensor in enumerate(self.tensors):
                if tensor.storage == "view" and tensor.of == copy:
                    self.tensors[other] = replace(tensor, of=index)
            results = [number[one] for one in results]
        return results

    def inline(
        self,
        compiled: Procedure,
        inputs: Sequence[int],
        modules: int,
        keys: Mapping[str, str],
        into: Sequence[int] | None = None,
        device: int = 0,
    ) -> list[int]:
        """Append the calls of a compiled region and return the tensors of its outputs.

        ``inputs`` are the tensors passed, ``modules`` the number of the region's first module, ``keys`` the global
        keys of its constants, ``into`` existing tensors that take the outputs, ``device`` the memory it computes in.
        """
        inputs = [self.on(index, device) for index in inputs]
        here = {} if into is None else self._written_into(compiled, into)
        binding = {symbol.tensor for symbol in compiled.symbols}
        for index, tensor in enumerate(compiled.tensors):
            if index in here:
                continue
            match tensor.storage:
                case "input":
                    here[index] = inputs[tensor.index]
                case "constant":
                    here[index] = self.add(replace(tensor, constant=keys[tensor.constant], device=device))
                case "view":
                    here[index] = self.add(replace(tensor, of=here[tensor.of], device=device))
                case "extents":
                    here[index] = self.on(self.add(tensor), device)
                case _:
                    is_dynamic = tensor.storage == "dynamic" or index in binding
                    here[index] = self.result(
                        tensor.name, tensor.dtype, tensor.shape, is_dynamic=is_dynamic, device=device
                    )
        for call in compiled.calls:
            moved = _renumber(call, here)
            self.calls.append(replace(moved, module=modules + call.module) if call.kind == "call" else moved)
        outputs = [here[index] for index in compiled.outputs]
        for source, target in zip(outputs, into or (), strict=False):
            if source != target:
                self.calls.append(Call("copy", (source,), (target,)))
        return outputs if into is None else list(into)

    @staticmethod
    def _written_into(compiled: Procedure, into: Sequence[int]) -> dict[int, int]:
        """Return the outputs of a compiled region that its calls can write straight into existing tensors."""
        here: dict[int, int] = {}
        for index, target in zip(compiled.outputs, into, strict=True):
            if compiled.tensors[index].storage not in ("input", "constant", "view", "extents"):
                here.setdefault(index, target)
        return here

    def substitute(self, numbers: Mapping[str, int]) -> None:
        """Give symbols numbers, wherever shapes and values have them."""
        for index, tensor in enumerate(self.tensors if numbers else ()):
            shape = None if tensor.shape is None else tuple(substituted(one, numbers) for one in tensor.shape)
            values = tuple(substituted(one, numbers) for one in tensor.values)
            self.tensors[index] = replace(tensor, shape=shape, values=values)

    def replan(self) -> Procedure:
        """Return the procedure with its arena planned anew; inputs and outputs stay as they are."""
        self._resolve_views()
        return self._planned()

    def finish(self, outputs: Sequence[int], names: Sequence[str]) -> Procedure:
        """Resolve views, give outputs their storage, plan the arena and return the procedure."""
        self._resolve_views()
        self._place_outputs(outputs, names)
        return self._planned()

    def _copy_for_parts(self) -> None:
        """Copy tensors of known shape out of tensors with symbols where a part of them is viewed.

        Where such a part ends in memory can be checked of the copy, and not of what has another size in every call.
        """
        for index, tensor in enumerate(self.tensors):
            whole = tensor.of
            if tensor.storage != "view" or self.tensors[whole].storage != "view" or _is_symbolic(self.tensors[whole]):
                continue
            is_part = tensor.offset != 0 or self._bytes(index) != self._bytes(whole)
            if is_part and _is_symbolic(self.tensors[self._root(whole)]):
                source = self.tensors[whole].of
                self.tensors[whole] = replace(self.tensors[whole], storage="arena", of=-1, offset=0)
                self.calls.insert(self._written_by(source), Call("copy", (source,), (whole,)))

    def _resolve_views(self) -> None:
        """Make every view point at the tensor that owns its bytes."""
        self._copy_for_parts()
        for index, tensor in enumerate(self.tensors):
            if tensor.storage == "view" and self.tensors[tensor.of].storage == "view":
                base = self.tensors[tensor.of]
                self.tensors[index] = replace(tensor, of=base.of, offset=tensor.offset + base.offset)

    def _place_outputs(self, outputs: Sequence[int], names: Sequence[str]) -> None:
        """Let each output's owner be written straight into the caller's memory; copy where it cannot be.

        A copy is needed for an input or constant that is returned, a tensor returned twice, a view of a part, and a
        view of what binds symbols when it is computed. What is on a device stays there, but for a shape that is known
        only when the program has run in part.
        """
        self.outputs = []
        known = {extent for index in self.inputs for extent in self.tensors[index].shape or ()}

        def is_early(index: int) -> bool:
            return all(symbol in known for extent in self.tensors[index].shape or () for symbol in symbols_of(extent))

        for position, (given, name) in enumerate(zip(outputs, names, strict=True)):
            index = given if is_early(given) else self.on(given, 0)
            tensor = self.tensors[index]
            owner = self._owner(index)
            spec = TensorSpec(name, tensor.dtype, tensor.shape, "output", index=position, device=tensor.device)
            binds = owner != index and self.tensors[owner].storage == "dynamic" and not is_early(owner)
            if self.tensors[owner].storage in ("arena", "dynamic") and self._same_bytes(owner, index) and not binds:
                if owner != index:
                    self._make_view(owner, index)
                self.tensors[index] = spec
                self.outputs.append(index)
            else:
                copy = self.add(spec)
                self.calls.append(Call("copy", (index,), (copy,)))
                self.outputs.append(copy)

    def _same_bytes(self, owner: int, index: int) -> bool:
        if any(_is_symbolic(self.tensors[one]) for one in (owner, index)):
            return True  # such a view is all of its owner
        return self._bytes(owner) == self._bytes(index) and (owner == index or self.tensors[index].offset == 0)

    def _make_view(self, owner: int, index: int) -> None:
        """Exchange roles: ``index`` becomes the owner of the bytes, ``owner`` and its other views point at it."""
        for other, tensor in enumerate(self.tensors):
            if tensor.storage == "view" and tensor.of == owner:
                self.tensors[other] = replace(tensor, of=index)
        self.tensors[owner] = replace(self.tensors[owner], storage="view", of=index, offset=0)

    def _size(self, index: int) -> Extent | None:
        """Return the size of a tensor as an extent: equal ones are equal for all values of the symbols."""
        shape, bytes_each = self.tensors[index].shape, element_type(self.tensors[index].dtype).bytes
        try:
            return None if shape is None else multiply(bytes_each, *map(canonical, shape))
        except TooLargeError:
            return None

    def _room(self, index: int) -> int:
        """Return the most bytes that a tensor may have; raise ModelError where nothing bounds them."""
        static = self._bytes(index)
        return most_bytes(self.tensors[index], self.ranges) if static is None else static

    def _bytes(self, index: int) -> int | None:
        """Return the size of a tensor; None where it is known only when the program runs."""
        tensor = self.tensors[index]
        shape = tensor.static_shape
        return None if shape is None else contiguous_bytes(element_type(tensor.dtype).bytes, shape)

    def _planned(self) -> Procedure:
        """Return the procedure with owners first, unused tensors dropped and arena offsets given.

        With symbols in it, the runtime plans the arena, unless it is to be planned for the largest shapes.
        """
        spans = spans_of(self.tensors, self.calls)
        kept = [i for i, tensor in enumerate(self.tensors) if i in spans or tensor.storage in ("input", "output")]
        kept.sort(key=lambda i: (self.tensors[i].storage == "view", i))
        number = {old: new for new, old in enumerate(kept)}
        arena = [i for i in kept if self.tensors[i].storage == "arena"]
        is_symbolic = any(_is_symbolic(self.tensors[i]) for i in kept)
        is_later = is_symbolic and self.memory == "binding"
        plan, offsets, device_arenas = MemoryPlan((), 0, 0), dict.fromkeys(arena, 0), []
        for device in range(1 + max((self.tensors[i].device for i in kept), default=0)):
            there = [i for i in arena if self.tensors[i].device == device]
            one = MemoryPlan((0,) * len(there), 0, 0) if is_later or not there else self._plan(there, spans)
            offsets |= dict(zip(there, one.offsets, strict=True))
            if device:
                device_arenas.append(one.arena_bytes)
            else:
                plan = one
        tensors = []
        for old in kept:
            tensor = self.tensors[old]
            if tensor.storage == "view":
                tensor = replace(tensor, of=number[tensor.of])
            if old in offsets:
                room = self._room(old) if _is_symbolic(tensor) and not is_later else 0
                tensor = replace(tensor, offset=offsets[old], room=room)
            tensors.append(tensor)
        inputs = tuple(number[i] for i in self.inputs)
        outputs = tuple(number[i] for i in self.outputs)
        calls = tuple(_renumber(call, number) for call in self.calls)
        symbols = bound_symbols(tensors, inputs, calls, self.ranges)
        return Procedure(
            self.name, tuple(tensors), inputs, outputs, calls, plan.arena_bytes, plan.bound_bytes, symbols,
            bounds_of(symbols, self.ranges), checkable(self.equations, symbols),
            tuple(replace(one, tensor=number[one.tensor]) for one in self.reasons), tuple(device_arenas),
        )  # fmt: skip

    def _plan(self, arena: Sequence[int], spans: Mapping[int, tuple[int, int]]) -> MemoryPlan:
        place = {tensor: number for number, tensor in enumerate(arena)}
        on = self._replaced(spans) if self.reuse else {}
        lifetimes = [Lifetime(self._room(i), *spans[i], on=place.get(on.get(i, -1), -1)) for i in arena]
        return plan_memory(lifetimes) if self.reuse else plan_without_reuse(lifetimes)

    def _replaced(self, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return, by result that a call may write over a tensor that it is the last to use, that tensor."""
        found: dict[int, int] = {}
        for step, call in enumerate(self.calls):
            if not call.in_place or self.tensors[call.outputs[0]].storage != "arena":
                continue
            (result,) = call.outputs
            owners = [self._owner(index) if index >= 0 else -1 for index in call.inputs]
            for position in (one for one in call.in_place if owners[one] >= 0):
                owner, size = owners[position], self._size(call.inputs[position])
                everywhere = all(other in call.in_place for other, one in enumerate(owners) if one == owner)
                whole = size is not None and self._size(owner) == size == self._size(result)
                dies = self.tensors[owner].storage == "arena" and spans[owner][1] == spans[result][0] == step
                if everywhere and whole and dies:
                    found[result] = owner
                    break
        return found

    def _owner(self, index: int) -> int:
        return owner_of(self.tensors, index)


def _is_symbolic(tensor: TensorSpec) -> bool:
    return any(True for extent in (*(tensor.shape or ()), *tensor.values) for _ in symbols_of(extent))


def _renumber(call: Call, number: Mapping[int, int]) -> Call:
    def new(indices: Sequence[int]) -> tuple[int, ...]:
        return tuple(-1 if index < 0 else number[index] for index in indices)

    arguments = tuple(new(row) for row in call.arguments)
    return replace(call, inputs=new(call.inputs), outputs=new(call.outputs), arguments=arguments)
