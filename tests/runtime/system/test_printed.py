"""What is printed by Python and by C is kept, and nothing else changes."""

from __future__ import annotations

import ctypes
import locale
import os
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from graft.runtime.system.printed import printed, with_settings_kept


def test_what_python_c_and_programs_print_is_kept_in_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    with printed() as text:
        print("from Python")
        print("an error", file=sys.stderr)
        ctypes.CDLL(None).puts(b"from C")
        os.system("echo from a program")
    print("outside", flush=True)
    assert set(text[0].splitlines()) == {"from Python", "an error", "from C", "from a program"}
    assert capfd.readouterr() == ("outside\n", "")


def test_an_exception_puts_the_outputs_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="of a vendor"), printed():
        raise ValueError("of a vendor")
    os.write(1, b"back")
    assert capfd.readouterr().out == "back"


def test_what_is_set_for_the_whole_process_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGED", "before")
    monkeypatch.setenv("REMOVED", "before")

    def state() -> tuple[object, ...]:
        handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        settings = os.getcwd(), locale.setlocale(locale.LC_ALL), np.geterr(), list(warnings.filters)
        return (*settings, dict(os.environ), *handlers)

    before = state()
    with with_settings_kept():
        os.chdir(tmp_path)
        locale.setlocale(locale.LC_ALL, "C.UTF-8" if before[1] == "C" else "C")
        np.seterr(all="raise")
        warnings.simplefilter("ignore")
        os.environ["CHANGED"] = os.environ["ADDED"] = "after"
        del os.environ["REMOVED"]
        for one in (signal.SIGINT, signal.SIGTERM):  # which a shell in the background ignores already
            signal.signal(one, lambda *_: None)
        assert not any(one == other for one, other in zip(before, state(), strict=True))
    assert state() == before
