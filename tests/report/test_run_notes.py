"""What is said under a table, whole texts compared."""

from __future__ import annotations

from typing import Any

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
        "  alone over back to back           size     alone  back to back  ratio\n"
        "  ─────────────────────────────────────────────────────────────────────\n"
        "  all_reduce float32 sum in_place  1 KiB  300.0 us      100.0 us   3.00\n"
        "  all_reduce float32 sum in_place  1 MiB   2.00 ms       1.60 ms   1.25\n"
        "  barrier                                  50.0 us       40.0 us   1.25"
    )


def test_sizes_measured_one_way_only_are_not_compared() -> None:
    rows = rows_of_plan({0: 1e-3, 1: 2e-3, 3: 1e-3}, sizes=(64, 128), timing="both")
    (line,) = timing_modes_text(rows).splitlines()[2:]
    assert " ".join(line.split()) == "all_reduce float32 sum in_place 128 B 2.00 ms 1.00 ms 2.00"
    assert timing_modes_text(rows_of_plan({0: 1e-3, 1: 2e-3}, sizes=(64, 128))) == ""
    assert timing_modes_text(rows_of_plan({0: 1e-3}, sizes=(64, 128), timing="both")) == ""


def waiting(share: float, size: int = 1024, **wishes: Any) -> ResultRow:
    """A row whose threads waited for a processor in this share of the time."""
    found = batches(*[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.1 * share)
    return row(*found, sizes=(size,), ranks=ranks((0,), (1,)), **wishes)


def test_where_modes_differ_the_better_one_is_advised() -> None:
    stalled = [row(*batches([MS] * 36 + [4 * MS] * 4), cpu_mode=m) for m in ("quiet", "plain")]
    assert "--cpu-mode quiet" in warnings_text(stalled)
    assert "--cpu-mode quiet" not in warnings_text(stalled[:1])


def test_nothing_is_warned_about_where_nothing_misleads() -> None:
    assert warnings_text([waiting(0.1), waiting(0.2)]) == ""
    assert warnings_text([]) == ""


def test_a_warning_of_all_rows_says_so_and_tells_the_largest_figure() -> None:
    unmeasured = row()
    assert warnings_text([waiting(0.6), waiting(0.9), unmeasured]) == (
        "Be warned:\n"
        "  queued (all rows): threads of a rank waited for a processor up to 90 % of the time; "
        "other work\n"
        "    runs on the cores to which quiet mode keeps ranks: --cpu-mode plain lets them move; "
        "`commbench\n"
        "    doctor` tries both."
    )


def where(*rows: ResultRow) -> str:
    """Which rows the first warning is said to be about."""
    return " ".join(warnings_text(rows).split("(", 1)[1].split("):", 1)[0].split())


def test_a_warning_of_some_rows_names_their_sizes() -> None:
    calm = waiting(0.0)
    assert where(waiting(0.9, 1 << 20), calm) == "1 MiB"
    many = [waiting(0.9, 1 << n) for n in range(10, 18)]
    assert where(*many, calm) == "1 KiB, 2 KiB, 4 KiB, 8 KiB, 16 KiB, 32 KiB and 2 more"


def test_a_warning_of_rows_of_several_kinds_names_the_kinds() -> None:
    rows = [waiting(0.9, operations=(name,)) for name in ("all_gather", "broadcast", "gather")]
    assert where(*rows, waiting(0.0)) == (
        "all_gather float32 out_of_place 1 KiB, broadcast float32 in_place root 0 1 KiB and 1 more"
    )
    assert where(waiting(0.9, operations=("barrier",)), waiting(0.0)) == "barrier"


def test_warnings_come_in_the_order_of_their_table_and_fit_a_hundred_columns() -> None:
    strained = Batch(
        samples_s=(MS,) * 20, elapsed_s=0.1, queued_s=0.09, stolen_s=0.02, throttled_s=0.01,
        entry_skew_s=0.5 * MS, last_in=(0, 20),
    )  # fmt: skip
    text = warnings_text([row(*[strained] * 5, ranks=ranks((0,), (0,)), resolution_s=MS)])
    names = [line.split()[0] for line in text.splitlines()[1:] if not line.startswith("    ")]
    assert names == [
        "too_few_cores", "queued", "throttled", "stolen", "skew", "always_last", "coarse_clock"
    ]  # fmt: skip
    assert max(map(len, text.splitlines())) <= 100


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
    assert interfaces_text(alike) == "Hosts talk through eth0 of n1 (10.0.0.1), n2 (10.0.0.2)."
    differing = header_of_hosts(
        ("n1", "ib0", "10.0.0.1"), ("n2", "docker0", "172.17.0.1"), ("n3", "", "10.0.0.3")
    )
    assert interfaces_text(differing) == (
        "Hosts talk through an unknown interface of n3 (10.0.0.3); docker0 of n2 (172.17.0.1); "
        "ib0 of n1\n  (10.0.0.1)."
    )
    many = header_of_hosts(*((f"n{i}", "eth0", f"10.0.0.{i}") for i in range(10)))
    assert "n7 (10.0.0.7) and 2 more." in " ".join(interfaces_text(many).split())


def test_one_host_and_unknown_addresses_are_not_told() -> None:
    assert interfaces_text(header_of_hosts(("n1", "lo", "127.0.0.1"))) == ""
    assert interfaces_text(header_of_hosts(("n1", "", ""), ("n2", "", ""))) == ""
