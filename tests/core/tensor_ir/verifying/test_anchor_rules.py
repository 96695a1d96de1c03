import re
from dataclasses import replace

import pytest

from graft.core.tensor_ir.anchors import Contraction, Elementwise, Pooling, RowReduction, Window
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.verifying.anchor_rules import factors_of
from graft.core.tensor_ir.verifying.verifier import verify_stages
from graft.errors import CompileError
from tests.core.tensor_ir.test_anchors import WINDOWS, conv


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (Elementwise(), "an elementwise stage that reduces"),
        (RowReduction((0,)), "a reduction over axes [0] that is none"),
        (Pooling(WINDOWS), "a pool of windows [3, 3] that is none"),
    ],
)
def test_a_structure_that_is_not_true_is_refused(structure: Elementwise, message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(f"it says that it is {message}")):
        verify_stages([replace(conv(), structure=structure)])


def test_a_window_of_other_extents_is_refused():
    stage = conv()
    assert isinstance(stage.structure, Window)
    said = replace(stage, structure=replace(stage.structure, inputs=3))
    with pytest.raises(CompileError, match=re.escape("a convolution of terms [3, 3, 3] that sums [4, 3, 3]")):
        verify_stages([said])
    said = replace(stage, structure=replace(stage.structure, layout=(0, 2, 3, 1)))
    with pytest.raises(CompileError, match=re.escape("image of axes [0, 2, 3, 1] has the shape [2, 4, 6, 5]")):
        verify_stages([said])


def test_a_sum_that_is_no_product_cannot_be_called_one():
    text = "input x: float32[4]\nstage y: float32[] at () = reduce add over k < 4 from float32(0.0): x[k]"
    (stage,) = parse_stages(text)
    with pytest.raises(CompileError, match="it says that it is a sum of products that is none"):
        verify_stages([replace(stage, structure=Contraction())])
    assert factors_of(stage) is None


def test_only_a_stage_that_says_so_has_factors():
    stage = conv()
    assert factors_of(replace(stage, structure=None)) is None
    assert factors_of(stage) is not None and factors_of(replace(stage, structure=Contraction())) is not None
