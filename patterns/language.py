"""The pattern language: what a pattern is made of.

A pattern describes a value, or the absence of an optional one; a pattern of an operator describes the node that
produces the value. Patterns are compared by identity: the same pattern object, used twice, matches the same node
(that is how diamonds are written). This module imports neither onnx nor NumPy, so that plugins stay cheap to list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import ClassVar

from graft.errors import PatternError
from graft.patterns import value_constraints as constraints
from graft.patterns.arguments import listed as _listed
from graft.patterns.arguments import require_dimensions, require_dtypes


class Pattern:
    """Base class: the ways in which patterns are put together."""

    __slots__ = ()
    to_text: ClassVar[Callable[[Pattern], str]] = object.__repr__
    """What ``str`` of a pattern returns: set by `graft.patterns`, so that this module need not know the text form."""

    def __or__(self, other: Pattern) -> Alternative:
        """Match this pattern or, where that leads nowhere, the other."""
        return Alternative((*_options(self), *_options(other)))

    def __and__(self, other: Pattern) -> Pattern:
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

    def __xor__(self, other: Pattern) -> Together:
        return self.used_by(other)

    def __rshift__(self, other: Pattern) -> Together:
        return self.only_used_by(other)

    def __str__(self) -> str:
        return type(self).to_text(self)

    def optional(self, extend: Callable[[Pattern], Pattern]) -> Optional:
        """Match ``extend(self)`` or, where that leads nowhere, this pattern alone."""
        return Optional((extend(self), self))

    def named(self, name: str) -> Named:
        """Capture the value: ``match[name]``. One name stands for one value in a match."""
        return Named(self, name)

    def has_attr(
        self, attributes: dict[str, constraints.AttributeValue] | None = None, **more: constraints.AttributeValue
    ) -> Constrained:
        """Demand attributes of the producing node; an attribute left out has its schema default.

        A value may be a predicate: ``has_attr(group=lambda group: group > 1)``.
        """
        return Constrained(self, constraints.Attributes(tuple({**(attributes or {}), **more}.items())))

    def has_dtype(self, *dtypes: str) -> Constrained:
        """Demand one of the element types, by name: ``float32``, ``int8``, ``custom[posit]16``."""
        return Constrained(self, constraints.DtypeIs(require_dtypes(dtypes)))

    def has_shape(self, *shape: constraints.Dimension | EllipsisType) -> Constrained:
        """Demand a shape: numbers, names, None for any dimension, ``...`` for any number of them.

        A name stands for the extent that it meets first, the same in all shapes of a match: ``has_shape("n", "n")`` is
        square. ``"2*n"`` is an expression of names that other places give.
        """
        return Constrained(self, constraints.ShapeIs(require_dimensions(shape)))

    def has_rank(self, *ranks: int) -> Constrained:
        """Demand one of the ranks; raise PatternError for what is no number of axes."""
        if not ranks or not all(isinstance(rank, int) and rank >= 0 for rank in ranks):
            raise PatternError(f"has_rank takes one or more numbers, as in has_rank(3, 4), got {_listed(ranks)}")
        return Constrained(self, constraints.RankIs(ranks))

    def same_shape_as(self, other: Pattern) -> Constrained:
        """Demand the shape of what ``other``, a pattern of the same match, stands for."""
        return Constrained(self, SameShape(other))

    def where(self, predicate: constraints.ValuePredicate, text: str = "") -> Constrained:
        """Demand that ``predicate(value)`` holds; ``text`` says it in words, for `explain`.

        Raise PatternError where it is no function.
        """
        if not callable(predicate):
            raise PatternError(f"where takes a function of a value, got {predicate!r}")
        return Constrained(self, constraints.Where(predicate, text))

    def has_body(self, name: str, body: Pattern, output: int = 0) -> Body:
        """Demand that an output of the node's body ``name`` (``then_branch``, ``body``) matches a pattern."""
        return Body(self, name, body, output)

    def used_by(self, consumer: Pattern, index: int | None = None) -> Together:
        """Demand that ``consumer`` reads this value (as its input ``index``), among others maybe: ``p ^ q``."""
        return Together((consumer, self), (Edge(self, consumer, index),))

    def only_used_by(self, consumer: Pattern, index: int | None = None) -> Together:
        """Demand that nothing but ``consumer`` reads this value: ``p >> q``."""
        return Together((consumer, self), (Edge(self, consumer, index, only=True),))

    def fork_to(self, *consumers: Pattern) -> Together:
        """Demand that every one of ``consumers`` reads this value."""
        return Together((*consumers, self), tuple(Edge(self, consumer) for consumer in consumers))

    def dominates(self, child: Pattern, path: Pattern | None = None) -> Dominator:
        """Return ``dominates(self, path, child)``."""
        return Dominator(self, path or wildcard(), child)


@dataclass(slots=True, eq=False, repr=False)
class Wildcard(Pattern):
    """Any value that is present; after `redirect_to`, another name for the pattern given there."""

    target: Pattern | None = None

    def redirect_to(self, pattern: Pattern) -> Wildcard:
        """Make this wildcard stand for ``pattern``, which may contain it: a recursive pattern.

        Every unfolding is a scope of its own: the patterns in it match afresh.

        Raise PatternError where it stands for a pattern already.
        """
        if self.target is not None:
            raise PatternError("this wildcard is already redirected; use a new wildcard() for another pattern")
        self.target = pattern
        return self


@dataclass(slots=True, eq=False, repr=False)
class Absent(Pattern):
    """The absence of an optional input."""


@dataclass(slots=True, eq=False, repr=False)
class ConstantPattern(Pattern):
    """A value known at compile time; ``value`` is compared (a number with every element) where it is given."""

    value: float | Sequence[float] | None = None
    predicate: Callable[..., bool] | None = None


@dataclass(slots=True, eq=False, repr=False)
class InputPattern(Pattern):
    """An input of the graph that is not a constant; "" is any name."""

    name: str = ""


@dataclass(slots=True, eq=False, repr=False)
class Operator(Pattern):
    """A node of one of ``names``, by its first output.

    ``arguments`` is None before the pattern is called (any inputs); ``prefix`` lets further inputs follow. A call of
    a composite or region is known by its name in the node's metadata under ``key``.
    """

    names: tuple[str, ...]
    domain: str = ""
    arguments: tuple[Pattern, ...] | None = None
    prefix: bool = False
    any_order: bool = False
    key: str = ""

    def __call__(self, *arguments: Pattern | EllipsisType) -> Operator:
        """Give patterns for the inputs: as many as there are, or a prefix closed by ``...``."""
        if self.arguments is not None:
            raise PatternError(f"the pattern of {self.title} already has arguments; call it once")
        if any(isinstance(argument, EllipsisType) for argument in arguments[:-1]):
            raise PatternError("'...' stands for the inputs that follow, so it can only be the last argument")
        patterns = [argument for argument in arguments if not isinstance(argument, EllipsisType)]
        for pattern in patterns:
            if not isinstance(pattern, Pattern):
                raise PatternError(
                    f"an argument of the pattern of {self.title} is {pattern!r}, not a pattern; "
                    "write wildcard() for any value, is_constant(2.0) for a number, absent() for none"
                )
        return replace(self, arguments=tuple(patterns), prefix=len(patterns) < len(arguments))

    @property
    def title(self) -> str:
        """The names, as messages print them."""
        return " or ".join(self.names) or "any call"

    def in_any_order(self) -> Operator:
        """Return the pattern with its arguments in any order, as for Concat."""
        return replace(self, any_order=True)

    def output(self, index: int) -> Output:
        """Return the pattern of output ``index`` of the node that this pattern matches."""
        return Output(self, index)

    def __getitem__(self, index: int) -> Output:
        """Return ``self.output(index)``."""
        if index < 0:
            raise PatternError(f"outputs are counted from 0, got {index}")
        return self.output(index)


@dataclass(slots=True, eq=False, repr=False)
class Output(Pattern):
    """A chosen output of a node with several."""

    node: Operator
    index: int


@dataclass(slots=True, eq=False, repr=False)
class Alternative(Pattern):
    """The first of several patterns that leads to a match of the whole."""

    options: tuple[Pattern, ...]


@dataclass(slots=True, eq=False, repr=False)
class Optional(Alternative):
    """``(extended, base)``: what `Pattern.optional` made."""


@dataclass(slots=True, eq=False, repr=False)
class Both(Pattern):
    """Two patterns of one value."""

    left: Pattern
    right: Pattern


@dataclass(slots=True, eq=False, repr=False)
class Not(Pattern):
    """A value (or an absence) that the pattern does not match."""

    pattern: Pattern


@dataclass(slots=True, eq=False, repr=False)
class Named(Pattern):
    """A pattern whose value is captured under a name."""

    pattern: Pattern
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class SameShape:
    """A demand: the shape of what another pattern of the same match stands for."""

    other: Pattern


@dataclass(slots=True, eq=False, repr=False)
class Constrained(Pattern):
    """A pattern with a demand on its value."""

    pattern: Pattern
    constraint: constraints.Constraint | SameShape


@dataclass(slots=True, eq=False, repr=False)
class Body(Pattern):
    """A pattern of a control-flow node with a demand on an output of one of its bodies."""

    pattern: Pattern
    name: str
    body: Pattern
    output: int = 0


@dataclass(slots=True, eq=False, repr=False)
class Dominator(Pattern):
    """``child``, whose every way up the graph leads through nodes of ``path`` to the one ``parent``."""

    parent: Pattern
    path: Pattern
    child: Pattern


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Edge:
    """``consumer`` reads ``producer`` (as input ``index``); with ``only``, nothing else does."""

    producer: Pattern
    consumer: Pattern
    index: int | None = None
    only: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Together(Pattern):
    """Several patterns of one match, with edges between them: the first one is the root.

    Each pattern that no edge marks as used by one consumer alone may be used outside the match as well.
    """

    members: tuple[Pattern, ...]
    edges: tuple[Edge, ...] = field(default=())

    def __and__(self, other: Pattern) -> Pattern:
        """Join the patterns and the edges of both."""
        more = other.members if isinstance(other, Together) else (other,)
        edges = other.edges if isinstance(other, Together) else ()
        return Together(tuple(dict.fromkeys((*self.members, *more))), (*self.edges, *edges))

    def used_by(self, consumer: Pattern, index: int | None = None) -> Together:
        """Continue the sequence: what was its last consumer is read by ``consumer``."""
        return self._then(Edge(self.members[0], consumer, index))

    def only_used_by(self, consumer: Pattern, index: int | None = None) -> Together:
        """Continue the sequence: what was its last consumer is read by ``consumer`` alone."""
        return self._then(Edge(self.members[0], consumer, index, only=True))

    def _then(self, edge: Edge) -> Together:
        return Together((edge.consumer, *self.members), (*self.edges, edge))


def wildcard() -> Wildcard:
    """Return a pattern of any value that is present."""
    return Wildcard()


def absent() -> Absent:
    """Return a pattern of an optional input that is left out; in an alternative, of one that may be."""
    return Absent()


def is_op(*names: str, domain: str = "") -> Operator:
    """Return a pattern of a node by its ONNX operator, any of ``names``; call it to give patterns for the inputs.

    Raise PatternError where a name is none.
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PatternError(f"is_op takes one or more operator names, got {names!r}")
    return Operator(names, "" if domain == "ai.onnx" else domain)


def is_constant(
    value: float | Sequence[float] | None = None, where: Callable[..., bool] | None = None
) -> ConstantPattern:
    """Return a pattern of a value known at compile time.

    ``value`` demands that every element equals it (to 1e-6 relative); ``where`` gets the contents as an array.
    """
    return ConstantPattern(value, where)


def is_input(name: str = "") -> InputPattern:
    """Return a pattern of an input of the graph (of that name)."""
    return InputPattern(name)


def is_composite(*names: str) -> Operator:
    """Return a pattern of a call of a composite, known by its name in the pattern table; without names, of any."""
    return Operator(names, "graft.composite", key="Composite")


def is_region(*backends: str) -> Operator:
    """Return a pattern of a call of a region, known by its backend's name; without names, of any."""
    return Operator(backends, "graft.region", key="Compiler")


def is_if(condition: Pattern, then_branch: Pattern | None = None, else_branch: Pattern | None = None) -> Pattern:
    """Return a pattern of an If whose branches' first outputs match the patterns given."""
    pattern: Pattern = is_op("If")(condition)
    if then_branch is not None:
        pattern = pattern.has_body("then_branch", then_branch)
    if else_branch is not None:
        pattern = pattern.has_body("else_branch", else_branch)
    return pattern


def outputs(*patterns: Pattern) -> Together:
    """Return a pattern with several roots, each an output of the group; the first one is where matching starts."""
    return Together(patterns)


def dominates(parent: Pattern, path: Pattern, child: Pattern) -> Dominator:
    """Return a pattern of ``child`` together with all nodes between it and ``parent``, each of which fits ``path``."""
    return Dominator(parent, path, child)


def repeat(step: Callable[[Pattern], Pattern], base: Pattern, least: int = 0) -> Pattern:
    """Return a pattern of ``step`` applied to ``base`` at least ``least`` times, as often as it fits."""
    again = wildcard()
    again.redirect_to(step(again) | base)
    pattern: Pattern = again
    for _ in range(least):
        pattern = step(pattern)
    return pattern


def as_pattern(value: Pattern | float) -> Pattern:
    """Return a pattern itself, a number as the pattern of that constant."""
    return value if isinstance(value, Pattern) else ConstantPattern(value)


def _options(pattern: Pattern) -> tuple[Pattern, ...]:
    return pattern.options if type(pattern) is Alternative else (pattern,)
