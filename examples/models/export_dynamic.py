"""Export of small models with symbolic dimensions by both exporters of PyTorch, without their weights.

A few layers of known architectures with small widths: their batch, length, cache and image size are symbols, so the
graphs hold the shape arithmetic that ``torch.onnx.export`` writes with ``dynamo=True`` and ``dynamo=False``. Needs the
extra ``torch``, as `export` does:

    pip install 'graft-compiler[torch]'
    python examples/models/export_dynamic.py [name ...]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from export import FirstOutput, Tagger, saved
from small_networks import Detector, RelativePositions, ShiftedWindows, SpeechEncoder, UNet
from transformers import (
    BertConfig,
    BertModel,
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MobileNetV2Config,
    MobileNetV2ForImageClassification,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)

HERE = Path(__file__).parent / "dynamic"
OPSETS = {"dynamo": 20, "trace": 17}
LAYERS, HEADS, WIDTH, WORDS = 2, 4, 32, 100


class Decoder(torch.nn.Module):
    """A causal language model with its cache as tensors: token ids, then keys and values by layer.

    int64[batch, seq], float32[batch, heads, past, width] * 2 * layers to float32[batch, seq, words] and the cache.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the scores of the next token after each, and keys and values with those of the new tokens."""
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        present = [part for layer in result.past_key_values.layers for part in (layer.keys, layer.values)]
        return (result.logits, *present)


@dataclass(frozen=True)
class Export:
    """A model, its inputs by name with the names of their symbolic axes, and the names of its outputs."""

    build: Callable[[], torch.nn.Module]
    inputs: Mapping[str, torch.Tensor]
    axes: Mapping[str, Mapping[int, str]]
    outputs: tuple[str, ...]
    names_axes: bool = True
    """Whether ``dynamo`` is told the names of axes: sizes that a model computes with it takes for constants then."""


def bert() -> torch.nn.Module:
    config = BertConfig(
        vocab_size=WORDS, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=2 * WIDTH, max_position_embeddings=64, use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    return FirstOutput(BertModel(config), ("input_ids", "attention_mask"), outputs=2)


def gpt2() -> torch.nn.Module:
    config = GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=64)
    return Decoder(GPT2LMHeadModel(config))


def llama() -> torch.nn.Module:
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return Decoder(LlamaForCausalLM(config))


def vit() -> torch.nn.Module:
    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=2 * WIDTH,
        image_size=32, patch_size=8, num_labels=10,
    )  # fmt: skip
    return FirstOutput(ViTForImageClassification(config), ("pixel_values",))


def mobilenet() -> torch.nn.Module:
    config = MobileNetV2Config(num_labels=10, depth_multiplier=0.25)
    return FirstOutput(MobileNetV2ForImageClassification(config), ("pixel_values",))


def _cache(heads: int) -> tuple[dict[str, torch.Tensor], dict[str, Mapping[int, str]], tuple[str, ...]]:
    """Return inputs, axes and outputs of a cache; the sizes are none that an exporter takes for a constant."""
    names = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    inputs = {f"past.{name}": torch.randn(2, heads, 5, WIDTH // HEADS) for name in names}
    return inputs, {name: {0: "batch", 2: "past"} for name in inputs}, tuple(f"present.{name}" for name in names)


def _decoder(build: Callable[[], torch.nn.Module], heads: int) -> Export:
    inputs, axes, outputs = _cache(heads)
    tokens = {"input_ids": torch.arange(6).reshape(2, 3)}
    return Export(build, tokens | inputs, {"input_ids": {0: "batch", 1: "seq"}} | axes, ("logits", *outputs))


TOKENS = torch.arange(10).reshape(2, 5)
TEXT = {0: "batch", 1: "seq"}
IMAGES = {"pixel_values": {0: "batch", 2: "height", 3: "width"}}
EXPORTS = {
    "bert": Export(
        bert, {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)},
        {"input_ids": TEXT, "attention_mask": TEXT}, ("hidden", "pooled"),
    ),
    "gpt2": _decoder(gpt2, HEADS),
    "llama": _decoder(llama, 2),
    "vit": Export(vit, {"pixel_values": torch.randn(2, 3, 32, 32)}, {"pixel_values": {0: "batch"}}, ("logits",)),
    "mobilenet": Export(
        mobilenet, {"pixel_values": torch.randn(2, 3, 70, 90)},
        IMAGES, ("logits",), names_axes=False,
    ),
    "lstm": Export(Tagger, {"tokens": TOKENS}, {"tokens": TEXT}, ("scores",)),
    "unet": Export(UNet, {"pixel_values": torch.randn(2, 3, 37, 50)}, IMAGES, ("classes",), names_axes=False),
    "detector": Export(
        Detector, {"pixel_values": torch.randn(2, 3, 64, 96)}, IMAGES, ("scores", "boxes"), names_axes=False
    ),
    "windows": Export(
        ShiftedWindows, {"patches": torch.randn(2, 13, 18, 32)},
        {"patches": {0: "batch", 1: "height", 2: "width"}}, ("mixed",), names_axes=False,
    ),
    "speech": Export(
        SpeechEncoder, {"spectrum": torch.randn(2, 16, 40)}, {"spectrum": {0: "batch", 2: "frames"}}, ("encoded",),
        names_axes=False,
    ),
    "relative": Export(
        RelativePositions, {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)},
        {"input_ids": TEXT, "attention_mask": TEXT}, ("mean",), names_axes=False,
    ),
}  # fmt: skip


def export(row: Export, exporter: str) -> onnx.ModelProto:
    """Return the exported model with its weights."""
    torch.manual_seed(0)
    module, inputs = row.build().eval(), tuple(row.inputs.values())
    names = {"input_names": list(row.inputs), "output_names": list(row.outputs)}
    if exporter == "dynamo":
        shapes = tuple(
            {
                axis: torch.export.Dim(symbol, max=256) if row.names_axes else torch.export.Dim.DYNAMIC
                for axis, symbol in row.axes[name].items()
            }
            for name in row.inputs
        )
        named = {Decoder: 1, FirstOutput: 0}.get(type(module), len(shapes))  # arguments before the variadic ones
        program = torch.onnx.export(
            module, inputs, dynamo=True, opset_version=OPSETS[exporter], verbose=False, **names,
            dynamic_shapes=shapes[:named] + ((shapes[named:],) if shapes[named:] else ()),
        )  # fmt: skip
        assert program is not None, "the exporter returns a program where it gets no file name"
        return program.model_proto
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(
            module, inputs, file.name, dynamo=False, opset_version=OPSETS[exporter], dynamic_axes=dict(row.axes),
            **names,
        )  # fmt: skip
        return onnx.load(file.name)


def main(names: list[str]) -> None:
    """Write the models of these names, of all where there are none."""
    for name in names or EXPORTS:
        for exporter in OPSETS:
            saved(export(EXPORTS[name], exporter), HERE / f"{name}_{exporter}.onnx")


if __name__ == "__main__":
    main(sys.argv[1:])
