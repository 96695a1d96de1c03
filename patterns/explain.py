"""The nearest miss: how far a pattern got at a node, and what stopped it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import OperatorTable
from graft.core.reject import Reject
from graft.patterns.backtracking import Found
from graft.patterns.checks.validate import validate
from graft.patterns.language import ConstantPattern, Constrained, Operator, Pattern
from graft.patterns.matcher import Matcher
from graft.patterns.matching import MatchCheck, refusal
from graft.patterns.value_constraints import Attributes, DtypeIs, RankIs
from graft.patterns.walk import walk


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pattern does not match at a node, or that it does.

    ``pattern`` is the part that failed, ``where`` the node or value it met, ``text`` what was found and wanted there;
    ``matched`` and ``wanted`` count the operators of the nearest miss and of the whole pattern.
    """

    found: bool
    pattern: Pattern | None = None
    where: str = ""
    text: str = ""
    matched: int = 0
    wanted: int = 0
    rejects: tuple[Reject, ...] = ()
    """What the check said to structural matches."""
    code: str = "no-pattern"
    """The kind of the failure, as a refusal has it: ``attribute``, ``constant-required``, ``fused-use``, ..."""
    members: frozenset[ir.Node] = frozenset()
    """The nodes that the nearest miss, or a match that was refused, had bound."""

    @property
    def reject(self) -> Reject:
        """The refusal that this amounts to."""
        return self.rejects[0] if self.rejects else Reject(self.code, str(self))

    def __str__(self) -> str:
        if self.found:
            return "matches"
        if self.rejects:
            return f"matches, but the check refuses: {'; '.join(map(str, self.rejects))}"
        return f"matched {self.matched} of {self.wanted} operators, then at {self.where}: {self.text}"


def explain(
    pattern: Pattern,
    node: ir.Node | NodeView,
    check: MatchCheck | None = None,
    operators: OperatorTable = OPERATORS,
) -> Explanation:
    """Say why a pattern does not match at a node: the miss that came after the most bound parts.

    Raises PatternError if the pattern names an unknown operator or attribute.
    """
    validate(pattern)
    return nearest(pattern, node if isinstance(node, NodeView) else NodeView(node), check, operators)


def nearest(
    pattern: Pattern, view: NodeView, check: MatchCheck | None = None, operators: OperatorTable = OPERATORS
) -> Explanation:
    """Explain a pattern that was validated before."""
    matcher = _Explaining(view, operators)
    rejects: list[Reject] = []
    members: frozenset[ir.Node] = frozenset()
    for found in matcher.matches(pattern, view.node):
        refused = refusal(check, found)
        if refused is None:
            return Explanation(True, matched=len(found.members), wanted=_operators(pattern))
        rejects.append(refused)
        members = members or found.members
    missed, where, text, code = matcher.nearest
    return Explanation(
        False, missed, where, text, len(matcher.bound), _operators(pattern), tuple(dict.fromkeys(rejects)), code,
        members or frozenset(matcher.bound),
    )  # fmt: skip


class _Explaining(Matcher):
    """A matcher that keeps the miss that came latest."""

    explains = True

    def __init__(self, root: NodeView, operators: OperatorTable) -> None:
        super().__init__(operators)
        self.furthest = (-1, -1)
        self.bound: frozenset[ir.Node] = frozenset()
        self.root = root
        self.nearest: tuple[Pattern | None, str, str, str] = (
            None,
            root.where,
            "the pattern does not fit",
            "no-pattern",
        )

    def miss(self, pattern: Pattern, subject: Found, text: str, code: str = "") -> None:
        """Keep the miss if more operators, then more parts, were bound than at any earlier one."""
        parts = sum(len(scope.bound) for scope in self.scopes)
        if parts < self.furthest[0]:
            return  # there are no more nodes than parts
        nodes = [found for scope in self.scopes for found in scope.bound.values() if isinstance(found, ir.Node)]
        reached = (len(nodes), parts)
        if reached > self.furthest:
            self.furthest = reached
            self.bound = frozenset(nodes)
            self.nearest = (pattern, self._where(subject, nodes), text, code or _code(pattern, subject))

    def _where(self, subject: Found, nodes: list[ir.Node]) -> str:
        """Name a node or, for a value, the node that reads it."""
        if isinstance(subject, ir.Node):
            return NodeView(subject).where
        reader = NodeView(nodes[-1]) if nodes else self.root
        for node in reversed(nodes):
            if subject is not None and subject in node.inputs:
                position = list(node.inputs).index(subject)
                return f"input {position} of {NodeView(node).where}"
        return reader.where


@lru_cache(maxsize=4096)
def _operators(pattern: Pattern) -> int:
    return sum(isinstance(part, Operator) for part in walk(pattern))


def _code(pattern: Pattern, subject: Found) -> str:
    """Return the reason code of a pattern that does not fit."""
    match pattern:
        case ConstantPattern():
            return "constant-required"
        case Constrained(constraint=Attributes()):
            return "attribute"
        case Constrained(constraint=DtypeIs()):
            return "dtype"
        case Constrained(constraint=RankIs()):
            return "rank"
        case _:
            return "no-pattern"
