"""Training of two small networks on `shapes`: blocks of ResNet's and of MobileNetV2's kind, some minutes on two cores.

pip install 'graft-compiler[torch]'
python examples/quantization/train.py

A network of another seed, such as `mobilenet:3`, is written into the current folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
from shapes import CLASSES, MODELS, SIZE, images
from torch import nn
from torch.nn import functional as F

TRAINED, HELD_OUT, EPOCHS, BATCH = 8000, 2000, 12, 64


def convolution(i: int, o: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution and its BatchNormalization."""
    return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o))


class Residual(nn.Module):
    """Two convolutions around which the input goes (He et al., arXiv:1512.03385)."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = convolution(i, o, 3, stride), convolution(o, o)
        self.side = convolution(i, o, 1, stride) if stride > 1 or i != o else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return F.relu(self.second(F.relu(self.first(x))) + self.side(x))


class Inverted(nn.Module):
    """An expansion, a depthwise convolution and a projection (Sandler et al., arXiv:1801.04381)."""

    def __init__(self, i: int, o: int, stride: int, expansion: int = 4) -> None:
        super().__init__()
        wide = i * expansion
        self.same = stride == 1 and i == o
        self.layers = nn.Sequential(
            convolution(i, wide, 1), nn.ReLU6(), convolution(wide, wide, 3, stride, wide), nn.ReLU6(),
            convolution(wide, o, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return x + self.layers(x) if self.same else self.layers(x)


def resnet() -> nn.Module:
    stages = [Residual(16, 16, 1), Residual(16, 24, 2), Residual(24, 24, 1), Residual(24, 40, 2), Residual(40, 40, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, CLASSES)]
    return nn.Sequential(convolution(3, 16), nn.ReLU(), *stages, *head)


def mobilenet() -> nn.Module:
    stages = [Inverted(12, 12, 1), Inverted(12, 20, 2), Inverted(20, 20, 1), Inverted(20, 32, 2), Inverted(32, 32, 1)]
    head = [convolution(32, 96, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, CLASSES)]
    return nn.Sequential(convolution(3, 12), nn.ReLU6(), *stages, *head)


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Return the network in inference mode, trained on images and labels."""
    steps = EPOCHS * -(-len(x) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = F.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: loss {total / len(x):.4f}", flush=True)
    return net.eval()


def export(net: nn.Module, path: Path) -> None:
    """Write a network as ONNX, float32[1, 3, 24, 24] ``image`` to float32[1, 10] ``logits``."""
    program = torch.onnx.export(
        net, (torch.zeros(1, 3, SIZE, SIZE),), input_names=["image"], output_names=["logits"], opset_version=20,
        dynamo=True, optimize=True, verbose=False,
    )  # fmt: skip
    model = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(array) for array in images(TRAINED, 1))
    held, labels = images(HELD_OUT, 0)
    for given in sys.argv[1:] or MODELS:
        name, _, seed = given.partition(":")
        path = Path(f"{name}-{seed}.onnx") if seed else MODELS[name]
        torch.manual_seed(int(seed or 0))
        net = train({"resnet": resnet, "mobilenet": mobilenet}[name](), x, y)
        with torch.no_grad():
            right = float(np.mean(net(torch.from_numpy(held)).argmax(1).numpy() == labels))
        export(net, path)
        print(f"{path.stem}: {path.stat().st_size} bytes, accuracy on held-out images {right:.4f}")


if __name__ == "__main__":
    main()
