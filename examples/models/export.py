"""Export of eleven well-known architectures from PyTorch, without their weights.

Every model is built from its published configuration with seeded random weights (nothing is downloaded), traced at a
fixed shape with batch 1, and stripped: each large float initialiser becomes a ConstantOfShape node, as in the models
that the onnx package ships. The files are valid ONNX of a few hundred kilobytes at most;
`examples.models.seed_weights.SeedWeights` gives them weights again. Needs the extra ``torch``:

    pip install 'graft-compiler[torch]'
    python examples/models/export.py [name ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from transformers import (
    BertConfig,
    BertModel,
    ConvNextConfig,
    ConvNextForImageClassification,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    SwinConfig,
    SwinForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

HERE = Path(__file__).parent
OPSET = 20
LARGE_ELEMENTS = 32
LARGE_MASK = 8192
FILL = 0.02
CLASSES = 1000


@dataclass(frozen=True)
class Export:
    """A model to export: how to build it, and its inputs by name."""

    build: Callable[[], torch.nn.Module]
    inputs: dict[str, torch.Tensor]
    opset: int = OPSET


class FirstOutput(torch.nn.Module):
    """A transformers model that takes its arguments by position and gives its first outputs as tensors."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...], outputs: int = 1) -> None:
        super().__init__()
        self.model, self.names, self.outputs = model, names, outputs

    def forward(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the first ``outputs`` results of the model."""
        results = self.model(**dict(zip(self.names, arguments, strict=True)), return_dict=False)
        return tuple(results[: self.outputs])


class Tagger(torch.nn.Module):
    """A sequence tagger: embedding, two LSTM layers, a linear layer; int64[1, 32] to float32[1, 32, 64]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, 128)
        self.lstm = torch.nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.linear = torch.nn.Linear(256, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a score for every tag at every position."""
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.linear(hidden)


def bert() -> torch.nn.Module:
    config = BertConfig(use_cache=False, attn_implementation="eager")
    return FirstOutput(BertModel(config), ("input_ids", "attention_mask", "token_type_ids"), outputs=2)


def gpt2() -> torch.nn.Module:
    config = GPT2Config(use_cache=False, attn_implementation="eager")
    return FirstOutput(GPT2LMHeadModel(config), ("input_ids",))


def vit() -> torch.nn.Module:
    config = ViTConfig(num_labels=CLASSES, attn_implementation="eager")
    return FirstOutput(ViTForImageClassification(config), ("pixel_values",))


def mobilenet() -> torch.nn.Module:
    return FirstOutput(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=CLASSES)), ("pixel_values",))


def convnext() -> torch.nn.Module:
    return FirstOutput(ConvNextForImageClassification(ConvNextConfig(num_labels=CLASSES)), ("pixel_values",))


def swin() -> torch.nn.Module:
    config = SwinConfig(num_labels=CLASSES, attn_implementation="eager")
    return FirstOutput(SwinForImageClassification(config), ("pixel_values",))


def distilbert() -> torch.nn.Module:
    return FirstOutput(DistilBertModel(DistilBertConfig(attn_implementation="eager")), ("input_ids", "attention_mask"))


def whisper() -> torch.nn.Module:
    """The encoder of the "tiny" size of arXiv:2212.04356: 30 seconds of sound as 3000 frames of 80 bands."""
    config = WhisperConfig(
        d_model=384,
        encoder_layers=4,
        encoder_attention_heads=6,
        encoder_ffn_dim=1536,
        attn_implementation="eager",
    )
    return FirstOutput(WhisperEncoder(config), ("input_features",))


def llama(attention: str = "eager") -> torch.nn.Module:
    """Four layers of width 512: eight heads that share two key and value heads, rotated positions, SwiGLU of 1408."""
    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1408,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        use_cache=False,
        attn_implementation=attention,
    )
    return FirstOutput(LlamaForCausalLM(config), ("input_ids",))


def _tokens(length: int) -> torch.Tensor:
    return torch.arange(length).reshape(1, length)


IMAGE = torch.zeros(1, 3, 224, 224)

EXPORTS = {
    "bert_base": Export(
        bert,
        {
            "input_ids": _tokens(128),
            "attention_mask": torch.ones(1, 128, dtype=torch.int64),
            "token_type_ids": torch.zeros(1, 128, dtype=torch.int64),
        },
    ),
    "gpt2": Export(gpt2, {"input_ids": _tokens(64)}),
    "vit_base": Export(vit, {"pixel_values": IMAGE}),
    "mobilenet_v2": Export(mobilenet, {"pixel_values": IMAGE}),
    "convnext_tiny": Export(convnext, {"pixel_values": IMAGE}),
    "swin_tiny": Export(swin, {"pixel_values": IMAGE}),
    "distilbert": Export(
        distilbert, {"input_ids": _tokens(128), "attention_mask": torch.ones(1, 128, dtype=torch.int64)}
    ),
    "whisper_tiny_encoder": Export(whisper, {"input_features": torch.zeros(1, 80, 3000)}),
    "llama": Export(llama, {"input_ids": _tokens(64)}),
    "llama_opset23": Export(lambda: llama("sdpa"), {"input_ids": _tokens(64)}, opset=23),
    "lstm": Export(Tagger, {"tokens": _tokens(32)}),
}


def export(row: Export) -> onnx.ModelProto:
    """Return the traced model with its weights."""
    torch.manual_seed(0)
    module = row.build().eval()
    program = torch.onnx.export(
        module,
        tuple(row.inputs.values()),
        input_names=list(row.inputs),
        opset_version=row.opset,
        dynamo=True,
        verbose=False,
    )
    assert program is not None, "the exporter returns a program where it gets no file name"
    return program.model_proto


def is_weight(tensor: onnx.TensorProto) -> bool:
    """Whether an initialiser is a large float tensor that is no mask or table (whole numbers, infinities)."""
    if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) <= LARGE_ELEMENTS:
        return False
    array = numpy_helper.to_array(tensor)
    values = np.unique(array)
    return bool(np.isfinite(values).all()) and (len(values) == 1 or bool((values != np.rint(values)).any()))


def is_small_mask(tensor: onnx.TensorProto) -> bool:
    """Whether an initialiser is a large float tensor of whole numbers that int8 holds as well."""
    if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims) <= LARGE_MASK or is_weight(tensor):
        return False
    array = numpy_helper.to_array(tensor)
    return bool(np.isfinite(array).all()) and array.min() >= -128 and array.max() <= 127


def strip_weights(model: onnx.ModelProto) -> None:
    """Replace every weight by a ConstantOfShape node and keep large masks as int8 behind a Cast, in place."""
    graph = model.graph
    kept, nodes = [], []
    for tensor in graph.initializer:
        if is_small_mask(tensor):
            narrow = numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.int8), f"{tensor.name}_int8")
            kept.append(narrow)
            nodes.append(helper.make_node("Cast", [narrow.name], [tensor.name], to=onnx.TensorProto.FLOAT))
            continue
        if not is_weight(tensor):
            kept.append(tensor)
            continue
        shape = numpy_helper.from_array(np.array(tensor.dims, np.int64), f"{tensor.name}_shape")
        value = helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [FILL])
        kept.append(shape)
        nodes.append(helper.make_node("ConstantOfShape", [shape.name], [tensor.name], value=value))
    nodes.extend(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    del graph.value_info[:]


def saved(model: onnx.ModelProto, path: Path) -> None:
    """Write a model without its weights, and without what says where and when it was made."""
    strip_weights(model)
    model.graph.name = path.stem
    model.producer_name, model.producer_version = "graft examples/models/export.py", ""
    for part in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]
        part.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path.name}: {len(model.graph.node)} nodes, {path.stat().st_size} bytes")


def main(names: list[str]) -> None:
    for name in names or EXPORTS:
        saved(export(EXPORTS[name]), HERE / f"{name}.onnx")


if __name__ == "__main__":
    main(sys.argv[1:])
