"""Rows of products, convolutions and pools, with their gradients, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
f = torch.nn.functional


def gradients(function):
    """The gradients of a function's result, weighted by a fixed tensor, with respect to all inputs."""

    def row(*inputs):
        result = function(*inputs)
        weights = torch.arange(result.numel(), dtype=result.dtype).reshape(result.shape).cos()
        return torch.autograd.grad(result, inputs, weights)

    return row


def leaves(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def test_products_of_matrices():
    x, y, bias = (one.detach() for one in leaves((3, 4), (4, 5), (5,)))
    check(
        lambda x, y, bias: (x @ y, torch.addmm(bias, x, y, beta=0.5, alpha=2), x @ y[:, 0], f.linear(x, y.t())),
        x,
        y,
        bias,
    )
    check(lambda x: torch.baddbmm(x, x, x, beta=0), torch.randn(2, 3, 3))


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (2, 2, 2), (3, 0, 1)])
def test_convolutions_and_their_gradients(stride, padding, dilation):
    x, w, bias = leaves((2, 3, 9, 8), (4, 3, 3, 3), (4,))
    check(lambda x, w, b: f.conv2d(x, w, b, stride, padding, dilation), *(one.detach() for one in (x, w, bias)))
    check(gradients(lambda x, w, b: f.conv2d(x, w, b, stride, padding, dilation)), x, w, bias, tolerance=1e-4)


def test_transposed_and_grouped_convolutions():
    x, w, g = (one.detach() for one in leaves((2, 4, 5, 5), (4, 2, 3, 3), (4, 2, 3, 3)))
    check(lambda x, w: f.conv_transpose2d(x, w, None, 2, 1, 1, groups=1), x, w)
    check(lambda x, g: f.conv2d(x, g, groups=2), x, g)


def test_pools_and_the_gradient_of_the_largest():
    (x,) = leaves((2, 3, 7, 6))
    check(lambda x: (f.max_pool2d(x, 3, 2, 1), f.avg_pool2d(x, 2), f.adaptive_avg_pool2d(x, 1)), x.detach())
    check(lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x.detach())
    check(gradients(lambda x: f.max_pool2d(x, 3, 2, 1)), x)


def test_attention_and_its_logarithms():
    q, k, v = (one.detach() for one in leaves((1, 2, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8)))
    mask = torch.randn(1, 1, 5, 6)
    check(f.scaled_dot_product_attention, q, k, v)
    check(lambda q, k, v, m: f.scaled_dot_product_attention(q, k, v, m, scale=0.3), q, k, v, mask)
