"""The primitive that fetches memory into a cache ahead of use: prefetch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graft.core.affine.linear import Linear
from graft.core.schedule.primitives.statements import LINE
from graft.core.schedule.primitives.step import Step, bounded, combine, find, index, with_body, with_loop
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir import ir, visit
from graft.core.types import element_bits

SECOND_LEVEL = 2
"""The cache that memory is fetched into, as ``prefetch`` counts: 3 is the first level."""


@dataclass(frozen=True, slots=True)
class Prefetch(Step):
    """Each iteration of a loop fetches, line by line, what lies some bytes behind what it reads of a flat buffer.

    Behind the end of the buffer nothing is read: a fetch is a hint, which no result depends on.
    """

    form = "prefetch {buffer} at {loop} {ahead}"
    buffer: str
    loop: str
    ahead: int

    def change(self, function: ir.Function) -> ir.Function:
        """Return the function with fetches before what the loop does."""
        loop, simplifier = find(self, function.body, self.loop), bounded(function.body)
        body = [*visit.walk_statements(lower_loops(loop.body, function.body))]
        inner = {one.variable for one in body if isinstance(one, ir.For | ir.Let)}
        read = [load for one in body for load in visit.loads(*visit.statement_expressions(one))]
        read = [load for load in read if load.buffer.name == self.buffer]
        if not read or any(len(load.indices) != 1 for load in read):
            self.fail(f"'{self.loop}' does not read '{self.buffer}', or not as one flat piece of memory")
        if any(visit.free_variables(*load.indices) & inner for load in read):
            self.fail(f"where it reads '{self.buffer}' changes within an iteration of '{self.loop}'")
        first, *others = (simplifier.form(simplifier(load.indices[0])) for load in read)
        apart = [one.plus(first, -1) for one in others]
        if any(one.terms for one in apart) or any(one.lane not in (0, 1) for one in (first, *others)):
            self.fail(f"the places in '{self.buffer}' that '{self.loop}' reads have no fixed distance")
        begin = min(0, *(one.constant for one in apart)) if apart else 0
        ends = (one.constant + load.type.lanes for one, load in zip((Linear[int](), *apart), read, strict=True))
        base = simplifier.build(replace(first, constant=first.constant + begin, lane=0, lanes=1))
        buffer, size = read[0].buffer, element_bits(read[0].buffer.dtype) // 8
        start = combine("add", base, index(self.ahead // size))
        places = (combine("add", start, index(offset)) for offset in range(0, max(ends) - begin, LINE // size))
        fetches = (ir.CallExtern("prefetch", (ir.Load(buffer, (at,)), index(SECOND_LEVEL))) for at in places)
        fetched = replace(loop, body=ir.Block((*fetches, loop.body)))
        return with_body(function, with_loop(function.body, loop.variable, lambda _: fetched))
