"""What a backend answers and makes of regions is checked, and a wrong field is its fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graft.core.reject import Reject
from graft.errors import PluginError
from graft.partition.placement.partitioner import partition
from graft.partition.region import Region, regions
from graft.plugins.backend import CompiledRegion
from graft.plugins.registry.compiled import checked, checked_answer
from graft.runtime.procedure import Module, Procedure
from tests.partition.graphs import everything, small

PROCEDURE = Procedure("main", (), (), (), ())
MODULE = Module("m", "npu", ("f",), b"")


@pytest.fixture(scope="module")
def region() -> Region:
    (found,) = regions(partition(small("y = Relu(x)"), [everything("npu")]).model)
    return found


def test_true_and_reasons_pass_and_a_bare_false_is_remarked_upon() -> None:
    remarks: list[str] = []
    reason = Reject("dtype", "no int4")
    for answer in (True, np.True_):
        assert checked_answer("npu", "supports", answer, remarks.append) is True
    assert checked_answer("npu", "supports", reason, remarks.append) is reason
    assert remarks == []
    for answer in (False, np.False_):
        assert checked_answer("npu", "supports", answer, remarks.append) == Reject("no-pattern", "npu gave no reason")
    assert set(remarks) == {"backend 'npu': supports returned a bare False; return graft.Reject(code, text) instead"}


@pytest.mark.parametrize(("answer", "shown"), [(None, "NoneType None"), (1, "int 1"), ("yes", "str 'yes'")])
def test_any_other_answer_is_refused(answer: object, shown: str) -> None:
    with pytest.raises(PluginError) as caught:
        checked_answer("npu", "supports", answer, print)
    assert str(caught.value) == f"backend 'npu': supports returned {shown}; return True or graft.Reject(code, text)"


def test_a_module_with_the_regions_function_and_a_region_of_modules_pass(region: Region) -> None:
    module = replace(MODULE, functions=(region.name, "more"))
    assert checked(module, region, "npu") is module
    compiled = CompiledRegion((MODULE,), PROCEDURE, {"w": np.zeros(1)})
    assert checked(compiled, region, "npu") is compiled


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": 3}, "name is 3; give a text"),
        ({"install": None}, "install is None; give a text"),
        ({"kind": ""}, "kind is empty; give the kind that your loader has"),
        ({"functions": "f"}, "functions are 'f'; give a tuple of names"),
        ({"functions": (1,)}, "functions are (1,); give a tuple of names"),
        ({"functions": ("g",)}, "functions are ('g',); one must have the region's name"),
        ({"data": "code"}, "data is str; give bytes"),
        ({"constants": [1]}, "constants are [1]; give a mapping of names to arrays"),
        ({"constants": {"w": 1.0}}, "constants hold float as 'w'; give arrays of NumPy by name"),
        ({"constants": {1: np.zeros(1)}}, "constants hold ndarray as 1; give arrays of NumPy by name"),
    ],
)
def test_a_module_with_a_wrong_field_is_refused(region: Region, change: dict[str, Any], fault: str) -> None:
    with pytest.raises(PluginError) as caught:
        checked(replace(MODULE, **{"functions": (region.name,), **change}), region, "npu")
    assert str(caught.value) == (f"backend 'npu': compile of region '{region.name}' returned a Module whose {fault}")


@pytest.mark.parametrize(
    ("compiled", "fault"),
    [
        (CompiledRegion(MODULE, PROCEDURE), "modules are "),  # type: ignore[arg-type]
        (CompiledRegion(("m",), PROCEDURE), "modules hold 'm'; give Module objects"),  # type: ignore[arg-type]
        (
            CompiledRegion((replace(MODULE, data=None),), PROCEDURE),  # type: ignore[arg-type]
            "module 'm' is wrong: its data is NoneType; give bytes",
        ),
        (CompiledRegion((MODULE,), None), "procedure is None; give a Procedure"),  # type: ignore[arg-type]
        (CompiledRegion((MODULE,), PROCEDURE, 3), "constants are 3; give a mapping of names to arrays"),  # type: ignore[arg-type]
    ],
)
def test_a_compiled_region_with_a_wrong_field_is_refused(region: Region, compiled: CompiledRegion, fault: str) -> None:
    with pytest.raises(PluginError) as caught:
        checked(compiled, region, "npu")
    assert str(caught.value).startswith(
        f"backend 'npu': compile of region '{region.name}' returned a CompiledRegion whose {fault}"
    )


def test_anything_else_than_a_module_or_a_region_is_refused(region: Region) -> None:
    with pytest.raises(PluginError) as caught:
        checked(None, region, "npu")
    assert str(caught.value) == (
        f"backend 'npu': compile of region '{region.name}' returned NoneType; return a graft Module or CompiledRegion"
    )
