"""What a launch found out about the numbers of a case: a record of the journal."""

from __future__ import annotations

from typing import NamedTuple


class Numerics(NamedTuple):
    """The result of a sum, compared with the exact sum of the same data in FP64."""

    data: str
    """The name of a kind of data (plan.numerics)."""
    seed: int
    elements: int
    """How many were compared, over all ranks; 0 where a call of the user's own has another result,
    so that there are no errors."""
    not_finite: int
    """How many of them were infinite or NaN; the errors are those of the others."""
    max_abs_error: float
    rms_relative_error: float
    """The root mean square of the errors over that of the exact elements."""
    max_ulp: float
    """The largest error in units in the last place of the exact element, of the element type."""
    sqnr_db: float | None
    """Signal to quantisation noise: -20 log10 of the RMS relative error; None for no error."""
    bias: float
    """The mean error over the root mean square of the exact elements."""
    same_on_ranks: bool | None
    """Whether all ranks have the same bits; None where they have other elements."""
    repeats: bool
    """Whether each of CALLS calls of the same data gave the same bits (worker.numerics)."""
    sample: str = ""
    """The bits of up to 1,024 elements of the lowest rank that has a result, base64."""
    codec_s: tuple[float, ...] = ()
    """Of a compressed form: seconds until all ranks have encoded, added and decoded, without
    communication, each time it was measured."""
