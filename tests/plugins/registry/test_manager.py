import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graft.errors import PlanError, PluginError
from graft.plugins.discovery import PluginSource
from graft.plugins.registry.manager import PluginManager
from graft.plugins.registry.module_hooks import SPECIFICATIONS
from tests.plugins.distributions import install

BACKEND = """
from graft.plugins.backend import Backend

class Npu(Backend):
    name = "npu"
    priority = {priority}
    api_level = {level}
"""


def backend(name: str = "npu", priority: int = 100, level: int = 1) -> str:
    return BACKEND.format(priority=priority, level=level).replace('"npu"', f'"{name}"')


def file_source(place: Path, name: str, text: str) -> PluginSource:
    path = place / f"{name}.py"
    path.write_text(text)
    return PluginSource(name, str(path), is_file=True)


def manager_of(place: Path, **texts: str) -> PluginManager:
    return PluginManager(sources=[file_source(place, name, text) for name, text in texts.items()])


def failure_of(place: Path, text: str) -> str:
    (plugin,) = manager_of(place, bad=text).plugins()
    assert plugin.failure is not None
    return plugin.failure.message


def names(manager: PluginManager, wanted: list[str] | None = None) -> list[str]:
    return [one.name for one in manager.backends(wanted)]


def test_an_installed_distribution_is_listed_without_being_imported(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-loud", "1.2", {"loud": "loud_module"}, loud_module="raise SystemExit(9)")
    assert PluginSource("loud", "loud_module", "graft-loud", "1.2") in PluginManager().sources()
    assert "loud_module" not in sys.modules


def test_the_backends_of_the_tree_are_there_without_installation():
    assert {"llvm", "onednn", "reference"} <= {source.name for source in PluginManager().sources()}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("npu_a", backend()),
        ("npu_b:Npu", backend()),
        ("npu_c:npu", backend() + "npu = Npu()"),
        (
            "npu_d",
            backend() + "from graft.plugins.hooks import hookimpl\n@hookimpl\ndef graft_backends(): return [Npu]",
        ),
    ],
    ids=["module", "class", "instance", "hooks"],
)
def test_an_entry_point_names_a_module_a_class_an_instance_or_hooks(tmp_path, monkeypatch, value, text):
    install(tmp_path, monkeypatch, "graft-npu", "0.1", {"npu": value}, **{value.partition(":")[0]: text})
    sources = [source for source in PluginManager().sources() if source.name == "npu"]
    assert names(PluginManager(sources=sources)) == ["npu"]


def test_backends_come_by_falling_priority_then_name(tmp_path):
    manager = manager_of(tmp_path, z=backend("z", 5), c=backend("c", 7), b=backend("b", 5), a=backend("a", 1))
    assert names(manager) == ["c", "b", "z", "a"]


def test_fallbacks_are_those_that_say_so_by_falling_priority(tmp_path):
    rest = backend("rest", 1).replace("    priority", "    fallback = True\n    priority")
    manager = manager_of(tmp_path, first=backend("first", 2), last=rest)
    assert manager.fallbacks() == ("rest",)
    assert PluginManager().fallbacks() == ("llvm", "irregular", "reference")


def test_backends_come_in_the_order_that_the_user_gave(tmp_path):
    manager = manager_of(tmp_path, a=backend("a", 1), b=backend("b", 9))
    assert names(manager, ["a", "b"]) == ["a", "b"]


def test_an_unknown_backend_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(PlanError) as caught:
        manager_of(tmp_path, onednn=backend("onednn"), llvm=backend("llvm")).backends(["onedn"])
    message = "unknown backend 'onedn'; did you mean 'onednn'? known backends are llvm, onednn"
    assert caught.value.message == message


def test_a_backend_named_twice_is_an_error(tmp_path):
    with pytest.raises(PlanError) as caught:
        manager_of(tmp_path, a=backend("a")).backends(["a", "a"])
    assert caught.value.message == "backend 'a' is named twice; name it once, in order of preference"


def test_a_plugin_that_raises_on_import_does_not_stop_the_others(tmp_path):
    manager = manager_of(tmp_path, bad="import no_such_library", good=backend("good"))
    assert names(manager) == ["good"]
    bad = manager.plugins()[0]
    assert bad.failure is not None
    assert (
        bad.failure.message == "plugin 'bad' raised ModuleNotFoundError in import of file bad.py: "
        "No module named 'no_such_library'"
    )
    assert isinstance(bad.failure.__cause__, ModuleNotFoundError)
    assert 'bad.py", line 1' in bad.trace


def test_a_plugin_that_exits_on_import_does_not_stop_the_others(tmp_path):
    manager = manager_of(tmp_path, bad="raise SystemExit(3)", good=backend("good"))
    assert names(manager) == ["good"]
    assert failure_of(tmp_path, "raise SystemExit(3)") == "plugin 'bad' raised SystemExit in import of file bad.py: 3"


def test_asking_for_the_backend_of_a_failed_plugin_gives_its_failure(tmp_path):
    with pytest.raises(PluginError) as caught:
        manager_of(tmp_path, bad="1 / 0").backends(["bad"])
    assert caught.value.message == "plugin 'bad' raised ZeroDivisionError in import of file bad.py: division by zero"


def test_a_backend_whose_constructor_raises_is_a_failure_of_its_plugin(tmp_path):
    text = backend() + "    def __init__(self): raise OSError('no device')"
    assert failure_of(tmp_path, text) == "plugin 'bad' raised OSError in graft_backends: no device"


def test_two_distributions_that_claim_one_plugin_name_are_both_refused(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-npu", "0.1", {"npu": "npu_one"}, npu_one=backend())
    install(tmp_path, monkeypatch, "other-npu", "2.0", {"npu": "npu_two"}, npu_two=backend())
    manager = PluginManager(sources=[source for source in PluginManager().sources() if source.name == "npu"])
    with pytest.raises(PluginError) as caught:
        manager.backends(["npu"])
    assert caught.value.message == (
        "plugin 'npu' is claimed by graft-npu 0.1 and by other-npu 2.0; none of them is used: uninstall all but one"
    )
    assert names(manager) == []


def test_two_plugins_that_claim_one_backend_name_are_both_refused(tmp_path):
    manager = manager_of(tmp_path, one=backend("npu"), two=backend("npu"), three=backend("other"))
    with pytest.raises(PluginError) as caught:
        manager.backends(["npu"])
    assert caught.value.message == (
        "backend 'npu' is claimed by file one.py and by file two.py; none of them is used: uninstall all but one"
    )
    assert names(manager) == ["other"]


def test_a_clash_is_settled_by_disabling_one_distribution(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-npu", "0.1", {"npu": "npu_first"}, npu_first=backend())
    install(tmp_path, monkeypatch, "other-npu", "2.0", {"npu": "npu_second"}, npu_second=backend())
    sources = [source for source in PluginManager().sources() if source.name == "npu"]
    assert names(PluginManager({"other-npu"}, sources)) == ["npu"]


def test_a_disabled_plugin_is_not_imported(tmp_path):
    manager = PluginManager({"bad"}, [file_source(tmp_path, "bad", "raise SystemExit")])
    assert manager.plugins()[0].failure is None
    with pytest.raises(PlanError) as caught:
        manager.backends(["bad"])
    assert caught.value.message == "backend 'bad' is disabled; leave it out, or enable its plugin"


def test_a_plugin_for_a_newer_interface_says_to_upgrade_graft(tmp_path):
    assert failure_of(tmp_path, backend(level=2)) == (
        "plugin 'bad' (file bad.py): backend 'npu' was written for plugin interface 2, this Graft supports 1; "
        "pip install --upgrade graft-compiler"
    )


def test_a_plugin_for_an_older_interface_says_to_upgrade_the_plugin(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-old", "0.1", {"old": "old_npu"}, old_npu=backend(level=0))
    manager = PluginManager(sources=[source for source in PluginManager().sources() if source.name == "old"])
    failure = manager.plugins()[0].failure
    assert failure is not None
    assert failure.message == (
        "plugin 'old' (graft-old 0.1): backend 'npu' was written for plugin interface 0, this Graft supports 1; "
        "pip install --upgrade graft-old"
    )


HOOK = "from graft.plugins.hooks import hookimpl\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HOOK + "@hookimpl\ndef graft_backend(): return []",
            "plugin 'bad' implements the unknown hook 'graft_backend'; did you mean 'graft_backends'?",
        ),
        (
            HOOK + "@hookimpl\ndef graft_passes(stge): return []",
            "plugin 'bad': hook 'graft_passes' has no argument 'stge'; did you mean 'stage'? (it takes stage)",
        ),
        (
            HOOK + "@hookimpl\ndef graft_backends(everything): return []",
            "plugin 'bad': hook 'graft_backends' has no argument 'everything' (it takes none)",
        ),
        (
            "def graft_backends(): return []",
            "plugin 'bad': 'graft_backends' is not marked as a hook; write @hookimpl above it "
            "(from graft.plugins.hooks import hookimpl)",
        ),
        (
            HOOK + "@hookimpl(wrapper=True)\ndef graft_backends(): yield",
            "plugin 'bad': 'graft_backends' is a hook wrapper, which Graft does not call; use plain @hookimpl",
        ),
        (
            "x = 1",
            "plugin 'bad' names module 'graft_plugin_bad', which is neither a graft.Backend nor a module with hook "
            "implementations or a Backend class; mark functions (graft_backends, graft_cost_tables, graft_datatypes, "
            "graft_machines, graft_module_loaders, graft_operators, graft_passes, graft_region_compiled, "
            "graft_report_sections, graft_torch_operators) with @hookimpl, or define a class",
        ),
        (
            HOOK + "@hookimpl\ndef graft_backends(): return [42]",
            "plugin 'bad' (file bad.py): graft_backends gave int; give classes or instances of graft.Backend",
        ),
        (
            HOOK + "@hookimpl\ndef graft_backends(): return 42",
            "plugin 'bad' raised TypeError in graft_backends: 'int' object is not iterable",
        ),
        (
            backend("has space"),
            "plugin 'bad' (file bad.py): backend Npu has the name 'has space'; "
            "set name to letters, digits, '_' and '-', as in name = \"npu\"",
        ),
    ],
)
def test_a_plugin_that_breaks_the_interface_is_told_how(tmp_path, text, message):
    assert failure_of(tmp_path, text) == message


def test_an_entry_point_that_names_something_else_is_told_so(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-odd", "1", {"odd": "odd_module:thing"}, odd_module="thing = 7")
    manager = PluginManager(sources=[source for source in PluginManager().sources() if source.name == "odd"])
    failure = manager.plugins()[0].failure
    assert failure is not None
    assert failure.message == (
        "plugin 'odd' names int 7, which is neither a graft.Backend nor a module with hook implementations or a "
        f"Backend class; mark functions ({', '.join(SPECIFICATIONS)}) with @hookimpl, or define a class"
    )


def test_damaged_metadata_of_one_distribution_does_not_hide_the_others(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-fine", "1", {"fine": "fine_npu"}, fine_npu=backend("fine"))
    install(tmp_path, monkeypatch, "graft-torn", "2", {})
    (text,) = tmp_path.glob("graft-torn-2/*.dist-info/entry_points.txt")
    text.write_text("[graft]\ntorn\n")
    sources = [source for source in PluginManager().sources() if source.distribution in ("graft-fine", "graft-torn")]
    fine, torn = PluginManager(sources=sources).plugins()
    assert [one.name for one in fine.backends] == ["fine"]
    assert torn.failure is not None
    before, what, after = torn.failure.message.partition("its entry_points.txt cannot be read: ")
    assert before == "plugin 'graft-torn' raised ImportError in import of graft-torn 2: "
    assert what
    assert after.endswith("; install it again")


def test_an_entry_point_that_is_no_reference_is_an_error(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-blank", "1", {"blank": "two words"})
    manager = PluginManager(sources=[source for source in PluginManager().sources() if source.name == "blank"])
    failure = manager.plugins()[0].failure
    assert failure is not None
    assert failure.message == (
        "plugin 'blank' raised ImportError in import of graft-blank 1: "
        "'two words' is not an entry point; write my_package.npu or my_package.npu:Npu"
    )


def test_a_file_becomes_a_plugin_for_once(tmp_path):
    source = file_source(tmp_path, "mine", backend("mine"))
    manager = PluginManager(sources=[])
    manager.load_file(source.value)
    assert names(manager) == ["mine"]


def test_a_missing_plugin_file_is_an_error():
    with pytest.raises(PluginError) as caught:
        PluginManager(sources=[]).load_file("no/such.py")
    assert caught.value.message == "no plugin file 'no/such.py'; give the path of a Python file"


def test_a_broken_plugin_file_raises_at_once(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("def")
    with pytest.raises(PluginError) as caught:
        PluginManager(sources=[]).load_file(path)
    assert caught.value.message.startswith("plugin 'broken' raised SyntaxError in import of file broken.py: ")


def test_a_file_that_is_not_python_raises(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"\0")
    with pytest.raises(PluginError) as caught:
        PluginManager(sources=[]).load_file(path)
    assert caught.value.message == (
        "plugin 'weights' raised ImportError in import of file weights.bin: 'weights.bin' is not a Python file"
    )


PASSES = (
    HOOK
    + """
class Pass:
    def __init__(self, name): self.name = name
    def run(self, model): return False
@hookimpl
def graft_passes(stage): return [Pass("{name} " + stage)]"""
)


def test_a_hook_is_called_in_every_plugin_in_order_of_names(tmp_path):
    manager = manager_of(tmp_path, b=PASSES.format(name="b"), a=PASSES.format(name="a"))
    assert [one.name for one in manager.passes("import")] == ["a import", "b import"]


def test_a_listener_that_raises_is_logged_and_the_others_hear(tmp_path, caplog):
    hear = HOOK + "heard = []\n@hookimpl\ndef graft_region_compiled(seconds): heard.append(seconds)"
    noisy = HOOK + "@hookimpl\ndef graft_region_compiled(seconds): raise KeyError(seconds)"
    manager_of(tmp_path, noisy=noisy, quiet=hear).region_compiled(None, None, 1.5)
    assert [record.message for record in caplog.records] == [
        "plugin 'noisy' raised KeyError in graft_region_compiled: 1.5"
    ]
    assert sys.modules["graft_plugin_quiet"].heard == [1.5]


def test_a_hook_that_gives_no_list_is_left_out_and_named(tmp_path, caplog):
    manager = manager_of(tmp_path, empty=HOOK + "@hookimpl\ndef graft_passes(): pass", b=PASSES.format(name="b"))
    assert [one.name for one in manager.passes("import")] == ["b import"]
    assert caplog.messages == [
        "plugin 'empty' raised TypeError in graft_passes: 'NoneType' object is not iterable; "
        "the passes of plugin 'empty' are left out"
    ]


def test_a_hook_of_a_plugin_that_the_user_named_raises(tmp_path):
    source = file_source(tmp_path, "empty", HOOK + "@hookimpl\ndef graft_passes(): pass")
    manager = PluginManager(sources=[])
    manager.load_file(source.value)
    with pytest.raises(PluginError) as caught:
        manager.passes("import")
    assert caught.value.message == "plugin 'empty' raised TypeError in graft_passes: 'NoneType' object is not iterable"


def test_the_hooks_of_a_plugin_without_valid_backends_are_not_called(tmp_path):
    manager = manager_of(tmp_path, a=PASSES.format(name="a") + "\n@hookimpl\ndef graft_backends(): return [42]")
    assert manager.passes("import") == []


LOADER = HOOK + (
    "from graft.runtime.loaders import PythonLoader\n"
    "@hookimpl\ndef graft_module_loaders(): return [PythonLoader('json:npu', print)]"
)


def test_two_plugins_with_a_loader_of_one_kind_are_an_error(tmp_path):
    with pytest.raises(PluginError) as caught:
        manager_of(tmp_path, a=LOADER, b=LOADER).module_loaders()
    assert caught.value.message == (
        "module kind 'json:npu' is claimed by plugin 'a' and by plugin 'b'; none of them is used: uninstall all but one"
    )


def test_only_the_plugins_that_a_program_needs_are_asked_for_loaders(tmp_path):
    broken = HOOK + "@hookimpl\ndef graft_module_loaders(): raise OSError"
    manager = manager_of(tmp_path, a=LOADER, b=broken)
    assert list(manager.module_loaders({"a"})) == ["json:npu"]


def test_infos_say_what_a_backend_is_and_why_it_cannot_run(tmp_path):
    text = backend("npu", 7) + (
        "    def available(self): return 'no device; plug one in'\n    def version(self): return 'npu library 3'\n"
    )
    (info,) = manager_of(tmp_path, npu=text).backend_infos()
    assert (info.name, info.plugin, info.distribution, info.priority) == ("npu", "npu", "file npu.py", 7)
    assert (info.unavailable, info.library, info.composites) == ("no device; plug one in", "npu library 3", ())


def test_a_fault_in_one_backend_does_not_hide_the_others(tmp_path):
    text = backend("bad") + "    def available(self): raise OSError('bad library')\n"
    good, bad = manager_of(tmp_path, bad=text, good=backend("good", 200)).backend_infos()
    assert (good.name, good.unavailable, good.faults) == ("good", None, ())
    assert bad.unavailable == "faulty: see `graft backends doctor`"
    assert bad.faults == ("plugin 'bad' raised OSError in available: bad library",)


def test_a_plugin_file_may_define_dataclasses(tmp_path):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass Row:\n    x: int\n"
    assert names(manager_of(tmp_path, rows=text + backend("rows"))) == ["rows"]


def test_datatypes_of_plugins_are_registered_under_their_names(tmp_path: Path) -> None:
    from graft.datatypes.shipped import DATATYPES

    code = HOOK + (
        "from graft.datatypes.posit import Posit\nfrom graft.datatypes.registry import Datatype\n"
        "@hookimpl\ndef graft_datatypes():\n    return [Datatype('posit24', formats=lambda bits: Posit(24))]\n"
    )
    manager_of(tmp_path, more=code).plugins()
    manager_of(tmp_path, more=code).plugins()
    assert DATATYPES.of("custom[posit24]24").owner == "plugin 'more'"


INTERRUPTED = """
import os, signal
from graft.plugins.backend import Backend

if not os.path.exists({mark!r}):
    open({mark!r}, "w").close()
    signal.raise_signal(signal.SIGINT)

class Late(Backend):
    name = "late"
"""


INTERRUPTED_HOOK = """
import os, signal

@hookimpl
def graft_backends():
    if not os.path.exists({mark!r}):
        open({mark!r}, "w").close()
        signal.raise_signal(signal.SIGINT)
    return [Npu]

@hookimpl
def graft_passes(stage): return []
"""


@pytest.fixture
def ctrl_c():
    """The signal interrupts, also where whoever started the tests ignores it (nohup, some CI)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_plugins_load_passes_and_the_next_call_loads_the_rest(tmp_path):
    slow = INTERRUPTED.format(mark=str(tmp_path / "mark"))
    manager = manager_of(tmp_path, early=backend("early"), late=slow, last=backend("last"))
    with pytest.raises(KeyboardInterrupt):
        manager.plugins()
    assert names(manager) == ["early", "last", "late"]
    assert [plugin.failure for plugin in manager.plugins()] == [None, None, None]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_hook_brings_backends_registers_nothing_twice(tmp_path):
    mark = str(tmp_path / "mark")
    text = backend("late") + HOOK + INTERRUPTED_HOOK.format(mark=mark)
    manager = manager_of(tmp_path, late=text)
    with pytest.raises(KeyboardInterrupt):
        manager.plugins()
    assert names(manager) == ["late"]
    assert manager.passes("import") == []


def test_a_second_thread_waits_until_plugins_are_loaded(tmp_path):
    slow = "import time\ntime.sleep(0.3)\n" + backend("slow")
    manager = manager_of(tmp_path, slow=slow)
    with ThreadPoolExecutor(2) as pool:
        found = [job.result() for job in [pool.submit(names, manager) for _ in range(2)]]
    assert found == [["slow"], ["slow"]]


def test_a_plugin_may_ask_for_the_others_while_it_is_loaded(tmp_path):
    text = (
        "import sys\nfrom tests.plugins.registry import test_manager\nheld = test_manager.asking.names(None)\n"
        + backend("b")
    )
    global asking
    manager = manager_of(tmp_path, a=backend("a"), b=text)

    class Asking:
        def names(self, wanted):
            return names(manager, wanted)

    asking = Asking()
    assert names(manager) == ["a", "b"]
    assert sys.modules["graft_plugin_b"].held == ["a"]


def test_a_foreign_plugin_of_an_own_name_is_refused_alone(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-fake", "1", {"llvm": "fake_llvm"}, fake_llvm=backend("fake"))
    manager = PluginManager()
    assert "llvm" in names(manager)
    assert "fake" not in names(manager)
    (failure,) = [plugin.failure for plugin in manager.plugins() if plugin.source.distribution == "graft-fake"]
    assert failure is not None
    assert failure.message == "plugin 'llvm' is Graft's own and is claimed by graft-fake 1; choose another name"
