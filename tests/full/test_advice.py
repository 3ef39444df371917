"""The recommended bucket size and real DistributedDataParallel, on links of known speed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import pytest
from hosts import DEVICE, Cluster, limited_hosts, outputs_of
from test_links import end_on

import commbench
from commbench.answers.advise.choices import ChoiceAdvice
from commbench.answers.advise.simulation import MIB, BucketAdvice

pytestmark = pytest.mark.full
JOB = Path(__file__).with_name("ddp_job.py")
SWEEP = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Bucket sizes in MiB; 0 is torch's default."""


def train(
    cluster: Cluster, gradient_mib: int, tensors: int, backward_s: float, buckets: list[float]
) -> dict[float, float]:
    """Seconds of a backward pass of real ranks with each bucket size."""
    numbers = (gradient_mib, tensors, backward_s, *buckets)
    ranks = [
        host.start(
            sys.executable, str(JOB), *map(str, numbers), MASTER_ADDR=cluster[0].name,
            MASTER_PORT="29511", RANK=str(rank), WORLD_SIZE=str(len(cluster)),
            GLOO_SOCKET_IFNAME=DEVICE,
        )
        for rank, host in enumerate(cluster)
    ]  # fmt: skip
    outputs = outputs_of(ranks)
    return {float(size): median(seconds) for size, seconds in json.loads(outputs[0][0]).items()}


def test_a_crossover_lies_between_the_measured_sizes_around_it(tmp_path: Path) -> None:
    # On the link of the root, gloo's broadcast sends 2 S, and the two steps only 1.5 S; but they
    # take more steps.
    found = []
    with limited_hosts(4, "1gbit") as cluster:
        for sizes in ("4K-4M:x4", "32K-512K"):
            where = tmp_path / sizes[:2]
            where.mkdir()
            end_on(cluster, where, "--op", "broadcast", "--via", "scatter+all_gather",
                   "--sizes", sizes)  # fmt: skip
            (advice,) = commbench.advise(where / "run").advice
            assert isinstance(advice.details, ChoiceAdvice)
            (crossing,) = advice.details.crossings
            found.append(crossing)
    coarse, fine = found
    assert coarse.measured_below_bytes < coarse.at_bytes < coarse.measured_above_bytes
    # The second run, of other sizes, finds it between the sizes that the first one names.
    assert coarse.measured_below_bytes < fine.at_bytes < coarse.measured_above_bytes


@pytest.mark.parametrize(
    ("count", "gradient_mib", "tensors", "backward_s"),
    [
        (2, 32, 64, 0.5),  # the computation takes longer than the communication
        (2, 32, 256, 0.1),  # the communication takes longer
        (4, 16, 64, 0.2),  # both take equally long
    ],
)
def test_the_recommended_bucket_is_within_5_percent_of_the_best_of_a_sweep(
    tmp_path: Path, count: int, gradient_mib: int, tensors: int, backward_s: float
) -> None:
    with limited_hosts(count, "1gbit") as cluster:
        end_on(
            cluster, tmp_path, "--sizes", "64K-32M", "--timing", "both", "--placement", "in_place"
        )
        report = commbench.advise(
            tmp_path / "run", model_bytes=f"{gradient_mib}M", backward=backward_s, tensors=tensors
        )
        (advice,) = report.advice
        assert isinstance(advice.details, BucketAdvice)
        recommended = advice.details.recommended.bucket_bytes / MIB
        real = train(cluster, gradient_mib, tensors, backward_s, sorted({0.0, recommended, *SWEEP}))
    assert real[recommended] <= 1.05 * min(real.values()), (recommended, real)
    assert advice.verdict == "change"
    # The default of 25 MiB is slower by about what the advice says.
    gain = advice.details.gain.value or 0.0
    assert real[0.0] / real[recommended] == pytest.approx(gain, rel=0.12), (recommended, real)
