"""Rows of reductions against eager PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))


def test_sums_means_products_and_variances():
    check(lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.mean(-1), x.prod(1)), X)
    check(lambda x: (x.var(1), x.std((0, 2), correction=0), *torch.var_mean(x, 2, keepdim=True)), X)
    check(lambda x: (x.sum(), x.sum(0, dtype=torch.float64), x.prod()), torch.arange(1, 5))
    check(lambda x: x.sum(), torch.tensor(3.0))


def test_extremes_are_nan_where_a_nan_is():
    x = X.clone()
    x[0, 1, 2] = math.nan
    check(lambda x: (x.amax(1), x.amin((0, 2)), x.max(), x.min(2).values), x)
    check(lambda x: (x.argmax(), x.argmin(1, keepdim=True), *x.max(2)), X)


def test_truths_of_numbers():
    check(lambda x: (x.any(1), x.all(), (x > 0).any((0, 1)), (x > 0).all(2, keepdim=True)), X.round())


def test_running_sums_and_products():
    check(lambda x: (x.cumsum(1), x.cumprod(-1)), X)
    check(lambda x: x.cumsum(0), torch.arange(5))


def test_norms_and_softmaxes():
    f = torch.nn.functional
    check(lambda x: (x.softmax(1), x.log_softmax(-1), x.logsumexp(0)), X)
    check(lambda x: (f.layer_norm(x, (3, 4)), f.layer_norm(x, (4,), x[0, 0], x[1, 1])), X)
    check(lambda x: f.batch_norm(x, x[0, :, 0], x[0, :, 0] ** 2 + 1, x[1, :, 0], x[1, :, 1]), X)
    check(lambda x: f.group_norm(x.reshape(2, 6, 2), 3), X)
    for x, tolerance in ((X, 1e-5), (X.double(), 1e-9), (X.half(), 1e-2)):
        w = torch.arange(6, dtype=x.dtype)
        check(lambda x, w: f.group_norm(x.reshape(2, 6, 2), 3, w, w - 2), x, w, tolerance=tolerance)
        check(lambda x, w: f.group_norm(x.reshape(4, 6), 2, w), x, w, tolerance=tolerance)


def test_the_best():
    check(lambda x: (*x.topk(2, 1), *x.topk(3, -1, largest=False)), X)


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 0, 2])
@pytest.mark.parametrize("has_end", [False, True])
def test_bags_of_rows_are_summed(mode, padding, has_end):
    weight, indices = torch.randn(5, 3), torch.tensor([2, 0, 1, 4, 4, 2])
    offsets = torch.tensor([0, 2, 2, 5, *([6] if has_end else [])])  # the second bag is empty

    def function(weight, indices, offsets):
        factors = weight[indices, 0] if mode == "sum" else None
        return torch.nn.functional.embedding_bag(
            indices, weight, offsets, mode=mode, padding_idx=padding, include_last_offset=has_end,
            per_sample_weights=factors,
        )  # fmt: skip

    check(function, weight, indices, offsets)
    run = torch.compile(function, backend="graft", options={"backends": ["llvm"], "strict": True})
    torch.testing.assert_close(run(weight, indices, offsets), function(weight, indices, offsets))


def test_gradients_of_bags_agree_where_pytorch_reads_what_the_row_gives():
    offsets = torch.tensor([0, 2, 2, 5])
    run = torch.compile(torch.nn.functional.embedding_bag, backend="graft", options={"backends": ["llvm"]})
    for mode in ("sum", "mean"):
        one, other = (torch.arange(15.0).reshape(5, 3).requires_grad_() for _ in range(2))
        for weight, bag in ((one, run), (other, torch.nn.functional.embedding_bag)):
            bag(torch.tensor([2, 0, 1, 4, 4, 2]), weight, offsets, mode=mode).square().sum().backward()
        torch.testing.assert_close(one.grad, other.grad)
