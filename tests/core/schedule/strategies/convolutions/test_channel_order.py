"""What channels last save, by the model: for which machines, and of which convolutions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graft.core.machine.machine import Machine
from graft.core.machine.rows import ARMV8_A, GENERIC, X86_64_V3, X86_64_V4
from graft.core.machine.target import Target
from graft.core.schedule.products.convolution import convolution_of
from graft.core.schedule.strategies.convolutions.channel_order import has_any_order, saved
from graft.core.tensor_ir.anchors import Window
from tests.core.schedule.strategies.convolutions.varying_images import kernel_of

TARGET = Target(X86_64_V3, 1)


def window_of(outputs: int, inputs: int, kernel: int, group: int = 1, dilation: int = 1, stride: int = 1) -> Window:
    attributes = {
        "pads": [kernel // 2 * dilation] * 4, "group": group, "dilations": [dilation] * 2, "strides": [stride] * 2,
    }  # fmt: skip
    made, _ = kernel_of((outputs, inputs, kernel, kernel), attributes, size=(16, 16))
    found = convolution_of(made.stages[0])
    assert found is not None
    return found.window


@pytest.mark.parametrize(
    ("machine", "precision", "any_order"),
    [
        (X86_64_V3, "float32", True),
        (ARMV8_A, "float32", True),
        (X86_64_V4, "float32", True),
        (GENERIC, "float32", False),
        (X86_64_V3, "bf16", False),
    ],
)
def test_images_of_floats_have_any_order_on_vectors(machine: Machine, precision: str, any_order: bool) -> None:
    assert has_any_order(Target(machine, 1, precision=precision)) is any_order  # type: ignore[arg-type]


def test_whole_vectors_of_channels_save_and_empty_ones_lose() -> None:
    assert saved(window_of(32, 32, 3), TARGET) > saved(window_of(32, 32, 1), TARGET) == 0
    assert saved(window_of(12, 32, 3), TARGET) < 0
    assert saved(window_of(32, 32, 3, dilation=2), TARGET) < 0
    assert saved(window_of(32, 1, 3, group=32), TARGET) > 0


def test_windows_of_few_channels_lose_on_machines_with_masks_unless_they_leave_pixels_out() -> None:
    wide = Target(X86_64_V4, 1)
    assert saved(window_of(64, 3, 3), wide) < 0 < saved(window_of(64, 3, 3, stride=2), wide)


def test_without_winograd_windows_save_as_others_do() -> None:
    plain = replace(TARGET, without=frozenset({"winograd"}))
    assert saved(window_of(32, 32, 3), plain) > saved(window_of(32, 32, 3), TARGET)
