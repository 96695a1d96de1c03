"""The backend `ethosu`: quantised regions for Arm's Ethos-U, by TOSA and Vela."""

from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import graft
from graft_ethosu.patterns import MOVES, PATTERNS
from graft_ethosu.vela import EthosUOptions

DECOMPOSED = ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization", "Div")
INTEGERS = ("int8", "uint8", "int16")


class EthosU(graft.Backend):
    """Takes layers from integers to integers; Vela says of each whether the NPU has it, and what it costs."""

    name = "ethosu"
    by_default = False  # on a host its programs are simulated
    shapes = "static"
    constants = "embedded"
    quantized = True
    one_sample = True
    simulates = True
    unwanted_passes = frozenset({"interleave-convolutions"})  # the NPU transposes convolutions itself
    recipes = ({"name": "ethosu-int8", "base": "int8-channel", "results": True, "shared": ("*AveragePool", "Resize"),
                "decompose": DECOMPOSED, "operators": ("Sub", "Mul", "ReduceMean", "Resize", "Softmax")},)  # fmt: skip
    install = "pip install graft-ethosu"
    options = EthosUOptions

    def available(self):
        """Look for Vela and TOSA's tools without importing them."""
        if find_spec("ethosu") is None:
            return "ethos-u-vela is not installed; pip install ethos-u-vela"
        if find_spec("tosa_reference_model") is None:
            return "tosa-tools is not installed; pip install --no-deps tosa-tools, whose pins onnx rules out"
        return None

    @property
    def patterns(self):
        """The composites, each with a check that asks Vela."""
        return tuple(replace(row, check=partial(self._check, row.name)) for row in PATTERNS)

    def _check(self, name, match):
        from graft_ethosu.compilation import TABLE, refusal

        return refusal(match.root, self.options, name == TABLE)

    def supports(self, node):
        """Take an operator that moves integers."""
        from graft_ethosu.compilation import refusal

        if self._moves(node):
            reason = refusal(node, self.options)
            return True if reason is None else reason
        return graft.Reject("no-pattern", f"nothing in the plugin computes {node.op_type} on {node.dtype}")

    def yields(self, node):
        """Leave what only moves integers to others at the boundary of a region."""
        return graft.Yield("it only moves integers") if self._moves(node) else None

    def _moves(self, node):
        return node.op_type in MOVES and node.domain in ("", "ai.onnx") and node.dtype in INTEGERS

    def compile(self, region, options):
        """Return the region's commands, weights and graph as a module."""
        from graft_ethosu.compilation import module_of

        return module_of(region, self.options, options.cache, self.version())

    def cost(self, region):
        """Return the time that Vela estimates."""
        from graft_ethosu.compilation import seconds_of

        return graft.Cost(0, 0, seconds_of(region, self.options))

    def report(self, module):
        """Return where the cycles of a module go, as Vela estimates."""
        from graft.plugins.backend import ModuleReport
        from graft_ethosu.blob import described, opened

        header, _ = opened(module.data)
        facts = {name: fact for name, fact in header.items() if isinstance(fact, int | float | str)}
        return ModuleReport("Ethos-U", facts, described(header))

    def version(self):
        """Return the versions of Vela and of TOSA's tools."""
        from importlib.metadata import version

        return f"Vela {version('ethos-u-vela')}, TOSA tools {version('tosa-tools')}"

    fingerprint = version

    def module_loaders(self):
        """Return the loader that runs modules on a host."""
        from graft.runtime.loaders import PythonLoader
        from graft_ethosu.simulator import load

        return [PythonLoader("ethosu", load, holds_code=False)]
