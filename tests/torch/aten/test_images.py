"""Rows of pools, their gradients and interpolation, against eager PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.torch.aten.test_products import gradients, leaves  # noqa: E402
from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
f = torch.nn.functional
POOLS = [
    lambda x: f.max_pool2d(x, 3, 2, 1),
    lambda x: f.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    lambda x: f.avg_pool2d(x, 2),
    lambda x: f.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    lambda x: f.avg_pool2d(x, (3, 2), 2, 1, divisor_override=5),
    lambda x: f.adaptive_avg_pool2d(x, 1),
    lambda x: f.adaptive_avg_pool2d(x, (3, 4)),
]


@pytest.mark.parametrize("pool", POOLS)
def test_pools_and_their_gradients(pool):
    (x,) = leaves((2, 3, 7, 6))
    check(pool, x.detach())
    check(gradients(pool), x)


def test_pools_over_one_axis_and_three():
    x, y = leaves((2, 3, 8), (1, 2, 4, 6, 5))
    check(gradients(lambda x: f.avg_pool1d(x, 3, 2, 1)), x)
    check(gradients(lambda y: f.avg_pool3d(y, 2, 2, 1)), y)
    check(gradients(lambda y: f.max_pool3d(y, 2, 2, 1)), y)
    check(gradients(lambda y: f.adaptive_avg_pool3d(y, (2, 3, 2))), y)
    check(lambda x: f.adaptive_max_pool1d(x, 4), x.detach())


@pytest.mark.filterwarnings("ignore")
def test_one_program_finds_the_largest_of_images_that_vary():
    run = torch.compile(
        lambda x: f.max_pool2d(x, 3, 2, 1, return_indices=True), backend="graft", dynamic=True,
        options={"backends": ["llvm"], "strict": True},
    )  # fmt: skip
    for extents in ((2, 3, 8, 8), (1, 3, 10, 6), (4, 3, 5, 9)):
        x = torch.randn(extents)
        torch.testing.assert_close(run(x), f.max_pool2d(x, 3, 2, 1, return_indices=True))


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("to", [{"size": (12, 10)}, {"size": (9, 7)}, {"scale_factor": (1.7, 0.6)}])
def test_interpolation(how, to):
    (x,) = leaves((2, 3, 6, 5))
    check(lambda x: f.interpolate(x, mode=how, **to), x.detach(), tolerance=1e-4)
    if how != "bicubic":
        check(gradients(lambda x: f.interpolate(x, mode=how, **to)), x, tolerance=1e-4)
    if how == "bilinear":
        check(gradients(lambda x: f.interpolate(x, mode=how, align_corners=True, **to)), x, tolerance=1e-4)
        check(lambda x: f.interpolate(x, mode=how, align_corners=True, **to), x.detach(), tolerance=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_sampling_at_a_grid(mode, padding):
    x, grid = (one.detach() for one in leaves((2, 3, 6, 5), (2, 4, 7, 2)))
    check(lambda x, grid: f.grid_sample(x, grid, mode, padding, align_corners=False), x, grid, tolerance=1e-4)


def test_images_of_varying_extents_are_repeated_by_whole_factors():
    def doubled(x):
        return f.interpolate(x, scale_factor=(2.0, 3.0)) + 1

    run = torch.compile(doubled, backend="graft", dynamic=True, options={"backends": ["llvm"], "strict": True})
    for extent in (5, 8):
        x = torch.randn(2, 3, extent, extent + 1)
        torch.testing.assert_close(run(x), doubled(x))


@pytest.mark.parametrize(
    ("shape", "sides"), [((2, 3, 5), (1, 2)), ((1, 2, 4, 5), (2, 1, 0, 3)), ((1, 1, 3, 2, 4), (1,) * 6)]
)
def test_gradients_of_a_repeated_border(shape, sides):
    x = torch.arange(float(math.prod(shape))).reshape(shape).sin().requires_grad_()
    check(gradients(lambda x: f.pad(x, sides, mode="replicate")), x)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_gradients_of_distances(p):
    points, others = leaves((4, 3), (5, 3))
    check(gradients(lambda x, y: torch.cdist(x, y, p=p)), points, others, tolerance=1e-4)
