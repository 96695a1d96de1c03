"""Signatures of artifacts and exported libraries: Ed25519 (RFC 8032), by the package ``cryptography``.

What is signed is a line of text with the SHA-256 of the manifest, which has that of every other member; of a library,
with that of its file. An artifact holds its signatures beside the manifest (``signatures.json``), a library in a file
beside it (``NAME.so.sig``). There may be several, of different keys: one that is trusted is enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import graft.runtime._native as _native
from graft.errors import ArtifactError
from graft.runtime.artifact import SIGNATURES, Content, write_archive
from graft.runtime.system.files import write, writing
from graft.runtime.system.json_text import parse_json
from graft.runtime.trust.keys import TrustedKey, TrustedKeys, key_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ELF = b"\x7fELF"
MOST_SIGNATURES = 64
"""That are tried: each costs time, and the file is not trusted yet (native/src/artifact/trust.c has the same)."""
INSTALL = "pip install 'graft-compiler[sign]'"


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ArtifactError(
            f"signatures need the package 'cryptography'; install it with: {INSTALL}", install=INSTALL
        ) from error
    return ed25519


def statement(kind: str, content: bytes | memoryview) -> bytes:
    """Return what a signature signs of a ``manifest`` or a ``file``."""
    return f"graft signature 1\n{kind} sha256 {sha256(content).hexdigest()}\n".encode()


# ---- Verifying ----------------------------------------------------------------------------------------------------


def trusted_key(
    path: str | os.PathLike[str], message: bytes, signatures: bytes | None, keys: TrustedKeys
) -> TrustedKey:
    """Return a trusted key that has signed a message; raise ArtifactError that says what each signature lacks."""
    if signatures is None:
        raise _refused(path, keys, "it has no signature; `graft sign` gives it one")
    faults = []
    for name, signature in _rows(path, signatures):
        fault = keys.fault(name)
        if not fault and _is_right(keys.keys[name].public, signature, message):
            return keys.keys[name]
        label = f"'{keys.keys[name].label}' ({name})" if name in keys.keys else name
        faults.append(f"key {label} {fault}" if fault else f"the signature of key {label} is not of this content")
    raise _refused(path, keys, "; ".join(faults) or "it has no signature; `graft sign` gives it one")


def _refused(path: str | os.PathLike[str], keys: TrustedKeys, reason: str) -> ArtifactError:
    return ArtifactError(
        f"no trusted key of '{keys.path}' has signed '{path}': {reason}", path=str(path), keys=str(keys.path)
    )


def accepting(path: str | os.PathLike[str], keys: TrustedKeys) -> Callable[[bytes, bytes | None], None]:
    """Return what `graft.runtime.artifact.read` asks for its consent."""

    def accept(message: bytes, signatures: bytes | None) -> None:
        trusted_key(path, message, signatures, keys)

    return accept


def verify_file(path: str | os.PathLike[str], keys: TrustedKeys) -> TrustedKey:
    """Return a trusted key that has signed an artifact or a library; raise ArtifactError if there is none."""
    found: list[TrustedKey] = []

    def accept(message: bytes, signatures: bytes | None) -> None:
        found.append(trusted_key(path, message, signatures, keys))

    if _is_library(path):
        sidecar = _sidecar(path)
        accept(statement("file", Path(path).read_bytes()), sidecar.read_bytes() if sidecar.exists() else None)
    else:
        _native.open_artifact(path, accept)
    return found[0]


def _is_right(public: bytes, signature: bytes, message: bytes) -> bool:
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _rows(path: str | os.PathLike[str], signatures: bytes) -> Sequence[tuple[str, bytes]]:
    """Return the names of keys with their signatures."""
    try:
        rows = parse_json(signatures)["signatures"]
        return [(str(row["key"]), bytes.fromhex(row["signature"])) for row in rows[:MOST_SIGNATURES]]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"the signatures of '{path}' cannot be read: {type(error).__name__}: {error}", path=str(path)
        ) from error


# ---- Signing ------------------------------------------------------------------------------------------------------


def new_key(path: str | os.PathLike[str]) -> bytes:
    """Write a new private key (PKCS 8, PEM) that only its owner may read; return its public key.

    Raise ArtifactError where there is a file.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if os.path.lexists(path):
        raise ArtifactError(f"there is a file '{path}' already; a key is not written over", path=str(path))
    key = _ed25519().Ed25519PrivateKey.generate()
    with writing(path, "key", ArtifactError, mode=0o600) as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return _public(key)


def read_key(path: str | os.PathLike[str], passphrase: bytes | None = None) -> Ed25519PrivateKey:
    """Return the private key in a file; raise ArtifactError if it is none, or locked by another passphrase."""
    ed25519 = _ed25519()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(Path(path).read_bytes(), passphrase)
    except OSError as error:
        raise ArtifactError(f"cannot read the key '{path}': {error.strerror or error}", path=str(path)) from error
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"'{path}' is no private key that can be read: {error}", path=str(path)) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ArtifactError(f"'{path}' is no Ed25519 key; `graft keys new` makes one", path=str(path))
    found: Ed25519PrivateKey = key
    return found


def sign(path: str | os.PathLike[str], key: Ed25519PrivateKey) -> str:
    """Sign an artifact, or a shared library in a file beside it; return the name of the key.

    Signatures of other keys stay. Raises ArtifactError for what is damaged.
    """
    name = key_name(_public(key))
    if _is_library(path):
        sidecar = _sidecar(path)
        known = sidecar.read_bytes() if sidecar.exists() else None
        message = statement("file", Path(path).read_bytes())
        write(sidecar, _with(path, known, name, key.sign(message)), "signatures", ArtifactError)
        return name
    members, _, artifact = _native.open_artifact(path)
    _native.check_artifact(artifact)
    contents: dict[str, Content] = {member: [data.data] for member, data in members.items()}
    old = members.get(SIGNATURES)
    manifest = bytes(members["manifest.json"])
    signed = _with(path, None if old is None else bytes(old), name, key.sign(statement("manifest", manifest)))
    order = {"manifest.json": contents.pop("manifest.json"), **dict(sorted(contents.items())), SIGNATURES: signed}
    with writing(path, "artifact", ArtifactError) as file:
        write_archive(file, order)
    return name


def _with(path: str | os.PathLike[str], known: bytes | None, name: str, signature: bytes) -> bytes:
    """Return signatures with one more, in the place of an earlier one of the same key."""
    rows = [] if known is None else [(other, one) for other, one in _rows(path, known) if other != name]
    texts = [{"key": other, "signature": one.hex()} for other, one in (*rows, (name, signature))]
    return json.dumps({"signatures": texts}, indent=1).encode() + b"\n"


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _is_library(path: str | os.PathLike[str]) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(ELF)) == ELF
    except OSError as error:
        raise ArtifactError(f"cannot open '{path}': {error.strerror or error}", path=str(path)) from error


def _sidecar(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.sig")
