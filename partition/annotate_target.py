"""AnnotateTarget: one backend for every unit (a composite or a single node), and reasons for all the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.view import NodeView, is_packed, type_text
from graft.core.reject import LOST_TO, Reject
from graft.core.rewriting.node_rewrite import is_operator
from graft.partition.backend_like import BackendLike
from graft.partition.graph import RUNTIME, IndexedGraph, has_bodies, is_call
from graft.partition.merge_composite import NO_PATTERN, Grouping
from graft.partition.tolerance import Tolerance
from graft.partition.units import Unit
from graft.patterns.walk import operators_in

Refusals = Mapping[tuple[int, str], Reject]
CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


@dataclass(slots=True)
class Annotation:
    """The backend of every unit (None: nobody takes it) and the reasons by (node, backend)."""

    placement: list[str | None] = field(default_factory=list)
    rejects: dict[tuple[int, str], Reject] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AnnotateTarget:
    """Asks the backends in order of preference.

    1. A composite belongs to its backend; a call of a region to the backend that the region was made for.
    2. Control flow is the runtime's, unless a backend with ``control_flow = True`` takes it;
       and so is arithmetic of shapes, which the refusals keep from all backends.
    3. Nodes tied together by values that cannot leave a region go to the first backend that takes them all. Others that
       are no tensors of numbers are asked only of backends with ``packed = True``.
    4. Any other node goes to the first backend that is not refused beforehand and supports it.
    5. Every backend that does not get a node has one reason: the refusal given beforehand, its own answer, that of a
       composite's check where it has no rule for the single node, or ``lost-to``. Where one is that it takes no floats,
       and its recipe of quantisation makes integers of them, the reason has the command.
    """

    name: ClassVar[str] = "annotate-target"
    backends: tuple[BackendLike, ...]
    tolerance: Tolerance = field(default_factory=Tolerance)

    def run(self, graph: IndexedGraph, units: Sequence[Unit], grouping: Grouping, refusals: Refusals) -> Annotation:
        """Return the placement of every unit; ``refusals`` are the nodes that a backend may not have."""
        result = Annotation()
        for unit in units:
            result.placement.append(self._place(graph, unit, grouping, refusals, result.rejects))
        return result

    def _place(
        self,
        graph: IndexedGraph,
        unit: Unit,
        grouping: Grouping,
        refusals: Refusals,
        rejects: dict[tuple[int, str], Reject],
    ) -> str | None:
        first = graph.nodes[unit.nodes[0]]
        if is_call(first):
            return first.metadata_props.get("Compiler")
        winner: str | None = None
        for backend in self.backends:
            if winner is not None:
                reasons = {node: refusals.get((node, backend.name), lost_to(winner)) for node in unit.nodes}
            elif unit.group is not None and unit.group.backend == backend.name:
                winner = backend.name
                continue
            else:
                wanted = self._answers(graph, unit, backend, grouping, refusals)
                if wanted is None:
                    winner = backend.name
                    continue
                reasons = wanted
            for node, reason in reasons.items():
                rejects[node, backend.name] = reason
        runs_itself = has_bodies(first) or unit.nodes[0] in graph.arithmetic
        if winner is None and len(unit.nodes) == 1 and runs_itself and not unit.opaque:
            return RUNTIME
        return winner

    def _answers(
        self, graph: IndexedGraph, unit: Unit, backend: BackendLike, grouping: Grouping, refusals: Refusals
    ) -> dict[int, Reject] | None:
        """Return None if the backend takes all nodes of the unit, else its reason for each."""
        answers: dict[int, Reject | None] = {}
        for node in unit.nodes:
            answer = refusals.get((node, backend.name))
            if answer is None or answer.code == "cost":
                own = self._ask(backend, graph.views[node], unit.opaque)
                answer = answer if own is None else own
                kept = grouping.rejects.get((node, backend.name))
                if answer is not None and answer.code == NO_PATTERN and kept is not None:
                    answer = kept
                elif answer is not None:
                    answer = with_recipe(answer, backend, graph.views[node])
            answers[node] = answer
        if unit.group is None and all(answer is None for answer in answers.values()):
            return None
        if unit.group is not None:
            other = lost_to(unit.group.backend)
            return {node: other if answer is None else answer for node, answer in answers.items()}
        first = next(reason for reason in answers.values() if reason is not None)
        other = Reject(first.code, f"it must be with a node that is refused: {first.text}")
        return {node: other if answer is None else answer for node, answer in answers.items()}

    def _ask(self, backend: BackendLike, view: NodeView, opaque: bool) -> Reject | None:
        if has_bodies(view.node) and not opaque and not getattr(backend, "control_flow", False):
            return Reject(NO_PATTERN, f"{view.op_type} is run by the runtime; its bodies are placed node by node")
        if not getattr(backend, "packed", False) and (value := _packed(view)) is not None:
            return Reject("dtype", f"'{value.name}' is {type_text(value)}; {backend.name} takes tensors of numbers")
        return self.tolerance.ask(backend, view)


def _packed(node: NodeView) -> ir.Value | None:
    """Return a value of a node that is no tensor of numbers, and so comes and goes as packed bytes."""
    return next((value for value in (*node.node.inputs, *node.node.outputs) if value and is_packed(value)), None)


def with_recipe(refusal: Reject, backend: BackendLike, node: NodeView) -> Reject:
    """Return a refusal of an operator, with the command that has it quantised where the backend takes it so.

    That is where the backend states a recipe, and the operator is on float32 and refused for that (`dtype`), or is one
    of a composite of the backend's or of those that the recipe decomposes. Between integers it is quantised already.
    """
    recipe = next(iter(getattr(backend, "recipes", ())), None)
    if recipe is None or node.dtype != "float32" or node.op_type in CONVERSIONS or _is_between_integers(node.node):
        return refusal
    is_known = node.op_type in recipe.get("decompose", ()) or any(
        node.op_type in operators_in(row.pattern) for row in backend.patterns
    )
    if refusal.code != "dtype" and not (refusal.code == NO_PATTERN and is_known):
        return refusal
    return Reject(refusal.code, f"{refusal.text}; it is taken quantised: graft quantize --for {backend.name}")


def _is_between_integers(node: ir.Node) -> bool:
    makers = (value.producer() for value in node.inputs if value is not None)
    readers = (use.node for value in node.outputs for use in value.uses())
    return any(is_operator(one, CONVERSIONS[1]) for one in makers) and any(
        is_operator(one, CONVERSIONS[0]) for one in readers
    )


def lost_to(backend: str) -> Reject:
    """Return the reason of a backend that another one came before."""
    return Reject(f"{LOST_TO}{backend}", f"{backend} comes first")
