"""The command as it is run: a module is measured by its own test, and one whose test fails is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import ratchets
from tests.mutation.__main__ import drawn
from tests.mutation.runs import ROOT


def run(*arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "tests.mutation", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
def test_changes_that_the_own_test_notices_are_told_from_those_that_it_does_not() -> None:
    status, lines = run("core/reject.py", "--count", "4")
    assert status == 0 and lines[0] == "core/reject.py: 4 of 4 killed (100%)"
    status, lines = run("core/reject.py", "--count", "4", "--tests", "tests/core/test_lazy.py")
    assert status == 1 and "core/reject.py: 0 of 4 killed (0%)" in lines and len(lines) > 8


def test_a_draw_takes_tested_modules_room_by_room_and_always_the_same() -> None:
    found = drawn(40, 27)
    assert found == drawn(40, 27) and found[:10] == drawn(10, 27) and found != drawn(40, 28)
    assert len({*found}) == 40 and {ROOT / one for one in found} <= {*ratchets.tested_modules()}
    assert len({one.split("/")[0] for one in drawn(20, 27)}) >= 9
