"""The backend of the accelerator: regions of quantised operators become one program each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from graft.core.reject import Reject, Yield
from graft.errors import OptionError
from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.frontend.operators import QUANTIZABLE
from graft.plugins.backend import Backend, CompiledRegion, ModuleReport, ShapeSupport
from graft.plugins.options.declared import option

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView
    from graft.core.machine.target import CompileOptions
    from graft.core.operators.definition.table import Cost
    from graft.partition.region import Region
    from graft.patterns.composite import Composite
    from graft.runtime.procedure import Module


@dataclass(frozen=True)
class Options(Configuration):
    """The machine, and how long tilings are searched for it."""

    trials: int = option(0, help="tilings of each layer that the cycle simulator is asked for; with 0 a model chooses")

    def __post_init__(self) -> None:
        Configuration.__post_init__(self)
        if self.trials < 0:
            raise OptionError(f"'trials' is {self.trials}; give 0 or more", backend="accelerator", option="trials")

    @property
    def configuration(self) -> Configuration:
        """The machine alone."""
        return Configuration(*(getattr(self, one.name) for one in fields(Configuration)))


class AcceleratorBackend(Backend):
    """An accelerator of a configuration, by default that of VTA's sample configurations."""

    name: ClassVar[str] = "accelerator"
    by_default: ClassVar[bool] = False
    shapes: ClassVar[ShapeSupport] = "static"
    quantized: ClassVar[bool] = True
    install: ClassVar[str] = "pip install graft-compiler"
    options: ClassVar[Any] = Options
    recipes: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"name": "accelerator-int8", "base": "int8-channel", "results": True, "keep": ["ConvTranspose"]},
    )

    @cached_property
    def patterns(self) -> Sequence[Composite]:
        """The composites in order of preference."""
        from graft.plugins.accelerator.compilation import accepted
        from graft.plugins.accelerator.frontend.patterns import PATTERNS

        return tuple(
            replace(row, check=partial(accepted, configuration=self.options.configuration)) for row in PATTERNS
        )

    def supports(self, node: NodeView) -> bool | Reject:
        """Return why a single operator is not taken: composites of bytes are, or views between them."""
        from graft.plugins.accelerator.compilation import is_alias

        if is_alias(node):
            return True
        if node.op_type in QUANTIZABLE and node.domain in ("", "ai.onnx"):
            text = f"{node.op_type} is computed on bytes alone, between DequantizeLinear and QuantizeLinear"
            return Reject("no-pattern", text)  # what a composite's check says comes before it
        return Reject("no-pattern", f"no instruction computes {node.op_type}")

    def yields(self, node: NodeView) -> Yield | None:
        """Return why a view is worth taking only between layers."""
        from graft.plugins.accelerator.compilation import is_alias

        return Yield("a view of bytes costs nothing") if is_alias(node) else None

    def compile(self, region: Region, options: CompileOptions) -> Module | CompiledRegion:
        """Return the region as a program, or several; raise CompileError where it does not fit."""
        from graft.plugins.accelerator.compilation import compile_region

        return compile_region(region, self.options.configuration, self.options.trials)

    def cost(self, region: Region) -> Sequence[Cost] | None:
        """Return None: what simulates is placed by name."""
        return None

    def report(self, module: Module) -> ModuleReport | None:
        """Return where a program's cycles go, by the cycle simulator."""
        from graft.plugins.accelerator.module import KIND
        from graft.plugins.accelerator.report import report_of

        return report_of(module) if module.kind == KIND else None

    def disassemble(self, module: Module) -> str | None:
        """Return a program as text that the assembler takes."""
        from graft.plugins.accelerator.assembly import disassemble
        from graft.plugins.accelerator.module import KIND, program_of

        return disassemble(program_of(module.data, module.constants)) if module.kind == KIND else None

    def fingerprint(self) -> str:
        """Return what compiled programs depend on."""
        return self.version()

    def version(self) -> str:
        """Return the sizes that matter most."""
        one = self.options.configuration
        return f"{one.batch} x {one.block_in} x {one.block_out}, configuration {one.digest}"
