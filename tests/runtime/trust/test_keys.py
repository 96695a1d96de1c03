"""The file of trusted keys: what counts, from when to when, and what the file may not say."""

from __future__ import annotations

from datetime import date
from hashlib import sha256
from pathlib import Path

import pytest

from graft.errors import ArtifactError
from graft.runtime.trust.keys import VARIABLE, TrustedKey, configured, key_name, read_keys

PUBLIC = bytes(range(32))
ROW = f'[[key]]\nname = "release"\npublic = "{PUBLIC.hex()}"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "keys.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_key_is_named_by_the_first_digits_of_its_hash() -> None:
    assert key_name(PUBLIC) == sha256(PUBLIC).hexdigest()[:32]
    assert TrustedKey("release", PUBLIC).name == key_name(PUBLIC)


@pytest.mark.parametrize(
    ("today", "fault"),
    [
        (date(2025, 12, 31), "is valid from 2026-01-01 on"),
        (date(2026, 1, 1), ""),
        (date(2027, 6, 30), ""),
        (date(2027, 7, 1), "was valid until 2027-06-30"),
    ],
)
def test_a_key_counts_from_its_first_day_to_its_last(tmp_path: Path, today: date, fault: str) -> None:
    keys = read_keys(written(tmp_path, f"{ROW}from = 2026-01-01\nuntil = 2027-06-30\n"))
    assert keys.fault(key_name(PUBLIC), today) == fault
    assert keys.keys[key_name(PUBLIC)].label == "release"


def test_a_key_without_days_counts_always_and_others_never(tmp_path: Path) -> None:
    keys = read_keys(written(tmp_path, ROW))
    assert keys.fault(key_name(PUBLIC)) == ""
    assert keys.fault(key_name(PUBLIC), date(1970, 1, 1)) == ""
    assert keys.fault("0" * 32) == "is not among the trusted keys"


def test_a_revoked_key_does_not_count_though_it_is_listed(tmp_path: Path) -> None:
    keys = read_keys(written(tmp_path, f'revoked = ["{key_name(PUBLIC)}"]\n{ROW}'))
    assert keys.fault(key_name(PUBLIC)) == "was revoked"


def test_an_empty_file_trusts_nobody(tmp_path: Path) -> None:
    keys = read_keys(written(tmp_path, ""))
    assert (dict(keys.keys), keys.revoked) == ({}, frozenset())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("revokd = []", "'revokd' is no field of it; there are revoked, key, name, public, from, until"),
        (f"{ROW}til = 2027-01-01", "'til' is no field of it; there are revoked, key, name, public, from, until"),
        ('revoked = ["abc"]', "'revoked' is no list of names of keys, which have 32 digits"),
        ("revoked = [3]", "'revoked' is no list of names of keys, which have 32 digits"),
        (
            f'{ROW}until = "2027-01-01"',
            "key 'release' has the day '2027-01-01'; write it as in 2026-01-31, without quotes",
        ),
        ('[[key]]\nname = "short"\npublic = "00ff"', "key 'short' has 2 bytes, an Ed25519 public key has 32"),
        ('[[key]]\nname = "none"', "key 'none' has 0 bytes, an Ed25519 public key has 32"),
    ],
)
def test_a_file_that_says_anything_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ArtifactError) as caught:
        read_keys(path)
    assert str(caught.value) == f"the trusted keys '{path}' cannot be read: {said}"


def test_a_moment_is_no_day(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="write it as in 2026-01-31, without quotes"):
        read_keys(written(tmp_path, f"{ROW}until = 2027-01-01T00:00:00"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(ArtifactError) as caught:
        read_keys(path)
    assert str(caught.value) == f"cannot read the trusted keys '{path}': No such file or directory"


def test_the_environment_names_the_file_or_that_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "x.toml"))
    assert configured() == tmp_path / "x.toml"
    monkeypatch.setenv(VARIABLE, "")
    assert configured() is None


def test_without_a_word_the_users_configuration_counts_where_it_has_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert configured() is None
    path = tmp_path / "graft" / "trusted-keys.toml"
    path.parent.mkdir()
    path.write_text("")
    assert configured() == path
