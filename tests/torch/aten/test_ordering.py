"""Rows of sorting and of elements by their rank, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
HOLES = X.clone()
HOLES[1, 2] = HOLES[3, 0] = float("nan")
HOLES[2, 4], HOLES[2, 5] = float("inf"), -float("inf")


@pytest.mark.parametrize("x", [X, HOLES, X.double(), (100 * X).long()], ids=["float", "nan", "double", "int"])
def test_an_axis_in_order(x):
    check(lambda x: torch.sort(x, dim=0, stable=True), x)
    check(lambda x: torch.sort(x, descending=True, stable=True), x)
    check(lambda x: (torch.topk(x, 3)[0], torch.kthvalue(x, 2).values), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_nan_is_beyond_infinity_and_both_zeros_are_equal(dtype):
    nan, infinite, most = float("nan"), float("inf"), torch.finfo(dtype).max
    x = torch.tensor([nan, infinite, 1, -0.0, 0, -infinite, -nan, most, infinite, nan, 0, -0.0, -most], dtype=dtype)
    check(lambda x: torch.sort(x, stable=True), x)
    check(lambda x: torch.sort(x, descending=True, stable=True), x)
    check(lambda x: (torch.topk(x, 4)[0], torch.topk(x, 4, largest=False)[0], torch.kthvalue(x, 10)[0]), x)


def test_bools_and_16_bit_floats():
    check(lambda x: torch.sort(x, stable=True), X > 0)
    check(lambda x: torch.sort(x, descending=True, stable=True), X.bfloat16())


def test_medians():
    check(lambda x: (torch.median(x), torch.median(x[:2])), X)
    check(torch.median, HOLES)
    check(torch.median, (10 * X).long())
