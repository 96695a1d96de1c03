"""The tensor IR: loops over buffers, on one page.

Below the graph there is only this. An operator's lowering gives *stages* (what is computed, with no order); a
schedule turns stages into a *function* (in which order, with which vectors, threads and scratch memory); backends
emit functions as LLVM IR, C, CUDA or instruction streams. Two levels in one IR, because a schedule needs the first
and a code generator must see nothing but the second.

Invariants, checked by `verify`:

1. Types: operands of a `Binary` agree in type; comparisons and logic give ``bool`` with the operands' lanes; indices
   and loop extents are ``int64``; vector indices of one access have the same number of lanes.
2. Every variable is bound by exactly one `For`, `Let`, `Axis`, extent or stride of a parameter that encloses its uses.
3. Every buffer is a parameter or is allocated by an enclosing `Allocate`; an access has one index per dimension.
4. A `Load` or `Store` without a mask stays inside the buffer; masked-off lanes are neither read nor written, and read
   as zero.
5. Iterations of a ``parallel`` loop write disjoint elements and read none that another iteration writes; a
   ``vector`` loop has a constant extent.
6. A stage writes each element of its buffer once, unless its order says otherwise; only masked loads may point
   outside. A stage of a scan reads the buffers of its loop at its own position or the one before, nowhere else. What a
   stage says of its structure is true.
7. A loop with a binding is ``parallel`` and stands in no other of that binding. A `Barrier` stands inside loops that
   are bound below its scope, and no condition around it differs between their iterations.
8. A `Push` stands in an `Issue` to its source, a `Pop` in one to its target; an `Issue` stands in none, nor in a
   parallel loop but one over virtual threads.

Memories and levels are those of a machine, and `verify` refuses what the machine it is given lacks. Memories: ``host``
(caller's tensors), ``scratch`` (per thread, lives as long as its `Allocate`), ``register`` (small, indexed by constants
after unrolling), and what a device has (``shared``, ``sram.input``, ...). Who sees a buffer is where its `Allocate`
stands: outside of a bound loop all iterations share it, inside each has its own. Levels, as loops are bound to them:
``thread``, ``block``, ``warp``, ``lane``, ..., with an axis where a level has several (``block.x``), and ``vthread``,
whose iterations one unit interleaves. Semantics of every node: `graft.core.tensor_ir.interpreting.interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from graft.core.tensor_ir.anchors import Structure
from graft.core.types import INT64, Type, element_bits, type_of

# ---- Expressions: frozen values; variables and buffers have identity ---------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """A scalar of any type, or its splat; integers and bools are exact, floats are given as Python floats.

    For a custom datatype the value is the number that the bits stand for; `Bits` gives raw bits.
    """

    value: int | float | bool
    type: Type


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A loop index, a let-bound scalar or vector, or a symbolic extent. Compared by identity."""

    name: str
    type: Type = INT64


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A region of memory with a shape. Compared by identity.

    ``strides`` count elements; None means row-major and contiguous. A variable that stands alone in a parameter's shape
    or strides is what the caller's tensor has there (strides of NULL: those of a contiguous one). ``alignment`` (bytes)
    is a promise about the address of the first element. Of a parameter that is indexed by other extents than its tensor
    has, as a flat one is, ``tensor`` says what the caller has.
    """

    name: str
    dtype: str
    shape: tuple[Expression, ...]
    strides: tuple[Expression, ...] | None = None
    memory: str = "host"
    alignment: int = 1
    tensor: Buffer | None = None

    @property
    def outside(self) -> Buffer:
        """What the caller of a function has: the tensor whose extents and strides are known to the function."""
        return self.tensor or self


@dataclass(frozen=True, slots=True)
class Load:
    """Element(s) of a buffer. A vector index (`Ramp` or other) makes it a vector load (contiguous) or gather."""

    buffer: Buffer
    indices: tuple[Expression, ...]
    mask: Expression | None = None

    @property
    def type(self) -> Type:
        """The buffer's element type with the lanes of the indices (or of the mask)."""
        return type_of(self.buffer.dtype, access_lanes(self.indices, self.mask))


@dataclass(frozen=True, slots=True)
class Ramp:
    """The int64 vector ``base, base + stride, ..., base + (lanes - 1) * stride``."""

    base: Expression
    stride: int
    lanes: int

    @property
    def type(self) -> Type:
        """Always int64 of ``lanes`` lanes."""
        return INT64.with_lanes(self.lanes)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """A scalar in every lane."""

    value: Expression
    lanes: int

    @property
    def type(self) -> Type:
        """The scalar's type with ``lanes`` lanes."""
        return self.value.type.with_lanes(self.lanes)


UnaryOperator = Literal[
    "neg", "abs", "not", "bitnot", "sqrt", "floor", "ceil", "trunc", "round_even", "clz", "popcount"
]
BinaryOperator = Literal[
    "add", "sub", "mul", "div", "mod", "fmod", "min", "max", "and", "or", "xor", "shl", "shr",
    "eq", "ne", "lt", "le", "gt", "ge",
]  # fmt: skip
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass(frozen=True, slots=True)
class Unary:
    """``not`` is logical (bool), ``bitnot`` bitwise; ``sqrt floor ceil trunc round_even`` are for floats."""

    operator: UnaryOperator
    value: Expression

    @property
    def type(self) -> Type:
        """The operand's type."""
        return _type_below(self)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, logic and comparison.

    Integers wrap. Integer ``div`` truncates and ``mod`` has the sign of the dividend (C), 0 divides as 1; ``shr`` is
    arithmetic for signed types. ``min`` and ``max`` of floats give NaN if either operand is NaN. ``fmod`` is C's.
    ``and or xor`` are logical on bool and bitwise on integers.
    """

    operator: BinaryOperator
    left: Expression
    right: Expression

    @property
    def type(self) -> Type:
        """The operands' type, or bool of the same lanes for a comparison."""
        return _type_below(self)


@dataclass(frozen=True, slots=True)
class Select:
    """``on_true`` where ``condition`` (bool), else ``on_false``; both are evaluated."""

    condition: Expression
    on_true: Expression
    on_false: Expression

    @property
    def type(self) -> Type:
        """The type of both arms."""
        return _type_below(self)


@dataclass(frozen=True, slots=True)
class Cast:
    """A change of element type: float to integer truncates (saturating), to a narrower float rounds to nearest even."""

    value: Expression
    dtype: str

    @property
    def type(self) -> Type:
        """``dtype`` with the operand's lanes."""
        return _type_below(self)


@dataclass(frozen=True, slots=True)
class Bitcast:
    """The same bits as another element type. Of a custom datatype: to and from its storage.

    Elements of another width are regrouped, the first from the lowest bits: an int32 is four uint8, and back.
    """

    value: Expression
    dtype: str

    @property
    def type(self) -> Type:
        """``dtype`` with the operand's lanes, or as many as its bits make."""
        source = self.value.type
        if source.dtype == self.dtype:
            return source
        return Type(self.dtype, source.lanes * element_bits(source.dtype) // element_bits(self.dtype))


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A pure function by name.

    On floats: ``fma exp exp2 log log2 log1p expm1 tanh sigmoid erf sin cos tan asin acos atan sinh cosh asinh acosh
    atanh pow rsqrt``; ``muladd`` is ``fma`` where the product is exact, so that any machine computes it as it can;
    ``round_bf16`` makes float32 bfloat16 as a `Cast` does, but subnormal numbers may become zero.
    Tensor instructions with declared semantics: ``dot4_u8s8``, ``dot2_s16``, ``dot2_bf16``, whose operands are the
    only vectors in a stage (`Bitcast` of a word that holds a group). Unknown names are an error of `verify`, unless
    ``extern:`` prefixes a C symbol.
    """

    name: str
    arguments: tuple[Expression, ...]
    type: Type


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Lanes chosen from the concatenation of vectors; one lane gives a scalar."""

    vectors: tuple[Expression, ...]
    lanes: tuple[int, ...]

    @property
    def type(self) -> Type:
        """The vectors' element type with as many lanes as chosen."""
        return self.vectors[0].type.with_lanes(len(self.lanes))


@dataclass(frozen=True, slots=True)
class Horizontal:
    """A vector reduced to a scalar by ``add mul min max and or``; the order of a float ``add`` is not specified."""

    operator: BinaryOperator
    value: Expression

    @property
    def type(self) -> Type:
        """The element type of the vector."""
        return self.value.type.with_lanes(1)


Expression: TypeAlias = (
    Constant | Variable | Load | Ramp | Broadcast | Unary | Binary | Select | Cast | Bitcast | Intrinsic | Shuffle
    | Horizontal
)  # fmt: skip

# ---- Statements ---------------------------------------------------------------------------------------------------

LoopKind = Literal["serial", "parallel", "vector", "unrolled"]


@dataclass(frozen=True, slots=True)
class Store:
    """Writes ``value`` to element(s) of a buffer; ``mask`` (bool) switches lanes off."""

    buffer: Buffer
    indices: tuple[Expression, ...]
    value: Expression
    mask: Expression | None = None


@dataclass(frozen=True, slots=True)
class For:
    """``variable`` runs over ``[0, extent)``.

    With a ``binding`` (a level of the machine, ``block.x``) its iterations are units of that level and run at the same
    time: what one writes another may touch only behind a `Barrier`. The loop ends when all of them have ended.
    """

    variable: Variable
    extent: Expression
    kind: LoopKind
    body: Statement
    binding: str = ""


@dataclass(frozen=True, slots=True)
class If:
    """A branch on a scalar bool."""

    condition: Expression
    then_body: Statement
    else_body: Statement | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """Binds ``variable`` to a value inside ``body``."""

    variable: Variable
    value: Expression
    body: Statement


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory that lives during ``body``; contents are undefined at first."""

    buffer: Buffer
    body: Statement


@dataclass(frozen=True, slots=True)
class Block:
    """Statements one after another."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class CallExtern:
    """A call for its effect: a C symbol or tensor instruction; a `Load` argument passes that element's address.

    ``prefetch(address, level)`` has no effect but on time: the address, which may be outside the buffer, is soon read;
    level 3 is the first-level cache, 2 the second, 0 a stream. Backends may leave it out.
    ``fail_index(index, axis, extent, low, high)`` ends the function: the index is not in ``[low, high]``;
    ``fail_extent(computed, axis, stated)`` does because the operands make another extent than was stated of a result.
    """

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """Waits until all units within one unit of the level ``scope`` are here: ``block`` for the threads of a block.

    All of them reach the same barriers in the same order. Outside of bound loops, ``scope`` is ``queue``: the function
    waits until everything issued is done and no token is left. With ``units`` the level has no loop of its own: groups
    of so many neighbouring iterations of the innermost bound loop wait, each by itself, as the threads of a ``warp``.
    """

    scope: str
    units: int = 0


@dataclass(frozen=True, slots=True)
class Issue:
    """Hands ``body``, with the values that its variables have now, to a queue of the machine and goes on.

    A queue works on one body after another, queues at the same time: only tokens order what two of them do. The
    function ends when all queues have.
    """

    queue: str
    body: Statement


@dataclass(frozen=True, slots=True)
class Push:
    """Puts a token for the queue ``target`` behind what the queue ``source`` has done."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Pop:
    """Lets the queue ``target`` wait for a token of the queue ``source`` and takes it."""

    source: str
    target: str


Statement: TypeAlias = Store | For | If | Let | Allocate | Block | CallExtern | Barrier | Issue | Push | Pop


def level_of(binding: str) -> str:
    """Return the level of a binding: ``block`` of ``block.x``."""
    return binding.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Function:
    """A scheduled kernel: ``parameters`` are input buffers, then ``outputs`` output buffers.

    No two parameters overlap, but the only output may be the memory of one of the inputs whose numbers ``in_place``
    has: an element of these is read last where the element of its place is stored. If it ``is_exact``, every operation
    is rounded where it stands, alike on every machine: no product is joined with a sum unless by ``fma``.
    """

    name: str
    parameters: tuple[Buffer, ...]
    outputs: int
    body: Statement
    origin: tuple[str, ...] = ()
    in_place: tuple[int, ...] = ()
    is_exact: bool = False
    to_text: ClassVar[Callable[[Function], str]] = object.__repr__
    """What ``str`` returns: set by `graft.core.tensor_ir`, so that this module need not know the text form."""

    def __str__(self) -> str:
        return type(self).to_text(self)

    @property
    def input_buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are read."""
        return self.parameters[: len(self.parameters) - self.outputs]

    @property
    def output_buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are written."""
        return self.parameters[len(self.parameters) - self.outputs :]


# ---- Stages: what is computed, before any schedule ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Axis:
    """A reduction axis: ``variable`` runs over ``[0, extent)``."""

    variable: Variable
    extent: Expression


@dataclass(frozen=True, slots=True)
class Reduction:
    """``operator`` (``add mul min max and or``) over ``axes``, starting from ``initial``."""

    operator: BinaryOperator
    axes: tuple[Axis, ...]
    initial: Expression

    @property
    def is_ordered(self) -> bool:
        """Whether terms are combined one after the other, as the axes run."""
        return is_ordered(self.operator, self.initial.type)


def is_ordered(operator: BinaryOperator, kind: Type) -> bool:
    """Whether terms of a type must be combined one after the other.

    Each sum of a custom datatype is rounded, and which of two its least and greatest are is its own affair (NaN).
    """
    return kind.is_custom and operator in ("add", "mul", "min", "max")


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence: the elements are computed one position after the other along the axis ``carried``.

    Stages that stand next to each other and share this variable are one loop, which computes all of them at a position
    before it goes on to the next. A stage of it reads buffers of the loop at the position before its own (`previous`),
    and those of stages before it at its own position. Before the first position a buffer holds ``initial``, an
    expression over the other axes of the stage that computes it; None where nobody reads it there. ``reverse`` runs
    from the last position to the first.
    """

    carried: Variable
    initial: Expression | None = None
    reverse: bool = False

    @property
    def previous(self) -> Expression:
        """The position before the one that is computed."""
        return Binary("add" if self.reverse else "sub", self.carried, Constant(1, INT64))


ScatterOperator = Literal["set", "add", "mul", "min", "max"]


@dataclass(frozen=True, slots=True)
class Scatter:
    """Stores to computed places: the stage's value is what the buffer holds before.

    Then, for all ``axes`` one after the other in row-major order, the element at ``indices`` is combined with
    ``update``; ``set`` replaces it, so that the last update of a place wins.
    """

    axes: tuple[Axis, ...]
    indices: tuple[Expression, ...]
    operator: ScatterOperator
    update: Expression


@dataclass(frozen=True, slots=True)
class Selection:
    """The positions of the best candidates: the stage's value is the key of ``candidate``.

    Along the axis ``rank`` the buffer (int64) holds the position of the candidate with the largest or least key, then
    of the next one, and so on. Of equal keys the lower position comes first. NaN is greater than any number.
    """

    rank: Variable
    candidate: Axis
    largest: bool


Order: TypeAlias = Scan | Scatter | Selection


@dataclass(frozen=True, slots=True)
class Stage:
    """``buffer[axes] = value``, or the reduction of ``value`` over the reduction's axes, for all axes in the shape.

    ``axes`` holds one variable per dimension of ``buffer``. Stages of one lowering stand in order of dependence; all
    buffers but the last stages' outputs are intermediate. ``epilogue`` (only with a reduction) maps the reduced value,
    bound to ``epilogue_variable``, to what is stored. ``order`` is given where the elements are not computed each by
    itself.
    """

    buffer: Buffer
    axes: tuple[Variable, ...]
    value: Expression
    reduction: Reduction | None = None
    epilogue_variable: Variable | None = None
    epilogue: Expression | None = None
    origin: tuple[str, ...] = field(default=())
    structure: Structure | None = None
    """What the stage is, where the lowering has said it (`graft.core.tensor_ir.anchors`)."""
    order: Order | None = None
    to_text: ClassVar[Callable[[Stage], str]] = object.__repr__

    def __str__(self) -> str:
        return type(self).to_text(self)


def _type_below(expression: Expression) -> Type:
    """Return the type of an expression whose operand decides it, however deep: without recursion."""
    dtype: str | None = None
    while True:
        if type(expression) is Binary:
            if dtype is None and expression.operator in COMPARISONS:
                dtype = "bool"
            expression = expression.left
        elif type(expression) is Unary:
            expression = expression.value
        elif type(expression) is Cast:
            dtype = dtype or expression.dtype
            expression = expression.value
        elif type(expression) is Select:
            expression = expression.on_true
        else:
            below = expression.type
            return below if dtype is None else type_of(dtype, below.lanes)


def access_lanes(indices: tuple[Expression, ...], mask: Expression | None) -> int:
    """Return the lanes of an access: those of its vector indices or mask, 1 if all are scalar."""
    lanes = 1
    for index in indices:
        if (own := index.type.lanes) > lanes:
            lanes = own
    return lanes if mask is None else max(lanes, mask.type.lanes)
