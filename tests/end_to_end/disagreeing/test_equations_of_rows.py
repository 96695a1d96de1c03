"""The demands of the operator table against what the cases say in words of their own, without any kernel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import pytest

from graft.core.affine.expressions import names_in
from graft.core.affine.text import parsed
from graft.core.graph.dimensions import ranges_of
from graft.core.importer.load import load
from graft.core.operators.all import OPERATORS
from graft.core.shapes.equations import equations_of
from graft.core.shapes.unification import aliases_of
from graft.runtime.extents import Extent, agree, evaluate

from .cases import CASES, RARE, Case


def _holds(model: ir.Model, sizes: Mapping[str, int]) -> bool:
    """Whether a loaded model takes sizes: equations, names that are replaced, and ranges."""
    values = dict(sizes)
    for name, shown in aliases_of(model.metadata_props).items():
        extent = parsed(shown)
        assert extent is not None
        if values[name] != evaluate(extent, values):
            return False
    known = [one for one in equations_of(model.graph, ranges_of(model)) if _is_known(one.left, one.right, values)]
    in_ranges = all(
        bounds.low <= evaluate(extent, values) and (bounds.high is None or evaluate(extent, values) <= bounds.high)
        for extent, bounds in ranges_of(model).items()
        if _is_known(extent, 0, values)
    )
    return in_ranges and all(agree(one.kind, evaluate(one.left, values), evaluate(one.right, values)) for one in known)


def _is_known(left: Extent, right: Extent, values: Mapping[str, int]) -> bool:
    return names_in([left, right]) <= values.keys()


@pytest.mark.parametrize("case", [*CASES, *RARE], ids=lambda case: case.name)
def test_a_row_demands_what_the_operator_means(case: Case) -> None:
    model = load(case.model)
    generator = np.random.default_rng(0)
    for _ in range(16):
        assert _holds(model, sizes := case.valid(generator)), sizes
        wrong, tie = case.violated(generator)
        assert not _holds(model, wrong), (tie, wrong)


def test_every_row_with_demands_has_a_case() -> None:
    tried = {node.op_type for case in (*CASES, *RARE) for node in case.model.graph.node}
    own = (row for row in OPERATORS if not row.domain.startswith("com.graft"))  # scaled types have tests beside them
    assert {row.name for row in own if row.demands is not None} <= tried
