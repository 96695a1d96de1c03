"""Models written with their weights, or with a file of them beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from graft.core.graph.save import ALIGNMENT, save_model, save_with_data
from graft.core.graph.skeleton import LARGE_BYTES
from graft.errors import ModelError


def model() -> ir.Model:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[n] x) => (float[n] y) <float[1] small = {2}>'
        "{ a = Add(x, small) b = Add(a, large) y = Add(b, odd) }"
    )
    for name, count in (("odd", LARGE_BYTES // 4 + 1), ("large", LARGE_BYTES)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(count, dtype=np.float32), name))
    return ir.from_proto(proto)


def contents(proto: onnx.ModelProto) -> dict[str, bytes]:
    return {one.name: onnx.numpy_helper.to_array(one).tobytes() for one in proto.graph.initializer}


@pytest.mark.parametrize("suffix", [".onnx", ".bin", ".textproto"])
def test_a_saved_model_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    save_model(model(), path)
    assert onnx.load(path) == ir.to_proto(model())


def test_large_constants_go_to_a_file_at_aligned_offsets(tmp_path: Path) -> None:
    source = model()
    names = list(source.graph.initializers)
    save_with_data(source, tmp_path / "model.onnx")
    bare = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    outside = [one for one in bare.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
    assert {one.name for one in outside} == {"odd", "large"}
    offsets = [int(entry.value) for one in outside for entry in one.external_data if entry.key == "offset"]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert contents(onnx.load(tmp_path / "model.onnx")) == contents(ir.to_proto(model()))
    assert list(source.graph.initializers) == names, "the model is as it was"


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing"):
        save_model(model(), tmp_path / "missing" / "model.onnx")
