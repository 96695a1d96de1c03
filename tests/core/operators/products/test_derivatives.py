"""Derivatives of sums of products, beside differences."""

from __future__ import annotations

import pytest

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
