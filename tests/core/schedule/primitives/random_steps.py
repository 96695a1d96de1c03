"""Random lists of steps over names that a function has, and the check that those that are taken keep the result."""

import random
from collections.abc import Mapping

import numpy as np

from graft.core.schedule.primitives.schedule_text import parse_schedule
from graft.core.schedule.primitives.step import Step, loops
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.interpreting.machine_arithmetic import Extern
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import buffers_read, loads, statement_expressions, walk_statements
from graft.errors import ScheduleError


def random_step(draw: random.Random, function: ir.Function, number: int) -> str:
    """Return a step over names that the function has; its own names end with ``number``."""
    known = loops(function.body)
    loop = draw.choice(known)
    one, other, third = loop.variable.name, draw.choice(known).variable.name, draw.choice(known).variable.name
    v, w, u = f"v{number}", f"w{number}", f"u{number}"
    row = draw.choices([row for _, row in ROWS], [weight for weight, _ in ROWS])[0]
    chain = [name.variable.name for name in known if loop in loops(name)][-3:]
    bound = [name.variable.name for name in known if name.binding and loop in loops(name)][1:]
    made, at = _before(draw, function) if "{made}" in row else ("", "")
    return row.format(
        one=one, other=other, third=third, v=v, w=w, u=u, factor=draw.randint(1, 5), made=made, at=at,
        level=draw.choice(("block.x", "block.y", "thread.x", "thread.y")), by=f" by {' '.join(bound)}" if bound else "",
        chain=" ".join(chain), backwards=" ".join(chain[::-1]),
        read=_used(draw, loop, False) if "{read}" in row else "",
        written=_used(draw, loop, True) if "{written}" in row else "",
    )  # fmt: skip


ROWS = (
    (3, "split {one} {factor} -> {v} {w}"),
    (2, "split {one} {factor} -> {v} {w} tail {u}"),
    (3, "reorder {backwards}"),
    (1, "reorder {one} {other}"),
    (1, "reorder {one} {other} {third}"),
    (2, "fuse {chain} -> {v}"),
    (2, "vectorize {one}"),
    (1, "unroll {one}"),
    (1, "jam {one}"),
    (1, "parallel {one}"),
    (2, "bind {one} {level}"),
    (2, "cache_read {read} at {one} in scratch -> {v}"),
    (1, "cache_read {read} at {one} in scratch -> {v}{by}"),
    (3, "cache_write {written} at {one} in scratch -> {v}"),
    (1, "compute_at {read} at {one}"),
    (3, "compute_at {made} at {at}"),
    (2, "pipeline {one} {written}"),
    (2, "overlap {one} {factor} -> {v} {w}"),
    (1, "skew {one} {factor} {other} 1 -> {v}"),
    (1, "clip {one}"),
    (1, "guard {one}"),
    (1, "unswitch {one} else {u}"),
)
"""How often a step is drawn, and its text: ``read`` and ``written`` are buffers of the loop ``one``."""


def _used(draw: random.Random, statement: ir.Statement, writes: bool) -> str:
    """Return the name of a buffer that a statement writes or reads."""
    parts = list(walk_statements(statement))
    if writes:
        found = [one.buffer.name for one in parts if isinstance(one, ir.Store)]
    else:
        found = [load.buffer.name for one in parts for load in loads(*statement_expressions(one))]
    return draw.choice(found) if found else "none"


def _before(draw: random.Random, function: ir.Function) -> tuple[str, str]:
    """Return what a statement of a block writes, and a loop in a later one that reads it."""
    blocks = [one.statements for one in walk_statements(function.body) if isinstance(one, ir.Block) and one.statements]
    if not blocks:
        return "none", "none"
    statements = draw.choice(blocks)
    at = draw.randrange(max(1, len(statements) - 1))
    made = _used(draw, statements[at], True)
    readers = [
        loop.variable.name
        for one in statements[at + 1 :]
        for loop in loops(one)
        if any(buffer.name == made for buffer in buffers_read(loop))
    ]
    return made, draw.choice(readers) if readers else "none"


def random_schedule(draw: random.Random, function: ir.Function, length: int) -> tuple[ir.Function, list[Step], int]:
    """Return the function after those of ``length`` random steps that can be taken, these, and how many cannot."""
    taken: list[Step] = []
    for number in range(length):
        if not loops(function.body):
            break
        (step,) = parse_schedule(random_step(draw, function, number))
        try:
            function = step.apply(function)
        except ScheduleError as error:
            is_known = "write the same elements" in str(error)  # of a loop that has one iteration, as bounds tell
            assert is_known or "the result is refused" not in str(error), f"{error}, of\n{function}"
        else:
            taken.append(step)
    return function, taken, length - len(taken)


def check_same(
    function: ir.Function,
    inputs: list[np.ndarray],
    expected: list[np.ndarray],
    outputs: list[tuple[int, ...]] | None = None,
    externs: Mapping[str, Extern] | None = None,
) -> None:
    """Check that a function gives the results to the bit, as it stands and with its vectors and copies made."""
    kinds = {one.kind for one in walk_statements(function.body) if isinstance(one, ir.For)}
    lowered = ir.Function(
        function.name,
        function.parameters,
        function.outputs,
        simplify_statement(lower_loops(simplify_statement(function.body))),
    )
    for made in (function, lowered) if kinds & {"vector", "unrolled"} else (function,):
        for got, wanted in zip(run_function(made, inputs, outputs, externs), expected, strict=True):
            assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes(), f"{got} is not {wanted}, of\n{made}"
