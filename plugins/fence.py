"""The fence around plugin code: what it raises names the plugin, what it returns is checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from graft.core.reject import Reject
from graft.errors import GraftError, PluginError
from graft.plugins.backend import Backend, CompiledRegion
from graft.runtime.procedure import Module

if TYPE_CHECKING:
    import onnx_ir as ir

    from graft.core.operators.table import Cost
    from graft.core.target import CompileOptions, Target
    from graft.core.tuning.options import TuneOptions, TuneReport
    from graft.core.view import NodeView
    from graft.partition.region import Region
    from graft.patterns.composite import Composite

T = TypeVar("T")


@contextmanager
def fence(plugin: str, doing: str) -> Iterator[None]:
    """Wrap whatever the plugin raises into a PluginError that names it and what it was doing, chained.

    A GraftError passes as it is, its fact ``plugin`` set: the plugin has already said what is wrong in our terms.
    SystemExit counts as a fault of the plugin; KeyboardInterrupt passes.
    """
    try:
        yield
    except GraftError as error:
        error.facts.setdefault("plugin", plugin)
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"plugin '{plugin}' raised {type(error).__name__} in {doing}: {error}", plugin=plugin, doing=doing
        ) from error


def checked_answer(backend: str, question: str, answer: object, remark: Callable[[str], None]) -> bool | Reject:
    """Return the answer of a predicate as True or a `Reject`; raise PluginError for anything else.

    A bare False (and None, which a check may return for yes, is the caller's business) becomes a `Reject` without a
    reason, and is remarked upon.
    """
    if isinstance(answer, Reject):
        return answer
    if type(answer).__name__ in ("bool", "bool_"):  # NumPy's bool, without importing NumPy
        if answer:
            return True
        remark(f"backend '{backend}': {question} returned a bare False; return graft.Reject(code, text) instead")
        return Reject("no-pattern", f"{backend} gave no reason")
    raise PluginError(
        f"backend '{backend}': {question} returned {type(answer).__name__} {answer!r}; "
        "return True or graft.Reject(code, text)",
        plugin=backend,
    )


@dataclass(frozen=True)
class FencedPass:
    """A plugin's pass as the pipeline sees it: what it raises, and a model that it leaves invalid, names the plugin."""

    plugin: str
    inner: Any

    @classmethod
    def of(cls, candidate: object, plugin: str) -> FencedPass:
        """Return a pass of a plugin, fenced; raise PluginError if it is none."""
        if not isinstance(getattr(candidate, "name", None), str) or not callable(getattr(candidate, "run", None)):
            raise PluginError(
                f"plugin '{plugin}': graft_passes gave {candidate!r}; give objects with a name and run(model) -> bool",
                plugin=plugin,
            )
        return cls(plugin, candidate)

    @property
    def name(self) -> str:
        """The name of the pass."""
        return str(self.inner.name)

    def run(self, model: ir.Model) -> bool:
        """Run the pass and check the model that it leaves; raise PluginError, naming the plugin."""
        from graft.core.passes.pipeline import verify_model

        with fence(self.plugin, f"pass '{self.name}'"):
            changed = bool(self.inner.run(model))
            if changed:
                verify_model(model, self.name)
        return changed


class FencedBackend(Backend):
    """A backend as the core sees it: the same answers, every call of vendor code in a fence.

    ``backend`` is the vendor's object. ``remarks`` collects what is tolerated but wrong, for `graft backends doctor`.
    """

    def __init__(self, backend: Backend, plugin: str, install: str = "") -> None:
        self.backend = backend
        self.plugin = plugin
        self.remarks: list[str] = []
        # Class attributes of `Backend`, which a wrapper has per instance.
        vars(self).update(
            name=backend.name,
            priority=backend.priority,
            by_default=backend.by_default,
            fallback=backend.fallback,
            api_level=backend.api_level,
            constants=backend.constants,
            install=backend.install or install,
        )

    def _call(self, method: str, function: Callable[[], T]) -> T:
        doing = method if self.plugin == self.name else f"{method} of backend '{self.name}'"
        with fence(self.plugin, doing):
            return function()

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    @property
    def patterns(self) -> Sequence[Composite]:
        """The backend's composites, their checks fenced."""
        return tuple(self._fenced(one) for one in self._call("patterns", lambda: tuple(self.backend.patterns)))

    def _fenced(self, composite: Composite) -> Composite:
        check = composite.check
        if check is None:
            return composite
        question = f"the check of '{composite.name}'"

        def fenced(match: Any) -> Reject | None:
            answer = self._call(question, lambda: check(match))
            if answer is None:
                return None
            verdict = checked_answer(self.name, question, answer, self._remark)
            return verdict if isinstance(verdict, Reject) else None

        return replace(composite, check=fenced)

    def supports(self, node: NodeView) -> bool | Reject:
        """Return the backend's answer; a bare False becomes a `Reject`, another type a PluginError."""
        question = f"supports({node.where})"
        answer: object = self._call(question, lambda: self.backend.supports(node))
        return checked_answer(self.name, question, answer, self._remark)

    def compile(self, region: Region, options: CompileOptions) -> Module | CompiledRegion:
        """Compile the region; modules learn which plugin they need at load, and how to install it."""
        doing = f"compile of region '{region.name}'"
        compiled: object = self._call(doing, lambda: self.backend.compile(region, options))
        match compiled:
            case Module():
                return self._signed(compiled)
            case CompiledRegion():
                return replace(compiled, modules=tuple(self._signed(module) for module in compiled.modules))
            case _:
                raise PluginError(
                    f"backend '{self.name}': {doing} returned {type(compiled).__name__}; "
                    "return a graft Module or CompiledRegion",
                    plugin=self.name,
                    region=region.name,
                )

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Return the backend's report."""
        return self._call("tune", lambda: self.backend.tune(regions, options, wish))

    def rounded(self, region: Region, target: Target) -> Collection[str]:
        """Return the backend's answer."""
        return self._call(f"rounded of region '{region.name}'", lambda: self.backend.rounded(region, target))

    def _signed(self, module: Module) -> Module:
        if module.kind == "native":  # the runtime itself loads these: no plugin is needed
            return module
        return replace(module, plugin=module.plugin or self.plugin, install=module.install or self.install)

    def available(self) -> str | None:
        """Return the backend's answer: None, or why it cannot run here."""
        return self._call("available", self.backend.available)

    def cost(self, region: Region) -> Cost | Sequence[Cost] | None:
        """Return the backend's estimate."""
        return self._call(f"cost of region '{region.name}'", lambda: self.backend.cost(region))

    def fingerprint(self) -> str:
        """Return the backend's fingerprint."""
        return self._call("fingerprint", self.backend.fingerprint)

    def version(self) -> str:
        """Return the backend's version line."""
        return self._call("version", self.backend.version)

    def __getattr__(self, name: str) -> Any:
        """Return what else a backend may have (``legalize``, ``simulate``, ``control_flow``), methods in a fence."""
        if name.startswith("_") or name == "backend":
            raise AttributeError(f"backend has no attribute '{name}'")
        value = getattr(self.backend, name)
        if not callable(value):
            return value
        return lambda *arguments, **options: self._call(name, lambda: value(*arguments, **options))
