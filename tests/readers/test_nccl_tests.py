"""nccl-tests' text and JSON output: versions, options, surroundings and flaws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from importing import CASE, FOREIGN, fields, read, read_path, refused

import commbench as cb
from commbench.errors import RecordsError, UsageError
from commbench.readers.registry import make_run

DEVICES = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 graph: 0
#   Rank  0 Pid      1 on     box device  0 [0x07] V100
#   Rank  1 Pid      1 on     box device  1 [0x0a] V100
"""  # noqa: E501
TITLE = "#                        out-of-place                  in-place\n"
HEADER = "# size count type redop time algbw busbw error time algbw busbw error\n"
ROW = " 1048576 262144 float sum 72.34 14.50 14.50 0e+00 71.99 14.57 14.57 3e-07\n"
FOOT = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 14.5\n"
RUN = "$ ./all_reduce_perf -g 2\n" + DEVICES
WHOLE = RUN + TITLE + HEADER + ROW + FOOT
BOTH = ["out_of_place", "in_place"]


def test_what_devices_and_versions_a_file_names_is_read() -> None:
    file = read_path(FOREIGN / "nccl-tests-several.txt")
    assert fields(file, "wrong")[-2:] == [0, None]
    assert (file.tool_version, file.ranks, file.hosts) == ("2.19.6", 8, ("node0", "node1"))
    assert file.environment == {"nccl": "2.29.7"}


def test_tags_colours_carriage_returns_and_log_lines_change_nothing() -> None:
    plain = read_path(FOREIGN / "nccl-tests-several.txt", operation="all_reduce")
    tagged = read_path(FOREIGN / "nccl-tests-tagged.txt")
    parts = ("case", "reported", "samples_s", "wrong")
    assert fields(tagged, *parts) == fields(plain, *parts)


@pytest.mark.parametrize(
    "tag",
    ["[1,0]<stdout>: ", "2026-11-21T08:59:00.123456789Z ", "[2026-11-21 08:59:00] ", "0: ",
     "Mon Nov 21 08:59:00 2026[1,0]<stdout>:", "[pod/worker-0/main] ", "node-01.cluster: ",
     "\x1b[32m"],
)  # fmt: skip
def test_the_tags_of_launchers_and_loggers_are_removed(tag: str) -> None:
    tagged = "".join(tag + line for line in WHOLE.splitlines(keepends=True))
    assert read(tagged, operation="all_reduce").rows == read(WHOLE).rows


def test_per_iteration_columns_and_timestamps_are_read() -> None:
    file = read_path(FOREIGN / "nccl-tests-per-iteration.txt")
    found = fields(file, "size_bytes", "time_s", "minimum_s", "maximum_s", "p99_s")
    assert found[2] == (1048576, 72.34e-6, 68.72e-6, 94.04e-6, 86.81e-6)
    assert file.timing == "isolated"


def test_the_operation_comes_from_the_command_line_or_is_asked_for() -> None:
    assert read(WHOLE).rows[0].case.operation == "all_reduce"
    hints = WHOLE.replace("$ ./all_reduce_perf -g 2\n", "")
    assert "does not say which operation" in refused(UsageError, hints)
    assert fields(read(hints, operation="all_reduce"), "case") == fields(read(WHOLE), "case")
    two = "$ ./all_gather_perf && ./all_reduce_perf\n" + hints
    assert "does not say which operation" in refused(UsageError, two)


def test_the_ranks_come_from_devices_or_are_asked_for() -> None:
    hints = "".join(line for line in WHOLE.splitlines(keepends=True) if "Rank" not in line)
    assert "the number of ranks" in refused(UsageError, hints)
    assert read(hints, ranks=2).ranks == 2
    assert "2 ranks, not on 4" in refused(UsageError, WHOLE, ranks=4)
    gap = WHOLE.replace("#   Rank  1", "#   Rank  7")
    assert "the number of ranks" in refused(UsageError, gap)


def test_of_split_communicators_the_reporting_group_counts() -> None:
    split = "# nThread 1 nGpus 1 iters: 20 \n" + "".join(
        f"#  Rank {r:2d} Group {r % 2:2d} Pid {r} on box device {r} [0000:0{r}:00] H200\n"
        for r in range(4)
    )
    assert read(WHOLE.replace(DEVICES, split)).ranks == 2


@pytest.mark.parametrize(
    ("graph", "command", "mode"),
    [(" graph: 0", "", "eager"), (" graph: 10", "", "graph"), ("", "", "eager"),
     ("", " -G 10", "graph"), ("", " --cudagraph=0", "eager")],
)  # fmt: skip
def test_calls_of_a_cuda_graph_are_rows_of_their_own(graph: str, command: str, mode: str) -> None:
    file = read(WHOLE.replace(" graph: 0", graph).replace("perf -g 2", f"perf -g 2{command}"))
    assert {*fields(file, "launch_mode")} == {mode}
    assert ("assumed not" in " ".join(file.notes)) == (not graph + command)
    assert ("by CUDA graphs" in " ".join(file.notes)) == (mode == "graph")


def test_a_run_of_both_launch_modes_has_both() -> None:
    both = make_run(read(WHOLE + WHOLE.replace("graph: 0", "graph: 10")))
    assert both.header.plan.launch_mode == "both"
    assert [(m.case.placement, m.case.launch_mode) for m in both.measurements] == [
        (placement, mode) for mode in ("eager", "graph") for placement in BOTH
    ]


def test_what_contradicts_the_file_is_refused() -> None:
    hints = WHOLE.replace("$ ./all_reduce_perf -g 2\n", "")
    assert "contains all_reduce, not broadcast" in refused(UsageError, WHOLE, operation="broadcast")
    assert "1048576 bytes" in refused(UsageError, hints, operation="reduce_scatter")
    eight = hints.replace("14.50 0", "25.37 0").replace("14.57 3", "25.49 3")
    assert "are not those of" in refused(UsageError, eight, operation="all_reduce")
    assert "contains float32, not float16" in refused(UsageError, WHOLE, dtype="float16")


def test_the_error_column_of_old_versions_is_no_count_unless_zero() -> None:
    counted = WHOLE.replace("error", "#wrong").replace("3e-07", "1.2e+08")
    assert fields(read(WHOLE), "wrong") == [0, None]
    assert fields(read(counted), "wrong") == [0, 120_000_000]


def test_cells_without_a_number_leave_their_placement_out() -> None:
    file = read(WHOLE.replace("71.99 14.57 14.57", "-nan inf N/A"))
    assert fields(file, "placement") == ["out_of_place"]
    assert file.notes == ("line 7 left out: its time is '-nan' (in_place)",)
    assert len(read(WHOLE.replace("72.34 14.50 14.50", "72.34 nan -nan")).rows) == 2


def test_a_single_placement_is_read_where_the_title_names_it() -> None:
    one = TITLE.replace("out-of-place", "            ")
    header = HEADER.replace(" time algbw busbw error", "", 1)
    row = " 1048576 262144 float sum 72.34 14.50 14.50 0\n"
    assert fields(read(RUN + one + header + row + FOOT), "placement") == ["in_place"]
    assert "which times are in place" in refused(RecordsError, RUN + header + row)
    swapped = RUN + "#  in-place  out-of-place\n" + HEADER + ROW + FOOT
    assert fields(read(swapped), "placement") == BOTH[::-1]


def test_a_line_that_the_file_ends_in_is_left_out() -> None:
    second = ROW.replace("1048576 262144", "2097152 524288")
    for cut in range(2, 40):
        file = read(RUN + TITLE + HEADER + ROW + second[:-cut])
        assert fields(file, "size_bytes") == [1048576, 1048576]
        assert any("cut off" in note for note in file.notes)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [(" 3e-07", "", "it has 11 cells, and the header 12 columns"),
     ("72.34", "7x.34", "'7x.34' is no number"),
     ("1048576 262144", "1048576 262145", "262145 float32 are not 1048576 bytes"),
     ("1048576 262144", "9" * 30 + " 262144", "is no whole number"),
     (TITLE, ROW + TITLE, "a row without a header before it"),
     ("algbw busbw", "algbw", "a column is missing")],
)  # fmt: skip
def test_a_damaged_line_is_refused_with_its_number(old: str, new: str, why: str) -> None:
    message = refused(RecordsError, WHOLE.replace(old, new))
    assert why in message
    assert "out, line " in message


def test_times_of_launching_are_no_times_of_operations() -> None:
    text = WHOLE.replace("time algbw", "cputime algbw")
    assert "has no result" in refused(RecordsError, text)


def test_types_and_reductions_that_commbench_lacks_are_left_out() -> None:
    more = ROW.replace("float", "uint64") + ROW.replace("sum", "mulsum")
    file = read(RUN + TITLE + HEADER + more + ROW + FOOT)
    assert len(file.rows) == 2
    assert file.notes == (
        "line 7 left out: commbench has no element type 'uint64'",
        "line 8 left out: commbench has no reduce op 'mulsum'",
    )


def test_the_milliseconds_of_the_first_versions_are_read() -> None:
    file = read(
        "./build/test/single/all_reduce_test 10000000\n"
        "#   Device  0 ->  0 [0x0a] GeForce GTX TITAN X\n"
        "#   Device  1 ->  1 [0x09] GeForce GTX TITAN X\n\n"
        "#                              out-of-place                    in-place\n"
        "#      bytes             N    type      op     time  algbw  busbw      res"
        "     time  algbw  busbw      res\n"
        "    10000000      10000000    char     sum    1.628   6.14   6.14    0e+00"
        "    1.932   5.18   5.18    0e+00\n"
    )
    found = fields(file, "time_s", "dtype", "wrong")
    assert found == [(1.628e-3, "int8", 0), (1.932e-3, "int8", 0)]
    assert (file.ranks, file.devices) == (2, ("GeForce GTX TITAN X",))


def test_a_table_without_its_own_beginning_does_not_borrow_the_one_before() -> None:
    text = WHOLE + TITLE + HEADER + ROW + FOOT
    assert "does not say the number of ranks" in refused(UsageError, text)


def test_runs_of_several_world_sizes_are_chosen_from() -> None:
    four = DEVICES + "".join(f"#   Rank  {r} Pid 1 on box device {r} [0x07] V100\n" for r in (2, 3))
    row = ROW.replace("14.50 14.50", "14.50 21.74").replace("14.57 14.57", "14.57 21.85")
    both = WHOLE + "$ ./all_reduce_perf -g 4\n" + four + TITLE + HEADER + row + FOOT
    both = both.replace("nGpus 2", "nGpus 1")
    assert "contains results of 2 and 4 ranks" in refused(UsageError, both)
    assert fields(read(both, ranks=4), "line") == [18, 18]
    assert any("measured on 2 ranks" in note for note in read(both, ranks=4).notes)


@pytest.mark.parametrize(
    ("option", "memory"),
    [("", "default"), (" -R 0", "default"), (" -R1", "registered"),
     (" --local_register=2", "symmetric"), (" -R 7", "default")],
)  # fmt: skip
def test_option_r_means_the_kind_of_memory(option: str, memory: str) -> None:
    run = make_run(read(WHOLE.replace("perf -g 2", f"perf -g 2{option}")))
    assert {m.case.memory for m in run.measurements} == {memory}
    assert run.header.plan.memory == (memory,)


CUT = "the table that ends {} was cut off, or is not complete"
LACKS = "the table at line 7 lacks rows that it announces: float sum, "
BANDWIDTH = "in 1 row the printed bandwidth does not follow from size and time (row 7)"
REDUCED = "#\n# Reducing maxBytes to 1048576 due to memory limitation\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [(WHOLE, ""), (WHOLE + "took 12 s\n", ""),
     (WHOLE.removesuffix(FOOT), CUT.format("at line 7")),
     (WHOLE.removesuffix(FOOT) + WHOLE, CUT.format("at line 7")),
     (WHOLE + RUN + TITLE + HEADER, CUT.format("without a row")),
     (WHOLE + DEVICES, CUT.format("without a row")),
     (WHOLE + "1048576 26214\n", "line 10 left out: it has numbers, but is not a row"),
     (WHOLE.replace("0 OK", "1 FAILED"), "nccl-tests says: Out of bounds values : 1 FAILED"),
     (WHOLE.replace("71.99", "nan"), "line 7 left out: its time is 'nan' (in_place)"),
     (WHOLE.replace("72.34", "92.34"), BANDWIDTH),
     (WHOLE.replace("14.50 14.50", "15.50 14.50"), BANDWIDTH),
     (WHOLE.replace("minBytes 1048576", "minBytes 524288"), LACKS + "size 524288"),
     (WHOLE.replace("maxBytes 1048576 step: 2(factor)", "maxBytes 3145728 step: 1048576(bytes)"),
      LACKS + "sizes 2097152, 3145728"),
     (WHOLE.replace("maxBytes 1048576", "maxBytes 4194304").replace(TITLE, REDUCED + TITLE), "")],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_a_fault_of_the_run(text: str, fault: str) -> None:
    file = read(text)
    assert file.faults == ((fault,) if fault else ())
    assert {*file.faults} <= {*file.notes}
    end = make_run(file).end
    assert end and (end.status, end.reason) == ("incomplete" if fault else "complete", fault)


@pytest.mark.parametrize("text", [DEVICES, RUN, RUN + TITLE + HEADER])
def test_output_that_ends_before_its_first_row_is_said_to_be_so(text: str) -> None:
    assert refused(RecordsError, text) == (
        "out is the output of nccl-tests, but it ends before its first row"
    )


LOGS = Path(__file__).parents[1] / "data" / "nccl-tests"


def test_a_row_that_was_removed_from_a_real_log_is_missed(tmp_path: Path) -> None:
    lines = (LOGS / "nccl_allgather.log").read_text().splitlines(keepends=True)
    path = tmp_path / "out.log"
    for size, lacks in (("1048576", ("float, size 1048576",)), ("0", ())):
        at = next(i for i, line in enumerate(lines) if line.split()[:1] == [size])
        path.write_text("".join(lines[:at] + lines[at + 1 :]))
        faults = read_path(path, operation="all_gather").faults
        wanted = tuple(f"the table at line 17 lacks rows that it announces: {w}" for w in lacks)
        assert faults == wanted, size


NEWEST = (FOREIGN / "nccl-tests-3.json").read_text()


def changed(**config: object) -> str:
    document = json.loads(NEWEST)
    document["config"].update(config)
    return json.dumps(document)


def test_the_newest_version_is_read_with_its_iterations() -> None:
    file = read_path(FOREIGN / "nccl-tests-3.json")
    assert len(file.rows) == 8
    assert fields(file, *CASE, "root", "wrong", "line")[2] == (
        "all_reduce", "float32", "sum", "out_of_place", 1048576, 262144, None, 0, 2,
    )  # fmt: skip
    times = ("time_s", "minimum_s", "maximum_s", "p95_s", "p99_s", "mean_s", "iterations")
    assert fields(file, *times)[2] == (
        72.34e-6, 65.106e-6, 78.1272e-6, 78.1272e-6, 78.1272e-6, 71.6166e-6, 10,
    )  # fmt: skip
    assert fields(file, "statistic")[2] == "mean over 10 calls, slowest rank"  # -a 3
    samples = file.rows[2].samples_s
    assert (samples[:2], len(samples)) == ((65.106e-6, 66.5528e-6), 10)


def test_the_configuration_gives_the_world_and_the_modes() -> None:
    assert read(NEWEST).ranks == read(changed(devices=[]), ranks=8).ranks == 8
    for config in ({"ngpus": 2}, {"devices": []}):
        assert "the number of ranks" in refused(UsageError, changed(**config))
    for value, timing in (("true", "isolated"), (1, "isolated"), ("false", "pipelined")):
        assert read(changed(blocking_collectives=value)).timing == timing
    assert {*fields(read(changed(graph=5)), "launch_mode")} == {"graph"}
    assert "8 ranks, not on 4" in refused(UsageError, NEWEST, ranks=4)
    wrong = refused(UsageError, changed(devices=[]), ranks=2)
    assert "are not those of all_reduce on 2 ranks" in wrong


def test_secrets_in_the_environment_are_not_taken() -> None:
    file = read(NEWEST)
    assert file.environment == {
        "nccl": "2.29.7",
        "variables": {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "NCCL_DEBUG": ""},
    }
    assert "hunter2" not in repr(file)


def test_the_first_version_is_read_with_its_bare_words_and_misspelling() -> None:
    file = read_path(FOREIGN / "nccl-tests-1.json")
    found = [(1, "out_of_place"), (2, "out_of_place"), (2, "in_place")]
    assert fields(file, "line", "placement")[:3] == found
    assert file.notes == ("result 1 left out: its time is 'inf' (in_place)",)
    assert {*fields(file, "wrong")} == {None}


def test_a_null_placement_is_left_out() -> None:
    document = json.loads(NEWEST)
    for result in document["results"]:
        result["out_of_place"] = None
    assert {*fields(read(json.dumps(document)), "placement")} == {"in_place"}


def test_a_program_that_is_not_told_is_asked_for() -> None:
    document = json.loads(NEWEST) | {"args": ["./bench"]}
    assert "does not say which operation" in refused(UsageError, json.dumps(document))
    assert len(read(json.dumps(document), operation="all_reduce").rows) == 8
    document["args"] = ["hypercube_perf"]
    assert "no operation for 'hypercube'" in refused(RecordsError, json.dumps(document))


def test_a_file_that_a_crash_cut_off_gives_its_whole_results() -> None:
    third = NEWEST.index('"size":67108864')
    for end in range(third - 1, NEWEST.index('"size":17179869184') - 3, 7):
        file = read(NEWEST[:end])
        assert len(file.rows) == 4
        assert "the file was cut off" in file.notes[0]
        assert file.notes[0] in file.faults


def test_a_damaged_file_is_refused_with_its_line() -> None:
    text = (FOREIGN / "nccl-tests-1.json").read_text().replace('"count": 262144', '"count" 262144')
    line = text[: text.index('"count" 262144')].count("\n") + 1
    with pytest.raises(RecordsError) as raised:
        read(text)
    assert f"line {line}, is damaged" in raised.value.message
    assert "1 row before it can be read" in raised.value.hint
    for old, new, why in (
        ('"count":2,', '"count":3,', "result 1, is damaged: 3 float32 are not 8 bytes"),
        ('"size":8,', '"siz":8,', "its size is None"),
        ('"version":3', '"version":4', "newer nccl-tests: its version is 4"),
    ):
        assert why in refused(RecordsError, NEWEST.replace(old, new))


@pytest.mark.parametrize(
    ("changes", "faults"),
    [({}, []), ({"errors": ["NCCL failure"]}, ["nccl-tests reported: NCCL failure"]),
     ({"out_of_bounds": {"count": 3, "okay": "false"}},
      ["nccl-tests says that values are out of bounds"])],
)  # fmt: skip
def test_what_nccl_tests_reports_is_a_fault(changes: dict[str, object], faults: list[str]) -> None:
    assert [*read(json.dumps(json.loads(NEWEST) | changes)).faults] == faults


def test_a_run_folder_of_a_file_with_samples_is_read_again(tmp_path: Path) -> None:
    made = cb.import_results(FOREIGN / "nccl-tests-3.json", output=tmp_path / "run")
    assert cb.load(tmp_path / "run").measurements == made.measurements
    assert cb.check(tmp_path / "run" / "results.csv", max_time="100s").exit_code == 0
