"""Verdicts on bucket sizes, and what they take from rows."""

from __future__ import annotations

import pytest
from planted_times import run_of

from commbench.advise.advice import Advice, Question, find_advice
from commbench.advise.buckets import MIB, BucketAdvice, Slowdown
from commbench.advise.measured import find_slowdown, group_runs
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
    assert advice.sentences[0].startswith("Keep ")
    assert found.now.time == found.best.time


def test_a_gain_that_may_be_noise_is_not_decided() -> None:
    run = run_of(seconds, noise=0.2, sizes=SIZES, backend="nccl", device="cuda")
    sure, _ = of_buckets(run, bucket_bytes=MIB)
    assert sure.verdict == "change"
    good = of_buckets(run)[1].good
    doubtful, found = of_buckets(run, bucket_bytes=int(good[1] * 1.3))
    assert (doubtful.verdict, doubtful.paste) == ("undecided", ())
    assert "do not decide" in doubtful.sentences[0]
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
    advice, _ = of_buckets(told)
    assert "takes 1.50 times as long and the computation 1.25 times" in advice.sentences[-1]
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


def test_buckets_larger_than_any_measured_size_are_called_so() -> None:
    run = run_of(seconds, sizes=SIZES, backend="nccl", device="cuda")
    said = " ".join(of_buckets(run, model_bytes=1 << 32, tensors=16)[0].sentences)
    assert "The largest bucket, of 256 MiB, is beyond the measured sizes" in said
