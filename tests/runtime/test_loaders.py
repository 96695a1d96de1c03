from __future__ import annotations

import importlib.metadata
import re
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from graft.errors import ArtifactError, OptionError, PluginError
from graft.runtime.loaders import LoaderRegistry, NativeLoader, PythonLoader
from graft.runtime.procedure import Module
from graft.runtime.program import Program

from .programs import describe, elementwise

TWICE = PythonLoader("json:npu", lambda name, data, constants: {})
HOOK = """
from graft.runtime.loaders import PythonLoader
def graft_module_loaders():
    return [PythonLoader("json:npu", lambda name, data, constants: {"f": lambda inputs: inputs})]
"""
CLASS = """
from graft.runtime.loaders import PythonLoader
class Npu:
    name = "npu"
    def module_loaders(self):
        return [PythonLoader("json:npu", lambda name, data, constants: {"f": lambda inputs: inputs})]
"""


def module_of(kind: str = "json:npu", plugin: str = "npu", install: str = "") -> Module:
    return Module("r0", kind, ("f",), b"", plugin=plugin, install=install)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that installs plugins: (entry-point name, module name, source, value)."""
    entries: list[EntryPoint] = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: EntryPoints(entries).select(**wanted))

    def add(name: str, module: str, source: str, attribute: str = "") -> None:
        (tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        entries.append(EntryPoint(name, f"{module}{attribute}", "graft"))

    return add


def check_error(
    registry: LoaderRegistry, message: str, plugin: str = "npu", install: str = "pip install npu"
) -> ArtifactError:
    with pytest.raises(ArtifactError) as caught:
        registry.resolve(module_of(plugin=plugin, install=install))
    assert str(caught.value) == message
    assert (caught.value.kind, caught.value.plugin) == ("json:npu", plugin)
    return caught.value


def test_a_given_loader_comes_first(install) -> None:
    install("npu", "npu_never_imported", "raise OSError")
    assert LoaderRegistry([TWICE]).resolve(module_of()) is TWICE


def test_the_runtime_loads_native_modules_itself() -> None:
    assert LoaderRegistry().resolve(module_of("native", "")) is None


def test_two_loaders_of_one_kind_are_told() -> None:
    with pytest.raises(PluginError) as caught:
        LoaderRegistry([TWICE]).add(NativeLoader("json:npu", "x.so"), "plugin 'npu'")
    assert str(caught.value) == (
        "two loaders for modules of kind 'json:npu': of the caller and of plugin 'npu'; remove one"
    )


@pytest.mark.parametrize(
    ("module", "source", "attribute"),
    [("npu_hook", HOOK, ""), ("npu_module", CLASS, ""), ("npu_class", CLASS, ":Npu")],
)
def test_a_plugin_brings_its_loaders(install, module: str, source: str, attribute: str) -> None:
    install("npu", module, source, attribute)
    registry = LoaderRegistry()
    found = registry.resolve(module_of())
    assert isinstance(found, PythonLoader)
    assert registry.resolve(module_of()) is found


def test_a_plugin_whose_loader_has_other_options_is_told(install) -> None:
    install("npu", "npu_fixed", HOOK.replace('"json:npu", ', '"json:npu", options={"bits": 4}, load='))
    module = replace(module_of(), backend="npu", options={"bits": 8})
    with pytest.raises(OptionError, match=re.escape("with {'bits': 8}, and its loader has {'bits': 4}")):
        LoaderRegistry().resolve(module)


def test_a_missing_plugin_is_told(install) -> None:
    check_error(
        LoaderRegistry(),
        "no loader for modules of kind 'json:npu'; plugin 'npu' provides it; install it with: pip install npu",
    )
    check_error(LoaderRegistry(), "no loader for modules of kind 'json:npu'", plugin="", install="")


def test_a_plugin_without_the_loader_is_told(install) -> None:
    install("npu", "npu_empty", "")
    check_error(
        LoaderRegistry(),
        "no loader for modules of kind 'json:npu'; plugin 'npu' provides it; it is installed, but its version has no "
        "such loader; install it with: pip install npu",
    )


def test_a_plugin_that_raises_is_told(install) -> None:
    install("npu", "npu_broken", "raise OSError('no device')")
    error = check_error(
        LoaderRegistry(),
        "the loader for modules of kind 'json:npu' cannot be used: plugin 'npu' raised OSError: no device; mend or "
        "reinstall it: pip install npu",
    )
    assert isinstance(error.__cause__, OSError)


def test_two_plugins_of_one_name_are_told(install) -> None:
    install("npu", "npu_first", HOOK)
    install("npu", "npu_second", HOOK)
    check_error(
        LoaderRegistry(),
        "modules of kind 'json:npu' need plugin 'npu', which 'npu_first' and 'npu_second' both claim to be; "
        "uninstall one",
    )


def test_plugins_of_the_tree_need_no_installation(install) -> None:
    assert LoaderRegistry().resolve(module_of("reference", "reference")) is not None


def native_program(library: str | Path) -> None:
    description = elementwise(lambda inputs: inputs, [("x", "float32", (1,))], ("float32", (1,))).description
    Program.from_description(describe(description.procedures, ["f"]), loaders=[NativeLoader("test", library)])


def test_a_plugin_named_as_a_module_of_graft_is_not_taken_for_it(install) -> None:
    check_error(
        LoaderRegistry(), "no loader for modules of kind 'json:npu'; plugin 'backend' provides it", "backend", ""
    )


def test_a_library_that_is_no_loader_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        native_program(tmp_path / "absent.so")
    assert str(caught.value) == (
        f"the loader for kind 'test' in '{tmp_path}/absent.so' cannot be used: {tmp_path}/absent.so: cannot open "
        "shared object file: No such file or directory"
    )
    from graft.runtime import _native

    with pytest.raises(ArtifactError) as caught:
        native_program(_native.__file__)
    assert str(caught.value).endswith("cannot be used: it does not export graft_loader")
