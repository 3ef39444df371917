"""`commbench expect` and `commbench.expect`: formats, what is refused, and the line under the
table of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Commbench

import commbench as cb
from commbench.answers.expect.document import VIEW
from commbench.errors import UsageError

LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({"busbw": "480GB/s"}, "plausible"), ({"busbw": 480e9}, "plausible"),
        ({"algbw": "274.3GB/s"}, "plausible"), ({"algbw": "480GB/s"}, "impossible"),
        ({"time": "31.3ms", "size": "8G"}, "plausible"), ({"time": 1.0, "size": "8G"}, "low"),
        ({"busbw": "3840Gbit/s"}, "plausible"), ({}, ""),
    ],
)  # fmt: skip
def test_a_bandwidth_is_given_in_one_of_three_ways(
    options: dict[str, str | float], verdict: str
) -> None:
    found = cb.expect("h100", **options)  # type: ignore[arg-type]
    assert found.verdict == verdict
    for format_ in VIEW.formats:
        assert VIEW.write(found, format_)


def test_hardware_that_no_table_has_is_limited_by_its_links() -> None:
    found = cb.expect(nodes=2, nic="8x400G", busbw="760GB/s")
    assert found.verdict == "impossible"
    assert found.expectation.figures == ()
    assert cb.expect(nic="8x400G", busbw="760GB/s").verdict == "unknown"
    assert cb.expect(nic="8x400G").expectation.bound is None
    said = " ".join(VIEW.write(cb.expect("mi300x", nodes=2)).split())
    assert "possible not known --nic gives the bound of a network" in said
    assert cb.expect(link="100GB/s", busbw="110GB/s").verdict == "impossible"
    assert cb.expect(link="nvlink4", busbw="700GB/s").verdict == "unknown"


def test_numbers_of_python_are_checked_too() -> None:
    for value in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="--busbw is"):
            cb.expect("h100", busbw=value)


def test_an_impossible_figure_of_another_tools_file_is_called_out(
    commbench: Commbench, tmp_path: Path
) -> None:
    text = LOG.read_text().replace("A100-SXM4-40GB", "NVIDIA L40S")
    (tmp_path / "l40s.log").write_text(text)
    ended = commbench("show", "l40s.log", "--op", "all_reduce", COLUMNS="80")
    said = " ".join(ended.out.split())
    assert "On 8 x L40S, 235 GB/s at 8 GiB is impossible: the links allow at most 31 GB/s" in said
    assert "(PCIe 4 x16)" in said
