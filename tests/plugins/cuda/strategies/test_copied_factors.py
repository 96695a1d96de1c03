"""Products by tensor instructions that read a copy of a factor: rounded, images channels last, with a border."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from graft.core.machine.target import Target
from graft.plugins.cuda.kernel_text import kernel_text
from graft.plugins.cuda.launches import launches_of
from graft.plugins.cuda.machines import SM_80
from graft.plugins.cuda.ptx import ptx_of
from graft.plugins.cuda.strategies import products
from tests.plugins.cuda.graphs import graph, node, ran, scheduled

RANDOM = np.random.default_rng(13)
Shape = list[int | str]


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def convolution(image: Shape, weights: list[int], dtype: str = "float32", **attributes: Any) -> onnx.ModelProto:
    own = {"w": numbers(*weights, dtype=dtype), "b": numbers(weights[0], dtype=dtype)}
    return graph([node("Conv", "x w b", "c", **attributes), node("Relu", "c")], {"x": (dtype, image)}, own)


CASES: dict[str, tuple[onnx.ModelProto, list[int]]] = {
    "a border": (convolution([2, 32, 9, 11], [24, 32, 3, 3], pads=[1, 1, 1, 1]), [2, 32, 9, 11]),
    "another on each side": (convolution([1, 32, 12, 9], [24, 32, 3, 3], pads=[0, 2, 1, 0]), [1, 32, 12, 9]),
    "no border": (convolution([1, 32, 12, 40], [24, 32, 3, 3]), [1, 32, 12, 40]),
    "strides": (convolution([1, 32, 17, 21], [24, 32, 3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), [1, 32, 17, 21]),
    "dilations": (convolution([1, 32, 17, 21], [24, 32, 3, 3], dilations=[2, 3], pads=[2, 3, 2, 3]), [1, 32, 17, 21]),
    "every second pixel": (convolution([1, 64, 19, 19], [24, 64, 1, 1], strides=[2, 2]), [1, 64, 19, 19]),
    "rows that fill tiles": (convolution([1, 64, 5, 40], [16, 64, 3, 3], pads=[1, 1, 1, 1]), [1, 64, 5, 40]),
    "one axis": (convolution([1, 64, 90], [24, 64, 5], pads=[2, 2]), [1, 64, 90]),
    "three axes": (convolution([1, 32, 5, 6, 7], [16, 32, 3, 3, 3], pads=[1] * 6), [1, 32, 5, 6, 7]),
    "channels of no whole stage": (convolution([1, 40, 9, 11], [24, 40, 3, 3], pads=[1, 1, 1, 1]), [1, 40, 9, 11]),
    "any batch": (convolution(["n", 32, 9, 11], [24, 32, 3, 3], pads=[1, 1, 1, 1]), [3, 32, 9, 11]),
    "any image": (convolution([1, 32, "h", "w"], [24, 32, 3, 3], pads=[1, 1, 1, 1]), [1, 32, 10, 7]),
}


@pytest.fixture(autouse=True)
def _a_launch_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator has time for small images, of which the copy is no gain on a device."""
    monkeypatch.setattr(products, "LAUNCH_SECONDS", 0.0)
    monkeypatch.setattr(products, "COPY_WORTH", 0.5)


@pytest.mark.parametrize("name", CASES)
def test_a_convolution_of_a_copy_is_that_of_the_image(name: str) -> None:
    model, shape = CASES[name]
    found = ran(model, {"x": numbers(*shape)}, precision="bf16")
    assert found.error < 2.0**-7
    assert found.schedules[0]["copied"] == "x"


@pytest.mark.parametrize(("shape", "columns"), [([70, 64], 72), (["n", 128], 512), ([3, 40, 64], 72)])
def test_a_matrix_that_is_rounded_is_copied_once(shape: Shape, columns: int) -> None:
    model = graph([node("MatMul", "x w")], {"x": ("float32", shape)}, {"w": numbers(int(shape[-1]), columns)})
    found = ran(model, {"x": numbers(*(one if isinstance(one, int) else 70 for one in shape))}, precision="bf16")
    assert found.error < 2.0**-7
    assert (found.schedules[0]["copied"], found.schedules[0]["stages"]) == ("x", 3)


def test_of_two_matrices_that_are_rounded_none_is_copied() -> None:
    model = graph([node("MatMul", "x w")], {"x": ("float32", [70, 64]), "w": ("float32", [64, 72])})
    found = ran(model, {"x": numbers(70, 64), "w": numbers(64, 72)}, precision="bf16")
    assert found.error < 2.0**-7 and "copied" not in found.schedules[0]


def test_images_of_16_bits_are_copied_as_they_are() -> None:
    model = convolution([1, 32, 9, 11], [24, 32, 3, 3], "float16", pads=[1, 1, 1, 1])
    found = ran(model, {"x": numbers(1, 32, 9, 11, dtype="float16")})
    assert found.error < 2e-3 and (found.schedules[0]["copied"], found.schedules[0]["stages"]) == ("x", 3)


def test_an_image_that_others_read_is_read_as_it_lies() -> None:
    own = {"w": numbers(32, 32, 3, 3)}
    shape: Shape = [1, 32, 9, 11]
    model = graph([node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Add", "c x")], {"x": ("float32", shape)}, own)
    found = ran(model, {"x": numbers(1, 32, 9, 11)}, precision="bf16")
    assert found.error < 2.0**-7 and "copied" not in found.schedules[0]


def test_bytes_whose_channels_are_last_come_16_at_a_time_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "COPY_WORTH", 1.0)
    own = {
        "w": RANDOM.integers(-127, 127, (32, 64, 3, 3)).astype(np.int8), "s": np.array(0.02, "f"),
        "z": np.array(3, np.uint8), "ws": np.full(32, 0.01, "f"), "wz": np.zeros(32, np.int8), "r": np.array(4.0, "f"),
    }  # fmt: skip
    model = graph([node("QLinearConv", "x s z w ws wz r z", pads=[1, 1, 1, 1])], {"x": ("uint8", [1, 64, 9, 11])}, own)
    found = ran(model, {"x": RANDOM.integers(0, 255, (1, 64, 9, 11)).astype(np.uint8)})
    np.testing.assert_array_equal(found.ours, found.theirs)
    (product,) = (one for one in found.schedules if "instruction" in one)
    assert product["stages"] == 3 and "copied" not in product


def test_a_stage_is_copied_past_the_registers_16_bytes_at_a_time() -> None:
    """Before, each element of a window was loaded by itself, behind four tests."""
    (function,) = scheduled(convolution([1, 64, 56, 56], [64, 64, 3, 3], pads=[1, 1, 1, 1]), "bf16")
    copy, product = launches_of(function).launches
    text = ptx_of([kernel_text(product, function, Target(SM_80))], SM_80, "product")
    assert "cp.async.cg.shared.global" in text and "cp.async.ca" not in text
    assert {one.name for one in product.buffers if one in function.parameters[:1]} == set(), "the image itself"
    assert copy.block == (256, 1, 1)
