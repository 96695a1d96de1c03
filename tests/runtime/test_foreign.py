"""What is told of exceptions that other people's code raises."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from graft.runtime.foreign import is_interrupt


def raised(function: Any) -> BaseException:
    with pytest.raises(KeyboardInterrupt) as caught:
        function()
    return caught.value


def by_itself() -> None:
    raise KeyboardInterrupt


def by_signal() -> None:
    signal.default_int_handler(signal.SIGINT, None)


@pytest.mark.parametrize(
    ("handler", "itself", "user"),
    [
        (signal.default_int_handler, False, True),
        (lambda *_: None, True, True),
        (signal.SIG_IGN, False, False),
        (signal.SIG_DFL, False, False),
    ],
)
def test_an_interrupt_is_the_users_only_where_the_signal_can_raise_it(handler: Any, itself: bool, user: bool) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert is_interrupt(raised(by_itself)) is itself
        assert is_interrupt(raised(by_signal)) is user
        assert not is_interrupt(ValueError())
    finally:
        signal.signal(signal.SIGINT, before)
