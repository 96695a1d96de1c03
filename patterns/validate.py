"""Mistakes in a pattern that would otherwise show as a silent miss."""

from __future__ import annotations

import difflib
import sys
from functools import cache

from graft.core.operators.all import OPERATORS
from graft.errors import PatternError
from graft.patterns.language import (
    Absent,
    Alternative,
    Body,
    Both,
    ConstantPattern,
    Constrained,
    Dominator,
    InputPattern,
    Named,
    Operator,
    Output,
    Pattern,
    Together,
    Wildcard,
)
from graft.patterns.value_constraints import Attributes
from graft.patterns.walk import parts, root_operators, walk


def validate(pattern: Pattern) -> None:
    """Raise PatternError if a pattern names an operator, attribute or output that ONNX does not have, or is cyclic.

    Operators of other domains than ONNX's are taken as they are.
    """
    for part in walk(pattern):
        if isinstance(part, Operator) and not part.domain:
            for name in part.names:
                _schema(name)
            if part.arguments is not None:
                _require_arity(part)
        elif isinstance(part, Constrained) and isinstance(part.constraint, Attributes):
            for name, _ in part.constraint.wanted:
                _require_attribute(part.pattern, name)
        elif isinstance(part, Output) and not part.node.domain:
            _require_output(part)
        elif isinstance(part, Wildcard) and part.target is not None:
            _require_progress(part)


_ANY = (frozenset[str](), sys.maxsize, sys.maxsize)
"""What is known of an operator without a schema."""


@cache
def _schema(name: str) -> tuple[frozenset[str], int, int]:
    """Return the attributes and the most inputs and outputs of an operator; raise PatternError if ONNX has none."""
    import onnx

    if not onnx.defs.has(name) and OPERATORS.get(name) is not None:
        return _ANY  # an operator that a plugin added
    if not onnx.defs.has(name):
        known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
        raise PatternError(f"the pattern names an unknown operator '{name}'{_near(name, known)}", operator=name)
    schema = onnx.defs.get_schema(name)
    return frozenset(schema.attributes), schema.max_input, schema.max_output


def _require_arity(pattern: Operator) -> None:
    count = len(pattern.arguments or ())
    most = max(_schema(name)[1] for name in pattern.names)
    if count > most:
        raise PatternError(
            f"the pattern gives {pattern.title} {count} inputs, it has at most {most}", operator=pattern.names[0]
        )


def _require_output(pattern: Output) -> None:
    most = max(_schema(name)[2] for name in pattern.node.names)
    if pattern.index >= most:
        raise PatternError(
            f"the pattern asks for output {pattern.index} of {pattern.node.title}, which has at most {most}",
            operator=pattern.node.names[0],
        )


def _require_attribute(pattern: Pattern, name: str) -> None:
    roots = root_operators(pattern)
    if not roots or any(domain for domain, _ in roots):
        return
    schemas = [_schema(root) for _, root in roots]
    if _ANY in schemas:
        return
    known = frozenset().union(*(schema[0] for schema in schemas))
    if name not in known:
        title = " or ".join(sorted(root for _, root in roots))
        raise PatternError(f"{title} has no attribute '{name}'{_near(name, known)}", attribute=name)


def _require_progress(alias: Wildcard) -> None:
    """Raise PatternError if a recursive pattern leads to itself without an operator in between."""
    stack: list[Pattern] = [alias.target] if alias.target is not None else []
    seen: set[Pattern] = set()
    while stack:
        part = stack.pop()
        if part is alias:
            raise PatternError("a recursive pattern leads to itself without an operator in between; it never ends")
        if part in seen or isinstance(part, Operator | Output | Absent | ConstantPattern | InputPattern):
            continue
        seen.add(part)
        stack.extend(_same_value(part))


def _same_value(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the parts that stand for the same value as the pattern."""
    match pattern:
        case Alternative() | Both() | Named() | Wildcard():
            return parts(pattern)
        case Constrained(pattern=inner) | Body(pattern=inner) | Dominator(child=inner) | Together(members=(inner, *_)):
            return (inner,)
        case _:
            return parts(pattern)


def _near(name: str, known: object) -> str:
    near = difflib.get_close_matches(name, list(known), 1)  # type: ignore[call-overload]
    return f"; did you mean '{near[0]}'?" if near else ""
