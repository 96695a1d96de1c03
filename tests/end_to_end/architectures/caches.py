"""Decoders of transformers with the keys and values of what came before as inputs, and those of all as outputs."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from tests.end_to_end.architectures.configurations import configuration
from tests.end_to_end.architectures.inputs import Input


class Cached(torch.nn.Module):
    """Tokens and two tensors a layer in; scores of the last token and two tensors a layer out."""

    def __init__(self, model: Any) -> None:
        """Take a decoder."""
        super().__init__()
        self.model = model

    def forward(self, tokens: Any, *arrays: Any) -> Any:
        """Return the scores and the longer caches."""
        cache = transformers.DynamicCache(list(zip(arrays[::2], arrays[1::2], strict=True)))
        found = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
        layers = found.past_key_values.layers
        return found.logits[:, -1], *(one for layer in layers for one in (layer.keys, layer.values))


def cached(architecture: str) -> tuple[Any, tuple[Input, ...]]:
    """Return a decoder with caches of any length, and what it takes."""
    config = configuration(architecture)
    config.use_cache = True
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    layers = model(torch.tensor([[3, 4, 5]]), use_cache=True).past_key_values.layers
    inputs = [Input("input_ids", "ids", ("batch", "length"))]
    for number, layer in enumerate(layers):
        for name, one in (("keys", layer.keys), ("values", layer.values)):
            inputs.append(Input(f"past_{name}_{number}", "floats", ("batch", one.shape[1], "past", one.shape[3])))
    return Cached(model), tuple(inputs)
