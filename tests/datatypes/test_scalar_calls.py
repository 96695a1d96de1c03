"""Vectors against scalars: posit16 as Graft computes it, and by a C function for every element, as TVM did."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import graft
import graft.runtime
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import create_lower_func, library_of
from graft.datatypes.shipped import DATATYPES
from tests.datatypes.networks import DIGITS, image, model_of, posit_library, residual_block, run

node = helper.make_node


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(posit_library(tmp_path_factory.mktemp("posit")))


@pytest.fixture(scope="module", autouse=True)
def cposit(library: str) -> None:
    """Register the C library's posit16; the whole registration that a convolutional network needs."""
    DATATYPES.register("cposit", widths=(16,))
    for operation, symbol in {"Add": "add", "Mul": "mul", "LT": "less", "Lowest": "lowest"}.items():
        DATATYPES.register_op(create_lower_func({16: f"posit16_{symbol}"}, library), operation, None, "cposit")
    to_posit, to_float = (
        create_lower_func({(32, 16): "posit16_from_float"}, library),
        create_lower_func({(16, 32): "posit16_to_float"}, library),
    )
    DATATYPES.register_op(to_posit, "Cast", None, "cposit", "float32")
    DATATYPES.register_op(to_float, "Cast", None, "float32", "cposit")


def test_a_library_is_kept_by_its_absolute_path(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program names it, and is loaded from another directory."""
    monkeypatch.chdir(Path(library).parent)
    for given in (f"./{Path(library).name}", Path("..") / Path(library).parent.name / Path(library).name):
        assert create_lower_func({16: "posit16_add"}, given).library == library  # type: ignore[arg-type]
    assert create_lower_func({32: "abs"}, "libc.so.6").library == "libc.so.6", "a soname is the system's to find"


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, shape)


def one(
    operator: str, x: list[int], y: list[int], w: np.ndarray | None = None, **attributes: object
) -> onnx.ModelProto:
    """Return a model of one node from ``x`` (and constant weights) to ``y``."""
    inputs = ["x"] if w is None else ["x", "w"]
    return model_of([node(operator, inputs, ["y"], **attributes)], {"x": x}, {"y": y}, {} if w is None else {"w": w})


PADS = {"pads": [1, 1, 1, 1]}
SELF = [node("Conv", ["x", "w"], ["c"], **PADS), node("Add", ["c", "x"], ["y"])]
TWICE = [node("Conv", ["x", "w"], ["c"], pads=[0, 0, 1, 1]), node("Concat", ["c", "c"], ["y"], axis=1)]
BATCHED = {"x": [2, 3, 33, 20], "z": [2, 3, 20, 35]}
CASES = {
    "3x3 of stride 2": one("Conv", [1, 8, 14, 14], [1, 6, 7, 7], weights(6, 8, 3, 3), strides=[2, 2], **PADS),
    "1x1": one("Conv", [2, 8, 14, 14], [2, 6, 14, 14], weights(6, 8, 1, 1)),
    "1x1 of stride 2": one("Conv", [1, 8, 14, 14], [1, 6, 7, 7], weights(6, 8, 1, 1), strides=[2, 2]),
    "7x7": one("Conv", [1, 3, 20, 20], [1, 5, 10, 10], weights(5, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]),
    "dilated": one("Conv", [1, 3, 14, 14], [1, 5, 14, 14], weights(5, 3, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
    "depthwise": one("Conv", [1, 8, 14, 14], [1, 8, 14, 14], weights(8, 1, 3, 3), group=8, **PADS),
    "groups": one("Conv", [1, 8, 14, 14], [1, 16, 14, 14], weights(16, 4, 3, 3), group=2, **PADS),
    "few channels in groups": one("Conv", [1, 8, 5, 5], [1, 4, 5, 5], weights(4, 4, 3, 3), group=2, **PADS),
    "one dimension": one("Conv", [1, 3, 33], [1, 5, 33], weights(5, 3, 3), pads=[1, 1]),
    "transposed": one("ConvTranspose", [1, 3, 6, 6], [1, 5, 13, 13], weights(3, 5, 3, 3), strides=[2, 2]),
    "added to its own input": model_of(SELF, {"x": [1, 8, 10, 10]}, {"y": [1, 8, 10, 10]}, {"w": weights(8, 8, 3, 3)}),
    "one pixel beyond whole vectors": model_of(
        TWICE, {"x": [1, 3, 6, 6]}, {"y": [1, 10, 7, 7]}, {"w": weights(5, 3, 1, 1)}
    ),
    "residual block": residual_block(),
    "matrix times vector": one("MatMul", [1, 100], [1, 35], weights(100, 35)),
    "batched product": model_of([node("MatMul", ["x", "z"], ["y"])], BATCHED, {"y": [2, 3, 33, 35]}, {}),
    "scaled product": one("Gemm", [20, 7], [7, 9], weights(20, 9), transA=1, alpha=0.5),
    "maximum of windows": one("MaxPool", [1, 4, 14, 14], [1, 4, 7, 7], kernel_shape=[3, 3], strides=[2, 2], **PADS),
    "maximum of planes": one("GlobalMaxPool", [2, 5, 9, 33], [2, 5, 1, 1]),
    "sum of everything": one("ReduceSum", [9, 33], [], keepdims=0),
    "broadcast sum": one("Add", [2, 5, 9], [2, 5, 9], weights(5, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_vectors_and_c_calls_give_the_same_bits(name: str) -> None:
    proto = CASES[name]
    rng = np.random.default_rng(1)
    shapes = [[d.dim_value for d in value.type.tensor_type.shape.dim] for value in proto.graph.input]
    inputs = [rng.normal(0, 1, shape).astype(np.float32) for shape in shapes]
    vectors, scalars = (run(convert(proto, f"custom[{kind}]16"), *inputs) for kind in ("posit", "cposit"))
    np.testing.assert_array_equal(vectors, scalars)


def test_the_digits_model_gives_the_same_bits() -> None:
    vectors, scalars = (run(convert(DIGITS, f"custom[{kind}]16"), image()) for kind in ("posit", "cposit"))
    np.testing.assert_array_equal(vectors, scalars)


SUMS = CASES["broadcast sum"]
X = np.random.default_rng(1).normal(0, 1, (2, 5, 9)).astype(np.float32)


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_a_program_that_calls_c_functions_is_saved_and_names_their_library(
    backend: str, tmp_path: Path, library: str
) -> None:
    program = graft.compile(convert(SUMS, "custom[cposit]16"), [backend], strict=True)
    expected = program(X)
    program.save(tmp_path / "posit.graft")
    np.testing.assert_array_equal(graft.runtime.load(tmp_path / "posit.graft")(X), expected)
    program.export_library(tmp_path / "posit.so")
    np.testing.assert_array_equal(graft.runtime.load(tmp_path / "posit.so")(X), expected)
    moved = Path(library).rename(f"{library}.moved")
    try:
        code = f"import graft.runtime\ngraft.runtime.load({str(tmp_path / 'posit.graft')!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    finally:
        moved.rename(library)
    assert done.stderr.splitlines()[-1] == (
        f"graft.errors.ArtifactError: module '{backend}_0' (kind 'c_source', plugin '{backend}') cannot be loaded: it "
        f"needs the library '{library}', which cannot be opened: {library}: cannot open shared object file: No such "
        "file or directory"
    )


def test_a_c_project_links_the_library_of_a_format(tmp_path: Path, library: str) -> None:
    program = graft.compile(convert(SUMS, "custom[cposit]16"), ["c_source"], strict=True)
    program.export_c_project(tmp_path / "project")
    assert library in (tmp_path / "project" / "Makefile").read_text()


def test_a_symbol_of_this_process_is_called_in_the_library_that_has_it() -> None:
    assert ctypes.CDLL(library_of("toupper", None)).toupper(ord("a")) == ord("A")
    assert library_of("anything", "libposit.so") == "libposit.so"
