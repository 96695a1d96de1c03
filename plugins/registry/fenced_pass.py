"""The fence around a plugin's pass: a fault leaves the model as it was."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graft.errors import GraftError, PluginError
from graft.plugins.registry.fence import fence
from graft.plugins.time_limit import LIMITS, time_limit
from graft.runtime.foreign import shown

if TYPE_CHECKING:
    import onnx_ir as ir

log = logging.getLogger("graft.plugins")


@dataclass(frozen=True)
class FencedPass:
    """A plugin's pass as the pipeline sees it: what it raises, and a model that it leaves invalid, names the plugin.

    With ``named`` (the user named the plugin) a fault is an error; else it is warned about, and the model is as it was
    before the pass.
    """

    plugin: str
    name: str
    inner: Any
    named: bool = True
    seconds: float = LIMITS.load

    @classmethod
    def of(cls, candidate: object, plugin: str, named: bool = True, seconds: float = LIMITS.load) -> FencedPass:
        """Return a pass of a plugin, fenced; raise PluginError if it is none."""
        with fence(plugin, "graft_passes"):
            name, run = getattr(candidate, "name", None), getattr(candidate, "run", None)
        if not isinstance(name, str) or not callable(run):
            raise PluginError(
                f"plugin '{plugin}': graft_passes gave {shown(candidate)}; "
                "give objects with a name and run(model) -> bool",
                plugin=plugin,
            )
        return cls(plugin, name, candidate, named, seconds)

    def run(self, model: ir.Model) -> bool:
        """Run the pass and check the model that it leaves; raise PluginError, naming the plugin, if it was named."""
        before = None if self.named else model.clone()
        try:
            return self.attempt(model)
        except GraftError as error:
            if before is None:
                raise
            log.warning("%s; the model is as it was before", error.message)
            model.graph = before.graph
            model.functions.clear()
            model.functions.update(before.functions)
            return False

    def attempt(self, model: ir.Model) -> bool:
        """Run the pass and check the model that it leaves; raise PluginError, naming the plugin."""
        from graft.core.passes.pipeline import verify_model

        with fence(self.plugin, f"pass '{self.name}'"), time_limit(self.seconds):
            changed = bool(self.inner.run(model))
            if changed:
                verify_model(model, self.name)
        return changed
