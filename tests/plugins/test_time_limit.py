"""The bound on the time that a plugin's code takes in this process."""

from __future__ import annotations

import signal
import threading
import time
from unittest import mock

import pytest

from graft.errors import PluginError
from graft.plugins.registry.fence import fence
from graft.plugins.time_limit import TimeLimitExceeded, time_limit, timer_held


def hang() -> None:
    try:
        while True:
            time.sleep(10)
    except Exception:  # what vendors write
        hang()


def test_code_that_hangs_is_stopped_and_named() -> None:
    with (
        pytest.raises(PluginError, match=r"plugin 'npu': in supports, it did not end within 0\.05 s and was stopped"),
        fence("npu", "supports"),
        time_limit(0.05),
    ):
        hang()


def test_code_that_ends_in_time_is_left_alone() -> None:
    with time_limit(0.05):
        pass
    time.sleep(0.1)


def test_inner_limit_does_not_lengthen_the_outer_one() -> None:
    with pytest.raises(TimeLimitExceeded), time_limit(0.05), time_limit(1000):
        hang()


def test_many_limits_share_one_timer_and_each_is_kept() -> None:
    with timer_held(), mock.patch("signal.setitimer", wraps=signal.setitimer) as armed:
        for _ in range(1000):
            with time_limit(1000):
                pass
        assert armed.call_count == 1
        with pytest.raises(TimeLimitExceeded, match=r"0\.05 s"), time_limit(0.05):
            hang()
        with time_limit(1000):  # the timer has struck: it is set anew
            pass
        assert armed.call_count == 3
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert not any(signal.getitimer(signal.ITIMER_REAL))


def test_timer_that_strikes_before_a_later_deadline_is_set_again() -> None:
    with timer_held():
        with time_limit(0.05):
            pass
        with pytest.raises(TimeLimitExceeded, match=r"0\.1 s"), time_limit(0.1):
            hang()
        with time_limit(0.05):
            pass
        time.sleep(0.1)  # it strikes where no limit is


def test_there_is_no_limit_in_other_threads() -> None:
    ended = []

    def work() -> None:
        with time_limit(0.01):
            time.sleep(0.05)
        ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ended
