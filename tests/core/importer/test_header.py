"""What a header and names leave out, made good in place."""

from __future__ import annotations

import onnx

from graft.core.importer.header import complete_names


def test_absent_inputs_at_the_end_are_dropped_down_to_the_least_of_the_schema() -> None:
    made = [
        ("MaxUnpool", "", ["x", "i", ""], ["x", "i"]),
        ("Clip", "", ["x", "", ""], ["x"]),
        ("Clip", "", ["x", "", "high"], ["x", "", "high"]),
        ("Loop", "", ["", ""], ["", ""]),
        ("Own", "vendor.example", ["x", ""], ["x", ""]),
    ]
    model = onnx.ModelProto()
    for operator, domain, inputs, _ in made:
        model.graph.node.append(onnx.helper.make_node(operator, inputs, ["y"], domain=domain))

    complete_names(model)

    assert [list(node.input) for node in model.graph.node] == [wanted for *_, wanted in made]
