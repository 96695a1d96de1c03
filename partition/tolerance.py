"""What the user allows although a backend is not accurate at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.partition.backend_like import BackendLike, ask_supports
from graft.patterns.composite import Composite
from graft.patterns.match import Match

ACCURACY = "accuracy"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Pairs of backend and operator type whose refusals for `ACCURACY` do not count.

    A backend gives that code last: what it refuses for it, it could compute. A backend is asked for a node once.
    """

    allowed: frozenset[tuple[str, str]] = frozenset()
    _said: dict[tuple[str, ir.Node], Reject | None] = field(default_factory=dict, compare=False, repr=False)

    def ask(self, backend: BackendLike, node: NodeView) -> Reject | None:
        """Return None if the backend takes the node, or the user lets it, else its reason."""
        question = (backend.name, node.node)
        if question not in self._said:
            answer = ask_supports(backend, node)
            tolerated = answer is not None and answer.code == ACCURACY and (backend.name, node.op_type) in self.allowed
            self._said[question] = None if tolerated else answer
        return self._said[question]

    def rows(self, backend: BackendLike) -> tuple[Composite, ...]:
        """Return the backend's composites; where the user allows operators of it, with checks that do too."""
        if not any(name == backend.name for name, _ in self.allowed):
            return tuple(backend.patterns)
        return tuple(self._tolerant(backend, row) for row in backend.patterns)

    def _tolerant(self, backend: BackendLike, row: Composite) -> Composite:
        check = row.check
        if check is None:
            return row

        def tolerant(match: Match) -> bool | Reject | None:
            answer = check(match)
            refused = isinstance(answer, Reject) and answer.code == ACCURACY
            return None if refused and self._allows_all(backend, match.nodes) else answer

        return replace(row, check=tolerant)

    def _allows_all(self, backend: BackendLike, nodes: Sequence[NodeView]) -> bool:
        """Whether the user allows every operator at which the backend says that it is not accurate."""
        answers = ((node.op_type, ask_supports(backend, node)) for node in nodes)
        return all(
            (backend.name, operator) in self.allowed
            for operator, answer in answers
            if answer is not None and answer.code == ACCURACY
        )
