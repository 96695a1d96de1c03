"""CumProd as a Scan: what it is differentiated through, for no formula of its result holds where an element is 0."""

from __future__ import annotations

from onnx import TypeProto, helper

from graft.core.operators.definition.function_body import Body


def cumulative_product(f: Body) -> None:
    """The product of the elements up to each along an axis, or of those before it."""
    x, axis = f.input(0), f.contents(f.input(1))
    f.require(axis is not None, "its derivative needs an axis that is constant")
    assert axis is not None
    place = int(axis.reshape(-1)[0]) % f.rank(x)
    kind = TypeProto()
    kind.CopyFrom(f.types[x])
    del kind.tensor_type.shape.dim[place]
    first = f("Gather", x, f.constant(0, "int64"), axis=place)
    ones = f("Expand", f.like(1.0, x), f("Shape", first))
    before, element, after, result = (f.fresh(f"{x}/{name}") for name in ("before", "element", "after", "result"))
    shown = before if f.attribute("exclusive", 0) else after
    nodes = [
        helper.make_node("Mul", [before, element], [after], after),
        helper.make_node("Identity", [shown], [result], result),
    ]
    infos = {name: helper.make_value_info(name, kind) for name in (before, element, after, result)}
    body = helper.make_graph(nodes, f"{x}/product", [infos[before], infos[element]], [infos[after], infos[result]])
    backwards = [int(f.attribute("reverse", 0))]
    found = f.several(
        2, "Scan", ones, x, body=body, num_scan_inputs=1, scan_input_axes=[place], scan_output_axes=[place],
        scan_input_directions=backwards, scan_output_directions=backwards,
    )  # fmt: skip
    f.types[found[0]], f.types[found[1]], f.types[ones] = kind, f.types[x], kind
    f.give(0, found[1])
