"""The mutants of a module: its source with one operator, constant or condition changed."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A changed source, with the line and what stands there now."""

    line: int
    change: str
    source: str


def mutants_of(source: str) -> list[Mutant]:
    """Return all mutants of a source; types in annotations are left as they are."""
    module = ast.parse(source)
    count = sum(1 for _ in _places(module))
    found = []
    for number in range(count):
        changed = copy.deepcopy(module)
        node = next(node for place, node in enumerate(_places(changed)) if place == number)
        before = ast.unparse(node)
        after = _mutate(node)
        if after is not None:
            found.append(Mutant(node.lineno, f"{before}  ->  {after}", ast.unparse(ast.fix_missing_locations(changed))))
    return found


def _places(module: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that can be changed, in order, without annotations and docstrings."""
    waiting: list[ast.AST] = [module]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Constant):
            yield node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        for name, value in reversed(list(ast.iter_fields(node))):
            if name not in ("annotation", "returns", "type_comment"):
                parts = value if isinstance(value, list) else [value]
                waiting += [part for part in reversed(parts) if isinstance(part, ast.AST)]


def _mutate(node: ast.expr) -> str | None:
    """Change an expression in place; return its new text, None where there is nothing to change."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            node.ops = [_COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in _ARITHMETIC:
            node.op = _ARITHMETIC[type(operator)]()
        case ast.BoolOp(op=operator):
            node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.UnaryOp(op=ast.USub()):
            node.op = ast.UAdd()
        case ast.Constant(value=bool() as value):
            node.value = not value
        case ast.Constant(value=int() as value):
            node.value = value + 1
        case _:
            return None
    return ast.unparse(node)
