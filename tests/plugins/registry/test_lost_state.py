"""State of a backend object that a loaded program would go without is found."""

from __future__ import annotations

import signal
from functools import cached_property
from typing import Any, Self

import numpy as np
import pytest

from graft.plugins.registry.lost_state import lost_state


class Plain:
    """As much of a backend as is looked at."""

    name = "npu"
    level = 1

    def __init__(self, **state: Any) -> None:
        self.options: dict[str, Any] = {}
        for name, value in state.items():
            setattr(self, name, value)

    def configured(self, options: dict[str, Any]) -> Self:
        return type(self)()


class Tuned(Plain):
    def __init__(self, **state: Any) -> None:
        super().__init__(**{"table": {"rows": [1, 2]}, "weights": np.arange(3), "inner": Plain(), **state})

    @cached_property
    def engine(self) -> object:
        return object()


LOST = (
    "backend 'npu' has {} from its constructor or its user, which is no declared option and would be lost; "
    "declare it as one"
)


def found(backend: Plain) -> str:
    return lost_state(backend)  # type: ignore[arg-type]


def test_a_backend_without_state_or_with_what_its_options_make_loses_nothing() -> None:
    assert found(Plain()) == ""
    assert found(Tuned()) == ""


def test_what_properties_keep_and_what_came_later_is_no_state() -> None:
    tuned = Tuned(loaded="later")
    assert tuned.engine is tuned.engine
    assert found(tuned) == ""


@pytest.mark.parametrize(
    ("state", "lost"),
    [
        ({"table": {"rows": [1, 3]}}, "'table'"),
        ({"table": {"rows": [1]}}, "'table'"),
        ({"table": {"columns": [1, 2]}}, "'table'"),
        ({"weights": np.array([0, 1, 3])}, "'weights'"),
        ({"weights": np.arange(4)}, "'weights'"),
        ({"inner": Plain(depth=2)}, "'inner'"),
        ({"table": None, "weights": None}, "'table', 'weights'"),
        ({"level": 2}, "'level'"),
    ],
)
def test_what_the_options_do_not_make_again_is_lost(state: dict[str, Any], lost: str) -> None:
    assert found(Tuned(**state)) == LOST.format(lost)


def test_equal_contents_of_other_objects_are_the_same() -> None:
    assert found(Tuned(table={"rows": [1, 2]}, weights=np.arange(3), inner=Plain(), level=1)) == ""


def test_a_backend_that_cannot_be_built_from_options_alone_says_so() -> None:
    class Needy(Plain):
        def configured(self, options: dict[str, Any]) -> Self:
            raise TypeError("a device is missing")

    assert found(Needy(device=3)) == (
        "backend 'npu' cannot be built from its options alone (TypeError: a device is missing); "
        "declare what its constructor takes as options"
    )


def test_a_signal_that_ends_the_process_passes() -> None:
    class Slow(Plain):
        def configured(self, options: dict[str, Any]) -> Self:
            signal.raise_signal(signal.SIGINT)
            return super().configured(options)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            found(Slow(device=3))
    finally:
        signal.signal(signal.SIGINT, before)
