"""The collector of cycles while models grow."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import graft
from graft.core.collection import RARE, collection_paused, collection_rare
from graft.errors import GraftError


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Leave the collector as it was."""
    enabled, usual = gc.isenabled(), gc.get_threshold()
    yield
    gc.set_threshold(*usual)
    (gc.enable if enabled else gc.disable)()


def test_collector_is_paused_and_goes_on() -> None:
    gc.enable()
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_is_rare_and_usual_again() -> None:
    gc.set_threshold(700, 10, 10)
    with collection_rare():
        assert gc.get_threshold() == (RARE, 10, 10)
        with collection_rare():
            assert gc.get_threshold() == (RARE, 10, 10)
        assert gc.get_threshold() == (RARE, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("first", [0, RARE, 10 * RARE])
def test_collector_that_is_rarer_stays(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with collection_rare():
        assert gc.get_threshold() == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)


def test_compiling_leaves_the_collector_as_it_was() -> None:
    gc.set_threshold(600, 9, 8)
    with pytest.raises(GraftError):
        graft.compile("there is no such model.onnx")
    assert gc.get_threshold() == (600, 9, 8)
