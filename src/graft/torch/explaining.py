"""What became of a module: graph breaks, and for each ATen operator where it runs and why not elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import torch

from graft.partition.plan import Plan
from graft.torch.backend import SEEN, Seen
from graft.torch.compiling import Row


@dataclass(frozen=True)
class Explanation:
    """What `explain` found, graph by graph; as a text a table of it."""

    graphs: tuple[tuple[Row, ...], ...]
    """Of each compiled ATen graph its operators, in order."""
    plans: tuple[Mapping[str, Plan], ...]
    """Of each graph the plans of its parts, by name: which backend has which operator."""
    breaks: tuple[str, ...]
    """The reasons of graph breaks, each with its line of Python."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The operators of all graphs."""
        return tuple(row for graph in self.graphs for row in graph)

    @property
    def coverage(self) -> float:
        """The share of operators that are compiled, between 0 and 1."""
        return sum(bool(row.part) for row in self.rows) / len(self.rows) if self.rows else 0.0

    def _repr_html_(self) -> str:
        from graft.report.notebook import framed
        from graft.report.sections import table

        title, *lines = str(self).splitlines()
        left = [(row.operator, row.place, row.reason) for row in self.rows if not row.part]
        kinds = [line for line in lines if not line.startswith("PyTorch: ")]
        parts = ["".join(f"<p>{escape(line)}</p>" for line in kinds)] if kinds else []
        if left:
            parts.append(table(("In PyTorch", "Place", "Reason"), [tuple(map(escape, row)) for row in left]))
        return framed(title, *parts)

    def __str__(self) -> str:
        count = sum(map(len, self.plans))
        lines = [
            f"{len(self.graphs)} graphs, {count} compiled parts, {self.coverage:.0%} of {len(self.rows)} operators; "
            f"{len(self.breaks)} graph breaks"
        ]
        lines += [f"graph break: {one}" for one in self.breaks]
        for graph, plans in zip(self.graphs, self.plans, strict=True):
            for name, plan in plans.items():
                kinds = Counter(one.backend for one in plan.placements)
                lines.append(f"{name}: " + ", ".join(f"{backend} {count}" for backend, count in kinds.items()))
            lines += [f"PyTorch: {row.operator} {row.place}: {row.reason}" for row in graph if not row.part]
        return "\n".join(lines)


def explain(
    module: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *,
    options: Mapping[str, Any] | None = None, backward: bool = False,
) -> Explanation:  # fmt: skip
    """Compile a module for some arguments, run it once, and return what went where.

    With ``backward`` the sum of its results is differentiated, too. ``options`` are those of the backend.
    """
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    seen = Seen()
    SEEN.append(seen)
    before = Counter(counters["graph_break"])
    try:
        result = torch.compile(module, backend="graft", options=dict(options or {}))(*args, **dict(kwargs or {}))
        if backward:
            results = [one for one in torch.utils._pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
            torch.autograd.backward([one.sum() for one in results if one.requires_grad])
    finally:
        SEEN.remove(seen)
    counted = [one.partition("\n")[0] for one in (Counter(counters["graph_break"]) - before).elements()]
    breaks = (*seen.breaks, *(one for one in counted if not any(other.startswith(one) for other in seen.breaks)))
    plans = tuple({name: Plan.of(one) for name, one in graph.programs.items()} for graph in seen.graphs)
    return Explanation(tuple(tuple(graph.rows) for graph in seen.graphs), plans, breaks)
