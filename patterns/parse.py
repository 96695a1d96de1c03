"""The parser of pattern text: a small part of Python's expressions, evaluated over the pattern language alone."""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Mapping

from graft.errors import PatternError
from graft.patterns import language
from graft.patterns.language import Pattern

FUNCTIONS: Mapping[str, Callable[..., object]] = {
    name: getattr(language, name)
    for name in (
        "absent", "dominates", "is_composite", "is_constant", "is_if", "is_input", "is_op", "is_region", "outputs",
        "repeat", "wildcard",
    )
}  # fmt: skip
METHODS = frozenset(
    (
        "dominates", "fork_to", "has_attr", "has_body", "has_dtype", "has_rank", "has_shape", "in_any_order", "named",
        "only_used_by", "optional", "output", "redirect_to", "same_shape_as", "used_by", "where",
    )
)  # fmt: skip
OPERATORS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
    ast.RShift: operator.rshift,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.Invert: operator.invert,
    ast.USub: operator.neg,
}


def parse_pattern(text: str, predicates: Mapping[str, Callable[..., bool]] | None = None) -> Pattern:
    """Return the pattern that a text describes; raise PatternError where it is not one.

    ``predicates`` are the functions that the text names. Nothing but the pattern language and these can be called.
    """
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise PatternError(f"pattern text, line {error.lineno}: {error.msg}", line=error.lineno) from error
    names: dict[str, object] = dict(predicates or {})
    result: object = None
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _evaluate(value, names)
                result = None
            case ast.Expr(value=value):
                result = _evaluate(value, names)
            case _:
                raise _error(statement, "wanted 'name = pattern' or a pattern")
    if not isinstance(result, Pattern):
        raise PatternError("pattern text must end with a pattern")
    return result


def _evaluate(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _look_up(node, name, names)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_evaluate(item, names) for item in items]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _apply(node, OPERATORS[type(op)], _evaluate(left, names), _evaluate(right, names))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return _apply(node, OPERATORS[type(op)], _evaluate(operand, names))
        case ast.Subscript(value=value, slice=index):
            return _apply(node, operator.getitem, _evaluate(value, names), _evaluate(index, names))
        case ast.Lambda(args=ast.arguments(args=[ast.arg(arg=parameter)]), body=body):
            return lambda value: _evaluate(body, {**names, parameter: value})
        case ast.Call(func=function, args=arguments, keywords=keywords):
            values = [_evaluate(argument, names) for argument in arguments]
            options = {item.arg: _evaluate(item.value, names) for item in keywords if item.arg is not None}
            return _apply(node, _callable(function, names), *values, **options)
        case _:
            raise _error(node, f"'{ast.unparse(node)}' is not part of the pattern language")


def _callable(node: ast.expr, names: Mapping[str, object]) -> Callable[..., object]:
    match node:
        case ast.Attribute(value=value, attr=name):
            owner = _evaluate(value, names)
            if isinstance(owner, Pattern) and name in METHODS:
                method: Callable[..., object] = getattr(owner, name)
                return method
            raise _error(node, f"patterns have no method '{name}'{_near(name, METHODS)}")
        case ast.Name(id=name) if name in FUNCTIONS and name not in names:
            return FUNCTIONS[name]
        case _:
            found = _evaluate(node, names)
            if isinstance(found, language.Operator):
                return found
            raise _error(node, f"'{ast.unparse(node)}' cannot be called in a pattern")


def _look_up(node: ast.expr, name: str, names: Mapping[str, object]) -> object:
    if name in names:
        return names[name]
    raise _error(node, f"unknown name '{name}'{_near(name, (*names, *FUNCTIONS))}")


def _apply(node: ast.expr, function: Callable[..., object], *values: object, **options: object) -> object:
    try:
        return function(*values, **options)
    except TypeError as error:
        raise _error(node, f"'{ast.unparse(node)}': {error}") from error


def _near(name: str, known: object) -> str:
    near = difflib.get_close_matches(name, list(known), 1)  # type: ignore[call-overload]
    return f"; did you mean '{near[0]}'?" if near else ""


def _error(node: ast.stmt | ast.expr, text: str) -> PatternError:
    return PatternError(f"pattern text, line {node.lineno}: {text}", line=node.lineno)
