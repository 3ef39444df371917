"""nccl-tests' text and JSON output: versions, options, surroundings and flaws."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from importing import FOREIGN, read, read_path, refused

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


def test_several_tables_of_several_operations_are_read() -> None:
    file = read_path(FOREIGN / "nccl-tests-several.txt")
    got = [
        (
            r.case.operation,
            r.case.dtype,
            r.case.reduce_op,
            r.case.root,
            r.case.placement,
            r.case.count,
        )
        for r in file.rows
    ]
    assert got[:2] == [
        ("all_reduce", "float32", "sum", None, "out_of_place", 2),
        ("all_reduce", "float32", "sum", None, "in_place", 2),
    ]
    assert [one for one in got[8:] if one[4] == "in_place"] == [
        ("all_gather", "float32", "", None, "in_place", 32768),
        ("all_gather", "float32", "", None, "in_place", 33554432),
        ("reduce", "bfloat16", "max", 3, "in_place", 524288),
        ("reduce", "bfloat16", "max", 3, "in_place", 4194304),
        ("send_recv", "float32", "", None, "in_place", 262144),
    ]
    assert [row.wrong for row in file.rows[-2:]] == [0, None]
    assert (file.tool, file.tool_version, file.ranks) == ("nccl-tests", "2.19.6", 8)
    assert (file.hosts, file.environment) == (("node0", "node1"), {"nccl": "2.29.7"})
    assert file.notes == (
        "1 line left out (46): nothing was moved (size 0)",
        "1 line left out (121): commbench has no operation for 'hypercube'",
    )


def test_tags_colours_carriage_returns_and_log_lines_change_nothing() -> None:
    plain = read_path(FOREIGN / "nccl-tests-several.txt", operation="all_reduce")
    tagged = read_path(FOREIGN / "nccl-tests-tagged.txt")
    assert [row._replace(line=0) for row in tagged.rows] == [
        row._replace(line=0) for row in plain.rows
    ]


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
    row = file.rows[2]
    assert (row.case.size_bytes, row.reported.time_s) == (1048576, 72.34e-6)
    assert (row.reported.minimum_s, row.reported.maximum_s, row.reported.p99_s) == (
        68.72e-6, 94.04e-6, 86.81e-6,
    )  # fmt: skip
    assert any("measured on the device" in note for note in file.notes)
    assert file.timing == "isolated"
    assert any("excludes barrier" in note for note in file.notes)


def test_the_operation_comes_from_the_command_line_or_is_asked_for() -> None:
    assert read(WHOLE).rows[0].case.operation == "all_reduce"
    hints = WHOLE.replace("$ ./all_reduce_perf -g 2\n", "")
    assert "does not say which operation" in refused(UsageError, hints)
    assert read(hints, operation="all_reduce").rows == tuple(
        row._replace(line=row.line - 1) for row in read(WHOLE).rows
    )
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
    ranks = "".join(
        f"#  Rank {r:2d} Group {r % 2:2d} Pid {r} on box device {r} [0000:0{r}:00] H200\n"
        for r in range(4)
    )
    split = "# nThread 1 nGpus 1 iters: 20 \n" + ranks
    text = WHOLE.replace(DEVICES, split)
    assert read(text).ranks == 2


def test_calls_of_a_cuda_graph_are_rows_of_their_own() -> None:
    old = DEVICES.replace(" graph: 0", "")
    for text, mode in (
        (WHOLE, "eager"),
        (WHOLE.replace("graph: 0", "graph: 10"), "graph"),
        (WHOLE.replace(DEVICES, old), "eager"),
        (WHOLE.replace(DEVICES, old).replace("perf -g 2", "perf -g 2 -G 10"), "graph"),
        (WHOLE.replace(DEVICES, old).replace("perf -g 2", "perf -g 2 --cudagraph=0"), "eager"),
    ):
        file = read(text)
        assert {row.case.launch_mode for row in file.rows} == {mode}, text
        is_said = " graph: " in text or " -G" in text or "--cudagraph" in text
        assert is_said != ("assumed not" in " ".join(file.notes))
        assert ("by CUDA graphs" in " ".join(file.notes)) == (mode == "graph")
    both = make_run(read(WHOLE + WHOLE.replace("graph: 0", "graph: 10")))
    assert both.header.plan.launch_mode == "both"
    assert [(m.case.placement, m.case.launch_mode) for m in both.measurements] == [
        ("out_of_place", "eager"), ("in_place", "eager"),
        ("out_of_place", "graph"), ("in_place", "graph"),
    ]  # fmt: skip


def test_what_contradicts_the_file_is_refused() -> None:
    hints = WHOLE.replace("$ ./all_reduce_perf -g 2\n", "")
    assert "contains all_reduce, not broadcast" in refused(UsageError, WHOLE, operation="broadcast")
    assert "1048576 bytes" in refused(UsageError, hints, operation="reduce_scatter")
    eight = hints.replace("14.50 0", "25.37 0").replace("14.57 3", "25.49 3")
    assert "are not those of" in refused(UsageError, eight, operation="all_reduce")
    assert "contains float32, not float16" in refused(UsageError, WHOLE, dtype="float16")


def test_the_error_column_of_old_versions_is_no_count_unless_zero() -> None:
    assert [row.wrong for row in read(WHOLE).rows] == [0, None]
    counted = WHOLE.replace("error", "#wrong").replace("3e-07", "1.2e+08")
    assert [row.wrong for row in read(counted).rows] == [0, 120_000_000]


def test_cells_without_a_number_leave_their_placement_out() -> None:
    file = read(WHOLE.replace("71.99 14.57 14.57", "-nan inf N/A"))
    assert [row.case.placement for row in file.rows] == ["out_of_place"]
    assert file.notes == ("1 line left out (7): its time is '-nan' (in_place)",)
    assert len(read(WHOLE.replace("72.34 14.50 14.50", "72.34 nan -nan")).rows) == 2


def test_a_single_placement_is_read_where_the_title_names_it() -> None:
    one = TITLE.replace("out-of-place", "            ")
    header = HEADER.replace(" time algbw busbw error", "", 1)
    row = " 1048576 262144 float sum 72.34 14.50 14.50 0\n"
    assert [r.case.placement for r in read(RUN + one + header + row + FOOT).rows] == ["in_place"]
    assert "which times are in place" in refused(RecordsError, RUN + header + row)
    swapped = "#  in-place  out-of-place\n"
    assert [r.case.placement for r in read(RUN + swapped + HEADER + ROW + FOOT).rows] == [
        "in_place",
        "out_of_place",
    ]


def test_a_line_that_the_file_ends_in_is_left_out() -> None:
    second = ROW.replace("1048576 262144", "2097152 524288")
    for cut in range(2, 40):
        file = read(RUN + TITLE + HEADER + ROW + second[:-cut])
        assert [row.case.size_bytes for row in file.rows] == [1048576, 1048576]
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
        "1 line left out (7): commbench has no element type 'uint64'",
        "1 line left out (8): commbench has no reduce op 'mulsum'",
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
    assert [(r.reported.time_s, r.case.dtype, r.wrong) for r in file.rows] == [
        (1.628e-3, "int8", 0),
        (1.932e-3, "int8", 0),
    ]
    assert (file.ranks, file.devices) == (2, ("GeForce GTX TITAN X",))


def test_a_table_without_its_own_beginning_does_not_borrow_the_one_before() -> None:
    assert "does not say the number of ranks" in refused(
        UsageError, WHOLE + TITLE + HEADER + ROW + FOOT
    )


def test_runs_of_several_world_sizes_are_chosen_from() -> None:
    four = DEVICES + "".join(f"#   Rank  {r} Pid 1 on box device {r} [0x07] V100\n" for r in (2, 3))
    row = ROW.replace("14.50 14.50", "14.50 21.74").replace("14.57 14.57", "14.57 21.85")
    both = WHOLE + "$ ./all_reduce_perf -g 4\n" + four + TITLE + HEADER + row + FOOT
    both = both.replace("nGpus 2", "nGpus 1")
    assert "contains results of 2 and 4 ranks" in refused(UsageError, both)
    assert {row.line for row in read(both, ranks=4).rows} == {18}
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


CUT = "the table that ends at line 7 was cut off, or is not complete"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (WHOLE, ""),
        (WHOLE.removesuffix(FOOT), CUT),
        (WHOLE.removesuffix(FOOT) + WHOLE, CUT),
        (WHOLE + RUN + TITLE + HEADER,
         "the table that ends without a row was cut off, or is not complete"),
        (WHOLE + DEVICES, "the table that ends without a row was cut off, or is not complete"),
        (WHOLE + "1048576 26214\n", "1 line left out (10): it has numbers, but is not a row"),
        (WHOLE + "took 12 s\n", ""),
        (WHOLE.replace("0 OK", "1 FAILED"), "nccl-tests says: Out of bounds values : 1 FAILED"),
        (WHOLE.replace("71.99", "nan"), "1 line left out (7): its time is 'nan' (in_place)"),
        (WHOLE.replace("72.34", "92.34"),
         "in 1 row the printed bandwidth does not follow from size and time (row 7)"),
        (WHOLE.replace("14.50 14.50", "15.50 14.50"),
         "in 1 row the printed bandwidth does not follow from size and time (row 7)"),
        (WHOLE.replace("minBytes 1048576", "minBytes 524288"),
         "the table at line 7 lacks rows that it announces: float sum, size 524288"),
        (
            WHOLE.replace(
                "maxBytes 1048576 step: 2(factor)", "maxBytes 3145728 step: 1048576(bytes)"
            ),
            "the table at line 7 lacks rows that it announces: float sum, sizes 2097152, 3145728",
        ),
        (
            WHOLE.replace("maxBytes 1048576", "maxBytes 4194304").replace(
                TITLE, "#\n# Reducing maxBytes to 1048576 due to memory limitation\n" + TITLE
            ),
            "",
        ),
    ],
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
OPERATIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}
LOG_ROW = re.compile(
    r"^ +(\d+) +(\d+) +float +(?:sum )?"
    r" *([\d.]+) +([\d.]+) +([\d.]+) +N/A +([\d.]+) +([\d.]+) +([\d.]+) +N/A$",
    re.MULTILINE,
)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_row_of_a_real_log_is_imported(name: str) -> None:
    path = LOGS / f"nccl_{name}.log"
    printed = [match.groups() for match in LOG_ROW.finditer(path.read_text())]
    moved = [row for row in printed if row[0] != "0"]
    assert len(printed) == sum(" float " in line for line in path.read_text().splitlines())
    file = read_path(path, operation=OPERATIONS[name])
    got = [
        (row.case.size_bytes, row.case.count, row.case.placement, row.reported.time_s)
        for row in file.rows
    ]
    assert got == [
        (int(size), int(count), placement, float(f"{time}e-6"))
        for size, count, *cells in moved
        for placement, time in (("out_of_place", cells[0]), ("in_place", cells[3]))
    ]
    assert (file.ranks, file.backend, file.timing) == (8, "nccl", "pipelined")
    assert (file.hosts, file.devices) == (("localhost",), ("A100-SXM4-40GB",))
    assert {row.reported.statistic for row in file.rows} == {"mean over 20 calls, mean over ranks"}
    graphs, left_out = file.notes
    assert graphs == "it does not say whether CUDA graphs were used (option -G): assumed not"
    assert left_out.startswith(f"{len(printed) - len(moved)} lines left out (")
    assert left_out.endswith("nothing was moved (size 0)")


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
    row = file.rows[2]
    assert (row.case.operation, row.case.dtype, row.case.reduce_op, row.case.root) == (
        "all_reduce", "float32", "sum", None,
    )  # fmt: skip
    assert (row.case.size_bytes, row.case.count, row.case.placement) == (
        1048576,
        262144,
        "out_of_place",
    )
    assert row.reported.time_s == 72.34e-6
    assert (row.reported.minimum_s, row.reported.maximum_s) == (65.106e-6, 78.1272e-6)
    assert (row.reported.p95_s, row.reported.p99_s, row.reported.mean_s) == (
        78.1272e-6, 78.1272e-6, 71.6166e-6,
    )  # fmt: skip
    assert row.samples_s[:2] == (65.106e-6, 66.5528e-6)
    assert len(row.samples_s) == row.reported.iterations == 10
    assert (row.wrong, row.line) == (0, 2)
    assert row.reported.statistic == "mean over 10 calls, slowest rank"  # -a 3


def test_the_configuration_gives_the_world_and_the_modes() -> None:
    assert read(NEWEST).ranks == 8
    assert "the number of ranks" in refused(UsageError, changed(ngpus=2))
    assert "the number of ranks" in refused(UsageError, changed(devices=[]))
    assert read(changed(devices=[]), ranks=8).ranks == 8
    assert read(changed(blocking_collectives="true")).timing == "isolated"
    assert read(changed(blocking_collectives=1)).timing == "isolated"
    assert read(changed(blocking_collectives="false")).timing == "pipelined"
    assert {row.case.launch_mode for row in read(changed(graph=5)).rows} == {"graph"}
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
    assert [(row.line, row.case.placement) for row in file.rows[:3]] == [
        (1, "out_of_place"), (2, "out_of_place"), (2, "in_place"),
    ]  # fmt: skip
    assert file.notes == ("1 result left out (1): its time is 'inf' (in_place)",)
    assert {row.wrong for row in file.rows} == {None}
    assert {row.reported.statistic for row in file.rows} == {"mean over 10 calls, mean over ranks"}


def test_a_null_placement_is_left_out() -> None:
    document = json.loads(NEWEST)
    for result in document["results"]:
        result["out_of_place"] = None
    assert {row.case.placement for row in read(json.dumps(document)).rows} == {"in_place"}


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
    assert "result 1, is damaged: 3 float32 are not 8 bytes" in refused(
        RecordsError, NEWEST.replace('"count":2,', '"count":3,')
    )
    assert "its size is None" in refused(RecordsError, NEWEST.replace('"size":8,', '"siz":8,'))


def test_a_newer_version_is_refused() -> None:
    newer = NEWEST.replace('"version":3', '"version":4')
    assert "newer nccl-tests: its version is 4" in refused(RecordsError, newer)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ()),
        ({"errors": ["NCCL failure"]}, ("nccl-tests reported: NCCL failure",)),
        ({"out_of_bounds": {"count": 3, "okay": "false"}},
         ("nccl-tests says that values are out of bounds",)),
    ],
)  # fmt: skip
def test_what_nccl_tests_reports_is_a_fault(
    changes: dict[str, object], fault: tuple[str, ...]
) -> None:
    assert read(json.dumps(json.loads(NEWEST) | changes)).faults == fault


def test_a_run_folder_of_a_file_with_samples_is_read_again(tmp_path: Path) -> None:
    made = cb.import_results(FOREIGN / "nccl-tests-3.json", output=tmp_path / "run")
    assert cb.load(tmp_path / "run").measurements == made.measurements
    assert cb.check(tmp_path / "run" / "results.csv", max_time="100s").exit_code == 0
