"""results.csv, whole files compared."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from synthetic_rows import batches

from commbench.analysis.columns import COLUMNS
from commbench.analysis.csv_file import ResultsCsv
from commbench.analysis.rows import ResultRow, make_row
from commbench.errors import RecordsError
from commbench.results.schema import Measurement, RunHeader
from commbench.spec.plan import Plan

HEAD = (
    "label,operation,backend,device,world_size,num_nodes,dtype,reduce_op,root,placement,timing,"
    "cpu_mode,size_bytes,count,iterations,stop_reason,time_us,time_ci_low_us,time_ci_high_us,"
    "time_min_us,time_mean_us,time_p95_us,time_p99_us,time_max_us,algbw_GBps,busbw_GBps,"
    "busbw_ci_low_GBps,busbw_ci_high_GBps,entry_skew_us,slowest_rank,wrong,status,gpu_shared,"
    "calls,batches,launches,launch_min_us,launch_max_us,operation_us,stalled_share,queued_share,"
    "switches_per_iteration,warnings,time_p5_us,time_p5_ci_low_us,time_p5_ci_high_us,launch_mode,"
    "buffers,p2p_call,pairs,window,tensors,form,memory,group,concurrency,group_ranks,imbalance,"
    "overlap,part,"
    "messages_per_s,aggregate_GBps,num_tensors,form_ratio,nccl_algorithm,nccl_protocol,"
    "nccl_channels,group_size,groups,worst_group,interference,"
    "sent_max_over_mean,received_max_over_mean,worst_rank,logical_GBps,wire_GBps"
    ",hidden_share,hidden_share_ci_low,hidden_share_ci_high,computation_slowdown"
    ",computation_slowdown_ci_low,computation_slowdown_ci_high,communication_slowdown"
    ",communication_slowdown_ci_low,communication_slowdown_ci_high,overlap_gain"
    ",overlap_gain_ci_low,overlap_gain_ci_high,computation_at_once_us"
    ",computation_at_once_ci_low_us,computation_at_once_ci_high_us,communication_at_once_us"
    ",communication_at_once_ci_low_us,communication_at_once_ci_high_us,imb_overlap"
    ",osu_overlap,work,group_bytes,interference_ci_low,interference_ci_high,step,variant\n"
)
FIRST = (
    "ring,all_reduce,gloo,cpu,2,1,float32,sum,,in_place,isolated,quiet,1000,250,6,fixed,"
    "3.5,1,6,1,3.5,,,6,0.2857143,0.2857143,0.1666667,1,0.125,1,0,ok,0,"
    "1,2,1,3.5,3.5,3.25,0,0.25,0.3333333,imprecise,,,,eager,hot,,,,1,direct,default,,,,,,,,,1,,,,,2,1,,,,,,,"
    ",,,,,,,,,,,,,,,,,,,,,,,,,,\n"
)
SECOND = (
    "ring,all_reduce,gloo,cpu,2,1,float32,sum,,in_place,isolated,quiet,2,0,0,,"
    ",,,,,,,,,,,,,,,skipped,0,,0,0,,,,,,,,,,,eager,hot,,,,1,direct,default,,,,,,,,,1,,,,,2,1,,,,,,,"
    ",,,,,,,,,,,,,,,,,,,,,,,,,,\n"
)


def rows(label: str = "ring") -> tuple[ResultRow, ResultRow]:
    plan = Plan(
        operations=("all_reduce",), sizes=(1000, 2), backend="gloo", device="cpu", world_size=2
    )
    header = RunHeader(plan=plan, label=label, started="", launcher="local")
    measured, skipped = plan.cases()
    return (
        make_row(
            header,
            Measurement(
                case=measured,
                status="ok",
                stop_reason="fixed",
                wrong=0,
                batches=batches(
                    (4e-6, 3e-6, 1e-6),
                    (6e-6, 2e-6, 5e-6),
                    rank_medians_s=(1e-6, 3e-6),
                    entry_skew_s=0.125e-6,
                    operation_s=3.25e-6,
                    elapsed_s=1e-3,
                    queued_s=2.5e-4,
                    switches=1,
                ),
            ),
        ),
        make_row(header, Measurement(case=skipped, status=skipped.status, reason=skipped.reason)),
    )


def numbers_shortened(text: str) -> str:
    return text.replace(".0,", ",")


def test_the_file_is_complete_after_every_row(tmp_path: Path) -> None:
    file, (first, second) = ResultsCsv(tmp_path), rows()
    path = tmp_path / "results.csv"
    file.write()
    assert path.read_text() == HEAD
    file.add(first)
    assert numbers_shortened(path.read_text()) == HEAD + FIRST
    file.add(second)
    assert numbers_shortened(path.read_text()) == HEAD + FIRST + SECOND
    assert [found.name for found in tmp_path.iterdir()] == ["results.csv"]


def test_a_row_takes_the_place_of_that_of_the_same_case_and_rows_stand_as_planned(
    tmp_path: Path,
) -> None:
    file, (first, second) = ResultsCsv(tmp_path), rows()
    path = tmp_path / "results.csv"
    file.add(second)
    file.add(second, first)
    assert numbers_shortened(path.read_text()) == HEAD + FIRST + SECOND
    file.add(rows("tree")[0])
    assert numbers_shortened(path.read_text()) == HEAD + FIRST.replace("ring", "tree") + SECOND


def test_whoever_reads_meanwhile_finds_a_whole_file(tmp_path: Path) -> None:
    file = ResultsCsv(tmp_path)
    file.write()
    with (tmp_path / "results.csv").open() as reader:
        assert reader.read(5) == "label"
        file.add(rows()[0])
        assert "label" + reader.read() == HEAD


def test_the_rows_read_back_under_the_documented_columns(tmp_path: Path) -> None:
    file = ResultsCsv(tmp_path)
    for row in rows('a, "quoted"\nlabel'):
        file.add(row)
    with (tmp_path / "results.csv").open(newline="") as text:
        found = list(csv.DictReader(text))
    assert [tuple(row) for row in found] == [tuple(COLUMNS)] * 2
    assert {row["label"] for row in found} == {'a, "quoted"\nlabel'}
    assert float(found[0]["time_us"]) == 3.5
    assert found[1]["time_us"] == ""


def test_a_file_that_cannot_be_written_is_refused_with_where_the_results_are(
    tmp_path: Path,
) -> None:
    path = tmp_path / "absent" / "results.csv"
    with pytest.raises(RecordsError) as refused:
        ResultsCsv(path.parent).write()
    assert refused.value.message == f"cannot write {path}: No such file or directory"
    assert refused.value.hint == "the folder was removed or moved during the run"
    (tmp_path / "results.csv.new").mkdir()
    with pytest.raises(RecordsError) as refused:
        ResultsCsv(tmp_path).write()
    assert refused.value.message.endswith("results.csv: Is a directory")
    assert refused.value.hint == "every finished case is in run.jsonl of the same folder"
