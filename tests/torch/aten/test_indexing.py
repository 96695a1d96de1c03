"""Rows of operators that take indices against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from graft.errors import RunError  # noqa: E402
from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
f = torch.nn.functional
X = torch.arange(24.0).reshape(2, 3, 4)
TABLE = torch.arange(12.0).reshape(3, 4)


def test_indices():
    i, j = torch.tensor([1, 0, -1]), torch.tensor([[0], [2]])
    check(lambda x, i: (x[:, i], x[:, :, i]), X, i)
    check(lambda x, i, j: (x[:, i, j], x[j % 2, :, i]), X, i, j)
    check(lambda x, i: (x.gather(1, i), x.scatter(1, i, 5.0), x.scatter_add(1, i, x)), X, torch.ones(2, 3, 4).long())
    check(lambda x, i: x.index_select(2, i), X, torch.tensor([3, 0]))


def test_repeated_places_are_summed_in_index_put():
    i = torch.tensor([0, 0, 1])
    check(lambda x, i: x.index_put((i,), torch.ones(3, 3, 4), accumulate=True), X, i)
    check(lambda x, i: x.index_put((i, i), torch.ones(3, 4), accumulate=True), X, i)
    check(lambda x, i: x.index_put((i.new_zeros(2), i[:2] + 1), x[0, :2] * 0), X, i)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("with_old", [True, False])
def test_scatter_with_reductions(reduce, with_old):
    x, source = torch.randn(3, 5), torch.randn(3, 4)
    index = torch.tensor([[0, 0, 3, 1], [2, 2, 2, 2], [4, 0, 4, 1]])
    check(lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=with_old), x, index, source)
    check(
        lambda x, i, s: x.long().scatter_reduce(1, i, s.long(), reduce, include_self=with_old),
        10 * x,
        index,
        10 * source,
    )
    if reduce != "sum":
        check(
            lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=with_old), x, index[0, :2], torch.randn(2, 5)
        )


def test_elements_are_put_where_a_mask_says():
    x, mask = torch.randn(3, 4), torch.tensor([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0]]).bool()
    check(lambda x, mask, s: x.masked_scatter(mask, s), x, mask, torch.randn(12))
    check(lambda x, mask: torch.ops.aten.masked_scatter_backward(x, mask, [2, 5]) + 0, x, mask)


def test_rows_are_added_and_copied():
    i, source = torch.tensor([2, 0]), torch.randn(2, 4)
    check(lambda x, i, s: (x.index_add(0, i, s, alpha=-2), x.index_copy(0, i, s)), TABLE, i, source)
    check(lambda x, i, s: (x.index_add(1, i, s.t()[:3]), x.index_copy(-1, i, s.t()[:3])), TABLE, i, source)
    check(lambda x, i, s: x.index_add(0, i[:1] * 0, s) + 1, torch.tensor(2.0), i, torch.tensor(3.0))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_a_pool_left_out_is_zero(axes):
    pool, back = (getattr(f, f"max_{kind}{axes}d") for kind in ("pool", "unpool"))
    pooled, places = pool(torch.randn(2, 3, *[6] * axes), 2, return_indices=True)
    check(lambda x, i: back(x, i, 2) * 2, pooled, places)
    with pytest.raises(RunError, match=r"index -\d+ is out of range"):
        torch.compile(lambda x, i: back(x, i, 2) * 2, backend="graft")(pooled, places - places.max() - 1)


FROM_FRONT = {
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    "scatter": lambda x, i: x.scatter(0, i[:, None], x),
    "scatter of a number": lambda x, i: x.scatter(0, i[:, None], 2.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], x, "mean"),
    "embedding": lambda x, i: f.embedding(i, x),
    "embedding_bag": lambda x, i: f.embedding_bag(i, x, torch.tensor([0])),
    "nll_loss": lambda x, i: f.nll_loss(x[:2], i),
    "cross_entropy": lambda x, i: f.cross_entropy(x[:2], i),
    "multi_margin_loss": lambda x, i: f.multi_margin_loss(x[:2], i),
}


@pytest.mark.parametrize("name", FROM_FRONT)
def test_negative_indices_are_errors_where_they_are_in_pytorch(name):
    function, i = FROM_FRONT[name], torch.tensor([0, -1])
    check(lambda x, i: function(x, i) * 2, TABLE, i.abs())
    with pytest.raises((IndexError, RuntimeError)):
        function(TABLE, i)
    with pytest.raises(RunError, match="index -1 is out of range"):
        torch.compile(lambda x, i: function(x, i) * 2, backend="graft", options={"backends": ["llvm"]})(TABLE, i)


def test_negative_indices_count_from_the_end_where_they_do_in_pytorch():
    i = torch.tensor([0, -1])
    check(lambda x, i: (x[i], x.take(i), x.index_fill(1, i, 5.0)), TABLE, i)
    check(lambda x, i: (x.index_put((i,), x[:2]), x.index_fill(0, i, x[0, 1])), TABLE, i)
    check(lambda x, i: x.index_fill(0, i[:1], 2) + 1, torch.tensor(1.0), i)
    check(lambda x, i: f.cross_entropy(x[:2], i, ignore_index=-1), TABLE, i)
