"""The decorator `supports`: a backend's support matrix as marked methods, in order of preference.

    class Npu(graft.JsonBackend):
        name = "npu"

        @graft.supports(is_op("Relu")(is_op("MatMul")(wildcard(), wildcard())), name="npu.matmul_relu")
        def matmul_relu(self, match): return True

        @graft.supports("MatMul")
        def matmul(self, node): return node.dtype == "float32" or graft.Reject("dtype", "float32 only")

This module imports neither onnx nor the pattern language; a method that was given a pattern meets it already built.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from graft.core.reject import Reject
from graft.errors import PluginError

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.core.operators.definition.adjoint import Vjp
    from graft.patterns.composite import Composite

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK = "_graft_rules"


class Named(Protocol):
    """What rules are bound to: a backend, as far as it is asked for here."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """What one marked method decides about: a pattern, or an operator by name, and which method it is."""

    what: Any
    """A pattern, or an operator name such as ``MatMul`` or ``com.microsoft::FastGelu``."""
    name: str
    method: str
    vjp: Any = None

    @property
    def is_operator(self) -> bool:
        """Whether the rule is about a single operator."""
        return isinstance(self.what, str)


def supports(*what: Any, name: str = "", vjp: Vjp | None = None) -> Callable[[Method], Method]:
    """Mark a backend's method as the predicate of a pattern or of operators, by name.

    Of an operator the method gets a `NodeView`, of a pattern a `Match`; it returns True or a `Reject`. ``name`` names
    the composite of a pattern; without it that is the backend's name, a dot and the method's name. ``vjp`` is the
    composite's derivative (`graft.patterns.Composite`); an operator says its own in its row. Several operators may
    share a method, a pattern stands alone. Raises PluginError for anything else.
    """
    patterns = [one for one in what if not isinstance(one, str)]
    if vjp is not None and not patterns:
        raise PluginError("supports() takes a vjp for a pattern alone; the row of an operator has its derivative")
    if not what or (patterns and len(what) > 1):
        raise PluginError(
            "supports() takes operator names or one pattern, got "
            f'{", ".join(repr(one) for one in what) or "nothing"}; write supports("MatMul") or supports(pattern)'
        )

    def mark(method: Method) -> Method:
        if not callable(method):
            raise PluginError(f"supports() marks a method, got {method!r}; write it above the method's def")
        rules = tuple(Rule(one, name, method.__name__, vjp) for one in what)
        setattr(method, _MARK, (*rules, *getattr(method, _MARK, ())))
        return method

    return mark


def rules_of(backend: type) -> tuple[Rule, ...]:
    """Return the rules of a class in order of definition; those of its bases come after, unless overridden."""
    rules: list[Rule] = []
    seen: set[str] = set()
    for base in backend.__mro__:
        own = [name for name in vars(base) if name not in seen]
        rules += [rule for name in own for rule in getattr(vars(base)[name], _MARK, ())]
        seen.update(own)
    return tuple(rules)


def composites(backend: Named, rules: Sequence[Rule]) -> tuple[Composite, ...]:
    """Return the pattern rules as composites, bound to the backend."""
    from graft.patterns.composite import Composite

    return tuple(
        Composite(rule.name or f"{backend.name}.{rule.method}", rule.what, getattr(backend, rule.method), rule.vjp)
        for rule in rules
        if not rule.is_operator
    )


@cache
def _require_known(owner: str, name: str, rules: tuple[Rule, ...]) -> None:
    """Raise PluginError for a rule about an operator that neither ONNX nor a plugin has: it would never be asked.

    Operators of other domains are taken as they are.
    """
    import onnx

    from graft.core.operators.all import OPERATORS

    for rule in rules:
        plain = rule.what.removeprefix("ai.onnx::") if rule.is_operator else ""
        if not plain or "::" in plain or onnx.defs.has(plain) or OPERATORS.get(plain) is not None:
            continue
        known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
        near = difflib.get_close_matches(plain, sorted(known | {one.name for one in OPERATORS}), 1)
        hint = f"did you mean '{near[0]}'?" if near else 'for another domain write supports("com.acme::Operator")'
        raise PluginError(
            f"backend '{name}': supports({rule.what!r}) on '{owner}.{rule.method}' names an unknown operator; {hint}",
            plugin=name,
            operator=rule.what,
        )


def answer(backend: Named, rules: tuple[Rule, ...], node: NodeView) -> bool | Reject:
    """Return True if a rule for the node's operator takes it, else the first such rule's refusal."""
    _require_known(type(backend).__name__, backend.name, rules)
    inside = node.domain in ("", "ai.onnx")
    keys = (node.op_type, f"ai.onnx::{node.op_type}") if inside else (f"{node.domain}::{node.op_type}",)
    refusals = []
    for rule in rules:
        if rule.is_operator and rule.what in keys:
            verdict: bool | Reject = getattr(backend, rule.method)(node)
            if verdict:
                return verdict
            refusals.append(verdict)
    return refusals[0] if refusals else Reject("no-pattern", f"{backend.name} has no rule for {node.op_type}")
