"""Random models in every way to compile them, against `onnx.reference` and ONNX Runtime."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graft.testkit.models.table
from graft.core.operators.all import OPERATORS
from graft.plugins.onednn.operators import ROWS
from graft.testkit.models.check import check, way_of
from graft.testkit.models.model import random_model
from graft.testkit.models.run import smallest

MODELS = 1000
GROUP = 10
EVERY_NTH = 20
"""The share of the groups that runs in every test run; all are ``make test-conformance``."""
UNDRAWN = {
    "GlobalLpPool": "onnx.reference has no GlobalLpPool",
    "Upsample": "the importer replaces it",
    "MeanVarianceNormalization": "no seed below MODELS draws it",
}

UNROWED = {
    **dict.fromkeys(
        ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        "random: ONNX's suite compares the means",
    ),
    **dict.fromkeys(
        (
            "Compress",
            "Det",
            "MaxRoiPool",
            "NonMaxSuppression",
            "NonZero",
            "RoiAlign",
            "SplitToSequence",
            "StringConcat",
        ),
        "rows without a lowering: ONNX's suite has the operators",
    ),
    "SequenceMap": "models have tensors only; ONNX's suite has sequences",
    "Upsample": "the importer replaces it",
}


def report(seed: int) -> str | None:
    """Return what goes wrong with a model in the way that its seed draws, with the smallest model that shows it."""
    model = random_model(seed)
    if (finding := check(model, way_of(seed))) is None:
        return None
    return f"{finding}\n{smallest(model, finding)}"


@pytest.mark.filterwarnings("ignore")  # NumPy's of numbers that models are meant to have
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[] if group % EVERY_NTH == 0 else pytest.mark.conformance)
        for group in range(MODELS // GROUP)
    ],
)
def test_a_random_model_means_the_same_whichever_way_it_is_compiled(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        assert (text := report(seed)) is None, text


def test_every_operator_without_a_domain_has_a_row_or_a_reason() -> None:
    rows = Path(graft.testkit.models.table.__file__).parent.glob("*.py")
    named = set(re.findall(r'(?:"|draw\.)([A-Z]\w+)["(]', "".join(path.read_text() for path in rows)))
    assert {operator.name for operator in OPERATORS if not operator.domain} - named == set(UNROWED)


@pytest.mark.conformance
def test_random_models_have_every_operator_that_backends_compute() -> None:
    drawn = {name for seed in range(MODELS) for name in random_model(seed).operators}
    lowered = {operator.name for operator in OPERATORS if not operator.domain and operator.lower is not None}
    assert (lowered | {name for name, row in ROWS.items() if row.eltwise is None}) - drawn == set(UNDRAWN)
