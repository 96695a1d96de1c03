"""Products by cuBLASLt, with a driver and a library that are none: layouts, pitches, steps, epilogues, types."""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import graft
from graft.errors import RunError
from graft.plugins.cuda.cublas import library
from tests.plugins.cuda.fake_driver import build
from tests.plugins.cuda.graphs import graph, node

SOURCE = Path(__file__).parents[4] / "plugins" / "cuda" / "native" / "tests" / "lt.c"
RANDOM = np.random.default_rng(3)


@pytest.fixture(scope="module")
def lt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("cublas")
    driver, path = build(), folder / "libcublasLt.so.12"
    compiler = shutil.which("cc") or "gcc"
    flags = ["-std=c11", "-O1", "-D_GNU_SOURCE", "-fPIC", "-shared"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(path), "-lm", "-ldl"], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAFT_CUDA_DRIVER", str(driver))  # read once in this process
        patch.setenv("GRAFT_CUBLASLT", str(path))
        found = ctypes.CDLL(str(path))
        found.fake_lt_calls.restype = found.fake_lt_compute.restype = found.fake_lt_live.restype = ctypes.c_int64
        yield found


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return RANDOM.standard_normal(shape).astype(kind)


def both(
    lt: ctypes.CDLL, model: onnx.ModelProto, feeds: dict[str, np.ndarray], calls: int = 1, **requested: str
) -> float:
    """The largest difference from the reference, against its largest number."""
    before = lt.fake_lt_calls()
    program = graft.compile(model, ["cublas", "llvm"], cache=False, strict=True, **requested)
    ours = [np.asarray(one, np.float64) for one in program.run(dict(feeds)).values()]
    theirs = [np.asarray(one, np.float64) for one in graft.compile(model, ["reference"]).run(dict(feeds)).values()]
    assert lt.fake_lt_calls() == before + calls
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(ours, theirs, strict=True))


def product(a: list[int | str], b: list[int | str], dtype: str = "float32") -> onnx.ModelProto:
    return graph([node("MatMul", "a b")], {"a": (dtype, a), "b": (dtype, b)})


TOLERANCES = {"float64": 1e-12, "float16": 2e-3, "bfloat16": 1e-2}
SHAPES = {
    "matrices": ([5, 7], [7, 3]),
    "rows of several axes": ([2, 3, 5, 7], [7, 4]),
    "batches": ([2, 3, 5, 7], [2, 3, 7, 4]),
    "one matrix for all": ([5, 7], [3, 7, 4]),
    "one row": ([1, 9], [9, 4]),
    "one column": ([6, 9], [9, 1]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_product_of_any_shape_is_laid_out_right(lt, name):
    a, b = SHAPES[name]
    assert both(lt, product(a, b), {"a": numbers(*a), "b": numbers(*b)}) < 1e-6


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_every_type_has_its_own_code(lt, dtype):
    feeds = {"a": numbers(5, 7, dtype=dtype), "b": numbers(7, 3, dtype=dtype)}
    assert both(lt, product([5, 7], [7, 3], dtype), feeds) < TOLERANCES[dtype]


def test_what_follows_a_product_of_bfloat16_is_its_epilogue_too(lt):
    nodes = [node("MatMul", "a w", "s"), node("Add", "s b", "t"), node("Relu", "t")]
    weights = {"w": numbers(7, 3, dtype="bfloat16"), "b": numbers(3, dtype="bfloat16")}
    model = graph(nodes, {"a": ("bfloat16", [2, 5, 7])}, weights)
    assert both(lt, model, {"a": numbers(2, 5, 7, dtype="bfloat16")}) < TOLERANCES["bfloat16"]
    assert lt.fake_lt_compute() == 68


@pytest.mark.parametrize("operator", ["MatMul", "MatMulInteger"])
def test_products_of_bytes_are_left_to_others_with_a_reason(lt, operator):
    kind = "int32" if operator == "MatMul" else "int8"
    model = graph([node(operator, "a b")], {"a": (kind, [5, 7]), "b": (kind, [7, 3])})
    (row,) = graft.plan(model, backends=["cublas", "llvm"]).placements
    assert (row.backend, row.reasons["cublas"].code) == ("llvm", "dtype" if operator == "MatMul" else "no-pattern")


def test_extents_are_those_that_a_call_brings(lt):
    model = product(["n", 7], [7, 3])
    for rows in (4, 9):
        assert both(lt, model, {"a": numbers(rows, 7), "b": numbers(7, 3)}) < 1e-6


@pytest.mark.parametrize(("turn_a", "turn_b", "added"), [(0, 1, ""), (1, 0, "row"), (0, 0, "matrix"), (1, 1, "matrix")])
def test_a_gemm_turns_scales_and_adds(lt, turn_a, turn_b, added):
    shapes = {"a": [7, 5] if turn_a else [5, 7], "b": [3, 7] if turn_b else [7, 3], "row": [3], "matrix": [5, 3]}
    names = ["a", "b", *filter(None, [added])]
    beta = 0.5 if added == "matrix" else 1.0
    one = node("Gemm", " ".join(names), transA=turn_a, transB=turn_b, alpha=2.0, beta=beta)
    model = graph([one], {name: ("float32", shapes[name]) for name in names})
    assert both(lt, model, {name: numbers(*shapes[name]) for name in names}) < 1e-6


@pytest.mark.parametrize("activation", ["", "Relu", "Gelu"])
def test_what_stands_behind_a_product_is_its_epilogue(lt, activation):
    attributes = {"approximate": "tanh"} if activation == "Gelu" else {}
    nodes = [node("MatMul", "a w", "s"), node("Add", "s b", "t" if activation else "y")]
    nodes += [node(activation, "t", **attributes)] if activation else []
    model = graph(nodes, {"a": ("float32", [2, 5, 7])}, {"w": numbers(7, 3), "b": numbers(3)})
    assert both(lt, model, {"a": numbers(2, 5, 7)}) < 1e-6


def test_products_in_a_row_are_calls_of_one_region(lt):
    nodes = [node("MatMul", "a v", "s"), node("MatMul", "s w")]
    model = graph(nodes, {"a": ("float32", [5, 7])}, {"v": numbers(7, 6), "w": numbers(6, 3)})
    assert both(lt, model, {"a": numbers(5, 7)}, calls=2) < 1e-6


@pytest.mark.parametrize(("precision", "code"), [("float32", 68), ("tf32", 77), ("bf16", 75), ("fp16", 74)])
def test_the_precision_is_that_of_the_library(lt, precision, code):
    both(lt, product([5, 7], [7, 3]), {"a": numbers(5, 7), "b": numbers(7, 3)}, precision=precision)
    assert lt.fake_lt_compute() == code


def test_a_refusal_of_the_library_says_what_was_asked(lt):
    program = graft.compile(product([5, 7], [7, 3]), ["cublas"], cache=False, strict=True)
    lt.fake_lt_fail(15)
    try:
        with pytest.raises(
            RunError,
            match=r"cublasLtMatmulAlgoGetHeuristic fails with status 15 \(not supported\) for a product of \[5,7\] and "
            r"\[7,3\], 1 at a time$",
        ):
            program(numbers(5, 7), numbers(7, 3))
    finally:
        lt.fake_lt_fail(0)
    program(numbers(5, 7), numbers(7, 3))


def test_what_the_library_is_given_is_taken_back(lt):
    gc.collect()
    before = lt.fake_lt_live()
    program = graft.compile(product([5, 7], [7, 3]), ["cublas"], cache=False, strict=True)
    program(numbers(5, 7), numbers(7, 3))
    del program
    gc.collect()
    assert lt.fake_lt_live() == before


def test_the_gelu_by_erf_is_left_to_others(lt):
    nodes = [node("MatMul", "a w", "s"), node("Gelu", "s")]
    model = graph(nodes, {"a": ("float32", [5, 7])}, {"w": numbers(7, 3)})
    plan = graft.plan(model, backends=["cublas", "llvm"])
    assert [one.backend for one in plan.placements] == ["cublas", "llvm"]


def test_without_the_library_the_backend_says_what_installs_it(monkeypatch):
    from graft.plugins.cuda.cublas.backend import CublasBackend

    monkeypatch.setenv("GRAFT_CUBLASLT", "/nowhere/libcublasLt.so.12")
    assert CublasBackend().available() == "cuBLASLt is not installed; pip install nvidia-cublas-cu12"
    assert library.version() == "cuBLASLt is not installed; pip install nvidia-cublas-cu12"
