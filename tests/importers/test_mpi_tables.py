"""OSU's and Intel's MPI benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest
from importing import read, refused

from commbench.errors import RecordsError, UsageError
from commbench.importers.hints import ImportHints
from commbench.importers.registry import import_file

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"
OSU = (FOREIGN / "osu.txt").read_text()
IMB = (FOREIGN / "imb.txt").read_text()
ALLGATHER = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n1024  2.81\n"


def test_osu_tables_are_read() -> None:
    file = import_file(FOREIGN / "osu.txt", ImportHints(ranks=8))
    assert [(r.operation, r.dtype, r.placement, r.size_bytes, r.count) for r in file.rows] == [
        ("all_reduce", "float32", "out_of_place", 4, 1),
        ("all_reduce", "float32", "out_of_place", 8, 2),
        ("all_reduce", "float32", "out_of_place", 1048576, 262144),
        ("all_to_all", "int32", "out_of_place", 32, 1),
        ("all_to_all", "int32", "out_of_place", 8 * 1048576, 262144),
        ("broadcast", "int8", "in_place", 1, 1),
        ("broadcast", "int8", "in_place", 4, 4),
        ("reduce_scatter", "float32", "out_of_place", 1024, 32),
        ("barrier", "", "", 0, 0),
    ]
    assert (file.tool, file.tool_version, file.timing) == ("osu", "5.8, 7.5, 6.2", "isolated")
    assert (file.backend, file.devices, file.ranks) == ("mpi", ("cuda",), 8)
    row = file.rows[3]
    assert (row.time_s, row.iterations) == (22.26e-6, 1000)
    assert (row.minimum_s, row.maximum_s, row.p50_s, row.p99_s) == (
        20.10e-6, 24.11e-6, 22.00e-6, 30.00e-6,
    )  # fmt: skip
    assert row.statistic == "mean over 1000 iterations, mean over ranks"
    assert file.rows[-1].time_s == 12.57e-6
    assert [row.reduce_op for row in file.rows] == ["sum"] * 3 + [""] * 4 + ["sum", ""]
    assert file.notes == (
        "no element type is printed: versions that print none send float32",
        "left out 2 (lines 3, 4): 'Latency Test' is of pairs of ranks: import it from a file of "
        "its own",
        "left out 1 (line 23): its results were wrong (Validation)",
        "left out 1 (line 28): less than one float32 per rank",
    )


def test_osu_times_and_bandwidths_of_pairs_are_read() -> None:
    (row,) = read("# OSU MPI Latency Test v7.4\n# Size    Avg Latency(us)\n8      1.25\n").rows
    assert (row.operation, row.p2p_call, row.pairs) == ("ping_pong", "send", "halves")
    assert (row.size_bytes, row.dtype, row.time_s) == (8, "int8", 1.25e-6)
    file = read("# OSU MPI Bandwidth Test v5.8\n# Size   Bandwidth (MB/s)\n1048576   2000.00\n")
    (row,) = file.rows
    assert (row.operation, row.p2p_call, row.window, file.ranks) == ("stream", "isend", 64, 2)
    assert row.time_s == pytest.approx(1048576 / 2e9)
    rates = (
        "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n"
        "# [ pairs: 4 ] [ window size: 32 ]\n"
        "# Size     MB/s    Messages/s\n4096 8000.00 1953125.0\n"
    )
    file = read(rates)
    (row,) = file.rows
    assert (row.window, file.ranks) == (32, 8)
    assert row.time_s == pytest.approx(4 * 4096 / 8e9)


def test_osu_does_not_tell_its_ranks() -> None:
    assert "the number of ranks" in refused(UsageError, OSU)


def test_osu_sizes_of_blocks_become_totals() -> None:
    (row,) = read(ALLGATHER, ranks=4).rows
    assert (row.size_bytes, row.count, row.dtype) == (4096, 1024, "int8")
    (row,) = read(ALLGATHER, ranks=4, dtype="float32").rows
    assert (row.size_bytes, row.count) == (4096, 256)


@pytest.mark.parametrize(
    "name",
    ["Bi-Directional Bandwidth", "Allgatherv Latency", "Non-blocking Allreduce Latency",
     "Multi Latency"],
)  # fmt: skip
def test_osu_tests_that_are_no_collectives_are_refused_with_the_reason(name: str) -> None:
    text = f"# OSU MPI {name} Test v7.4\n# Size      Bandwidth (MB/s)\n1       2.32\n"
    with pytest.raises(RecordsError) as raised:
        read(text, ranks=2)
    assert "not a blocking collective" in raised.value.hint


def test_osu_types_in_one_run_are_told_apart() -> None:
    head, row = "# Size       Avg Latency(us)\n", "1024  2.81\n"
    text = "# OSU MPI Allreduce Latency Test v7.4\n" + "".join(
        f"# Datatype: {name}.\n{head}{row}" for name in ("MPI_INT", "MPI_FLOAT", "MPI_LOGICAL")
    )
    file = read(text, ranks=2)
    assert [row.dtype for row in file.rows] == ["int32", "float32"]
    assert any("MPI_LOGICAL" in note for note in file.notes)
    assert [row.dtype for row in read(text, ranks=2, dtype="int32").rows] == ["int32"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("1048576               230.90", "1048576               23x.90", "line 10"),
        ("8                       1.17", "8 1.17 3", "line 9"),
        ("# OSU MPI Broadcast Latency Test v7.5\n# Datatype: MPI_CHAR.\n", "", "line 19"),
        ("# Size       Avg Latency(us)        Validation\n", "", "line 21"),
        ("Avg Latency(us)   Min", "Avg Frequency(us)   Min", "line 15"),
    ],
)
def test_a_damaged_osu_line_is_refused_with_its_number(old: str, new: str, why: str) -> None:
    assert why in refused(RecordsError, OSU.replace(old, new), ranks=8)


def test_imb_tables_are_read() -> None:
    file = import_file(FOREIGN / "imb.txt", ImportHints(ranks=4))
    assert [(r.operation, r.dtype, r.size_bytes, r.count, r.time_s) for r in file.rows] == [
        ("all_reduce", "float32", 32768, 8192, 20.02e-6),
        ("reduce_scatter", "float32", 4 * 32768, 8192, 30.02e-6),
        ("barrier", "", 0, 0, 1.27e-6),
    ]
    row = file.rows[0]
    assert (row.minimum_s, row.maximum_s, row.mean_s) == (20.01e-6, 20.02e-6, 20.02e-6)
    assert (row.iterations, row.reduce_op) == (1000, "sum")
    assert row.statistic == "mean over 1000 iterations, slowest rank"
    assert (file.tool, file.tool_version, file.timing) == ("imb", "2021.7", "isolated")
    assert file.notes == (
        "Barrier is timed as a loop, unlike the others",
        "left out 2 (lines 21, 22): 'PingPong' is not a blocking collective of commbench",
        "left out 3 (lines 30, 31, 32): measured on 2 ranks",
        "left out 2 (lines 39, 48): nothing was moved (size 0)",
        "left out 1 (line 41): IMB gave up (time-out)",
    )


def test_imb_results_of_several_process_counts_are_chosen_from() -> None:
    assert "contains results of 2 and 4 ranks" in refused(UsageError, IMB)
    assert [row.size_bytes for row in read(IMB, ranks=2).rows] == [32768, 65536]
    assert "2 and 4 ranks, not on 3" in refused(UsageError, IMB, ranks=3)
    hints = IMB.replace("# #processes = 4 \n", "")
    assert "the number of ranks" in refused(UsageError, hints)


def test_what_an_imb_version_means_is_known() -> None:
    old = IMB.replace("Intel(R) MPI Benchmarks 2021.7", "Intel (R) MPI Benchmark Suite V3.2")
    file = read(old, ranks=4)
    assert (file.timing, file.rows[1].size_bytes) == ("pipelined", 32768)
    hints = read(IMB.replace("Intel(R) MPI Benchmarks 2021.7", ""), ranks=4)
    assert [row.operation for row in hints.rows] == ["all_reduce", "barrier"]
    assert any("depends on the version" in note for note in hints.notes)
    loop = read(IMB.replace("-npmin 2", "-npmin 2 -sync off"), ranks=4)
    assert loop.timing == "pipelined"


def test_imb_types_and_reductions_are_taken_from_the_file_or_asked_for() -> None:
    double = IMB.replace("MPI_FLOAT", "MPI_DOUBLE").replace("MPI_SUM", "MPI_MAX")
    row = read(double, ranks=4).rows[0]
    assert (row.dtype, row.reduce_op, row.count) == ("float64", "max", 4096)
    hints = "".join(line for line in IMB.splitlines(keepends=True) if "MPI_FLOAT" not in line)
    assert "element type" in refused(UsageError, hints, ranks=4)
    assert read(hints, ranks=4, dtype="float32").rows[0].dtype == "float32"
    strange = read(IMB.replace("MPI_FLOAT", "MPI_LONG_DOUBLE"), ranks=4)
    assert [row.operation for row in strange.rows] == ["barrier"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("20.01        20.02", "20.01        20x02", "line 40"),
        ("20.01        20.02        20.02", "20.01        20.02", "line 40"),
        ("# Benchmarking Reduce_scatter \n", "", "line 46"),
        ("#bytes #repetitions  t_min[usec]", "#bytes #repetitions  t_mean[usec]", "line 29"),
    ],
)
def test_a_damaged_imb_line_is_refused_with_its_number(old: str, new: str, why: str) -> None:
    assert why in refused(RecordsError, IMB.replace(old, new), ranks=4)


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("imb.txt", ["left out 1 (line 41): IMB gave up (time-out)"]),
        ("osu.txt", ["left out 1 (line 23): its results were wrong (Validation)"]),
    ],
)
def test_failures_are_faults_and_validated_rows_are_checked(name: str, faults: list[str]) -> None:
    file = import_file(FOREIGN / name, ImportHints(ranks=4))
    assert list(file.faults) == faults
    assert {row.wrong for row in file.rows} == ({0, None} if name == "osu.txt" else {None})


def test_an_imb_file_without_its_last_line_is_cut_off() -> None:
    whole = (FOREIGN / "imb.txt").read_text()
    assert "cut off" not in "".join(read(whole, ranks=4).faults)
    cut = whole.replace("# All processes entering MPI_Finalize", "")
    assert "the file was cut off, or is not complete" in read(cut, ranks=4).faults
