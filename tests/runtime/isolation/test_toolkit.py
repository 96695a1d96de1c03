"""Toolkits in interpreters of their own: values that travel, and what becomes of faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from graft.runtime.isolation.toolkit import Toolkit, ToolkitError, file_of, interpreter_of

MODULE = Path(__file__).parents[2] / "plugins" / "toolkits" / "made_up_toolkit.py"


@pytest.fixture
def toolkit() -> Toolkit:
    return Toolkit("npu", MODULE, sys.executable)


def compiled(toolkit: Toolkit, habit: str, **more: float) -> object:
    return toolkit.call("compile", b"model", {"habit": habit}, **more)


def test_a_function_that_is_returned_is_called_there(toolkit: Toolkit) -> None:
    run = toolkit.call("load", b'{"factor": 0.5}', {"habit": ""})
    np.testing.assert_array_equal(run([np.float32([1, 2]), np.float32([3, 4])])[0], np.float32([2, 3]))
    assert toolkit.starts == 1


def test_a_function_is_made_again_where_its_process_was_lost(toolkit: Toolkit, tmp_path: Path) -> None:
    options = {"habit": "lost", "mark": str(tmp_path / "mark")}
    run = toolkit.call("load", b'{"factor": 1.0}', options)
    with pytest.raises(ToolkitError, match="ended with status 5 in a function of 'load'"):
        run([np.ones(2)])
    np.testing.assert_array_equal(run([np.ones(2)])[0], np.full(2, 2.0))
    assert toolkit.starts == 2


def test_what_a_toolkit_leaves_behind_is_put_right_or_goes_with_it(toolkit: Toolkit) -> None:
    compiled(toolkit, "")
    state = toolkit.call("state")
    assert state["folder"] == []
    assert state["errors"] == "warn"
    assert os.getcwd() != state["directory"]
    toolkit.close()
    assert not os.path.exists(state["directory"])


def test_what_it_prints_is_kept_apart(toolkit: Toolkit, capfd: pytest.CaptureFixture[str]) -> None:
    compiled(toolkit, "")
    assert toolkit.printed.splitlines() == ["compiling 5 bytes", "said in C"]
    assert capfd.readouterr() == ("", "")


def test_messages_are_heard_while_it_works(toolkit: Toolkit) -> None:
    heard: list[str] = []
    with pytest.raises(ToolkitError):
        toolkit.call("compile", b"model", {"habit": "hang"}, seconds=0.5, heard=heard.append)
    assert "said in C" in "".join(heard)


@pytest.mark.parametrize(
    ("habit", "text"),
    [
        ("exit", "raised exit in compile: 3"),
        ("end", "ended with status 4 in compile"),
        ("crash", "was killed by SIGABRT in compile"),
        ("licence", "raised RuntimeError in compile: the licence check failed: no server answers"),
        ("hang", "did not answer within 0.5 s and was stopped in compile"),
    ],
)
def test_a_fault_is_an_error_that_says_what_became_of_it(toolkit: Toolkit, habit: str, text: str) -> None:
    with pytest.raises(ToolkitError) as caught:
        compiled(toolkit, habit, seconds=0.5 if habit == "hang" else 0)
    assert text in caught.value.message
    assert caught.value.message.startswith(f"plugin 'npu': its toolkit ({sys.executable}) ")
    assert "said in C" in caught.value.facts["printed"]
    assert compiled(toolkit, "") == b'{"factor": 1.0, "version": "1"}'


@pytest.mark.parametrize("habit", ["fork", "daemon", "display"])
def test_a_habit_that_is_none_of_ours_does_no_harm(
    toolkit: Toolkit, habit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    assert compiled(toolkit, habit) == b'{"factor": 1.0, "version": "1"}'
    assert toolkit.call("echo", 1) == 1
    begin = time.monotonic()
    toolkit.close()
    assert time.monotonic() - begin < 5


HOST = """
import sys
from graft.runtime.isolation.toolkit import Toolkit
toolkit = Toolkit("npu", sys.argv[1], sys.executable)
toolkit.call("echo", 1)
print(toolkit._process.pid, toolkit._folder, flush=True)
toolkit.call("compile", b"model", {"habit": "hang"})
"""


def test_a_program_that_is_killed_in_the_middle_of_a_call_takes_its_toolkit_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", HOST, str(MODULE)], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        number, folder = host.stdout.readline().split()
        assert Path(folder).exists()
        host.kill()
    end = time.monotonic() + 20
    while (Path(folder).exists() or is_running(int(number))) and time.monotonic() < end:
        time.sleep(0.02)
    assert not Path(folder).exists()
    assert not is_running(int(number))


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_process(toolkit: Toolkit) -> None:
    toolkit.call("echo", 1)
    folder = toolkit._folder
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(toolkit, "hang")
    assert toolkit._process is None
    assert not os.path.exists(folder)
    assert toolkit.call("echo", 2) == 2


def test_an_interpreter_that_is_none_is_named() -> None:
    with pytest.raises(ToolkitError, match=r"its interpreter '/no/python' cannot be run; give the path of a python"):
        Toolkit("npu", MODULE, "/no/python").call("version")


def test_a_module_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import a_package_that_is_missing\n")
    with pytest.raises(ToolkitError, match="raised ModuleNotFoundError in its import: No module named 'a_package"):
        Toolkit("npu", tmp_path / "broken.py", sys.executable).call("version")


def test_the_interpreter_is_that_of_the_process_or_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter_of("my-npu") is None
    monkeypatch.setenv("GRAFT_MY_NPU_PYTHON", "/a")
    assert interpreter_of("my-npu") == "/a"
    monkeypatch.setenv("GRAFT_TOOLKIT_PYTHON", "/b")
    assert interpreter_of("my-npu") == "/b"


def test_a_toolkit_that_is_no_module_is_an_error() -> None:
    with pytest.raises(Exception, match="the toolkit 'no_such_toolkit' is no module that is installed"):
        file_of("no_such_toolkit")


def test_a_program_that_ends_with_a_toolkit_says_nothing() -> None:
    text = (
        "from graft.runtime.isolation.toolkit import Toolkit\n"
        f"kept = [Toolkit('npu', {str(MODULE)!r}, {sys.executable!r})]\n"
        "kept += [kept, print(kept[0].call('state')['directory'])]\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    end = time.monotonic() + 5
    while os.path.exists(done.stdout.strip()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not os.path.exists(done.stdout.strip())
