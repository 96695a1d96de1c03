"""Rows of operators that move elements against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")

from tests.torch.whole import check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
X = torch.arange(24.0).reshape(2, 3, 4)


def test_shapes_and_parts():
    functions = (
        lambda x: x.reshape(6, 4).t(),
        lambda x: x.permute(2, 0, 1),
        lambda x: x[:, 1:, ::2],
        lambda x: x[-1],
        lambda x: x.flip(0, 2),
        lambda x: x.roll(1, 1),
        lambda x: x.repeat(2, 1, 3),
        lambda x: x.diagonal(1, 1, 2),
        lambda x: torch.tril(x, 1),
        lambda x: torch.nn.functional.pad(x, (1, -1, 0, 2), value=3.0),
        lambda x: torch.cat([x, torch.zeros(0), x * 2], 1),
        lambda x: torch.stack(x.split([1, 2], 1)[1].unbind(1), 0),
        lambda x: x.unsqueeze(1).expand(2, 5, 3, 4),
    )
    check(lambda x: tuple(function(x) + 1 for function in functions), X)


def test_parts_that_are_put():
    source = -torch.ones(2, 1, 4)
    check(lambda x, y: torch.slice_scatter(x, y, 1, 1, 2), X, source)
    check(lambda x, y: torch.slice_scatter(x, y.expand(2, 2, 4), 1, 0, 3, 2), X, source)
    check(lambda x, y: torch.select_scatter(x, y[:, 0], 1, -1), X, source)


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


def test_numbers_in_a_row_and_constants():
    check(lambda x: x + torch.arange(4) + torch.arange(0.5, 2.5, 0.5) + torch.full((3, 1), 2.0) + torch.ones_like(x), X)
    check(lambda x: x + torch.linspace(0, 1, 4), X)


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


def test_masked_and_diagonal_elements_are_put_and_windows_taken():
    x, mask = torch.randn(3, 4), torch.tensor([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0]]).bool()
    check(lambda x, mask, s: x.masked_scatter(mask, s), x, mask, torch.randn(12))
    check(lambda x, mask: torch.ops.aten.masked_scatter_backward(x, mask, [2, 5]) + 0, x, mask)
    check(lambda x, s: (torch.diagonal_scatter(x, s, 1), torch.diagonal_scatter(x, s[:2], -1)), x, torch.randn(3))
    check(lambda x: x.unfold(1, 2, 1) + 1, x)


def write_rows(cache, rows, place):
    cache[:, :, place : place + 3] = rows
    return cache.sum((1, 3))


def write_row(cache, rows, place):
    cache[:, :, place] = rows[:, :, 0]
    return cache[:, :, : place + 1].sum((1, 3))


def write_the_rest(cache, rows, place):
    cache[:, :, place:] = rows[:, :, :1]
    return cache * 2


def put_rows(cache, rows, place):
    return torch.slice_scatter(cache, rows, 2, place, place + 3) * 2


def copy_rows(cache, rows, place):
    cache.index_copy_(2, torch.arange(3) + place, rows)
    return cache.sum((1, 3))


@pytest.mark.parametrize("function", [write_rows, write_row, write_the_rest, put_rows, copy_rows])
def test_a_cache_is_written_where_a_number_says(function):
    run = torch.compile(function, backend="graft", options={"backends": ["llvm"], "strict": True})
    torch._dynamo.reset()
    given, rows = torch.randn(2, 4, 16, 8), torch.randn(2, 4, 3, 8)
    for place in (3, 5, 7, 13, *((-4, -9) if function is put_rows else ())):
        one, other = given.clone(), given.clone()
        torch.testing.assert_close(run(one, rows, place), function(other, rows, place))
        torch.testing.assert_close(one, other)


def test_an_index_that_may_be_beyond_its_axis_is_left_to_pytorch():
    run = torch.compile(torch.select_scatter, backend="graft", options={"backends": ["llvm"]}, dynamic=True)
    with pytest.raises(IndexError):
        run(torch.zeros(2, 9), torch.ones(2), 1, 9)
