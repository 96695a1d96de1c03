"""Depthwise convolutions and the Transposes around them in one kernel, and apart."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from graft.core.machine.target import CompileOptions, host_target
from graft.core.operators.all import OPERATORS
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.llvm.backend import LlvmBackend
from tests.plugins.llvm.execute import execute
from tests.plugins.llvm.graphs import HEADER, region_of

CHANNELS = 20
WEIGHTS = {"w": np.random.default_rng(1).standard_normal((CHANNELS, 1, 3, 3)).astype(np.float32)}
IMAGE = f"float[1,6,9,{CHANNELS}]"


def block(conv: str = "pads = [1, 1, 1, 1]", outputs: str = "", order: str = "0, 2, 3, 1") -> str:
    return (
        f"g ({IMAGE} x, {IMAGE} r, float[{CHANNELS},1,3,3] w) => ({IMAGE} y{outputs}) {{"
        f" a = Transpose <perm = [0, 3, 1, 2]> (x)  c = Conv <group = {CHANNELS}, {conv}> (a, w)"
        f" t = Transpose <perm = [{order}]> (c)  s = Add (t, r)  y = Relu (s) }}"
    )


def groups(text: str, constants: dict[str, np.ndarray] | None = None, without: tuple[str, ...] = ()) -> list[str]:
    region = region_of(text, WEIGHTS if constants is None else constants)
    target = replace(host_target(), without=frozenset(without))
    return [str(group) for group in RegionGroups(region, OPERATORS, target).groups]


APART = ["injective: Transpose", "convolution: Conv", "injective: Transpose Add Relu"]


def test_transposes_around_a_depthwise_convolution_join_it() -> None:
    assert groups(block()) == ["convolution: Transpose Conv Transpose Add Relu"]
    assert groups(block(), without=("channels-last",)) == APART


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        (block("pads = [2, 2, 2, 2], dilations = [2, 2]"), WEIGHTS),
        (block(), {}),
        (block(outputs=f", float[1,{CHANNELS},6,9] a"), WEIGHTS),
        (block(outputs=f", float[1,{CHANNELS},6,9] c"), WEIGHTS),
    ],
    ids=["dilated", "computed weights", "input seen outside", "result seen outside"],
)
def test_other_convolutions_stay_apart_from_transposes(text: str, constants: dict[str, np.ndarray]) -> None:
    assert groups(text, constants) == APART


@pytest.mark.parametrize("fused", [True, False])
def test_the_result_is_that_of_the_reference(fused: bool, load_image: Any) -> None:
    random = np.random.default_rng(0)
    feeds = [random.standard_normal((1, 6, 9, CHANNELS)).astype(np.float32) for _ in range(2)]
    target = replace(host_target(), without=frozenset(() if fused else ("channels-last",)))
    compiled = LlvmBackend().compile(region_of(block(), WEIGHTS), CompileOptions(target))
    assert len(compiled.procedure.calls) == (1 if fused else 3)
    (result,) = execute(compiled, feeds, load_image)
    evaluator = ReferenceEvaluator(onnx.parser.parse_model(f"{HEADER} {block()}"))
    expected = evaluator.run(None, {"x": feeds[0], "r": feeds[1], **WEIGHTS})[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
