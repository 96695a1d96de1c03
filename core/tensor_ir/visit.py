"""Walking and rebuilding expressions and statements: children, map, substitute, free variables.

Expressions share subexpressions (they are graphs, not trees), so every walk remembers nodes by identity and takes time
linear in the number of distinct nodes; a rebuild keeps what did not change and keeps the sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import NamedTuple, TypeAlias, get_args

from graft.core.tensor_ir import ir


def children(expression: ir.Expression) -> tuple[ir.Expression, ...]:
    """Return the operands of an expression in order (of a `Load`: its indices, then its mask if it has one)."""
    return _SHAPES[type(expression)][0](expression)


def with_children(expression: ir.Expression, operands: tuple[ir.Expression, ...]) -> ir.Expression:
    """Return the expression with other operands, the same object if none differs."""
    parts, rebuilt = _SHAPES[type(expression)]
    for new, old in zip(operands, parts(expression), strict=True):
        if new is not old:
            return rebuilt(expression, operands)
    return expression


def in_lanes(node: ir.Expression, operands: tuple[ir.Expression, ...], lanes: int) -> ir.Expression:
    """Return an operation on each lane with other operands, of so many lanes."""
    made = with_children(node, operands)
    if isinstance(made, ir.Intrinsic) and made.type.lanes != lanes:
        return ir.Intrinsic(made.name, made.arguments, made.type.with_lanes(lanes))
    return made


def _load_operands(load: ir.Load) -> tuple[ir.Expression, ...]:
    return load.indices if load.mask is None else (*load.indices, load.mask)


def _load_of(load: ir.Load, operands: tuple[ir.Expression, ...]) -> ir.Load:
    if load.mask is None:
        return ir.Load(load.buffer, operands)
    return ir.Load(load.buffer, operands[:-1], operands[-1])


# One row per class: a table, because compilation spends its time here and a chain of `case` is three times as slow.
_SHAPES: dict[type, tuple[Callable[..., tuple[ir.Expression, ...]], Callable[..., ir.Expression]]] = {
    ir.Constant: (lambda e: (), lambda e, _: e),
    ir.Variable: (lambda e: (), lambda e, _: e),
    ir.Load: (_load_operands, _load_of),
    ir.Ramp: (lambda e: (e.base,), lambda e, new: ir.Ramp(new[0], e.stride, e.lanes)),
    ir.Broadcast: (lambda e: (e.value,), lambda e, new: ir.Broadcast(new[0], e.lanes)),
    ir.Unary: (lambda e: (e.value,), lambda e, new: ir.Unary(e.operator, new[0])),
    ir.Cast: (lambda e: (e.value,), lambda e, new: ir.Cast(new[0], e.dtype)),
    ir.Bitcast: (lambda e: (e.value,), lambda e, new: ir.Bitcast(new[0], e.dtype)),
    ir.Horizontal: (lambda e: (e.value,), lambda e, new: ir.Horizontal(e.operator, new[0])),
    ir.Binary: (lambda e: (e.left, e.right), lambda e, new: ir.Binary(e.operator, *new)),
    ir.Select: (lambda e: (e.condition, e.on_true, e.on_false), lambda e, new: ir.Select(*new)),
    ir.Intrinsic: (lambda e: e.arguments, lambda e, new: ir.Intrinsic(e.name, new, e.type)),
    ir.Shuffle: (lambda e: e.vectors, lambda e, new: ir.Shuffle(new, e.lanes)),
}
assert set(get_args(ir.Expression)) == set(_SHAPES), "an expression without a row"


_LEAVES = frozenset({ir.Constant, ir.Variable})


class ExpressionMap:
    """A function on expressions applied from the leaves up, once to each distinct node.

    ``rule``, which may be a method of a subclass, gets a node whose operands are already mapped, and returns its
    replacement (or the node itself). One map may be applied to many expressions; it keeps them alive, since it
    remembers them by identity.
    """

    def __init__(self, rule: Callable[[ir.Expression], ir.Expression]) -> None:
        self.rule = rule
        self._known: dict[int, tuple[ir.Expression, ir.Expression]] = {}

    def define(self, expression: ir.Expression, result: ir.Expression) -> None:
        """Map a node, known by identity, to ``result``, whatever is below it."""
        self._known[id(expression)] = (expression, result)

    def __call__(self, expression: ir.Expression) -> ir.Expression:
        """Return the mapped expression."""
        known, rule = self._known, self.rule
        done = known.get(id(expression))
        if done is not None:
            return done[1]
        if type(expression) in _LEAVES:
            known[id(expression)] = (expression, rule(expression))
            return known[id(expression)][1]
        stack = [expression]  # of its own: expressions are as deep as chains of operators are long
        while stack:
            node = stack[-1]
            if id(node) in known:
                stack.pop()
                continue
            parts, rebuilt = _SHAPES[type(node)]
            operands = parts(node)
            waiting: list[ir.Expression] = []
            is_changed = False
            for operand in operands:
                done = known.get(id(operand))
                if done is None and not waiting and type(operand) in _LEAVES:
                    done = known[id(operand)] = (operand, rule(operand))
                if done is None:
                    waiting.append(operand)
                elif done[1] is not operand:
                    is_changed = True
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
            mapped = rebuilt(node, tuple([known[id(one)][1] for one in operands])) if is_changed else node
            known[id(node)] = (node, rule(mapped))
            stack.pop()
        return known[id(expression)][1]


def substitute(expression: ir.Expression, values: Mapping[ir.Variable, ir.Expression]) -> ir.Expression:
    """Return the expression with variables replaced; the values are not substituted into again."""
    return substitution(values)(expression)


def substitution(values: Mapping[ir.Variable, ir.Expression]) -> ExpressionMap:
    """Return the map that replaces variables, to be applied to several expressions that share parts."""
    return ExpressionMap(lambda node: values.get(node, node) if type(node) is ir.Variable else node)


_OnExpression: TypeAlias = Callable[[ir.Expression], ir.Expression]
_OnStatement: TypeAlias = Callable[[ir.Statement], ir.Statement]
_OnVariable: TypeAlias = Callable[[ir.Variable], ir.Variable]
_OnBuffer: TypeAlias = Callable[[ir.Buffer], ir.Buffer]


class _StatementRow(NamedTuple):
    """What stands directly in a kind of statement, and how it is rebuilt from its parts."""

    expressions: Callable[..., tuple[ir.Expression, ...]] = lambda s: ()
    statements: Callable[..., tuple[ir.Statement, ...]] = lambda s: ()
    rebuilt: Callable[..., ir.Statement] = lambda s, *_: s
    """Of a statement and functions on expressions, statements, bound variables and buffers; itself if none differs."""


def _body(statement: ir.For | ir.Let | ir.Allocate | ir.Issue) -> tuple[ir.Statement, ...]:
    return (statement.body,)


def _all_same(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return all(map(is_, new, old))


def _store(s: ir.Store, e: _OnExpression, _: _OnStatement, v: _OnVariable, b: _OnBuffer) -> ir.Store:
    buffer, indices, value = b(s.buffer), tuple(map(e, s.indices)), e(s.value)
    mask = None if s.mask is None else e(s.mask)
    same = buffer is s.buffer and value is s.value and mask is s.mask and _all_same(indices, s.indices)
    return s if same else ir.Store(buffer, indices, value, mask)


def _for(s: ir.For, e: _OnExpression, inner: _OnStatement, v: _OnVariable, _: _OnBuffer) -> ir.For:
    variable, extent, body = v(s.variable), e(s.extent), inner(s.body)
    same = variable is s.variable and extent is s.extent and body is s.body
    return s if same else ir.For(variable, extent, s.kind, body, s.binding)


def _if(s: ir.If, e: _OnExpression, inner: _OnStatement, *_: object) -> ir.If:
    condition, first = e(s.condition), inner(s.then_body)
    second = None if s.else_body is None else inner(s.else_body)
    same = condition is s.condition and first is s.then_body and second is s.else_body
    return s if same else ir.If(condition, first, second)


def _let(s: ir.Let, e: _OnExpression, inner: _OnStatement, v: _OnVariable, _: _OnBuffer) -> ir.Let:
    variable, value, body = v(s.variable), e(s.value), inner(s.body)
    return s if variable is s.variable and value is s.value and body is s.body else ir.Let(variable, value, body)


def _allocate(s: ir.Allocate, _: _OnExpression, inner: _OnStatement, v: _OnVariable, b: _OnBuffer) -> ir.Allocate:
    buffer, body = b(s.buffer), inner(s.body)
    return s if buffer is s.buffer and body is s.body else ir.Allocate(buffer, body)


def _block(s: ir.Block, _: _OnExpression, inner: _OnStatement, *__: object) -> ir.Block:
    statements = tuple(map(inner, s.statements))
    return s if _all_same(statements, s.statements) else ir.Block(statements)


def _call(s: ir.CallExtern, e: _OnExpression, *_: object) -> ir.CallExtern:
    arguments = tuple(map(e, s.arguments))
    return s if _all_same(arguments, s.arguments) else ir.CallExtern(s.name, arguments)


def _issue(s: ir.Issue, _: _OnExpression, inner: _OnStatement, *__: object) -> ir.Issue:
    body = inner(s.body)
    return s if body is s.body else ir.Issue(s.queue, body)


_STATEMENTS: dict[type, _StatementRow] = {
    ir.Store: _StatementRow(
        lambda s: (*s.indices, s.value) if s.mask is None else (*s.indices, s.value, s.mask), rebuilt=_store
    ),
    ir.For: _StatementRow(lambda s: (s.extent,), _body, _for),
    ir.If: _StatementRow(
        lambda s: (s.condition,),
        lambda s: (s.then_body,) if s.else_body is None else (s.then_body, s.else_body),
        _if,
    ),
    ir.Let: _StatementRow(lambda s: (s.value,), _body, _let),
    ir.Allocate: _StatementRow(lambda s: s.buffer.shape, _body, _allocate),
    ir.Block: _StatementRow(statements=lambda s: s.statements, rebuilt=_block),
    ir.CallExtern: _StatementRow(lambda s: s.arguments, rebuilt=_call),
    ir.Issue: _StatementRow(statements=_body, rebuilt=_issue),
    ir.Barrier: _StatementRow(),
    ir.Push: _StatementRow(),
    ir.Pop: _StatementRow(),
}
assert set(get_args(ir.Statement)) == set(_STATEMENTS), "a statement without a row"


def statement_expressions(statement: ir.Statement) -> tuple[ir.Expression, ...]:
    """Return the expressions that stand directly in a statement, not those of statements inside it."""
    return _STATEMENTS[type(statement)].expressions(statement)


def statement_children(statement: ir.Statement) -> tuple[ir.Statement, ...]:
    """Return the statements directly inside a statement."""
    return _STATEMENTS[type(statement)].statements(statement)


def with_parts(
    statement: ir.Statement,
    expression: Callable[[ir.Expression], ir.Expression],
    inner: Callable[[ir.Statement], ir.Statement],
    variable: Callable[[ir.Variable], ir.Variable] = lambda variable: variable,
    buffer: Callable[[ir.Buffer], ir.Buffer] = lambda buffer: buffer,
) -> ir.Statement:
    """Return a statement whose parts have gone through functions: the expressions and statements directly in it.

    ``variable`` maps what it binds, ``buffer`` what it stores to or allocates, before the rest; the shape of a buffer
    is its own. Where no part differs, the statement is the same object.
    """
    return _STATEMENTS[type(statement)].rebuilt(statement, expression, inner, variable, buffer)


def map_statement(
    statement: ir.Statement,
    expression: Callable[[ir.Expression], ir.Expression],
    rule: Callable[[ir.Statement], ir.Statement] = lambda statement: statement,
) -> ir.Statement:
    """Rebuild a statement: ``expression`` maps every expression, then ``rule`` every statement, innermost first."""
    if expression is _same and not statement_children(statement):
        return rule(statement)

    def walk(inner: ir.Statement) -> ir.Statement:
        return map_statement(inner, expression, rule)

    def address(argument: ir.Expression) -> ir.Expression:
        # A Load argument of an extern is an address: it must stay a Load.
        if isinstance(argument, ir.Load):
            indices = tuple(map(expression, argument.indices))
            return argument if _all_same(indices, argument.indices) else replace(argument, indices=indices)
        return expression(argument)

    if isinstance(statement, ir.Let):
        bound, inner = chain_of_lets(statement)
        values = [expression(one.value) for one in bound]
        mapped = walk(inner)
        for one, value in zip(reversed(bound), reversed(values), strict=True):
            same = value is one.value and mapped is one.body
            mapped = rule(one if same else ir.Let(one.variable, value, mapped))
        return mapped
    return rule(with_parts(statement, address if isinstance(statement, ir.CallExtern) else expression, walk))


def map_nested(statement: ir.Statement, rule: Callable[[ir.Statement], ir.Statement]) -> ir.Statement:
    """Rebuild a statement by a rule on every statement in it, innermost first; expressions stay as they are."""
    return map_statement(statement, _same, rule)


def _same(expression: ir.Expression) -> ir.Expression:
    return expression


def map_accesses(
    statement: ir.Statement,
    buffers: Container[ir.Buffer],
    change: Callable[[ir.Buffer, tuple[ir.Expression, ...]], tuple[ir.Buffer, tuple[ir.Expression, ...]]],
) -> ir.Statement:
    """Rebuild a statement with accesses to some buffers changed: ``change`` maps a buffer and mapped indices."""

    def load(node: ir.Expression) -> ir.Expression:
        if not isinstance(node, ir.Load) or node.buffer not in buffers:
            return node
        buffer, indices = change(node.buffer, node.indices)
        return ir.Load(buffer, indices, node.mask)

    def store(inner: ir.Statement) -> ir.Statement:
        if isinstance(inner, ir.CallExtern):  # whose loads are addresses
            return replace(inner, arguments=tuple(map(load, inner.arguments)))
        if not isinstance(inner, ir.Store) or inner.buffer not in buffers:
            return inner
        buffer, indices = change(inner.buffer, inner.indices)
        return replace(inner, buffer=buffer, indices=indices)

    return map_statement(statement, ExpressionMap(load), store)


def chain_of_lets(statement: ir.Statement) -> tuple[list[ir.Let], ir.Statement]:
    """Return the `Let`s that a statement begins with, outermost first, and the statement inside the last.

    Unrolled loops make chains of hundreds: what goes through statements takes a chain in one step, without recursion.
    """
    chain = []
    while isinstance(statement, ir.Let):
        chain.append(statement)
        statement = statement.body
    return chain, statement


def conjuncts(condition: ir.Expression | None) -> Iterator[ir.Expression]:
    """Yield what must hold for a condition to hold."""
    match condition:
        case None:
            return
        case ir.Binary("and", left, right):
            yield from conjuncts(left)
            yield from conjuncts(right)
        case ir.Broadcast(value):
            yield from conjuncts(value)
        case _:
            yield condition


def walk_statements(statement: ir.Statement) -> Iterator[ir.Statement]:
    """Yield a statement and all statements inside it, outermost first."""
    stack = [statement]
    while stack:
        inner = stack.pop()
        yield inner
        stack += reversed(statement_children(inner))


def walk_expressions(*roots: ir.Expression) -> Iterator[ir.Expression]:
    """Yield every distinct node (by identity) of some expressions, operands before their users."""
    done: set[int] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if id(node) in done:
            stack.pop()
            continue
        if type(node) not in _LEAVES:
            waiting = [operand for operand in children(node) if id(operand) not in done]
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
        done.add(id(node))
        stack.pop()
        yield node


def unknown(root: ir.Expression, known: Container[int]) -> Iterator[ir.Expression]:
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


def structural_key(expression: ir.Expression, of: Callable[[ir.Expression], Hashable] = id) -> Hashable:
    """Return a key that expressions share if they are the same operation on the same objects; so equal ones become one.

    A float is known by its bits: 0.0 is not -0.0. ``of`` says what operands are known by.
    """
    return _KEYS[type(expression)](expression, of)


# A table for the same reason as `_SHAPES`.
_KEYS: dict[type, Callable[..., Hashable]] = {
    ir.Variable: lambda e, of: e,
    ir.Constant: lambda e, of: ("constant", e.value.hex() if isinstance(e.value, float) else e.value, e.type),
    ir.Load: lambda e, of: ("load", e.buffer, None if e.mask is None else of(e.mask), *map(of, e.indices)),
    ir.Ramp: lambda e, of: ("ramp", of(e.base), e.stride, e.lanes),
    ir.Broadcast: lambda e, of: ("broadcast", of(e.value), e.lanes),
    ir.Unary: lambda e, of: ("unary", e.operator, of(e.value)),
    ir.Horizontal: lambda e, of: ("horizontal", e.operator, of(e.value)),
    ir.Cast: lambda e, of: ("cast", of(e.value), e.dtype),
    ir.Bitcast: lambda e, of: ("bitcast", of(e.value), e.dtype),
    ir.Intrinsic: lambda e, of: ("intrinsic", e.name, e.type, *map(of, e.arguments)),
    ir.Shuffle: lambda e, of: ("shuffle", tuple(map(of, e.vectors)), e.lanes),
    ir.Binary: lambda e, of: ("binary", e.operator, of(e.left), of(e.right)),
    ir.Select: lambda e, of: ("select", of(e.condition), of(e.on_true), of(e.on_false)),
}
assert set(_KEYS) == set(_SHAPES), "an expression without a key"


def free_variables(*roots: ir.Expression) -> set[ir.Variable]:
    """Return the variables that occur in some expressions."""
    return {node for node in walk_expressions(*roots) if isinstance(node, ir.Variable)}


def loads(*roots: ir.Expression) -> list[ir.Load]:
    """Return the distinct `Load` nodes of some expressions, those inside indices first."""
    found: list[ir.Load] = []
    done: set[int] = set()
    todo: list[ir.Expression | None] = list(reversed(roots))
    while todo:
        node = todo.pop()
        if node is None:  # the operands of the load below were visited
            load = todo.pop()
            assert isinstance(load, ir.Load), load
            found.append(load)
        elif id(node) not in done:
            done.add(id(node))
            if isinstance(node, ir.Load):
                todo += (node, None)
            todo += [operand for operand in reversed(children(node)) if type(operand) not in _LEAVES]
    return found


def buffers_read(statement: ir.Statement) -> set[ir.Buffer]:
    """Return the buffers that a statement, or one inside it, loads from or passes to an extern."""
    return {load.buffer for inner in walk_statements(statement) for load in loads(*statement_expressions(inner))}
