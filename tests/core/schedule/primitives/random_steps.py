"""Random lists of steps over names that a function has, and the check that those that are taken keep the result."""

import random

import numpy as np

from graft.core.schedule.primitives.schedule_text import parse_schedule
from graft.core.schedule.primitives.step import Step, loops
from graft.core.schedule.primitives.vectorize import lower_loops
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.rewriting.simplify import simplify_statement
from graft.core.tensor_ir.visit import loads, statement_expressions, walk_statements
from graft.errors import ScheduleError


def random_step(draw: random.Random, function: ir.Function, number: int) -> str:
    """Return a step over names that the function has; its own names end with ``number``."""
    known = loops(function.body)
    loop = draw.choice(known)
    one, other, third = loop.variable.name, draw.choice(known).variable.name, draw.choice(known).variable.name
    chain = [name.variable.name for name in known if name is loop or loop in loops(name.body)][-3:]
    factor, reads, writes = draw.randint(1, 5), _used(loop, False), _used(loop, True)
    read, written, before = (draw.choice(among) if among else "none" for among in (reads, writes, _before(function)))
    v, w, u = f"v{number}", f"w{number}", f"u{number}"
    rows = (
        (3, f"split {one} {factor} -> {v} {w}"),
        (2, f"split {one} {factor} -> {v} {w} tail {u}"),
        (3, f"reorder {' '.join(chain[::-1])}"),
        (1, f"reorder {one} {other}"),
        (1, f"reorder {one} {other} {third}"),
        (2, f"fuse {' '.join(chain)} -> {v}"),
        (2, f"vectorize {one}"),
        (1, f"unroll {one}"),
        (1, f"jam {one}"),
        (1, f"parallel {one}"),
        (1, f"bind {one} level{number}"),
        (3, f"cache_read {read} at {one} in scratch -> {v}"),
        (3, f"cache_write {written} at {one} in scratch -> {v}"),
        (1, f"compute_at {read} at {one}"),
        (3, "compute_at {} at {}".format(*before) if before != "none" else f"unroll {one}"),
        (2, f"pipeline {one} {written}"),
    )
    return draw.choices([row for _, row in rows], [weight for weight, _ in rows])[0]


def _used(statement: ir.Statement, writes: bool) -> list[str]:
    """Return the names of buffers that a statement reads or writes, with those that it allocates."""
    parts = list(walk_statements(statement))
    if writes:
        return list(dict.fromkeys(one.buffer.name for one in parts if isinstance(one, ir.Store)))
    return list(dict.fromkeys(load.buffer.name for one in parts for load in loads(*statement_expressions(one))))


def _before(function: ir.Function) -> list[tuple[str, str]]:
    """Return what a nest computes with the loops behind that use it."""
    found: list[tuple[str, str]] = []
    for block in (one for one in walk_statements(function.body) if isinstance(one, ir.Block)):
        for number, one in enumerate(block.statements):
            made = _used(one, True)
            for later in block.statements[number + 1 :]:
                for loop in loops(later):
                    found += [(name, loop.variable.name) for name in made if name in _used(loop, False)]
    return found


def random_schedule(draw: random.Random, function: ir.Function, length: int) -> tuple[ir.Function, list[Step], int]:
    """Return the function after those of ``length`` random steps that can be taken, these, and how many cannot."""
    taken: list[Step] = []
    for number in range(length):
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
        for got, wanted in zip(run_function(made, inputs, outputs), expected, strict=True):
            assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes(), f"{got} is not {wanted}, of\n{made}"
