"""Memory of a step, batch 8, and its time, by what it computes again, in turns in one run.

    python -m benchmarks.training.memory [WAY ...] [--network lstm] [--threads 2] [--seconds 20]

The network is one of those of `benchmarks.training`, or ResNet-50 on images of 224 x 224. A way is what
`graft.grad` takes for ``recompute``; a share such as 0.35 is of the arena of the step that stores all.
``kept`` are the bytes that PyTorch keeps between forward and backward pass: eager, and as AOTAutograd's min-cut
partitioner, which inductor has, leaves them. What its passes need beside comes on top.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch.nn import functional

import graft
from benchmarks.training.__main__ import by_batch, weights_of
from benchmarks.training.networks import NETWORKS, resnet50
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import Run, measure
from graft.measure.peers.torch_compile import torch_module
from graft.measure.peers.torch_operators import TORCH_OPERATORS, TorchOperator
from graft.training import SGD, Trainer


def kept_by_torch(model: ir.Model, weights: list[str], feeds: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the bytes that PyTorch keeps for the backward pass, without weights and inputs, by partitioner."""
    module = torch_module(model, weights, {**TORCH_OPERATORS, "BatchNormalization": TorchOperator(by_batch)})
    given = [value.name or "" for value in model.graph.inputs if value.name not in model.graph.initializers]
    *inputs, target = (torch.from_numpy(feeds[name]) for name in (*given, "target"))
    own = {one.untyped_storage().data_ptr() for one in (*module.parameters(), *module.buffers(), *inputs)}

    def loss() -> torch.Tensor:
        return functional.cross_entropy(module(*inputs)[0], target)

    found = {}
    for name, run in (("eager", loss), ("min-cut", torch.compile(loss, backend="aot_eager_decomp_partition"))):
        seen: dict[int, int] = {}

        def pack(tensor: torch.Tensor, seen: dict[int, int] = seen) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            kept = run()  # the graph lives while its tensors are counted
        found[name] = sum(seen.values())
        del kept
    return found


def steps(proto: onnx.ModelProto, ways: Sequence[str], threads: int) -> dict[str, Trainer]:
    """Return a trainer for each way, that which stores all first."""
    found: dict[str, Trainer] = {}
    for way in ("none", *ways):
        share = float(way) if way.replace(".", "", 1).isdecimal() else 0.0
        budget = int(share * found["none"].program.arena_bytes) if 0 < share < 1 else int(share) or way
        found[way] = Trainer(
            proto, "cross-entropy", SGD(1e-3, 0.9), wrt=weights_of(proto), threads=threads, recompute=budget
        )
    return found


def main() -> None:
    """Print a line for each way, and what PyTorch keeps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", default=["min-cut", "0.35"])
    parser.add_argument("--network", choices=["resnet50", *NETWORKS], default="resnet50")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    proto = resnet50(224) if options.network == "resnet50" else NETWORKS[options.network]()
    model = graft.load(proto)
    feeds = sample_inputs(graft.loss(model, "cross-entropy"))
    trainers = steps(proto, options.ways, options.threads)
    runs: dict[str, Run] = {way: partial(one.step, feeds) for way, one in trainers.items()}
    whole = trainers["none"].program.arena_bytes
    for row in measure(runs, options.seconds):
        taken = trainers[row.name].program.arena_bytes
        print(f"{row.name:8} {taken} bytes, {taken / whole:.3f} of all, {row.median_ms:.0f} ms, {1 / row.ratio:.2f}")
    for name, taken in kept_by_torch(model, weights_of(proto), feeds).items():
        print(f"PyTorch {name}: {taken} bytes kept")


if __name__ == "__main__":
    main()
