"""The backend: a machine, an emitter and a strategy, and nothing else."""

import graft
from graft.core.machine.target import Target
from graft.plugins.codegen.grouping.fusion import FusionLimits
from graft_abacus.emitter import module_bytes
from graft_abacus.machine import ABACUS
from graft_abacus.strategy import WIRES


class Abacus(graft.TensorIrBackend):
    """Computes in float32 whatever its few instructions can say; the rest goes to the next backend."""

    name = "abacus"
    by_default = False
    fusion = FusionLimits(group=8)
    strategies = (WIRES,)

    def machine(self, target):
        """Return the abacus, whatever machine the program will be called from."""
        return Target(ABACUS, target.threads, target.without)

    def supports(self, node):
        """Take float32 alone."""
        if any(value is not None and value.dtype != "float32" for value in (*node.inputs, *node.outputs)):
            return graft.Reject("dtype", "the beads are float32")
        return super().supports(node)

    def emit(self, functions, target):
        """Return the program of the abacus."""
        names = tuple(function.name for function in functions)
        return graft.Module("", "abacus", names, module_bytes(functions))
