"""Tokens from data dependences: instructions in the order of their meaning become a program whose units may run ahead.

For each instruction and each neighbour unit, the last instruction there that it depends on is known. It takes a token
unless an earlier one of its unit has waited for as much, and that last instruction gives it. Both sides rise, so that
the n-th token taken is the n-th that was given, and no instruction needs two of one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graft.plugins.accelerator.hazards import Hazards
from graft.plugins.accelerator.isa import Finish, Instruction, Load, Memory, Unit, unit_of
from graft.plugins.accelerator.program import Program

Needs = list[dict[Unit, int]]
"""By instruction, the last instruction of each other unit that must be done before it starts."""
NOTHING = Load(memory=Memory.MICRO_OP, rows=0, columns=0)
"""An instruction of the compute unit that only hands tokens on."""


def with_tokens(program: Program) -> Program:
    """Return a program whose instructions, without tokens so far, run as if one after another.

    Raise ProofError where an access is wrong in any order. Load and store never exchange tokens: between them an
    instruction of the compute unit is used, or put in.
    """
    needs = _needs(program)
    bridged = _bridged(program, needs)
    if len(bridged) > len(program.instructions):
        program = replace(program, instructions=bridged)
        needs = _needs(program)
    needs = _relayed(program, needs)
    return replace(program, instructions=_tokens(program.instructions, needs))


def _needs(program: Program) -> Needs:
    units = [unit_of(instruction) for instruction in program.instructions]
    needs: Needs = [{} for _ in units]

    def depend(first: int, second: int, where: str) -> None:
        unit = units[first]
        if unit != units[second]:
            needs[second][unit] = max(first, needs[second].get(unit, -1))

    Hazards(program, range(len(units)), depend).run()
    for index, instruction in enumerate(program.instructions):
        if isinstance(instruction, Finish):
            for unit in (Unit.LOAD, Unit.STORE):
                before = [other for other in range(index) if units[other] is unit]
                needs[index] |= {unit: before[-1]} if before else {}
    return needs


def _bridged(program: Program, needs: Needs) -> tuple[Instruction, ...]:
    """Put an instruction of the compute unit between those of load and store that depend on each other without one."""
    units = [unit_of(instruction) for instruction in program.instructions]
    result: list[Instruction] = []
    for index, need in enumerate(needs):
        far = _far(need, units[index])
        if far is not None and Unit.COMPUTE not in units[far + 1 : index]:
            result.append(NOTHING)
        result.append(program.instructions[index])
    return tuple(result)


def _far(need: dict[Unit, int], unit: Unit) -> int | None:
    """Return what an instruction of load needs of store, or one of store of load."""
    return None if unit is Unit.COMPUTE else need.get(Unit.STORE if unit is Unit.LOAD else Unit.LOAD)


def _relayed(program: Program, needs: Needs) -> Needs:
    """Replace needs between load and store by two, through the last instruction of the compute unit between them."""
    units = [unit_of(instruction) for instruction in program.instructions]
    for index, need in enumerate(needs):
        far = _far(need, units[index])
        if far is not None:
            between = max(other for other in range(far + 1, index) if units[other] is Unit.COMPUTE)
            del need[units[far]]
            need[Unit.COMPUTE] = max(between, need.get(Unit.COMPUTE, -1))
            needs[between][units[far]] = max(far, needs[between].get(units[far], -1))
    return needs


def _tokens(instructions: Sequence[Instruction], needs: Needs) -> tuple[Instruction, ...]:
    flags: list[dict[str, bool]] = [{} for _ in instructions]
    waited: dict[tuple[Unit, Unit], int] = {}
    for index, instruction in enumerate(instructions):
        unit = unit_of(instruction)
        for other, last in needs[index].items():
            if last > waited.get((other, unit), -1):
                waited[other, unit] = last
                flags[index]["pop_previous" if other < unit else "pop_next"] = True
                flags[last]["push_next" if other < unit else "push_previous"] = True
    return tuple(replace(one, **flags[index]) for index, one in enumerate(instructions))  # type: ignore[arg-type] # flags
