"""Signatures of artifacts: what they cover, whose count, and that what was checked is what is used."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from graft.errors import ArtifactError
from graft.runtime.artifact import SIGNATURES, read
from graft.runtime.loading import load
from graft.runtime.trust.keys import TrustedKey, TrustedKeys, configured, key_name, read_keys
from graft.runtime.trust.signatures import accepting, new_key, read_key, sign, statement, verify_file
from tests.runtime.artifacts import LOADER, members_of, packed, resealed, write

pytest.importorskip("cryptography", reason="signatures need the extra `sign`")

TODAY = date(2026, 6, 1)


class Signer:
    """A key in a folder, and the files of trusted keys that name it."""

    def __init__(self, folder: Path, name: str = "ours") -> None:
        self.folder, self.name = folder, name
        self.public = new_key(folder / f"{name}.pem")
        self.key = read_key(folder / f"{name}.pem")

    def trusted(self, more: str = "", revoked: str = "") -> Path:
        path = self.folder / f"{self.name}.toml"
        path.write_text(
            f'revoked = [{revoked}]\n[[key]]\nname = "{self.name}"\npublic = "{self.public.hex()}"\n{more}\n',
            encoding="utf-8",
        )
        return path


@pytest.fixture
def ours(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    write(tmp_path / "p.graft")
    return tmp_path / "p.graft"


def refusal(path: Path, keys: Path) -> str:
    with pytest.raises(ArtifactError) as caught:
        load(path, keys=keys, loaders=[LOADER])
    return caught.value.message


def test_signed_artifact_is_loaded_and_runs(ours: Signer, artifact: Path) -> None:
    before = members_of(artifact.read_bytes())
    assert sign(artifact, ours.key) == key_name(ours.public)
    program = load(artifact, native="signed", keys=ours.trusted(), loaders=[LOADER])
    np.testing.assert_array_equal(program(np.ones(4, np.float32), np.array(False)), np.ones(4))
    after = members_of(artifact.read_bytes())
    assert after.pop(SIGNATURES) and after == before
    assert SIGNATURES not in read(artifact).files
    load(artifact, native="run", loaders=[LOADER])


def test_artifact_without_a_signature_is_refused(ours: Signer, artifact: Path) -> None:
    keys = ours.trusted()
    message = f"no trusted key of '{keys}' has signed '{artifact}': it has no signature; `graft sign` gives it one"
    assert refusal(artifact, keys) == message
    with pytest.raises(ArtifactError) as caught:
        verify_file(artifact, read_keys(keys))
    assert caught.value.message == message


def test_any_change_makes_the_signature_wrong_though_all_hashes_are_right(ours: Signer, artifact: Path) -> None:
    sign(artifact, ours.key)
    members = members_of(artifact.read_bytes())
    signatures = members.pop(SIGNATURES)
    forged = members_of(resealed({**members, "modules/0000.test": b"other code"}))
    artifact.write_bytes(packed({**forged, SIGNATURES: signatures}))
    load(artifact, native="run", loaders=[LOADER])
    keys, name = ours.trusted(), key_name(ours.public)
    assert refusal(artifact, keys) == (
        f"no trusted key of '{keys}' has signed '{artifact}': the signature of key 'ours' ({name}) is not of this "
        "content"
    )


def test_members_are_checked_at_once_and_constants_too(ours: Signer, artifact: Path) -> None:
    sign(artifact, ours.key)
    raw = artifact.read_bytes()
    place = raw.index(np.arange(4, dtype=np.float32).tobytes())
    artifact.write_bytes(raw[: place + 4] + b"\x01" + raw[place + 5 :])
    read(artifact, later=True)
    assert refusal(artifact, ours.trusted()) == (
        "artifact is damaged: member 'constants.safetensors' does not have the hash in manifest.json; compile it again"
    )


def test_what_was_checked_is_what_is_used(ours: Signer, artifact: Path) -> None:
    sign(artifact, ours.key)
    consent = accepting(artifact, read_keys(ours.trusted()))

    def accept(message: bytes, signatures: bytes | None) -> None:
        consent(message, signatures)
        with artifact.open("r+b") as file:
            file.write(b"\xff" * artifact.stat().st_size)

    description = read(artifact, accept=accept)
    assert description.modules[0].data == b"code"
    assert artifact.read_bytes()[:4] == b"\xff\xff\xff\xff"


def test_keys_are_exchanged_by_a_second_signature_and_revoked(tmp_path: Path, ours: Signer, artifact: Path) -> None:
    following = Signer(tmp_path, "following")
    sign(artifact, ours.key)
    other, name = following.trusted(), key_name(ours.public)
    assert refusal(artifact, other).endswith(f": key {name} is not among the trusted keys")
    sign(artifact, following.key)
    sign(artifact, following.key)
    assert len(json.loads(members_of(artifact.read_bytes())[SIGNATURES])["signatures"]) == 2
    for keys in (ours.trusted(), other):
        load(artifact, keys=keys, loaders=[LOADER])
    keys = ours.trusted(revoked=f'"{name}"')
    assert refusal(artifact, keys) == (
        f"no trusted key of '{keys}' has signed '{artifact}': key 'ours' ({name}) was revoked; key "
        f"{key_name(following.public)} is not among the trusted keys"
    )


def test_days_of_a_key() -> None:
    key = TrustedKey("k", bytes(32), date(2026, 1, 1), date(2026, 12, 31))
    keys = TrustedKeys(Path("keys.toml"), {key.name: key})
    assert keys.fault(key.name, date(2025, 12, 31)) == "is valid from 2026-01-01 on"
    assert keys.fault(key.name, TODAY) == keys.fault(key.name, date(2026, 12, 31)) == ""
    assert keys.fault(key.name, date(2027, 1, 1)) == "was valid until 2026-12-31"


def test_key_out_of_its_days_counts_no_more(ours: Signer, artifact: Path) -> None:
    sign(artifact, ours.key)
    assert refusal(artifact, ours.trusted("until = 2020-01-01")).endswith("was valid until 2020-01-01")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[key]]\npublic = 'ab'", "key '' has 1 bytes, an Ed25519 public key has 32"),
        (
            "[[key]]\nuntill = 2020-01-01",
            "'untill' is no field of it; there are revoked, key, name, public, from, until",
        ),
        ("revoke = []", "'revoke' is no field of it; there are revoked, key, name, public, from, until"),
        ("revoked = ['5']", "'revoked' is no list of names of keys, which have 32 digits"),
        (
            f"[[key]]\npublic = '{'0' * 64}'\nuntil = '2020-01-01'",
            "key '' has the day '2020-01-01'; write it as in 2026-01-31, without quotes",
        ),
    ],
)
def test_file_of_keys_that_says_anything_else_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactError) as caught:
        read_keys(path)
    assert caught.value.message == f"the trusted keys '{path}' cannot be read: {fault}"


def test_configured_keys_make_signed_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ours: Signer, artifact: Path
) -> None:
    monkeypatch.delenv("GRAFT_TRUSTED_KEYS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert configured() is None
    load(artifact, loaders=[LOADER])
    (tmp_path / "graft").mkdir()
    ours.trusted().rename(tmp_path / "graft" / "trusted-keys.toml")
    with pytest.raises(ArtifactError, match="it has no signature"):
        load(artifact, loaders=[LOADER])
    load(artifact, native="run", loaders=[LOADER])
    monkeypatch.setenv("GRAFT_TRUSTED_KEYS", "")
    load(artifact, loaders=[LOADER])
    monkeypatch.setenv("GRAFT_TRUSTED_KEYS", str(tmp_path / "none.toml"))
    with pytest.raises(ArtifactError, match=r"cannot read the trusted keys '.*none\.toml': No such file or directory"):
        load(artifact, loaders=[LOADER])


def test_signature_is_that_of_rfc_8032_over_a_line_of_text() -> None:
    """The key of its test 1; the signature, made once, so that other versions and implementations agree."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Ed25519PrivateKey.from_private_bytes(secret)
    assert key.public_key().public_bytes_raw().hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    message = statement("manifest", b"{}")
    assert message == (
        b"graft signature 1\nmanifest sha256 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\n"
    )
    assert key.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")


def test_private_key_is_its_owners_alone_and_never_written_over(ours: Signer) -> None:
    path = ours.folder / "ours.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ArtifactError) as caught:
        new_key(path)
    assert caught.value.message == f"there is a file '{path}' already; a key is not written over"
    (ours.folder / "text").write_text("no key", encoding="utf-8")
    with pytest.raises(ArtifactError, match="is no private key that can be read"):
        read_key(ours.folder / "text")
