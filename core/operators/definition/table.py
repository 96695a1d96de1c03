"""The operator table: what Graft knows about an ONNX operator, in one definition each.

What the ONNX schema says (inputs, attributes, defaults, types) is not said again. A definition adds traits (facts
that passes ask about), cost, and the lowering into stages of the tensor IR. Everything that compiles uses the same
lowering and brings its own schedule.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ParamSpec

import numpy as np
import onnx

from graft.core.graph.view import NodeView
from graft.core.operators.definition.adjoint import Vjp
from graft.core.operators.definition.checks import Fault
from graft.core.operators.definition.demands import Demand
from graft.core.operators.definition.facts import BoundsRule, ContentsRule, IdentityRule, ShapeRule
from graft.core.operators.definition.function_body import Function
from graft.core.operators.definition.index_bounds import IndexRule
from graft.core.operators.definition.stated_extents import Stated
from graft.core.reject import Reject
from graft.core.tensor_ir.ir import Buffer, Constant, Expression, Stage
from graft.core.types import CUSTOM_DOMAIN, INT64
from graft.errors import GraftError


class Trait(Enum):
    """Facts about an operator that passes and schedules ask for."""

    __hash__ = object.__hash__  # that of Enum is a function in Python, and passes ask for each operator

    ELEMENTWISE = auto()
    """One stage; output element depends on the input elements at the same (broadcast) index."""
    INJECTIVE = auto()
    """One stage without reduction; output element depends on one element of one input (Transpose, Slice, Concat)."""
    VIEW = auto()
    """The output holds the input's bytes under another shape (Reshape, Flatten, Squeeze)."""
    REDUCTION = auto()
    """Ends in a reduction over some axes."""
    ROW_WISE = auto()
    """Several dependent reductions over trailing axes (Softmax, LayerNormalization)."""
    DISTRIBUTION = auto()
    """Along an axis the output is a distribution: exponentials, divided by their sum (Softmax)."""
    CONTRACTION = auto()
    """A sum of products: MatMul, Gemm, Einsum."""
    ATTENTION = auto()
    """A sum of products, Softmax along its last axis, and a sum of products with that: fusion makes such kernels."""
    CONVOLUTION = auto()
    """A contraction over sliding windows."""
    POOLING = auto()
    """A reduction over sliding windows."""
    RECURRENT = auto()
    """Steps that depend on each other: LSTM, GRU, RNN."""
    SCATTER = auto()
    """Puts updates at the places that the second input holds, one after the other."""
    COMMUTATIVE = auto()
    """The first two inputs may be swapped."""
    ASSOCIATIVE = auto()
    """Nested uses may be regrouped (up to floating-point rounding)."""
    DATA_MOVEMENT = auto()
    """Outputs are made of elements of the first input (if `JOINING`: of all), of whatever type they are."""
    JOINING = auto()
    """The output is all inputs, one behind the other along the attribute ``axis``."""
    SELECTING = auto()
    """Floats of the outputs are among those of the inputs, but for sign, fraction or 0 and 1: none is rounded."""
    QUANTIZABLE = auto()
    """Its float inputs may be quantised: it sums them, or products of them, so their scales are factors of sums."""
    HOMOGENEOUS = auto()
    """A positive factor of a channel of the first input is one of the same channel of the output (Relu, MaxPool)."""
    SHAPE_ONLY = auto()
    """Reads only the shape of its input (Shape, Size)."""
    EXPANDED = auto()
    """The function that ONNX or its row has is written in its place (`graft.core.importer.function_bodies`)."""
    STRAIGHT_THROUGH = auto()
    """Its integers carry the gradient of the numbers that they stand for (QuantizeLinear)."""
    NONDETERMINISTIC = auto()
    """Two runs may differ (RandomNormal): never folded, never merged as a common subexpression."""


@dataclass(frozen=True, slots=True)
class Cost:
    """An estimate for one node or kernel: floating-point operations and bytes moved to and from memory."""

    flops: int
    bytes: int
    seconds: float = 0.0
    """Time beside both that no thread shares, such as calls of a library."""


@dataclass(slots=True)
class Lowering:
    """What a lowering works with: the node, a buffer per input and output, and the constant inputs.

    ``inputs[i]`` and ``outputs[i]`` are None for absent optional ones. ``constant(i)`` gives the contents of an input
    that the operator needs at compile time (axes, shapes, pads).
    """

    node: NodeView
    inputs: tuple[Buffer | None, ...]
    outputs: tuple[Buffer | None, ...]
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    temporaries: int = 0
    known: dict[Buffer, np.ndarray] = field(default_factory=dict)
    """What stages compute that depend on no input: who generates code keeps it instead."""

    def input(self, index: int) -> Buffer:
        """Return the buffer of an input that must be present."""
        buffer = self.inputs[index] if index < len(self.inputs) else None
        assert buffer is not None, f"{self.node.where}: input {index} is absent"
        return buffer

    def optional(self, index: int) -> Buffer | None:
        """Return the buffer of an optional input, None when it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int = 0) -> Buffer:
        """Return the buffer of an output that must be present."""
        buffer = self.outputs[index] if index < len(self.outputs) else None
        assert buffer is not None, f"{self.node.where}: output {index} is absent"
        return buffer

    def optional_output(self, index: int) -> Buffer | None:
        """Return the buffer of an optional output, None when it is absent."""
        return self.outputs[index] if index < len(self.outputs) else None

    def constant(self, index: int) -> np.ndarray | None:
        """Return the contents of input ``index`` if they are known at compile time."""
        return self.constants.get(index)

    def temporary(self, dtype: str, shape: tuple[int | Expression, ...]) -> Buffer:
        """Return a fresh intermediate buffer."""
        self.temporaries += 1
        extents = tuple(Constant(extent, INT64) if isinstance(extent, int) else extent for extent in shape)
        stem = next(buffer.name for buffer in self.outputs if buffer is not None)
        return Buffer(f"{stem}_t{self.temporaries}", dtype, extents, memory="scratch")

    def table(self, contents: np.ndarray) -> Buffer:
        """Return a fresh buffer for a stage that computes these numbers, which depend on no input."""
        self.temporaries += 1
        stem = next(buffer.name for buffer in self.outputs if buffer is not None)
        extents = tuple(Constant(extent, INT64) for extent in contents.shape)
        buffer = Buffer(f"{stem}_table{self.temporaries}", str(contents.dtype), extents)
        self.known[buffer] = contents
        return buffer


LowerFunction = Callable[[Lowering], "tuple[Stage, ...]"]
"""Gives stages in order of dependence; those of the outputs are stored, all others are intermediate."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: name, domain, traits, lowering, cost and limits of the lowering.

    ``demands`` says in equations what extents of its operands must agree (`graft.core.operators.definition.demands`):
    they are proven, or checked before anything runs (`graft.core.shapes.equations`), and all that computes may rely on
    them.
    ``accepts`` says None, or why the lowering cannot take a node (a dtype, an attribute, an input that is not
    constant); it may see symbolic shapes. ``varies`` says the same of the shapes that are not static
    (`graft.core.operators.definition.varying`): without it, ONNX's elementwise operators and views take them, others
    do not.
    ``shapes`` gives the shapes of the outputs where extents are expressions, ``contents`` the elements of a small
    output of whole numbers, ``bounds`` ranges of extents that are narrowed (`graft.core.operators.definition.facts`);
    of an operator of ONNX without ``shapes``, onnx's inference is asked. Beside a ``schema`` it says all shapes:
    what the schema infers and the model states must agree with it (`graft.core.shapes.contradictions`).
    ``attributes`` are what must hold of attributes when a model is loaded; so must ``demands`` where
    ``asked_when_loaded``, for onnx's inference leaves these operands aside. ``identity`` says whether a node hands
    on its first input; without it, views do so where they keep its shape. ``indices`` gives the ranges that the
    contents of index inputs must lie in, and ``stated`` what computed operands make of extents that a model states
    in numbers: both are checked before a node runs.
    ``channels_of_weights`` gives the axis of the weights of a product along which the channels of the result lie.
    ``vjp`` writes the gradients of the inputs (`graft.core.operators.definition.adjoint`); without it, an operator
    that is a function of others is differentiated through that.
    Without ``lower`` an operator has only facts. ``function`` writes the nodes that stand for one: of an operator with
    the trait `EXPANDED` where ONNX has no function of it, of others where somebody asks (a recipe that decomposes).
    An operator that ONNX does not have (a plugin's, in a domain of its own) brings its ``schema``: names and types of
    inputs and outputs, defaults of attributes, and by ``set_type_and_shape_inference_function`` the shapes. A row
    with a ``backend`` is an override: that backend's own way, with lowering, traits and limits, to compute an operator
    that the table has.
    """

    name: str
    traits: frozenset[Trait] = frozenset()
    lower: LowerFunction | None = None
    cost: Callable[[NodeView], Cost] | None = None
    accepts: Callable[[NodeView], Reject | None] | None = None
    domain: str = ""
    schema: onnx.defs.OpSchema | None = None
    varies: Callable[[NodeView], Reject | None] | None = None
    backend: str = ""
    function: Function | None = None
    demands: Demand | None = None
    shapes: ShapeRule | None = None
    contents: ContentsRule | None = None
    bounds: BoundsRule | None = None
    attributes: Sequence[Fault] = ()
    asked_when_loaded: bool = False
    identity: IdentityRule | None = None
    indices: IndexRule | None = None
    stated: Stated | None = None
    channels_of_weights: Callable[[NodeView], int] | None = None
    vjp: Vjp | None = None


class OperatorTable:
    """Operators by domain and name. Adding a name twice is an error."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Operator] = {}
        self._own: dict[str, dict[tuple[str, str], Operator]] = {}
        """Rows of single backends, by the backend's name."""
        self._owners: dict[tuple[str, str, str], str] = {}
        self.discover: Callable[[], None] | None = None
        """Called before a domain counts as unknown: it lets plugins `admit` theirs."""

    def add(self, operator: Operator) -> Operator:
        """Add an operator, or a backend's own row, and return it; onnx learns the schema that it brings.

        Raises GraftError if its name is taken, or if an operator of a domain of its own has no schema and no function.
        """
        rows, (domain, name, backend) = self._rows_beside(operator), _key(operator)
        if (domain, name) in rows:
            whose = f" for backend '{backend}'" if backend else ""
            raise GraftError(f"operator '{name}' of domain '{domain}' is defined twice{whose}", operator=name)
        is_function = Trait.EXPANDED in operator.traits
        if _is_foreign(operator) and not backend and not is_function and (fault := _fault_of_schema(operator)):
            raise GraftError(f"operator '{name}' of domain '{domain}'{fault}", operator=name)
        if operator.schema is not None and not onnx.defs.has(name, domain):
            onnx.defs.register_schema(operator.schema)
        rows[domain, name] = operator
        return operator

    def admit(self, operator: object, owner: str) -> None:
        """Add an operator that a plugin brings, with its schema; one that it has brought before is kept.

        Raises GraftError for another type, a domain of ONNX or Graft, a schema that is absent or of another operator,
        and a name that somebody else has; for a backend's own row, where the table has no such operator.
        """
        if not isinstance(operator, Operator):
            raise GraftError(f"{owner}: graft_operators gave {type(operator).__name__}; give Operator objects")
        key = _key(operator)
        where = f"{owner}: operator '{operator.name}' of domain '{operator.domain}'"
        if operator.backend:
            where += f" for backend '{operator.backend}'"
        fault = self._fault_of_override(operator) if operator.backend else _fault_of_definition(operator)
        if fault:
            raise GraftError(f"{where}{fault}", operator=operator.name)
        if key[:2] in self._rows_beside(operator):
            if self._owners.get(key) != owner:
                raise GraftError(f"{where}: {self._owners.get(key, 'Graft')} has it already", operator=operator.name)
            return
        self.add(operator)
        self._owners[key] = owner

    def _rows_beside(self, operator: Operator) -> dict[tuple[str, str], Operator]:
        """Return the rows among which an operator has a name of its own."""
        return self._own.setdefault(operator.backend, {}) if operator.backend else self._rows

    def _fault_of_override(self, operator: Operator) -> str:
        if operator.lower is None:
            return " has no lowering; give it one"
        if self.get(operator.name, operator.domain) is not None:
            return ""
        near = self.nearest(operator.name)
        return f" overrides nothing; {f'the nearest is {near}' if near else 'add the operator first'}"

    def for_backend(self, name: str) -> OperatorTable:
        """Return the table as a backend sees it: with rows of its own in the place of those for all."""
        if not self._own.get(name):
            return self
        table = OperatorTable()
        table._rows = {**self._rows, **self._own[name]}
        return table

    def get(self, name: str, domain: str = "") -> Operator | None:
        """Return the operator, or None if the table does not have it."""
        return self._rows.get((_canonical(domain), name))

    def of(self, node: NodeView) -> Operator | None:
        """Return the operator of a node, or None."""
        return self.get(node.op_type, node.domain)

    def owner(self, name: str, domain: str = "") -> str:
        """Return who brought an operator for all backends, as `admit` was told; "" for one that was there before."""
        return self._owners.get((_canonical(domain), name, ""), "")

    def nearest(self, name: str) -> str | None:
        """Return the most similar name in the table, for did-you-mean."""
        return next(iter(difflib.get_close_matches(name, {row for _, row in self._rows}, 1)), None)

    def has(self, node: NodeView, trait: Trait) -> bool:
        """Whether the node's operator is known and has the trait."""
        operator = self.of(node)
        return operator is not None and trait in operator.traits

    def __iter__(self) -> Iterator[Operator]:
        return iter(self._rows.values())


def _key(operator: Operator) -> tuple[str, str, str]:
    return _canonical(operator.domain), operator.name, operator.backend


def _fault_of_definition(operator: Operator) -> str:
    """Return what is wrong with a plugin's row for all backends, "" if nothing."""
    return (
        _fault_of_schema(operator) if _is_foreign(operator) else ": give it a domain of your own, such as 'com.example'"
    )


def _is_foreign(operator: Operator) -> bool:
    return _canonical(operator.domain).partition(".")[0] not in ("", "ai", "graft")


def _fault_of_schema(operator: Operator) -> str:
    domain, schema = _canonical(operator.domain), operator.schema
    if schema is not None and (schema.name, schema.domain) == (operator.name, domain):
        return ""
    found = "no schema" if schema is None else f"the schema of '{schema.name}' of domain '{schema.domain}'"
    return f" has {found}; give an onnx.defs.OpSchema of it"


def _canonical(domain: str) -> str:
    return "" if domain in ("ai.onnx", CUSTOM_DOMAIN) else domain


OPERATORS = OperatorTable()
"""The production table; `graft.core.operators.all` fills it."""
Columns = ParamSpec("Columns")


def _added(row: Callable[Columns, Operator]) -> Callable[Columns, Operator]:
    def define(*args: Columns.args, **kwargs: Columns.kwargs) -> Operator:
        return OPERATORS.add(row(*args, **kwargs))

    return define


define = _added(Operator)
"""Adds a row of these columns to the production table, and returns it."""
