"""Tokens from data dependences: instructions in the order of their meaning become a program whose units may run ahead.

For each instruction, the last one of each other unit that it depends on is known. What a unit knows to be done, by its
own tokens and by what those who gave them knew, needs no token again. Both sides of a queue rise, so that the n-th
token taken is the n-th that was given, and no instruction needs two of one queue.

Instructions that run one after another, as they stand, never find a queue of tokens full: where one would be, a later
token is waited for. What can be done so can be done in whatever order the units choose, with queues of any depth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graft.plugins.accelerator.isa import Alu, Finish, Gemm, Instruction, Load, Store, Unit, unit_of
from graft.plugins.accelerator.program import Program
from graft.plugins.accelerator.proof.hazards import conflicts_of

Needs = list[dict[Unit, int]]
"""By instruction, the last instruction of each other unit that must be done before it starts."""
RELAYS: dict[Unit, Instruction] = {
    Unit.LOAD: Load(rows=0, columns=0), Unit.GEMM: Gemm(outer=0), Unit.ALU: Alu(outer=0),
    Unit.STORE: Store(rows=0, columns=0),
}  # fmt: skip
"""Instructions that only hand tokens on."""


def with_tokens(program: Program) -> Program:
    """Return a program whose instructions, without tokens so far, run as if one after another.

    Raise ProofError where an access is wrong in any order. Only neighbours exchange tokens: between units that are
    none, instructions that do nothing hand them on.
    """
    return with_tokens_and_places(program)[0]


def with_tokens_and_places(program: Program) -> tuple[Program, tuple[int, ...]]:
    """Return likewise, and where each of the instructions stands now."""
    depth = program.configuration.token_depth
    instructions, places = tokens_for(program.instructions, _needs(program), depth)
    return replace(program, instructions=instructions), places


def _needs(program: Program) -> Needs:
    units = [unit_of(instruction) for instruction in program.instructions]
    needs: Needs = [
        {unit: other for unit, other in zip(Unit, others, strict=True) if other >= 0}
        for others in conflicts_of(program, range(len(units))).others.tolist()
    ]
    last: dict[Unit, int] = {}
    for index, instruction in enumerate(program.instructions):
        if isinstance(instruction, Finish):
            needs[index] |= {unit: before for unit, before in last.items() if unit != units[index]}
        last[units[index]] = index
    return needs


def tokens_for(
    instructions: Sequence[Instruction], needs: Needs, depth: int
) -> tuple[tuple[Instruction, ...], tuple[int, ...]]:
    """Return the instructions with the tokens that make what they need happen before them, and their places.

    A queue holds at most ``depth`` tokens.
    """
    builder = _Builder(depth)
    places: list[int] = []
    for instruction, need in zip(instructions, needs, strict=True):
        wanted = {unit: places[index] for unit, index in need.items()}
        places.append(builder.add(instruction, wanted))
    flagged = zip(builder.instructions, builder.flags, strict=True)
    return tuple(replace(one, **flags) if flags else one for one, flags in flagged), tuple(places)  # type: ignore[arg-type] # flags


@dataclass(slots=True)
class _Builder:
    """The instructions so far, their tokens, and by instruction what is done, by unit, when it is."""

    depth: int
    instructions: list[Instruction] = field(default_factory=list)
    flags: list[dict[str, bool]] = field(default_factory=list)
    done: list[list[int]] = field(default_factory=list)
    known: dict[Unit, list[int]] = field(default_factory=lambda: {unit: [-1] * len(Unit) for unit in Unit})
    takers: dict[tuple[Unit, Unit], list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, instruction: Instruction, need: dict[Unit, int]) -> int:
        """Append an instruction with tokens for its needs; return its place."""
        unit, flags, takers = unit_of(instruction), dict[str, bool](), list[list[int]]()
        known = self.known[unit]
        for direction in (-1, 1):
            side = {
                other: place for other, place in need.items() if (other - unit) * direction > 0 and place > known[other]
            }
            if not side:
                continue
            giver = self._giver(Unit(unit + direction), unit, side)
            flags["pop_previous" if direction < 0 else "pop_next"] = True
            self.flags[giver]["push_next" if direction < 0 else "push_previous"] = True
            known[:] = map(max, known, self.done[giver])
            takers.append(self.takers[Unit(unit + direction), unit])
        place = len(self.instructions)
        for one in takers:
            one.append(place)
        known[unit] = place
        self.instructions.append(instruction)
        self.flags.append(flags)
        self.done.append(list(known))
        return place

    def _giver(self, neighbour: Unit, unit: Unit, side: dict[Unit, int]) -> int:
        """Return the instruction of a neighbour that knows all that is needed of it and the units behind it.

        It stands behind the taker of the token that is as many before as the queue holds.
        """
        takers = self.takers[neighbour, unit]
        free = takers[-self.depth] if len(takers) >= self.depth else -1
        for place in (side.get(neighbour, -1), self.known[neighbour][neighbour]):
            if place > free and all(need <= self.done[place][other] for other, need in side.items()):
                return place
        return self.add(RELAYS[neighbour], {other: need for other, need in side.items() if other is not neighbour})
