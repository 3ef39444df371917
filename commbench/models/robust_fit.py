"""Robust fits with parameters that are not negative, many at once.

A fit minimises a sum over measured times of a function of log(measured/predicted), which is nearly
the relative residual: Huber's (1964), then Tukey's biweight, which gives no weight to outliers. It
is found by iteratively reweighted least squares. Each step solves the least squares with
parameters that are not negative exactly, by trying every set of parameters that are above 0: there
are at most 2^5.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from commbench.models.machine import MAD_TO_SD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

HUBER_STEPS, TUKEY_STEPS = 8, 10
CLOSE = 1e-5
"""The steps of a fit end where no parameter changes by more than this part of the largest one."""
HUBER, TUKEY = 1.345, 4.685
"""Residuals over their scale, above which they count less or not at all: 95 % of the efficiency of
least squares for normal errors (Huber, Ronchetti: Robust Statistics, 2009)."""
SMALLEST_SCALE = 0.005
"""Residuals of half a percent are never outliers."""
_RIDGE = 1e-11
_GAIN = 1e-7
"""A larger set of parameters must lower the sum of squares by this part of it."""


def fit_many(terms: Floats, times_s: Floats, weights: Floats) -> Floats:
    """Fit one model to the same points with several sets of weights.

    `terms` is (points, parameters), `times_s` (points), `weights` (fits, points); a point with the
    weight 0 has no influence on a fit. Returns the parameters: (fits, parameters).
    """
    import numpy as np

    scaled = terms / times_s[:, None]
    columns = np.sqrt((scaled**2).mean(axis=0))
    columns[columns == 0] = 1.0
    scaled = scaled / columns
    parameters = _solve(scaled, weights)
    for is_tukey, steps in ((False, HUBER_STEPS), (True, TUKEY_STEPS)):
        active = np.arange(len(weights))
        for _ in range(steps):
            before = parameters[active]
            found = _solve(scaled, _robust_weights(scaled, weights[active], before, is_tukey))
            parameters[active] = found
            close = CLOSE * before.max(axis=1, keepdims=True)
            active = active[(np.abs(found - before) > close).any(axis=1)]
            if not len(active):
                break
    unscaled: Floats = parameters / columns
    return unscaled


def _robust_weights(scaled: Floats, weights: Floats, parameters: Floats, is_tukey: bool) -> Floats:
    """The weights of the next step: (fits, points). Points that fit badly get a small one."""
    import numpy as np

    used = weights > 0
    sizes = np.maximum(1, used.sum(axis=1))
    correction = np.sqrt(sizes / np.maximum(1, sizes - scaled.shape[1]))
    ratio = np.maximum(scaled @ parameters.T, 1e-9).T  # predicted over measured
    residual = -np.log(ratio)
    scale = masked_median(np.abs(residual), used) * MAD_TO_SD * correction
    scale = np.maximum(scale, SMALLEST_SCALE)[:, None]
    if is_tukey:
        robust = np.maximum(0.0, 1 - (residual / (TUKEY * scale)) ** 2) ** 2
    else:
        robust = np.minimum(1.0, HUBER * scale / np.maximum(np.abs(residual), 1e-12))
    gap = 1 - ratio
    # The weight that makes the least squares of the times a step towards that of the logarithms
    logarithmic = np.where(np.abs(gap) < 1e-6, 1.0, residual / np.where(gap == 0, 1, gap))
    found: Floats = weights * robust * logarithmic / ratio
    return found


def masked_median(values: Floats, used: Floats) -> Floats:
    """The median of each row of `values`, of those that are used; 0 for a row without any."""
    import numpy as np

    ordered = np.sort(np.where(used, values, np.inf), axis=1)
    count = used.sum(axis=1)
    rows = np.arange(len(values))
    low, high = np.maximum(0, (count - 1) // 2), np.maximum(0, count // 2)
    high = np.minimum(high, ordered.shape[1] - 1)
    middle = (ordered[rows, low] + ordered[rows, high]) / 2
    found: Floats = np.where(count > 0, middle, 0.0)
    return found


def _solve(scaled: Floats, weights: Floats) -> Floats:
    """Least squares of `scaled @ p = 1` with p >= 0, for each row of weights."""
    import numpy as np

    count = scaled.shape[1]
    products = (scaled[:, :, None] * scaled[:, None, :]).reshape(len(scaled), -1)
    gram = (weights @ products).reshape(-1, count, count)
    right = weights @ scaled
    total = weights.sum(axis=1)
    best = np.zeros_like(right)
    best_gain = np.zeros(len(weights))
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            at = list(chosen)
            part = gram[:, at][:, :, at]
            ridge = _RIDGE * np.trace(part, axis1=1, axis2=2)[:, None, None] * np.eye(size)
            found = np.linalg.solve(part + ridge + 1e-300 * np.eye(size), right[:, at, None])[
                ..., 0
            ]
            gain = (found * right[:, at]).sum(axis=1)
            better = (found >= 0).all(axis=1) & (gain > best_gain + _GAIN * total)
            padded = np.zeros_like(best)
            padded[:, at] = found
            best[better] = padded[better]
            best_gain[better] = gain[better]
    return best
