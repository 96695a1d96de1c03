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


def test_numbers_in_a_row_and_constants():
    check(lambda x: x + torch.arange(4) + torch.arange(0.5, 2.5, 0.5) + torch.full((3, 1), 2.0) + torch.ones_like(x), X)
    check(lambda x: x + torch.linspace(0, 1, 4), X)


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


def test_diagonal_elements_are_put_and_windows_taken():
    x = torch.randn(3, 4)
    check(lambda x, s: (torch.diagonal_scatter(x, s, 1), torch.diagonal_scatter(x, s[:2], -1)), x, torch.randn(3))
    check(lambda x: x.unfold(1, 2, 1) + 1, x)
