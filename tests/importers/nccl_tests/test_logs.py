"""Every row of real nccl-tests logs is imported, and its bandwidth follows from size and time."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from commbench.importers.bandwidth_check import is_consistent
from commbench.importers.cells import MICROSECONDS
from commbench.importers.hints import ImportHints
from commbench.importers.registry import import_file
from commbench.spec import operations
from commbench.units import GB

LOGS = Path(__file__).parents[2] / "data" / "nccl-tests"
OPERATIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}
FACTORS = {"allreduce": Decimal(14) / 8, "allgather": Decimal(7) / 8, "alltoall": Decimal(7) / 8}

ROW = re.compile(
    r"^ +(\d+) +(\d+) +float +(?:sum )?"
    r" *([\d.]+) +([\d.]+) +([\d.]+) +N/A +([\d.]+) +([\d.]+) +([\d.]+) +N/A$",
    re.MULTILINE,
)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_row_of_a_real_log_is_imported(name: str) -> None:
    path = LOGS / f"nccl_{name}.log"
    printed = [match.groups() for match in ROW.finditer(path.read_text())]
    moved = [row for row in printed if row[0] != "0"]
    assert len(printed) == sum(" float " in line for line in path.read_text().splitlines())
    file = import_file(path, ImportHints(operation=OPERATIONS[name]))
    got = [
        (row.size_bytes, row.count, row.placement, row.time_s, row.algbw, row.busbw)
        for row in file.rows
    ]
    assert got == [
        (int(size), int(count), placement, float(f"{t}e-6"), float(f"{a}e9"), float(f"{b}e9"))
        for size, count, *cells in moved
        for placement, (t, a, b) in (("out_of_place", cells[:3]), ("in_place", cells[3:]))
    ]
    assert (file.ranks, file.backend, file.timing) == (8, "nccl", "pipelined")
    assert (file.hosts, file.devices) == (("localhost",), ("A100-SXM4-40GB",))
    assert {row.statistic for row in file.rows} == {"mean over 20 calls, mean over ranks"}
    graphs, left_out = file.notes
    assert graphs == "it does not say whether CUDA graphs were used (option -G): assumed not"
    assert left_out.startswith(f"left out {len(printed) - len(moved)} (lines ")
    assert left_out.endswith("nothing was moved (size 0)")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_printed_bus_bandwidth_follows_to_its_last_digit(name: str) -> None:
    path = LOGS / f"nccl_{name}.log"
    file = import_file(path, ImportHints(operation=OPERATIONS[name]))
    printed = [m.groups() for m in ROW.finditer(path.read_text()) if m[1] != "0"]
    cells = [pair for row in printed for pair in ((row[2], row[4]), (row[5], row[7]))]
    assert len(cells) == len(file.rows)
    for row, (time, busbw) in zip(file.rows, cells, strict=True):
        factor = operations.OPERATIONS[row.operation].busbw_factor
        assert factor is not None
        recomputed = row.size_bytes / row.time_s * factor(file.ranks)
        # The printed time is rounded too: half a unit of its last digit moves the quotient.
        half = Decimal(1).scaleb(Decimal(time).as_tuple().exponent) / 2  # type: ignore[arg-type]
        moved = Decimal(row.size_bytes) * FACTORS[name] / 1000
        low, high = moved / (Decimal(time) + half), moved / (Decimal(time) - half)
        unit = Decimal("0.01")
        assert low - unit <= Decimal(busbw) <= high + unit
        assert abs(Decimal(recomputed / GB) - Decimal(busbw)) <= unit + (high - low)
        assert is_consistent(row.size_bytes * float(FACTORS[name]), MICROSECONDS, time, busbw)


def test_a_row_that_was_removed_from_a_real_log_is_missed(tmp_path: Path) -> None:
    lines = (LOGS / "nccl_allgather.log").read_text().splitlines(keepends=True)
    path = tmp_path / "out.log"
    for size, lacks in (("1048576", ("float, size 1048576",)), ("0", ())):
        at = next(i for i, line in enumerate(lines) if line.split()[:1] == [size])
        path.write_text("".join(lines[:at] + lines[at + 1 :]))
        faults = import_file(path, ImportHints(operation="all_gather")).faults
        wanted = tuple(f"the table at line 17 lacks rows that it announces: {w}" for w in lacks)
        assert faults == wanted, size


def test_a_bandwidth_that_does_not_follow_is_seen() -> None:
    assert is_consistent(1048576, -6, "100.0", "10.49")
    assert not is_consistent(1048576, -6, "100.0", "10.50")
    assert not is_consistent(1048576, -6, "100.0", "10.47")
    assert is_consistent(1048576, -6, "1.0e+02", "10.3")
    assert is_consistent(8, -6, "0.00", "12.00")
