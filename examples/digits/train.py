"""Training of the digits model: a small convolutional network, seeded, a minute on one core.

Trained with PyTorch and written with `onnx.helper` as it was trained, BatchNormalization included, so that the file
shows what an importer has to fold:

    pip install 'graft-compiler[torch,examples]'
    python examples/digits/train.py
"""

from __future__ import annotations

import numpy as np
import onnx
import torch
from data import MODEL, SEED, load_split
from onnx import TensorProto, helper, numpy_helper
from torch import nn

EPOCHS = 40
BATCH = 64
OPSET = 20


def network() -> nn.Sequential:
    """Return the untrained network, float32[n, 1, 8, 8] to float32[n, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(images: np.ndarray, labels: np.ndarray) -> nn.Sequential:
    """Return the trained network in inference mode."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    net = network()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            moved = torch.roll(x[rows], shifts=tuple(torch.randint(-1, 2, (2,)).tolist()), dims=(2, 3))
            loss = nn.functional.cross_entropy(net(moved), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net.eval()


def to_onnx(net: nn.Sequential) -> onnx.ModelProto:
    """Return the network as ONNX, float32[1, 1, 8, 8] ``image`` to float32[1, 10] ``logits``."""
    nodes: list[onnx.NodeProto] = []
    tensors: list[onnx.TensorProto] = []
    value = "image"
    for index, layer in enumerate(net):
        parameters = []
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(layer, name, None)
            if tensor is not None:
                parameters.append(f"{index}.{name}")
                tensors.append(numpy_helper.from_array(tensor.detach().numpy(), parameters[-1]))
        operator, attributes = describe(layer)
        output = "logits" if index == len(net) - 1 else f"{operator.lower()}_{index}"
        nodes.append(helper.make_node(operator, [value, *parameters], [output], name=output, **attributes))
        value = output
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 10])
    graph = helper.make_graph(nodes, "digits", [image], [logits], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def describe(layer: nn.Module) -> tuple[str, dict[str, object]]:
    """Return the ONNX operator of a layer and its attributes."""
    match layer:
        case nn.Conv2d():
            return "Conv", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        case nn.BatchNorm2d():
            return "BatchNormalization", {"epsilon": layer.eps}
        case nn.MaxPool2d():
            return "MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}
        case nn.Linear():
            return "Gemm", {"transB": 1}
        case _:
            return {"ReLU": "Relu", "Flatten": "Flatten"}[type(layer).__name__], {}


def main() -> None:
    images, held_out, labels, held_out_labels = load_split()
    net = train(images, labels)
    with torch.no_grad():
        right = (net(torch.from_numpy(held_out)).argmax(1).numpy() == held_out_labels).mean()
    model = to_onnx(net)
    onnx.checker.check_model(model, full_check=True)
    MODEL.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{MODEL.name}: {MODEL.stat().st_size} bytes, accuracy on held-out images {right:.4f}")


if __name__ == "__main__":
    main()
