"""The backend `pebble`: what the library computes, and the call of each kernel in C."""

import graft
from graft.patterns import is_constant, is_op, wildcard
from graft_pebble import library
from graft_pebble.dense import call_dense, fits

PRODUCT = is_op("MatMul")(wildcard().named("x"), is_constant().named("w"))
LINEAR = is_op("Add")(PRODUCT, is_constant().named("bias")) | PRODUCT


class Pebble(graft.CSourceBackend):
    """Calls of a C library: dense layers with constant weights, and what stands between them."""

    name = "pebble"
    shapes = "symbolic"  # the library takes extents as arguments
    headers, includes, libraries = ("pebble.h",), (library.FOLDER / "native",), (library.SONAME,)
    success = "PEBBLE_OK"
    calls = {  # noqa: RUF012 (as a vendor writes it: without annotations)
        "pebble.dense": call_dense,
        "Relu": "pebble_relu({X}, {Y.size}, {Y})",
        "Add": "pebble_add({A}, {B}, {Y.size}, {Y})",
        "Softmax": lambda kernel: (
            f"pebble_softmax({{inputs[0]}}, {{Y.size}}, {{Y.shape[{kernel[0].rank - 1}]}}, {{Y}})"
        ),
        "LayerNormalization": "pebble_normalize({X}, {Scale}, {B}, {epsilon}, {Y.size}, {Scale.size}, {Y})",
    }

    @graft.supports(is_op("Relu")(LINEAR) | LINEAR, name="pebble.dense")
    def dense(self, match):
        """Take a product by constant weights, with what may stand behind it."""
        return fits(match)

    @graft.supports("Relu", "Add", "Softmax", "LayerNormalization")
    def single(self, node):
        """Take an operator in the form that the library has."""
        x, y = node.inputs[0], node.outputs[0]
        if node.dtype != "float32":
            return graft.Reject("dtype", f"float32 only, got {node.dtype}")
        if any(value and value.shape is None for value in (*node.inputs, y)):
            return graft.Reject("dynamic-shape", "the number of axes is not known")
        if node.op_type == "Add" and any(value.shape != y.shape for value in node.inputs):
            return graft.Reject("shape", "pebble_add has operands of one shape")
        if node.op_type in ("Softmax", "LayerNormalization") and node.attribute("axis", -1) not in (-1, y.rank - 1):
            return graft.Reject("attribute", f"rows of the last axis only, got axis {node.attribute('axis', -1)}")
        if node.op_type == "LayerNormalization" and len(node.outputs) > 1:
            return graft.Reject("attribute", "pebble_normalize returns neither mean nor deviation")
        if node.op_type == "LayerNormalization" and any(v and v.shape != x.shape[-1:] for v in node.inputs[1:]):
            return graft.Reject("shape", "scale and bias have one element for each column")
        return True

    def available(self):
        """Say what is missing: the library, or a C compiler for the calls."""
        return library.opened() or super().available()

    def module_loaders(self):
        """Open the library where a program is loaded; the runtime loads the modules itself."""
        library.opened()
        return []
