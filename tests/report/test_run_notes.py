"""What is said under a table, whole texts compared."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_rows import batches, plan, ranks, row

from commbench.analysis.rows import ResultRow, make_row
from commbench.report.run_notes import interfaces_text, timing_modes_text, warnings_text
from commbench.results.schema import Batch, Measurement, RankInfo, RunHeader

MS = 1e-3


def rows_of_plan(times_s: dict[int, float], **wishes: Any) -> list[ResultRow]:
    """A row for each case of a plan; those that have a time by their index took it."""
    asked = plan(**wishes)
    header = RunHeader(plan=asked, label="", started="", launcher="")
    rows = []
    for case in asked.cases():
        time = times_s.get(case.index)
        found = batches([time] * 9, calls=1 if case.timing == "isolated" else 20) if time else ()
        rows.append(make_row(header, Measurement(case=case, status="ok", batches=found)))
    return rows


def test_both_ways_of_timing_stand_side_by_side_with_their_ratio() -> None:
    rows = rows_of_plan(
        {0: 300e-6, 1: 2e-3, 2: 100e-6, 3: 1.6e-3, 4: 50e-6, 5: 40e-6},
        operations=("all_reduce", "barrier"), sizes=(1024, 1 << 20), timing="both",
    )  # fmt: skip
    assert timing_modes_text(rows) == (
        "  time alone / time back to back    size     alone  back to back  ratio\n"
        "  ─────────────────────────────────────────────────────────────────────\n"
        "  all_reduce float32 sum in_place  1 KiB  300.0 us      100.0 us   3.00\n"
        "  all_reduce float32 sum in_place  1 MiB  2.000 ms      1.600 ms   1.25\n"
        "  barrier                                 50.00 us      40.00 us   1.25"
    )


def test_sizes_measured_one_way_only_are_not_compared() -> None:
    rows = rows_of_plan({0: 1e-3, 1: 2e-3, 3: 1e-3}, sizes=(64, 128), timing="both")
    (line,) = timing_modes_text(rows).splitlines()[2:]
    assert " ".join(line.split()) == "all_reduce float32 sum in_place 128 B 2.000 ms 1.000 ms 2.00"
    assert timing_modes_text(rows_of_plan({0: 1e-3, 1: 2e-3}, sizes=(64, 128))) == ""
    assert timing_modes_text(rows_of_plan({0: 1e-3}, sizes=(64, 128), timing="both")) == ""


def waiting(share: float, size: int = 1024, **wishes: Any) -> ResultRow:
    """A row whose threads waited for a processor in this share of the time."""
    found = batches(*[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.1 * share)
    return row(*found, sizes=(size,), ranks=ranks((0,), (1,)), **wishes)


def test_the_cpu_mode_that_was_not_used_is_advised() -> None:
    quiet, plain = (
        row(*batches([MS] * 36 + [4 * MS] * 4), cpu_mode=mode) for mode in ("quiet", "plain")
    )
    assert warnings_text([quiet]).endswith("; try --cpu-mode plain")
    assert warnings_text([plain]).endswith("; run `commbench doctor`")
    assert warnings_text([quiet, plain]).endswith("; run `commbench doctor`")


def test_nothing_is_warned_about_where_nothing_misleads() -> None:
    assert warnings_text([waiting(0.1), waiting(0.2)]) == ""
    assert warnings_text([]) == ""


def test_a_warning_is_one_line_with_the_largest_figure_and_what_to_do() -> None:
    unmeasured = row()
    assert warnings_text([waiting(0.6), waiting(0.9), unmeasured]) == (
        "Warnings:\n  queued (all rows): ranks lacked a core up to 90 % of the time; try "
        "--cpu-mode plain"
    )


def where(*rows: ResultRow) -> str:
    """Which rows the first warning is said to be about."""
    return warnings_text(rows).split("(", 1)[1].split("):", 1)[0]


def test_a_warning_of_some_rows_names_their_sizes() -> None:
    calm = waiting(0.0)
    assert where(waiting(0.9, 1 << 20), calm) == "all_reduce 1M"
    many = [waiting(0.9, 1 << n) for n in range(10, 18)]
    assert where(*many, waiting(0.0, 1 << 20)) == "all_reduce 1K-128K"
    assert where(*many[:2], *many[4:], waiting(0.0, 1 << 12), waiting(0.0, 1 << 13)) == (
        "all_reduce 1K-2K, 16K-128K"
    )


def test_a_warning_of_rows_of_several_kinds_names_some_and_counts_the_others() -> None:
    rows = [waiting(0.9, operations=(name,)) for name in ("all_gather", "broadcast", "gather")]
    assert where(*rows, waiting(0.0)) == "all_gather 1K; broadcast 1K; gather 1K"
    more = [waiting(0.9, size, operations=("all_to_all",)) for size in (4096, 8192)]
    assert where(*rows, *more, waiting(0.0)) == (
        "all_gather 1K; broadcast 1K; gather 1K; 2 more rows"
    )
    assert where(waiting(0.9, operations=("barrier",)), waiting(0.0)) == "barrier"


DISTURBED = Batch(
    samples_s=(MS,) * 20, elapsed_s=0.1, queued_s=0.09, stolen_s=0.02, throttled_s=0.01,
    entry_skew_s=0.5 * MS, last_in=(0, 20),
)  # fmt: skip


def disturbed_row(*cores: tuple[int, ...]) -> ResultRow:
    return row(*[DISTURBED] * 5, ranks=ranks(*cores), resolution_s=MS)


def names(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:] if line[2] != " "]


def test_at_most_three_warnings_are_shown_and_the_others_counted() -> None:
    text = warnings_text([disturbed_row((0,), (1,))], name="mine")
    assert names(text) == ["throttled", "stolen", "always_last", "1"]
    assert text.endswith("\n  1 more warning: `commbench show mine --warnings`")
    assert max(map(len, text.splitlines())) <= 80


def test_too_few_cores_are_the_reason_and_nothing_else_is_blamed() -> None:
    text = warnings_text([row(*[DISTURBED._replace(stolen_s=0, throttled_s=0)] * 5,
                              ranks=ranks(*[(0, 1)] * 4))])  # fmt: skip
    assert text == (
        "Warnings:\n  too_few_cores (all rows): 2 ranks share a core; start fewer ranks"
    )


def test_all_warnings_are_explained_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = warnings_text([disturbed_row((0,), (1,)), waiting(0.0, 1 << 20)], most=None)
    assert names(text) == ["throttled", "stolen", "always_last", "coarse_clock"]
    assert (
        "    The step of the clock, or the overhead of the timed loop, is a large part of\n"
        "    such a short time. Pipelined timing measures many calls at once. Rows:\n"
        "    all_reduce 1K."
    ) in text
    assert max(map(len, text.splitlines())) <= 80


def header_of_hosts(*ways: tuple[str, str, str], **more: Any) -> RunHeader:
    """Two ranks on each of these hosts, which have an interface and an address."""
    ranks = tuple(
        RankInfo(2 * i + local, host, 1, "cpu", local_rank=local, interface=name, address=address)
        for i, (host, name, address) in enumerate(ways)
        for local in range(2)
    )
    return RunHeader(
        plan=plan(), label="", started="", launcher="", ranks=ranks,
        **({"num_nodes": len(ways)} | more),
    )  # fmt: skip


def test_several_hosts_are_told_with_their_interfaces() -> None:
    alike = header_of_hosts(("n1", "eth0", "10.0.0.1"), ("n2", "eth0", "10.0.0.2"))
    assert interfaces_text(alike) == "Network interfaces: eth0 of n1 (10.0.0.1), n2 (10.0.0.2)."
    differing = header_of_hosts(
        ("n1", "ib0", "10.0.0.1"), ("n2", "docker0", "172.17.0.1"), ("n3", "", "10.0.0.3")
    )
    assert interfaces_text(differing) == (
        "Network interfaces: an unknown interface of n3 (10.0.0.3); docker0 of n2 (172.17.0.1); "
        "ib0 of n1\n  (10.0.0.1)."
    )
    many = header_of_hosts(*((f"n{i}", "eth0", f"10.0.0.{i}") for i in range(10)))
    assert "n7 (10.0.0.7) and 2 more." in " ".join(interfaces_text(many).split())


def test_one_host_and_unknown_addresses_are_not_told() -> None:
    assert interfaces_text(header_of_hosts(("n1", "lo", "127.0.0.1"))) == ""
    assert interfaces_text(header_of_hosts(("n1", "", ""), ("n2", "", ""))) == ""
