"""Models of the shared generator as trials: the one place where the kit knows it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from zlib import crc32

from graft.testkit.conformance.cases.outcome import Trial
from graft.testkit.models.model import RandomModel, draw_model
from graft.testkit.models.shrink import shrunk

SEARCHED = 400
"""The seeds among which models of an operator alone are looked for."""

__all__ = ["RandomModel", "draw_model", "operator_trials", "shrunk", "trial_of"]


def trial_of(model: RandomModel) -> Trial:
    """Return a random model as a trial; its bounds are those for results of several operators."""
    return Trial(model.proto, model.feeds, model.expected, model.tolerance, model.tolerance)


@cache
def _single() -> dict[str, list[RandomModel]]:
    """Return random models of one node by operator."""
    found: dict[str, list[RandomModel]] = {}
    for seed in range(SEARCHED):
        model = draw_model(seed)
        for node in model.nodes:
            alone = _alone(model, node.output[0])
            if alone is not None:
                found.setdefault(node.op_type, []).append(alone)
    return found


def _alone(model: RandomModel, output: str) -> RandomModel | None:
    """Return the node that computes a value as a model of its own, what it reads becoming inputs."""
    from dataclasses import replace

    from graft.testkit.models.model import pruned

    if not output:
        return None
    node = next(one for one in model.nodes if output in one.output)
    read = [name for name in dict.fromkeys(node.input) if name and name not in model.constants]
    return pruned(
        replace(model, nodes=(node,), inputs=tuple(read), outputs=tuple(name for name in node.output if name))
    )


def operator_trials(op_type: str, count: int) -> Iterator[Trial]:
    """Give models of an operator alone, as they stand in random models: equal ones each time."""
    models = sorted(_single().get(op_type, ()), key=lambda model: crc32(str(model.proto).encode()))
    for model in models[:count]:
        yield trial_of(model)
