"""Tables of FlatBuffers: fields that are there, that are not, and that lead nowhere."""

from __future__ import annotations

import flatbuffers
import pytest
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs import Tensor

from graft.training.flat_tables import DamagedError, Table


def table() -> bytes:
    builder = flatbuffers.Builder(0)
    name = builder.CreateString("größe")
    Tensor.Start(builder)
    Tensor.AddName(builder, name)
    Tensor.AddDataType(builder, 7)
    builder.Finish(Tensor.End(builder), b"KIND")
    return bytes(builder.Output())


def test_fields_that_are_left_out_are_defaults() -> None:
    root = Table.root(table(), "KIND")
    assert root is not None
    assert (root.text(0), root.number(3, "i"), root.number(6, "q", -1)) == ("größe", 7, -1)
    assert (root.integers(2), root.raw(4), root.tables(5), root.table(1), root.text(99)) == ((), b"", [], None, "")


def test_a_file_of_another_kind_has_no_root() -> None:
    assert Table.root(table(), "SORT") is None


@pytest.mark.parametrize("data", [b"\xff\xff\xff\x7fKIND", table()[:-4], table().replace("ö".encode(), b"\xff\xff")])
def test_what_leads_out_of_the_file_or_is_no_text_is_damage(data: bytes) -> None:
    root = Table.root(data, "KIND")
    assert root is not None
    with pytest.raises(DamagedError):
        root.text(0)
