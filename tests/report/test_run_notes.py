"""Warnings, and where ranks are."""

from __future__ import annotations

from typing import Any

from synthetic_rows import batches, plan, ranks, row

from commbench.analysis.rows import ResultRow
from commbench.report.run_notes import find_warnings, interfaces_text, warnings_section
from commbench.results.schema import Batch, RankInfo, RunHeader
from commbench.views.document import Folded, Items, Section, Text

MS = 1e-3


def waiting(share: float, size: int = 1024, **wishes: Any) -> ResultRow:
    """A row whose threads waited for a processor in this share of the time."""
    found = batches(*[[MS] * 20] * 5, elapsed_s=0.1, queued_s=0.1 * share)
    return row(*found, sizes=(size,), ranks=ranks((0,), (1,)), **wishes)


def test_the_cpu_mode_that_was_not_used_is_advised() -> None:
    quiet, plain = (
        row(*batches([MS] * 36 + [4 * MS] * 4), cpu_mode=mode) for mode in ("quiet", "plain")
    )
    for rows, said in (
        ([quiet], "try --cpu-mode plain"),
        ([plain], "run `commbench doctor`"),
        ([quiet, plain], "run `commbench doctor`"),
    ):
        (found,) = find_warnings(rows)
        assert found.message.endswith(f"; {said}")


def test_nothing_is_warned_about_where_nothing_misleads() -> None:
    assert find_warnings([waiting(0.1), waiting(0.2)]) == find_warnings([]) == []
    (block,) = warnings_section([]).blocks
    assert block == Text("None.")


def test_a_warning_has_the_largest_figure_and_what_to_do() -> None:
    (found,) = find_warnings([waiting(0.6), waiting(0.9), row()])
    assert (found.name, found.which, found.rows) == ("queued", "all rows", "")
    assert found.message == "ranks lacked a core up to 90 % of the time; try --cpu-mode plain"


def where(*rows: ResultRow) -> str:
    """Which rows the first warning is said to be about."""
    return find_warnings(rows)[0].which


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


def test_the_most_important_warnings_are_first_and_explained_with_their_rows() -> None:
    found = find_warnings([disturbed_row((0,), (1,)), waiting(0.0, 1 << 20)])
    assert [each.name for each in found] == ["throttled", "stolen", "always_last", "coarse_clock"]
    assert {each.rows for each in found} == {"all_reduce 1K"}
    section = warnings_section(found)
    lines, folded = section.blocks
    assert isinstance(lines, Items) and len(lines.texts) == 4
    assert isinstance(folded, Folded) and isinstance(folded.blocks[0], Items)
    assert folded.blocks[0].texts[3] == f"coarse_clock: {found[3].explanation} Rows: all_reduce 1K."
    assert isinstance(warnings_section(found, are_explained=True).blocks[1], Section)


def test_too_few_cores_are_the_reason_and_nothing_else_is_blamed() -> None:
    calm = DISTURBED._replace(stolen_s=0, throttled_s=0)
    (found,) = find_warnings([row(*[calm] * 5, ranks=ranks(*[(0, 1)] * 4))])
    assert found.name == "too_few_cores"
    assert found.message == "2 ranks share a core; start fewer ranks"


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
        "ib0 of n1 (10.0.0.1)."
    )
    many = header_of_hosts(*((f"n{i}", "eth0", f"10.0.0.{i}") for i in range(10)))
    assert "n7 (10.0.0.7) and 2 more." in interfaces_text(many)


def test_one_host_and_unknown_addresses_are_not_told() -> None:
    assert interfaces_text(header_of_hosts(("n1", "lo", "127.0.0.1"))) == ""
    assert interfaces_text(header_of_hosts(("n1", "", ""), ("n2", "", ""))) == ""
