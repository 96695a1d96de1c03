"""Random lists of steps over names that a function has, and the check that those that are taken keep the result.

Some steps need others before them: these are drawn together.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from graft.core.schedule.primitives.packing import Pack
from graft.core.schedule.primitives.schedule_text import parse_schedule
from graft.core.schedule.primitives.step import Step, loops
from graft.core.schedule.primitives.tensorize import Tensorize
from graft.core.schedule.primitives.vectorize import lowered
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.interpreting.machine_arithmetic import Extern
from graft.core.tensor_ir.parser import parse_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import (
    buffers_read,
    free_variables,
    loads,
    map_statement,
    statement_expressions,
    walk_statements,
)
from graft.errors import CompileError, ScheduleError


def random_step(draw: random.Random, function: ir.Function, number: int, instructions: Collection[str] = ()) -> str:
    """Return a step, or a few in lines, over names that the function has; its own names end with ``number``.

    Constants are packed, and instructions put in the place of loops, where there are ``instructions``.
    """
    known = loops(function.body)
    loop = draw.choice(known)
    one, other, third = loop.variable.name, draw.choice(known).variable.name, draw.choice(known).variable.name
    v, w, u = f"v{number}", f"w{number}", f"u{number}"
    sums = SUMS if all(buffer.dtype.startswith("int") for buffer in function.input_buffers) else ()
    rows = (*ROWS, *sums, *(MORE if instructions else ()))
    row = draw.choices([row for _, row in rows], [weight for weight, _ in rows])[0]
    before, behind = draw.choice(_neighbours(function) or [(one, other)])
    constant = draw.choice(function.input_buffers)
    filling, cache = draw.choice(_filling(function) or [(one, "none")])
    short, instruction = draw.choice(_short(function) or [(one, "dot2")])
    chain = [name.variable.name for name in draw.choice(_nests(function) or [(loop,)])]
    cut = draw.randrange(len(chain) - 1) if len(chain) > 2 else 0
    chain = chain[cut : cut + draw.randint(2, 3)]
    shuffled = draw.sample(chain, len(chain))
    below = [each.variable.name for each in loops(loop.body)]
    bound = [name.variable.name for name in known if name.binding and loop in loops(name)][1:]
    made, at = _before(draw, function) if "{made}" in row else ("", "")
    around, each, total = draw.choice(_reductions(function) or [(other, one, "none")])
    across, along = draw.choice(_pairs(function) or [(one, other)])
    added, kind = draw.choice(_added(function) or [(one, "dot")])
    tested = draw.choice([name for name in known if isinstance(name.body, ir.If | ir.Let)] or [loop])
    return row.format(
        one=one, other=other, third=third, v=v, w=w, u=u, factor=draw.randint(1, 5), made=made, at=at,
        level=draw.choice(("block.x", "block.y", "thread.x", "thread.y")), by=f" by {' '.join(bound)}" if bound else "",
        chain=" ".join(chain), backwards=" ".join(chain[::-1]), shuffled=" ".join(shuffled),
        before=before, behind=behind, first=shuffled[0], last=shuffled[-1], filling=filling, cache=cache,
        room=draw.randint(3, 9), inner=" ".join(draw.sample(below, min(len(below), draw.randint(1, 3))) or [other]),
        block=draw.choice([each.variable.name for each in known if each.binding] or [one]),
        constant=constant.name, axis=draw.randrange(max(1, len(constant.shape))),
        short=short, instruction=instruction, around=around, each=each, total=total, across=across, along=along,
        tested=tested.variable.name, side=draw.choice((2, 2, 4)), added=added, kind=kind, width=draw.choice((2, 3)),
        read=_used(draw, loop, False) if "{read}" in row else "",
        written=_used(draw, loop, True) if "{written}" in row else "",
    )  # fmt: skip


ROWS = (
    (3, "split {one} {factor} -> {v} {w}"),
    (2, "split {one} {factor} -> {v} {w} tail {u}"),
    (3, "reorder {backwards}"),
    (1, "reorder {shuffled}"),
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
    (2, "pipeline {filling} {cache}"),
    (1, "pipeline {one} {written}"),
    (1, "pipeline_async {filling} {factor} {cache}"),
    (2, "overlap {one} {factor} -> {v} {w}"),
    (1, "skew {first} {factor} {last} 1 -> {v}"),
    (1, "skew {first} 1 {last} {factor} -> {v}"),
    (1, "clip {one}"),
    (1, "hoist {one}"),
    (1, "guard {one}"),
    (1, "unswitch {one} else {u}"),
    (1, "skip {one}"),
    (2, "skip {tested}"),
    (1, "count {one}"),
    (2, "peel {one} {factor} -> {u}"),
    (2, "merge {before} {behind} -> {v}"),
    (1, "merge {one} {other} -> {v}"),
    (2, "reindex_cache_read {read} at {one} in scratch -> {v} over {inner}"),
    (1, "pad {cache} {axis} {room}"),
    (1, "spmd {block} {factor} thread.z -> {v}"),
    (1, "bind {one} block.z\nspmd {one} {factor} thread.z -> {v}"),
    (1, "transpose {first} {last}"),
    (1, "transpose {across} {along}"),
    (1, "transpose {along} {across}"),
    (
        2,
        "split {across} {side} -> {v} {v}.in\nsplit {along} {side} -> {w} {w}.in\n"
        "reorder {v} {w} {v}.in {w}.in\ntranspose {v}.in {w}.in",
    ),
)
"""How often steps are drawn, and their text: ``read`` and ``written`` are buffers of the loop ``one``."""
SUMS = (
    (1, "rfactor {written} at {one} in scratch -> {v}"),
    (2, "rfactor {total} at {each} in scratch -> {v}"),
    (2, "rfactor {written} at {last} in scratch -> {v} around {first}"),
    (1, "horizontal {one}"),
    (
        3,
        "split {each} {side} -> {v} {w}\nreorder {v} {w}\nrfactor {total} at {w} in scratch -> {u} around {v}\n"
        "horizontal {u}.turn",
    ),
    (
        3,
        "split {each} {side} -> {w} {u}\ncache_write {total} at {around} in register -> {v}\n"
        "rfactor {v} at {u} in shared -> {v}.own around {w}\nreorder {u} {w}\nmerge {v}.own.in {u} -> {u}\n"
        "bind {around} block.x\nparallel {u}\nspmd {around} {side} thread.x -> {v}.unit\n"
        "tree {v}.own.turn by {v}.unit {side} block",
    ),
    (2, "subtotal {written} at {one} in scratch -> {v}"),
    (1, "mask {written}"),
    (2, "split {each} {side} -> {v} {w}\nrfactor {total} at {w} in scratch -> {u} around {v}\nmask {u}\nvectorize {w}"),
)
"""What changes the bits of floats."""
MORE = (
    (2, "pack {constant} {axis} {factor} -> {v}"),
    (1, "tensorize {short} {instruction}"),
    (2, "split {added} {width} -> {v} {w} tail {u}\ntensorize {w} {kind}{width}"),
)


def instructions(dtype: str) -> Mapping[str, ir.Function]:
    """Return what instructions mean that a machine might have: dot products, and multiples of a row that are added."""
    texts = {
        f"dot{width}": f"(a: {dtype}[{width}], b: {dtype}[{width}]) -> (c: {dtype}[1]) {{ serial k < {width} {{"
        " c[0] = c[0] + a[k] * b[k] } }"
        for width in (2, 3)
    } | {
        f"row{width}": f"(a: {dtype}[1], b: {dtype}[{width}]) -> (c: {dtype}[{width}]) {{ serial k < {width} {{"
        " c[k] = c[k] + a[0] * b[k] } }"
        for width in (2, 3)
    }
    return {name: parse_function(f"function {name}{text}") for name, text in texts.items()}


def _dot(width: int) -> Extern:
    def instruction(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        for k in range(width):
            c[0] += a[k] * b[k]

    return instruction


def _row(width: int) -> Extern:
    def instruction(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        c[:width] += a[0] * b[:width]

    return instruction


def _copy_async(target: np.ndarray, source: np.ndarray, size: int) -> None:
    count = size // target.itemsize
    target[:count] = source[:count]


EXTERNS = {
    "dot2": _dot(2), "dot3": _dot(3), "row2": _row(2), "row3": _row(3), "copy_async": _copy_async,
    "commit_copies": lambda: None, "wait_copies": lambda pending: None,
}  # fmt: skip
"""What computes the instructions; copies land at once, so that there is nothing to wait for."""


def _nests(function: ir.Function) -> list[tuple[ir.For, ...]]:
    """Return the loops that stand directly in each other, or with conditions between: two or more."""
    found, inner = list[tuple[ir.For, ...]](), set[int]()
    for loop in loops(function.body):
        if id(loop) in inner:
            continue
        chain, body = [loop], loop.body
        while isinstance(body, ir.For | ir.Let) or (isinstance(body, ir.If) and body.else_body is None):
            if isinstance(body, ir.For):
                chain.append(body)
            body = body.then_body if isinstance(body, ir.If) else body.body
        inner |= set(map(id, chain))
        if len(chain) > 1:
            found.append(tuple(chain))
    return found


def _neighbours(function: ir.Function) -> list[tuple[str, str]]:
    """Return the names of loops that stand directly behind each other."""
    blocks = [one.statements for one in walk_statements(function.body) if isinstance(one, ir.Block)]
    pairs = (pair for block in blocks for pair in pairwise(block))
    return [
        (one.variable.name, other.variable.name)
        for one, other in pairs
        if isinstance(one, ir.For) and isinstance(other, ir.For)
    ]


def _filling(function: ir.Function) -> list[tuple[str, str]]:
    """Return the loops whose bodies begin with memory of their own, as after `CacheRead`, and the names of that."""
    known = loops(function.body)
    return [(one.variable.name, one.body.buffer.name) for one in known if isinstance(one.body, ir.Allocate)]


def _short(function: ir.Function) -> list[tuple[str, str]]:
    """Return the loops of two or three iterations around one store, and an instruction that may be that."""
    found = list[tuple[str, str]]()
    for one in loops(function.body):
        if isinstance(one.body, ir.Store) and isinstance(one.extent, ir.Constant) and one.extent.value in (2, 3):
            moves = one.variable in free_variables(*one.body.indices)
            found.append((one.variable.name, f"{'row' if moves else 'dot'}{one.extent.value}"))
    return found


def _reductions(function: ir.Function) -> list[tuple[str, str, str]]:
    """Return loops that reduce into one element, each with the outermost loop that this moves with, and its buffer."""
    found = list[tuple[str, str, str]]()
    for outer in loops(function.body):
        for one in loops(outer.body):
            stores = [part for part in walk_statements(one.body) if isinstance(part, ir.Store)]
            moves = free_variables(*(place for store in stores for place in store.indices))
            if len(stores) == 1 and one.variable not in moves and outer.variable in moves:
                found.append((outer.variable.name, one.variable.name, stores[0].buffer.name))
    return found


def _added(function: ir.Function) -> list[tuple[str, str]]:
    """Return the innermost loops that add products to elements, and the kind of instruction that several may be."""
    return [
        (one.variable.name, "row" if one.variable in free_variables(*one.body.indices) else "dot")
        for one in loops(function.body)
        if isinstance(one.body, ir.Store) and isinstance(one.body.value, ir.Binary | ir.Intrinsic)
        if len(loads(one.body.value)) == 3
    ]


def _pairs(function: ir.Function) -> list[tuple[str, str]]:
    """Return loops directly in each other around one store, with extents that are even numbers."""
    return [
        (one.variable.name, one.body.variable.name)
        for one in loops(function.body)
        if isinstance(one.body, ir.For) and isinstance(one.body.body, ir.Store)
        if all(isinstance(own, ir.Constant) and own.value % 2 == 0 for own in (one.extent, one.body.extent))
    ]


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


Refusals = list[tuple[Step, ScheduleError]]


def random_schedule(
    draw: random.Random, function: ir.Function, length: int, meanings: Mapping[str, ir.Function] | None = None
) -> tuple[ir.Function, list[Step], Refusals]:
    """Return the function after those of ``length`` random draws that can be taken, these, and those refused.

    Of steps that are drawn together none is tried behind one that is refused.
    """
    taken, refused, plain = list[Step](), Refusals(), function
    for number in range(length):
        if not loops(function.body):
            break
        try:
            for drawn in parse_schedule(random_step(draw, function, number, meanings or ())):
                step = replace(drawn, meanings=meanings) if isinstance(drawn, Tensorize) else drawn
                step.check(function)
                function = step.change(function)
                taken.append(step)
        except ScheduleError as error:
            refused.append((step, error))
    try:
        verify(function)
    except CompileError:
        return _verified(plain, taken), taken, refused
    return function, taken, refused


def _verified(function: ir.Function, taken: list[Step]) -> ir.Function:
    """Return a function after steps; those whose results the verifier refuses leave ``taken``."""
    for step in list(taken):
        try:
            function = step.apply(function)
        except ScheduleError as error:
            is_known = "write the same elements" in str(error)  # of a loop that has one iteration, as bounds tell
            assert is_known or "the result is refused" not in str(error), f"{error}, of\n{function}"
            taken.remove(step)
    return function


def packed(function: ir.Function, taken: list[Step], inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Return the inputs of a function as its steps want them."""
    names, arrays = [buffer.name for buffer in function.input_buffers], list(inputs)
    for step in taken:
        if isinstance(step, Pack):
            at = names.index(step.buffer)
            names[at], arrays[at] = step.packed, step.contents(arrays[at])
    return arrays


def check_same(
    function: ir.Function,
    inputs: list[np.ndarray],
    expected: list[np.ndarray],
    outputs: list[tuple[int, ...]] | None = None,
    externs: Mapping[str, Extern] | None = None,
) -> None:
    """Check that a function gives the results to the bit, as it stands and with its vectors and copies made.

    As it stands, no iteration of a parallel or a vector loop writes what another one of it reads or writes.
    """
    kinds = {one.kind for one in walk_statements(function.body) if isinstance(one, ir.For)}
    for made in (_at_once(function), lowered(function)) if kinds & {"vector", "unrolled"} else (_at_once(function),):
        for got, wanted in zip(run_function(made, inputs, outputs, externs), expected, strict=True):
            assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes(), f"{got} is not {wanted}, of\n{made}"


def _at_once(function: ir.Function) -> ir.Function:
    """Return a function whose parallel and vector loops are bound, so that the interpreter looks for races in them."""

    def rule(one: ir.Statement) -> ir.Statement:
        if isinstance(one, ir.For) and one.kind in ("parallel", "vector") and not one.binding:
            return replace(one, kind="parallel", binding="iteration.x")
        return one

    return replace(function, body=map_statement(function.body, lambda expression: expression, rule))
