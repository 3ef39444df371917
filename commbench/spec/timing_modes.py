"""What to measure: a Plan, validated and immutable, the same on every rank; it lists its Cases."""

from __future__ import annotations

ISOLATED = "isolated"


PIPELINED = "pipelined"


TIMING_CHOICES = (ISOLATED, PIPELINED, "both")
