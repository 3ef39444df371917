"""Verdicts on bucket sizes, and what they take from rows."""

from __future__ import annotations

import pytest
from planted_times import run_of

from commbench.advise.advice import Advice, Question, find_advice
from commbench.advise.buckets import MIB, BucketAdvice, least_size
from commbench.advise.measured import find_slowdown, group_runs
from commbench.advise.simulation import Slowdown
from commbench.analysis.rows import make_rows
from commbench.results.schema import Batch, Run
from commbench.spec.case import Case

SIZES = tuple(1 << k for k in range(20, 28))


def seconds(case: Case) -> float:
    return 1e-3 + case.size_bytes * 1e-9


def of_buckets(*runs: Run, **question: object) -> tuple[Advice, BucketAdvice]:
    asked = {"model_bytes": 96 * MIB, "backward_s": 0.1, **question}
    (advice,) = find_advice(runs, Question(**asked)).advice  # type: ignore[arg-type]
    assert isinstance(advice.details, BucketAdvice)
    return advice, advice.details


def test_buckets_that_are_good_already_are_kept() -> None:
    run = run_of(seconds, sizes=SIZES, backend="nccl", device="cuda")
    best = of_buckets(run)[1].best.bucket_bytes
    advice, found = of_buckets(run, bucket_bytes=best)
    assert (advice.verdict, advice.paste) == ("keep", ())
    assert found.now.time == found.best.time


def test_a_gain_that_may_be_noise_is_not_decided() -> None:
    run = run_of(seconds, noise=0.2, sizes=SIZES, backend="nccl", device="cuda")
    sure, _ = of_buckets(run, bucket_bytes=MIB)
    assert sure.verdict == "change"
    good = of_buckets(run)[1].good
    doubtful, found = of_buckets(run, bucket_bytes=int(good[1] * 1.3))
    assert (doubtful.verdict, doubtful.paste) == ("undecided", ())
    assert "the same run with --launches 6" in doubtful.measure[0]
    assert found.gain.low is not None and found.gain.low < 1.02


def test_the_slowdown_by_a_computation_is_that_of_the_overlap_rows() -> None:
    run = run_of(
        lambda case: {"computation": 2e-3, "both": 3e-3}.get(case.part, 1e-3), noise=1e-6,
        sizes=SIZES, overlap=("none", "matmul:8x8x8"),
    )  # fmt: skip
    told = run._replace(
        measurements=tuple(
            m._replace(batches=tuple(_with_ends(batch, m.case) for batch in m.batches))
            for m in run.measurements
        )
    )
    found = find_slowdown(make_rows(told), "all_reduce")
    assert found.source == "matmul:8x8x8"
    assert found[:2] == pytest.approx((0.25, 0.5), rel=1e-3)
    assert find_slowdown(make_rows(told), "all_gather") == Slowdown()
    advice, buckets = of_buckets(told)
    assert buckets.slowdown == found
    assert not any("--overlap" in command for command in advice.measure)


def _with_ends(batch: Batch, case: Case) -> Batch:
    if case.part != "both":
        return batch
    number = len(batch.samples_s)
    return batch._replace(communication_s=(1.5e-3,) * number, computation_s=(2.5e-3,) * number)


def test_runs_are_grouped_by_ranks_and_the_plain_setting_is_the_default() -> None:
    runs = [
        run_of(seconds, "tuned", variables={"NCCL_ALGO": "Ring"}, backend="nccl", device="cuda"),
        run_of(seconds, "plain", backend="nccl", device="cuda"),
        run_of(seconds, "four", backend="nccl", device="cuda", world_size=4),
    ]
    two, four = group_runs(runs)
    assert (two.runs, four.runs) == (("tuned", "plain"), ("four",))
    assert [each.setting.name for each in two.results] == ["NCCL_ALGO unset", "NCCL_ALGO=Ring"]
    assert two.who == "2 nccl ranks"


@pytest.mark.parametrize(
    ("backend", "name", "needs", "command"),
    [
        ("nccl", "NCCL_AGLO", "nccl is not known to read it; did you mean NCCL_ALGO?",
         "commbench sweep --env NCCL_ALGO=RING,TREE --op all_reduce --sizes 1M-128M "
         "--nproc-per-node 2"),
        ("nccl", "GLOO_LOG_LEVEL", "nccl does not read it", ""),
        ("gloo", "NCCL_ALGO", "gloo does not read it", ""),
        ("gloo", "GLOO_SPEED", "gloo is not known to read it", ""),
        ("nccl", "OMP_NUM_THREADS", "only variables of nccl itself are compared here",
         "commbench compare ring tree"),
    ],
)  # fmt: skip
def test_a_variable_in_which_runs_differ_in_vain_is_named(
    backend: str, name: str, needs: str, command: str
) -> None:
    runs = [
        run_of(
            seconds,
            label,
            variables={name: label.upper()},
            sizes=SIZES,
            backend=backend,
            device="cuda" if backend == "nccl" else "cpu",
        )
        for label in ("ring", "tree")
    ]
    found = find_advice(runs, Question())
    assert not found.advice
    assert found.missing[0] == (name, f"the runs differ in it, but {needs}", command, True)
    assert len(group_runs(runs)[0].results) == 1


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_SOMETHING_NEW"])
def test_a_variable_that_the_backend_reads_is_a_setting(name: str) -> None:
    runs = [
        run_of(seconds, label, variables={name: label}, sizes=SIZES, backend="nccl", device="cuda")
        for label in ("ring", "tree")
    ]
    found = find_advice(runs, Question())
    assert [each.subject for each in found.advice] == ["Settings of the environment"]
    assert name not in [each.subject for each in found.missing]


def test_buckets_larger_than_any_measured_size_are_told_from_those_that_were_not_tried() -> None:
    run = run_of(seconds, sizes=SIZES, backend="nccl", device="cuda")
    found = of_buckets(run, model_bytes=1 << 32, tensors=16)[1]
    assert found.largest_sent == 256 * MIB > found.table.largest
    assert least_size(found.step) < found.table.smallest
    assert least_size(of_buckets(run, model_bytes=4 << 30)[1].step) == 4 * MIB
