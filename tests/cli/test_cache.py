"""`graft cache` says what is kept, where, and what is not used because others may have made it."""

import json

import pytest

from graft.cli.cache import KINDS


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "graft"


def test_what_is_not_used_is_said(graft, model, cache):
    assert graft("compile", model, "-b", "llvm").code == 0
    count = json.loads(graft("cache", "--json").out)["kernels"]
    assert count > 0
    assert json.loads(graft("cache", "--json").out)["refused"] == dict.fromkeys(KINDS)
    cache.chmod(0o777)
    reason = f"the folder '{cache}' may be written by everybody (mode 0777)"
    data = json.loads(graft("cache", "--json").out)
    assert data["refused"] == dict.fromkeys(KINDS, reason)
    lines = graft("cache").out.splitlines()
    assert len(lines) == len(KINDS)
    assert all(line.endswith(f"; not used: {reason}") for line in lines)


def test_kernels_are_cleared_wherever_they_are_and_databases_are_not(graft, model, cache):
    assert graft("compile", model, "-b", "llvm").code == 0
    cache.chmod(0o777)
    assert graft("cache", "clear").out != "0 kernels removed\n"
    assert json.loads(graft("cache", "--json").out)["kernels"] == 0
    refused = graft("cache", "clear", "--what", "all")
    assert refused.code == 1
    assert refused.err.startswith(
        f"graft: the database '{cache}/tuned.sqlite3' is not used and not cleared: the folder '{cache}' may be written "
        "by everybody (mode 0777); mend that, or remove the file"
    )


def test_without_a_home_nothing_is_kept(graft, model, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "")
    reason = "there is no cache directory, for neither XDG_CACHE_HOME nor HOME is an absolute path"
    assert graft("compile", model, "-b", "llvm").code == 0
    assert graft("cache").out == f"nothing is kept: {reason}\n"
    assert json.loads(graft("cache", "--json").out)["refused"]["kernels"] == reason
    assert graft("cache", "clear", "--what", "all").out.startswith("0 kernels removed\n")
    assert json.loads(graft("cache", "tuned", "--json").out) == []
    tuned = graft("compile", model, "-b", "llvm", "--tune-seconds", "1")
    assert tuned.code == 1
    assert tuned.err == (
        f"graft: tuning needs a database to keep what it finds in: {reason}; "
        "set XDG_CACHE_HOME to a folder of your own\n"
    )


def test_a_model_is_compiled_where_nothing_can_be_kept(graft, model, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")  # where nobody can make a folder, root neither
    outcome = graft("compile", model, "-b", "llvm", "-o", "/dev/null")
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(graft("cache", "--json").out)["kernels"] == 0


def test_what_tuning_found_goes_to_a_file_and_into_another_database(graft, model, cache, tmp_path, monkeypatch):
    assert graft("compile", model, "-b", "llvm", "--tune-seconds", "2").code == 0
    rows = json.loads(graft("cache", "tuned", "--json").out)
    file = tmp_path / "tuned.json"
    assert graft("cache", "export", file).out == f"{len(rows)} tuned workloads written to {file}\n"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert json.loads(graft("cache", "merge", file, "--json").out) == {"rows": len(rows), "file": str(file)}
    assert json.loads(graft("cache", "tuned", "--json").out) == rows
    assert all(row["made"] and row["machine"] and row["compiler"] for row in rows)
    assert graft("cache", "merge").code == 2
    assert "'info' takes no file" in graft("cache", "info", file).err
    file.write_text("notes", encoding="utf-8")
    refused = graft("cache", "merge", file)
    assert (refused.code, refused.err.startswith(f"graft: the tunings '{file}' cannot be read: ")) == (1, True)
