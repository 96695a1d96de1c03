"""The proof that a program means one thing: whatever the speed of its units, it computes the same.

Every two accesses of an entry of which one writes are ordered by tokens; nothing is read that was not written; every
index is inside its memory, and every address inside a tensor that may be accessed so. Where it is known what the
program was made of, its outputs hold what that means.
"""

from __future__ import annotations

import numpy as np

from graft.plugins.accelerator.program import Program
from graft.plugins.accelerator.proof.contents import Source, check_contents, contents_before
from graft.plugins.accelerator.proof.hazards import conflicts_of, granule, spelled
from graft.plugins.accelerator.proof.tokens import Order, named, order_of, refuse


def prove(program: Program, source: Source | None = None) -> Order:
    """Return the order of a program that is safe; raise ProofError, which names the instructions, if it is not."""
    contents = contents_before(program) if source else None
    size = granule(program.configuration)
    for tensor in program.tensors:
        if not tensor.role.is_constant and (tensor.offset % size or tensor.size % size):
            refuse(
                f"tensor '{tensor.name}' of {tensor.size} bytes at {tensor.offset} is not made of {size}-byte blocks"
            )
    order = order_of(program)
    found = conflicts_of(program, order.sequence, contents)
    places, clocks = np.array(order.places), np.array(order.clocks)
    racing = (found.others >= 0) & (clocks <= places[found.others])
    for second, unit in np.argwhere(racing):  # none is done when the other starts: what races meets in every order
        first, last = sorted((int(found.others[second, unit]), int(second)))
        where = spelled(program, int(found.places[second, unit]), int(found.entries[second, unit]))
        refuse(
            f"{named(program, first)} and {named(program, last)} both access {where}, one of them writes it, "
            "and no token orders them",
            first,
            last,
        )
    if source is not None and contents is not None:
        check_contents(program, source, contents)
    return order
