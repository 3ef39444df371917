"""The least and the largest values of a plan."""

from math import inf

from commbench.units import LARGEST_SIZE
from commbench.validation import LARGEST_INTEGER

MONTH_S = 31 * 24 * 3600.0
MOST_CASES = 100_000
MOST_RANKS = 1 << 20
MOST_ITERATIONS = 10_000_000
"""Of one case: every sample is kept, and a batch makes one line of the journal."""
MOST_WINDOW = 1 << 16
LIMITS = {
    "world_size": (1, MOST_RANKS),
    "launches": (1, MOST_RANKS),
    "iterations": (1, MOST_ITERATIONS),
    "warmup": (0, MOST_ITERATIONS),
    "root": (0, inf),
    "group_size": (1, MOST_RANKS),
    "group_stride": (1, MOST_RANKS),
    "window": (1, MOST_WINDOW),
    "open_groups": (0, 4096),
    "seed": (0, LARGEST_INTEGER),
    "latency_size": (1, LARGEST_SIZE),
    "timeout_s": (1e-3, MONTH_S),
    "budget_s": (1e-6, MONTH_S),
    "precision": (1e-12, 1 - 1e-12),
    "overlap_ratio": (0.01, 100),
    "soak_s": (1.0, MONTH_S),
    "cycles": (1, MOST_ITERATIONS),
    "check_share": (0.0, 0.9),
}
"""The least and the largest value of fields of a Plan; None is allowed too."""
