"""Positions of maxima: of small windows by comparison, of others by a search, both as ONNX has them."""

import numpy as np
import onnx
import pytest

import graft


def positions_of(image: np.ndarray, attributes: str, extents: tuple[int, ...]) -> np.ndarray:
    """Return the second result of MaxPool by the built-in compiler."""
    shape = [*image.shape[:2], *extents]
    text = f"""<ir_version: 10, opset_import: ["" : 22]>
        g (float{list(image.shape)} x) => (int64{shape} z) {{ y, z = MaxPool <{attributes}> (x) }}"""
    return graft.compile(onnx.parser.parse_model(text), backends=["llvm"])(image)


def expected(image: np.ndarray, kernel: tuple[int, int], stride: int, by_column: bool = False) -> np.ndarray:
    """Return the least position of the largest element of each window of images ``[n, c, h, w]``; a NaN is larger."""
    n, c, h, w = image.shape
    rows, columns = ((extent - size) // stride + 1 for extent, size in zip((h, w), kernel, strict=True))
    found = np.empty((n, c, rows, columns), np.int64)
    for place in np.ndindex(*found.shape):
        top, left = (stride * one for one in place[2:])
        window = image[place[0], place[1], top : top + kernel[0], left : left + kernel[1]]
        hits = np.argwhere(np.isnan(window) if np.isnan(window).any() else window == window.max())
        flat = [(left + x) * h + top + y if by_column else (top + y) * w + left + x for y, x in hits]
        found[place] = (place[0] * c + place[1]) * h * w + min(flat)
    return found


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [((2, 2), 2), ((2, 3), 1), ((3, 3), 3), ((4, 4), 2)])
def test_the_first_of_equal_elements_has_the_position(kernel: tuple[int, int], stride: int, by_column: bool) -> None:
    image = np.random.default_rng(0).integers(-1, 2, (2, 3, 13, 37)).astype(np.float32)
    image[1, 1, ::5, ::3], image[0, 2] = np.nan, -np.inf
    attributes = f"kernel_shape = {list(kernel)}, strides = [{stride}, {stride}], storage_order = {int(by_column)}"
    wanted = expected(image, kernel, stride, by_column)
    np.testing.assert_array_equal(positions_of(image, attributes, wanted.shape[2:]), wanted)
