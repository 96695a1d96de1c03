"""The mutants of a module: its source with one operator, constant or condition changed.

Left alone is what a change of is no other behaviour: docstrings, annotations and aliases of types, assertions, the
wording of errors, flags of dataclasses, sizes of caches.
"""

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
_FLAGS = ("frozen", "slots", "kw_only", "repr", "eq", "order", "maxsize", "strict", "stacklevel")
"""Keywords whose value changes no result: `strict` of `zip` and the options of `dataclass`, `field` and `lru_cache`."""


@dataclass(frozen=True)
class Mutant:
    """A changed source, with the line and what stands there now; `module` is its syntax, on the lines of the source."""

    line: int
    change: str
    module: ast.Module

    @property
    def source(self) -> str:
        """The text of the mutant."""
        return ast.unparse(self.module)


def mutants_of(source: str) -> list[Mutant]:
    """Return all mutants of a source."""
    module = ast.parse(source)
    count = sum(1 for _ in _places(module))
    found = []
    for number in range(count):
        changed = copy.deepcopy(module)
        node = next(node for place, node in enumerate(_places(changed)) if place == number)
        before = ast.unparse(node)
        after = _mutate(node)
        if after is not None and _is_python(ast.fix_missing_locations(changed)):
            found.append(Mutant(node.lineno, f"{before}  ->  {after}", changed))
    return found


def _is_python(module: ast.Module) -> bool:
    """Whether a mutant compiles: patterns hold no arithmetic."""
    try:
        compile(module, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _places(module: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that can be changed, in order."""
    waiting: list[ast.AST] = [module]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Assert() | ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.keyword(arg=str(name)) if name in _FLAGS:
                continue
            case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
                continue
            case ast.Raise(exc=ast.Call()):
                waiting += [part for part in reversed(node.exc.args) if not isinstance(part, ast.JoinedStr)]
                continue
            case ast.BinOp(op=ast.BitOr()) if all(map(_is_type, _terms(node))):
                continue
            case ast.Compare() | ast.BinOp() | ast.BoolOp() | ast.UnaryOp() | ast.Constant():
                yield node
        for name, value in reversed(list(ast.iter_fields(node))):
            if name not in ("annotation", "returns", "type_comment"):
                parts = value if isinstance(value, list) else [value]
                waiting += [part for part in reversed(parts) if isinstance(part, ast.AST)]


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the terms of a union."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _is_type(node: ast.expr) -> bool:
    """Whether an expression is a type by its spelling: a name in capitals and small letters, or one of Python's."""
    match node:
        case ast.Constant(value=None):
            return True
        case ast.Subscript(value=of):
            return _is_type(of)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("int", "float", "str", "bool", "bytes", "list", "dict", "tuple", "set") or (
                name.lstrip("_")[:1].isupper() and not name.isupper()
            )
    return False


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
