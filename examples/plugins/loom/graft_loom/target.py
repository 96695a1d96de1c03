"""The backend: a machine, a strategy and an emitter; lowering, fusion and the memory between kernels are Graft's."""

import graft
from graft.core.machine.target import Target
from graft_loom.emitter import encode
from graft_loom.machine import LOOM
from graft_loom.strategy import STRATEGIES

OPERATORS = (
    "Add", "Sub", "Mul", "Div", "Max", "Relu", "Exp", "Tanh", "Greater", "Where", "MatMul", "Softmax", "ReduceMax",
    "Transpose", "Split",
)  # fmt: skip
"""What is held to the reference by the tests; the machine could do more."""
DTYPES = ("float32", "bool")


class Loom(graft.TensorIrBackend):
    """Generates code for the loom, which a simulator runs; so it takes part only where it is named."""

    name = "loom"
    by_default = False
    strategies = STRATEGIES

    def machine(self, target):
        """Return the loom, whatever machine the program will be called from."""
        return Target(LOOM, target.threads, target.without)

    def supports(self, node):
        """Take the operators above where all tensors are of types that the machine loads and stores."""
        if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx"):
            return graft.Reject("no-pattern", f"the loom has not been held to {node.op_type}")
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.dtype not in DTYPES and not value.is_constant:
                return graft.Reject("dtype", f"the loom loads {' and '.join(DTYPES)}, '{value.name}' is {value.dtype}")
        return super().supports(node)

    def emit(self, functions, target):
        """Return the program of the loom."""
        return graft.Module("", "loom", tuple(one.name for one in functions), encode(functions))
