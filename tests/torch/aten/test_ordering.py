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


def test_bools_and_16_bit_floats():
    check(lambda x: torch.sort(x, stable=True), X > 0)
    check(lambda x: torch.sort(x, descending=True, stable=True), X.bfloat16())


def test_medians():
    check(lambda x: (torch.median(x), torch.median(x[:2])), X)
    check(torch.median, HOLES)
    check(torch.median, (10 * X).long())
