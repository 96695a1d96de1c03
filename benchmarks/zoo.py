"""The models that tests and benchmarks share, with weights from a seed.

The nine light models come with the onnx package; the exported ones are committed without weights. Those of MLPerf Tiny
are built, and those of 8-bit integers made from others, when they are first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import onnx_ir as ir

import graft
from examples.models import tiny
from examples.models.seed_weights import SeedWeights

LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
EXPORTED = (
    "bert_base", "gpt2", "vit_base", "mobilenet_v2", "convnext_tiny", "lstm", "swin_tiny", "distilbert",
    "whisper_tiny_encoder", "llama", "llama_opset23",
)  # fmt: skip
SMALL = ("light_squeezenet", "light_shufflenet", "mobilenet_v2", "lstm")
TINY = tuple(f"tiny_{name}" for name in tiny.TINY)
QUANTIZED = {
    "int8_resnet50": "light_resnet50", "int8_mobilenet_v2": "mobilenet_v2", "int8_digits": "digits",
    **{f"int8_{name}": name for name in TINY},
}  # fmt: skip
"""Models in QDQ form, and what they are made from."""
NAMES = (*(f"light_{name}" for name in LIGHT), *EXPORTED)

_EXAMPLES = Path(__file__).parent.parent / "examples"


def path_of(name: str) -> Path:
    """Return the file of a model; raise KeyError if there is none of this name."""
    if name == "digits":
        return _EXAMPLES / "digits" / "digits.onnx"
    if name.startswith("light_"):
        return Path(str(files("onnx.backend.test") / "data" / "light" / f"{name}.onnx"))
    if name not in EXPORTED:
        raise KeyError(f"no model '{name}'; there are {', '.join((*NAMES, *TINY, *QUANTIZED))}")
    return _EXAMPLES / "models" / f"{name}.onnx"


@cache
def model(name: str, seed: int = 0) -> ir.Model:
    """Return a model with He-initialised weights from ``seed``, or a family; ask for a clone before changing it."""
    from benchmarks.families.all import FAMILIES

    if name in FAMILIES:
        return graft.load(FAMILIES[name]())
    if name in QUANTIZED:
        from benchmarks.data.quantize import quantized

        return quantized(model(QUANTIZED[name], seed), signed=QUANTIZED[name] in TINY)
    if name in TINY:
        return graft.load(tiny.TINY[name.removeprefix("tiny_")](seed))
    loaded = graft.load(path_of(name))
    SeedWeights(seed).run(loaded)
    return loaded


if __name__ == "__main__":
    from benchmarks.families.table import main

    main()
