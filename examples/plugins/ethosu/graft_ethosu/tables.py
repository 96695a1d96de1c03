"""Tables: what a chain of elementwise operators makes of each byte, by ONNX's own reference."""

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from graft_ethosu.reading import Refused


def evaluated(root, nodes, sources):
    """Return the 256 bytes that ``root`` is for each byte of what is read by the names of ``sources``, the least first.

    ``nodes`` are those between the two. Raise Refused where a constant is larger than one element.
    """
    low = -128 if sources[0].dtype == "int8" else 0
    numbers = np.arange(low, low + 256).astype(sources[0].dtype)
    names = sorted({one.name for one in sources})
    made = {value.name for node in nodes for value in node.outputs}
    constants = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.is_constant and value.name not in made:
                if value.constant.size != 1:
                    raise Refused("shape", f"'{value.name}' has {value.constant.size} elements, and a table knows one")
                constants[value.name] = value.constant.reshape(())
    order = sorted(nodes, key=lambda node: _depth(node, made))
    graph = onnx.helper.make_graph(
        [ir.to_proto(node.node) for node in order], "table",
        [onnx.helper.make_tensor_value_info(one, onnx.helper.np_dtype_to_tensor_dtype(numbers.dtype), [256])
         for one in names],
        [onnx.ValueInfoProto(name=root.outputs[0].name)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    version = root.node.graph.opset_imports.get("", 25) if root.node.graph is not None else 25
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    with np.errstate(all="ignore"):
        (table,) = ReferenceEvaluator(model).run(None, dict.fromkeys(names, numbers))
    return table


def _depth(node, made):
    inner = (one.value.producer() for one in node.inputs if one is not None and one.name in made)
    return 1 + max((_depth(type(node)(one), made) for one in inner if one is not None), default=0)
