"""The base class of every backend, the built-in compiler included."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from graft.core.backend_spec import with_label
from graft.core.device_memory import DeviceMemory
from graft.core.reject import Reject, Yield
from graft.plugins.options.declared import NoOptions, Option, rows_of
from graft.plugins.options.default_object import OfDefaults
from graft.plugins.options.values import options_from, values_of
from graft.plugins.supports import Rule, answer, composites, rules_of
from graft.runtime.procedure import Module, Procedure

if TYPE_CHECKING:
    import numpy as np

    from graft.core.backend_spec import OptionValue
    from graft.core.graph.view import NodeView
    from graft.core.machine.machine import Machine
    from graft.core.machine.target import CompileOptions, Target
    from graft.core.operators.definition.table import Cost
    from graft.core.tuning.options import TuneOptions, TuneReport
    from graft.partition.region import Region
    from graft.patterns.composite import Composite
    from graft.runtime.loaders import Loader

API_LEVEL = 1
"""The version of this interface; a plugin states the one it was written for as ``Backend.api_level``."""

ConstantOwnership = Literal["embedded", "passed", "handed-over"]
ShapeSupport = Literal["symbolic", "static", "run-time"]


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A region compiled into several kernels that the core's executor calls one after another.

    ``procedure`` computes the region's outputs from its run-time inputs. ``Call.module`` counts in ``modules``;
    constants are keyed in ``constants``; tensors of storage ``arena`` have no offset yet: the core plans one arena
    over all regions. The simple form of a compiled region is one `Module` with one function named as the region.
    """

    modules: tuple[Module, ...]
    procedure: Procedure
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Where the time of compiling went, by stages of the backend's own; `graft compile --time` prints them."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """Why growing caches (`Region.caches`) are copied, by the name of the output; those appended to are not here."""


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """What a backend has to say of a module that it compiled: as JSON values, as text, and as HTML."""

    title: str
    facts: Mapping[str, Any]
    text: str
    html: str = ""


class Backend:
    """A backend: what it supports and how it compiles a region. Subclass it; only `name` and `compile` are needed.

    ``constants`` says who owns a region's constants: ``embedded`` (the backend writes them into `Module.data`),
    ``passed`` (the executor passes them with every call, after the run-time inputs, in the order of
    ``region.constants``), ``handed-over`` (`Module.constants`, given once to the loader).

    ``shapes`` says what it makes of dimensions that are symbols: ``symbolic`` (what it compiles takes any value of
    them: it is asked for every operator, and answers by ``ValueView.shape``), ``static`` (it compiles numbers only: the
    core refuses for it whatever has a symbol, with ``dynamic-shape``), ``run-time`` (it is asked as the first one is,
    and what it makes of numbers is made when a program meets them: its loader keeps a bounded number).

    ``options`` is a frozen dataclass of what users may configure (docs/plugins.md): `Npu(bits=8)`, ``-b npu:bits=8``;
    of an object it is the instance, ``self.options.bits``. Options are part of plans, of keys of caches and of
    artifacts, whose loaders get the backend back as it was. Other state of an object is not saved.
    """

    name: ClassVar[str] = ""
    priority: ClassVar[int] = 100
    """Backends with larger numbers choose first, where the user gives no order; ``llvm`` is 10, ``reference`` 0."""
    by_default: ClassVar[bool] = True
    """Whether it takes part where the user names no backends; what simulates or writes sources runs only when named."""
    fallback: ClassVar[bool] = False
    """Whether it is there to take what others leave, as ``llvm`` and ``reference`` are.

    Bounds on regions, and exclusions that name no backend, do not hold for it; placement by cost prefers it to a
    backend that is not known to be faster.
    """
    fuses: ClassVar[bool] = False
    """Whether it fuses small operators into its kernels, so that it takes what an earlier backend `yields`."""
    loses_nan: ClassVar[frozenset[str]] = frozenset()
    """The operators whose result, or whose effect behind a product, is a number where ONNX says NaN.

    Placement by cost, as where the user names no backends, does not take them; who names the backend gets them.
    """
    recipes: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Recipes of quantisation, each as its TOML file has it, by which a model is quantised so that it takes it whole.

    ``graft quantize --for NAME`` takes the first. What a recipe quantises of a model the backend must compute.
    """
    api_level: ClassVar[int] = API_LEVEL
    packed: ClassVar[bool] = False
    """Whether its modules take strings, sequences, optionals and numbers of a few bits, in packed bytes.

    `graft.runtime.packed_values` says what these are; the core asks other backends for none of them.
    """
    quantized: ClassVar[bool] = False
    """Whether it computes on integers alone, so that layers from DequantizeLinear to QuantizeLinear are to be whole.

    Where it takes part, every reader has a DequantizeLinear of its own, and views are of integers: then what passes
    between its layers, and between its regions and others, are integers (`graft.core.passes.integer`).
    """
    one_sample: ClassVar[bool] = False
    """Whether it computes one sample at a time: a model of an open batch becomes a loop over samples of a batch of 1.

    That is so for all backends that take part, where each sample is proven to be for itself; what a batch of another
    number is made of stays (`graft.partition.sample_loop`).
    """
    unwanted_passes: ClassVar[frozenset[str]] = frozenset()
    """The standard passes that do not run where it takes part: what they write anew it has operators of its own for."""
    channels_last: ClassVar[frozenset[str]] = frozenset()
    """The operators that take and make images with channels last, in a `JsonBackend` or `CSourceBackend`.

    Their images have shapes (n, h, w, c) then; Graft transposes images at the borders of a region, and around operators
    that are neither named here nor elementwise. Attributes, and weights of products, stay as ONNX has them.
    """
    constants: ClassVar[ConstantOwnership] = "handed-over"
    shapes: ClassVar[ShapeSupport] = "symbolic"
    device: ClassVar[str] = "cpu"
    """The memory that its regions compute in: "cpu", or the name of a device, which its loader's library has.

    What other backends give is copied there, once for each value, and back where others want it.
    """
    simulates: ClassVar[bool] = False
    """Whether what its loader runs here is the vendor's simulator; may be a property that reads the options."""
    memory: ClassVar[DeviceMemory] = DeviceMemory()
    """What its device has room for at a time; may be a property that reads the options.

    A region that needs more is parted, and the plan says why; an operator that needs more by itself goes to the next
    backend with the reason ``size``.
    """
    install: ClassVar[str] = ""
    """The command that installs what the loader of this backend's modules needs."""
    label: str = ""
    """The label that `labelled` gave the object."""
    rules: ClassVar[tuple[Rule, ...]] = ()
    """The methods marked with `supports`, in order of definition."""
    options: ClassVar[Any] = NoOptions
    """The class of the options; of an object its options. Fields are made by `graft.option`, or have a default."""

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        cls.rules = rules_of(cls)

    def __new__(cls, *arguments: object, **given: object) -> Self:
        """Return an object that has the default options until `__init__` gives it others."""
        backend = super().__new__(cls)
        object.__setattr__(backend, "options", options_from(cls.options, cls.name, {}))
        return backend

    def __init__(self, **options: object) -> None:
        """Set options by name; raise OptionError for an unknown one, or one of a wrong type."""
        if options:
            object.__setattr__(self, "options", options_from(type(self).options, self.name, options))

    def option_rows(self) -> tuple[Option, ...]:
        """Return the declared options."""
        return rows_of(type(self).options)

    def option_values(self) -> dict[str, OptionValue]:
        """Return the values of the options in JSON's types, secrets too."""
        return values_of(self.option_rows(), self.options, self.name)

    def configured(self, options: Mapping[str, object]) -> Backend:
        """Return a backend like this one with some options set otherwise."""
        return type(self)(**{**self.option_values(), **options})

    def labelled(self, label: str) -> Backend:
        """Return this backend as one that takes part under a label, ``npu@small``, beside others of its name.

        Raise OptionError for a label that is none.
        """
        with_label(self.name, label)
        other = copy(self)
        vars(other).update(label=label)
        return other

    @OfDefaults
    def module_loaders(self) -> Iterable[Loader]:
        """Return the loaders of the kinds of its modules, as the hook `graft_module_loaders` does for a plugin."""
        return ()

    @property
    def patterns(self) -> Sequence[Composite]:
        """The composites in order of preference: those of the methods marked with `supports(pattern)`."""
        return composites(self, self.rules)

    def passes(self) -> Sequence[Any]:
        """Return passes over the simplified model that run only where this backend takes part, in its order.

        A pass is what `graft_passes` says; what it leaves must mean the same to all backends, to the last bit.
        """
        return ()

    def supports(self, node: NodeView) -> bool | Reject:
        """Return True to take a single node, or why not: what the methods marked ``supports("Op")`` say."""
        return answer(self, self.rules, node)

    def yields(self, node: NodeView) -> Yield | None:
        """Return a `Yield` for a supported node that is worth taking only between others, None for any other.

        Such nodes at the boundary of a region, and composites and regions of nothing else, go to the next backend that
        takes them if that one `fuses`; otherwise they stay. The plan gives the reason ``cost`` with the text.
        """
        return None

    def compile(self, region: Region, options: CompileOptions) -> Module | CompiledRegion:
        """Compile a region; raise to hand it to the next backend.

        Where some of its nodes alone are at fault, `graft.errors.CompileError` names them: ``nodes=["conv1"]``, with
        ``reject=Reject("size", "...")`` as the reason. These go to the next backend, and the rest is placed anew.
        """
        raise TypeError(f"backend '{self.name}' does not define compile(region, options)")

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        """Measure on this machine how best to compile regions, within ``wish.seconds``, and remember it.

        What is found is kept in ``options.tuned``, for `compile` now and later. None: there is nothing to tune.
        """
        return None

    def rounded(self, region: Region, target: Target) -> Collection[str]:
        """Return the names of the nodes whose float32 factors ``target.precision`` makes smaller, for plans."""
        return ()

    def generates_code(self, machine: Machine) -> bool | str:
        """Return whether code is generated for a machine; a string says why not, for this one.

        False is the answer of a backend that generates none: a library, an interpreter.
        """
        return False

    def available(self) -> str | None:
        """Return None if the backend can run here, else the reason and what to install."""
        return None

    def device_fault(self) -> str:
        """Return why the device of its programs cannot be used here (no driver, no device), "" if it can.

        A program that computes there is compiled all the same, and saved; it is not loaded.
        """
        return ""

    def lacks(self) -> Sequence[str]:
        """Return what is not here, besides a device, and would make its programs faster; with what to do.

        `graft backends doctor` says it: an assembler that would make loading faster.
        """
        return ()

    def cost(self, region: Region) -> Cost | Sequence[Cost] | None:
        """Return the estimated cost of a region, or one for each of its kernels that run one after another.

        None: nothing is known, and the core takes every operator to be computed by itself, at a slow rate. Operations
        are counted as at the processor's full rate: a kernel that reaches half of it reports twice as many.
        """
        return None

    def cost_on(self, region: Region, target: Target) -> Cost | Sequence[Cost] | None:
        """Return the cost of a region in code for a target: `cost`, unless the backend's device is among the target's.

        What a device computes is no work of the processor: it is told in ``seconds``, without operations and bytes.
        Copies over the bus are added where values pass between ``device`` and another memory.
        """
        return self.cost(region)

    def simulated(self, module: Module, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray] | None:
        """Return what the vendor's simulator or reference model makes of a region's inputs, without the device.

        `graft verify --against vendor-simulator` holds the model and the program against it. None: there is none, or
        the program itself runs by it (`simulates`).
        """
        return None

    def report(self, module: Module) -> ModuleReport | None:
        """Return what there is to tell of a module after it was compiled; None for nothing."""
        return None

    def disassemble(self, module: Module) -> str | None:
        """Return the instructions of a module as text, for `graft inspect --disassemble`; None if there is no text."""
        return None

    def recompile(self, module: Module, text: str) -> Module | None:
        """Return a module with the code of its edited source; None if it is of another backend, or has no source.

        Raises CompileError for what the compiler refuses.
        """
        return None

    def fingerprint(self) -> str:
        """Return what compiled code depends on besides region and options (library version); joins cache keys."""
        return ""

    def version(self) -> str:
        """Return a version line for `graft backends show`."""
        return ""
