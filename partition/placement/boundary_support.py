"""Support that depends on the region boundary: operators worth taking inside a region and not at its boundary.

A library takes a Transpose or an addition between its own products, where another backend would cost a boundary. At
the boundary of a region there is no such cost to save, and a backend that fuses small operators into one kernel does
them in passes that it makes anyway. The user's order stays: a node goes to the next backend that takes it, and only
if that one fuses. No region is cut in two by what is given up at its boundary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from graft.core.graph.view import NodeView
from graft.core.reject import Reject, Yield
from graft.errors import PluginError
from graft.partition.backend_like import BackendLike
from graft.partition.graph import IndexedGraph
from graft.partition.partition_graph import Cut, GraphCuts
from graft.partition.placement.region_bounds import all_cuts
from graft.partition.tolerance import Tolerance
from graft.partition.units import Unit

COST = "cost"


@dataclass(slots=True)
class BoundarySupport:
    """Finds the nodes that backends give up; answers are kept, for plans of one model are many.

    ``backends`` are those that can run here, in order of preference.
    """

    backends: Sequence[BackendLike]
    tolerance: Tolerance
    answers: dict[tuple[str, str], Yield | None] = field(default_factory=dict)
    """By backend and node name."""

    def given_up(self, cuts: GraphCuts, refused: Collection[tuple[str, str]]) -> dict[tuple[str, str], Reject]:
        """Return refusals, by (node name, backend), for what backends give up in the regions they have.

        ``refused`` are the pairs that are refused already: such a backend takes over no such node.
        """
        found: dict[tuple[str, str], Reject] = {}
        for graph, cut in all_cuts(cuts):
            place = next((i for i, one in enumerate(self.backends) if one.name == cut.backend), None)
            if place is None or not any(map(fuses, self.backends[place + 1 :])):
                continue
            for unit, reject in self._of_region(graph, cut, place, refused).items():
                nodes = graph.units.units[unit].nodes
                found.update({(graph.graph.names[node], cut.backend or ""): reject for node in nodes})
        return found

    def _of_region(
        self, graph: GraphCuts, cut: Cut, place: int, refused: Collection[tuple[str, str]]
    ) -> dict[int, Reject]:
        """Return the units that leave a region: those given up everywhere, then from its inputs on and its outputs."""
        said: dict[int, Yield] = {}
        for unit in cut.units:
            answer = self._answer(graph, graph.units.units[unit], place)
            if answer is not None and self._is_taken(graph, graph.units.units[unit], place, refused):
                said[unit] = answer
        result = {unit: Reject(COST, one.text) for unit, one in said.items() if one.everywhere}
        inside = [unit for unit in cut.units if unit not in result]
        for unit in boundary_units(inside, graph.units.predecessors, said):
            result[unit] = Reject(COST, f"at the boundary of its region: {said[unit].text}")
        return result

    def _answer(self, graph: GraphCuts, unit: Unit, place: int) -> Yield | None:
        """Return what the backend says of all nodes of a unit; None if it wants one of them."""
        said = [] if unit.opaque else [self._ask(self.backends[place], graph.graph, node) for node in unit.nodes]
        if not said or None in said:
            return None
        return next((one for one in said if one is not None and one.everywhere), said[-1])

    def _ask(self, backend: BackendLike, graph: IndexedGraph, node: int) -> Yield | None:
        key = backend.name, graph.names[node]
        if key not in self.answers:
            self.answers[key] = ask_yields(backend, graph.views[node])
        return self.answers[key]

    def _is_taken(self, graph: GraphCuts, unit: Unit, place: int, refused: Collection[tuple[str, str]]) -> bool:
        """Whether for every node of the unit the next backend that takes it fuses."""
        for node in unit.nodes:
            name, view = graph.graph.names[node], graph.graph.views[node]
            others = (one for one in self.backends[place + 1 :] if (name, one.name) not in refused)
            taker = next((one for one in others if self.tolerance.ask(one, view) is None), None)
            if taker is None or not fuses(taker):
                return False
        return True


def boundary_units(units: Sequence[int], predecessors: Sequence[Sequence[int]], given: Collection[int]) -> list[int]:
    """Return the units of ``given`` at the boundary of a region: only such precede them in it, or only such follow.

    ``units`` are the region's, in topological order; ``predecessors`` may name units outside it.
    """
    left = set(units)
    peeled: list[int] = []
    for unit in units:
        if unit in given and left.isdisjoint(predecessors[unit]):
            left.discard(unit)
            peeled.append(unit)
    is_read: set[int] = set()
    for unit in reversed(units):
        if unit in left and unit in given and unit not in is_read:
            left.discard(unit)
            peeled.append(unit)
        elif unit in left:
            is_read.update(predecessors[unit])
    return peeled


def fuses(backend: BackendLike) -> bool:
    """Whether a backend says that it fuses small operators."""
    return bool(getattr(backend, "fuses", False))


def ask_yields(backend: BackendLike, node: NodeView) -> Yield | None:
    """Return what a backend says of a node that it takes; a broken answer raises PluginError."""
    ask = getattr(backend, "yields", None)
    if ask is None:
        return None
    try:
        answer: object = ask(node)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            f"backend '{backend.name}' raised {type(error).__name__} when asked if it yields {node.where}: {error}",
            plugin=backend.name,
            node=node.name,
        ) from error
    if answer is None or isinstance(answer, Yield):
        return answer
    raise PluginError(
        f"backend '{backend.name}' answered {answer!r} for {node.where}; yields(node) returns a Yield or None",
        plugin=backend.name,
        node=node.name,
    )
