"""Vectors as scalars, lane by lane, for machines and languages without vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TypeAlias

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import (
    chain_of_lets,
    children,
    in_lanes,
    statement_expressions,
    walk_expressions,
    walk_statements,
    with_parts,
)
from graft.core.types import INT64, Type, element_bits
from graft.errors import CompileError

PACKED_DOT = "dot4_u8s8"
"""The dot product whose operands stay packed in 32 bits."""


def without_vectors(function: ir.Function, *, packed: bool = False) -> ir.Function:
    """Return the function in scalars, the same where it has no vectors.

    Lanes are reduced from the first to the last, and dot products become their meaning (`DOTS`). With ``packed`` those
    of four bytes become ``dot4_u8s8`` of two packed operands, for languages that have it; one is then ``word_at`` of
    the load of the first of its bytes, where these are contiguous in memory. Raises CompileError for another intrinsic
    that is no function of single lanes.
    """
    if not any(map(_has_vectors, walk_statements(function.body))):
        return function
    return replace(function, body=_Lanes(function.name, packed).statement(function.body))


def _has_vectors(statement: ir.Statement) -> bool:
    roots = statement_expressions(statement)
    kinds = ir.Ramp | ir.Broadcast | ir.Shuffle | ir.Horizontal
    return any(isinstance(node, kinds) or node.type.lanes > 1 for node in walk_expressions(*roots))


class _Lanes:
    """One function's vectors, taken apart."""

    def __init__(self, function: str, packed: bool) -> None:
        self.function, self.packed = function, packed
        self.variables: dict[ir.Variable, tuple[ir.Variable, ...]] = {}
        self._known: dict[tuple[int, int], tuple[ir.Expression, ir.Expression]] = {}

    def statement(self, statement: ir.Statement) -> ir.Statement:
        """Return the statement in scalars."""
        if isinstance(statement, ir.Store) and any(one.type.lanes > 1 for one in statement_expressions(statement)):
            return self._store(statement)
        if isinstance(statement, ir.Let):
            chain, inner = chain_of_lets(statement)
            bound = [one for let in chain for one in self._let(let)]
            return bind(bound, self.statement(inner))
        if isinstance(statement, ir.CallExtern):
            return statement  # what it names are scalars
        return with_parts(statement, self.lane, self.statement)

    def _let(self, let: ir.Let) -> Iterable[tuple[ir.Variable, ir.Expression]]:
        variable, lanes = let.variable, let.value.type.lanes
        if lanes == 1:
            return [(variable, self.lane(let.value))]
        kind = variable.type.with_lanes(1)
        self.variables[variable] = tuple(ir.Variable(f"{variable.name}_{lane}", kind) for lane in range(lanes))
        return zip(self.variables[variable], [self.lane(let.value, lane) for lane in range(lanes)], strict=True)

    def _store(self, store: ir.Store) -> ir.Statement:
        """All lanes are computed before the first is written."""
        every = (*store.indices, store.value, *(() if store.mask is None else (store.mask,)))
        lanes = max(one.type.lanes for one in every)
        kind = store.value.type.with_lanes(1)
        names = [ir.Variable(f"lane{lane}", kind) for lane in range(lanes)]
        values = [self.lane(store.value, lane) for lane in range(lanes)]
        stores = tuple(
            ir.Store(
                store.buffer,
                tuple(self.lane(index, lane) for index in store.indices),
                names[lane],
                None if store.mask is None else self.lane(store.mask, lane),
            )
            for lane in range(lanes)
        )
        return bind(zip(names, values, strict=True), ir.Block(stores))

    def lane(self, expression: ir.Expression, lane: int = 0) -> ir.Expression:
        """Return one lane of an expression; of a scalar, itself."""
        stack = [(expression, lane)]
        while stack:
            node, which = stack[-1]
            if node.type.lanes == 1:
                which = 0
            operands, made = _ROWS.get(type(node), _each_lane)(self, node, which)
            waiting = [one for one in map(_place, operands) if (id(one[0]), one[1]) not in self._known]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if (id(node), which) not in self._known:
                self._known[id(node), which] = (node, made(*(self._of(*one) for one in operands)))
        return self._of(expression, lane)

    def _of(self, node: ir.Expression, lane: int) -> ir.Expression:
        return self._known[id(node), lane if node.type.lanes > 1 else 0][1]


_Operand: TypeAlias = tuple[ir.Expression, int]
"""A lane of an expression."""
_Made: TypeAlias = tuple[Sequence[_Operand], Callable[..., ir.Expression]]
"""The lanes of operands that a lane is made of, and what it is of these in scalars."""


def _place(operand: _Operand) -> _Operand:
    return operand[0], operand[1] if operand[0].type.lanes > 1 else 0


def _same(operand: ir.Expression) -> ir.Expression:
    return operand


def _each_lane(self: _Lanes, node: ir.Expression, lane: int) -> _Made:
    return [(one, lane) for one in children(node)], lambda *scalars: in_lanes(node, scalars, 1)


def _ramp(self: _Lanes, node: ir.Ramp, lane: int) -> _Made:
    step = ir.Constant(lane * node.stride, INT64)
    return [(node.base, 0)], lambda start: ir.Binary("add", start, step) if step.value else start


def _horizontal(self: _Lanes, node: ir.Horizontal, lane: int) -> _Made:
    terms = [(node.value, each) for each in range(node.value.type.lanes)]
    return terms, lambda *scalars: reduce(lambda left, right: ir.Binary(node.operator, left, right), scalars)


def _bitcast(self: _Lanes, node: ir.Bitcast, lane: int) -> _Made:
    value, dtype = node.value, node.dtype
    before, after = value.type.lanes, node.type.lanes
    if self.packed and isinstance(value, ir.Load) and value.mask is None and _is_contiguous(node):
        return [(index, 0) for index in value.indices], lambda *places: _word_at(value.buffer, places, lane, dtype)
    if before < after:
        return [(value, lane // (after // before))], lambda whole: _part(whole, lane, dtype)
    if before > after:
        count = before // after
        return [(value, lane * count + part) for part in range(count)], lambda *parts: _joined(parts, dtype)
    return _each_lane(self, node, lane)


def _word_at(buffer: ir.Buffer, places: tuple[ir.Expression, ...], lane: int, dtype: str) -> ir.Expression:
    *before, first = places
    first = ir.Binary("add", first, ir.Constant(4 * lane, INT64)) if lane else first
    return ir.Intrinsic("word_at", (ir.Load(buffer, (*before, first)),), Type(dtype))


def _intrinsic(self: _Lanes, node: ir.Intrinsic, lane: int) -> _Made:
    kind, arguments = node.type.with_lanes(1), node.arguments
    if node.name in DOTS:
        (total, *sides), width = arguments, DOTS[node.name].width
        packed = [_packed(side) for side in sides]
        if self.packed and node.name == PACKED_DOT and all(packed):
            operands = [(total, lane), *((one, lane) for side in packed for one in side)]
            return operands, lambda *scalars: ir.Intrinsic(node.name, scalars, kind)
        places = range(lane * width, (lane + 1) * width)
        return [(total, lane), *((side, place) for side in sides for place in places)], partial(_dot, kind.dtype)
    if node.type.lanes > 1 and any(argument.type.lanes not in (1, node.type.lanes) for argument in arguments):
        raise CompileError(f"function '{self.function}' has the vector instruction '{node.name}' on scalars")
    return _each_lane(self, node, lane)


def _dot(dtype: str, total: ir.Expression, *factors: ir.Expression) -> ir.Expression:
    width = len(factors) // 2
    for left, right in zip(factors[:width], factors[width:], strict=True):
        total = ir.Binary("add", total, ir.Binary("mul", ir.Cast(left, dtype), ir.Cast(right, dtype)))
    return total


_ROWS: dict[type, Callable[..., _Made]] = {
    ir.Constant: lambda self, node, _: ((), lambda: ir.Constant(node.value, node.type.with_lanes(1))),
    ir.Variable: lambda self, node, lane: ((), lambda: self.variables[node][lane] if node in self.variables else node),
    ir.Ramp: _ramp,
    ir.Broadcast: lambda self, node, _: ([(node.value, 0)], _same),
    ir.Shuffle: lambda self, node, lane: ([_chosen(node.vectors, node.lanes[lane])], _same),
    ir.Horizontal: _horizontal,
    ir.Bitcast: _bitcast,
    ir.Intrinsic: _intrinsic,
}
"""How a lane is made, by expression; of all others by the same lane of the operands."""


def _packed(operand: ir.Expression) -> tuple[ir.Expression, ...]:
    """The packed operands whose bytes an operand is."""
    return (operand.value,) if isinstance(operand, ir.Bitcast) and operand.value.type.dtype == "int32" else ()


def _is_contiguous(node: ir.Bitcast) -> bool:
    """Whether each lane of a node packs bytes that are contiguous in memory."""
    load = node.value
    if node.type.dtype != "int32" or not isinstance(load, ir.Load) or load.type.lanes != 4 * node.type.lanes:
        return False
    *before, last = load.indices
    is_line = isinstance(last, ir.Ramp) and last.stride == 1 and load.buffer.strides is None
    return element_bits(load.type.dtype) == 8 and is_line and all(index.type.lanes == 1 for index in before)


def _chosen(vectors: tuple[ir.Expression, ...], lane: int) -> tuple[ir.Expression, int]:
    for vector in vectors:
        if lane < vector.type.lanes:
            return vector, lane
        lane -= vector.type.lanes
    raise AssertionError(f"lane {lane} is past the end of the vectors")


def _joined(parts: Sequence[ir.Expression], dtype: str) -> ir.Expression:
    """The bits of several elements, the first lowest, as one."""
    bits, each = element_bits(dtype), element_bits(parts[0].type.dtype)
    words = [ir.Cast(ir.Bitcast(part, f"uint{each}"), f"uint{bits}") for part in parts]
    shifted = [ir.Binary("shl", word, ir.Constant(each * place, word.type)) for place, word in enumerate(words)]
    return ir.Bitcast(reduce(lambda low, high: ir.Binary("or", low, high), shifted), dtype)


def _part(whole: ir.Expression, lane: int, dtype: str) -> ir.Expression:
    """The bits of one of the elements that share a wider one."""
    bits, each = element_bits(whole.type.dtype), element_bits(dtype)
    word = ir.Bitcast(whole, f"uint{bits}")
    shifted = ir.Binary("shr", word, ir.Constant(each * (lane % (bits // each)), word.type))
    return ir.Bitcast(ir.Cast(shifted, f"uint{each}"), dtype)
