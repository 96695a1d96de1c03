"""The fence around plugin code: what it raises names the plugin, what it returns is checked."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from graft.core.backend_spec import backend_text, with_label, without_label
from graft.core.reject import Reject, Yield
from graft.errors import GraftError, PluginError
from graft.plugins.backend import Backend, CompiledRegion, ModuleReport
from graft.plugins.options.known import KnownOptions
from graft.plugins.options.values import checked as checked_options
from graft.plugins.registry.compiled import checked, checked_answer
from graft.plugins.registry.declaration import BackendDeclaration, declaration_of
from graft.plugins.registry.lost_state import lost_state
from graft.plugins.static_shapes import refused_if_symbolic
from graft.plugins.time_limit import LIMITS, Limits, TimeLimitExceeded, time_limit
from graft.runtime.foreign import is_interrupt, kind_of, said, shown
from graft.runtime.loaders import C_SOURCE
from graft.runtime.procedure import SECRET, Module

if TYPE_CHECKING:
    import numpy as np

    from graft.core.graph.view import NodeView
    from graft.core.machine.machine import Machine
    from graft.core.machine.target import CompileOptions, Target
    from graft.core.operators.definition.table import Cost
    from graft.core.tuning.options import TuneOptions, TuneReport
    from graft.partition.region import Region
    from graft.patterns.composite import Composite

T = TypeVar("T")
PER_LIMIT = 1000
"""The operators of a region, of which a question may take as long as one about a single node."""


@contextmanager
def fence(plugin: str, doing: str) -> Iterator[None]:
    """Wrap whatever the plugin raises into a PluginError that names it and what it was doing, chained.

    A GraftError passes as it is, its fact ``plugin`` set: the plugin has already said what is wrong in our terms.
    Whatever else is raised, SystemExit too, is a fault of the plugin, but for the user's Ctrl-C, which passes.
    In a child that the plugin forks and lets back into the call, this is an error, too.
    """
    own = os.getpid()
    try:
        yield
        if os.getpid() != own:
            raise PluginError(
                f"plugin '{plugin}' forked in {doing}, and this is the child, which came back from the call; "
                "have it end in the plugin, with os._exit",
                plugin=plugin,
                doing=doing,
            )
    except BaseException as error:
        if is_interrupt(error):
            raise
        if _is_well_formed(error):
            error.facts.setdefault("plugin", plugin)
            raise
        text = said(error)
        if isinstance(error, TimeLimitExceeded):
            raise PluginError(f"plugin '{plugin}': in {doing}, {text}", plugin=plugin, doing=doing) from error
        raise PluginError(
            f"plugin '{plugin}' raised {kind_of(error)} in {doing}{': ' if text else ''}{text}",
            plugin=plugin,
            doing=doing,
        ) from error


def _is_well_formed(error: BaseException) -> TypeGuard[GraftError]:
    """Whether an exception is a GraftError whose constructor ran: what a plugin derives from it may lack anything."""
    if not issubclass(type(error), GraftError):
        return False
    inside = vars(error)
    return type(inside.get("facts")) is dict and type(inside.get("message")) is str


def trace_of(cause: BaseException | None) -> str:
    """Return the traceback of what a plugin raised; the exception's own methods may raise once more."""
    if cause is None:
        return ""
    try:
        return "".join(traceback.format_exception(cause))
    except Exception as error:
        return f"{kind_of(cause)}: its traceback raises {kind_of(error)}\n"


class FencedBackend(KnownOptions, Backend):
    """A backend as the core sees it: the same answers, every call of vendor code in a fence, every answer checked.

    ``backend`` is the vendor's object. ``remarks`` collects what is tolerated but wrong, for `graft backends doctor`.
    ``named`` says that the user named its plugin: then its faults stop what was asked for. One that has exceeded its
    time is asked no more: every further question is the same error.
    """

    def __init__(
        self,
        backend: Backend,
        plugin: str,
        install: str = "",
        declaration: BackendDeclaration | None = None,
        limits: Limits = LIMITS,
        lost: str = "",
    ) -> None:
        """``lost`` says why modules of the backend cannot be saved (`lost_state`)."""
        declaration = declaration or declaration_of(backend, f"backend object {kind_of(backend)}")
        self.backend = backend
        self.plugin = plugin
        self.named = False
        self.remarks: list[str] = []
        self._seconds = limits.answer
        self._stopped = ""
        self._limits = limits
        self.know_options(declaration.options, backend.option_values())
        self._lost = lost
        self._rows: tuple[tuple[object, ...], tuple[Composite, ...]] = ((), ())
        # Class attributes of `Backend`, which a wrapper has per instance.
        vars(self).update(
            options=backend.options,
            name=declaration.name,
            priority=declaration.priority,
            by_default=declaration.by_default,
            fallback=declaration.fallback,
            fuses=declaration.fuses,
            packed=declaration.packed,
            quantized=declaration.quantized,
            one_sample=declaration.one_sample,
            simulates=declaration.simulates,
            unwanted_passes=declaration.unwanted_passes,
            loses_nan=declaration.loses_nan,
            recipes=declaration.recipes,
            api_level=declaration.api_level,
            constants=declaration.constants,
            shapes=declaration.shapes,
            device=declaration.device,
            memory=declaration.memory,
            install=declaration.install or install,
            rules=declaration.rules,
        )

    def _call(self, method: str, function: Callable[[], T], bounded: bool = True, operators: int = 1) -> T:
        """Call vendor code; not ``bounded`` is what may take any time: compiling and tuning.

        What is asked of more ``operators`` at once than `PER_LIMIT` may take longer in proportion.
        """
        if self._stopped:
            raise PluginError(self._stopped, plugin=self.plugin, backend=self.name)
        doing = method if self.plugin == self.name else f"{method} of backend '{self.name}'"
        try:
            with (
                fence(self.plugin, doing),
                time_limit(self._seconds * max(1.0, operators / PER_LIMIT)) if bounded else nullcontext(),
            ):
                return function()
        except GraftError as error:
            error.facts.setdefault("backend", self.name)
            if isinstance(error.__cause__, TimeLimitExceeded):
                self._stopped = error.message
            raise

    def _fault(self, method: str, answer: object, wanted: str) -> PluginError:
        return PluginError(
            f"backend '{self.name}': {method} returned {kind_of(answer)} {shown(answer)}; return {wanted}",
            plugin=self.plugin,
            backend=self.name,
        )

    def _text(self, method: str, function: Callable[[], object]) -> str:
        answer = self._call(method, function)
        if not isinstance(answer, str):
            raise self._fault(method, answer, "a text")
        return answer

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    @property
    def patterns(self) -> Sequence[Composite]:
        """The backend's composites, their checks fenced."""
        return self._call("patterns", self._fenced_rows)

    def _fenced_rows(self) -> tuple[Composite, ...]:
        """Return the rows fenced, the same objects as before while the backend's own rows are the same objects."""
        rows = tuple(self.backend.patterns)
        known, fenced = self._rows
        if len(rows) != len(known) or any(one is not other for one, other in zip(rows, known, strict=True)):
            fenced = tuple(self._fenced(one) for one in rows)
            self._rows = rows, fenced
        return fenced

    def _fenced(self, row: object) -> Composite:
        composite = self._checked_row(row)
        check = composite.check
        if check is None and self.shapes != "static":
            return composite
        question = f"the check of '{composite.name}'"

        def fenced(match: Any) -> Reject | None:
            nodes = match.nodes if self.shapes == "static" else ()
            refusal = next((one for one in map(self._static_only, nodes) if one is not None), None)
            if refusal is not None or check is None:
                return refusal
            answer = self._call(question, lambda: check(match))
            if answer is None:
                return None
            verdict = checked_answer(self.name, question, answer, self._remark)
            return verdict if isinstance(verdict, Reject) else None

        return replace(composite, check=fenced)

    def _checked_row(self, row: object) -> Composite:
        """Return a row of the table of patterns; raise PluginError if it is none."""
        from graft.patterns.composite import Composite
        from graft.patterns.language import Pattern

        if isinstance(row, Pattern):
            wrong = 'patterns holds a bare pattern; give Composite("name", pattern)'
        elif not isinstance(row, Composite):
            wrong = f"patterns holds {kind_of(row)} {shown(row)}; give Composite objects"
        elif not isinstance(row.name, str) or not row.name:
            wrong = f'a composite is called {shown(row.name)}; give it a name, as in "{self.name}.conv_relu"'
        elif not isinstance(row.pattern, Pattern):
            wrong = (
                f"the pattern of composite '{row.name}' is {kind_of(row.pattern)} {shown(row.pattern)}; give a pattern"
            )
        elif row.check is not None and not callable(row.check):
            wrong = f"the check of composite '{row.name}' is {shown(row.check)}; give a function of the match, or None"
        elif row.vjp is not None and not callable(row.vjp):
            wrong = f"the vjp of composite '{row.name}' is {shown(row.vjp)}; give a function of an Adjoint, or None"
        else:
            return row
        raise PluginError(f"backend '{self.name}': {wrong}", plugin=self.plugin, backend=self.name)

    def device_fault(self) -> str:
        """Return why the backend's device cannot be used."""
        found: object = self._call("device_fault", lambda: self.backend.device_fault())
        if not isinstance(found, str):
            raise self._fault("device_fault", found, "a text")
        return found

    def lacks(self) -> Sequence[str]:
        """Return what the backend says is not here."""
        found: object = self._call("lacks", lambda: self.backend.lacks())
        if not isinstance(found, tuple | list) or not all(isinstance(one, str) for one in found):
            raise self._fault("lacks", found, "a tuple of texts")
        return tuple(found)

    def passes(self) -> Sequence[Any]:
        """Return the backend's passes."""
        found: object = self._call("passes", lambda: self.backend.passes())
        if not isinstance(found, tuple | list):
            raise self._fault("passes", found, "a list of passes")
        return found

    def supports(self, node: NodeView) -> bool | Reject:
        """Return the backend's answer; a bare False becomes a `Reject`, another type a PluginError."""
        refusal = self._static_only(node)
        if refusal is not None:
            return refusal
        question = f"supports({node.where})"
        answer: object = self._call(question, lambda: self.backend.supports(node))
        return checked_answer(self.name, question, answer, self._remark)

    def _static_only(self, node: NodeView) -> Reject | None:
        """Return the refusal of a node for a backend that compiles numbers only."""
        if self.shapes != "static":
            return None
        values = (value for value in (*node.inputs, *node.outputs) if value is not None)
        refusals = (refused_if_symbolic(value, self.name) for value in values)
        return next((one for one in refusals if one is not None), None)

    def yields(self, node: NodeView) -> Yield | None:
        """Return the backend's statement."""
        question = f"yields({node.where})"
        answer: object = self._call(question, lambda: self.backend.yields(node))
        if answer is not None and type(answer) is not Yield:
            raise self._fault(question, answer, "graft.Yield(text), or None to keep the node")
        return answer

    def compile(self, region: Region, options: CompileOptions) -> Module | CompiledRegion:
        """Compile the region; modules learn which plugin they need at load, and how to install it."""
        compiled = self._call(
            f"compile of region '{region.name}'",
            lambda: checked(self.backend.compile(region, options), region, self.name),
            bounded=False,
        )
        if isinstance(compiled, Module):
            return self._signed(compiled)
        return replace(compiled, modules=tuple(self._signed(module) for module in compiled.modules))

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Return the backend's report."""
        from graft.core.tuning.options import TuneReport

        report: object = self._call("tune", lambda: self.backend.tune(regions, options, wish), bounded=False)
        if report is not None and not isinstance(report, TuneReport):
            raise self._fault("tune", report, "a TuneReport or None")
        return report

    def rounded(self, region: Region, target: Target) -> Collection[str]:
        """Return the backend's answer."""
        question = f"rounded of region '{region.name}'"
        names = self._call(question, lambda: tuple(self.backend.rounded(region, target)))
        if not all(isinstance(name, str) for name in names):
            raise self._fault(question, names, "the names of nodes")
        return names

    def _signed(self, module: Module) -> Module:
        # a backend knows its own name alone: its plugin may have another, and it may have a label here
        own = without_label(self.name)
        plugin = self.plugin if module.plugin in ("", own) else module.plugin
        if module.kind == "native":  # the runtime itself loads these: no plugin is needed
            return replace(module, plugin=module.plugin and plugin)
        lost = "" if module.kind == C_SOURCE else self._lost
        return replace(
            module, plugin=plugin, install=module.install or self.install,
            backend=own, options=self.saved_options, bound=module.bound or lost,
        )  # fmt: skip

    def configured(self, options: Mapping[str, object]) -> FencedBackend:
        """Return the backend with some options set otherwise; raise OptionError for those it does not have."""
        own = self.secret_options
        given = {name: value for name, value in options.items() if name not in own or value != SECRET}
        values = checked_options(self.option_rows(), self.name, given)
        if lost := self._lost or self._call("its options", lambda: lost_state(self.backend)):
            raise PluginError(lost, plugin=self.plugin, backend=self.name)
        other = self._call("its options", lambda: self.backend.configured(values))
        found = FencedBackend(other, self.plugin, self.install, limits=self._limits)
        found.named = self.named
        return found.called(self.name)

    def labelled(self, label: str) -> FencedBackend:
        """Return a backend like this one that takes part under a label; raise OptionError for one that is none."""
        return self.configured({}).called(with_label(self.name, label))

    def called(self, name: str) -> FencedBackend:
        """Take part under a name with another label."""
        vars(self).update(name=name)
        return self

    def generates_code(self, machine: Machine) -> bool | str:
        """Return the backend's answer."""
        answer: object = self._call("generates_code", lambda: self.backend.generates_code(machine))
        if not isinstance(answer, bool | str):
            raise self._fault("generates_code", answer, "True, False, or why not")
        return answer

    def available(self) -> str | None:
        """Return the backend's answer: None, or why it cannot run here."""
        answer: object = self._call("available", lambda: self.backend.available())
        if answer is not None and not isinstance(answer, str):
            raise self._fault("available", answer, "None if it can run here, else the reason")
        return answer

    def cost(self, region: Region) -> Cost | Sequence[Cost] | None:
        """Return the backend's estimate."""
        return self._cost(f"cost of region '{region.name}'", region, lambda: self.backend.cost(region))

    def cost_on(self, region: Region, target: Target) -> Cost | Sequence[Cost] | None:
        """Return the backend's estimate."""
        return self._cost(f"cost_on of region '{region.name}'", region, lambda: self.backend.cost_on(region, target))

    def _cost(self, question: str, region: Region, ask: Callable[[], object]) -> Cost | Sequence[Cost] | None:
        from graft.core.operators.definition.table import Cost

        answer = self._call(question, ask, operators=len(region.origin))
        several = answer if isinstance(answer, tuple | list) else () if answer is None else (answer,)
        if not all(isinstance(one, Cost) for one in several):
            raise self._fault(question, answer, "a Cost, one for each kernel, or None")
        return answer  # type: ignore[return-value]

    def simulated(self, module: Module, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        """Return the arrays that the backend's simulator gives."""
        answer: object = self._call("simulated", lambda: self.backend.simulated(module, inputs), bounded=False)
        if not (answer is None or (isinstance(answer, tuple | list) and all(hasattr(one, "dtype") for one in answer))):
            raise self._fault("simulated", answer, "a list of arrays, one for each output, or None")
        return answer

    def report(self, module: Module) -> ModuleReport | None:
        """Return the backend's report."""
        answer: object = self._call("report", lambda: self.backend.report(module), bounded=False)
        if answer is not None and not isinstance(answer, ModuleReport):
            raise self._fault("report", answer, "a ModuleReport or None")
        return answer

    def disassemble(self, module: Module) -> str | None:
        """Return the backend's text."""
        answer: object = self._call("disassemble", lambda: self.backend.disassemble(module), bounded=False)
        if answer is not None and not isinstance(answer, str):
            raise self._fault("disassemble", answer, "a text or None")
        return answer

    def recompile(self, module: Module, text: str) -> Module | None:
        """Return the backend's module."""
        answer: object = self._call("recompile", lambda: self.backend.recompile(module, text), bounded=False)
        if answer is not None and not isinstance(answer, Module):
            raise self._fault("recompile", answer, "a Module or None")
        return answer

    def fingerprint(self) -> str:
        """Return the backend's fingerprint, and its options."""
        own = self._text("fingerprint", lambda: self.backend.fingerprint())
        return f"{own} {backend_text(self.name, options)}" if (options := self.shown_options) else own

    def version(self) -> str:
        """Return the backend's version line."""
        return self._text("version", lambda: self.backend.version())

    def __getattr__(self, name: str) -> Any:
        """Return what else a backend may have (``legalize``, ``simulate``, ``control_flow``), methods in a fence."""
        missing = object()
        value = missing
        if not name.startswith("_") and name != "backend":
            value = self._call(name, lambda: getattr(self.backend, name, missing))
        if value is missing:
            raise AttributeError(f"backend has no attribute '{name}'")
        if not callable(value):
            return value
        return lambda *arguments, **options: self._call(name, lambda: value(*arguments, **options), bounded=False)


def with_options(backend: FencedBackend, options: Mapping[str, Any]) -> FencedBackend:
    """Return a backend with the options that a module was compiled with: itself where it has them."""
    return backend if backend.saved_options == options else backend.configured(options)
