"""`commbench explain` through the real entry point: figures computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import planted
import pytest
from commands import Commbench

from commbench.models.machine_file import write_machine
from commbench.spec.operations import OPERATIONS

LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"
FROZEN = Path(__file__).parents[1] / "data" / "journal-schema-1.jsonl"


def explained(commbench: Commbench, line: str) -> str:
    ended = commbench("explain", *line.split())
    assert (ended.code, ended.err) == (0, "")
    assert "markdown" in line or "json" in line or max(map(len, ended.out.splitlines())) <= 100
    return ended.out


def write_run(folder: Path, samples_s: list[float] | None = None, **of_first_case: Any) -> None:
    """The frozen run of all_reduce and barrier, its first case changed."""
    lines = [json.loads(line) for line in FROZEN.read_text().splitlines()]
    (first,) = (line for line in lines if line["kind"] == "case" and line["case"]["index"] == 0)
    first |= of_first_case
    if samples_s is not None:
        batch, *more = [line for line in lines if line["kind"] == "visit" and line["case"] == 0]
        batch |= {"samples_s": samples_s, "last_in": [len(samples_s), 0]}
        drop = more if samples_s else [batch, *more]
        lines = [line for line in lines if line not in drop]
    (folder / "run").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "run" / "run.jsonl").write_text(text)


def facts_of(commbench: Commbench, line: str) -> dict[str, list[str]]:
    """By name, the value and the computation of the facts of the first row, in words."""
    text = explained(commbench, f"{line} --format markdown")
    cells = [row.split(" | ") for row in text.splitlines() if row.startswith("| ")]
    return {name.strip("| "): [value.strip(), how.strip("| ")] for name, value, how in cells}


# 1.75 x 1073741824 = 1879048192; / 450e9 = 4.1757 ms. 1024^2 / 12 blocks of 4 bytes: 87,381.
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("all_reduce --ranks 8 --size 1G --time 4.2ms --peak nvlink4", {
            "size S": "1,073,741,824 bytes", "count": "268,435,456 float32", "time t": "4.2 ms",
            "algbw": "255.65 GB/s", "busbw": "447.39 GB/s", "over some link": "1,879,048,192 bytes",
            "messages in a row": "at least 3", "peak": "450 GB/s", "of the peak": "99.4 %",
            "t at the peak": "4.1757 ms"}),
        ("all-gather --ranks 3 --size 1M --time 200us --timing pipelined", {
            "size S": "1,048,572 bytes", "asked for": "1,048,576 bytes",
            "algbw": "5.2429 GB/s", "busbw": "3.4952 GB/s", "over some link": "699,048 bytes",
            "messages in a row": "at least 2", "peak": "not given"}),
        ("all_gather --ranks 2 --size 1M --time 1ms", {"messages in a row": "at least 1"}),
        ("barrier --ranks 1 --time 3us --peak 400Gbps", {
            "time t": "3 us", "bandwidth": "none", "peak": "50 GB/s",
            "no share of it": "not known"}),
        # 1 GiB in 3.9 ms: 275.32 x 1.75 = 481.81; 275.32 / 450 = 61.2 %.
        ("all_reduce --ranks 8 --size 1G --time 3.9ms --peak 450GB/s", {
            "of the peak": "107 %", "t at the peak": "4.1757 ms", "of the limit": "61.2 %"}),
        # 275.32 x 1.75 / 250: more than even S each way takes.
        ("all_reduce --ranks 8 --size 1G --time 3.9ms --peak 250GB/s", {
            "of the peak": "193 %", "above 100 %": "impossible"}),
        # The published 376.71 GB/s of 4 x 8 B200: 194.43 x 2 x 3/4 = 291.65.
        ("all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 400GB/s/node", {
            "busbw": "376.71 GB/s", "of the peak": "72.9 %", "t at the peak": "64.425 ms"}),
        ("all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 50GB/s", {
            "of the peak": "753 %", "above 100 %": "impossible"}),
    ],
)  # fmt: skip
def test_a_quoted_time_is_explained_with_its_figures(
    commbench: Commbench, line: str, values: dict[str, str]
) -> None:
    facts = facts_of(commbench, line)
    assert {name: facts[name][0] for name in values} == values
    above = {"of the limit", "above 100 %"}
    assert facts.keys() & above == values.keys() & above


# Ten samples in us, as in docs/measuring.md: median 50.3, interval from the 2nd to the 9th.
SAMPLES = [55.3, 49.5, 47.8, 61.0, 50.2, 48.3, 50.4, 49.9, 52.1, 50.9]


# 1024 B / 50.3 us = 0.020358 GB/s; (55.3 - 48.3) / 2 / 50.3 = 6.96 %.
def test_a_row_of_a_run_is_explained_with_its_samples_and_place(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_run(
        tmp_path, samples_s=[s * 1e-6 for s in SAMPLES], stop_reason="budget", wrong=3,
        status="wrong",
    )  # fmt: skip
    facts = facts_of(commbench, "run --op all_reduce --size 1K")
    assert facts["time t"][0] == "50.3 us (48.3 … 55.3 us)"
    assert facts["iterations"][0] == "10"
    assert facts["iterations"][1].startswith("the time for one case was used up")
    assert facts["wrong elements"] == ["3", "do not use this time"]
    assert facts["busbw"][0] == "0.020358 GB/s"
    assert facts["latency or bandwidth"][0].startswith("not known")
    assert facts_of(commbench, "run/run.jsonl --size 1024") == facts


def test_a_run_is_explained_by_the_largest_size_of_each_kind(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_run(tmp_path)
    text = explained(commbench, "run --peak 1GB/s")
    assert text.endswith("\n  commbench explain run --op OP --size SIZE\n")
    rows = json.loads(explained(commbench, "run --peak 1GB/s --format json"))["rows"]
    assert [row["call"].split()[0] for row in rows] == ["all_reduce", "barrier"]
    first, second = ({fact["name"]: fact for fact in row["facts"]} for row in rows)
    assert first["time t"]["value"]["value"] == pytest.approx(8.286e-3, rel=1e-4)
    assert second["time t"]["value"]["value"] == pytest.approx(5.5963e-3, rel=1e-4)
    # 4096 B / 8.285979 ms = 0.00049433 GB/s, of 1 GB/s 0.049 %.
    assert first["busbw"]["value"] == pytest.approx(4.9433e5, rel=1e-4)
    assert (first["busbw"]["unit"], first["time t"]["unit"]) == ("bytes/s", "s")
    assert first["of the peak"]["value"] == pytest.approx(4.9433e-4, rel=1e-4)
    assert not {"busbw", "of the peak"} & second.keys()


def test_a_row_that_was_not_timed_says_why(commbench: Commbench, tmp_path: Path) -> None:
    write_run(tmp_path, samples_s=[], status="unsupported", reason="gloo refuses it")
    text = explained(commbench, "run --size 1K")
    assert "in_place was not timed: unsupported: gloo refuses it.\n" in " ".join(text.split(" "))


REFUSED = {
    "barrier --ranks 2": (
        "barrier cannot be explained without --time",
        "write for example: commbench explain barrier --ranks 8 --time 120us",
    ),
    "barrier --ranks 2 --time 3us --size 8": (
        "--size 8 has no meaning for barrier, which moves no data",
        "leave out --size",
    ),
    "all_reduce --ranks 8 --size 1G --time 4.2ms --op all_reduce": (
        "--op all_reduce chooses rows of a run, but all_reduce is an operation",
        "leave out --op",
    ),
    "all_redcue --ranks 8": (
        "'all_redcue' is neither an operation nor a run",
        f"did you mean all_reduce? known: {', '.join(OPERATIONS)}; a run is a folder, its "
        "run.jsonl, or a label under results/",
    ),
    "run --ranks 2": (
        "--ranks 2 describes a call of an operation, but all_reduce-barrier is a run",
        "leave out --ranks",
    ),
    "run --op gather": (
        "all_reduce-barrier has no gather",
        "it has all_reduce, barrier",
    ),
    "run --size 2K": ("all_reduce-barrier has no row of 2 KiB", "it has 1K,4K"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_question_without_an_answer_is_two_lines(
    commbench: Commbench, tmp_path: Path, line: str
) -> None:
    write_run(tmp_path)
    ended = commbench("explain", *line.split())
    message, hint = REFUSED[line]
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"error: {message}\nhint: {hint}\n"


def test_a_run_that_is_not_there_is_an_unreadable_file(commbench: Commbench) -> None:
    ended = commbench("explain", "results/none")
    assert ended.code == 6
    assert ended.err.startswith("error: there is no file, folder or run 'results/none'\n")


def test_another_tools_figures_are_explained_by_what_its_file_says(commbench: Commbench) -> None:
    text = " ".join(explained(commbench, f"{LOG} --op all_reduce --size 1M").split())
    assert (
        "8 nccl ranks on localhost (A100-SXM4-40GB); measured by nccl-tests, imported from "
        "nccl_allreduce.log." in text
    )
    assert (
        "pipelined: Mean over 20 calls, mean over ranks, as printed by nccl-tests. The samples are "
        "unknown." in text
    )
    assert "median" not in text
    assert commbench("import", str(LOG), "--op", "all_reduce", "--output", "here").code == 0
    whole = explained(commbench, "here")
    assert "median" not in whole and "interval" not in whole


def test_a_quoted_time_is_compared_with_a_machine(commbench: Commbench, tmp_path: Path) -> None:
    write_machine(planted.machine(), tmp_path / "machine.json")
    quoted = "all_reduce --ranks 64 --nodes 8 --size 64M --time 900us --model"
    value, how = facts_of(commbench, f"{quoted} machine.json")["predicted"]
    assert value == "700.6 us (660 … 740 us)"
    assert how.endswith("of planted; t is 1.28 times that, above the interval")
    (tmp_path / "damaged.json").write_text("{}")
    for name in ("absent", "damaged.json"):
        assert commbench("explain", *quoted.split(), name).code == 6


def test_a_run_is_compared_with_a_machine(commbench: Commbench, tmp_path: Path) -> None:
    write_run(tmp_path)
    write_machine(planted.machine(), tmp_path / "machine.json")
    found = json.loads(explained(commbench, "run --model machine.json --format json"))
    said = [f["how"] for row in found["rows"] for f in row["facts"] if f["name"] == "predicted"]
    assert said[0].startswith("ring (within a host) of planted; t is ")
    assert said[1].endswith("planted has no model of barrier")
