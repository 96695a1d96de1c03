"""The zoo of families and the table of operators: complete, valid and the same at every build."""

import onnx
import pytest

import graft
from benchmarks.families.all import FAMILIES
from benchmarks.families.operator_cases import CASES, LEFT_OUT, model_of
from benchmarks.families.table import difference
from graft.core.operators.all import OPERATORS
from graft.core.shapes.sample_inputs import sample_inputs


def test_every_operator_of_the_table_is_measured_or_left_out_for_a_reason() -> None:
    names = {row.name for row in OPERATORS if not row.domain}
    assert not CASES.keys() & LEFT_OUT.keys()
    assert names - CASES.keys() - LEFT_OUT.keys() == set()
    assert all(len(shapes) == 3 for _, shapes in CASES.values())


@pytest.mark.parametrize("operator", CASES)
def test_the_smallest_case_of_each_operator_is_a_valid_model(operator: str) -> None:
    onnx.checker.check_model(model_of(operator, CASES[operator][1][0]), full_check=True)


def test_every_family_is_a_valid_model() -> None:
    for build in FAMILIES.values():
        onnx.checker.check_model(build())


@pytest.mark.parametrize("name", ["ghostnet", "messages"])
def test_a_family_is_the_same_at_every_build(name: str) -> None:
    assert FAMILIES[name]().SerializeToString() == FAMILIES[name]().SerializeToString()


@pytest.mark.parametrize("name", ["interactions", "temporal"])
def test_a_family_computes_what_its_peer_does(name: str) -> None:
    pytest.importorskip("onnxruntime")
    from graft.measure.peers.peer_table import peer

    source = graft.load(FAMILIES[name]())
    feeds = sample_inputs(source)
    program = graft.compile(source, ["llvm"], threads=1)
    assert difference(list(program.run(feeds).values()), peer("onnxruntime", source, feeds, 1)()) < 1e-4  # type: ignore[arg-type]
