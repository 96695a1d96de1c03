"""Steps of loops as instructions: two loops are the instruction's own, the others become micro-ops.

Loops over the terms of a sum are outside of those over destinations, so that a step seldom meets the sum of the step
before; where a machine does not forward sums, a part of an instruction's own loop becomes micro-ops for that.
A kernel of micro-ops is there once for all instructions that use the same, and stays from stage to stage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from graft.core.tensor_ir.ir import Variable
from graft.plugins.accelerator.affine import Place, Values, value_at
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import Alu, Gemm, Instruction, Load, Memory, MicroOp
from graft.plugins.accelerator.stages import refuse
from graft.plugins.accelerator.tiling import MOST_TRIPS, SHARE


@dataclass(frozen=True, slots=True)
class Loop:
    """Variables that run together from ``start`` to ``stop``, and what an iteration adds to each place."""

    variables: tuple[Variable, ...]
    start: int
    stop: int
    steps: tuple[int, ...] = ()

    @property
    def extent(self) -> int:
        """The number of iterations."""
        return self.stop - self.start


@dataclass(slots=True)
class Kernels:
    """The micro-ops of a stage, from 0 on, and where each kernel of them begins.

    So many steps should lie between two of one destination, if loops allow it.
    """

    configuration: Configuration
    distance: int = 1
    micro_ops: list[MicroOp] = field(default_factory=list)
    known: dict[tuple[MicroOp, ...], int] = field(default_factory=dict)

    def steps(self, instruction: Gemm | Alu, places: Sequence[Place], extents: Values, zeroed: bool) -> Iterator[
        Instruction
    ]:  # fmt: skip
        """Yield the instructions of steps at places; where sums are ``zeroed``, the first of each replaces it."""
        loops = [Loop((variable,), 0, extent) for variable, extent in extents.items() if extent > 1]
        if not zeroed:
            yield self._instruction(instruction, places, loops)
            return
        summed = [one for one in loops if not places[0].terms.get(one.variables[0])]
        outer = [one for one in loops if one not in summed]
        assert isinstance(instruction, Gemm), instruction
        yield self._instruction(replace(instruction, reset=True), places, outer)
        if math.prod(one.extent for one in summed) > self.configuration.micro_op_entries // SHARE:
            for number, one in enumerate(summed):
                rest = [*outer, replace(one, start=1), *summed[number + 1 :]]
                yield self._instruction(instruction, places, rest)
        elif summed:
            yield self._instruction(instruction, places, outer, summed)

    def _instruction(
        self, instruction: Gemm | Alu, places: Sequence[Place], loops: Sequence[Loop], summed: Sequence[Loop] = ()
    ) -> Instruction:
        """Return the instruction of loops; those ``summed`` are micro-ops, without the first step of all of them."""

        def moves(one: Loop) -> bool:
            return bool(places[0].terms.get(one.variables[0]))

        # The operations on one entry keep their order: the proof knows nothing of them.
        free = loops if isinstance(instruction, Gemm) else [one for one in loops if moves(one)]
        own = sorted(self._own(places, free), key=moves)
        inside = {variable for one in own for variable in one.variables}
        inner = sorted((one for one in (*summed, *loops) if one.variables[0] not in inside), key=moves)
        begin = {one.variables[0]: one.start for one in loops if one.variables[0] in inside}
        own, along = self._interleaved(own, [one.extent for one in inner], sum(map(moves, inner)))
        names, micro_ops = [one.variables[0] for one in inner], list[MicroOp]()
        for values in product(*(range(one.start, one.stop) for one in inner)):
            if not summed or any(values[: len(summed)]):
                point = {**begin, **dict(zip(names, values, strict=True))}
                micro_ops += _row([value_at(place, point) for place in places], along)
        fields: dict[str, Any] = self._kernel(tuple(micro_ops))
        for name, one in zip(("inner", "outer"), reversed(own), strict=False):
            fields[name] = one.extent
            for operand, step in zip(("destination", "source", "weight"), one.steps, strict=False):
                fields[f"{operand}_{name}"] = step
        return replace(instruction, **fields)

    def _interleaved(self, own: list[Loop], inner: Sequence[int], moving: int) -> tuple[list[Loop], Loop | None]:
        """Return an instruction's own loops without a part of one, and that part, which becomes micro-ops.

        ``inner`` are the extents of the micro-ops' loops, of which the last, ``moving``, go over destinations. The part
        makes as many of them as steps of one destination are to be apart, or as many as there is room for.
        """
        apart, count = math.prod(inner[len(inner) - moving :]), math.prod(inner)
        if apart == count or apart >= self.distance:
            return own, None
        most = self.configuration.micro_op_entries // SHARE // count
        ways = [
            (one, part)
            for one in own
            if one.steps[0]
            for part in range(2, min(one.extent, most) + 1)
            if one.extent % part == 0
            and (part == one.extent or self._fits(replace(one, steps=_times(one.steps, part))))
        ]
        if not ways:
            return own, None
        one, part = min(ways, key=lambda way: (way[1] * apart < self.distance, abs(way[1] * apart - self.distance)))
        left = replace(one, start=0, stop=one.extent // part, steps=_times(one.steps, part))
        rest = [left if other is one else other for other in own]
        return [other for other in rest if other.extent > 1], replace(one, start=0, stop=part)

    def _own(self, places: Sequence[Place], loops: Sequence[Loop]) -> list[Loop]:
        """Return the two longest loops that an instruction can have, those that are one in each other joined."""
        joined: list[Loop] = []
        for loop in loops:
            (variable,) = loop.variables
            one = replace(loop, steps=tuple(place.terms.get(variable, 0) for place in places))
            before = joined[-1] if joined else None
            follows = before and before.steps == tuple(step * one.extent for step in one.steps)
            if before and follows and not before.start and not one.start and before.extent * one.extent < MOST_TRIPS:
                joined[-1] = replace(one, variables=(*before.variables, variable), stop=before.extent * one.extent)
            else:
                joined.append(one)
        fitting = [one for one in joined if self._fits(one)]
        longest = sorted(fitting, key=lambda one: -one.extent)[:2]
        return [one for one in fitting if one in longest]

    def _fits(self, loop: Loop) -> bool:
        """Whether an instruction can have a loop as its own."""
        widths = self.configuration.micro_op_widths
        steps = zip(loop.steps, widths, strict=False)
        return loop.extent < MOST_TRIPS and all(0 <= step < 1 << width for step, width in steps)

    def _kernel(self, micro_ops: tuple[MicroOp, ...]) -> dict[str, Any]:
        begin = self.known.setdefault(micro_ops, len(self.micro_ops))
        if begin == len(self.micro_ops):
            self.micro_ops += micro_ops
        return {"begin": begin, "end": begin + len(micro_ops)}


def _times(steps: Sequence[int], factor: int) -> tuple[int, ...]:
    return tuple(step * factor for step in steps)


def _row(first: Sequence[int], along: Loop | None) -> Iterator[MicroOp]:
    """Yield a micro-op, and those beside it along a part of a loop."""
    for number in range(along.extent if along else 1):
        steps = _times(along.steps, number) if along else (0,) * len(first)
        yield MicroOp(*(place + step for place, step in zip(first, steps, strict=True)))


@dataclass(slots=True)
class KernelMemory:
    """The memory of micro-ops: a ring that keeps those of earlier stages as long as there is room."""

    entries: int
    address: int
    micro_ops: list[MicroOp] = field(default_factory=list)
    resident: dict[tuple[MicroOp, ...], int] = field(default_factory=dict)
    end: int = 0

    def place(self, name: str, micro_ops: Sequence[MicroOp]) -> tuple[int, list[Instruction]]:
        """Return where a stage's micro-ops stand, and the load that brings them if they are new."""
        key = tuple(micro_ops)
        if key in self.resident:
            return self.resident[key], []
        if len(key) > self.entries:
            raise refuse(name, f"size: {len(key)} micro-ops, and there is room for {self.entries}")
        if self.end + len(key) > self.entries:
            self.resident.clear()
            self.end = 0
        self.resident[key], start = self.end, len(self.micro_ops)
        self.end += len(key)
        self.micro_ops += key
        base = self.resident[key]
        return base, [Load(memory=Memory.MICRO_OP, sram=base, dram=self.address + start, columns=len(key))]
