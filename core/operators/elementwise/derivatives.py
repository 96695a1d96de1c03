"""Derivatives of elementwise operators. At kinks they are PyTorch's; where two operands are equal, both share."""

from __future__ import annotations

import math

from graft.core.operators.definition.adjoint import (
    Adjoint,
    Gradient,
    Vjp,
    broadcasting,
    divided_by,
    each,
    passed_where,
    scaled_by,
)


def _one_minus(f: Adjoint, value: str) -> str:
    return f("Sub", f.like(1.0, value), value)


def _one_plus(f: Adjoint, value: str) -> str:
    return f("Add", f.like(1.0, value), value)


def _square(f: Adjoint, value: str) -> str:
    return f("Mul", value, value)


def _minus(f: Adjoint, value: str) -> str:
    return f("Neg", value)


def _is_positive(f: Adjoint, value: str) -> str:
    return f("Greater", value, f.like(0.0, value))


# ---- One input ----------------------------------------------------------------------------------------------------

negated = each(lambda f: f("Neg", f.gradient))
magnitude = scaled_by(lambda f, x, y: f("Sign", x))
square_root = divided_by(lambda f, x, y: f.scaled(y, 2.0))
reciprocal = scaled_by(lambda f, x, y: f("Neg", _square(f, y)))

FUNCTIONS: dict[str, Vjp] = {
    "Exp": scaled_by(lambda f, x, y: y),
    "Log": divided_by(lambda f, x, y: x),
    "Erf": scaled_by(lambda f, x, y: f.scaled(f("Exp", _minus(f, _square(f, x))), 2 / math.sqrt(math.pi))),
    "Sin": scaled_by(lambda f, x, y: f("Cos", x)),
    "Cos": scaled_by(lambda f, x, y: _minus(f, f("Sin", x))),
    "Tan": scaled_by(lambda f, x, y: _one_plus(f, _square(f, y))),
    "Asin": divided_by(lambda f, x, y: f("Sqrt", _one_minus(f, _square(f, x)))),
    "Acos": divided_by(lambda f, x, y: _minus(f, f("Sqrt", _one_minus(f, _square(f, x))))),
    "Atan": divided_by(lambda f, x, y: _one_plus(f, _square(f, x))),
    "Sinh": scaled_by(lambda f, x, y: f("Cosh", x)),
    "Cosh": scaled_by(lambda f, x, y: f("Sinh", x)),
    "Asinh": divided_by(lambda f, x, y: f("Sqrt", _one_plus(f, _square(f, x)))),
    "Acosh": divided_by(lambda f, x, y: f("Sqrt", f("Sub", _square(f, x), f.like(1.0, x)))),
    "Atanh": divided_by(lambda f, x, y: _one_minus(f, _square(f, x))),
}
"""Of functions of one number, by operator."""

rectified = passed_where(lambda f, x, y: _is_positive(f, y))
sigmoid = scaled_by(lambda f, x, y: f("Mul", y, _one_minus(f, y)))
tanh = scaled_by(lambda f, x, y: _one_minus(f, _square(f, y)))
softplus = scaled_by(lambda f, x, y: f("Sigmoid", x))
softsign = divided_by(lambda f, x, y: _square(f, _one_plus(f, f("Abs", x))))
thresholded = passed_where(lambda f, x, y: f("Greater", x, f.like(f.attribute("alpha", 1.0), x)))
hard_sigmoid = each(
    lambda f: f.masked(
        f("And", _is_positive(f, f.result()), f("Less", f.result(), f.like(1.0, f.result()))),
        f.scaled(f.gradient, f.attribute("alpha", 0.2)),
    )
)


def shrunk(f: Adjoint) -> list[str]:
    """Shrink moves what lies outside of ``[-lambd, lambd]`` and makes 0 of the rest."""
    far = f("Greater", f("Abs", f.input(0)), f.like(f.attribute("lambd", 0.5), f.input(0)))
    return [f.masked(far, f.gradient)]


def _or_below(slope_below: Gradient) -> Vjp:
    """The rule of a function that is its argument where that is positive."""
    return each(lambda f: f("Where", _is_positive(f, f.input(0)), f.gradient, slope_below(f)))


leaky = _or_below(lambda f: f.scaled(f.gradient, f.attribute("alpha", 0.01)))
elu = _or_below(lambda f: f("Mul", f.gradient, f("Add", f.result(), f.like(f.attribute("alpha", 1.0), f.result()))))
celu = _or_below(lambda f: f("Mul", f.gradient, _one_plus(f, f.scaled(f.result(), 1.0 / f.attribute("alpha", 1.0)))))


def selu(f: Adjoint) -> list[str]:
    """``gamma x`` above 0, ``gamma alpha (exp(x) - 1)`` below."""
    alpha, gamma = f.attribute("alpha", 1.67326319217681884765625), f.attribute("gamma", 1.05070102214813232421875)
    below = f("Mul", f.gradient, f("Add", f.result(), f.like(alpha * gamma, f.result())))
    return [f("Where", _is_positive(f, f.input(0)), f.scaled(f.gradient, gamma), below)]


# ---- Two inputs ---------------------------------------------------------------------------------------------------

added = broadcasting(lambda f: f.gradient, lambda f: f.gradient)
subtracted = broadcasting(lambda f: f.gradient, lambda f: f("Neg", f.gradient))
product = broadcasting(lambda f: f("Mul", f.gradient, f.input(1)), lambda f: f("Mul", f.gradient, f.input(0)))
quotient = broadcasting(
    lambda f: f("Div", f.gradient, f.input(1)),
    lambda f: f("Neg", f("Mul", f.gradient, f("Div", f.result(), f.input(1)))),
)
remainder = broadcasting(
    lambda f: f.gradient,
    lambda f: f("Neg", f("Mul", f.gradient, f("Div", f("Sub", f.input(0), f.result()), f.input(1)))),
)
prelu = broadcasting(
    lambda f: f("Where", _is_positive(f, f.input(0)), f.gradient, f("Mul", f.gradient, f.input(1))),
    lambda f: f("Where", _is_positive(f, f.input(0)), f.like(0.0, f.gradient), f("Mul", f.gradient, f.input(0))),
)


def _power_by_base(f: Adjoint) -> str:
    """``g y x^(y-1)``, and 0 where y is: of a base of 0 the factor is infinite there."""
    x, y = f.input(0), f.cast(f.input(1), f.dtype(f.input(0)))
    exponent = f.contents(f.input(1))
    if exponent is not None and exponent.size == 1 and float(exponent.reshape(-1)[0]) == 2.0:
        return f("Mul", f.gradient, f.scaled(x, 2.0))
    is_zero = f("Equal", y, f.like(0.0, y))
    less = f("Sub", f("Where", is_zero, f.like(1.0, y), y), f.like(1.0, y))
    return f("Mul", f.gradient, f("Mul", y, f("Pow", x, less)))


def _power_by_exponent(f: Adjoint) -> str:
    """``g x^y log x``, and 0 where x is."""
    x = f.cast(f.input(0), f.dtype(f.result()))
    is_zero = f("Equal", x, f.like(0.0, x))
    grown = f("Mul", f.result(), f("Log", f("Where", is_zero, f.like(1.0, x), x)))
    return f.cast(f("Mul", f.gradient, grown), f.dtype(f.input(1)))


power = broadcasting(_power_by_base, _power_by_exponent)

# ---- Any number of inputs -----------------------------------------------------------------------------------------


def _all_alike(gradient: Gradient) -> Vjp:
    """The rule of an operator whose inputs have the same gradient before it is summed."""
    return lambda f: broadcasting(*[gradient] * len(f.inputs))(f)


total = _all_alike(lambda f: f.gradient)
mean = _all_alike(lambda f: f.scaled(f.gradient, 1.0 / len(f.inputs)))


def extreme(f: Adjoint) -> list[str]:
    """Those of the operands that are the result share the gradient evenly."""
    if len(f.inputs) == 1:
        return [f.gradient]
    taken = [f.where(f("Equal", name, f.result()), f.result()) for name in f.inputs]
    share = f("Div", f.gradient, f("Sum", *taken))
    return [f.summed(f("Mul", share, one), name) for one, name in zip(taken, f.inputs, strict=True)]


chosen = broadcasting(
    None,
    lambda f: f.masked(f.input(0), f.gradient),
    lambda f: f("Where", f.input(0), f.like(0.0, f.gradient), f.gradient),
)


def clipped(f: Adjoint) -> list[str]:
    """A bound passes on what lies at it; it has the gradient of what lies beyond."""
    x, low, high = f.input(0), f.input(1), f.input(2)
    below = f("Less", x, low) if low else ""
    above = f("Greater", x, high) if high else ""
    outside = f("Or", below, above) if below and above else below or above
    if not outside:
        return [f.gradient]
    inside = f("Where", outside, f.like(0.0, f.gradient), f.gradient)
    if below and high:  # an upper bound under the lower one has everything
        below = f("And", below, f("Less", low, high))
    if high:
        above = f("Greater", f("Max", x, low) if low else x, high)
    bounds = [
        f.summed(f.masked(beyond, f.gradient), bound) if beyond and f.wanted(number) else ""
        for number, (beyond, bound) in enumerate(((below, low), (above, high)), 1)
    ]
    return [inside, *bounds]


def converted(f: Adjoint) -> list[str]:
    """A gradient has the type of its value."""
    return [f.cast(f.gradient, f.dtype(f.input(0)))]


def dropped(f: Adjoint) -> list[str]:
    """In training, what is kept is divided by the share that is."""
    ratio, training = f.input(1), f.input(2)
    known = f.contents(training) if training else None
    if not training or (known is not None and not known.any()):
        return [f.gradient]
    rate = f.cast(ratio, f.dtype(f.gradient)) if ratio else f.like(0.5, f.gradient)
    kept = f("Where", training, _one_minus(f, rate), f.like(1.0, f.gradient))
    return [f.masked(f.result(1), f("Div", f.gradient, kept))]
