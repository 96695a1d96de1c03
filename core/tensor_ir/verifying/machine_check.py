"""What a statement or a function asks of a machine that it lacks: levels, memories, vectors.

Vectors that are computed may be wider than a register, for emitters cut them; those that are read or written at one
time may not.
"""

from __future__ import annotations

from collections.abc import Iterator

from graft.core.machine.machine import REGISTER, Machine
from graft.core.tensor_ir.ir import Allocate, Barrier, Buffer, For, Function, Issue, Load, Statement, Store, level_of
from graft.core.tensor_ir.printer import print_expression, print_statement
from graft.core.tensor_ir.visit import statement_expressions, walk_expressions, walk_statements
from graft.core.types import element_bits

WORD = 32
"""Elements with more bits are indices, of which vectors take several registers on every machine that has any."""


def machine_faults(function: Function, machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield what a machine lacks for a function, each with the text of the place that asks for it."""
    for buffer in function.parameters:
        yield from _memory_fault(buffer, machine, f"function {function.name}")
    for statement in walk_statements(function.body):
        if isinstance(statement, Store):
            yield from _vector_fault(statement.buffer, statement.value.type.lanes, machine, statement)
        for node in walk_expressions(*statement_expressions(statement)):
            if isinstance(node, Load):
                yield from _vector_fault(node.buffer, node.type.lanes, machine, node)


def machine_fault(statement: Statement, machine: Machine) -> str | None:
    """Return what a statement asks of a machine that it lacks, None if it has all."""
    match statement:
        case For(binding=binding) if binding:
            kind, name, known = "level", level_of(binding), [level.name for level in machine.levels]
        case Barrier(name) | Issue(name):
            kind, known = "level", [level.name for level in machine.levels]
        case Allocate(buffer):
            kind, name, known = "memory", buffer.memory, list(machine.places)
        case _:
            return None
    if name in known:
        return None
    return f"no {kind} '{name}' on the machine '{machine.name}', which has {', '.join(known) or 'none'}"


def _memory_fault(buffer: Buffer, machine: Machine, place: str) -> Iterator[tuple[str, str]]:
    if buffer.memory not in machine.places:
        known = ", ".join(machine.places)
        what = (
            f"'{buffer.name}' is in memory '{buffer.memory}', which the machine '{machine.name}' lacks; it has {known}"
        )
        yield what, place


def _vector_fault(buffer: Buffer, lanes: int, machine: Machine, place: Load | Statement) -> Iterator[tuple[str, str]]:
    bits = element_bits(buffer.dtype)
    fits = bits > WORD and machine.vectors
    if lanes == 1 or fits or lanes * bits <= 8 * machine.vector_bytes or buffer.memory == REGISTER:
        return
    widest = f"vectors of {8 * machine.vector_bytes} bits" if machine.vectors else "no vectors"
    text = print_expression(place) if isinstance(place, Load) else print_statement(place)
    yield f"{lanes} lanes of {buffer.dtype} at one time, where the machine '{machine.name}' has {widest}", text
