"""`graft sign`, `verify-signature`, `keys`, and `--native` of the verbs that run artifacts."""

from __future__ import annotations

import json
import stat
import tomllib

import pytest

from graft.runtime.__main__ import main as runtime_main

pytest.importorskip("cryptography", reason="signatures need the extra `sign`")


@pytest.fixture
def key(graft, tmp_path):
    """A private key; what trusts it is ``trusted.toml`` beside it."""
    path = tmp_path / "key.pem"
    (tmp_path / "trusted.toml").write_text(graft("keys", "new", path, "--name", "release").out, encoding="utf-8")
    return path


def test_new_key_prints_the_row_that_trusts_it(key):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    (row,) = tomllib.loads((key.parent / "trusted.toml").read_text(encoding="utf-8"))["key"]
    assert row["name"] == "release" and len(bytes.fromhex(row["public"])) == 32


def test_signed_artifact_is_verified_and_runs(graft, key, artifact):
    trusted = key.parent / "trusted.toml"
    unsigned = graft("run", artifact, "--keys", trusted)
    assert unsigned.code == 1 and "it has no signature; `graft sign` gives it one" in unsigned.err
    assert graft("verify-signature", artifact, "--keys", trusted).code == 1
    signed = json.loads(graft("sign", artifact, "--key", key, "--json").out)
    verified = json.loads(graft("verify-signature", artifact, "--keys", trusted, "--json").out)
    assert verified == {"file": str(artifact), "key": signed["key"], "label": "release"}
    for verb in (("run",), ("profile", "-o", key.parent / "trace.json")):
        assert graft(*verb, artifact, "--keys", trusted).code == 0, verb


def test_library_is_signed_beside_it(graft, key, artifact):
    trusted, library = key.parent / "trusted.toml", key.parent / "model.so"
    assert graft("export", artifact, "-o", library).code == 0
    assert graft("verify-signature", library, "--keys", trusted).code == 1
    assert graft("sign", library, "--key", key).code == 0
    assert graft("verify-signature", library, "--keys", trusted).code == 0
    assert graft("run", library, "--keys", trusted).code == 0
    library.write_bytes(library.read_bytes() + b"\0")
    assert "is not of this content" in graft("verify-signature", library, "--keys", trusted).err


def test_listed_keys_say_which_count(graft, key):
    trusted = key.parent / "trusted.toml"
    row = trusted.read_text(encoding="utf-8")
    trusted.write_text(f'revoked = ["{"0" * 32}"]\n{row}until = 2020-02-29\n', encoding="utf-8")
    rows = json.loads(graft("keys", "list", "--keys", trusted, "--json").out)["keys"]
    assert [one["state"] for one in rows] == ["was valid until 2020-02-29", "was revoked"]


def test_verify_signature_says_where_keys_come_from(graft, artifact):
    assert graft("verify-signature", artifact).err == (
        "graft: no trusted keys are configured; give --keys FILE, or set GRAFT_TRUSTED_KEYS (docs/security.md)\n"
    )


def test_policies_on_the_command_line(graft, model, tmp_path, capsys):
    path = tmp_path / "kept.graft"
    assert graft("compile", model, "-o", path, "-b", "llvm", "--keep-weights").code == 0
    refused = graft("run", path, "--native", "refuse")
    assert refused.code == 1 and "holds machine code, which --native refuse does not run" in refused.err
    assert graft("run", path, "--native", "recompile").code == 0
    assert runtime_main([str(path), "--native", "refuse"]) == 1
    assert "which --native refuse does not run" in capsys.readouterr().err
    assert runtime_main([str(path), "--native", "recompile"]) == 0
    assert graft("run", path, "--native", "signed").err == (
        "graft: --native signed needs trusted keys, and none are configured; give --keys PATH (docs/security.md)\n"
    )
    assert "is a model: --native and --keys are for artifacts" in graft("run", model, "--native", "refuse").err


def test_deadline_on_the_command_line(graft, model):
    outcome = graft("run", model, "-b", "reference", "--deadline", "0")
    assert outcome.code == 1
    assert outcome.err.startswith("graft: the deadline of the run passed before call 1 of ")
