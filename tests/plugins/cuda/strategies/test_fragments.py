"""What tensor instructions mean: their fragments are those of the PTX ISA, and their sums are products of matrices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_function
from graft.core.tensor_ir.parser import parse_function
from graft.plugins.cuda.strategies.fills import Tile
from graft.plugins.cuda.strategies.fragments import depth_of, meaning

CASES = {
    "bfloat16": ("bfloat16", "bfloat16", ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
    "bytes": ("uint8", "int8", np.uint8, np.int8, np.int32),
    "tf32": ("float32", "float32", np.float32, np.float32, np.float32),
}


def sums(c: np.ndarray, warps: int = 1) -> np.ndarray:
    """The sums of each thread, of matrices of 16 x 8: rows t / 4 and t / 4 + 8, columns 2 * (t % 4) and the next."""
    lane = np.arange(32 * warps)[:, None, None, None]
    rows = lane // 32 * 16 + lane % 32 // 4 + np.array([[0], [8]])
    return np.asarray(c[rows, np.arange(0, c.shape[1], 8)[:, None, None] + lane % 4 * 2 + np.array([[0, 1]])])


def added(means: ir.Function, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What an instruction adds to zeros, by its meaning."""
    text, total = str(means), means.output_buffers[0].dtype
    for name, array in (("m", a), ("n", b)):
        text = text.replace(f"[{name}, ", f"[{array.shape[0]}, ").replace(f"{name}_pitch", str(array.shape[-1]))
    zero = "float32(0.0)" if total == "float32" else "int32(0)"
    place = "c[lane, half, pair]" if "serial j" not in text else "c[lane, j, half, pair]"
    return run_function(parse_function(text.replace("serial k <", f"{place} = {zero} serial k <")), [a, b])[0]


@pytest.mark.parametrize("across", [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("name", CASES)
def test_a_warp_adds_products_of_matrices(name: str, across: tuple[bool, bool]) -> None:
    left, right, dtype, other, total = CASES[name]
    random, depth = np.random.default_rng(0), depth_of(left)
    a, b = (random.integers(0, 9, (lines, depth)).astype(kind) for lines, kind in ((16, dtype), (8, other)))
    tiles = Tile("a", left, 16, depth, True, across[0]), Tile("b", right, 8, depth, True, across[1])
    given = [one.T if turn else one for one, turn in zip((a, b), across, strict=True)]
    found = added(meaning(*tiles, np.dtype(total).name), given[0], given[1])
    assert (found == sums(a.astype(total) @ b.astype(total).T)[:, 0]).all()


def test_sums_of_a_product_are_a_factor_of_the_next_as_they_lie() -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(0, 9, (16, 16)).astype(np.float32), random.integers(0, 9, (8, 16)).astype(np.float32)
    factors = ir.Buffer("a", "bfloat16", (), memory="register"), Tile("b", "bfloat16", 8, 16, True)
    held, other = sums(a).astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    assert (added(meaning(*factors, "float32"), held, other) == sums(a @ b.T)[:, 0]).all()


def swizzled(matrix: np.ndarray) -> np.ndarray:
    """Lines of 128 bytes whose 16-byte part p lies where part p xor (line modulo 8) would."""
    part, found = 16 // matrix.itemsize, np.empty_like(matrix)
    line, term = np.indices(matrix.shape)
    found[line, (term // part ^ line % 8) * part + term % part] = matrix
    return found


@pytest.mark.parametrize("across", [(False, False), (True, True)])
@pytest.mark.parametrize("name", CASES)
def test_a_warpgroup_adds_products_of_swizzled_matrices(name: str, across: tuple[bool, bool]) -> None:
    left, right, dtype, other, total = CASES[name]
    if across[0] and dtype(0).itemsize != 2:
        return  # factors of 16 bits alone lie so
    random, terms = np.random.default_rng(2), 128 // dtype(0).itemsize
    a, b = (random.integers(0, 9, (64, terms)).astype(kind) for kind in (dtype, other))
    tiles = Tile("a", left, 64, terms, True, across[0], True), Tile("b", right, 64, terms, True, across[1], True)
    given = [swizzled(one.T)[None] if turn else swizzled(one) for one, turn in zip((a, b), across, strict=True)]
    found = added(meaning(*tiles, np.dtype(total).name, 16), given[0], given[1])
    assert (found == sums(a.astype(total) @ b[:16].astype(total).T, 4)).all()
