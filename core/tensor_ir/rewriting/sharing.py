"""Subexpressions that are used twice get a name: a graph of expressions becomes a list of `Let` and one statement.

Text, C code and people read expressions as trees; without names the tree of a polynomial expansion has millions of
nodes.
"""

from __future__ import annotations

from dataclasses import replace

from graft.core.tensor_ir.ir import Broadcast, Constant, Expression, Let, Ramp, Statement, Store, Variable
from graft.core.tensor_ir.statements import bind
from graft.core.tensor_ir.visit import children, statement_expressions, unknown, walk_expressions, with_children


def bind_shared(statement: Statement) -> Statement:
    """Return the statement with its own shared subexpressions bound by `Let` around it; statements inside are left.

    Only `Store` and `Let` hold expressions that are worth it.
    """
    if not isinstance(statement, Store | Let):
        return statement
    roots = statement_expressions(statement)
    order = list(walk_expressions(*roots))
    uses: dict[int, int] = {}
    for node in order:
        for operand in children(node):
            uses[id(operand)] = uses.get(id(operand), 0) + 1
    for root in roots:
        uses[id(root)] = uses.get(id(root), 0) + 1
    shared = [node for node in order if uses[id(node)] > 1 and not _is_trivial(node)]
    if not shared:
        return statement
    names: dict[int, Variable] = {id(node): Variable(f"v{number}", node.type) for number, node in enumerate(shared)}
    named = _Naming(names)
    bindings = [(names[id(node)], named.inside(node)) for node in shared]
    result: Statement
    if isinstance(statement, Store):
        mask = None if statement.mask is None else named(statement.mask)
        indices = tuple(map(named, statement.indices))
        result = Store(statement.buffer, indices, named(statement.value), mask)
    else:
        result = replace(statement, value=named(statement.value))
    return bind(bindings, result)


def _is_trivial(node: Expression) -> bool:
    """Whether a node is never named: a ramp must stay visible in the index of an access."""
    return isinstance(node, Constant | Variable | Broadcast | Ramp)


class _Naming:
    """The map that replaces shared nodes by their names."""

    def __init__(self, names: dict[int, Variable]) -> None:
        self._names = names
        self._known: dict[int, Expression] = {}

    def __call__(self, node: Expression) -> Expression:
        return self._names[id(node)] if id(node) in self._names else self.inside(node)

    def inside(self, node: Expression) -> Expression:
        """Return the node itself with what is shared below it replaced."""
        for inner in unknown(node, self._known):
            operands = children(inner)
            new = tuple([self._names.get(id(one)) or self._known[id(one)] for one in operands])
            self._known[id(inner)] = with_children(inner, new)
        return self._known[id(node)]
