"""A row held against a peak, in sentences: the share, its bound, and what above 100 % means."""

from __future__ import annotations

from collections.abc import Iterator

from commbench.analysis.peak import NODE_BOUND, PeakFraction, share_of_peak, why_no_share
from commbench.analysis.rows import ResultRow
from commbench.output.paragraphs import exact, gbps, seconds
from commbench.spec.links import Peak
from commbench.units import format_percent

_ROUNDING = 0.005
"""A share above 1 by less is printed as 100 %."""


def held_against(row: ResultRow, peak: Peak | None) -> Iterator[str]:
    """What share of the peak a row needed, by which bound, and why it may exceed 100 %."""
    if peak is None:
        yield "None given. --peak 450GB/s, or a link of `commbench links`, holds busbw against it."
        return
    yield f"{peak.text}.{f' `commbench links {peak.name}` says more.' if peak.source else ''}"
    share = share_of_peak(row, peak)
    if share is None:
        yield f"There is no percentage: {why_no_share(row, peak)}."
        return
    yield _share(row, peak, share)
    least = share.factor * row.measurement.case.size_bytes
    median = row.time.median if row.time else 0.0
    yield (
        f"Those bytes take {exact(least)} B / {gbps(peak.bytes_per_second)} GB/s = "
        f"{seconds(least / peak.bytes_per_second)} at that speed; t is {seconds(median)}."
    )
    if share.fraction > 1 + _ROUNDING:
        yield _above(row, peak, share)


def _share(row: ResultRow, peak: Peak, share: PeakFraction) -> str:
    percent = (
        f"{gbps(share.rate)} / {gbps(peak.bytes_per_second)} = {format_percent(share.fraction)}"
    )
    if share.bound != NODE_BOUND:
        return f"busbw / peak = {percent}, by the {share.bound} bound: some link carried busbw."
    nodes = row.header.num_nodes
    unless = ", unless the network itself reduces" if share.ceiling > 1 else ""
    return (
        f"{share.factor:.5g} x S have to enter or leave some of the {nodes} nodes, whichever "
        f"algorithm runs{unless}. {share.factor:.5g} x algbw / peak = {percent}, by the "
        f"{share.bound} bound."
    )


def _above(row: ResultRow, peak: Peak, share: PeakFraction) -> str:
    if share.ceiling > 1 and share.fraction <= share.ceiling + _ROUNDING:
        return (
            "More than 100 % is no error here. A network that itself reduces (NVLS, SHARP) moves "
            f"about S each way, not {share.factor:.5g} x S, so that {share.ceiling:.5g} times the "
            "peak is the limit. Of that limit it is algbw / peak = "
            f"{format_percent(share.fraction / share.ceiling)}."
        )
    nodes = row.header.num_nodes
    inside = (
        " Or the peak is of the network between nodes, while most bytes stay within a node: then "
        "say what a whole node has, such as --peak 400GB/s/node."
        if nodes > 1 and not peak.of_node
        else ""
    )
    return (
        "More than 100 % cannot be. Is the peak that of one link among several, or of another "
        f"link? Or is t not the time of the whole call?{inside}"
    )
