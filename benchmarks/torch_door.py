"""`torch.compile` by Graft beside PyTorch's own inductor, in turns in one process; random weights, no network.

What is measured: evaluation (weights frozen in both), a training step's forward and backward pass, a call of one
addition, and the first call in a new process with empty and with full caches. A second run finds what was compiled in
both compilers' caches. Run: python -m benchmarks.torch_door [evaluation|training|call|first] [NAME ...] [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.peers import best_turns

Case = Callable[[], tuple[nn.Module, tuple[Any, ...]]]
IDS, IMAGE = (1, 64), (1, 3, 64, 64)
SMALL = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512}


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.side = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - what `nn.Module` says
        return torch.relu(self.body(x) + self.side(x))


class UNet(nn.Module):
    """Two levels down, two up, with bilinear resampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([Block(3, 16, 1), Block(16, 32, 2), Block(32, 64, 2)])
        self.up = nn.ModuleList([Block(96, 32, 1), Block(48, 16, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - what `nn.Module` says
        levels = []
        for one in self.down:
            x = one(x)
            levels.append(x)
        for one, level in zip(self.up, reversed(levels[:-1]), strict=True):
            x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
            x = one(torch.cat([x, level], 1))
        return x


def resnet() -> nn.Module:
    """ResNet-18's arrangement of blocks."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    blocks = [Block(*one) for one in widths]
    front = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*front, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))


def depthwise() -> nn.Module:
    """A stack of depthwise and pointwise convolutions."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1)]
    for before, after in ((32, 64), (64, 128), (128, 128)):
        layers += [
            nn.Conv2d(before, before, 3, 1, 1, groups=before),
            nn.Hardswish(),
            nn.Conv2d(before, after, 1),
            nn.SiLU(),
        ]
    return nn.Sequential(*layers)


class Recurrent(nn.Module):
    """Cells in a row, written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(64, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - what `nn.Module` says
        state = (x.new_zeros(x.shape[1], 128), x.new_zeros(x.shape[1], 128))
        for step in x:
            state = self.cell(step, state)
        return state[0]


def _configured(name: str, given: Callable[[], dict[str, torch.Tensor]] | None = None, **settings: Any) -> Case:
    """Return a case of transformers' by the name of its model and a small configuration."""

    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        import transformers

        kind = getattr(transformers, f"{name}Model")
        config = kind.config_class(**settings)
        config.use_cache = False
        image = torch.randn(1, 3, 224, 224) if kind.main_input_name == "pixel_values" else torch.randint(0, 99, IDS)
        model = kind(config)
        return model, (image, *((image,) if model.config.is_encoder_decoder else ()))

    return make


WORDS = {"vocab_size": 1000, "pad_token_id": 0}
SHARED = {**SMALL, "num_key_value_heads": 2}
HEADED = {**SHARED, "head_dim": 32}
GPT = {"n_embd": 128, "n_layer": 2, "n_head": 4}
ROTARY = {**GPT, "rotary_dim": 16}
T5 = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 4}
PAIR = {
    "d_model": 128, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
}  # fmt: skip
ENCODERS = (
    "XLMRoberta", "XLMRobertaXL", "MPNet", "MegatronBert", "Ernie", "Deberta", "RemBert", "RoFormer", "FNet",
    "Nystromformer", "ConvBert", "IBert", "LayoutLM", "RobertaPreLayerNorm", "Data2VecText", "Splinter", "NomicBert",
    "Falcon", "Phi", "Persimmon", "BioGpt",
)  # fmt: skip
DECODERS = (
    "EuroBert", "Phi3", "Mistral", "Olmo", "Olmo2", "StableLm", "Starcoder2", "Cohere", "Granite", "Nemotron",
    "SmolLM3", "Exaone4", "Arcee",
)  # fmt: skip
TEXTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(ENCODERS, SMALL),
    **dict.fromkeys(DECODERS, SHARED),
    **dict.fromkeys(("Gemma", "Gemma2", "Gemma3Text", "Qwen3", "Helium", "Glm", "Ernie4_5", "SeedOss"), HEADED),
    **dict.fromkeys(("GPTBigCode", "OpenAIGPT"), GPT),
    **dict.fromkeys(("GPTJ", "CodeGen"), ROTARY),
    **dict.fromkeys(("Bart", "MBart"), PAIR),
    **dict.fromkeys(("MT5Encoder", "UMT5Encoder"), T5),
    "DebertaV2": {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32},
    "MobileBert": {**SMALL, "num_hidden_layers": 4},
    "SqueezeBert": {**SMALL, "embedding_size": 128},
    "FunnelBase": {"block_sizes": [1, 1], "d_model": 128, "n_head": 4, "d_head": 32, "d_inner": 512},
    "Esm": {**SMALL, "mask_token_id": 32},
    "ModernBert": {**SMALL, "cls_token_id": 1, "sep_token_id": 2},
    "XLNet": {"d_model": 128, "n_layer": 2, "n_head": 4, "d_inner": 512},
    "Bloom": {"hidden_size": 128, "n_layer": 2, "n_head": 4},
    "GPTNeo": {**SMALL, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "GPTNeoXJapanese": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "Mpt": {"d_model": 128, "n_heads": 4, "n_layers": 2},
    "XGLM": {"d_model": 128, "num_layers": 2, "attention_heads": 4, "ffn_dim": 512},
    "CTRL": {**GPT, "dff": 512},
}
"""Encoders and decoders of texts, by the names of their models."""


def _own(make: Callable[[], nn.Module], *shape: int) -> Case:
    return lambda: (make(), (torch.randn(shape),))


CASES: dict[str, Case] = {
    "mlp": _own(lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)), 32, 256),
    "resnet18": _own(resnet, *IMAGE),
    "unet": _own(UNet, *IMAGE),
    "depthwise": _own(depthwise, *IMAGE),
    "lstm": _own(Recurrent, 12, 4, 64),
    "encoder": _own(lambda: nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True), 2, 64, 128),
    "bert": _configured("Bert", **SMALL),
    "roberta": _configured("Roberta", **SMALL),
    "electra": _configured("Electra", **SMALL),
    "distilbert": _configured("DistilBert", dim=128, n_layers=2, n_heads=4, hidden_dim=512),
    "albert": _configured("Albert", **SMALL),
    "gpt2": _configured("GPT2", n_embd=128, n_layer=2, n_head=4),
    "gpt_neox": _configured("GPTNeoX", **SMALL),
    "opt": _configured("OPT", hidden_size=128, num_hidden_layers=2, num_attention_heads=4, ffn_dim=512),
    "llama": _configured("Llama", **SMALL, num_key_value_heads=2),
    "qwen2": _configured("Qwen2", **SMALL, num_key_value_heads=2),
    "t5": _configured("T5Encoder", **T5),
    "vit": _configured("ViT", **SMALL),
    "deit": _configured("DeiT", **SMALL),
    "convnext": _configured("ConvNext", hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 2, 1]),
    **{name.lower(): _configured(name, **WORDS, **settings) for name, settings in TEXTS.items()},
}
LARGE: dict[str, Case] = {
    "resnet50": _configured("ResNet"),
    "bert_base": _configured("Bert"),
}
"""Those whose first call is measured."""
TRAINED = ("resnet18", "vit", "bert", "gpt2", "lstm", "unet")


def first_tensor(result: Any) -> torch.Tensor:
    """Return the tensor of a result that is compared."""
    return result if isinstance(result, torch.Tensor) else result[0]


def _compiled(module: nn.Module, backend: str, freeze: bool) -> Callable[..., Any]:
    if backend == "graft":
        return torch.compile(module, backend="graft", options={"backends": ["llvm"], "freeze": freeze})
    return torch.compile(module, backend="inductor", options={"freezing": freeze})


def evaluation(name: str) -> list[float]:
    """Return the seconds of a call by Graft, inductor and eager PyTorch, and the largest difference."""
    module, inputs = CASES[name]()
    module.eval()
    calls = [_compiled(module, one, True) for one in ("graft", "inductor")] + [module]
    with torch.no_grad():
        results = [first_tensor(call(*inputs)) for call in calls]
        difference = float((results[0] - results[2]).abs().max())
        times = best_turns([lambda call=call: call(*inputs) for call in calls], 0.3, 7)  # type: ignore[misc]
    return [*times, difference]


def training(name: str) -> list[float]:
    """Return the seconds of a forward and backward pass, and the largest difference of a gradient."""
    module, inputs = CASES[name]()
    for one in module.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.0
    module.train()
    parameters = [one for one in module.parameters() if one.requires_grad]
    steps, found = [], []
    for call in [_compiled(module, one, False) for one in ("graft", "inductor")] + [module]:

        def step(call: Callable[..., Any] = call) -> list[torch.Tensor | None]:
            loss = first_tensor(call(*inputs)).square().mean()
            return list(torch.autograd.grad(loss, parameters, allow_unused=True))

        found.append(step())
        steps.append(step)
    pairs = [
        (one, other) for one, other in zip(found[0], found[2], strict=True) if one is not None and other is not None
    ]
    difference = max(float((one - other).abs().max()) for one, other in pairs)
    return [*best_turns(steps, 0.3, 7), difference]


class Addition(nn.Module):
    """One addition, whose call is all that it costs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102 - what `nn.Module` says
        return x + 1


def call(name: str) -> list[float]:
    """Return the seconds of a call of one addition."""
    module, x = Addition(), torch.ones(4)
    calls = [_compiled(module, one, False) for one in ("graft", "inductor")] + [module]
    with torch.no_grad():
        for one in calls:
            one(x)
        return [*best_turns([lambda one=one: one(x) for one in calls], 0.3, 9), 0.0]  # type: ignore[misc]


def first(name: str) -> list[float]:
    """Return the seconds of the first call in a new process: Graft, inductor, and Graft with its caches full.

    Python may keep what it compiles of modules, as it does where a package is installed.
    """
    found = []
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**inherited, "XDG_CACHE_HOME": folder, "TORCHINDUCTOR_CACHE_DIR": folder + "/inductor"}
        for backend in ("graft", "inductor", "graft"):
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.torch_door", "one", name, "--backend", backend]
            threads = ["--threads", str(torch.get_num_threads())]
            told = subprocess.run([*command, *threads], env=environment, capture_output=True, text=True, check=True)
            found.append(float(told.stdout.split()[-1]))
    return [*found, 0.0]


def one(name: str, backend: str) -> None:
    """Print the seconds of a first call in this process, after the imports that both compilers need."""
    module, inputs = {**CASES, **LARGE}[name]()
    with torch.no_grad():
        module.eval()(*inputs)
        started = perf_counter()
        _compiled(module, backend, True)(*inputs)
        print(perf_counter() - started)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["evaluation", "training", "call", "first", "one"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--backend", default="graft")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    logging.getLogger("graft").setLevel(logging.ERROR)
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    if given.what == "one":
        one(given.names[0], given.backend)
        return
    usual: dict[str, tuple[Callable[[str], list[float]], Sequence[str]]] = {
        "evaluation": (evaluation, [*CASES]),
        "training": (training, TRAINED),
        "call": (call, ["addition"]),
        "first": (first, [*LARGE]),
    }
    measure, known = usual[given.what]
    names = given.names or known
    last = "graft again" if given.what == "first" else "eager"
    print(f"{'':12} {'graft ms':>10} {'inductor':>10} {last:>11} {'ratio':>6} {'difference':>10}")
    ratios = []
    for name in names:
        torch._dynamo.reset()
        mine, theirs, third, difference = measure(name)
        ratios.append(mine / theirs)
        if given.json:
            print(json.dumps({"name": name, "graft": mine, "inductor": theirs, last: third, "difference": difference}))
        times = " ".join(f"{1e3 * one:{width}.3f}" for one, width in ((mine, 10), (theirs, 10), (third, 11)))
        print(f"{name:12} {times} {ratios[-1]:6.2f} {difference:10.1e}", flush=True)
    print(f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, worst {max(ratios):.2f}")


if __name__ == "__main__":
    main()
