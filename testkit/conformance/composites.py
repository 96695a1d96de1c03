"""Level 2: every composite of the backend's table, and what it nearly matches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from graft.errors import GraftError
from graft.patterns.language import Pattern
from graft.runtime.foreign import one_line
from graft.testkit.conformance.cases.near_misses import near_misses
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, Trial
from graft.testkit.conformance.cases.synthesis import Unwritable, instances
from graft.testkit.conformance.kit import Kit
from graft.training.gradients import grad

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
MODELS = 2
"""The instances of a composite whose near misses are tried."""


def subjects(kit: Kit) -> list[str]:
    """Return the names of the composites."""
    return [row.name for row in kit.backend.patterns]


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the composite's cases: whether any model shows it, those that the kit writes, and their near misses."""
    row = next(row for row in kit.backend.patterns if row.name == subject)
    pattern = row.pattern
    shown: list[Trial] = []
    for name, trial in _written(pattern):
        yield Case(f"2/{subject}/{name}", partial(kit.attempt, trial))
        if len(shown) < MODELS and takes(kit, trial, subject):
            shown.append(trial)
            if row.vjp is not None:
                yield Case(f"2/{subject}/{name}-gradient", partial(_attempt_gradient, kit, trial))
            for change, other in near_misses(trial):
                yield Case(f"2/{subject}/{name}-{change}", partial(kit.attempt, other))
    yield Case(f"2/{subject}/is-taken", partial(_require_shown, kit, pattern, subject, bool(shown)))


def takes(kit: Kit, trial: Trial, composite: str) -> bool:
    """Whether a model's plan has the composite."""
    return composite in _composites(kit, trial)


def _attempt_gradient(kit: Kit, trial: Trial) -> str:
    """Compare gradients by the backend's own derivative with those by operators; raise Failure where they differ."""
    model = with_drawn_loss(trial.proto)
    values = {one.name: one.type.tensor_type.elem_type for one in model.graph.input}
    values |= {one.name: one.data_type for one in trial.proto.graph.initializer}
    wrt = [name for name, dtype in values.items() if dtype in FLOATS]
    if not wrt or not model.graph.output:
        raise NotClaimed
    try:
        wanted, own = (ir.to_proto(grad(model, wrt=wrt, outputs=[], backends=by)) for by in ((), [kit.backend]))
    except GraftError as error:
        raise Failure(f"cannot be differentiated: {one_line(error.message)}", trial) from error
    expected = kit.reference(Trial(wanted, trial.feeds))
    return kit.attempt(Trial(own, trial.feeds, expected))


def with_drawn_loss(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose output is the sum of its first result, each element by a drawn weight; none of integers."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    graph, value = model.graph, proto.graph.output[0]
    kind, weights = value.type.tensor_type, f"{value.name}/weights"
    del graph.output[:]
    if kind.elem_type in FLOATS and all(one.HasField("dim_value") for one in kind.shape.dim):
        shape, dtype = [one.dim_value for one in kind.shape.dim], helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
        graph.initializer.append(numpy_helper.from_array(drawn, weights))
        graph.node.append(helper.make_node("Mul", [value.name, weights], [f"{value.name}/part"]))
        graph.node.append(helper.make_node("ReduceSum", [f"{value.name}/part"], ["loss"], keepdims=0))
        graph.output.append(helper.make_tensor_value_info("loss", kind.elem_type, []))
    return model


def _composites(kit: Kit, trial: Trial) -> set[str]:
    """Return the names of the composites of a model's plan; none where it cannot be compiled."""
    try:
        plan, _ = kit.compiled(trial)
    except (Failure, NotClaimed):
        return set()
    return {row.composite for row in plan.placements if row.composite}


def _written(pattern: Pattern) -> Iterator[tuple[str, Trial]]:
    try:
        yield from instances(pattern)
    except Unwritable:
        return


def _require_shown(kit: Kit, pattern: Pattern, composite: str, found: bool) -> None:
    """Raise Failure for a composite that no model of the kit or of the vendor shows, though the kit can write some."""
    if found or any(takes(kit, trial, composite) for trial in kit.models):
        return
    try:
        others = set[str]().union(*(_composites(kit, trial) for _, trial in islice(instances(pattern), MODELS)))
    except Unwritable as error:
        raise Failure(f"the kit cannot write a model of it ({error}); give one with models=[...]") from error
    names = [row.name for row in kit.backend.patterns]
    earlier = [name for name in names[: names.index(composite)] if name in others]
    why = f"the earlier row '{earlier[0]}' takes them" if earlier else "its check refuses them"
    raise Failure(f"no model that the kit writes is taken by it: {why}; give a model with models=[...]")
