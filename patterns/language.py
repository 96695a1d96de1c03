"""The pattern language: what a pattern is made of.

A pattern describes a value, or the absence of an optional one; a pattern of an operator describes the node that
produces the value. Patterns are compared by identity: the same pattern object, used twice, matches the same node
(that is how diamonds are written). This module imports neither onnx nor NumPy, so that plugins stay cheap to list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

from graft.errors import PatternError

if TYPE_CHECKING:
    from graft.core.view import NodeView, ValueView

Dimension: TypeAlias = int | str | None
AttributeValue: TypeAlias = object
ValuePredicate: TypeAlias = "Callable[[ValueView], bool]"


class Pattern:
    """Base class: the ways in which patterns are put together."""

    __slots__ = ()

    def __or__(self, other: Pattern) -> Alternative:
        """Match this pattern or, where that leads nowhere, the other."""
        return Alternative((*_options(self), *_options(other)))

    def __and__(self, other: Pattern) -> Both:
        """Match both patterns on one value."""
        return Both(self, other)

    def __invert__(self) -> Not:
        """Match where the pattern does not; binds nothing."""
        return Not(self)

    def __add__(self, other: Pattern | float) -> Operator:
        return is_op("Add")(self, as_pattern(other))

    def __radd__(self, other: float) -> Operator:
        return is_op("Add")(as_pattern(other), self)

    def __sub__(self, other: Pattern | float) -> Operator:
        return is_op("Sub")(self, as_pattern(other))

    def __rsub__(self, other: float) -> Operator:
        return is_op("Sub")(as_pattern(other), self)

    def __mul__(self, other: Pattern | float) -> Operator:
        return is_op("Mul")(self, as_pattern(other))

    def __rmul__(self, other: float) -> Operator:
        return is_op("Mul")(as_pattern(other), self)

    def __truediv__(self, other: Pattern | float) -> Operator:
        return is_op("Div")(self, as_pattern(other))

    def __rtruediv__(self, other: float) -> Operator:
        return is_op("Div")(as_pattern(other), self)

    def __pow__(self, other: Pattern | float) -> Operator:
        return is_op("Pow")(self, as_pattern(other))

    def __matmul__(self, other: Pattern) -> Operator:
        return is_op("MatMul")(self, other)

    def __neg__(self) -> Operator:
        return is_op("Neg")(self)

    def optional(self, extend: Callable[[Pattern], Pattern]) -> Optional:
        """Match ``extend(self)`` or, where that leads nowhere, this pattern alone."""
        return Optional((extend(self), self))

    def named(self, name: str) -> Named:
        """Capture the value: ``match[name]``. One name stands for one value in a match."""
        return Named(self, name)

    def has_attr(self, attributes: dict[str, AttributeValue] | None = None, **more: AttributeValue) -> Constrained:
        """Demand attributes of the producing node; an attribute left out has its schema default.

        A value may be a predicate: ``has_attr(group=lambda group: group > 1)``.
        """
        return Constrained(self, Attributes(tuple({**(attributes or {}), **more}.items())))

    def has_dtype(self, *dtypes: str) -> Constrained:
        """Demand one of the element types."""
        return Constrained(self, DtypeIs(dtypes))

    def has_shape(self, *shape: Dimension | EllipsisType) -> Constrained:
        """Demand a shape: numbers, symbols' names, None for any dimension, ``...`` for any number of them."""
        return Constrained(self, ShapeIs(shape))

    def has_rank(self, *ranks: int) -> Constrained:
        """Demand one of the ranks."""
        return Constrained(self, RankIs(ranks))

    def where(self, predicate: ValuePredicate, text: str = "") -> Constrained:
        """Demand that ``predicate(value)`` holds; ``text`` says it in words, for `explain`."""
        return Constrained(self, Where(predicate, text))


@dataclass(slots=True, eq=False)
class Wildcard(Pattern):
    """Any value that is present."""


@dataclass(slots=True, eq=False)
class Absent(Pattern):
    """The absence of an optional input."""


@dataclass(slots=True, eq=False)
class ConstantPattern(Pattern):
    """A value known at compile time; ``value`` is compared (broadcast) where it is given."""

    value: float | Sequence[float] | None = None
    predicate: Callable[..., bool] | None = None


@dataclass(slots=True, eq=False)
class InputPattern(Pattern):
    """An input of the graph that is not a constant; "" is any name."""

    name: str = ""


@dataclass(slots=True, eq=False)
class Operator(Pattern):
    """A node of one of ``names``, by its first output.

    ``arguments`` is None before the pattern is called (any inputs); ``prefix`` lets further inputs follow.
    """

    names: tuple[str, ...]
    domain: str = ""
    arguments: tuple[Pattern, ...] | None = None
    prefix: bool = False

    def __call__(self, *arguments: Pattern | EllipsisType) -> Operator:
        """Give patterns for the inputs: as many as there are, or a prefix closed by ``...``."""
        if self.arguments is not None:
            raise PatternError(f"the pattern of {'/'.join(self.names)} already has arguments; call is_op(...) once")
        if any(isinstance(argument, EllipsisType) for argument in arguments[:-1]):
            raise PatternError("'...' stands for the inputs that follow, so it can only be the last argument")
        patterns = [argument for argument in arguments if not isinstance(argument, EllipsisType)]
        for pattern in patterns:
            if not isinstance(pattern, Pattern):
                raise PatternError(
                    f"an argument of the pattern of {'/'.join(self.names)} is {pattern!r}, not a pattern; "
                    "write wildcard() for any value, is_constant(2.0) for a number, absent() for none"
                )
        return Operator(self.names, self.domain, tuple(patterns), len(patterns) < len(arguments))

    def output(self, index: int) -> Output:
        """Return the pattern of output ``index`` of the node that this pattern matches."""
        return Output(self, index)

    def __getitem__(self, index: int) -> Output:
        """Return ``self.output(index)``."""
        return self.output(index)


@dataclass(slots=True, eq=False)
class Call(Operator):
    """A call of a composite or of a region, known by the name in the call's metadata."""

    key: str = "Composite"

    def __call__(self, *arguments: Pattern | EllipsisType) -> Operator:
        """Give patterns for the inputs, as for an operator."""
        plain = Operator.__call__(self, *arguments)
        return Call(plain.names, plain.domain, plain.arguments, plain.prefix, self.key)


@dataclass(slots=True, eq=False)
class Output(Pattern):
    """A chosen output of a node with several."""

    node: Operator
    index: int


@dataclass(slots=True, eq=False)
class Alternative(Pattern):
    """The first of several patterns that leads to a match of the whole."""

    options: tuple[Pattern, ...]


@dataclass(slots=True, eq=False)
class Optional(Alternative):
    """``(extended, base)``: what `Pattern.optional` made."""


@dataclass(slots=True, eq=False)
class Both(Pattern):
    """Two patterns of one value."""

    left: Pattern
    right: Pattern


@dataclass(slots=True, eq=False)
class Not(Pattern):
    """A value (or an absence) that the pattern does not match."""

    pattern: Pattern


@dataclass(slots=True, eq=False)
class Named(Pattern):
    """A pattern whose value is captured under a name."""

    pattern: Pattern
    name: str


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of the producing node, with their values or predicates."""

    wanted: tuple[tuple[str, AttributeValue], ...]


@dataclass(frozen=True, slots=True)
class DtypeIs:
    """One of several element types."""

    dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShapeIs:
    """A shape with holes."""

    shape: tuple[Dimension | EllipsisType, ...]


@dataclass(frozen=True, slots=True)
class RankIs:
    """One of several ranks."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Where:
    """A predicate on the value."""

    predicate: ValuePredicate
    text: str = ""


Constraint: TypeAlias = Attributes | DtypeIs | ShapeIs | RankIs | Where


@dataclass(slots=True, eq=False)
class Constrained(Pattern):
    """A pattern with a demand on its value."""

    pattern: Pattern
    constraint: Constraint


def wildcard() -> Wildcard:
    """Return a pattern of any value that is present."""
    return Wildcard()


def absent() -> Absent:
    """Return a pattern of an optional input that is not given; one that may be given is ``bias | absent()``."""
    return Absent()


def is_op(*names: str, domain: str = "") -> Operator:
    """Return a pattern of a node by its ONNX operator, any of ``names``; call it to give patterns for the inputs."""
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PatternError(f"is_op takes one or more operator names, got {names!r}")
    return Operator(names, "" if domain == "ai.onnx" else domain)


def is_constant(value: float | Sequence[float] | None = None, where: Callable[..., bool] | None = None) -> Pattern:
    """Return a pattern of a value known at compile time.

    ``value`` demands that every element equals it (to 1e-6 relative); ``where`` gets the contents as an array.
    """
    return ConstantPattern(value, where)


def is_input(name: str = "") -> InputPattern:
    """Return a pattern of an input of the graph (of that name)."""
    return InputPattern(name)


def is_composite(*names: str) -> Call:
    """Return a pattern of a call of a composite, known by its name in the pattern table."""
    return Call(names, "graft.composite", key="Composite")


def is_region(*backends: str) -> Call:
    """Return a pattern of a call of a region, known by its backend's name."""
    return Call(backends, "graft.region", key="Compiler")


def as_pattern(value: Pattern | float) -> Pattern:
    """Return a pattern itself, a number as the pattern of that constant."""
    return value if isinstance(value, Pattern) else ConstantPattern(value)


def parts(pattern: Pattern) -> tuple[Pattern, ...]:
    """Return the patterns of which a pattern is made, in the order in which they are matched."""
    match pattern:
        case Operator(arguments=arguments):
            return arguments or ()
        case Output(node=node):
            return (node,)
        case Alternative(options=options):
            return options
        case Both(left=left, right=right):
            return left, right
        case Not(pattern=inner) | Named(pattern=inner) | Constrained(pattern=inner):
            return (inner,)
        case _:
            return ()


def walk(pattern: Pattern) -> list[Pattern]:
    """Return the pattern and all its parts, each once, outermost first."""
    seen: dict[Pattern, None] = {}
    stack = [pattern]
    while stack:
        part = stack.pop()
        if part not in seen:
            seen[part] = None
            stack.extend(reversed(parts(part)))
    return list(seen)


def _options(pattern: Pattern) -> tuple[Pattern, ...]:
    return pattern.options if type(pattern) is Alternative else (pattern,)


def producer_of(view: ValueView) -> NodeView | None:
    """Return the node that produces a value, None for inputs and initialisers."""
    from graft.core.view import NodeView

    node = view.value.producer()
    return None if node is None else NodeView(node)
