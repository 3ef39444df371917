"""The tail of Student's t."""

from __future__ import annotations

from math import atan, cos, pi, sin, sqrt


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
