"""OSU's and Intel's MPI benchmarks, and PARAM's communication benchmark: parts and variants of the
files whose rows tests/golden shows."""

from __future__ import annotations

import re

import pytest
from importing import FOREIGN, fields, read, refused

from commbench.errors import RecordsError, UsageError

OSU, IMB, PARAM = ((FOREIGN / f"{name}.txt").read_text() for name in ("osu", "imb", "param"))
ALLGATHER = "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)\n1024  2.81\n"


def test_osu_tables_of_one_file_have_versions_and_devices_of_their_own() -> None:
    assert "the number of ranks" in refused(UsageError, OSU)
    file = read(OSU, ranks=8)
    assert fields(file, "time_s", "iterations")[3] == (22.26e-6, 1000)
    assert (file.tool_version, file.timing, file.devices) == ("5.8, 7.5, 6.2", "isolated", ())
    assert file.device == ""  # one table is of CUDA, the others are not


@pytest.mark.parametrize(
    ("text", "operation", "p2p_call", "window", "ranks", "time_s"),
    [
        ("Latency Test v7.4\n# Size    Avg Latency(us)\n8      1.25\n",
         "ping_pong", "send", None, 2, 1.25e-6),
        ("Bandwidth Test v5.8\n# Size   Bandwidth (MB/s)\n1048576   2000.00\n",
         "stream", "isend", 64, 2, 1048576 / 2e9),
        ("Multiple Bandwidth / Message Rate Test v7.4\n# [ pairs: 4 ] [ window size: 32 ]\n"
         "# Size     MB/s    Messages/s\n4096 8000.00 1953125.0\n",
         "stream", "isend", 32, 8, 4 * 4096 / 8e9),
    ],
)  # fmt: skip
def test_osu_times_and_bandwidths_of_pairs_are_read(
    text: str, operation: str, p2p_call: str, window: int | None, ranks: int, time_s: float
) -> None:
    file = read(f"# OSU MPI {text}")
    names = ("operation", "p2p_call", "window", "ranks", "pairs", "dtype")
    assert fields(file, *names) == [(operation, p2p_call, window, ranks, "halves", "int8")]
    assert file.ranks == ranks
    assert fields(file, "time_s") == pytest.approx([time_s])


def test_osu_sizes_of_blocks_become_totals() -> None:
    for dtype, count in (("int8", 1024), ("float32", 256)):
        given = {} if dtype == "int8" else {"dtype": dtype}
        assert fields(read(ALLGATHER, ranks=4, **given), "size_bytes", "count", "dtype") == [
            (4096, count, dtype)
        ]


@pytest.mark.parametrize(
    "name",
    ["Bi-Directional Bandwidth", "Allgatherv Latency", "Non-blocking Allreduce Latency",
     "Multi Latency"],
)  # fmt: skip
def test_osu_tests_that_are_no_collectives_are_refused_with_the_reason(name: str) -> None:
    text = f"# OSU MPI {name} Test v7.4\n# Size      Bandwidth (MB/s)\n1       2.32\n"
    assert "not a blocking collective" in refused(RecordsError, text, ranks=2)


def test_osu_types_in_one_run_are_told_apart() -> None:
    text = "# OSU MPI Allreduce Latency Test v7.4\n" + "".join(
        f"# Datatype: {name}.\n# Size       Avg Latency(us)\n1024  2.81\n"
        for name in ("MPI_INT", "MPI_FLOAT", "MPI_LOGICAL")
    )
    file = read(text, ranks=2)
    assert fields(file, "dtype") == ["int32", "float32"]
    assert any("MPI_LOGICAL" in note for note in file.notes)
    assert fields(read(text, ranks=2, dtype="int32"), "dtype") == ["int32"]


def test_imb_times_each_operation_by_itself_since_2017() -> None:
    file = read(IMB, ranks=4)
    assert (file.tool_version, file.timing) == ("2021.7", "isolated")
    assert fields(file, "time_s", "iterations")[0] == (20.02e-6, 1000)


def test_imb_times_are_of_the_slowest_rank_and_wrong_results_are_left_out() -> None:
    times = "20.01        20.02        20.02"
    file = read(IMB.replace(times, "20.01        20.02        20.00"), ranks=4)
    assert fields(file, "time_s", "mean_s")[0] == (20.02e-6, 20.00e-6)
    checked = re.sub(r"t_avg.usec.", r"\g<0> defects", IMB)
    checked = re.sub(r"(?m)^ +(?:\d+ +)?\d+(?: +\d+\.\d\d){3}$", r"\g<0> 0.00", checked)
    file = read(checked.replace(f"{times} 0.00", f"{times} 1.00"), ranks=4)
    assert fields(file, "operation") == ["reduce_scatter", "barrier"]
    assert any("its results were wrong (defects)" in fault for fault in file.faults)


@pytest.mark.parametrize(
    ("new", "timing", "size"),
    [("Intel(R) MPI Benchmarks 2018.1", "isolated", 32768),
     ("Intel(R) MPI Benchmarks 2019.1", "isolated", 4 * 32768),
     ("Intel (R) MPI Benchmark Suite V3.2", "pipelined", 32768)],
)  # fmt: skip
def test_what_an_imb_version_means_is_known(new: str, timing: str, size: int) -> None:
    file = read(IMB.replace("Intel(R) MPI Benchmarks 2021.7", new), ranks=4)
    assert (file.timing, file.rows[1].case.size_bytes) == (timing, size)


def test_imb_without_a_version_or_a_barrier_before_each_call_timed_a_loop() -> None:
    file = read(IMB.replace("Intel(R) MPI Benchmarks 2021.7", ""), ranks=4)
    assert fields(file, "operation") == ["all_reduce", "barrier"]
    assert any("depends on the version" in note for note in file.notes)
    assert read(IMB.replace("-npmin 2", "-npmin 2 -sync off"), ranks=4).timing == "pipelined"


def test_imb_results_of_several_process_counts_are_chosen_from() -> None:
    assert "contains results of 2 and 4 ranks" in refused(UsageError, IMB)
    assert fields(read(IMB, ranks=2), "size_bytes") == [32768, 65536]
    assert "2 and 4 ranks, not on 3" in refused(UsageError, IMB, ranks=3)
    assert "the number of ranks" in refused(UsageError, IMB.replace("# #processes = 4 \n", ""))


def test_imb_types_and_reductions_are_taken_from_the_file_or_asked_for() -> None:
    double = IMB.replace("MPI_FLOAT", "MPI_DOUBLE").replace("MPI_SUM", "MPI_MAX")
    found = fields(read(double, ranks=4), "dtype", "reduce_op", "count")
    assert found[0] == ("float64", "max", 4096)
    hints = "".join(line for line in IMB.splitlines(keepends=True) if "MPI_FLOAT" not in line)
    assert "element type" in refused(UsageError, hints, ranks=4)
    assert fields(read(hints, ranks=4, dtype="float32"), "dtype")[0] == "float32"
    strange = read(IMB.replace("MPI_FLOAT", "MPI_LONG_DOUBLE"), ranks=4)
    assert fields(strange, "operation") == ["barrier"]


def test_an_imb_file_without_its_last_line_is_cut_off() -> None:
    cut = IMB.replace("# All processes entering MPI_Finalize", "")
    assert "the file was cut off, or is not complete" in read(cut, ranks=4).faults


def test_param_results_are_pipelined_where_no_operation_was_waited_for() -> None:
    assert read(PARAM).timing == "isolated"
    assert read(PARAM.replace("args.z: 1", "args.z: 0")).timing == "pipelined"
    assert any("--z 1" in note for note in read(PARAM.replace("args.z: 1", "")).notes)


def test_what_param_does_not_print_is_asked_for() -> None:
    hints = PARAM.replace("groupSize 8", "").replace("'world_size': 8", "")
    assert "the number of ranks" in refused(UsageError, hints)
    assert len(read(hints, ranks=8).rows) == 4
    assert "are not those of" in refused(UsageError, hints, ranks=2)
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
    assert fields(read(pair), "operation") == ["all_gather"]


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
