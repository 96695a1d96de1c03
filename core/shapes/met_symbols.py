"""Symbols of different inputs that meet in an operator: most likely one number, of which the file does not say so.

Exporters that give every dimension of every input a name of its own (``unk__7``, or none at all) leave it open whether
the ``batch`` of the words is that of their mask. Where operators need it, it is so (`graft.core.shapes.equations`);
where they broadcast, either may also be 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from graft.core.graph.dimensions import ranges_of
from graft.core.shapes.equations import equations_of
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.runtime.extents import Symbol


def met_symbols(model: ir.Model) -> Mapping[str, str]:
    """Return by symbol of an input the earlier one that it should be for all operators of the main graph to agree.

    Shapes are inferred. Empty where every two that meet are known to be equal.
    """
    order = [one.name for value in model.graph.inputs for one in dimensions_of(value) or () if isinstance(one, Symbol)]
    place = {name: number for number, name in reversed(list(enumerate(order)))}
    first = {name: name for name in place}

    def found(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    for one in equations_of(model.graph, ranges_of(model)):
        sides = [side.name for side in (one.left, one.right) if isinstance(side, Symbol) and side.name in place]
        if one.kind != "at most" and len(sides) == 2:
            earlier, later = sorted(map(found, sides), key=place.__getitem__)
            first[later] = earlier
    return {name: found(name) for name in sorted(place, key=place.__getitem__) if found(name) != name}
