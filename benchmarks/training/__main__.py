"""A step of training (forward, backward, update) beside PyTorch's, eager and by inductor, in turns in one run.

    python -m benchmarks.training [NETWORK ...] [--threads 1,2] [--seconds 10] [--against eager,inductor]

Both train the same graph with the same weights by SGD with momentum, batch 8; ``loss`` is how far the losses of the
first step are apart, ``of best`` the median, round by round, of our time by that of the faster peer, and ``compiled``
the CPU time of writing and compiling the step, without kernels of before, and that of compiling inference.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch.nn import functional

import graft
from benchmarks.training.networks import NETWORKS
from graft.core.shapes.sample_inputs import sample_inputs
from graft.measure.latency import Run, measure
from graft.measure.peers.torch_compile import torch_module
from graft.measure.peers.torch_operators import TORCH_OPERATORS, TorchOperator
from graft.training import SGD, Trainer

RATE, MOMENTUM = 1e-3, 0.9


def weights_of(proto: onnx.ModelProto) -> list[str]:
    """Return what is trained: tensors of floats but for statistics, masks and single numbers."""
    statistics = {name for node in proto.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]}
    return [
        one.name
        for one in proto.graph.initializer
        if one.data_type == onnx.TensorProto.FLOAT and one.name not in statistics and _is_trained(one)
    ]


def _is_trained(tensor: onnx.TensorProto) -> bool:
    return math.prod(tensor.dims) > 1 and bool(np.isfinite(onnx.numpy_helper.to_array(tensor)).all())


def by_batch(x: torch.Tensor, *parameters: torch.Tensor, epsilon: float = 1e-5, momentum: float = 0.9) -> torch.Tensor:
    """Normalise by the statistics of the batch; those of the model, which are buffers, learn in place."""
    scale, bias, mean, variance = parameters
    return functional.batch_norm(x, mean, variance, scale, bias, True, 1 - momentum, epsilon)


TorchLoss = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


def torch_loss(model: ir.Model, weights: list[str]) -> tuple[TorchLoss, torch.nn.Module]:
    """Return PyTorch's cross-entropy of a model of one output, and the module with its weights."""
    module = torch_module(model, weights, {**TORCH_OPERATORS, "BatchNormalization": TorchOperator(by_batch)})
    given = [value.name or "" for value in model.graph.inputs if value.name not in model.graph.initializers]

    def loss(feeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return functional.cross_entropy(module(*(feeds[name] for name in given))[0], feeds["target"])

    return loss, module


def torch_step(model: ir.Model, weights: list[str], feeds: Mapping[str, np.ndarray], compiled: bool) -> Run:
    """Return a step of PyTorch on a model of one output."""
    loss, module = torch_loss(model, weights)
    optimizer = torch.optim.SGD(module.parameters(), RATE, MOMENTUM)
    given = {name: torch.from_numpy(array) for name, array in feeds.items()}
    forward: TorchLoss = torch.compile(loss) if compiled else loss
    update = torch.compile(optimizer.step) if compiled else optimizer.step

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        found = forward(given)
        found.backward()  # type: ignore[no-untyped-call]
        update()
        return float(found.detach())

    return step


def row(name: str, threads: int, seconds: float, against: list[str]) -> float:
    """Print the times of a network; return ours by that of the faster peer."""
    torch.set_num_threads(threads)
    proto = NETWORKS[name]()
    weights = weights_of(proto)
    started = process_time()
    graft.compile(proto, threads=threads, cache=False)
    between = process_time()
    with TemporaryDirectory() as os.environ["XDG_CACHE_HOME"]:
        trainer = Trainer(proto, "cross-entropy", SGD(RATE, MOMENTUM), wrt=weights, threads=threads)
    compiled, inference = process_time() - between, between - started
    model = graft.load(proto)
    feeds = sample_inputs(graft.loss(model, "cross-entropy"))
    runs: dict[str, Run] = {"graft": lambda: trainer.step(feeds)}
    for peer in against:
        runs[peer] = torch_step(model, weights, feeds, peer == "inductor")
    losses = {peer: float(str(run())) for peer, run in runs.items()}
    rows = measure(runs, seconds)
    best = min(rows[1:], key=lambda one: one.median_ms)
    apart = max(abs(one - losses["graft"]) for one in losses.values()) / abs(losses["graft"])
    times = " ".join(f"{one.name} {one.median_ms:.2f} ms" for one in rows)
    print(
        f"{name:13} {threads} {times}, of best {best.ratio:.2f}, loss {apart:.0e}, compiled in "
        f"{compiled:.1f} s, inference in {inference:.1f} s",
        flush=True,
    )
    return best.ratio


def main() -> None:
    """Print a line for each network, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--threads", default=[1, 2], type=lambda text: [int(part) for part in text.split(",")])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--against", default=["eager", "inductor"], type=lambda text: text.split(","))
    options = parser.parse_args()
    graft.compile(NETWORKS["lstm"](), cache=False)  # what is made once in a process
    for threads in options.threads:
        ratios = [row(name, threads, options.seconds, options.against) for name in options.networks]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{threads} threads: geometric mean {mean:.2f}, worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
