"""Derivatives of sums of products, beside differences."""

from __future__ import annotations

import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("iij,k->", [(3, 3, 2), (4,)]), ("bij,bjk", [(2, 3, 4), (2, 4, 2)]),
        ("ij->i", [(3, 4)]), ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 2)]), ("...i,...i->...", [(2, 3), (2, 3)]),
        ("ij,ij->ji", [(2, 3), (2, 3)]), ("i,j->ij", [(2,), (3,)]), ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 4)]),
    ],
)  # fmt: skip
def test_letters_of_an_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    names = "xzw"[: len(shapes)]
    text = f'y = Einsum <equation = "{equation}"> ({", ".join(names)})'
    assert of_text(text, dict(zip(names, shapes, strict=True))) <= 1


@pytest.mark.parametrize(
    "shapes",
    [
        ((4,), (4, 3)), ((2, 4), (4,)), ((4,), (4,)), ((3, 1, 2, 4), (5, 4, 3)), ((2, 4), (3, 4, 2)),
        ((4,), (3, 4, 2)),
    ],
)  # fmt: skip
def test_vectors_and_stacks_of_a_product(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert of_text("y = MatMul (x, z)", dict(zip("xz", shapes, strict=True))) <= 1


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", [0, 1])
def test_both_sides_of_gemm_may_be_transposed(first: int, second: int) -> None:
    text = f"y = Gemm <transA = {first}, transB = {second}, alpha = 0.5, beta = 2.0> (x, z, c)"
    shapes = {"x": (4, 2) if first else (2, 4), "z": (3, 4) if second else (4, 3), "c": (2, 1)}
    assert of_text(text, shapes) <= 1


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_determinant_has_its_cofactors(size: int) -> None:
    assert of_text("y = Det (x)", {"x": (2, size, size)}) <= 1


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("y = DFT <inverse = 1> (x)", (2, 5, 2)),
        ("n = Constant <value_int = 7> () y = DFT <onesided = 1> (x, n)", (2, 5, 1)),
        ("n = Constant <value_int = 3> () y = DFT (x, n)", (2, 5, 2)),
        ("s = Constant <value_int = 3> () n = Constant <value_int = 4> () y = STFT (x, s, , n)", (2, 11, 1)),
    ],
)  # fmt: skip
def test_a_transform_has_the_transform_in_the_other_direction(text: str, shape: tuple[int, ...]) -> None:
    assert of_text(text, {"x": shape}) <= 1


def test_a_window_of_frames_has_a_derivative() -> None:
    text = "s = Constant <value_int = 2> () n = Constant <value_int = 4> () y = STFT (x, s, w, n)"
    assert of_text(text, {"x": (2, 9, 1), "w": (4,)}) <= 1


def test_equal_constants_and_known_shapes_are_written_once() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22]>
        g (float[2,3] x) => (float loss) { a = ReduceMean <keepdims = 0> (x) b = Mul (x, x)
        c = ReduceMean <keepdims = 0> (b) loss = Add (a, c) }"""
    )
    nodes = list(graft.grad(model, wrt=["x"]).graph)
    assert {node.op_type for node in nodes}.isdisjoint({"Shape", "Size"})
    contents = [node.attributes["value"].as_tensor().tobytes() for node in nodes if node.op_type == "Constant"]
    assert contents and len(contents) == len(set(contents))
