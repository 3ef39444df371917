"""Published curves: rows of runs against those of sound machines."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import commbench as cb
from commbench.analysis.load import as_loaded_run
from commbench.answers.expect.curve_document import answer, curve_notes
from commbench.answers.expect.curves import (
    Curve,
    RowOnCurve,
    compare_row,
    compare_run,
    load_curves,
    system_of,
)
from commbench.answers.expect.document import VIEW
from commbench.answers.show.plots import run_pictures
from commbench.errors import CommbenchError, RecordsError, UsageError
from commbench.plan.links import find_gpu
from commbench.plan.operation import Extent
from commbench.plan.operations import OPERATIONS
from commbench.readers.registry import import_run
from commbench.readers.source import ImportHints
from commbench.views.pictures import TIMES, Curves

COLUMNS = "system,nccl_version,operation,dtype,world_size,size_bytes,time_us"
MIB = 1 << 20


def curves_of(system: str, ranks: int, nccl: str = "2.29.2") -> list[Curve]:
    return [c for c in load_curves() if (c.system, c.nccl, c.ranks) == (system, nccl, ranks)]


H100, H200 = curves_of("h100_sxm", 8), curves_of("h200_sxm", 8)


def write(path: Path, curves: Sequence[Curve], factor: Any = lambda _: 1.0) -> Path:
    """The curves as a file, each time multiplied by the factor of its size."""
    lines = [COLUMNS]
    for curve in curves:
        lines += [
            f"{curve.system},{curve.nccl},{curve.operation},{curve.dtype},{curve.ranks},{size},"
            f"{1e6 * time * factor(size):.6g}" for size, time in curve.points
        ]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def h100(tmp_path: Path) -> Path:
    return write(tmp_path / "c.csv", H100)


def replace(path: Path, old: str, new: str) -> Path:
    path.write_text(path.read_text().replace(old, new))
    return path


def rows_of(path: Path, curves: Any = None, **hints: Any) -> tuple[RowOnCurve, ...]:
    run = as_loaded_run(import_run(path, ImportHints(**hints)))
    return compare_run(run, load_curves() if curves is None else curves).rows


def share(rows: list[RowOnCurve], verdict: str) -> float:
    return sum(row.verdict == verdict for row in rows) / len(rows)


@pytest.mark.parametrize("version", ["2.23", "2.27.3", "2.29.2"])
def test_each_version_of_nccl_is_normal_by_the_others(tmp_path: Path, version: str) -> None:
    others = [c for c in load_curves() if (c.system, c.nccl) != ("h100_sxm", version)]
    found = [
        row
        for ranks in (2, 4, 8)
        for row in rows_of(write(tmp_path / "c.csv", curves_of("h100_sxm", ranks, version)), others)
        if row.ratio
    ]
    large = [row for row in found if row.case.size_bytes >= MIB]
    small = [row for row in found if row.case.size_bytes < MIB]
    assert share(large, "same") >= 0.95 and share(small, "same") >= 0.9


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_an_a100_is_slow_by_the_curves_of_an_h100(tmp_path: Path, ranks: int) -> None:
    path = write(tmp_path / "c.csv", curves_of("a100_sxm", ranks, "2.27.3"))
    run = as_loaded_run(import_run(path, ImportHints()))
    large = [row for row in run.rows if row.size_bytes >= 16 * MIB]
    found = [compare_row(row, "h100", load_curves()) for row in large]
    assert share(found, "slower") == 1


def test_a_run_that_is_slow_from_a_size_on_is_slow_exactly_there(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", H200, lambda size: 2 if size >= 16 * MIB else 1)
    gate = cb.check(path, expect="published")
    assert gate.outcome == "fail"
    (result,) = gate.results
    failed = {check.case.size_bytes for check in result.with_outcome("fail")}
    passed = {check.case.size_bytes for check in result.with_outcome("pass")}
    assert failed == {16 * MIB << n for n in range(6)}
    assert passed == {512 << n for n in range(15)}
    found = compare_run(as_loaded_run(import_run(path)), load_curves())
    ranges = [each for each in found.ranges if each.call.startswith("all_gather")]
    assert [(each.low_bytes, each.high_bytes, each.verdict) for each in ranges] == [
        (512, MIB >> 1, "same"), (MIB, 8 * MIB, "same"), (16 * MIB, 512 * MIB, "slower")
    ]  # fmt: skip
    ratio = ranges[2].ratio
    assert ratio and ratio.value == pytest.approx(2)


def test_a_size_between_two_is_interpolated_and_none_beyond_the_ends() -> None:
    points = ((1024, 1e-5), (4096, 4e-5))
    curve = Curve("h100", "2", "all_reduce", "float16", 8, "", "pipelined", False, points)
    assert curve.time_at(2048) == pytest.approx(2e-5)
    assert [curve.time_at(size) for size in (1024, 4096)] == [1e-5, 4e-5]
    assert curve.time_at(512) is None and curve.time_at(8192) is None


def test_what_no_curve_is_like_cannot_be_judged(h100: Path) -> None:
    run = as_loaded_run(import_run(h100, ImportHints()))
    (first, *_) = run.rows

    def reason(system: str = "h100", **fields: Any) -> str:
        found = compare_row(first._replace(**fields), system, load_curves())
        assert found.verdict == ("not measured" if found.reason else "same")
        return found.reason

    assert reason() == ""
    assert reason(world_size=6) == "it has 6 ranks, and curves are of 2, 4, 8 ranks"
    assert reason(world_size=1) == "it has 1 rank, and curves are of 2, 4, 8 ranks"
    assert reason(timing="isolated") == "curves are of --timing pipelined"
    assert reason(dtype="float32") == "curves are of elements of 2 bytes"
    assert reason(dtype="bfloat16") == ""
    assert reason(size_bytes=1 << 30) == "curves are of 512 B to 512 MiB"
    assert reason(operation="broadcast").startswith("curves are of all_gather, all_reduce")
    assert reason(num_nodes=2) == "there are no curves of several hosts"
    assert reason(group="tp") == reason(form="async") == "there are no curves of such calls"
    assert reason("l40s") == "curves are of other accelerators"
    assert (
        reason("") == "it names no GPU that commbench knows: add the GPU to commbench/data/gpus.csv"
    )


@pytest.mark.parametrize(
    ("factor", "smallest", "too_fast", "outcome"),
    [(0.5, 0.5, 84, "no verdict"), (0.001, 0.001, 84, "no verdict"), (1, 0.45, 4, "pass")],
)
def test_times_that_are_too_short_are_no_pass_unless_they_are_few(
    tmp_path: Path, factor: float, smallest: float, too_fast: int, outcome: str
) -> None:
    path = write(tmp_path / "c.csv", H200, lambda size: smallest if size == 512 else factor)
    assert sum(row.is_too_fast for row in rows_of(path)) == too_fast
    assert cb.check(path, expect="published").outcome == outcome
    is_named = answer(cb.expect_run(path)).startswith("c is faster than sound 8 x H200: 84 of 84")
    assert is_named == (outcome == "no verdict")


def test_a_tight_tolerance_makes_no_row_too_fast(h100: Path) -> None:
    found = cb.expect_run(h100, tolerance="1%")
    assert not found.too_fast and {"slower", "faster"} < {row.verdict for row in found.rows}
    (rule,) = cb.check(h100, expect="published", tolerance=0.01).results
    assert {check.outcome for check in rule.checks} == {"pass", "fail"}


def text_of(found: Any) -> str:
    return " ".join(VIEW.write(found).split())


def test_other_numbers_of_gpus_are_shown_and_not_compared(tmp_path: Path) -> None:
    found = cb.expect_run(write(tmp_path / "c.csv", [H100[0]._replace(ranks=6)]))
    assert {row.verdict for row in found.rows} == {"not measured"}
    assert {(*row.nearest,) for row in found.rows} == {(4, 8)}
    text = text_of(found)
    assert "Cannot judge c: it has 6 ranks, and curves are of 2, 4, 8 ranks." in text
    assert re.search(r"all_gather 512 MiB 1\.40 ms 1\.2\d ms 1\.40 ms", text)
    assert "commbench run" not in text


def test_calls_unlike_those_of_curves_get_the_command_that_can_be_compared(tmp_path: Path) -> None:
    path = replace(write(tmp_path / "c.csv", H100[:2]), "float16", "float32")
    command = ("commbench run --op all_gather,all_reduce --sizes 512B-512M --timing pipelined "
               "--dtype float16")  # fmt: skip
    assert command in text_of(cb.expect_run(path))
    (rule,) = cb.check(path, expect="published").results
    assert rule.outcome == "no verdict" and any(command in each for each in rule.remarks)


def test_own_curves_count_instead_of_published_ones(tmp_path: Path, h100: Path) -> None:
    own = replace(write(tmp_path / "own.csv", H100, lambda _: 2), ",2.29.2,", ",,")
    saved = tmp_path / "saved.csv"
    found = cb.expect_run(h100, published=[own], save_curve=saved)
    assert all(row.ratio and row.ratio.value == pytest.approx(0.5) for row in found.rows)
    assert {row.verdict for row in found.rows} == {"faster"}
    assert f"4 curves of h100_sxm: {own}" in [*curve_notes(found)]  # without a version
    again = cb.expect_run(h100, published=[saved])
    assert all(row.ratio and row.ratio.value == pytest.approx(1) for row in again.rows)
    with pytest.raises(UsageError, match="--published belongs to --expect published"):
        cb.check(h100, min_busbw="1GB/s", published=[h100])


def test_a_file_of_several_systems_is_chosen_from(tmp_path: Path) -> None:
    both = [*H100, *curves_of("h200_sxm", 4)]
    path = write(tmp_path / "c.csv", both)
    run = cb.import_results(path, system="h200_sxm", output=tmp_path / "run")
    assert run.header.plan.world_size == 4 and run.header.devices == ("h200_sxm",)
    with pytest.raises(UsageError, match="has 2 values of system"):
        import_run(path)
    with pytest.raises(UsageError, match="has no --system 'h300'"):
        import_run(path, ImportHints(system="h300"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (",time_us", ",time", "has no column time_us"),
        ("h100_sxm", "my_box", "accelerator of 'my_box' is not known"),
        (",512,", ",1024,", "has the same size"),
        (",8,512,", ",8,-1,", "'-1' is no whole number"),
        ("all_gather", "all_sing", "all_sing"),
        ("float16", "float17", "float17"),
        (r",512,[\d.]+", ",512,0", "line 2, is damaged: its time '0' is not above 0"),
    ],
)
def test_bad_curves_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path / "c.csv", H100[:1])
    path.write_text(re.sub(old, new, path.read_text()))
    with pytest.raises(CommbenchError, match=message):
        import_run(path)


def test_a_table_for_aiconfigurator_is_written_and_read(tmp_path: Path, h100: Path) -> None:
    table = tmp_path / "nccl_perf.csv"
    table.write_text("".join(cb.export(h100, "nccl-perf")))
    head, first, *_ = table.read_text().splitlines()
    assert head.startswith("framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus")
    assert first.startswith("commbench,2.29.2,h100,all_gather,NCCL,half,8,256,0.01")
    rows, again = (
        [(row.operation, row.size_bytes, pytest.approx(row.time_s, rel=1e-4)) for row in run.rows]
        for run in map(as_loaded_run, map(import_run, (h100, table)))
    )
    assert [(*row[:2], row[2].expected) for row in again] == rows
    bfloat16 = replace(h100, "float16", "bfloat16")
    assert ",half,8,256,0.01" in str(cb.export(bfloat16, "nccl-perf"))
    with pytest.raises(UsageError, match="no elements of 1 or 2 bytes"):
        cb.export(replace(h100, "bfloat16", "float32"), "nccl-perf")


NCCL_PERF = """\
framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency
TRTLLM,2.26.2,NVIDIA H200,all_reduce,NCCL,half,8,256,0.016030000000000000002
TRTLLM,2.26.2,NVIDIA H200,all_reduce,NCCL,half,8,512,0.01612
TRTLLM,2.26.2,NVIDIA H200,all_reduce,NCCL,half,8,256,0.02
TRTLLM,2.26.2,NVIDIA H200,alltoall,NCCL,half,8,256,0.009
"""


def test_a_table_of_aiconfigurator_is_read_as_it_reads_it(tmp_path: Path) -> None:
    """The first of two lines of one size counts; times have all digits of a float."""
    path = tmp_path / "nccl_perf.txt"
    path.write_text(NCCL_PERF)
    run = cb.import_results(path, output=tmp_path / "run")
    rows = as_loaded_run(run).rows
    assert [(r.operation, r.size_bytes, round(1e6 * r.time_s, 4)) for r in rows] == [
        ("all_reduce", 512, 16.03), ("all_reduce", 1024, 16.12), ("all_to_all", 512, 9.0),
    ]  # fmt: skip
    assert system_of(as_loaded_run(run)) == "h200"
    assert {row.verdict for row in cb.expect_run(path).rows} == {"same"}
    replace(path, "framework,version,device", "a,b,c")
    with pytest.raises(RecordsError, match="has no column system and no column nccl_version"):
        cb.expect_run(path)


def test_inductor_gets_measured_times_by_the_elements_of_the_output(h100: Path) -> None:
    trace = json.loads(cb.export(h100, "inductor"))
    found = {
        (each["args"]["Collective name"], each["args"]["Out msg nelems"]): each["dur"]
        for each in trace["traceEvents"] if each["args"]["dtype"] == "Half"
    }  # fmt: skip
    for curve in H100:
        operation = OPERATIONS[curve.operation]
        for size, time_s in curve.points:
            received = size // 8 if operation.receive is Extent.BLOCK else size
            time_us = found[operation.torch_call, received // 2]
            assert time_us == pytest.approx(1e6 * time_s, rel=1e-6)


@pytest.mark.parametrize("name", ["autoparallel", "inductor"])
def test_a_run_without_such_calls_or_sizes_is_not_exported(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "c.csv", [H100[0]._replace(operation="broadcast")])
    with pytest.raises(UsageError, match="has no times of all_reduce"):
        cb.export(path, name)
    small = write(tmp_path / "s.csv", [curve._replace(points=curve.points[:5]) for curve in H100])
    with pytest.raises(UsageError, match="no size of 1 MiB or more"):
        cb.export(small, "autoparallel")


def test_a_picture_has_the_published_curve_behind_each_operation(tmp_path: Path) -> None:
    slow = write(tmp_path / "c.csv", H100, lambda _: 2)
    (picture,) = run_pictures([import_run(slow)], is_whole=True)
    assert any("published" in note and "8 x H100 with NCCL 2.23, 2.27.3" in note
               for note in picture.notes)  # fmt: skip
    panels = [panel for panel in picture.panels if isinstance(panel, Curves)]
    assert len(panels) == 8  # bandwidth and time of four operations
    for panel in panels:
        published, own = panel.series
        of_own = dict(own.known)
        for size, sound in published.known:
            factor = of_own[size].value / sound.value
            assert factor == pytest.approx(2 if panel.scale == TIMES else 0.5, rel=0.5)
            assert sound.has_interval


def test_a_model_is_fitted_to_published_curves() -> None:
    machine = cb.fit_model("published:h100", op="all_reduce")
    predicted = cb.predict(machine, op="all_reduce", ranks=8, sizes="512M")
    (curve,) = [curve for curve in H100 if curve.operation == "all_reduce"]
    # A switch that reduces is faster than any model that is fitted to 2, 4 and 8 ranks together:
    # where the same ranks were measured, their own times count.
    assert predicted.predictions[0].time.value == pytest.approx(curve.points[-1][1], rel=0.1)
    with pytest.raises(UsageError, match="no curves of 'l40s'"):
        cb.fit_model("published:l40s")
    again = cb.predict("published:h100", op="all_reduce", ranks=8, sizes="512M")
    assert again.predictions[0].time.value == predicted.predictions[0].time.value


def test_every_packaged_curve_has_a_source_and_a_known_accelerator() -> None:
    assert len(load_curves()) > 100
    for curve in load_curves():
        assert find_gpu(curve.system) and curve.source and curve.nccl
        assert len(curve.points) > 10 and min(time for _, time in curve.points) > 0
