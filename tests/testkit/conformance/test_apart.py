"""What takes its process with it: `graft plugin test` goes on, and says how."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graft.errors import GraftError
from graft.testkit.conformance.apart import MOST_HUNG, ApartSuite
from graft.testkit.conformance.cases.outcome import Result
from tests.testkit.backends import plugin

KERNEL = "def kernel(self, node, arrays):\n    {}\n    return [np.maximum(arrays[0], 0)]\nNpu.kernel = kernel"
HANG = "__import__('time').sleep(1000)"
LOST = {
    "exits": ("__import__('os')._exit(3)", "exits: the process ended with status 3"),
    "crashes": ("__import__('os').kill(__import__('os').getpid(), 11)", "crashes: the process ended by SIGSEGV"),
    "reads beyond its input": (
        "__import__('ctypes').string_at(arrays[0].ctypes.data, arrays[0].nbytes + 1)",
        "crashes: the process ended by SIGSEGV",
    ),
    "reads before its input": (
        "__import__('ctypes').string_at(arrays[0].ctypes.data - 1, 1)",
        "crashes: the process ended by SIGSEGV",
    ),
    "hangs": (HANG, "hangs: it took more than 60 s"),
}
HANGS = {
    "its import": (
        HANG, "0/registration/loaded", "plugin 'npu_plugin': in import of file npu_plugin.py, it did not end",
    ),
    "graft_backends": (
        f"@graft.hookimpl\ndef graft_backends(): {HANG}", "0/registration/loaded",
        "plugin 'npu_plugin': in graft_backends, it did not end",
    ),
    "graft_passes": (
        f"@graft.hookimpl\ndef graft_backends(): return [Npu]\n@graft.hookimpl\ndef graft_passes(stage): {HANG}",
        "0/registration/examined", "plugin 'npu_plugin': in graft_passes, it did not end",
    ),
    "available": (
        f"Npu.available = lambda self: {HANG}", "0/registration/examined",
        "plugin 'npu_plugin': in available of backend 'npu', it did not end",
    ),
    "supports": (
        f"Npu.supports = lambda self, node: {HANG}", "0/registration/examined",
        "plugin 'npu_plugin': in supports(Relu (node 'probe_Relu')) of backend 'npu', it did not end",
    ),
    "patterns": (
        f"Npu.patterns = property(lambda self: {HANG})", "0/registration/examined",
        "plugin 'npu_plugin': in patterns of backend 'npu', it did not end",
    ),
    "compile": (
        f"def compile(self, region, options): {HANG}\nNpu.compile = compile", "1/Relu/relu",
        "hangs: it took more than 20 s in compile of npu_plugin.py, line ",
    ),
    "load": (
        f"def load(self, graph, constants): {HANG}\nNpu.load = load", "1/Relu/relu",
        "hangs: it took more than 20 s in load of npu_plugin.py, line ",
    ),
}  # fmt: skip


def line_of(folder: Path, text: str) -> int:
    rows = (folder / "npu_plugin.py").read_text().splitlines()
    return next(number for number, row in enumerate(rows, 1) if text in row)


def results(file: Path, **more: object) -> list[Result]:
    suite = ApartSuite({"name": "npu", "level": 1, "plugin_files": (str(file),)} | more, seconds=60)
    return [one for _, _, found in suite.run_all(["1/Relu"]) for one in found]


@pytest.mark.parametrize("how", [pytest.param(one, marks=pytest.mark.slow) for one in LOST])
def test_a_lost_process_is_the_failure_of_its_case(how: str, tmp_path: Path) -> None:
    body, said = LOST[how]
    found = results(plugin(tmp_path, KERNEL.format(body)), xfail={"1/Relu/relu": "npu ends here"})
    assert [(one.name, one.verdict) for one in found] == [
        ("1/Relu/relu", "expected-failure"), ("1/Relu/relu-special", "failed"), ("1/Relu/relu-subnormal", "failed"),
    ]  # fmt: skip
    assert {one.text for one in found} == {f"{said} in kernel of npu_plugin.py, line {line_of(tmp_path, body)}"}


@pytest.mark.slow
@pytest.mark.parametrize("where", HANGS)
def test_what_hangs_fails_its_level_and_is_named(where: str, tmp_path: Path) -> None:
    source, case, said = HANGS[where]
    suite = ApartSuite({"name": "npu", "level": 1, "plugin_files": (str(plugin(tmp_path, source)),)}, seconds=20)
    found = [one for _, _, rows in suite.run_all(["0", "1/Relu"]) for one in rows]
    first = next(one for one in found if one.verdict == "failed")
    assert first.name == case
    assert first.text.startswith(said), first.text
    assert sum("took more than" in one.text for one in found) <= MOST_HUNG


@pytest.mark.slow
def test_nothing_is_run_any_more_where_all_hangs(tmp_path: Path) -> None:
    path = plugin(tmp_path, f"def compile(self, region, options): {HANG}\nNpu.compile = compile")
    suite = ApartSuite({"name": "npu", "level": 1, "plugin_files": (str(path),)}, seconds=12)
    *_, (level, subject, found) = suite.run_all(["1/Add", "1/Relu"])
    assert [(one.name, one.text.partition(", 1/Add/")[0]) for one in found] == [
        (f"{level}/{subject}/cases", "is not run: 3 cases hung")
    ]


@pytest.mark.slow
def test_a_child_that_comes_back_from_a_call_fails_the_case(tmp_path: Path) -> None:
    found = results(plugin(tmp_path, KERNEL.format("__import__('os').fork()")))
    assert {one.text for one in found} == {"forks, and lets the child return into the call"}


@pytest.mark.slow
def test_a_plugin_that_ends_the_process_when_it_is_imported_fails_level_0(tmp_path: Path) -> None:
    (one,) = results(plugin(tmp_path, "__import__('os')._exit(3)"))
    said = "exits: the process ended with status 3 in its import of npu_plugin.py, line "
    assert one.name == "0/registration/loaded"
    assert one.text.startswith(said)


def test_an_unknown_backend_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GraftError, match="unknown backend 'npv'; did you mean 'npu'"):
        results(plugin(tmp_path), name="npv")


def test_a_crash_is_the_failure_of_its_group_in_pytest(tmp_path: Path) -> None:
    plugin(tmp_path, "__import__('os').kill(__import__('os').getpid(), 11)")
    (tmp_path / "test_npu.py").write_text(
        "from graft.testkit import conformance\nTestNpu = conformance('npu', level=0, plugin_files=['npu_plugin.py'])\n"
    )
    words = ("-q", "-p", "no:cacheprovider", "-p", "graft.testkit.pytest_plugin", "-W", "error", "test_npu.py")
    for option, status in (((), 1), (("--graft-in-process",), -signal.SIGSEGV)):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *option], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        said = "0/registration/loaded: crashes: the process ended by SIGSEGV in its import of npu_plugin.py, line "
        assert (said in done.stdout) == (not option)
