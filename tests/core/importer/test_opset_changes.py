"""Which operators mean the same in two opsets: by rows that are known, and by what onnx's converter leaves alone."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest

from graft.core.importer.opset_changes import same_meaning
from graft.core.importer.upgrade import OPSET
from graft.testkit.models.model import random_model
from graft.testkit.models.options import Options


@pytest.mark.parametrize(
    ("operator", "old", "same"),
    [
        ("Transpose", 21, True),  # more types
        ("Reshape", 13, True),  # `allowzero`, 0 by default
        ("Resize", 13, True),  # `antialias`, `axes`, of which neither has to be there
        ("Pad", 13, True),  # an optional input more
        ("RoiAlign", 16, True),
        ("RoiAlign", 15, False),  # half pixels by default, of which the older one knows nothing
        ("GroupNormalization", 20, False),  # a scale for each group
        ("GridSample", 16, False),  # names of modes
        ("Split", 13, False),  # either sizes or their number must be there
        ("ReduceMean", 13, False),  # axes were an attribute
        ("BatchNormalization", 9, False),
        ("Softmax", 11, False),  # another default, and one row of what followed it
        ("Gelu", 13, False),  # which there was not yet
        ("NoSuchOperator", 13, True),  # in neither, which is for a check to say
    ],
)
def test_what_a_schema_may_change(operator: str, old: int, same: bool) -> None:
    assert same_meaning(operator, old, OPSET) is same


def test_what_moves_by_its_header_is_what_the_converter_leaves_as_it_is() -> None:
    """Nodes of random models of older opsets: each that is said to mean the same comes out of onnx's converter so."""
    moved = set()
    for seed in range(60):
        proto = random_model(seed, replace(Options(), older=1.0, symbolic=0.0, control=0.0)).proto
        opset = proto.opset_import[0].version
        if opset >= OPSET or not all(same_meaning(node.op_type, opset, OPSET) for node in proto.graph.node):
            continue
        converted = onnx.version_converter.convert_version(proto, OPSET)
        assert [_meaning(node) for node in converted.graph.node] == [_meaning(node) for node in proto.graph.node]
        moved |= {node.op_type for node in proto.graph.node}
    assert len(moved) > 40


def _meaning(node: onnx.NodeProto) -> tuple[object, ...]:
    attributes = sorted(attribute.SerializeToString() for attribute in node.attribute)
    return node.op_type, tuple(node.input), tuple(node.output), attributes
