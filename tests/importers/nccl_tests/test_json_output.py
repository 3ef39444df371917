"""nccl-tests' JSON output: its versions and its flaws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from importing import read, refused

import commbench as cb
from commbench.errors import RecordsError, UsageError
from commbench.importers.registry import import_file

FOREIGN = Path(__file__).parents[2] / "data" / "foreign"
NEWEST = (FOREIGN / "nccl-tests-3.json").read_text()


def changed(**config: object) -> str:
    document = json.loads(NEWEST)
    document["config"].update(config)
    return json.dumps(document)


def test_the_newest_version_is_read_with_its_iterations() -> None:
    file = import_file(FOREIGN / "nccl-tests-3.json")
    assert len(file.rows) == 8
    row = file.rows[2]
    assert (row.operation, row.dtype, row.reduce_op, row.root) == (
        "all_reduce", "float32", "sum", None,
    )  # fmt: skip
    assert (row.size_bytes, row.count, row.placement) == (1048576, 262144, "out_of_place")
    assert (row.time_s, row.algbw, row.busbw) == (72.34e-6, 14.495106e9, 25.366436e9)
    assert (row.minimum_s, row.maximum_s, row.p50_s) == (65.106e-6, 78.1272e-6, 72.34e-6)
    assert (row.p95_s, row.p99_s, row.mean_s) == (78.1272e-6, 78.1272e-6, 71.6166e-6)
    assert row.samples_s[:2] == (65.106e-6, 66.5528e-6)
    assert len(row.samples_s) == row.iterations == 10
    assert (row.wrong, row.line) == (0, 2)
    assert row.statistic == "mean over 10 calls, slowest rank"  # -a 3


def test_the_world_is_processes_times_their_devices() -> None:
    assert read(NEWEST).ranks == 8
    assert "the number of ranks" in refused(UsageError, changed(ngpus=2))
    assert "the number of ranks" in refused(UsageError, changed(devices=[]))
    assert read(changed(devices=[]), ranks=8).ranks == 8
    assert "8 ranks, not on 4" in refused(UsageError, NEWEST, ranks=4)
    wrong = refused(UsageError, changed(devices=[]), ranks=2)
    assert "are not those of all_reduce on 2 ranks" in wrong


def test_only_one_group_of_a_split_reports() -> None:
    devices = [
        {"rank": rank, "group": rank % 2, "hostname": "node0", "device_info": "H200"}
        for rank in range(16)
    ]
    assert read(changed(ngpus=1, devices=devices)).ranks == 8


def test_secrets_in_the_environment_are_not_taken() -> None:
    file = read(NEWEST)
    assert file.environment == {
        "nccl": "2.29.7",
        "variables": {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0,1,2,3", "NCCL_DEBUG": ""},
    }
    assert "hunter2" not in repr(file)


def test_the_first_version_is_read_with_its_bare_words_and_misspelling() -> None:
    file = import_file(FOREIGN / "nccl-tests-1.json")
    assert [(row.placement, row.algbw, row.busbw) for row in file.rows[:3]] == [
        ("out_of_place", None, 392000.0),
        ("out_of_place", 14.495106e9, 25.366436e9),
        ("in_place", 14.565579e9, None),
    ]
    assert file.notes == ("left out 1 (result 1): its time is 'inf' (in_place)",)
    assert {row.wrong for row in file.rows} == {None}
    assert {row.statistic for row in file.rows} == {"mean over 10 calls, mean over ranks"}


@pytest.mark.parametrize("value", ["true", True, 1, 3])
def test_a_boolean_may_be_text(value: object) -> None:
    assert read(changed(blocking_collectives=value)).timing == "isolated"
    assert read(changed(blocking_collectives="false")).timing == "pipelined"


def test_a_null_placement_is_left_out() -> None:
    document = json.loads(NEWEST)
    for result in document["results"]:
        result["out_of_place"] = None
    assert {row.placement for row in read(json.dumps(document)).rows} == {"in_place"}


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


def test_a_number_of_graph_launches_means_the_launch_mode_graph() -> None:
    document = json.loads(NEWEST)
    assert {row.launch_mode for row in read(json.dumps(document)).rows} == {"eager"}
    document["config"]["graph"] = 5
    assert {row.launch_mode for row in read(json.dumps(document)).rows} == {"graph"}


def test_times_of_launching_are_left_out() -> None:
    text = NEWEST.replace('"time"', '"cpu_time"')
    assert "has no result" in refused(RecordsError, text)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, ()),
        ({"errors": ["NCCL failure"]}, ("nccl-tests reported: NCCL failure",)),
        (
            {"out_of_bounds": {"count": 3, "okay": "false"}},
            ("nccl-tests says that values are out of bounds",),
        ),
    ],
)
def test_what_nccl_tests_reports_is_a_fault(
    changes: dict[str, object], fault: tuple[str, ...]
) -> None:
    assert read(json.dumps(json.loads(NEWEST) | changes)).faults == fault


def test_a_run_folder_of_a_file_with_samples_is_read_again(tmp_path: Path) -> None:
    made = cb.import_results(FOREIGN / "nccl-tests-3.json", output=tmp_path / "run")
    assert cb.load(tmp_path / "run").measurements == made.measurements
    assert cb.check(tmp_path / "run" / "results.csv", max_time="100s").exit_code == 0
