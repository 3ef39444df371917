"""OSU's and Intel's MPI benchmarks, and PARAM's communication benchmark."""

from __future__ import annotations

import re

import pytest
from importing import FOREIGN, read, read_path, refused

from commbench.errors import RecordsError, UsageError

OSU = (FOREIGN / "osu.txt").read_text()
IMB = (FOREIGN / "imb.txt").read_text()
ALLGATHER = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n1024  2.81\n"


def test_osu_tables_are_read() -> None:
    assert "the number of ranks" in refused(UsageError, OSU)
    file = read_path(FOREIGN / "osu.txt", ranks=8)
    assert {row.wrong for row in file.rows} == {0, None}
    assert file.faults == ("1 line left out (23): its results were wrong (validation)",)
    assert [
        (r.case.operation, r.case.dtype, r.case.placement, r.case.size_bytes, r.case.count)
        for r in file.rows
    ] == [
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
    assert (file.backend, file.devices, file.ranks) == ("mpi", (), 8)
    row = file.rows[3]
    assert (row.reported.time_s, row.reported.iterations) == (22.26e-6, 1000)
    assert row.reported.statistic == "mean over 1000 iterations, mean over ranks"
    assert file.rows[-1].reported.time_s == 12.57e-6
    assert [row.case.reduce_op for row in file.rows] == ["sum"] * 3 + [""] * 4 + ["sum", ""]
    assert file.device == ""  # one table is of CUDA, the others are not
    assert file.notes == (
        "no element type is printed: versions that print none send float32",
        "2 lines left out (3, 4): 'Latency' is of pairs of ranks: import it from a file of its own",
        "1 line left out (23): its results were wrong (validation)",
        "1 line left out (28): less than one float32 per rank",
    )


def test_osu_times_and_bandwidths_of_pairs_are_read() -> None:
    (row,) = read("# OSU MPI Latency Test v7.4\n# Size    Avg Latency(us)\n8      1.25\n").rows
    assert (row.case.operation, row.case.p2p_call, row.case.pairs) == (
        "ping_pong",
        "send",
        "halves",
    )
    assert (row.case.size_bytes, row.case.dtype, row.reported.time_s) == (8, "int8", 1.25e-6)
    file = read("# OSU MPI Bandwidth Test v5.8\n# Size   Bandwidth (MB/s)\n1048576   2000.00\n")
    (row,) = file.rows
    assert (row.case.operation, row.case.p2p_call, row.case.window, file.ranks) == (
        "stream",
        "isend",
        64,
        2,
    )
    assert row.reported.time_s == pytest.approx(1048576 / 2e9)
    rates = (
        "# OSU MPI Multiple Bandwidth / Message Rate Test v7.4\n"
        "# [ pairs: 4 ] [ window size: 32 ]\n"
        "# Size     MB/s    Messages/s\n4096 8000.00 1953125.0\n"
    )
    file = read(rates)
    (row,) = file.rows
    assert (row.case.window, file.ranks) == (32, 8)
    assert row.reported.time_s == pytest.approx(4 * 4096 / 8e9)


def test_osu_sizes_of_blocks_become_totals() -> None:
    (row,) = read(ALLGATHER, ranks=4).rows
    assert (row.case.size_bytes, row.case.count, row.case.dtype) == (4096, 1024, "int8")
    (row,) = read(ALLGATHER, ranks=4, dtype="float32").rows
    assert (row.case.size_bytes, row.case.count) == (4096, 256)


@pytest.mark.parametrize(
    "name",
    ["Bi-Directional Bandwidth", "Allgatherv Latency", "Non-blocking Allreduce Latency",
     "Multi Latency"],
)  # fmt: skip
def test_osu_tests_that_are_no_collectives_are_refused_with_the_reason(name: str) -> None:
    text = f"# OSU MPI {name} Test v7.4\n# Size      Bandwidth (MB/s)\n1       2.32\n"
    with pytest.raises(RecordsError) as raised:
        read(text, ranks=2)
    assert "not a blocking collective" in raised.value.message


def test_osu_types_in_one_run_are_told_apart() -> None:
    head, row = "# Size       Avg Latency(us)\n", "1024  2.81\n"
    text = "# OSU MPI Allreduce Latency Test v7.4\n" + "".join(
        f"# Datatype: {name}.\n{head}{row}" for name in ("MPI_INT", "MPI_FLOAT", "MPI_LOGICAL")
    )
    file = read(text, ranks=2)
    assert [row.case.dtype for row in file.rows] == ["int32", "float32"]
    assert any("MPI_LOGICAL" in note for note in file.notes)
    assert [row.case.dtype for row in read(text, ranks=2, dtype="int32").rows] == ["int32"]


def test_imb_tables_are_read() -> None:
    file = read_path(FOREIGN / "imb.txt", ranks=4)
    assert [
        (r.case.operation, r.case.dtype, r.case.size_bytes, r.case.count, r.reported.time_s)
        for r in file.rows
    ] == [
        ("all_reduce", "float32", 32768, 8192, 20.02e-6),
        ("reduce_scatter", "float32", 4 * 32768, 8192, 30.02e-6),
        ("barrier", "", 0, 0, 1.27e-6),
    ]
    row = file.rows[0]
    assert row.reported.mean_s == 20.02e-6
    assert (row.reported.iterations, row.case.reduce_op) == (1000, "sum")
    assert row.reported.statistic == "mean over 1000 iterations, slowest rank"
    assert (file.tool, file.tool_version, file.timing) == ("imb", "2021.7", "isolated")
    assert file.notes == (
        "Barrier is timed as a loop, unlike the others",
        "2 lines left out (21, 22): 'PingPong' is not a blocking collective of commbench",
        "3 lines left out (30, 31, 32): measured on 2 ranks",
        "2 lines left out (39, 48): nothing was moved (size 0)",
        "1 line left out (41): IMB gave up (time-out)",
    )
    assert file.faults == (file.notes[-1],)


def test_imb_times_are_of_the_slowest_rank_and_wrong_results_are_left_out() -> None:
    times = "20.01        20.02        20.02"
    row = read(IMB.replace(times, "20.01        20.02        20.00"), ranks=4).rows[0]
    assert (row.reported.time_s, row.reported.mean_s) == (20.02e-6, 20.00e-6)
    checked = re.sub(r"t_avg.usec.", r"\g<0> defects", IMB)
    checked = re.sub(r"(?m)^ +(?:\d+ +)?\d+(?: +\d+\.\d\d){3}$", r"\g<0> 0.00", checked)
    file = read(checked.replace(f"{times} 0.00", f"{times} 1.00"), ranks=4)
    assert [row.case.operation for row in file.rows] == ["reduce_scatter", "barrier"]
    assert any("its results were wrong (defects)" in fault for fault in file.faults)


@pytest.mark.parametrize(("version", "size"), [("2018.1", 32768), ("2019.1", 4 * 32768)])
def test_imb_sizes_of_reduce_scatter_are_of_a_block_since_2019(version: str, size: int) -> None:
    assert read(IMB.replace("2021.7", version), ranks=4).rows[1].case.size_bytes == size


def test_imb_results_of_several_process_counts_are_chosen_from() -> None:
    assert "contains results of 2 and 4 ranks" in refused(UsageError, IMB)
    assert [row.case.size_bytes for row in read(IMB, ranks=2).rows] == [32768, 65536]
    assert "2 and 4 ranks, not on 3" in refused(UsageError, IMB, ranks=3)
    hints = IMB.replace("# #processes = 4 \n", "")
    assert "the number of ranks" in refused(UsageError, hints)


def test_what_an_imb_version_means_is_known() -> None:
    old = IMB.replace("Intel(R) MPI Benchmarks 2021.7", "Intel (R) MPI Benchmark Suite V3.2")
    file = read(old, ranks=4)
    assert (file.timing, file.rows[1].case.size_bytes) == ("pipelined", 32768)
    hints = read(IMB.replace("Intel(R) MPI Benchmarks 2021.7", ""), ranks=4)
    assert [row.case.operation for row in hints.rows] == ["all_reduce", "barrier"]
    assert any("depends on the version" in note for note in hints.notes)
    loop = read(IMB.replace("-npmin 2", "-npmin 2 -sync off"), ranks=4)
    assert loop.timing == "pipelined"


def test_imb_types_and_reductions_are_taken_from_the_file_or_asked_for() -> None:
    double = IMB.replace("MPI_FLOAT", "MPI_DOUBLE").replace("MPI_SUM", "MPI_MAX")
    row = read(double, ranks=4).rows[0]
    assert (row.case.dtype, row.case.reduce_op, row.case.count) == ("float64", "max", 4096)
    hints = "".join(line for line in IMB.splitlines(keepends=True) if "MPI_FLOAT" not in line)
    assert "element type" in refused(UsageError, hints, ranks=4)
    assert read(hints, ranks=4, dtype="float32").rows[0].case.dtype == "float32"
    strange = read(IMB.replace("MPI_FLOAT", "MPI_LONG_DOUBLE"), ranks=4)
    assert [row.case.operation for row in strange.rows] == ["barrier"]


def test_an_imb_file_without_its_last_line_is_cut_off() -> None:
    assert "cut off" not in "".join(read(IMB, ranks=4).faults)
    cut = IMB.replace("# All processes entering MPI_Finalize", "")
    assert "the file was cut off, or is not complete" in read(cut, ranks=4).faults


PARAM = (FOREIGN / "param.txt").read_text()


def test_results_are_read() -> None:
    file = read_path(FOREIGN / "param.txt")
    assert [
        (r.case.operation, r.case.dtype, r.case.placement, r.case.size_bytes, r.case.count)
        for r in file.rows
    ] == [
        ("all_reduce", "float32", "in_place", 1048576, 262144),
        ("all_reduce", "float32", "in_place", 2097152, 524288),
        ("all_reduce", "float32", "in_place", 4194304, 1048576),
        ("all_gather", "bfloat16", "out_of_place", 1048576, 65536),
    ]
    row = file.rows[0]
    assert row.reported.time_s == 72.3e-6
    assert row.reported.statistic == "mean over iterations, median over ranks"
    assert (file.ranks, file.backend, file.timing) == (8, "nccl", "isolated")
    assert file.notes == ("1 line left out (12): commbench has no operation for 'all_to_allv'",)


def test_without_waiting_it_is_pipelined() -> None:
    assert read(PARAM.replace("args.z: 1", "args.z: 0")).timing == "pipelined"
    assert any("--z 1" in note for note in read(PARAM.replace("args.z: 1", "")).notes)


def test_ranks_are_asked_for_where_they_are_not_printed() -> None:
    hints = PARAM.replace("groupSize 8", "").replace("'world_size': 8", "")
    assert "the number of ranks" in refused(UsageError, hints)
    assert len(read(hints, ranks=8).rows) == 4
    assert "are not those of" in refused(UsageError, hints, ranks=2)


def test_results_of_old_versions_do_not_tell_what_they_are_of() -> None:
    lines = [line for line in PARAM.splitlines(keepends=True) if "all_to_allv" not in line]
    old = "".join(line.replace("-all_reduce-float32", "") for line in lines[:9])
    assert "which operation it measured" in refused(UsageError, old)
    assert "element type" in refused(UsageError, old, operation="all_reduce")
    assert len(read(old, operation="all_reduce", dtype="float32").rows) == 3
    assert "are not those of" in refused(UsageError, old, operation="reduce", dtype="float32")


def test_what_is_no_plain_collective_is_left_out() -> None:
    more = "\tCOMMS-RES-QUANT-all_reduce-float32\t 8 2 1.0 2.0 3.0 4.0\n"
    pair = PARAM.replace("nElementsPerRank", "nElementsPerRank  nElementsPairPerRank", 1)
    assert any("quantised" in note for note in read(PARAM + more).notes)
    assert [row.case.operation for row in read(pair).rows] == ["all_gather"]


@pytest.mark.parametrize(
    ("text", "old", "new", "line"),
    [(OSU, "1048576               230.90", "1048576               23x.90", 10),
     (OSU, "8                       1.17", "8 1.17 3", 9),
     (OSU, "# OSU MPI Broadcast Latency Test v7.5\n# Datatype: MPI_CHAR.\n", "", 19),
     (OSU, "# Size       Avg Latency(us)        Validation\n", "", 21),
     (OSU, "Avg Latency(us)   Min", "Avg Frequency(us)   Min", 15),
     (IMB, "20.01        20.02", "20.01        20x02", 40),
     (IMB, "20.01        20.02        20.02", "20.01        20.02", 40),
     (IMB, "# Benchmarking Reduce_scatter \n", "", 46),
     (IMB, "#bytes #repetitions  t_min[usec]", "#bytes #repetitions  t_mean[usec]", 29),
     (PARAM, "72.3 ", "7x.3 ", 6), (PARAM, "25.380", "", 6), (PARAM, "AlgBW", "AlgoBW", 6),
     (PARAM, "all_reduce-float32 ", "all_reduce-float23 ", 6)],
)  # fmt: skip
def test_a_damaged_line_is_refused_with_its_number(
    text: str, old: str, new: str, line: int
) -> None:
    ranks = {OSU: 8, IMB: 4}.get(text)
    assert f"line {line}" in refused(RecordsError, text.replace(old, new, 1), ranks=ranks)
