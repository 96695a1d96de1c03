"""Products by warpgroups: what descriptors say lies where fills put it, and nothing reads what no fence lets it see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from graft.core.machine.target import Target
from graft.core.schedule.parameters import BlockTileParameters, Parameters
from graft.core.tensor_ir.ir import CallExtern
from graft.errors import GraftError
from graft.plugins.cuda import ptx
from graft.plugins.cuda.backend import CudaBackend
from graft.plugins.cuda.kernel_emitter import KernelEmitter
from graft.plugins.cuda.kernel_text import kernel_text
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.machines import SM_90, SM_90A
from graft.plugins.cuda.ptx import assembled, assembler, ptx_of
from graft.plugins.cuda.strategies.bulk import in_tiles
from graft.plugins.cuda.strategies.tiles import Problem, chosen
from tests.plugins.cuda.graphs import Ran, graph, node, ran, scheduled

RANDOM = np.random.default_rng(11)
SMALL = BlockTileParameters(64, 64, 64, 64, "warpgroup")
WIDE = BlockTileParameters(128, 256, 64, 256, "warpgroup", stages=2)
TALL = BlockTileParameters(256, 128, 128, 128, "warpgroup", stages=2)
SPLIT = replace(SMALL, splits=2)
LONG = graph(
    [node("MatMulInteger", "x w")], {"x": ("uint8", [70, 384])},
    {"w": RANDOM.integers(-127, 127, (384, 72)).astype(np.int8)},
)  # fmt: skip
BATCHES = graph(
    [node("MatMul", "x w")], {"x": ("float16", [3, 70, 256])}, {"w": RANDOM.standard_normal((3, 256, 72)).astype("f2")}
)


@pytest.fixture
def by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Parameters], None]:
    """Let every kernel have some parameters, as if tuning had found them."""

    own = CudaBackend.schedule

    def take(parameters: Parameters) -> None:
        monkeypatch.setattr(
            CudaBackend, "schedule", lambda self, kernel, target, _: own(self, kernel, target, parameters)
        )

    return take


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return RANDOM.standard_normal(shape).astype(dtype)
    return RANDOM.integers(0, 100, shape).astype(dtype)


def gemm(rows: int, terms: int, columns: int, dtype: str, **transposed: int) -> onnx.ModelProto:
    left = [terms, rows] if transposed.get("transA") else [rows, terms]
    right = (columns, terms) if transposed.get("transB") else (terms, columns)
    weights = {"w": numbers(*right, dtype=dtype), "b": numbers(columns, dtype=dtype)}
    return graph([node("Gemm", "x w b", "a", **transposed), node("Relu", "a")], {"x": (dtype, left)}, weights)


def integers(left: str) -> onnx.ModelProto:
    weights = RANDOM.integers(-127, 127, (160, 72)).astype(np.int8)
    return graph([node("MatMulInteger", "x w")], {"x": (left, [70, 160])}, {"w": weights})


def convolution() -> onnx.ModelProto:
    weights = {"w": numbers(24, 16, 3, 3)}
    return graph([node("Conv", "x w", pads=[1, 1, 1, 1])], {"x": ("float32", [1, 16, 9, 9])}, weights)


def given(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    (value,) = model.graph.input
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return {"x": numbers(*(one.dim_value for one in value.type.tensor_type.shape.dim), dtype=str(dtype))}


def run(model: onnx.ModelProto, **requested: Any) -> Ran:
    return ran(model, given(model), target="sm_90a", **requested)


CASES = {
    "weights by columns": (gemm(70, 128, 200, "float16"), SMALL, "wgmma_float16", 1e-3),
    "weights by columns, several patterns": (gemm(130, 128, 300, "float16"), WIDE, "wgmma_float16", 1e-3),
    "weights by terms": (gemm(130, 128, 96, "float16", transB=1), TALL, "wgmma_float16", 1e-3),
    "both transposed": (gemm(128, 192, 64, "float16", transA=1), SMALL, "wgmma_float16", 1e-3),
    "a rest of everything": (gemm(37, 45, 66, "float16"), SMALL, "wgmma_float16", 1e-3),
    "terms among blocks": (gemm(64, 1024, 64, "float16"), SPLIT, "wgmma_float16", 1e-3),
    "unsigned by signed": (integers("uint8"), SMALL, "wgmma_uint8_int8", 0),
    "signed": (integers("int8"), SMALL, "wgmma_int8", 0),
}


@pytest.mark.parametrize("name", CASES)
def test_a_warpgroup_computes_what_the_reference_does(name: str, by: Callable[[Parameters], None]) -> None:
    model, parameters, instruction, tolerance = CASES[name]
    by(parameters)
    found = run(model)
    assert found.error <= tolerance
    assert found.schedules[0]["instruction"] == instruction


BULK = {
    "columns": (CASES["weights by columns"][0], SMALL, "columns"),
    "columns of several patterns": (CASES["weights by columns, several patterns"][0], WIDE, "columns"),
    "columns by terms": (CASES["weights by terms"][0], TALL, "columns"),
    "rows": (graph([node("MatMul", "w x")], {"x": ("float16", [256, 72])}, {"w": numbers(70, 256).astype("f2")}),
             SMALL, "rows"),
    "more stages than steps": (CASES["weights by columns"][0], replace(SMALL, stages=4), "columns"),
    "many turns of the stages": (gemm(64, 640, 64, "float16"), replace(SMALL, stages=2), "columns"),
    "terms among blocks": (CASES["terms among blocks"][0], SPLIT, "columns"),
    "batches": (BATCHES, SMALL, "columns"),
    "bytes": (LONG, SMALL, "columns"),
}  # fmt: skip


@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("name", BULK)
def test_bulk_copies_bring_what_copies_of_threads_bring(
    name: str, seed: int, by: Callable[[Parameters], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, parameters, side = BULK[name]
    monkeypatch.setenv("GRAFT_EMULATOR_SEED", str(seed))
    by(replace(parameters, stages=parameters.stages or 2, bulk=True))
    found = run(model)
    assert found.error <= (0 if name == "bytes" else 1e-3)
    assert found.schedules[0]["bulk"] == side


def test_threads_copy_where_that_is_wanted(by: Callable[[Parameters], None]) -> None:
    model, parameters, _ = BULK["columns"]
    by(replace(parameters, stages=2, bulk=False))
    found = run(model)
    assert found.error <= 1e-3 and "bulk" not in found.schedules[0]


def test_a_tile_has_its_lines_swizzled_and_zeros_behind_the_last() -> None:
    array = np.arange(1, 3 * 128 + 1, dtype=np.float16).reshape(3, 128)
    tiles = in_tiles(array, 8, 64).reshape(2, 8, 8, 8)  # tiles of terms, lines, parts of 16 bytes, elements
    np.testing.assert_array_equal(tiles[1, 2, 5 ^ 2], array[2, 64 + 40 : 64 + 48])
    assert not tiles[:, 3:].any()


def test_bulk_copies_cost_no_instructions_of_threads() -> None:
    problem = Problem(4096, 4096, 4096, 1, 2, {"wgmma_float16": True}, "columns")
    best = chosen(problem, SM_90A)
    assert best.bulk == "columns"
    assert problem.cycles(best, SM_90A) < problem.cycles(replace(best, bulk=""), SM_90A)
    assert not chosen(replace(problem, bulk=""), SM_90A).bulk


ROUNDED = {"bf16": ("wgmma_bfloat16", 2.0**-7), "fp16": ("wgmma_float16", 2.0**-9), "tf32": ("wgmma_tf32", 2.0**-8)}


@pytest.mark.parametrize("precision", ROUNDED)
def test_a_convolution_by_warpgroups_is_rounded_as_requested(precision: str, by: Callable[[Parameters], None]) -> None:
    by(SMALL)
    instruction, tolerance = ROUNDED[precision]
    found = run(convolution(), precision=precision)
    assert 1e-5 < found.error < tolerance
    assert found.schedules[0]["instruction"] == instruction


def test_the_emulator_finds_factors_that_no_fence_lets_a_warpgroup_see(
    by: Callable[[Parameters], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    by(SMALL)
    own = KernelEmitter.called

    def without(self: KernelEmitter, call: CallExtern) -> None:
        if call.name != "fence_async":
            own(self, call)

    monkeypatch.setattr(KernelEmitter, "called", without)
    with pytest.raises(GraftError, match=r"without a fence\.proxy\.async"):
        run(gemm(64, 64, 64, "float16"))


def test_large_products_are_for_warpgroups_and_small_ones_for_warps() -> None:
    def instruction(*extents: int) -> str:
        return chosen(Problem(*extents, 1, 2, {"mma_float16": True, "wgmma_float16": True}), SM_90A).instruction

    assert instruction(4096, 4096, 4096) == "wgmma_float16"
    assert instruction(16, 64, 64) == "mma_float16"


def test_only_the_row_that_is_named_for_it_has_instructions_of_warpgroups() -> None:
    assert SM_90A.has("wgmma_bfloat16") and not SM_90.has("wgmma_bfloat16")
    both = Target(SM_90, devices=(SM_90A,))
    assert CudaBackend().machine(both).machine is SM_90, "code for both has what both have"


ASSEMBLED = {
    "product_of_float16": (gemm(4096, 4096, 4096, "float16"), "float32"),
    "product_bf16": (gemm(1024, 1024, 1024, "float32"), "bf16"),
    "product_tf32": (gemm(1024, 1024, 1024, "float32"), "tf32"),
    "product_of_bytes": (
        graph([node("MatMulInteger", "x w")], {"x": ("uint8", [1024, 1024])}, {"w": np.ones((1024, 1024), np.int8)}),
        "float32",
    ),
}
IN_BULK = {"product_of_float16", "product_tf32", "product_of_bytes"}
"""Whose weights come by bulk copies; the left factor of the other one is rounded by threads, a stage at a time."""
VERSIONS = "llvmlite 0.50.0, LLVM 22.1.0, ptxas 12.9.86"


@pytest.mark.skipif(assembler() is None, reason=f"ptxas is not installed: {ptx.INSTALL}")
@pytest.mark.parametrize("name", ASSEMBLED)
def test_a_kernel_of_warpgroups_is_assembled_and_spills_nothing(name: str, golden: Callable[[str, str], None]) -> None:
    (function,) = scheduled(*ASSEMBLED[name], target="sm_90a")
    texts = {one.name: kernel_text(one, function, Target(SM_90A)) for one in launches_of(function).launches}
    code = ptx_of([*texts.values()], SM_90A, name)
    assert "wgmma.mma_async" in code and ("cp.async.bulk" in code) == (name in IN_BULK)
    used = assembled(code, SM_90A, name)[1]
    assert used.keys() == texts.keys() and not any(one.spilled or one.stack for one in used.values())
    if ptx.versions() == VERSIONS:
        (*_, last) = texts
        taken = f"sm_90a {used[last].registers} registers, {texts[last].shared} bytes shared\n"
        golden(f"cuda/warpgroup_{name}.txt", taken)
