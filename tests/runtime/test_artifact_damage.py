"""Damaged and hostile artifacts: an ArtifactError, always."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graft.errors import ArtifactError
from graft.runtime.artifact import read, safetensors, save
from graft.runtime.constants import constant_key
from graft.runtime.loading import load

from .artifacts import LOADER, WEIGHT, changed, description, load_mutations, members_of, packed, resealed, write

AGAIN = "; compile it again"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.graft")
    return tmp_path / "a.graft"


def message_of(path: Path, raw: bytes | None = None) -> str:
    """Load the bytes, which must be refused, and return what is said."""
    if raw is not None:
        path.write_bytes(raw)
    with pytest.raises(ArtifactError) as caught:
        load(path, threads=1, loaders=[LOADER], strict=True)
    return str(caught.value)


def test_the_artifact_of_these_tests_runs(path: Path) -> None:
    program = load(path, threads=1, loaders=[LOADER])
    x = np.ones(4, dtype=np.float32)
    np.testing.assert_array_equal(program(x, np.array(True)), np.arange(4, dtype=np.float32) ** 2)
    np.testing.assert_array_equal(program(x, np.array(False)), x)


def test_a_file_cut_off_anywhere_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    assert message_of(path, b"") == f"cannot open artifact '{path}': it is empty"
    for length in range(1, len(raw)):
        assert message_of(path, raw[:length]).startswith("artifact is damaged: ")
    assert message_of(path, raw[:-1]) == (
        "artifact is damaged: it does not end as an artifact does; it may be truncated "
        f"(at byte {len(raw) - 99}){AGAIN}"
    )
    assert message_of(path, raw[:50]) == f"artifact is damaged: it is too short to be an archive (at byte 50){AGAIN}"


def test_a_byte_more_is_refused(path: Path) -> None:
    raw = path.read_bytes()
    assert message_of(path, raw + b"\0").startswith("artifact is damaged: ")
    assert message_of(path, b"\0" + raw).startswith("artifact is damaged: ")


FLIPS = """
import sys
from graft.errors import ArtifactError
from graft.runtime import _native
path, raw = sys.argv[1], bytearray(open(sys.argv[1], "rb").read())
for position in range(len(raw)):
    for bit in range(8):
        raw[position] ^= 1 << bit
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(raw[position : position + 1])
        try:
            _native.check_artifact(_native.open_artifact(path)[2])
            print("not noticed", position, bit)
        except ArtifactError:
            pass
        raw[position] ^= 1 << bit
        with open(path, "r+b") as file:
            file.seek(position)
            file.write(raw[position : position + 1])
print("done", len(raw))
"""


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    size = path.stat().st_size
    found = subprocess.run([sys.executable, "-c", FLIPS, path], capture_output=True, text=True, timeout=300)
    assert (found.stdout, found.returncode) == (f"done {size}\n", 0), found.stderr


def test_damaged_constants_are_refused_when_they_are_first_used(tmp_path: Path) -> None:
    path = tmp_path / "a.graft"
    key = constant_key(WEIGHT)
    given = description()
    save(replace(given, modules=(replace(given.modules[0], constants={}),)), path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(WEIGHT.tobytes()) + 5] ^= 1
    path.write_bytes(raw)
    expected = f"artifact is damaged: constant '{key}' does not have the hash in its name{AGAIN}"
    for threads in (1, 2):
        program = load(path, threads=threads, loaders=[LOADER], strict=True)
        for use in (program, program, program.profile, lambda *_, program=program: program.save(tmp_path / "b.graft")):
            with pytest.raises(ArtifactError) as caught:
                use(np.ones(4, dtype=np.float32), np.array(True))
            assert str(caught.value) == expected
    with pytest.raises(ArtifactError) as caught:
        read(path)
    assert str(caught.value) == expected
    assert sorted(tmp_path.iterdir()) == [path]


def test_damaged_constants_are_not_handed_to_a_module(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[raw.index(WEIGHT.tobytes()) + 5] ^= 1
    said = message_of(path, bytes(raw))
    assert said == f"artifact is damaged: constant '{constant_key(WEIGHT)}' does not have the hash in its name{AGAIN}"


def test_constants_named_otherwise_are_checked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.graft"
    given = description()
    product = given.procedures[1]
    renamed = tuple(replace(one, constant="w") if one.constant else one for one in product.tensors)
    procedures = (given.procedures[0], replace(product, tensors=renamed), given.procedures[2])
    modules = (replace(given.modules[0], constants={}),)
    save(replace(given, procedures=procedures, modules=modules, constants={"w": WEIGHT}), path)
    load(path, threads=1, loaders=[LOADER], strict=True)(np.ones(4, dtype=np.float32), np.array(True))
    raw = bytearray(path.read_bytes())
    raw[raw.index(WEIGHT.tobytes()) + 5] ^= 1
    said = message_of(path, bytes(raw))
    assert said == f"artifact is damaged: member 'constants.safetensors' does not have the hash in manifest.json{AGAIN}"


def test_what_is_no_artifact_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.graft"
    assert message_of(path) == f"cannot open artifact '{path}': No such file or directory"
    assert message_of(tmp_path) == f"cannot open artifact '{tmp_path}': it is not a regular file"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "b")
    assert message_of(path).startswith("artifact is damaged: it does not end as an artifact does")
    assert message_of(path, packed({"a": b"b"})) == "not a Graft artifact: it has no manifest.json"


def _set(*keys: str | int, value: Any) -> Callable[[Any], None]:
    """Return a change that puts a value at a place of the manifest."""

    def change(facts: Any) -> None:
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = value

    return change


def _remove(*keys: str | int) -> Callable[[Any], None]:
    def change(facts: Any) -> None:
        for key in keys[:-1]:
            facts = facts[key]
        del facts[keys[-1]]

    return change


LACKS = "' is damaged: its manifest lacks a field, or has one of another kind"
PRODUCT = "damaged manifest: procedure 1, "
HOSTILE: list[tuple[Callable[[Any], None], str]] = [
    (
        _set("format", value=5),
        "artifact has format 5, this runtime reads up to 4; upgrade graft-compiler, or compile the model with this "
        "version",
    ),
    (_set("format", value="1"), "artifact is damaged: manifest.json states no format; compile it again"),
    (
        _set("abi", value=1),
        "artifact '{path}' was compiled for ABI version 1 of Graft's runtime, and this runtime has version 2; compile "
        "it again, or install the runtime that belongs to it",
    ),
    (_remove("members"), "artifact is damaged: manifest.json lists no members; compile it again"),
    (
        _remove("members", "model.onnx"),
        "artifact is damaged: member 'model.onnx' is not listed in manifest.json; compile it again",
    ),
    (_set("members", "b", value={}), "artifact is damaged: member 'b' is missing; compile it again"),
    (_set("members", "../b", value={}), "artifact is damaged: member '../b' is missing; compile it again"),
    (
        _set("members", "model.onnx", "sha256", value="0" * 64),
        "artifact is damaged: member 'model.onnx' does not have the hash in manifest.json; compile it again",
    ),
    (
        _set("members", "model.onnx", "size", value=1 << 62),
        "artifact is damaged: member 'model.onnx' does not have the hash in manifest.json; compile it again",
    ),
    (_set("modules", value={}), "artifact is damaged: manifest.json lists no modules; compile it again"),
    (_set("modules", value=[]), PRODUCT + "call 0: 'module' is 0, not between 0 and -1"),
    (
        _set("modules", value=[7]),
        "artifact is damaged: a module in manifest.json lacks name, kind or member; compile it again",
    ),
    (
        _set("modules", 0, "member", value="modules/../../etc/passwd"),
        "artifact is damaged: module 'm' names no member; compile it again",
    ),
    (
        _set("modules", 0, "constants", "bias", value="0"),
        "artifact is damaged: module 'm' needs constant '0', which is missing; compile it again",
    ),
    (
        _set("modules", 0, "functions", value=["g"]),
        "damaged manifest: procedure 1: call 0: module 'm' has no function 'f'",
    ),
    (_set("modules", 0, "functions", value=[["f"]]), LACKS),
    (_set("modules", 0, "functions", value=7), LACKS),
    (_set("modules", 0, "plugin", value=["x"]), LACKS),
    (_set("modules", 0, "install", value=None), LACKS),
    (_remove("modules", 0, "plugin"), LACKS),
    (_set("targets", value=[7]), LACKS),
    (_set("targets", value=["arch"]), LACKS),
    (_set("metadata", value=3), LACKS),
    (_remove("procedures"), LACKS),
    (_set("procedures", value=[]), "damaged manifest: no procedure"),
    (_set("procedures", value={"a": 1}), LACKS),
    (_set("procedures", 1, "arena_bytes", value=-64), "'arena_bytes' is -64, not between 0 and"),
    (_set("procedures", 1, "arena_bytes", value=1 << 63), "damaged manifest: procedure 1: 'arena_bytes' is not"),
    (
        _set("procedures", 1, "arena_bytes", value=1 << 60),
        "artifact '{path}' needs more memory than there is: out of memory: the program needs an arena of ",
    ),
    (_set("procedures", 1, "tensors", 2, "shape", value=[1 << 40, 1 << 40]), "is too large"),
    (_set("procedures", 1, "tensors", 2, "shape", value=[-4]), "is not a natural number, or is too large"),
    (
        _set("procedures", 1, "tensors", 2, "shape", value=[1.5]),
        "1.5 is neither a number nor an earlier symbol or extent",
    ),
    (_set("procedures", 1, "tensors", 2, "shape", value=[1] * 33), "at most 32 integers"),
    (_set("procedures", 1, "tensors", 2, "shape", value="45"), "'4' is neither a number nor an earlier"),
    (
        _set("procedures", 1, "tensors", 2, "offset", value=64),
        PRODUCT + "tensor 2: 16 bytes at 'offset' 64 leave the arena of 64 bytes",
    ),
    (
        _set("procedures", 1, "tensors", 2, "offset", value=-64),
        PRODUCT + "tensor 2: 'offset' is -64, not between 0 and 9223372036854775807",
    ),
    (_set("procedures", 1, "tensors", 2, "dtype", value="float33"), "unknown 'dtype' \"float33\""),
    (_set("procedures", 1, "tensors", 3, "constant", value="0"), "constant '0' of tensor 'w' is missing"),
    (
        _set("procedures", 1, "tensors", 3, "shape", value=[5]),
        "is float32[4], and tensor 'w' needs float32[5]",
    ),
    (_set("procedures", 1, "calls", 0, "module", value=-1), "'module' is -1, not between 0 and 0"),
    (_set("procedures", 1, "calls", 0, "inputs", value=[0, 99]), "entry 1 of 'inputs' is not an integer between"),
    (_set("procedures", 1, "calls", 0, "outputs", value=[3]), "its bytes are those of an input or a constant"),
    (_set("procedures", 1, "inputs", value=[0, 0]), "body 'product' has 2 inputs, the call needs 1"),
    (
        _set("procedures", 0, "calls", 0, "bodies", value=[0, 0]),
        "damaged manifest: bodies are nested more than 32 deep, or contain themselves",
    ),
    (
        _set("procedures", 0, "calls", 0, "bodies", value=[1, 3]),
        "entry 1 of 'bodies' is not an integer between 0 and 2",
    ),
    (_set("procedures", 0, "calls", 0, "bodies", value=[1]), "1 bodies and 2 lists of arguments, not 2 each"),
    (_set("procedures", 0, "calls", 0, "arguments", value=[[0], [1]]), "damaged manifest: procedure 0: call 0: "),
    (_set("procedures", 0, "calls", 0, "kind", value="goto"), "unknown 'kind' \"goto\""),
]


@pytest.mark.parametrize(("change", "expected"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_manifest_is_refused(path: Path, change: Callable[[Any], None], expected: str) -> None:
    said = message_of(path, changed(path.read_bytes(), change))
    assert expected.format(path=path) in said


def test_a_manifest_that_is_no_json_is_refused(path: Path) -> None:
    members = members_of(path.read_bytes())
    for text, reason in {
        b"": "invalid JSON at byte 0: expected a value",
        b"[" * 10000: "invalid JSON at byte 128: nested too deeply",
        b'{"format":1,"format":1}': "invalid JSON at byte 22: duplicate key in the object that ends here",
        b'{"format":1e400}': "invalid JSON at byte 10: number is too large",
        b'{"format":NaN}': "invalid JSON at byte 10: expected a value",
        b'{"format":"\xff"}': "invalid JSON at byte 11: invalid UTF-8",
    }.items():
        said = message_of(path, packed({**members, "manifest.json": text}))
        assert said == f"artifact is damaged: manifest.json: {reason}{AGAIN}"


@pytest.mark.parametrize(
    "name", ["../x", "a/../b", "/etc/passwd", "./a", "a//b", "a/", "C:a", "a\\b", "a\nb", ".hidden", "a" * 1025]
)
def test_a_member_whose_name_leaves_the_archive_is_refused(path: Path, name: str) -> None:
    said = message_of(path, resealed({**members_of(path.read_bytes()), name: b"x"}))
    assert said.startswith("artifact is damaged: a member's name is not allowed (at byte ")


def test_two_members_of_one_name_are_refused(path: Path) -> None:
    raw = packed({**members_of(path.read_bytes()), "aaaa": b"x", "bbbb": b"y"}).replace(b"bbbb", b"aaaa")
    assert message_of(path, raw).startswith("artifact is damaged: two members have one name (at byte ")


def test_members_that_overlap_are_refused(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\x01\x02")
    size = entry + 46 + len("manifest.json") + 4
    raw[size : size + 8] = (len(raw) // 2).to_bytes(8, "little")
    assert message_of(path, bytes(raw)).startswith("artifact is damaged: ")


def _header(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return constants in safetensors layout with a changed header."""
    raw = b"".join(safetensors({"a": np.arange(4, dtype=np.float32), "b": np.arange(3, dtype=np.int64)}))
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text + raw[8 + length :]


CONSTANTS: list[tuple[Callable[[Any], None], str]] = [
    (_set("a", "dtype", value="F31"), "unknown dtype (tensor 'a')"),
    (_set("a", "shape", value=[1 << 62, 8]), "the shape is too large (tensor 'a')"),
    (_set("a", "shape", value=[5]), "offsets do not fit dtype and shape (tensor 'a')"),
    (_set("a", "shape", value=[-4]), "a dimension is not a number of elements (tensor 'a')"),
    (_set("a", "shape", value=[1] * 65), "an entry has no shape (tensor 'a')"),
    (_set("a", "data_offsets", value=[0, 1 << 62]), "offsets do not follow (tensor 'a')"),
    (_set("a", "data_offsets", value=[16, 0]), "offsets do not follow (tensor 'a')"),
    (_set("b", "data_offsets", value=[0, 24]), "offsets do not follow (tensor 'b')"),
    (_set("a", "data_offsets", value=[-16, 0]), "offsets do not follow (tensor 'a')"),
    (_remove("b"), "there are bytes that belong to no tensor"),
    (_set("a", value=[]), "offsets do not follow (tensor 'a')"),
]


@pytest.mark.parametrize(("change", "expected"), CONSTANTS, ids=range(len(CONSTANTS)))
def test_hostile_constants_are_refused(path: Path, change: Callable[[Any], None], expected: str) -> None:
    members = members_of(path.read_bytes())
    said = message_of(path, resealed({**members, "constants.safetensors": _header(change)}))
    assert said == f"artifact is damaged: constants: {expected}{AGAIN}"


@pytest.mark.parametrize("raw", [b"", b"1234567", b"\xff" * 16, b"\0" * 8 + b"{}", b"\1" + b"\0" * 7 + b"["])
def test_constants_without_a_header_are_refused(path: Path, raw: bytes) -> None:
    said = message_of(path, resealed({**members_of(path.read_bytes()), "constants.safetensors": raw}))
    assert said == f"artifact is damaged: constants: the header is cut off{AGAIN}"


def test_missing_constants_are_told(path: Path) -> None:
    members = members_of(path.read_bytes())
    del members["constants.safetensors"]
    assert message_of(path, resealed(members)) == f"artifact is damaged: constants.safetensors is missing{AGAIN}"


def test_an_archive_has_one_form(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.graft", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members_of(path.read_bytes()).items():
            archive.writestr(name, data)
    assert message_of(tmp_path / "other.graft").startswith("artifact is damaged: ")


@pytest.mark.parametrize("seed", range(2))
def test_a_mutated_manifest_never_crashes_the_loader(path: Path, seed: int) -> None:
    assert load_mutations(path, seed) == ("done True\n", 0)


def test_an_artifact_of_the_format_before_is_read(path: Path) -> None:
    path.write_bytes(changed(path.read_bytes(), _set("format", value=1)))
    assert load(path, threads=1, loaders=[LOADER]).inputs[0].name == "x"
