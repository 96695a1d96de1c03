"""External data: read lazily inside the model's directory, refused everywhere else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, parser

from graft.core.graph.view import ValueView
from graft.core.importer.external_data import ModelDirectory, Reference
from graft.core.importer.load import load
from graft.errors import ModelError

WEIGHTS = np.arange(1024, dtype=np.float32)


def write_model(folder: Path, location: str, **entries: object) -> Path:
    """Write y = x + w, float32[1024], with w in the file ``location``."""
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[1024] x) => (float[1024] y) {y = Add(x, w)}'
    )
    tensor = proto.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1024])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def write_weights(path: Path, prefix: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(prefix + WEIGHTS.tobytes())


def refusal(path: Path | bytes) -> str:
    with pytest.raises(ModelError) as caught:
        load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("location", "entries", "prefix"),
    [
        ("w.bin", {}, b""),
        ("sub/w.bin", {"length": 4096}, b""),
        ("w.bin", {"offset": 8, "length": 4096}, b"12345678"),
        ("./w.bin", {"offset": 8, "checksum": "unused"}, b"12345678"),
    ],
)
def test_weights_beside_the_model_are_read(
    tmp_path: Path, location: str, entries: dict[str, object], prefix: bytes
) -> None:
    write_weights(tmp_path / location, prefix)
    model = load(write_model(tmp_path, location, **entries))
    constant = ValueView(model.graph.initializers["w"]).constant
    assert constant is not None
    assert np.array_equal(constant, WEIGHTS)


def test_weights_are_mapped_not_copied(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    model = load(write_model(tmp_path, "w.bin"))
    constant = ValueView(model.graph.initializers["w"]).constant
    assert constant is not None
    assert not constant.flags.owndata
    assert not constant.flags.writeable


def test_an_external_attribute_is_read(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    path = write_model(tmp_path, "w.bin")
    proto = onnx.load(path, load_external_data=False)
    node = proto.graph.node.add(op_type="Constant", output=["w"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(proto.graph.initializer[0])
    del proto.graph.initializer[:]
    path.write_bytes(proto.SerializeToString())
    constant = ValueView(load(path).graph.node("w").outputs[0]).constant
    assert constant is not None
    assert np.array_equal(constant, WEIGHTS)


@pytest.mark.parametrize("location", ["../w.bin", "sub/../../w.bin", "/etc/hostname", "..\\w.bin", "C:\\w.bin"])
def test_a_path_out_of_the_directory_is_refused(tmp_path: Path, location: str) -> None:
    assert refusal(write_model(tmp_path, location)) == (
        f"external data of tensor 'w' in '{location}': the path leaves the model's directory; "
        "use a relative path without '..'"
    )


def test_a_symbolic_link_is_refused_as_file_and_as_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_weights(tmp_path / "outside" / "w.bin")
    (folder / "link.bin").symlink_to(tmp_path / "outside" / "w.bin")
    (folder / "link").symlink_to(tmp_path / "outside")
    for location in ("link.bin", "link/w.bin"):
        assert refusal(write_model(folder, location)) == (
            f"external data of tensor 'w' in '{location}': cannot open '{folder / location}': it is a symbolic link "
            "that leads out of the model's directory; copy the file there"
        )


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    write_weights(tmp_path / "outside.bin")
    os.link(tmp_path / "outside.bin", tmp_path / "w.bin")
    assert refusal(write_model(tmp_path, "w.bin")) == (
        "external data of tensor 'w' in 'w.bin': the file has 2 hard links, so it may belong to somebody else; copy it"
    )


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").mkdir()
    os.mkfifo(tmp_path / "fifo.bin")
    for location in ("w.bin", "fifo.bin", "."):
        assert refusal(write_model(tmp_path, location)) == (
            f"external data of tensor 'w' in '{location}': that is not a regular file"
        )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(write_model(tmp_path, "none.bin")) == (
        f"external data of tensor 'w' in 'none.bin': cannot open '{tmp_path / 'none.bin'}': No such file or directory"
    )


def test_a_range_behind_the_end_is_refused(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    assert refusal(write_model(tmp_path, "w.bin", offset=8, length=4096)) == (
        "external data of tensor 'w' in 'w.bin' ends at byte 4104 but the file has 4096 bytes; "
        "is the download complete?"
    )
    assert refusal(write_model(tmp_path, "w.bin", offset=5000)) == (
        "external data of tensor 'w' in 'w.bin' ends at byte 5000 but the file has 4096 bytes; "
        "is the download complete?"
    )


def test_a_length_that_does_not_fit_the_type_is_refused(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    assert refusal(write_model(tmp_path, "w.bin", length=4000)) == (
        "external data of tensor 'w' in 'w.bin' has 4000 bytes but its type needs 4096; export the model again"
    )


def test_wrong_entries_are_refused(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    assert refusal(write_model(tmp_path, "w.bin", basepath="/")) == (
        "external data of tensor 'w' has the unknown key 'basepath'; known keys are location, offset, length, checksum"
    )
    assert refusal(write_model(tmp_path, "w.bin", offset=-4)) == (
        "external data of tensor 'w' has offset '-4', which is not a number of bytes"
    )
    assert refusal(write_model(tmp_path, "w.bin", length="9" * 30)) == (
        f"external data of tensor 'w' has length '{'9' * 30}', which is not a number of bytes"
    )
    assert refusal(write_model(tmp_path, "")) == "external data of tensor 'w' has no location"


def test_external_data_needs_the_path_of_the_model(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    assert refusal(write_model(tmp_path, "w.bin").read_bytes()) == (
        "tensor 'w' is stored in a file beside the model, but the model was given without its directory; "
        "load it by its path"
    )


def test_a_model_in_memory_that_refers_to_files_is_checked_alike(tmp_path: Path) -> None:
    write_weights(tmp_path / "w.bin")
    model = load(ir.load(write_model(tmp_path, "w.bin")))
    constant = ValueView(model.graph.initializers["w"]).constant
    assert constant is not None
    assert np.array_equal(constant, WEIGHTS)
    with pytest.raises(ModelError) as caught:
        load(ir.load(write_model(tmp_path, "../w.bin")))
    assert str(caught.value) == (
        "external data of tensor 'w' in '../w.bin': the path leaves the model's directory; "
        "use a relative path without '..'"
    )


def test_a_tensor_without_elements_needs_no_bytes_and_an_attribute_without_an_offset_begins_at_0(
    tmp_path: Path,
) -> None:
    (tmp_path / "w.bin").write_bytes(b"1234")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[0], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    assert Reference("w", "w.bin") == Reference("w", "w.bin", offset=0)
    directory = ModelDirectory(tmp_path)
    assert bytes(directory.read(tensor)) == b""
    tensor.external_data.add(key="offset", value="4")
    assert bytes(directory.read(tensor)) == b""
    tensor.dims[:] = [1]
    with pytest.raises(ModelError, match="has 0 bytes but its type needs 4"):
        directory.read(tensor)
