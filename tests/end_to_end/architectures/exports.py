"""Exports of the architectures: what a model takes, by kind, and the ONNX model that PyTorch's exporter makes of it."""

from __future__ import annotations

import inspect
import io
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.end_to_end.architectures.configurations import configuration
from tests.end_to_end.architectures.inputs import BINDINGS, Input


@dataclass(frozen=True)
class Kind:
    """What the models of a kind take and which of the automatic classes builds them."""

    auto: str
    inputs: tuple[Input, ...]


IDS, MASK = Input("input_ids", "ids", ("batch", "length")), Input("attention_mask", "mask", ("batch", "length"))
TARGET = Input("decoder_input_ids", "ids", ("batch", "target"))
KINDS: Mapping[str, Kind] = {
    "decoder": Kind("AutoModelForCausalLM", (IDS,)),
    "masked": Kind("AutoModelForCausalLM", (IDS, MASK)),
    "encoder": Kind("AutoModel", (IDS, MASK)),
    "seq2seq": Kind("AutoModel", (IDS, TARGET)),
    "image": Kind("AutoModel", (Input("pixel_values", "floats", ("batch", 3, "size", "size")),)),
    "images": Kind("AutoModel", (Input("pixel_values", "floats", ("batch", 3, "height", "width")),)),
    "audio": Kind("AutoModel", (Input("input_values", "floats", ("batch", "samples")),)),
    "pair": Kind("AutoModel", (IDS, Input("pixel_values", "floats", ("batch", 3, "size", "size")))),
}

DEAD = frozenset({"mobilevit", "mobilevitv2", "efficientnet", "align"})
"""Those whose results are all 0, or no numbers, by the weights that transformers draws: they are drawn wider."""

NETWORK, CACHED = "network", "cached"
"""The kinds of what is written by hand, and of decoders with caches."""
NAMES: Mapping[str, str] = {
    "decoder": "granite olmo2 cohere2 stablelm starcoder2 nemotron deepseek_v3 qwen3_moe lfm2 falcon_h1 bamba mamba2 "
    "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neo gpt_neox gptj opt bloom falcon mpt "
    "olmo olmo3 cohere mixtral qwen2_moe granitemoe olmoe smollm3 helium glm glm4 ernie4_5 exaone4 arcee persimmon "
    "codegen biogpt ctrl gpt_bigcode mamba falcon_mamba rwkv granitemoehybrid jamba deepseek_v2 dots1 gpt_oss "
    "hunyuan_v1_dense hunyuan_v1_moe seed_oss apertus bitnet diffllama doge nanochat vaultgemma xglm openai-gpt "
    "qwen3_next minimax phimoe jetmoe flex_olmo cwm ministral3 zamba2 recurrent_gemma modernbert-decoder",
    "masked": "granite llama qwen3 gpt2 gemma2 opt bloom qwen3_moe falcon_h1 bamba lfm2",
    "cached": "llama granite qwen3 olmo2 cohere2 gpt2 gemma2 opt stablelm starcoder2 phi3 gpt_neox qwen3_moe "
    "smollm3 glm4",
    "encoder": "bert roberta albert distilbert electra mpnet deberta deberta-v2 modernbert convbert fnet roformer "
    "mobilebert squeezebert xlm-roberta camembert esm ernie longformer big_bird nystromformer funnel xlnet xlm "
    "flaubert rembert layoutlm ibert megatron-bert nomic_bert eurobert roc_bert canine xmod",
    "seq2seq": "t5 bart mbart pegasus marian blenderbot mvp plbart m2m_100 umt5 mt5 longt5 led prophetnet fsmt "
    "switch_transformers",
    "image": "vit deit beit dinov2 dinov2_with_registers vit_msn data2vec-vision hiera levit cvt pvt_v2 swin "
    "swinv2 mobilevit mobilevitv2 ijepa yolos clip_vision_model siglip_vision_model dinov3_vit",
    "images": "resnet regnet convnext convnextv2 bit mobilenet_v1 mobilenet_v2 efficientnet poolformer segformer "
    "focalnet swin2sr swin swinv2 swiftformer textnet hgnet_v2 dinov3_convnext",
    "audio": "wav2vec2 hubert unispeech unispeech-sat wavlm data2vec-audio wav2vec2-conformer sew",
    "pair": "clip siglip blip altclip chinese_clip align",
}  # fmt: skip
"""The architectures that are tried, by kind."""


def all_names() -> list[str]:
    """Return every model as ``kind/architecture``, those of transformers first."""
    from tests.end_to_end.architectures.networks.all import NETWORKS

    theirs = [f"{kind}/{name}" for kind, names in NAMES.items() for name in names.split()]
    return [*theirs, *(f"{NETWORK}/{name}" for name in NETWORKS)]


def inputs_of(kind: str, config: Any) -> tuple[Input, ...]:
    """Return the inputs of a model, its image size a number where it has one."""
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    size = size[0] if isinstance(size, list | tuple) else size
    rows = KINDS[kind].inputs
    return tuple(
        Input(row.name, row.kind, tuple(size if one == "size" else one for one in row.shape), row.high) for row in rows
    )


def export(name: str, path: Path) -> tuple[Input, ...]:
    """Write the ONNX model of ``kind/architecture``, weights by seed; raise what the libraries raise."""
    import torch

    torch.manual_seed(0)
    kind, _, architecture = name.partition("/")
    makers = {NETWORK: _network, CACHED: _cached}
    module, inputs = makers[kind](architecture) if kind in makers else _architecture(kind, architecture)
    arrays = [torch.from_numpy(one.drawn(BINDINGS[0], number)) for number, one in enumerate(inputs)]
    names = [one.name for one in inputs]
    open_axes = [{axis: x for axis, x in enumerate(one.shape) if isinstance(x, str)} for one in inputs]
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        module(*arrays)
        if any(isinstance(one, torch.nn.RNNBase) for one in module.modules()):  # torch.export fixes their lengths
            axes = dict(zip(names, open_axes, strict=True))
            torch.onnx.export(module, tuple(arrays), path, dynamo=False, input_names=names, dynamic_axes=axes)
            return inputs
        shapes = tuple(dict.fromkeys(one, torch.export.Dim.DYNAMIC) for one in open_axes)
        arguments = {NETWORK: shapes, CACHED: {"tokens": shapes[0], "arrays": shapes[1:]}}
        torch.onnx.export(
            module, tuple(arrays), path, dynamo=True, input_names=names, external_data=False,
            dynamic_shapes=arguments.get(kind, (shapes,)),
        )  # fmt: skip
    return inputs


def _cached(architecture: str) -> tuple[Any, tuple[Input, ...]]:
    """Return a decoder with caches of any length, and what it takes."""
    from tests.end_to_end.architectures.caches import cached

    return cached(architecture)


def answers_of_torch(name: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return what PyTorch makes of a network that is written by hand; None for other architectures."""
    import torch

    kind, _, network = name.partition("/")
    if kind != NETWORK:
        return None
    torch.manual_seed(0)
    with torch.no_grad():
        found = _network(network)[0](*map(torch.from_numpy, arrays))
    return [one.numpy() for one in (found if isinstance(found, tuple) else (found,))]


def _network(name: str) -> tuple[Any, tuple[Input, ...]]:
    """Return a network written by hand, and what it takes."""
    from tests.end_to_end.architectures.networks.all import NETWORKS

    found = NETWORKS[name]
    return found.build().eval(), found.inputs


def _architecture(kind: str, architecture: str) -> tuple[Any, tuple[Input, ...]]:
    """Return an architecture of transformers, its tensors as a tuple, and what it takes."""
    import torch
    import transformers

    config = configuration(architecture)
    model = getattr(transformers, KINDS[kind].auto).from_config(config).eval().float()
    if architecture in DEAD:
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=(2 / weight[0].numel()) ** 0.5)
    inputs = inputs_of(kind, config)
    return _wrapped(model, [one.name for one in inputs]), inputs


def _wrapped(model: Any, names: Sequence[str]) -> Any:
    """Return the model with its inputs in order and the tensors of its first outputs as a tuple."""
    import torch

    takes = inspect.signature(model.forward).parameters
    options = {"use_cache": False} if "use_cache" in takes else {}

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *arrays: Any) -> Any:
            found = self.model(**dict(zip(names, arrays, strict=True)), **options, return_dict=True)
            parts = [one for part in found.to_tuple() for one in (part if isinstance(part, tuple) else (part,))]
            tensors = [one for one in parts if isinstance(one, torch.Tensor) and one.is_floating_point()]
            return tuple(tensors[:2])

    return Wrapped()
