"""What a report knows: the operators of a model with their placement, the regions, and what passes between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graft.core.reject import Reject
from graft.partition.plan import Plan

INPUT, OUTPUT = "model input", "model output"
"""What stands for a backend where the model's own inputs and outputs are one side of a boundary."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value by name and type; ``size`` in bytes, None where it is not known."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    size: int | None


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """One operator; inputs that are constants stand apart."""

    node: str
    op_type: str
    backend: str
    region: str
    composite: str
    flops: int
    reasons: Mapping[str, Reject]
    inputs: tuple[Tensor, ...] = ()
    constants: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of a graph to draw: ``kind`` is ``region``, ``operator``, ``input`` or ``output``."""

    kind: str
    name: str
    backend: str
    members: tuple[int, ...] = ()
    """The operators in it, by number."""
    inputs: tuple[Tensor, ...] = ()
    constants: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """The values that go from one vertex to another."""

    source: int
    target: int
    values: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph to draw."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Boundary:
    """What one backend hands to another in a run; each value counts once for each backend that reads it."""

    source: str
    target: str
    values: int
    size: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report shows; ``manifest`` is that of an artifact, None for a model that was only planned."""

    title: str
    plan: Plan
    operators: tuple[OperatorFacts, ...]
    regions: Drawing
    graph: Drawing
    boundaries: tuple[Boundary, ...]
    environment: Mapping[str, str]
    manifest: Mapping[str, Any] | None = None
    memory: tuple[Sequence[int], Sequence[int]] | None = None
    """Bytes between kernels over time, without recomputation and with it; None for a model that has none."""
    sections: tuple[tuple[str, str], ...] = ()
    """Sections of plugins: title and HTML."""
