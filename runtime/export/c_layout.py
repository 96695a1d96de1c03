"""Where the arena of a C project has what control flow needs: the values that go round, and the arenas of bodies.

A procedure's arena is its planned one, and behind it room that its calls of `If`, `Loop` and `Scan` share: for each
call its temporary values, then the arena of its body.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from graft.errors import ArtifactError
from graft.runtime.dtypes import element_type
from graft.runtime.extents import Extent, limits
from graft.runtime.procedure import ALIGNMENT, Call, Procedure

Temporary = tuple[str, int]
"""Which value of a call: ``("state", 1)`` is where the second value that goes round is written, by turns with its
output, or with ``other`` where nobody wants that; ``stack`` is a slice of an output that is stacked, ``slice`` one of
an input that is taken apart, ``result`` an output of a branch that nobody wants."""


@dataclass(frozen=True, slots=True)
class CallRoom:
    """Offsets in the arena of the procedure that has the call."""

    temporaries: Mapping[Temporary, int]
    bodies: int
    """Of the arena of whichever body runs."""
    end: int


@dataclass(frozen=True)
class Layout:
    """The arenas of the procedures of a program."""

    procedures: Sequence[Procedure]

    @cached_property
    def reached(self) -> tuple[int, ...]:
        """The numbers of the entry and of the bodies that it comes to, callees first."""
        return tuple(dict.fromkeys(self._reached_from(0)))

    def _reached_from(self, number: int) -> Iterator[int]:
        for call in self.procedures[number].calls:
            for body in call.bodies:
                yield from self._reached_from(body)
        yield number

    def bytes(self, number: int) -> int:
        """Return the bytes of a procedure's arena, with all that its calls need."""
        procedure = self.procedures[number]
        ends = [self.room(procedure, call).end for call in procedure.calls if call.bodies]
        return max(ends, default=_aligned(procedure.arena_bytes))

    def room(self, procedure: Procedure, call: Call) -> CallRoom:
        """Return where the values of a call of control flow are; raise ArtifactError where one has no largest size."""
        places, end = dict[Temporary, int](), _aligned(procedure.arena_bytes)
        for temporary, size in self._temporaries(procedure, call):
            places[temporary] = end
            end += _aligned(size)
        return CallRoom(places, end, end + max(self.bytes(body) for body in call.bodies))

    def _temporaries(self, procedure: Procedure, call: Call) -> Iterator[tuple[Temporary, int]]:
        body = self.procedures[call.bodies[0]]
        if call.kind == "if":
            for number, index in enumerate(call.outputs):
                if index < 0:
                    branches = (self.procedures[one] for one in call.bodies)
                    yield ("result", number), max(most_bytes(one, one.outputs[number]) for one in branches)
            return
        states = state_count(call)
        first_output = 1 if call.kind == "loop" else 0
        for number in range(states):
            size = most_bytes(body, body.outputs[first_output + number])
            yield ("state", number), size
            if call.outputs[number] < 0:
                yield ("other", number), size
        for number in range(len(call.outputs) - states):
            if call.outputs[states + number] < 0 or axis_of(call, "output", number, procedure):
                yield ("stack", number), most_bytes(body, body.outputs[first_output + states + number])
        for number in range(call.attributes.get("scan_inputs", 0)):
            if axis_of(call, "input", number, procedure):
                yield ("slice", number), most_bytes(body, body.inputs[states + number])


def state_count(call: Call) -> int:
    """Return how many values of a loop or a scan go round."""
    return len(call.inputs) - (2 if call.kind == "loop" else int(call.attributes["scan_inputs"]))


def axis_of(call: Call, role: str, number: int, procedure: Procedure) -> int:
    """Return the axis, from 0 on, along which an output is stacked, or an input (``role``) is taken apart."""
    if call.kind == "loop":
        return 0
    axis = int(call.attributes[f"{role}_axes"][number])
    index = (call.outputs if role == "output" else call.inputs)[state_count(call) + number]
    return axis if axis >= 0 else axis + len(procedure.tensors[index].shape or ())


def most_bytes(procedure: Procedure, index: int) -> int:
    """Return the most bytes that a tensor may have; raise ArtifactError where a dimension has no end."""
    tensor = procedure.tensors[index]
    highs = [(extent, most_of(procedure, extent)) for extent in tensor.shape or ()]
    for extent, high in highs:
        if math.isinf(high):
            raise ArtifactError(
                f"'{tensor.name}', a value of control flow, has the extent '{extent}', which has no end, and a C "
                "project has one arena; give each dimension a range",
                tensor=tensor.name,
                spelled={"give each dimension a range": "give each dimension a range with --dim"},
            )
    return math.prod(max(0, int(high)) for _, high in highs) * element_type(tensor.dtype).bytes


def most_of(procedure: Procedure, extent: Extent) -> float:
    """Return the most that an extent may be: infinite where it has no end."""
    ranges = {one.name: (float(one.low), math.inf if one.high is None else one.high) for one in procedure.symbols}
    return limits(extent, ranges)[1]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
