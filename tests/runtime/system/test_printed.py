"""What is printed by Python and by C is kept, and nothing else changes."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from graft.runtime.system.printed import printed


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
