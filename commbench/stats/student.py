"""Student's t: its tail and its quantiles."""

from __future__ import annotations

from functools import cache
from math import atan, cos, pi, sin, sqrt
from statistics import NormalDist


def student_tail(t: float, degrees: int) -> float:
    """The probability that Student's t with so many degrees of freedom is above `t`.

    The finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4;
    probabilities below about 1e-15 are 0.
    """
    angle = atan(t / sqrt(degrees))
    term = total = cos(angle) if degrees % 2 else 1.0
    for number in range(2 + degrees % 2, degrees, 2):
        term *= (number - 1) / number * cos(angle) ** 2
        total += term
    inside = total * sin(angle)
    if degrees % 2:
        inside = 2 / pi * (angle + (inside if degrees > 1 else 0.0))
    return min(1.0, max(0.0, (1 - inside) / 2))


MANY = 200
"""Degrees of freedom from which the first terms of an expansion are exact to 0.1 %."""


@cache
def student_quantile(z: float, degrees: int) -> float:
    """What Student's t exceeds as often as a standard normal variable exceeds `z` > 0, exact to
    0.1 %. From MANY degrees on by Abramowitz and Stegun, 26.7.5."""
    if degrees > MANY:
        return z + (z**3 + z) / (4 * degrees)
    tail, low, high = NormalDist().cdf(-z), z, 2 * z
    while student_tail(high, degrees) > tail:
        low, high = high, 2 * high
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, degrees) > tail else (low, middle)
    return (low + high) / 2
