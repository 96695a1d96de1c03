"""Walking and rebuilding expressions and statements: children, map, substitute, free variables.

Expressions share subexpressions (they are graphs, not trees), so every walk remembers nodes by identity and takes time
linear in the number of distinct nodes; a rebuild keeps what did not change and keeps the sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import assert_never, get_args

from graft.core.tensor_ir.ir import (
    Allocate,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Broadcast,
    Buffer,
    CallExtern,
    Cast,
    Constant,
    Expression,
    For,
    Horizontal,
    If,
    Intrinsic,
    Issue,
    Let,
    Load,
    Pop,
    Push,
    Ramp,
    Select,
    Shuffle,
    Statement,
    Store,
    Unary,
    Variable,
)


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of an expression in order (of a `Load`: its indices, then its mask if it has one)."""
    return _SHAPES[type(expression)][0](expression)


def with_children(expression: Expression, operands: tuple[Expression, ...]) -> Expression:
    """Return the expression with other operands, the same object if none differs."""
    parts, rebuilt = _SHAPES[type(expression)]
    for new, old in zip(operands, parts(expression), strict=True):
        if new is not old:
            return rebuilt(expression, operands)
    return expression


def _load_operands(load: Load) -> tuple[Expression, ...]:
    return load.indices if load.mask is None else (*load.indices, load.mask)


def _load_of(load: Load, operands: tuple[Expression, ...]) -> Load:
    if load.mask is None:
        return Load(load.buffer, operands)
    return Load(load.buffer, operands[:-1], operands[-1])


# One row per class: a table, because compilation spends its time here and a chain of `case` is three times as slow.
_SHAPES: dict[type, tuple[Callable[..., tuple[Expression, ...]], Callable[..., Expression]]] = {
    Constant: (lambda e: (), lambda e, _: e),
    Variable: (lambda e: (), lambda e, _: e),
    Load: (_load_operands, _load_of),
    Ramp: (lambda e: (e.base,), lambda e, new: Ramp(new[0], e.stride, e.lanes)),
    Broadcast: (lambda e: (e.value,), lambda e, new: Broadcast(new[0], e.lanes)),
    Unary: (lambda e: (e.value,), lambda e, new: Unary(e.operator, new[0])),
    Cast: (lambda e: (e.value,), lambda e, new: Cast(new[0], e.dtype)),
    Bitcast: (lambda e: (e.value,), lambda e, new: Bitcast(new[0], e.dtype)),
    Horizontal: (lambda e: (e.value,), lambda e, new: Horizontal(e.operator, new[0])),
    Binary: (lambda e: (e.left, e.right), lambda e, new: Binary(e.operator, *new)),
    Select: (lambda e: (e.condition, e.on_true, e.on_false), lambda e, new: Select(*new)),
    Intrinsic: (lambda e: e.arguments, lambda e, new: Intrinsic(e.name, new, e.type)),
    Shuffle: (lambda e: e.vectors, lambda e, new: Shuffle(new, e.lanes)),
}
assert set(get_args(Expression)) == set(_SHAPES), "an expression without a row"


_LEAVES = frozenset({Constant, Variable})


class ExpressionMap:
    """A function on expressions applied from the leaves up, once to each distinct node.

    ``rule``, which may be a method of a subclass, gets a node whose operands are already mapped, and returns its
    replacement (or the node itself). One map may be applied to many expressions; it keeps them alive, since it
    remembers them by identity.
    """

    def __init__(self, rule: Callable[[Expression], Expression]) -> None:
        self.rule = rule
        self._known: dict[int, tuple[Expression, Expression]] = {}

    def define(self, expression: Expression, result: Expression) -> None:
        """Map a node, known by identity, to ``result``, whatever is below it."""
        self._known[id(expression)] = (expression, result)

    def __call__(self, expression: Expression) -> Expression:
        """Return the mapped expression."""
        known = self._known
        done = known.get(id(expression))
        if done is not None:
            return done[1]
        stack = [expression]  # of its own: expressions are as deep as chains of operators are long
        while stack:
            node = stack[-1]
            if id(node) in known:
                stack.pop()
                continue
            parts, rebuilt = _SHAPES[type(node)]
            operands = parts(node)
            waiting = [operand for operand in operands if id(operand) not in known]
            if waiting:
                stack += reversed(waiting)
                continue
            mapped = node
            for operand in operands:
                if known[id(operand)][1] is not operand:
                    mapped = rebuilt(node, tuple([known[id(one)][1] for one in operands]))
                    break
            known[id(node)] = (node, self.rule(mapped))
            stack.pop()
        return known[id(expression)][1]


def substitute(expression: Expression, values: Mapping[Variable, Expression]) -> Expression:
    """Return the expression with variables replaced; the values are not substituted into again."""
    return substitution(values)(expression)


def substitution(values: Mapping[Variable, Expression]) -> ExpressionMap:
    """Return the map that replaces variables, to be applied to several expressions that share parts."""
    return ExpressionMap(lambda node: values.get(node, node) if isinstance(node, Variable) else node)


def map_statement(
    statement: Statement,
    expression: Callable[[Expression], Expression],
    rule: Callable[[Statement], Statement] = lambda statement: statement,
) -> Statement:
    """Rebuild a statement: ``expression`` maps every expression, then ``rule`` every statement, innermost first."""

    def walk(inner: Statement) -> Statement:
        return map_statement(inner, expression, rule)

    def address(argument: Expression) -> Expression:
        # A Load argument of an extern is an address: it must stay a Load.
        if isinstance(argument, Load):
            return replace(argument, indices=tuple(map(expression, argument.indices)))
        return expression(argument)

    match statement:
        case Store(buffer, indices, value, mask):
            places = tuple(map(expression, indices))
            return rule(Store(buffer, places, expression(value), None if mask is None else expression(mask)))
        case For():
            return rule(replace(statement, extent=expression(statement.extent), body=walk(statement.body)))
        case If(condition, then_body, else_body):
            return rule(If(expression(condition), walk(then_body), None if else_body is None else walk(else_body)))
        case Let():
            bound, inner = chain_of_lets(statement)
            values = [expression(one.value) for one in bound]
            mapped = walk(inner)
            for one, value in zip(reversed(bound), reversed(values), strict=True):
                mapped = rule(Let(one.variable, value, mapped))
            return mapped
        case Allocate(buffer, body):
            return rule(Allocate(buffer, walk(body)))
        case Block(statements):
            return rule(Block(tuple(map(walk, statements))))
        case CallExtern(name, arguments):
            return rule(CallExtern(name, tuple(map(address, arguments))))
        case Issue(queue, body):
            return rule(Issue(queue, walk(body)))
        case Barrier() | Push() | Pop():
            return rule(statement)
        case _:
            assert_never(statement)


def map_accesses(
    statement: Statement,
    buffers: Container[Buffer],
    change: Callable[[Buffer, tuple[Expression, ...]], tuple[Buffer, tuple[Expression, ...]]],
) -> Statement:
    """Rebuild a statement with accesses to some buffers changed: ``change`` maps a buffer and mapped indices."""

    def load(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer not in buffers:
            return node
        buffer, indices = change(node.buffer, node.indices)
        return Load(buffer, indices, node.mask)

    def store(inner: Statement) -> Statement:
        if isinstance(inner, CallExtern):  # whose loads are addresses
            return replace(inner, arguments=tuple(map(load, inner.arguments)))
        if not isinstance(inner, Store) or inner.buffer not in buffers:
            return inner
        buffer, indices = change(inner.buffer, inner.indices)
        return replace(inner, buffer=buffer, indices=indices)

    return map_statement(statement, ExpressionMap(load), store)


def statement_expressions(statement: Statement) -> tuple[Expression, ...]:
    """Return the expressions that stand directly in a statement, not those of statements inside it."""
    match statement:
        case Store(_, indices, value, mask):
            return (*indices, value) if mask is None else (*indices, value, mask)
        case For():
            return (statement.extent,)
        case If(condition):
            return (condition,)
        case Let(_, value):
            return (value,)
        case Allocate(buffer):
            return buffer.shape
        case Block() | Barrier() | Issue() | Push() | Pop():
            return ()
        case CallExtern(_, arguments):
            return arguments
        case _:
            assert_never(statement)


def statement_children(statement: Statement) -> tuple[Statement, ...]:
    """Return the statements directly inside a statement."""
    match statement:
        case For() | Let() | Allocate() | Issue():
            return (statement.body,)
        case If(_, then_body, else_body):
            return (then_body,) if else_body is None else (then_body, else_body)
        case Block(statements):
            return statements
        case Store() | CallExtern() | Barrier() | Push() | Pop():
            return ()
        case _:
            assert_never(statement)


def chain_of_lets(statement: Statement) -> tuple[list[Let], Statement]:
    """Return the `Let`s that a statement begins with, outermost first, and the statement inside the last.

    Unrolled loops make chains of hundreds: what goes through statements takes a chain in one step, without recursion.
    """
    chain = []
    while isinstance(statement, Let):
        chain.append(statement)
        statement = statement.body
    return chain, statement


def walk_statements(statement: Statement) -> Iterator[Statement]:
    """Yield a statement and all statements inside it, outermost first."""
    stack = [statement]
    while stack:
        inner = stack.pop()
        yield inner
        stack += reversed(statement_children(inner))


def walk_expressions(*roots: Expression) -> Iterator[Expression]:
    """Yield every distinct node (by identity) of some expressions, operands before their users."""
    done: set[int] = set()
    stack: list[tuple[Expression, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if id(node) in done:
            continue
        if ready:
            done.add(id(node))
            yield node
        else:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(children(node)))


def unknown(root: Expression, known: Container[int]) -> Iterator[Expression]:
    """Yield the nodes of an expression whose ``id`` is not in ``known``, operands before their users.

    The caller adds each before it takes the next; so a walk that remembers nodes needs no recursion, whose depth would
    be that of the expression: that of a chain of operators in one kernel.
    """
    stack = [root]
    while stack:
        node = stack[-1]
        if id(node) in known:
            stack.pop()
            continue
        waiting = [operand for operand in children(node) if id(operand) not in known]
        if waiting:
            stack += reversed(waiting)
        else:
            yield node
            stack.pop()


def structural_key(expression: Expression) -> Hashable:
    """Return a key that expressions share if they are the same operation on the same objects; so equal ones become one.

    A float is known by its bits: 0.0 is not -0.0.
    """
    return _KEYS[type(expression)](expression)


# A table for the same reason as `_SHAPES`.
_KEYS: dict[type, Callable[..., Hashable]] = {
    Variable: lambda e: e,
    Constant: lambda e: (Constant, e.value.hex() if isinstance(e.value, float) else e.value, e.type),
    Load: lambda e: (Load, e.buffer, None if e.mask is None else id(e.mask), *map(id, e.indices)),
    Ramp: lambda e: (Ramp, id(e.base), e.stride, e.lanes),
    Broadcast: lambda e: (Broadcast, id(e.value), e.lanes),
    Unary: lambda e: (Unary, e.operator, id(e.value)),
    Horizontal: lambda e: (Horizontal, e.operator, id(e.value)),
    Cast: lambda e: (Cast, e.dtype, id(e.value)),
    Bitcast: lambda e: (Bitcast, e.dtype, id(e.value)),
    Intrinsic: lambda e: (Intrinsic, e.name, e.type, *map(id, e.arguments)),
    Shuffle: lambda e: (Shuffle, e.lanes, *map(id, e.vectors)),
    Binary: lambda e: (Binary, e.operator, id(e.left), id(e.right)),
    Select: lambda e: (Select, id(e.condition), id(e.on_true), id(e.on_false)),
}
assert set(_KEYS) == set(_SHAPES), "an expression without a key"


def free_variables(*roots: Expression) -> set[Variable]:
    """Return the variables that occur in some expressions."""
    return {node for node in walk_expressions(*roots) if isinstance(node, Variable)}


def loads(*roots: Expression) -> list[Load]:
    """Return the distinct `Load` nodes of some expressions, those inside indices first."""
    found: list[Load] = []
    done: set[int] = set()
    todo: list[Expression | None] = list(reversed(roots))
    while todo:
        node = todo.pop()
        if node is None:  # the operands of the load below were visited
            load = todo.pop()
            assert isinstance(load, Load), load
            found.append(load)
        elif id(node) not in done:
            done.add(id(node))
            if isinstance(node, Load):
                todo += (node, None)
            todo += [operand for operand in reversed(children(node)) if type(operand) not in _LEAVES]
    return found


def buffers_read(statement: Statement) -> set[Buffer]:
    """Return the buffers that a statement, or one inside it, loads from or passes to an extern."""
    return {load.buffer for inner in walk_statements(statement) for load in loads(*statement_expressions(inner))}
