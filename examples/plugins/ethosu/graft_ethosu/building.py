"""A builder of TOSA graphs: tensors by the names of the model, with their axes in the order that the NPU likes."""

import math
from dataclasses import dataclass

import numpy as np

from graft_ethosu.reading import Refused
from graft_ethosu.tosa_graph import Tensor, TosaGraph

STORED = {"int8": "INT8", "uint8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT32"}
"""By type in the model that of the tensor in TOSA: unsigned bytes are shifted by 128 inside of a region."""
RANGES = {"INT8": (-128, 127), "INT16": (-32768, 32767)}


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor as it is stored: axis ``i`` of it is axis ``order[i]`` of the model's."""

    tensor: Tensor
    order: tuple[int, ...]

    @property
    def shape(self):
        """The extents as the model has them."""
        places = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tuple(self.tensor.shape[place] for place in places)


def plain(rank):
    """Return the order of axes of the model."""
    return tuple(range(rank))


def channels_last(rank):
    """Return the order with the channels, axis 1 of the model, at the end."""
    return plain(rank) if rank < 3 else (0, *range(2, rank), 1)


def shift_of(dtype):
    """Return how much less a stored number is than the model's."""
    return 128 if dtype == "uint8" else 0


def multiplier_of(factor):
    """Return a factor as an integer of 31 bits and a shift to the right, as RESCALE has it."""
    mantissa, exponent = math.frexp(factor)
    number, shift = round(mantissa * (1 << 31)), 31 - exponent
    if number == 1 << 31:
        number, shift = number >> 1, shift - 1
    if shift < 2:
        raise Refused("accuracy", f"a scale is multiplied by {factor}, and RESCALE has no factor so large")
    return (number >> min(shift - 62, 31), 62) if shift > 62 else (number, shift)


class Builder:
    """Makes a graph for a family of NPUs; what is read and has no tensor yet becomes an input."""

    def __init__(self, family):
        self.family = family
        self.graph = TosaGraph()
        self.values = {}

    def read(self, view):
        """Return the value of a tensor of the model."""
        if view.name not in self.values:
            shape, dtype = view.static_shape, view.dtype
            if shape is None or not all(shape):
                raise Refused(
                    "dynamic-shape" if shape is None else "shape", f"'{view.name}' has the shape {view.shape}"
                )
            if len(shape) > 6:
                raise Refused("rank", f"'{view.name}' has {len(shape)} axes, and TOSA's tensors at most 6")
            if dtype not in ("int8", "uint8", "int16"):
                raise Refused("dtype", f"'{view.name}' is {dtype}; the NPU takes int8, uint8 and int16")
            if view.is_constant:
                data = view.constant.astype(np.int64) - shift_of(dtype)
                self.write(view.name, self.graph.constant(data, STORED[dtype]), plain(len(shape)))
            else:
                tensor = self.graph.input(shape or (1,), STORED[dtype])
                if dtype == "uint8":
                    tensor = self.as_signed(tensor)
                self.write(view.name, tensor, plain(len(shape)))
        return self.values[view.name]

    def as_signed(self, tensor, *, back=False):
        """Return unsigned bytes shifted by 128, or, with ``back``, as they were."""
        zeros = (0, 128) if back else (128, 0)
        return self.rescale(tensor, 1.0, *zeros, "INT8", input_unsigned=not back, output_unsigned=back)

    def write(self, name, tensor, order):
        """Give a tensor of the model its value."""
        self.values[name] = Value(tensor, tuple(order))

    def output(self, view):
        """Make a tensor of the model a result, with its axes as the model has them."""
        value = self.read(view)
        tensor = self.ordered(value, plain(len(value.order)))
        if view.dtype == "uint8":
            tensor = self.as_signed(tensor, back=True)
        if tensor in self.graph.inputs or tensor in self.graph.outputs or tensor.data is not None:
            tensor = self.graph.add("IDENTITY", (tensor,), tensor.shape, tensor.dtype)
        self.graph.outputs.append(tensor)

    # ---- Operators without arithmetic -----------------------------------------------------------------------------

    def ordered(self, value, order):
        """Return the tensor of a value with its axes in another order."""
        return self.transpose(value.tensor, [value.order.index(axis) for axis in order])

    def transpose(self, tensor, permutation):
        """Return a tensor with its axes permuted: a reshape where only axes of extent 1 move."""
        shape = [tensor.shape[axis] for axis in permutation]
        moved = [axis for axis in permutation if tensor.shape[axis] > 1]
        if moved == sorted(moved):
            return self.reshape(tensor, shape)
        if tensor.data is not None:
            return self.graph.constant(tensor.data.transpose(permutation), tensor.dtype)
        return self.graph.add("TRANSPOSE", (tensor,), shape, tensor.dtype, perms=list(permutation))

    def reshape(self, tensor, shape):
        """Return a tensor with another shape."""
        shape = tuple(map(int, shape))
        if shape == tensor.shape:
            return tensor
        if tensor.data is not None:
            return self.graph.constant(tensor.data.reshape(shape), tensor.dtype)
        return self.graph.add("RESHAPE", (tensor, self.graph.constant(shape, "SHAPE")), shape, tensor.dtype)

    def slice(self, tensor, starts, sizes):
        """Return a box of a tensor."""
        if tuple(sizes) == tensor.shape:
            return tensor
        given = (tensor, self.graph.constant(starts, "SHAPE"), self.graph.constant(sizes, "SHAPE"))
        return self.graph.add("SLICE", given, sizes, tensor.dtype)

    def pad(self, tensor, pads, number):
        """Return a tensor with more around it; ``pads`` has two numbers for each axis."""
        if not any(map(sum, pads)):
            return tensor
        shape = [extent + sum(both) for extent, both in zip(tensor.shape, pads, strict=True)]
        given = (tensor, self.graph.constant(np.ravel(pads), "SHAPE"), self.graph.constant([number], tensor.dtype))
        return self.graph.add("PAD", given, shape, tensor.dtype)

    def concat(self, tensors, axis):
        """Return tensors behind each other."""
        if len(tensors) == 1:
            return tensors[0]
        shape = list(tensors[0].shape)
        shape[axis] = sum(one.shape[axis] for one in tensors)
        return self.graph.add("CONCAT", tensors, shape, tensors[0].dtype, axis=axis)

    # ---- Arithmetic -----------------------------------------------------------------------------------------------

    def rescale(self, tensor, factors, zero, output_zero, dtype, *, input_unsigned=False, output_unsigned=False):
        """Return ``round((tensor - zero) * factors) + output_zero``, saturated; a factor for each channel, or one.

        Halves are rounded up. What has 48 bits is multiplied by 15, as TOSA has it.
        """
        numbers, shifts = zip(*(multiplier_of(float(one)) for one in np.atleast_1d(factors)), strict=True)
        is_wide = tensor.dtype == "INT48"
        if is_wide:
            numbers, shifts = [min((one + (1 << 15)) >> 16, 32767) for one in numbers], [one - 16 for one in shifts]
        same = numbers == ((1 << 30),) and shifts == (30,) and (tensor.dtype, zero) == (dtype, output_zero)
        if same and not (input_unsigned or output_unsigned):
            return tensor
        given = (
            tensor, self.graph.constant(numbers, "INT16" if is_wide else "INT32"), self.graph.constant(shifts, "INT8"),
            self.graph.constant([zero], tensor.dtype), self.graph.constant([output_zero], dtype),
        )  # fmt: skip
        return self.graph.add(
            "RESCALE", given, tensor.shape, dtype, scale32=not is_wide, rounding_mode="SINGLE_ROUND",
            per_channel=len(numbers) > 1, input_unsigned=input_unsigned, output_unsigned=output_unsigned,
        )  # fmt: skip

    def clamp(self, tensor, lower, upper):
        """Return a tensor within limits."""
        low, high = RANGES[tensor.dtype]
        if lower <= low and upper >= high:
            return tensor
        limits = {"min_val": max(lower, low), "max_val": min(upper, high)}
        return self.graph.add("CLAMP", (tensor,), tensor.shape, tensor.dtype, **limits, nan_mode="PROPAGATE")

    def binary(self, name, left, right, dtype="INT32"):
        """Return an elementwise operator of two tensors of one rank."""
        shape = np.broadcast_shapes(left.shape, right.shape)
        given = (left, right, self.graph.constant([0], "INT8")) if name == "MUL" else (left, right)
        nan = {"nan_mode": "PROPAGATE"} if name in ("MAXIMUM", "MINIMUM") else {}
        return self.graph.add(name, given, shape, dtype, **nan)

    def table(self, tensor, numbers):
        """Return the table's byte for each byte, that for -128 first."""
        return self.graph.add("TABLE", (tensor, self.graph.constant(numbers, "INT8")), tensor.shape, "INT8")

    def reduced(self, name, tensor, axis):
        """Return a tensor reduced along an axis, which stays with extent 1."""
        shape = [1 if place == axis else extent for place, extent in enumerate(tensor.shape)]
        nan = {} if name == "REDUCE_SUM" else {"nan_mode": "PROPAGATE"}
        return self.graph.add(name, (tensor,), shape, tensor.dtype, axis=axis, **nan)
