"""All families by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from benchmarks.families.generators import GENERATORS
from benchmarks.families.images import IMAGES
from benchmarks.families.language import LANGUAGE
from benchmarks.families.mixtures import MIXTURES
from benchmarks.families.pixels import PIXELS
from benchmarks.families.signals import SIGNALS
from benchmarks.families.structured import STRUCTURED

FAMILIES: Mapping[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build for build in (*IMAGES, *PIXELS, *GENERATORS, *SIGNALS, *LANGUAGE, *STRUCTURED, *MIXTURES)
}
