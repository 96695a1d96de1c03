"""Vectors as scalars, lane by lane, for machines and languages without vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import assert_never

from graft.core.machine.instructions import DOTS
from graft.core.tensor_ir.ir import (
    Allocate,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Broadcast,
    CallExtern,
    Cast,
    Constant,
    Expression,
    For,
    Function,
    Horizontal,
    If,
    Intrinsic,
    Issue,
    Let,
    Load,
    Pop,
    Push,
    Ramp,
    Shuffle,
    Statement,
    Store,
    Variable,
)
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import (
    chain_of_lets,
    children,
    statement_expressions,
    walk_expressions,
    walk_statements,
    with_children,
)
from graft.core.types import INT64, Type, element_bits
from graft.errors import CompileError

WORDS = "dot4_u8s8"
"""The dot product whose operands stay words of 32 bits."""


def without_vectors(function: Function, *, words: bool = False) -> Function:
    """Return the function in scalars, the same where it has no vectors.

    Lanes are reduced from the first to the last, and dot products become their meaning (`DOTS`). With ``words`` those
    of four bytes become ``dot4_u8s8`` of two words of 32 bits, for who writes these as such; a word is then ``word_at``
    of the load of the first of its bytes, where these are neighbours in memory. Raises CompileError for another
    intrinsic that is no function of single lanes.
    """
    if not any(map(_has_vectors, walk_statements(function.body))):
        return function
    return replace(function, body=_Lanes(function.name, words).statement(function.body))


def _has_vectors(statement: Statement) -> bool:
    roots = statement_expressions(statement)
    kinds = Ramp | Broadcast | Shuffle | Horizontal
    return any(isinstance(node, kinds) or node.type.lanes > 1 for node in walk_expressions(*roots))


class _Lanes:
    """One function's vectors, taken apart."""

    def __init__(self, function: str, words: bool) -> None:
        self.function, self.words = function, words
        self.variables: dict[Variable, tuple[Variable, ...]] = {}
        self._known: dict[tuple[int, int], tuple[Expression, Expression]] = {}

    def statement(self, statement: Statement) -> Statement:
        """Return the statement in scalars."""
        if isinstance(statement, Store) and any(one.type.lanes > 1 for one in statement_expressions(statement)):
            return self._store(statement)
        match statement:
            case Store(buffer, indices, value, mask):
                on = None if mask is None else self.lane(mask)
                return Store(buffer, tuple(map(self.lane, indices)), self.lane(value), on)
            case For() | Allocate() | Issue():
                return replace(statement, body=self.statement(statement.body))
            case Let():
                chain, inner = chain_of_lets(statement)
                bound = [one for let in chain for one in self._let(let)]
                return bind(bound, self.statement(inner))
            case If(condition, then_body, else_body):
                other = None if else_body is None else self.statement(else_body)
                return If(self.lane(condition), self.statement(then_body), other)
            case Block(statements):
                return Block(tuple(map(self.statement, statements)))
            case CallExtern() | Barrier() | Push() | Pop():
                return statement  # what they name are scalars
            case _:
                assert_never(statement)

    def _let(self, let: Let) -> Iterable[tuple[Variable, Expression]]:
        variable, lanes = let.variable, let.value.type.lanes
        if lanes == 1:
            return [(variable, self.lane(let.value))]
        kind = variable.type.with_lanes(1)
        self.variables[variable] = tuple(Variable(f"{variable.name}_{lane}", kind) for lane in range(lanes))
        return zip(self.variables[variable], [self.lane(let.value, lane) for lane in range(lanes)], strict=True)

    def _store(self, store: Store) -> Statement:
        """All lanes are computed before the first is written."""
        every = (*store.indices, store.value, *(() if store.mask is None else (store.mask,)))
        lanes = max(one.type.lanes for one in every)
        kind = store.value.type.with_lanes(1)
        names = [Variable(f"lane{lane}", kind) for lane in range(lanes)]
        values = [self.lane(store.value, lane) for lane in range(lanes)]
        stores = tuple(
            Store(
                store.buffer,
                tuple(self.lane(index, lane) for index in store.indices),
                names[lane],
                None if store.mask is None else self.lane(store.mask, lane),
            )
            for lane in range(lanes)
        )
        return bind(zip(names, values, strict=True), Block(stores))

    def lane(self, expression: Expression, lane: int = 0) -> Expression:
        """Return one lane of an expression; of a scalar, itself."""
        stack = [(expression, lane)]
        while stack:
            node, which = stack[-1]
            if node.type.lanes == 1:
                which = 0
            needed = [
                (one, at if one.type.lanes > 1 else 0)
                for one, at in self._needed(node, which)
                if (id(one), at if one.type.lanes > 1 else 0) not in self._known
            ]
            if needed:
                stack += needed
                continue
            stack.pop()
            if (id(node), which) not in self._known:
                self._known[id(node), which] = (node, self._lane(node, which))
        return self._of(expression, lane)

    def _needed(self, node: Expression, lane: int) -> list[tuple[Expression, int]]:
        """The lanes of operands that a lane is made of."""
        match node:
            case Shuffle(vectors, lanes):
                return [_chosen(vectors, lanes[lane])]
            case Horizontal(_, value):
                return [(value, each) for each in range(value.type.lanes)]
            case Bitcast(value, _) if value.type.lanes < node.type.lanes:
                return [(value, lane // (node.type.lanes // value.type.lanes))]
            case Bitcast(Load(_, indices, None), _) if self.words and _is_word(node):
                return [(index, 0) for index in indices]
            case Bitcast(value, _) if value.type.lanes > node.type.lanes:
                count = value.type.lanes // node.type.lanes
                return [(value, lane * count + part) for part in range(count)]
            case Intrinsic(name, (total, left, right)) if self._in_words(name, left, right):
                return [(total, lane), *((word, lane) for side in (left, right) for word in _word_of(side))]
            case Intrinsic(name, (total, left, right)) if name in DOTS:
                places = range(lane * DOTS[name].width, (lane + 1) * DOTS[name].width)
                return [(total, lane), *((side, place) for side in (left, right) for place in places)]
        return [(one, lane) for one in children(node)]

    def _in_words(self, name: str, left: Expression, right: Expression) -> bool:
        return self.words and name == WORDS and bool(_word_of(left) and _word_of(right))

    def _of(self, node: Expression, lane: int) -> Expression:
        return self._known[id(node), lane if node.type.lanes > 1 else 0][1]

    def _lane(self, node: Expression, lane: int) -> Expression:
        match node:
            case Constant(value, kind):
                return Constant(value, kind.with_lanes(1))
            case Variable():
                return self.variables[node][lane] if node in self.variables else node
            case Ramp(base, stride, _):
                start = self._of(base, 0)
                return Binary("add", start, Constant(lane * stride, INT64)) if lane * stride else start
            case Broadcast(value, _):
                return self._of(value, 0)
            case Shuffle(vectors, lanes):
                return self._of(*_chosen(vectors, lanes[lane]))
            case Horizontal(operator, value):
                terms = [self._of(value, each) for each in range(value.type.lanes)]
                return reduce(lambda left, right: Binary(operator, left, right), terms)
            case Bitcast(Load(buffer, _, None) as load, dtype) if self.words and _is_word(node):
                *before, first = (self._of(index, 0) for index in load.indices)
                first = Binary("add", first, Constant(4 * lane, INT64)) if lane else first
                return Intrinsic("word_at", (Load(buffer, (*before, first)),), Type(dtype))
            case Bitcast(value, dtype) if value.type.lanes != node.type.lanes:
                parts = [self._of(*one) for one in self._needed(node, lane)]
                return _joined(parts, dtype) if len(parts) > 1 else _part(parts[0], lane, dtype)
            case Intrinsic(name, (_, left, right), kind) if self._in_words(name, left, right):
                return Intrinsic(name, tuple(self._of(*one) for one in self._needed(node, lane)), kind.with_lanes(1))
            case Intrinsic(name, _, kind) if name in DOTS:
                total, *factors = (self._of(*one) for one in self._needed(node, lane))
                for left, right in zip(factors[: DOTS[name].width], factors[DOTS[name].width :], strict=True):
                    total = Binary("add", total, Binary("mul", Cast(left, kind.dtype), Cast(right, kind.dtype)))
                return total
            case Intrinsic(name, arguments, kind) if kind.lanes > 1:
                if any(argument.type.lanes not in (1, kind.lanes) for argument in arguments):
                    raise CompileError(f"function '{self.function}' has the vector instruction '{name}' on scalars")
                return Intrinsic(name, tuple(self._of(one, lane) for one in arguments), kind.with_lanes(1))
        return with_children(node, tuple(self._of(one, lane) for one in children(node)))


def _word_of(operand: Expression) -> tuple[Expression, ...]:
    """The words of 32 bits whose bytes an operand is."""
    return (operand.value,) if isinstance(operand, Bitcast) and operand.value.type.dtype == "int32" else ()


def _is_word(node: Bitcast) -> bool:
    """Whether the lanes of a node are words of neighbouring bytes in memory."""
    load = node.value
    if node.type.dtype != "int32" or not isinstance(load, Load) or load.type.lanes != 4 * node.type.lanes:
        return False
    *before, last = load.indices
    is_line = isinstance(last, Ramp) and last.stride == 1 and load.buffer.strides is None
    return element_bits(load.type.dtype) == 8 and is_line and all(index.type.lanes == 1 for index in before)


def _chosen(vectors: tuple[Expression, ...], lane: int) -> tuple[Expression, int]:
    for vector in vectors:
        if lane < vector.type.lanes:
            return vector, lane
        lane -= vector.type.lanes
    raise AssertionError(f"lane {lane} is past the end of the vectors")


def _joined(parts: list[Expression], dtype: str) -> Expression:
    """The bits of several elements, the first lowest, as one."""
    bits, each = element_bits(dtype), element_bits(parts[0].type.dtype)
    words = [Cast(Bitcast(part, f"uint{each}"), f"uint{bits}") for part in parts]
    shifted = [Binary("shl", word, Constant(each * place, word.type)) for place, word in enumerate(words)]
    return Bitcast(reduce(lambda low, high: Binary("or", low, high), shifted), dtype)


def _part(whole: Expression, lane: int, dtype: str) -> Expression:
    """The bits of one of the elements that share a wider one."""
    bits, each = element_bits(whole.type.dtype), element_bits(dtype)
    word = Bitcast(whole, f"uint{bits}")
    shifted = Binary("shr", word, Constant(each * (lane % (bits // each)), word.type))
    return Bitcast(Cast(shifted, f"uint{each}"), dtype)
