"""The proof that a program means one thing: whatever the speed of its units, it computes the same.

Every two accesses of an entry of which one writes are ordered by tokens; nothing is read that was not written; every
index is inside its memory, and every address inside a tensor that may be accessed so.
"""

from __future__ import annotations

from collections.abc import Callable

from graft.plugins.accelerator.hazards import Hazards, granule
from graft.plugins.accelerator.isa import unit_of
from graft.plugins.accelerator.program import Program
from graft.plugins.accelerator.tokens import Order, named, order_of, refuse


def prove(program: Program) -> Order:
    """Return the order of a program that is safe; raise ProofError, which names the instructions, if it is not."""
    size = granule(program.configuration)
    for tensor in program.tensors:
        if not tensor.role.is_constant and (tensor.offset % size or tensor.size % size):
            refuse(
                f"tensor '{tensor.name}' of {tensor.size} bytes at {tensor.offset} is not made of {size}-byte blocks"
            )
    order = order_of(program)

    def check_ordered(first: int, second: int, where: Callable[[], str]) -> None:
        """Check that one instruction is done when the other starts; what races meets in every order."""
        unit = unit_of(program.instructions[first])
        if order.clocks[second][unit] <= order.places[first]:
            first, second = sorted((first, second))
            refuse(
                f"{named(program, first)} and {named(program, second)} both access {where()}, one of them writes it, "
                "and no token orders them",
                first,
                second,
            )

    Hazards(program, order.sequence, check_ordered).run()
    return order
