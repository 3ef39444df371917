"""Heat maps of the pairs of ranks of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commbench.analysis.pair_values import has_matrix, main_matrices, pair_matrices
from commbench.analysis.slow_parts import find_slow
from commbench.results.schema import Run
from commbench.units import format_bytes

if TYPE_CHECKING:
    from commbench.output.plot_style import Picture


def pair_pictures(runs: Sequence[Run]) -> list[Picture]:
    """For each run that measured pairs of ranks in rounds, a heat map of each quantity."""
    from commbench.report.heatmap import heat_maps

    pictures: list[Picture] = []
    for run in runs:
        matrices = pair_matrices(run) if has_matrix(run.header.plan) else []
        for found in main_matrices(matrices):
            notes = [f"{run.name}: {run.header.describe_ranks()}", _describe(found.size_bytes)]
            findings = find_slow(found.matrix).findings
            pictures += heat_maps(found.matrix, findings, notes)
    return pictures


def _describe(size_bytes: int) -> str:
    return f"{format_bytes(size_bytes)}; all pairs of a round at once; lower quartile of batches"
