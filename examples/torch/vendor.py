"""A vendor's plugin under `torch.compile`, unchanged: it takes matrix products, the built-in compiler the rest.

Run it: python examples/torch/vendor.py.
"""

import torch

import graft
from graft.torch import explain
from graft.torch.explaining import Explanation


class Npu(graft.JsonBackend):
    """What a vendor writes for `graft.compile`: what the chip takes, and how a region of it is run."""

    name = "npu"

    @graft.supports("Gemm")
    def gemm(self, node):  # type: ignore[no-untyped-def]
        """Take float32 only."""
        return node.dtype == "float32" or graft.Reject("dtype", "the chip computes with float32")

    def load(self, graph, constants):  # type: ignore[no-untyped-def]
        """Return the engine of a region."""
        return lambda inputs: graph.run(inputs, constants, product)


def product(node, arrays):  # type: ignore[no-untyped-def]
    """Compute one operator of a region; here NumPy is the chip."""
    x, w, *bias = arrays
    found = x @ (w.T if node.attributes.get("transB") else w)
    return [found + bias[0] if bias else found]


def main() -> Explanation:
    """Return where the operators of a module went."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).eval()
    x, options = torch.randn(3, 16), {"backends": [Npu(), "llvm"], "strict": True}
    with torch.no_grad():
        explanation = explain(module, (x,), options=options)
        torch.testing.assert_close(torch.compile(module, backend="graft", options=options)(x), module(x))
    print(explanation)
    return explanation


if __name__ == "__main__":
    main()
