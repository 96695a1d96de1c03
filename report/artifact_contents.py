"""What an artifact holds, read without the runtime: its manifest, and the partitioned model."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from graft.errors import ArtifactError
from graft.runtime.system.json_text import parse_json


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of an artifact, unchecked but for its form; raise ArtifactError if there is none."""
    try:
        manifest = parse_json(_member(path, "manifest.json"))
    except ValueError as error:
        raise ArtifactError(f"'{path}' has a damaged manifest: {error}", path=str(path)) from error
    if not isinstance(manifest, dict):
        raise ArtifactError(f"'{path}' has a damaged manifest: it is not an object", path=str(path))
    return manifest


def _member(path: Path, name: str) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except KeyError:
        raise ArtifactError(f"'{path}' holds no {name}: it is not an artifact of Graft", path=str(path)) from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise ArtifactError(f"'{path}' is damaged: {error}", path=str(path)) from error


def embedded_model(path: Path) -> Any:
    """Return the partitioned model in an artifact, as a proto without weights; raise ArtifactError if it is damaged."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load_model_from_string(_member(path, "model.onnx"))
    except DecodeError as error:
        raise ArtifactError(f"'{path}' is damaged: its model.onnx cannot be read", path=str(path)) from error
