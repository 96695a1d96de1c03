"""What oneDNN leaves to a backend that fuses."""

import onnx_ir as ir
import pytest

from graft.core.graph.view import NodeView
from graft.core.reject import Yield
from graft.plugins.onednn.boundary_support import declined_at_boundary
from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import Case, compile_region, load, needs_library

IMAGE = {"x": (1, 16, 8, 8)}


def answers(case: Case) -> list[Yield | None]:
    return [declined_at_boundary(NodeView(node)) for node in ir.from_proto(case.proto()).graph]


def answer(case: Case) -> Yield | None:
    (only,) = answers(case)
    return only


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("y = Transpose<perm = [0, 2, 3, 1]>(x)", "Transpose by itself is a copy in oneDNN"),
        ("y = Add(x, x)", "Add by itself is a pass over memory in oneDNN"),
        ("y = Exp(x)", "Exp by itself is a pass over memory in oneDNN"),
    ],
)
def test_moves_and_elementwise_operators_are_taken_between_others_only(body, text):
    assert answer(Case(body, IMAGE, {})) == Yield(f"{text}, and part of a fused kernel elsewhere")


@pytest.mark.parametrize("body", ["y = MatMul(x, x)", "y = MaxPool<kernel_shape = [2, 2]>(x)", "y = LRN<size = 5>(x)"])
def test_products_poolings_and_normalisations_are_taken_always(body):
    assert answer(Case(body, IMAGE, {})) is None


SLOW = {
    "MaxPool": (Case("y = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(x)", IMAGE, {}), "dilated pooling"),
    "LRN": (Case("y = LRN<size = 5, beta = 0.5>(x)", IMAGE, {}), "LRN with 4 axes and beta 0.5"),
    "LRN of rows": (Case("y = LRN<size = 5>(x)", {"x": (2, 16, 8)}, {}), "LRN with 3 axes and beta 0.75"),
    "Mul": (
        Case("y = Mul(x, z)", {"x": (2, 8, 6, 4), "z": (2, 1, 6, 1)}, {}),
        "Mul of [2, 8, 6, 4] and [2, 1, 6, 1]",
    ),
}


@needs_library
@pytest.mark.parametrize("name", SLOW)
def test_what_oneDNN_has_only_a_reference_implementation_of_is_given_up_everywhere(name):
    case, text = SLOW[name]
    assert answer(case) == Yield(f"oneDNN has only its reference implementation of {text}", everywhere=True)
    loaded = load(compile_region(case.region()))
    chosen = [row[2] for row in loaded.steps()]
    loaded.close()
    assert "ref:any" in chosen


@needs_library
@pytest.mark.parametrize("name", CASES)
def test_what_is_not_given_up_everywhere_has_a_fast_implementation(name):
    case = CASES[name]
    said = answers(case)
    loaded = load(compile_region(case.region()))
    chosen = [row[2] for row in loaded.steps()]
    loaded.close()
    is_slow = any(one is not None and one.everywhere for one in said)
    assert is_slow == any(name.startswith("ref") for name in chosen)


@needs_library
def test_a_transpose_in_front_goes_to_the_built_in_compiler():
    import graft

    case = Case("t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(t, w)", {"x": (2, 8, 4)}, {"w": (8, 8)})
    plan = graft.plan(case.proto(), ["onednn", "llvm"])
    assert [row.backend for row in plan.placements] == ["llvm", "onednn"]
    assert [row.backend for row in graft.plan(case.proto(), ["onednn"]).placements] == ["onednn"] * 2
    assert [row.backend for row in graft.plan(case.proto(), ["onednn", "reference"]).placements] == ["onednn"] * 2
