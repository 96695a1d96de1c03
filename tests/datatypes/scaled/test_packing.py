"""Constant elements of 4 and 6 bits in memory: packed by groups, read back by kernels, as many bytes as they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graft
from graft.datatypes.scaled.packing import GROUPS, packed_bytes
from graft.datatypes.scaled.products import matmul_scaled
from tests.datatypes.scaled.test_matmul import model_of, operands


@pytest.mark.parametrize("depth", [1, 4, 7])
@pytest.mark.parametrize("bits", GROUPS)
def test_elements_follow_each_other_from_the_lowest_bits_on(bits: int, depth: int) -> None:
    elements = np.random.default_rng(depth).integers(0, 1 << bits, (2, depth, 3), np.uint8)
    packed = packed_bytes(elements, bits)
    count, size = GROUPS[bits]
    assert packed.shape == (2, -(-depth // count) * size, 3)
    whole = np.unpackbits(packed.swapaxes(1, 2), axis=-1, bitorder="little")
    weights = 1 << np.arange(bits)
    found = whole.reshape(2, 3, -1, bits) @ weights
    np.testing.assert_array_equal(found[..., :depth], elements.swapaxes(1, 2))
    assert not found[..., depth:].any()


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
@pytest.mark.parametrize("right", ["mxfp4", "mxfp6e2m3", "mxfp6e3m2"])
def test_kernels_read_groups_that_are_not_full(right: str, backend: str) -> None:
    x, y = operands("mxfp8e4m3", right, (3, 39, 12))
    program = graft.compile(model_of(x, y, [3]), [backend])
    found = program.run({"elements": x.elements, "scales": x.scales})["y"]
    np.testing.assert_array_equal(found, matmul_scaled(x, y))


def test_an_artifact_holds_half_a_byte_for_an_element_of_4_bits(tmp_path: Path) -> None:
    sizes = {}
    for right in ("mxfp8e4m3", "mxfp6e2m3", "mxfp4"):
        x, y = operands("mxfp8e4m3", right, (2, 256, 512))
        graft.compile(model_of(x, y, [2]), ["llvm"]).save(tmp_path / "one.graft")
        sizes[right] = (tmp_path / "one.graft").stat().st_size
    whole = 256 * 512
    assert abs(sizes["mxfp8e4m3"] - sizes["mxfp4"] - whole / 2) < whole / 16
    assert abs(sizes["mxfp8e4m3"] - sizes["mxfp6e2m3"] - whole / 4) < whole / 16
