"""A backend around a vendor's toolkit: in this process, in an interpreter of its own, two versions at a time."""

from __future__ import annotations

import locale
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.errors import ArtifactError, GraftError
from graft.partition.plan import Plan
from graft.partition.region import Region
from graft.plugins.registry.manager import PluginManager
from graft.plugins.registry.module_reports import module_reports
from graft.plugins.toolkits.backend import PRINTED, listener
from graft.runtime.artifact import read

HERE = Path(__file__).parent
WHEELS = HERE.parents[2] / "build" / "wheels"
"""Where `make test` puts the wheel of an older NumPy."""
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 25]> g (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) '
    "{ [sum] sum = Add(x, y) z = Relu(sum) }"
)
TWICE = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 25]> g (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) '
    "{ [sum] sum = Add(x, y) part = Relu(sum) [z] z = Add(part, y) }"
)
X = np.float32([[1, -2, 3], [4, 5, -6]])
FILE = """
from dataclasses import dataclass, replace

import graft


@dataclass(frozen=True)
class Options:
    habit: str = ""
    mark: str = ""


class {name}(graft.ToolkitBackend):
    name = "{name}"
    toolkit = "made_up_toolkit"
    needs = "made_up_toolkit"
    options = Options

    @graft.supports("Add")
    def add(self, node):
        return True
"""


@dataclass(frozen=True)
class Options:
    habit: str = ""
    mark: str = ""


class Npu(graft.ToolkitBackend):
    name = "npu"
    toolkit = "made_up_toolkit"
    opset = 17
    install = "pip install made-up"
    options = Options

    @graft.supports("Add", "BitwiseNot")
    def add(self, node):
        return True


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFT_NPU_PYTHON", sys.executable)


def right(program: graft.Program) -> bool:
    return bool(np.array_equal(program(X, X), np.maximum(X + X, 0)))


def test_a_region_is_compiled_and_runs_in_this_process(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.getcwd(), locale.setlocale(locale.LC_ALL), np.geterr()
    backend = Npu()
    program = graft.compile(MODEL, [backend, "llvm"], strict=True, cache=False)
    assert right(program)
    assert capfd.readouterr() == ("", "")
    assert (os.getcwd(), locale.setlocale(locale.LC_ALL), np.geterr()) == before
    report = backend.report(next(one for one in program.description.modules if one.kind == "toolkit:npu"))
    assert report is not None
    assert report.text.splitlines()[-1] == f"left behind in {tmp_path}: litter"


def test_in_an_interpreter_of_its_own_nothing_of_this_process_changes(apart: None, tmp_path: Path) -> None:
    before = os.getcwd(), os.listdir("."), np.geterr()
    program = graft.compile(MODEL, [Npu(), "llvm"])
    assert right(program)
    assert (os.getcwd(), os.listdir("."), np.geterr()) == before
    program.save(tmp_path / "m.graft")
    assert right(graft.runtime.load(tmp_path / "m.graft", loaders=[Npu]))


def test_the_model_goes_over_in_the_opset_of_the_backend(apart: None, tmp_path: Path, monkeypatch: object) -> None:
    text = (HERE / "made_up_toolkit.py").read_text()
    (tmp_path / "kept.py").write_text(f"{text}\nown = compile\ndef compile(model, options):\n"
                                      f"    open({str(tmp_path / 'seen.onnx')!r}, 'wb').write(model)\n"
                                      "    return own(model, options)\n")  # fmt: skip
    sys.path.insert(0, str(tmp_path))
    try:
        graft.compile(MODEL, [type("Kept", (Npu,), {"toolkit": "kept"})(), "llvm"])
    finally:
        sys.path.remove(str(tmp_path))
    seen = onnx.load(tmp_path / "seen.onnx")
    assert [(row.domain, row.version) for row in seen.opset_import] == [("", 17)]
    assert [node.op_type for node in seen.graph.node] == ["Add"]
    onnx.checker.check_model(seen, full_check=True)


@pytest.mark.parametrize(
    ("habit", "text"),
    [("exit", "raised exit in compile: 3"), ("end", "ended with status 4"), ("licence", "no server answers"),
     ("crash", "was killed by SIGABRT")],
)  # fmt: skip
def test_a_region_whose_compiler_fails_goes_to_the_next_backend_and_nothing_of_it_is_kept(
    apart: None, habit: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("graft.plugins.toolkits.compile_cache.keep", lambda *given: pytest.fail("it was kept"))
    program = graft.compile(MODEL, [Npu(habit=habit), "llvm"])
    assert right(program)
    assert text in Plan.of(program)["sum"].reasons["npu"].text
    with pytest.raises(GraftError, match=text):
        graft.compile(MODEL, [Npu(habit=habit), "llvm"], strict=True)


@pytest.mark.parametrize("habit", ["fork", "daemon", "display"])
def test_a_toolkit_that_forks_leaves_processes_or_wants_a_display_is_used_all_the_same(apart: None, habit: str) -> None:
    assert right(graft.compile(MODEL, [Npu(habit=habit), "llvm"], strict=True, cache=False))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("version()", "made up 0 is too old; pip install 'made-up>=1'"),
        ("version()", "made up 9 is newer than what this plugin was written for; pip install 'made-up<2'"),
        ("load(blob, options)", "the blob is of a board of another configuration"),
    ],
)
def test_a_toolkit_of_another_version_or_blob_is_refused_by_its_own_words(
    apart: None, function: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (HERE / "made_up_toolkit.py").read_text()
    (tmp_path / "refusing.py").write_text(f"{source}\ndef {function}:\n    raise RuntimeError({text!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    backend = type("Refusing", (Npu,), {"toolkit": "refusing"})
    program = graft.compile(MODEL, [backend(), "llvm"], cache=False)
    assert right(program)
    assert text in Plan.of(program)["sum"].reasons["npu"].text
    with pytest.raises(GraftError, match=re.escape(text)):
        graft.compile(MODEL, [backend(), "llvm"], strict=True, cache=False)


@pytest.mark.parametrize("function", ["compile(model, options)", "load(blob, options)"])
def test_the_child_of_a_toolkit_that_forks_in_this_process_compiles_nothing_itself(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (HERE / "made_up_toolkit.py").read_text().replace("def compile(", "def compile_(")
    result = "lambda arrays: [arrays[0] + arrays[1]]" if function.startswith("load") else "b'blob'"
    (tmp_path / "forking.py").write_text(
        f"{source}\ndef compile(model, options):\n    return b'blob'\n"
        f"def load(blob, options):\n    return lambda arrays: [arrays[0] + arrays[1]]\n"
        f"def {function}:\n    os.fork()\n    return {result}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own, mark = os.getpid(), tmp_path / "child"
    try:
        program = graft.compile(MODEL, [type("Forking", (Npu,), {"toolkit": "forking"})(), "llvm"], cache=False)
    except GraftError as error:
        if os.getpid() == own:
            raise
        mark.write_text(error.message)
    finally:
        if os.getpid() != own:
            os._exit(0)
    os.wait()
    assert right(program)
    assert "forked" in mark.read_text()
    assert "this is the child, which came back from the call" in mark.read_text()


@pytest.mark.parametrize("where", ["here", "apart"])
def test_what_the_toolkit_prints_is_heard_while_it_compiles(
    where: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if where == "apart":
        request.getfixturevalue("apart")
    heard: list[str] = []
    token = listener.set(heard.append)
    try:
        graft.compile(MODEL, [Npu(), "llvm"], cache=False)
    finally:
        listener.reset(token)
    assert "said in C" in "".join(heard)


def test_what_a_region_needs_besides_the_options_goes_over_and_is_part_of_the_key(
    apart: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (HERE / "made_up_toolkit.py").read_text()
    (tmp_path / "scaled.py").write_text(f"""{source}
def compile(model, options):
    return json.dumps({{"factor": float(options["samples"][0].max())}}).encode()
""")
    monkeypatch.syspath_prepend(str(tmp_path))

    class Scaled(Npu):
        toolkit = "scaled"
        largest = 1.0

        def settings(self, region: Region) -> dict[str, object]:
            return {**super().settings(region), "samples": [np.full(3, self.largest)]}

    for largest in (2.0, 0.5):
        backend = type("Scaled", (Scaled,), {"largest": largest})()
        np.testing.assert_array_equal(graft.compile(MODEL, [backend, "llvm"])(X, X), np.maximum(largest * (X + X), 0))


def test_what_the_toolkit_printed_is_in_the_report_of_what_was_compiled_before_too(
    apart: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    blobs = []
    for _ in range(2):
        backend = Npu()
        program = graft.compile(MODEL, [backend, "llvm"])
        (module,) = [one for one in program.description.modules if one.kind == "toolkit:npu"]
        report = backend.report(module)
        assert report is not None
        assert report.text.splitlines()[0] == f"made up 1, NumPy {np.__version__}, {report.facts['bytes']} B"
        assert "said in C" in report.text
        blobs.append(module.data)
    assert blobs[0] == blobs[1]
    assert b"said in C" not in blobs[0]
    assert backend.report(replace(module, kind="other")) is None


@pytest.mark.parametrize("text", ["reported", "reported:mark=a", "reported@second:mark=a"])
def test_reports_of_artifacts_have_what_the_toolkit_printed_whatever_its_options(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GRAFT_REPORTED_PYTHON", sys.executable)
    (tmp_path / "reported.py").write_text(FILE.format(name="reported"))
    manager = PluginManager()
    manager.load_file(tmp_path / "reported.py")
    graft.compile(MODEL, [text, "llvm"], manager=manager).save(tmp_path / "m.graft")
    modules = read(tmp_path / "m.graft").modules
    for _ in range(2):  # as this process has it, and as another one finds it
        ((_, report),) = module_reports(modules, manager).items()
        assert "said in C" in report.text
        assert report.html == f"<pre>{report.text}</pre>"
        PRINTED.clear()


def test_another_text_of_the_toolkit_s_module_has_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    prints = []
    for name, text in (("one", ""), ("same", ""), ("other", "# another\n")):
        (tmp_path / f"{name}.py").write_text((HERE / "made_up_toolkit.py").read_text() + text)
        prints.append(type("Printed", (Npu,), {"toolkit": name})().fingerprint())
    assert prints[0] == prints[1] != prints[2]


def test_what_serves_any_weights_is_made_once_and_loaded_with_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "refitted.py").write_text("""
import numpy, onnx
from onnx import numpy_helper
count = 0

def version():
    return "made up 1"

def compile(model, options):
    global count
    count += 1
    return b"engine %d" % count

def load(blob, options):
    assert blob == b"engine %d" % count, blob
    (weights,) = [numpy_helper.to_array(one) for one in onnx.load_from_string(options["model"]).graph.initializer]
    return lambda arrays: [arrays[0] @ weights]
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    class Refitted(Npu):
        toolkit = "refitted"
        refits = True

        @graft.supports("MatMul")
        def product(self, node: object) -> bool:
            return True

    for factor in (1, 2):
        text = '<ir_version: 10, opset_import: ["": 25]> g (float[2, 3] x) => (float[2, 3] z) { z = MatMul(x, w) }'
        model = onnx.parser.parse_model(text)
        model.graph.initializer.append(onnx.numpy_helper.from_array(factor * np.eye(3, dtype=np.float32), "w"))
        program = graft.compile(model, [Refitted(), "llvm"], strict=True)
        np.testing.assert_array_equal(program(X), factor * X)
        program.save(tmp_path / "m.graft")
        np.testing.assert_array_equal(graft.runtime.load(tmp_path / "m.graft", loaders=[Refitted])(X), factor * X)


def test_a_threaded_toolkit_is_told_the_threads_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (HERE / "made_up_toolkit.py").read_text()
    text = (
        'def compile(model, options):\n    return json.dumps({"factor": options.get("program_threads", 0)}).encode()\n'
    )
    (tmp_path / "threaded.py").write_text(f"{source}\n{text}")
    monkeypatch.syspath_prepend(str(tmp_path))
    for threaded, factor in ((True, 3), (False, 0)):
        backend = type("Threaded", (Npu,), {"toolkit": "threaded", "threaded": threaded})()
        program = graft.compile(MODEL, [backend, "llvm"], threads=3, cache=False)
        np.testing.assert_array_equal(program(X, X), np.maximum(factor * (X + X), 0))


def test_an_operator_without_an_older_form_is_refused_with_the_reason(apart: None) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 25]> g (int32[8] x) => (int32[8] z) { [not] z = BitwiseNot(x) }'
    )
    reason = graft.plan(model, [Npu(), "reference"])["not"].reasons["npu"]
    assert str(reason) == "no-pattern: opset 17 has no BitwiseNot, and ONNX does not define it by others there"


def test_a_damaged_module_is_refused(apart: None, tmp_path: Path) -> None:
    from graft.plugins.toolkits.backend import opened, packed

    whole = packed({"version": "1"}, b"blob")
    assert opened(whole, "m") == ({"version": "1"}, b"blob")
    with pytest.raises(ArtifactError, match="module 'm' is damaged"):
        opened(whole[:-1] + b"!", "m")


def test_a_toolkit_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = type("Missing", (Npu,), {"needs": "a_package_that_is_missing"})()
    assert backend.available() == (
        "a_package_that_is_missing is not installed; pip install made-up, or name a python that has it in "
        "GRAFT_NPU_PYTHON"
    )
    monkeypatch.setenv("GRAFT_NPU_PYTHON", sys.executable)
    assert backend.available() is None


@pytest.mark.parametrize("where", ["here", "apart"])
def test_a_package_that_the_toolkit_misses_is_an_error_that_says_how_to_get_it(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare_toolkit.py").write_text("def version():\n    import vendor_sdk\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    if where == "apart":
        monkeypatch.setenv("GRAFT_BARE_PYTHON", sys.executable)
    bare = type("Bare", (Npu,), {"name": "bare", "toolkit": "bare_toolkit"})
    program = graft.compile(MODEL, [bare(), "llvm"])
    said = graft.Plan.of(program)["sum"].reasons["bare"].text
    assert "No module named 'vendor_sdk'; pip install made-up" in said


@pytest.fixture
def old_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    if not list(WHEELS.glob("numpy-1.26.4-*.whl")):
        pytest.skip(f"no wheel of NumPy 1.26.4 in {WHEELS}; pip download --no-deps -d build/wheels numpy==1.26.4")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return {"requirements": ["numpy==1.26.4"], "wheels": str(WHEELS), "install": True}


def test_two_versions_side_by_side_one_with_a_numpy_of_its_own(old_numpy: dict[str, object], tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / f"{name}.py").write_text(FILE.format(name=name))
    how = {"old": graft.Isolation(**old_numpy), "new": graft.Isolation(python=sys.executable)}  # type: ignore[arg-type]
    manager = PluginManager(isolation=how)
    for name in how:
        manager.load_file(tmp_path / f"{name}.py")
    versions = {name: manager.backends([name])[0].version() for name in how}
    assert versions == {"old": "made up 1, NumPy 1.26.4", "new": f"made up 1, NumPy {np.__version__}"}
    policy = graft.Policy(exclude_node=["old:z"])  # type: ignore[arg-type]
    program = graft.compile(TWICE, ["old", "new", "llvm"], isolation=how, manager=manager, policy=policy)
    assert {one.kind for one in program.description.modules} >= {"toolkit:old", "toolkit:new"}
    np.testing.assert_array_equal(program(X, X), np.maximum(X + X, 0) + X)
