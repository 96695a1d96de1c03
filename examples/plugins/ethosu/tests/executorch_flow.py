"""Networks for Arm's Ethos-U by ExecuTorch's flow, to set beside what `graft-ethosu` makes of them.

    PYTHONPATH=examples/plugins/ethosu:examples/plugins/ethosu/tests python -c "import networks, onnx;
    [onnx.save(make(), f'FOLDER/{name}.onnx') for name, make in networks.NETWORKS.items()]"
    OTHER/bin/python examples/plugins/ethosu/tests/executorch_flow.py ethos-u55-128 FOLDER/*.onnx

OTHER is an environment with executorch, torch, onnx and ethos-u-vela (1.5.1, 2.13, any, 5.2.0 for docs/comparison.md);
nothing of Graft's is imported. The float models are computed node by node in torch, with their weights, so that both
flows have the same network; random inputs calibrate. Prints a Markdown table: delegates, nodes of the edge dialect
left outside of them besides the quantisation of the input and the dequantisation of the result, cycles as Vela
estimates them for the delegates, and bytes of the delegates.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

SYSTEMS = {
    "ethos-u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "ethos-u85": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}
"""System configuration and memory mode: Vela's own, those of the plugin."""
SAMPLES = 4
LINEAR = "MatMul by weights"
"""What PyTorch has a layer for, with the weights transposed: ExecuTorch takes a MatMul for one of two activations."""


def padded(x: Any, pads: list[int]) -> Any:
    """Return an image with rows and columns around it where they are not the same on both sides, and what is left."""
    if not pads or pads[:2] == pads[2:]:
        return x, tuple(pads[:2]) or 0
    return functional.pad(x, (pads[1], pads[3], pads[0], pads[2])), 0


def convolved(x: Any, w: Any, b: Any = None, *, pads: Any = (), strides: Any = 1, group: int = 1, **_: Any) -> Any:
    """Compute Conv."""
    x, padding = padded(x, list(pads))
    return functional.conv2d(x, w, b, strides, padding, groups=group)


OPERATORS: dict[str, Any] = {
    "Conv": convolved,
    "ConvTranspose": lambda x, w, strides: functional.conv_transpose2d(x, w, stride=strides),
    "Gemm": lambda x, w, b, transB: functional.linear(x, w, b),
    "MatMul": torch.matmul,
    LINEAR: functional.linear,
    "Add": torch.add,
    "Mul": torch.mul,
    "Relu": functional.relu,
    "Clip": lambda x, low, high: functional.hardtanh(x, float(low), float(high)),
    "Gelu": functional.gelu,
    "Sigmoid": torch.sigmoid,
    "Softmax": lambda x, axis=-1: functional.softmax(x, axis),
    "LayerNormalization": lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
    "AveragePool": lambda x, kernel_shape: functional.avg_pool2d(x, kernel_shape, 1),
    "GlobalAveragePool": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "MaxPool": lambda x, kernel_shape, strides: functional.max_pool2d(x, kernel_shape, strides),
    "Resize": lambda x, _, scales, mode: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "ReduceMean": lambda x, axes, keepdims: x.mean(axes.tolist(), keepdim=bool(keepdims)),
    "Flatten": lambda x: x.flatten(1),
    "Transpose": lambda x, perm: x.permute(perm),
    "Concat": lambda *parts, axis: torch.cat(parts, axis),
}
"""What the networks have."""


class Network(torch.nn.Module):
    """An ONNX model of those operators, its constants as parameters (numbers that say where and how aside)."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.nodes, self.result, self.fixed = list(model.graph.node), model.graph.output[0].name, {"": None}
        known = {one.name for one in model.graph.initializer}
        for node in self.nodes:
            if node.op_type == "MatMul" and node.input[1] in known:
                node.op_type = LINEAR
        linear = {node.input[1] for node in self.nodes if node.op_type == LINEAR}
        for one in model.graph.initializer:
            tensor = torch.from_numpy(numpy_helper.to_array(one).copy())
            tensor = tensor.T.contiguous() if one.name in linear else tensor
            if tensor.is_floating_point() and (tensor.ndim or one.name in self._factors()):
                self.register_parameter(one.name, torch.nn.Parameter(tensor, requires_grad=False))
            else:
                self.fixed[one.name] = tensor

    def _factors(self) -> set[str]:
        return {name for node in self.nodes if node.op_type == "Mul" for name in node.input}

    def forward(self, x: Any) -> Any:
        """Compute the model."""
        values = {**self.fixed, **dict(self.named_parameters()), "x": x}
        for node in self.nodes:
            attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            values[node.output[0]] = OPERATORS[node.op_type](*[values[name] for name in node.input], **attributes)
        return values[self.result]


def lowered(module: Any, shape: list[int], target: str) -> tuple[Any, str]:
    """Return the graph of the edge dialect with its delegates, and what Vela printed."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    system, memory = SYSTEMS[target.rpartition("-")[0]]
    flags = ["--verbose-performance", "--verbose-cycle-estimate"]
    spec = EthosUCompileSpec(target, system_config=system, memory_mode=memory, extra_flags=flags)
    sample = (torch.randn(shape),)
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(module, sample).module(check_guards=False), quantizer)
    for _ in range(SAMPLES):
        prepared(torch.randn(shape))
    exported = torch.export.export(convert_pt2e(prepared), sample)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        edge = to_edge_transform_and_lower(
            exported, partitioner=[EthosUPartitioner(spec)], compile_config=EdgeCompileConfig(_check_ir_validity=False)
        )
    return edge.exported_program().graph_module, printed.getvalue()


def row(path: Path, target: str) -> str:
    """Return what became of a network."""
    model = onnx.load(path)
    shape = [one.dim_value for one in model.graph.input[0].type.tensor_type.shape.dim]
    torch.manual_seed(0)
    graph, printed = lowered(Network(model).eval(), shape, target)
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    delegates = [node for node in calls if "executorch_call_delegate" in str(node.target)]
    left = Counter(str(node.target) for node in calls if node not in delegates and "getitem" not in str(node.target))
    left -= Counter(name for name in left if re.search("quantize_per_tensor", name))  # those of input and result
    cycles = sum(int(one) for one in re.findall(r"Total cycles\s+(\d+)", printed))
    size = sum(len(getattr(graph, node.args[0].target).processed_bytes) for node in delegates)
    names = ", ".join(f"{count} {name}" for name, count in sorted(left.items()))
    return f"| {path.stem} | {len(delegates)} | {names} | {cycles:,} | {size:,} |"


def main() -> None:
    """Print the table."""
    target, *paths = sys.argv[1:]
    print(f"| network, {target} | delegates | left | cycles | bytes |\n| --- | ---: | --- | ---: | ---: |")
    for path in paths:
        print(row(Path(path), target), flush=True)


if __name__ == "__main__":
    main()
