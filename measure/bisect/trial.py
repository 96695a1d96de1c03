"""A trial: a part of a model compiled and run, and how it fails."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import onnx

from graft.compiler.api import compile_model, program_of
from graft.compiler.request import Request
from graft.errors import GraftError
from graft.measure.differences import Difference, Tolerance
from graft.measure.parts import Part
from graft.runtime.foreign import kind_of, one_line, said

WRONG = "wrong result"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a model fails: by a wrong result, or by an error whose class is its kind."""

    kind: str
    text: str
    plugin: str = ""
    """The plugin that the error accuses."""
    output: str = ""
    """The output with the largest error, where the result is wrong."""
    difference: Difference | None = None

    def same(self, other: Failure | None) -> bool:
        """Whether the other is a failure of this kind, of the same plugin."""
        return other is not None and (self.kind, self.plugin) == (other.kind, other.plugin)


@dataclass(frozen=True, slots=True)
class Trials:
    """How parts are tried: the options of the compilation, and how far a result may be from its reference."""

    request: Request
    tolerance: Tolerance
    named: frozenset[str] = frozenset()
    """What constraints of placement may name of the whole model: nodes and operators."""

    def failure(self, part: Part, without: Collection[str] = ()) -> Failure | None:
        """Return how a part fails, compiled without some optimisations or passes; None if it is right."""
        try:
            results = self.run(part, without)
        except Exception as error:  # whatever is raised is the failure to find the cause of
            plugin = str(error.facts.get("plugin", "")) if isinstance(error, GraftError) else ""
            return Failure(type(error).__name__, one_line(f"{kind_of(error)}: {said(error)}"), plugin)
        found = {name: self.tolerance.judge(results[name], array) for name, array in part.expected.items()}
        bad = [(row.max_abs, name) for name, row in found.items() if not row.ok]
        if not bad:
            return None
        name = max(bad)[1]
        row = found[name]
        text = f"output '{name}': largest error {row.max_abs:.3g}, relative {row.max_rel:.3g}"
        return Failure(WRONG, text, output=name, difference=row)

    def run(self, part: Part, without: Collection[str] = ()) -> dict[str, np.ndarray]:
        """Return what a part gives; raise what its compilation and its run raise."""
        request = self.asked(part, without)
        compiled = compile_model(part.model, request)
        isolated = request.isolated(request.chosen())
        program = program_of(compiled.description, request.threads, request.chosen(), request.plugins, isolated)
        return program.run(dict(part.inputs))

    def asked(self, part: Part, without: Collection[str] = ()) -> Request:
        """Return what is asked of a part: constraints that name nothing of it are left out."""
        request = replace(self.request, without=(*self.request.without, *without))
        policy = request.policy
        if policy is None:
            return request
        gone = self.named - named_in(part.model)
        operators, nodes = (
            tuple(one for one in rows if not {one, one.partition(":")[2]} & gone)
            for rows in (policy.exclude_op, policy.exclude_node)
        )
        pins = {node: backend for node, backend in policy.pin.items() if node not in gone}
        return replace(request, policy=replace(policy, pin=pins, exclude_op=operators, exclude_node=nodes))


def named_in(model: onnx.ModelProto) -> set[str]:
    """Return the names of nodes and operators of a model."""
    return {name for node in model.graph.node for name in (node.name, node.op_type)}
