"""Mistakes in a pattern that would otherwise show as a silent miss."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.errors import PatternError
from graft.patterns import language
from graft.patterns.arguments import OTHER_NAMES
from graft.patterns.checks.demands import innermost, require_agreement
from graft.patterns.value_constraints import Attributes, DtypeIs
from graft.patterns.walk import parts, root_operators, walk


def validate(pattern: language.Pattern) -> None:
    """Raise PatternError if a pattern can never match, as far as ONNX's schemas and its own demands tell, or is cyclic.

    Operators of other domains than ONNX's are taken as they are.
    """
    for part in walk(pattern):
        match part:
            case language.Operator(domain="", names=names):
                for name in names:
                    _schema(name)
                _require_arity(part)
            case language.Constrained(pattern=inner, constraint=Attributes(wanted=wanted)):
                for name, value in wanted:
                    _require_attribute(inner, name, value)
            case language.Constrained(pattern=inner, constraint=DtypeIs(dtypes=dtypes)):
                _require_results(inner, dtypes)
            case language.Both(left=left, right=right):
                _require_common_root(left, right)
            case language.Output(node=language.Operator(domain="")):
                _require_output(part)
            case language.Wildcard(target=language.Pattern()):
                _require_progress(part)
        if isinstance(part, language.Constrained | language.Both):
            require_agreement(part)


@dataclass(frozen=True, slots=True)
class _Schema:
    """What patterns are held against: the attributes with their types, and how many inputs and outputs there may be."""

    attributes: Mapping[str, int]
    least_inputs: int
    inputs: int
    outputs: int
    results: tuple[frozenset[str], ...]
    """The element types of every output that is not variadic."""


@cache
def _schema(name: str) -> _Schema | None:
    """Return what ONNX says of an operator, None for one that a plugin added; raise PatternError for an unknown one.

    As few inputs are enough as in any version: a graph may be older than the newest operators.
    """
    import onnx

    if not onnx.defs.has(name):
        if OPERATORS.get(name) is not None:
            return None
        known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
        raise PatternError(f"the pattern names an unknown operator '{name}'{_near(name, known)}", operator=name)
    schema = onnx.defs.get_schema(name)
    return _Schema(
        {key: _kind(attribute.type) for key, attribute in schema.attributes.items()},
        min(least for least in _least_inputs()[name]),
        schema.max_input,
        schema.max_output,
        tuple(
            frozenset(_dtype(kind) for kind in output.types)
            for output in schema.outputs
            if output.option != onnx.defs.OpSchema.FormalParameterOption.Variadic
        ),
    )


@cache
def _least_inputs() -> Mapping[str, list[int]]:
    """Return the least number of inputs of every version of ONNX's operators."""
    import onnx

    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            found.setdefault(schema.name, []).append(schema.min_input)
    return found


def _kind(kind: Any) -> int:
    return int(kind.value)


def _dtype(kind: str) -> str:
    """Return the element type of a schema's type, "" for what is no tensor."""
    inner = kind.removeprefix("tensor(").removesuffix(")") if kind.startswith("tensor(") else ""
    return OTHER_NAMES.get(inner, inner)


def _require_arity(pattern: language.Operator) -> None:
    if pattern.arguments is None:
        return
    schemas = [schema for name in pattern.names if (schema := _schema(name)) is not None]
    if len(schemas) < len(pattern.names):
        return
    count = len(pattern.arguments)
    most, least = max(one.inputs for one in schemas), min(one.least_inputs for one in schemas)
    if count > most:
        raise PatternError(
            f"the pattern gives {pattern.title} {count} inputs, it has at most {most}", operator=pattern.names[0]
        )
    if count < least and not pattern.prefix:
        raise PatternError(
            f"the pattern gives {pattern.title} {count} inputs, it has at least {least}; "
            "close the arguments with ... for more",
            operator=pattern.names[0],
        )
    commutes = pattern.any_order or any(
        Trait.COMMUTATIVE in operator.traits for name in pattern.names if (operator := OPERATORS.get(name)) is not None
    )
    for index, argument in enumerate(pattern.arguments[:least]):
        if isinstance(argument, language.Absent) and not commutes:
            raise PatternError(
                f"the pattern wants input {index} of {pattern.title} absent, which is never left out",
                operator=pattern.names[0],
            )


def _require_output(pattern: language.Output) -> None:
    schemas = [_schema(name) for name in pattern.node.names]
    most = max(sys.maxsize if schema is None else schema.outputs for schema in schemas)
    if pattern.index >= most:
        raise PatternError(
            f"the pattern asks for output {pattern.index} of {pattern.node.title}, which has at most {most}",
            operator=pattern.node.names[0],
        )


def _root_schemas(pattern: language.Pattern) -> dict[str, _Schema]:
    """Return what ONNX says of the operators that can be a pattern's root; empty where one of them is not known."""
    roots = root_operators(pattern) or ()
    schemas = {name: None if domain else _schema(name) for domain, name in roots}
    known = {name: schema for name, schema in schemas.items() if schema is not None}
    return known if len(known) == len(schemas) else {}


def _require_attribute(pattern: language.Pattern, name: str, wanted: object) -> None:
    if isinstance(innermost(pattern), language.ConstantPattern | language.InputPattern | language.Absent):
        raise PatternError(
            f"has_attr({name}=...) stands behind {innermost(pattern)}, which has no attributes: no node computes it",
            attribute=name,
        )
    schemas = _root_schemas(pattern)
    known = frozenset().union(*(schema.attributes for schema in schemas.values()))
    title = " or ".join(sorted(schemas))
    if schemas and name not in known:
        raise PatternError(f"{title} has no attribute '{name}'{_near(name, known)}", attribute=name)
    kinds = {schema.attributes[name] for schema in schemas.values() if name in schema.attributes}
    if kinds and not any(_may_equal(kind, wanted) for kind in kinds):
        import onnx

        kind = onnx.AttributeProto.AttributeType.Name(min(kinds)).lower()
        raise PatternError(
            f"attribute '{name}' of {title} is of type {kind}, which never equals {wanted!r}", attribute=name
        )


def _may_equal(kind: int, wanted: object) -> bool:
    """Whether an attribute of a type may have a value: a number stands for a list of equal ones, too."""
    import onnx

    if wanted is None or callable(wanted):
        return True
    text, sequence = isinstance(wanted, str | bytes), isinstance(wanted, list | tuple)
    match kind:
        case onnx.AttributeProto.INT | onnx.AttributeProto.FLOAT:
            return not text and not sequence
        case onnx.AttributeProto.STRING:
            return isinstance(wanted, str)
        case onnx.AttributeProto.INTS | onnx.AttributeProto.FLOATS:
            return not text
        case onnx.AttributeProto.STRINGS:
            return sequence
        case _:
            return True


def _require_results(pattern: language.Pattern, dtypes: Sequence[str]) -> None:
    """Raise PatternError if the operators that can be a pattern's root give none of some element types."""
    inner = innermost(pattern)
    index = inner.index if isinstance(inner, language.Output) else 0
    schemas = _root_schemas(pattern)
    if not schemas or any(index >= len(schema.results) for schema in schemas.values()):
        return
    given = frozenset().union(*(schema.results[index] for schema in schemas.values()))
    if not given.intersection(dtypes) and not any(dtype.startswith("custom[") for dtype in dtypes):
        raise PatternError(
            f"output {index} of {' or '.join(sorted(schemas))} is never {' or '.join(dtypes)}; "
            f"it is {', '.join(sorted(given - {''})) or 'no tensor'}",
            operator=min(schemas),
        )


def _require_common_root(left: language.Pattern, right: language.Pattern) -> None:
    first, second = root_operators(left), root_operators(right)
    if first and second and not first & second:
        names = [" or ".join(sorted(name for _, name in roots)) for roots in (first, second)]
        raise PatternError(f"the pattern demands {names[0]} and {names[1]} of one value, which no node is")


def _require_progress(alias: language.Wildcard) -> None:
    """Raise PatternError if a recursive pattern leads to itself without an operator in between."""
    stack: list[language.Pattern] = [alias.target] if alias.target is not None else []
    seen: set[language.Pattern] = set()
    while stack:
        part = stack.pop()
        if part is alias:
            raise PatternError("a recursive pattern leads to itself without an operator in between; it never ends")
        if part in seen or isinstance(
            part,
            language.Operator | language.Output | language.Absent | language.ConstantPattern | language.InputPattern,
        ):
            continue
        seen.add(part)
        stack.extend(_same_value(part))


def _same_value(pattern: language.Pattern) -> tuple[language.Pattern, ...]:
    """Return the parts that stand for the same value as the pattern."""
    match pattern:
        case language.Alternative() | language.Both() | language.Named() | language.Wildcard():
            return parts(pattern)
        case (
            language.Constrained(pattern=inner)
            | language.Body(pattern=inner)
            | language.Dominator(child=inner)
            | language.Together(members=(inner, *_))
        ):
            return (inner,)
        case _:
            return parts(pattern)


def _near(name: str, known: object) -> str:
    near = difflib.get_close_matches(name, list(known), 1)  # type: ignore[call-overload]
    return f"; did you mean '{near[0]}'?" if near else ""
