import pytest

from graft.core.operators.images.windows import windows_of
from graft.core.schedule.strategies.convolutions.winograd_cost import choose_plan
from tests.core.schedule.convolutions import WIDE, convolution


@pytest.mark.parametrize(
    ("channels", "size", "outputs", "stride", "pieces"),
    [
        (64, 56, 64, 1, 4),
        (128, 28, 128, 1, 4),
        (512, 7, 512, 1, 2),
        (3, 224, 64, 1, None),
        (128, 56, 128, 2, 2),
        (512, 14, 512, 2, None),
    ],
)
def test_the_cost_model_chooses_pieces_by_channels_and_size(
    channels: int, size: int, outputs: int, stride: int, pieces: int | None
) -> None:
    kernel, _ = convolution((1, 1, size, size), (1, 1, 3, 3), pads=[1, 1, 1, 1], strides=[stride] * 2)
    assert kernel.node is not None
    windows = windows_of(kernel.node, (size, size), (3, 3), (size // stride, size // stride))
    plan = choose_plan(outputs, (1, channels, size, size), windows, WIDE)
    assert (None if plan is None else plan.transform.outputs) == pieces
