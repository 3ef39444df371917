"""`commbench expect` and `commbench.expect`: formats, what is refused, and the line under the
table of a run."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from commands import Commbench

import commbench as cb
from commbench.errors import UsageError
from commbench.expect.document import VIEW

LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
LINES = re.findall(r"^ {4}commbench (expect .*?)(?: {3,}.*)?$", PAGE, re.M)


def test_the_lines_of_the_page_are_answered(commbench: Commbench) -> None:
    assert len(LINES) >= 4
    for line in LINES:
        ended = commbench(*line.split())
        assert (ended.code, ended.err) == (0, ""), line


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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no hardware is given"),
        ("--gpu h10", "--gpu 'h10' is no known accelerator"),
        ("--gpu unheard-of --nodes 2 --nic 8x400G", "--gpu 'unheard-of' is no known accelerator"),
        ("--gpu h100,a100", "--gpu names several accelerators: h100 and a100"),
        ("--gpu h100-nvl --gpu a100", "--gpu names several accelerators: h100-nvl and a100"),
        ("--gpu h100 --gpus-per-node 0", "--gpus-per-node is 0"),
        ("--gpu h100 --busbw abc", "--busbw 'abc' is not a bandwidth"),
        ("--gpu h100 --busbw -3GB/s", "--busbw '-3GB/s' is not a bandwidth"),
        ("--gpu h100 --algbw inf", "--algbw 'inf' is not a bandwidth"),
        ("--gpu h100 --busbw 0GB/s", "--busbw '0GB/s' is not above 0"),
        ("--gpu h100 --busbw 800GB/s/node", "--busbw '800GB/s/node' is the speed of a node"),
        ("--gpu h100 --link -3GB/s", "--link '-3GB/s' is not a bandwidth"),
        ("--gpu h100 --nodes 0", "--nodes is 0"),
        ("--gpu h100 --gpus-per-node 1", "one rank communicates with nobody"),
        ("--gpu h100 --op barrier", "barrier has no bandwidth to expect"),
        ("--gpu h100 --op all_to_all_v", "all_to_all_v has no bandwidth to expect"),
        ("--gpu h100 --busbw 480", "--busbw '480' has no unit"),
        ("--gpu h100 --busbw nvlink4", "--busbw 'nvlink4' is not a bandwidth"),
        ("--gpu h100 --busbw 480GB/s --algbw 3GB/s", "--busbw and --algbw say the same thing"),
        ("--gpu h100 --time 4ms", "--time needs the size of the message"),
        ("--gpu h100 --nic 8x", "rate '8x' has an unclear unit 'x'"),
        ("--gpu h100 --algorithm rong", "unknown --algorithm 'rong'"),
        ("--gpu h100 --tolerance 20", "--tolerance '20' is not a percentage"),
        ("--gpu h100 --format xml", "unknown format 'xml'"),
        ("--gpu h100 --size 0", "size '0' is out of range"),
    ],
)
def test_a_question_that_cannot_be_answered_is_two_lines(
    commbench: Commbench, line: str, message: str
) -> None:
    ended = commbench("expect", *line.split())
    assert ended.code == 2
    first, second = ended.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert second.startswith("hint: ")
    assert ("commbench links" in second) <= ("--nic" in line)


def test_numbers_of_python_are_checked_too() -> None:
    for value in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="--busbw is"):
            cb.expect("h100", busbw=value)


def test_a_row_is_explained_with_what_others_measured(commbench: Commbench) -> None:
    line = ("explain", str(LOG), "--op", "all_reduce", "--size", "8G")
    said = " ".join(commbench(*line).out.split())
    assert "others plausible On 8 x A100, 235 GB/s at 8 GiB is plausible:" in said


def test_an_impossible_figure_of_another_tools_file_is_called_out(
    commbench: Commbench, tmp_path: Path
) -> None:
    text = LOG.read_text().replace("A100-SXM4-40GB", "NVIDIA L40S")
    (tmp_path / "l40s.log").write_text(text)
    ended = commbench("show", "l40s.log", "--op", "all_reduce", COLUMNS="80")
    said = " ".join(ended.out.split())
    assert "On 8 x L40S, 235.3 GB/s at 8 GiB is impossible: at most 31 GB/s are possible" in said
    assert "(PCIe 4 x16)" in said


@pytest.mark.full
def test_a_report_of_the_check_names_the_sources(commbench: Commbench) -> None:
    line = ("report", str(LOG), "--op", "all_reduce", "--expect", "h100", "--format", "markdown")
    ended = commbench(*line)
    assert ended.code == 0, ended.err
    said = html.unescape(ended.out)
    assert "FAIL" in said and "bus bandwidth as expected of H100" in said
    assert "235 GB/s is low: others measured 367.2 to 480 GB/s" in said
    assert "nccl-tests/issues/212" in said.replace("\u200b", "")


def test_a_peak_of_both_directions_is_called_out_under_the_table(commbench: Commbench) -> None:
    ended = commbench("show", str(LOG), "--op", "all_reduce", "--peak", "600GB/s")
    said = " ".join(ended.out.split())
    assert "This peak is impossible: the run used NVLink 3: A100, 300 GB/s one way" in said
    assert "the peak is both directions together" in said
