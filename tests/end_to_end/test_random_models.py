"""Random models by every in-tree backend and by mixtures of them, against `onnx.reference`."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

import graft
from graft.core.operators.all import OPERATORS
from graft.errors import GraftError
from graft.plugins.onednn.checks import CHECKS
from graft.plugins.onednn.eltwise import BINARY
from tests.end_to_end.random_models.model import RandomModel, difference, draw_model, shrunk
from tests.plugins.onednn.models import needs_library

MODELS = 300
GROUP = 10
UNDRAWN = {
    "GlobalLpPool": "onnx.reference has no GlobalLpPool",
    "Upsample": "the importer replaces it",
    "BitCast": "newer than the opset of the models",
    "CumProd": "newer than the opset of the models",
    "TensorScatter": "newer than the opset of the models",
}
WAYS = {
    "mixed": ("onednn", "llvm", "reference"),
    "onednn first": ("onednn", "reference"),
    "llvm first": ("llvm", "onednn", "reference"),
    "reference": ("reference",),
}


def failure(model: RandomModel, way: str) -> str | None:
    """Return what goes wrong with a model when it is compiled in one of `WAYS`, None if all is well."""
    rng = np.random.default_rng(model.seed)
    share = rng.choice((0.0, 0.2, 0.5))
    try:
        # the names of the simplified model: what a model has that is all constant is not there
        placements = graft.plan(model.proto, list(WAYS[way])).placements if way == "mixed" else ()
        excluded = tuple(
            f"{backend}:{row.node}"
            for row in placements
            for backend in ("onednn", "llvm")
            if drawn_share(f"{model.seed} {backend} {row.node}") < share
        )
        program = graft.compile(
            model.proto,
            list(WAYS[way]),
            policy=graft.Policy(exclude_node=excluded),
            threads=int(rng.integers(1, 3)),
            strict=True,
            cache=False,
        )
        first = difference(model, program.run(model.feeds))
        return first or difference(model, program.run(model.feeds))
    except GraftError as error:
        return f"{type(error).__name__}: {error}"


def drawn_share(text: str) -> float:
    """Return a number of [0, 1) that depends on the text alone, so that it stays where a model shrinks."""
    return crc32(text.encode()) / 2**32


def report(model: RandomModel, way: str) -> str | None:
    """Return the failure with the smallest model that shows it, None if there is none."""
    found = failure(model, way)
    if found is None:
        return None
    small = shrunk(model, lambda one: failure(one, way) is not None)
    return f"{way}: {failure(small, way)}\n{small}"


@needs_library
@pytest.mark.parametrize("group", range(MODELS // GROUP))
def test_random_models_mean_the_same_with_every_backend(group):
    names = list(WAYS)
    for seed in range(group * GROUP, (group + 1) * GROUP):
        # half of the models in a mixture, for boundaries between backends are where layouts meet
        way = "mixed" if seed % 2 else names[seed // 2 % len(names)]
        assert (text := report(draw_model(seed), way)) is None, text


def test_random_models_have_every_operator_of_the_tables():
    drawn = {node.op_type for seed in range(2 * MODELS) for node in draw_model(seed).nodes}
    lowered = {operator.name for operator in OPERATORS if not operator.domain and operator.lower is not None}
    known = lowered | set(CHECKS) | set(BINARY)
    assert known - drawn == set(UNDRAWN)


def test_a_failing_model_shrinks_to_the_node_at_fault():
    model = next(one for one in map(draw_model, range(100)) if any(node.op_type == "Softmax" for node in one.nodes))
    small = shrunk(model, lambda one: any(node.op_type == "Softmax" for node in one.nodes))
    assert [node.op_type for node in small.nodes] == ["Softmax"]
