"""Control flow as C: branches and loops around the functions of bodies.

A value that goes round is written by turns into a temporary place and into the output that it becomes, so that a body
never writes what it reads. Slices that are stacked are written where they stay, if they are contiguous there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graft.errors import ArtifactError
from graft.runtime.c_operators import cast, displaced, infix, prefix, product
from graft.runtime.export.c_layout import CallRoom, axis_of, state_count
from graft.runtime.export.c_scope import CScope
from graft.runtime.extents import Extent
from graft.runtime.procedure import Call

Shape = Sequence[Extent]


def control_lines(scope: CScope, call: Call) -> Iterator[str]:
    """Yield the statements of a call of kind ``if``, ``loop`` or ``scan``."""
    room = scope.program.layout.room(scope.procedure, call)
    match call.kind:
        case "if":
            yield from _if_lines(scope, call, room)
        case "loop" | "scan":
            yield from _Iteration(scope, call, room).lines()
        case _:
            raise AssertionError(call)


def _body_lines(
    scope: CScope, number: int, room: CallRoom, inputs: Sequence[str], shapes: Sequence[Shape], outputs: Sequence[str]
) -> Iterator[str]:
    """Yield the call of a body; ``shapes`` are those that its inputs have here, and its symbols their extents."""
    body = CScope(scope.program, number)
    symbols = [
        scope.text(shapes[body.procedure.inputs.index(symbol.tensor)][symbol.axis]) for symbol in body.procedure.symbols
    ]
    arguments = ", ".join(["context", displaced("arena", room.bodies), *symbols, *inputs, *outputs])
    yield f"status = {body.function}({arguments});"
    yield "if (status != GRAFT_OK) return status;"


def _if_lines(scope: CScope, call: Call, room: CallRoom) -> Iterator[str]:
    outputs = [
        scope.values(index) if index >= 0 else displaced("arena", room.temporaries["result", number])
        for number, index in enumerate(call.outputs)
    ]
    yield f"if ({_read('bool', scope.values(call.inputs[0]))}) {{"
    for number, (body, arguments) in enumerate(zip(call.bodies, call.arguments, strict=True)):
        yield from ["} else {"] if number else []
        values, shapes = [*map(scope.values, arguments)], [*map(scope.shape, arguments)]
        yield from _inner(_body_lines(scope, body, room, values, shapes, outputs))
    yield "}"


class _Iteration:
    """What a loop and a scan have in common."""

    def __init__(self, scope: CScope, call: Call, room: CallRoom) -> None:
        self.scope, self.call, self.room = scope, call, room
        self.is_loop = call.kind == "loop"
        self.states = state_count(call)
        self.first_input = 2 if self.is_loop else 0
        self.stacks = call.outputs[self.states :]
        self.slices = [] if self.is_loop else call.inputs[self.states :]
        self.body = CScope(scope.program, call.bodies[0])
        self._check_states()

    def _check_states(self) -> None:
        procedure = self.body.procedure
        outputs = procedure.outputs[1 if self.is_loop else 0 :]
        for number in range(self.states):
            before = procedure.tensors[procedure.inputs[self.first_input + number]]
            after = procedure.tensors[outputs[number]]
            if before.shape != after.shape:
                raise ArtifactError(
                    f"'{after.name}' has another shape after an iteration than '{before.name}' before it, which has no "
                    "C form; export the program as a library",
                    tensor=after.name,
                )

    def lines(self) -> Iterator[str]:
        """Yield the whole statement."""
        yield "{"
        yield from _inner(self._begin())
        yield "  for (; graft_go && graft_round < graft_trips; ++graft_round) {"
        yield from _inner(_inner(self._step()))
        yield "  }"
        yield from _inner(self._end())
        yield "}"

    def _begin(self) -> Iterator[str]:
        scope, call = self.scope, self.call
        trips, go = "INT64_MAX", "true"
        if not self.is_loop:
            trips = self._length(0)
            for number in range(1, len(self.slices)):
                if self._length(number) != trips:
                    yield f"if ({infix(self._length(number), '!=', trips)}) return {self._error('INPUT')};"
        elif call.inputs[0] >= 0:
            trips = _read("int64_t", scope.values(call.inputs[0]))
        if self.is_loop and call.inputs[1] >= 0:
            go = _read("bool", scope.values(call.inputs[1]))
        yield f"const int64_t graft_trips = {trips};"
        yield "int64_t graft_round = 0;"
        yield f"bool graft_go = {go};"
        for number in range(self.states):
            index = call.inputs[self.first_input + number]
            output = call.outputs[number]
            other = scope.values(output) if output >= 0 else self._temporary("other", number)
            yield f"const void *graft_state{number} = {scope.values(index)};"
            yield f"void *graft_to{number} = {self._temporary('state', number)};"
            yield f"void *graft_other{number} = {other};"
        for number, index in enumerate(self.stacks):
            if index >= 0:
                yield f"const int64_t graft_room{number} = {self._capacity(number, index)};"

    def _step(self) -> Iterator[str]:
        scope, call = self.scope, self.call
        for number, index in enumerate(self.stacks):
            if index >= 0:
                full = "MEMORY" if self._is_counted(index) else "RUN"
                yield f"if (graft_round >= graft_room{number}) return {self._error(full)};"
        for number in range(len(self.slices)):
            yield from self._take(number)
        states = [f"graft_state{number}" for number in range(self.states)]
        inputs = [*(["&graft_round", "&graft_go"] if self.is_loop else []), *states]
        inputs += [self._slice(number) for number in range(len(self.slices))]
        inputs += map(scope.values, call.arguments[0])
        outputs = [*(["&graft_next"] if self.is_loop else []), *(f"graft_to{number}" for number in range(self.states))]
        outputs += [self._slot(number, index) for number, index in enumerate(self.stacks)]
        if self.is_loop:
            yield "bool graft_next = true;"
        yield from _body_lines(scope, self.body.number, self.room, inputs, self._shapes(), outputs)
        for number, index in enumerate(self.stacks):
            yield from self._store(number, index)
        for number in range(self.states):
            yield f"void *const graft_written{number} = graft_to{number};"
            yield f"graft_to{number} = graft_other{number};"
            yield f"graft_state{number} = graft_other{number} = graft_written{number};"
        if self.is_loop:
            yield "graft_go = graft_next;"

    def _shapes(self) -> list[Shape]:
        """Return the shapes of the body's inputs as they are here: slices without their axis, scalars without any."""
        given = [*self.call.inputs[self.first_input :], *self.call.arguments[0]]
        shapes: list[list[Extent]] = [list(self.scope.shape(index)) for index in given]
        for number in range(len(self.slices)):
            del shapes[self.states + number][axis_of(self.call, "input", number, self.scope.procedure)]
        return [*([] for _ in range(self.first_input)), *shapes]

    def _end(self) -> Iterator[str]:
        for number in range(self.states):
            index = self.call.outputs[number]
            if index >= 0:
                size = self.scope.size(self.call.inputs[self.first_input + number])
                yield f"(void)memmove({self.scope.values(index)}, graft_state{number}, {size});"
        for number, index in enumerate(self.stacks):
            if index >= 0 and not self._is_counted(index):
                yield f"if (graft_round != graft_room{number}) return {self._error('RUN')};"
            elif index >= 0:
                yield f"{self._capacity(number, index)} = graft_round;"

    def _error(self, kind: str) -> str:
        return f"{self.scope.program.name.upper()}_ERROR_{kind}"

    def _temporary(self, role: str, number: int) -> str:
        return displaced("arena", self.room.temporaries[role, number])

    def _axis(self, number: int) -> int:
        return axis_of(self.call, "output", number, self.scope.procedure)

    def _is_counted(self, index: int) -> bool:
        """Whether the caller is told how many slices of an output there are."""
        return any(symbol.tensor == index for symbol in self.scope.program.late_symbols(self.scope.procedure))

    def _capacity(self, number: int, index: int) -> str:
        """Return how many slices an output has room for."""
        return self.scope.text(self.scope.shape(index)[self._axis(number)])

    # ---- Slices of inputs ---------------------------------------------------------------------------------------

    def _length(self, number: int) -> str:
        axis = axis_of(self.call, "input", number, self.scope.procedure)
        return self.scope.text(self.scope.shape(self.slices[number])[axis])

    def _position(self, role: str, number: int, length: str) -> str:
        is_backward = not self.is_loop and self.call.attributes[f"{role}_directions"][number]
        return infix(infix(length, "-", "1"), "-", "graft_round") if is_backward else "graft_round"

    def _slice(self, number: int) -> str:
        if ("slice", number) in self.room.temporaries:
            return self._temporary("slice", number)
        index = self.slices[number]
        place = self._position("input", number, self._length(number))
        first = cast("const char *", self.scope.values(index))
        return infix(first, "+", infix(place, "*", self.scope.bytes(index, 1)))

    def _take(self, number: int) -> Iterator[str]:
        """Yield copies of the rows of a slice that is not contiguous where it lies."""
        if ("slice", number) not in self.room.temporaries:
            return
        index, axis = self.slices[number], axis_of(self.call, "input", number, self.scope.procedure)
        place = self._position("input", number, self._length(number))
        source = cast("const char *", self.scope.values(index))
        yield from self._rows(index, axis, place, self._temporary("slice", number), source, True)

    # ---- Slices of outputs --------------------------------------------------------------------------------------

    def _slot(self, number: int, index: int) -> str:
        if ("stack", number) in self.room.temporaries:
            return self._temporary("stack", number)
        place = self._position("output", number, f"graft_room{number}")
        return infix(cast("char *", self.scope.values(index)), "+", infix(place, "*", self.scope.bytes(index, 1)))

    def _store(self, number: int, index: int) -> Iterator[str]:
        if index < 0 or ("stack", number) not in self.room.temporaries:
            return
        place = self._position("output", number, f"graft_room{number}")
        target = cast("char *", self.scope.values(index))
        slot = self._temporary("stack", number)
        yield from self._rows(index, self._axis(number), place, slot, target, False)

    def _rows(self, index: int, axis: int, place: str, slice_: str, whole: str, takes: bool) -> Iterator[str]:
        """Yield the loop that copies the rows of a slice out of a whole, or into it."""
        scope = self.scope
        rows = infix("graft_row", "<", product(map(scope.text, scope.shape(index)[:axis])))
        length = scope.text(scope.shape(index)[axis])
        size = scope.bytes(index, axis + 1)
        yield f"for (int64_t graft_row = 0, graft_bytes = {size}; {rows}; ++graft_row) {{"
        first = infix(infix("graft_row", "*", length), "+", place)
        inner = infix(whole, "+", infix(first, "*", "graft_bytes"))
        own = infix(slice_, "+", infix("graft_row", "*", "graft_bytes"))
        target, source = (own, inner) if takes else (inner, own)
        yield f"  (void)memcpy({target}, {source}, (size_t)graft_bytes);"
        yield "}"


def _read(kind: str, place: str) -> str:
    """Return the scalar at a place."""
    return prefix("*", cast(f"const {kind} *", place))


def _inner(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
