import json
import sys

from graft.plugins.onednn import library
from tests.plugins.distributions import install


def test_list_shows_what_is_installed_without_importing_it(graft, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-loud", "1.2", {"loud": "loud_one"}, loud_one="raise SystemExit")
    outcome = graft("backends", "list", "--json")
    row = {"name": "loud", "distribution": "graft-loud", "version": "1.2", "provides": "loud_one", "note": ""}
    assert row in json.loads(outcome.out)["plugins"]
    assert "loud_one" not in sys.modules


def test_list_marks_a_name_that_two_distributions_claim(graft, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-a", "1", {"twin": "twin_a"})
    install(tmp_path, monkeypatch, "graft-b", "2", {"twin": "twin_b"})
    lines = [line.split(maxsplit=4) for line in graft("backends", "list").out.splitlines()]
    assert [line for line in lines if line[0] == "twin"] == [
        ["twin", "graft-a", "1", "twin_a", "claimed twice: refused"],
        ["twin", "graft-b", "2", "twin_b", "claimed twice: refused"],
    ]


def test_list_says_how_to_install_a_missing_library(graft, monkeypatch):
    monkeypatch.setattr(library, "open_library", lambda: None)
    (row,) = [row for row in json.loads(graft("backends", "list", "--json").out)["plugins"] if row["name"] == "onednn"]
    assert row["note"] == "oneDNN is not installed; pip install 'graft-compiler[onednn]'"


def test_list_marks_a_foreign_plugin_with_a_name_of_grafts_own(graft, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-fake", "1", {"llvm": "fake"})
    rows = json.loads(graft("backends", "list", "--json").out)["plugins"]
    notes = {row["distribution"]: row["note"] for row in rows if row["name"] == "llvm"}
    assert notes == {"graft-compiler": "", "graft-fake": "Graft's own name: refused"}


def test_backends_alone_lists(graft):
    assert graft("backends").out == graft("backends", "list").out


def test_show_describes_one_backend(graft, npu):
    assert graft("backends", "show", "npu", "--plugin", npu).out == (
        "npu\n  plugin      npu (file npu.py)\n  priority    100\n  default     yes\n  available   yes\n"
        "  operators   MatMul\n"
    )


def test_show_of_an_unknown_backend_names_the_nearest(graft, npu):
    outcome = graft("backends", "show", "npx", "--plugin", npu)
    assert outcome.code == 1
    assert outcome.err.startswith("graft: unknown backend 'npx'; did you mean 'npu'? known backends are ")


def test_the_doctor_fails_on_a_broken_plugin_and_shows_why(graft, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "graft-broken", "1", {"broken": "broken_one"}, broken_one="import no_such_library")
    outcome = graft("backends", "doctor", "-v")
    assert outcome.code == 5
    assert (
        "error: plugin 'broken' raised ModuleNotFoundError in import of graft-broken 1: "
        "No module named 'no_such_library'\nTraceback (most recent call last)"
    ) in outcome.out


def test_a_broken_plugin_file_is_a_plugin_fault(graft, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("1 / 0")
    outcome = graft("backends", "show", "--plugin", path)
    assert outcome.code == 5
    assert outcome.err == (
        "graft: plugin 'broken' raised ZeroDivisionError in import of file broken.py: division by zero "
        "(-v shows the traceback)\n"
    )


def test_a_backend_that_is_left_out_is_not_there(graft, npu):
    outcome = graft("backends", "show", "reference", "--without", "reference")
    assert outcome.code == 1
    assert outcome.err == "graft: backend 'reference' is disabled; leave it out, or enable its plugin\n"


def test_list_shows_a_plugin_file_by_its_name(graft, npu):
    rows = json.loads(graft("backends", "list", "--plugin", npu, "--json").out)["plugins"]
    assert [row["provides"] for row in rows if row["name"] == "npu"] == [str(npu)]


def test_show_says_which_backends_take_part_only_when_named(graft, npu, model):
    npu.write_text(npu.read_text().replace('name = "npu"', 'name = "npu"\n    by_default = False'))
    out = graft("backends", "show", "npu", "--plugin", npu).out
    assert "  default     no: takes part only when named, as in -b npu\n" in out
    assert (
        json.loads(graft("backends", "show", "npu", "--plugin", npu, "--json").out)["backends"][0]["by_default"]
        is False
    )
    assert "npu" not in graft("plan", model, "--plugin", npu).out
    assert graft("plan", model, "--plugin", npu, "-b", "npu,reference").out.startswith("npu 1/3 ops")


def test_a_plugin_is_disabled_and_enabled_for_all_calls(graft, model, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAFT_CONFIG", str(file := tmp_path / "config.toml"))
    assert graft("plugin", "disable", "onednn").out == f"'onednn' is disabled in {file}\n"
    (row,) = [line for line in graft("backends", "list").out.splitlines() if line.startswith("onednn ")]
    assert row.endswith("disabled")
    refused = graft("plan", model, "-b", "onednn")
    assert (refused.code, refused.err) == (
        1,
        "graft: backend 'onednn' is disabled; leave it out, or enable its plugin\n",
    )
    listed = json.loads(graft("plugin", "disable", "xnnpack", "--json").out)
    assert listed == {"disabled": ["onednn", "xnnpack"], "configuration": str(file)}
    assert graft("plugin", "enable", "onednn").out == f"'onednn' is enabled in {file}\n"
    assert graft("plugin", "enable", "onednn").err == "graft: plugin 'onednn' is not disabled; disabled are xnnpack\n"
    assert graft("plugin", "disable", "onedn").err == (
        "graft: no plugin 'onedn' is installed; did you mean 'onednn'? `graft backends list` names them\n"
    )


def test_options_are_shown_with_type_default_and_help(graft):
    *_, first, second = graft("backends", "show", "c_source").out.splitlines()
    help = "false only writes C, for any machine and without a compiler: for exports"
    assert first == f"  options     compiles=bool (true): {help}"
    assert second.strip().startswith("narrow_indices=bool (false): indices in 32 bits where extents allow")
