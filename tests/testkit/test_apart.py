"""What takes its process with it: `graft plugin test` goes on, and says how."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.errors import GraftError
from graft.testkit.conformance.apart import ApartSuite
from graft.testkit.conformance.outcome import Result
from tests.testkit.backends import plugin

KERNEL = "def kernel(self, node, arrays):\n    {}\n    return [np.maximum(arrays[0], 0)]\nNpu.kernel = kernel"
LOST = {
    "exits": ("__import__('os')._exit(3)", "exits: the process ended with status 3"),
    "crashes": ("__import__('os').kill(__import__('os').getpid(), 11)", "crashes: the process ended by SIGSEGV"),
    "hangs": ("__import__('time').sleep(1000)", "hangs: it took more than 60 s"),
}


def results(file: Path, **more: object) -> list[Result]:
    suite = ApartSuite({"name": "npu", "level": 1, "plugin_files": (str(file),), **more}, seconds=60)
    return [one for _, _, found in suite.run_all(["1/Relu"]) for one in found]


@pytest.mark.parametrize("how", [pytest.param(one, marks=pytest.mark.slow if one != "exits" else []) for one in LOST])
def test_a_lost_process_is_the_failure_of_its_case(how: str, tmp_path: Path) -> None:
    body, said = LOST[how]
    found = results(plugin(tmp_path, KERNEL.format(body)), xfail={"1/Relu/relu": "npu ends here"})
    assert [(one.name, one.verdict, one.text) for one in found] == [
        ("1/Relu/relu", "expected-failure", said),
        ("1/Relu/relu-special", "failed", said),
        ("1/Relu/relu-shape-scalar", "failed", said),
    ]


@pytest.mark.slow
def test_a_child_that_comes_back_from_a_call_fails_the_case(tmp_path: Path) -> None:
    found = results(plugin(tmp_path, KERNEL.format("__import__('os').fork()")))
    assert {one.text for one in found} == {"forks, and lets the child return into the call"}


@pytest.mark.slow
def test_a_plugin_that_ends_the_process_when_it_is_imported_fails_level_0(tmp_path: Path) -> None:
    (one,) = results(plugin(tmp_path, "__import__('os')._exit(3)"))
    assert (one.name, one.text) == ("0/registration/loaded", "exits: the process ended with status 3")


def test_a_backend_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GraftError):
        results(plugin(tmp_path, source="import graft"))
