"""Demands on a value that a pattern can make beside its structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from graft.core.graph.view import ValueView

Dimension: TypeAlias = int | str | None
AttributeValue: TypeAlias = object
ValuePredicate: TypeAlias = "Callable[[ValueView], bool]"


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
