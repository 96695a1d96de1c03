"""Smaller models that still fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graft.testkit.models.model import RandomModel, pruned


def shrunk(model: RandomModel, fails: Callable[[RandomModel], bool]) -> RandomModel:
    """Return a model that still fails, made of as few nodes as dropping outputs and cutting off producers gives."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(model):
            if fails(candidate):
                model, smaller = candidate, True
                break
    return model


def _candidates(model: RandomModel) -> list[RandomModel]:
    made = [name for node in model.nodes for name in node.output if name]
    single = [replace(model, outputs=(name,)) for name in made if (name,) != model.outputs]
    cut = [
        replace(
            model,
            nodes=tuple(one for one in model.nodes if one is not node),
            inputs=(*model.inputs, *(name for name in node.output if name)),
        )
        for node in model.nodes
        if not set(node.output) & set(model.outputs)
    ]
    plain = [replace(model, symbols={})] if model.symbols else []
    small = [*plain, *(pruned(one) for one in (*single, *cut))]
    return [one for one in small if _size(one) < _size(model)]


def _size(model: RandomModel) -> int:
    return len(model.nodes) + len(model.outputs) + bool(model.symbols)
