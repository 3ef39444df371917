"""`commbench explain` through the real entry point: whole outputs, and figures computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import planted
import pytest
from commands import Commbench
from synthetic_rows import batches, plan

from commbench.analysis.rows import link_references, make_row
from commbench.explain.row_text import explain_row
from commbench.models.machine import write_machine
from commbench.results.schema import Measurement, RunHeader
from commbench.spec.operations import OPERATIONS

LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"
FROZEN = Path(__file__).parents[1] / "data" / "journal-schema-1.jsonl"


def explained(commbench: Commbench, line: str) -> str:
    ended = commbench("explain", *line.split())
    assert (ended.code, ended.err) == (0, "")
    assert max(map(len, ended.out.splitlines())) <= 100
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


# What follows `peak` of 1 GiB in 3.9 ms: 275.32 x 1.75 = 481.81; 275.32 / 450 = 61.2 %.
REDUCED_BY_THE_SWITCH = """\
          busbw / peak = 481.81 / 450 = 107 % (the bus bandwidth bound: some link carried busbw).
          At this speed the bytes take 1,879,048,192 B / 450 GB/s = 4.1757 ms; t is 3.9 ms.
          More than 100 % is possible here. A network that itself reduces (NVLS, SHARP) moves about
          S in each direction instead of 1.75 x S, so the limit is 1.75 times the peak. Of this
          limit the call reached algbw / peak = 61.2 %.
"""
# 275.32 x 1.75 / 250: more than even S each way takes.
TOO_FAST = """\
          busbw / peak = 481.81 / 250 = 193 % (the bus bandwidth bound: some link carried busbw).
          At this speed the bytes take 1,879,048,192 B / 250 GB/s = 7.5162 ms; t is 3.9 ms.
          More than 100 % is impossible. Perhaps the peak is that of one link of several, or of
          another link. Or t is not the time of the whole call.
"""
# The published 376.71 GB/s of 4 x 8 B200: 194.43 x 2 x 3/4 = 291.65.
BETWEEN_NODES = """\
          With any algorithm, 1.5 x S must enter or leave some of the 4 nodes, except where the
          network itself reduces (NVLS, SHARP). 1.5 x algbw / peak = 291.65 / 400 = 72.9 % (the node
          bandwidth bound).
          At this speed the bytes take 25,769,803,776 B / 400 GB/s = 64.425 ms; t is 88.36 ms.
"""
WRONG_KIND_OF_PEAK = """\
          busbw / peak = 376.71 / 50 = 753 % (the bus bandwidth bound: some link carried busbw).
          At this speed the bytes take 33,285,996,544 B / 50 GB/s = 665.72 ms; t is 88.36 ms.
          More than 100 % is impossible. Perhaps the peak is that of one link of several, or of
          another link. Or t is not the time of the whole call. Or the peak is that of the network
          between nodes, while most bytes stay within a node: then give the speed of a whole node,
          such as --peak 400GB/s/node.
"""


@pytest.mark.parametrize(
    ("line", "ending"),
    [
        ("all_reduce --ranks 8 --size 1G --time 3.9ms --peak 450GB/s", REDUCED_BY_THE_SWITCH),
        ("all_reduce --ranks 8 --size 1G --time 3.9ms --peak 250GB/s", TOO_FAST),
        ("all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 400GB/s/node",
         BETWEEN_NODES),
        ("all_reduce --ranks 32 --nodes 4 --size 16G --time 88.36ms --peak 50GB/s",
         WRONG_KIND_OF_PEAK),
    ],
)  # fmt: skip
def test_a_share_of_the_peak_names_its_bound_and_what_above_100_percent_means(
    commbench: Commbench, line: str, ending: str
) -> None:
    assert explained(commbench, line).endswith(f"\n{ending}")


# Ten samples in us, as in docs/measuring.md: median 50.3, interval from the 2nd to the 9th.
SAMPLES = [55.3, 49.5, 47.8, 61.0, 50.2, 48.3, 50.4, 49.9, 52.1, 50.9]
# 1024 B / 50.3 us = 0.020358 GB/s; (55.3 - 48.3) / 2 / 50.3 = 6.96 %.
RECORDED = """\
all_reduce float32 sum in_place, 1 KiB, on 2 ranks: every rank gets the reduction of all tensors

where     2 gloo ranks on example (Example Processor), cpu mode quiet; torch 2.13.0+cpu;
          2026-11-21T00:00:00+00:00.
size      S = 1,024 bytes. This is the larger of what one rank sends and what it receives in a call,
          as in nccl-tests.
          It is one tensor of 256 elements of float32 (count).
          The send buffer of a rank holds S. Its receive buffer holds S. Both are the same memory
          (in place).
time      t = 50.3 us (isolated). Each call is timed alone. The ranks are aligned, call once and
          wait for the result. The slowest rank counts, and t is the median of the calls. This is
          the time that a program waits for a result. It includes the cost of launching the call.
          There were 10 iterations. The 95 % interval of the median is 48.3 … 55.3 us.
          Sampling stopped (budget): the time for one case was used up before the interval was
          narrow enough.
          3 elements are wrong in the results: do not use this time.
algbw     S / t = 1,024 B / 50.3 us = 0.020358 GB/s (1 GB is 10⁹ bytes)
          This is how fast one call moves its data. It is not the speed of a link.
busbw     algbw x 2(n-1)/n = 0.020358 x 2(2-1)/2 = 0.020358 x 1 = 0.020358 GB/s
          With any algorithm, 2(n-1)/n x S = 1,024 bytes must cross the link of some rank in one
          direction. So that link carried at least busbw. Compare busbw, not algbw, with the speed
          of a link, and between different numbers of ranks.
latency   Even for the smallest S at least ceil(log2 n) = ceil(log2 2) = 1 message must be sent. At
          small sizes this is most of the time, so the bandwidth there says little about a link.
why       Latency or bandwidth? This run has too few sizes of this call to tell them apart. Measure
          several sizes, or give --model.
peak      None was given. --peak compares busbw with a speed such as 450GB/s, or with a link of
          `commbench links`.
"""


def test_a_row_of_a_run_is_explained_with_its_samples_and_place(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_run(
        tmp_path, samples_s=[s * 1e-6 for s in SAMPLES], stop_reason="budget", wrong=3,
        status="wrong",
    )  # fmt: skip
    assert explained(commbench, "run --op all_reduce --size 1K") == RECORDED
    assert explained(commbench, "run/run.jsonl --size 1024") == RECORDED


# Medians 8.286 and 5.5963 ms; 4096 B / 8.285979 ms = 0.00049433 GB/s, of 1 GB/s 0.049 %.
A_RUN = """\
all_reduce-barrier

where     2 gloo ranks on example (Example Processor), cpu mode quiet; torch 2.13.0+cpu;
          2026-11-21T00:00:00+00:00.
size      S: the larger of what one rank sends and what it receives in a call.
count     Elements of the tensor, or of one rank's block where S consists of blocks.
time      t: the slowest rank of each iteration, then the median of the iterations.
interval  The 95 % confidence interval of this median. A wide interval means noise.
n         Number of timed iterations.
algbw     S / t: how fast one call moves its data.
busbw     algbw x factor: at least one rank's link was this fast. Compare it with a link.
wrong     Wrong elements of the results. An empty cell: they were not checked.
timing    isolated: Each call is timed alone. The ranks are aligned, call once and wait for the
          result. The slowest rank counts, and t is the median of the calls. This is the time that a
          program waits for a result. It includes the cost of launching the call.

all_reduce float32 sum in_place: every rank gets the reduction of all tensors. S = 4 KiB,
t = 8.286 ms, isolated, 3 iterations. algbw = S / t = 0.00049433 GB/s. busbw = algbw x
2(n-1)/n = 0.00049433 x 1 = 0.00049433 GB/s (n = 2). That is 0.049 % of 1 GB/s (bus bandwidth
bound).

barrier: no rank returns before all have called it. t = 5.5963 ms, isolated, 3 iterations. There is
no bandwidth.

Only the largest size of each kind is explained here. For another size: commbench explain run --op
OP --size SIZE
"""


def test_a_run_is_explained_once_and_then_the_largest_size_of_each_kind(
    commbench: Commbench, tmp_path: Path
) -> None:
    write_run(tmp_path)
    assert explained(commbench, "run --peak 1GB/s") == A_RUN


def test_a_row_that_was_not_timed_says_why(commbench: Commbench, tmp_path: Path) -> None:
    write_run(tmp_path, samples_s=[], status="unsupported", reason="gloo refuses it")
    text = explained(commbench, "run --size 1K")
    assert text.endswith(
        "\ntime      This case was not timed. It is unsupported: gloo refuses it\n"
    )


REFUSED = {
    "all_reduce": (
        "all_reduce cannot be explained without --ranks, --size, --time",
        "write for example: commbench explain all_reduce --ranks 8 --size 1G --time 4.2ms",
    ),
    "barrier --ranks 2": (
        "barrier cannot be explained without --time",
        "write for example: commbench explain barrier --ranks 8 --time 120us",
    ),
    "barrier --ranks 2 --time 3us --size 8": (
        "--size 8 has no meaning for barrier, which moves no data",
        "leave out --size",
    ),
    "all_reduce --ranks 8 --size 1G --time 4.2": (
        "time '4.2' has no unit",
        "write 4.2us, 4.2ms or 4.2s",
    ),
    "all_reduce --ranks 8 --size 1G --time 4.2ms --timing fast": (
        "unknown timing 'fast'",
        "known: isolated, pipelined",
    ),
    "all_reduce --ranks 8 --size 1G --time 4.2ms --op all_reduce": (
        "--op all_reduce chooses rows of a run, but all_reduce is an operation",
        "leave out --op",
    ),
    "all_reduce --peak 450": (
        "peak '450' has no unit",
        "write 450GB/s (bytes), 450Gbit/s (bits), or a name of `commbench links`",
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
    text = explained(commbench, f"{LOG} --op all_reduce --size 1M").split("\n\n\n")[0]
    where, _, rest = text.partition("\nwhere     ")[2].partition("\nsize      ")
    assert " ".join(where.split()) == (
        "8 nccl ranks on localhost (A100-SXM4-40GB); measured by nccl-tests, imported from "
        "nccl_allreduce.log."
    )
    time = rest.partition("\ntime      ")[2].partition("\nalgbw     ")[0]
    assert " ".join(time.split()) == (
        "t = 74.78 us (pipelined). Mean over 20 calls, mean over ranks, as printed by "
        "nccl-tests. The samples are unknown."
    )
    assert commbench("import", str(LOG), "--op", "all_reduce", "--output", "here").code == 0
    whole = explained(commbench, "here")
    assert "median" not in whole and "interval" not in whole


def test_one_message_and_one_iteration_are_singular(commbench: Commbench, tmp_path: Path) -> None:
    text = explained(commbench, "all_gather --ranks 2 --size 1M --time 1ms")
    assert "= 1 message must be sent." in text
    write_run(tmp_path, samples_s=[1e-3])
    assert "There were 1 iteration" not in explained(commbench, "run --size 1K")


def test_a_form_of_a_call_is_explained_with_its_tensors_and_its_ratio() -> None:
    asked = plan(sizes=(1001,), tensors=("4",), forms=("separate",))
    header = RunHeader(plan=asked, label="made-up", started="", launcher="local")
    flat, separate = link_references(
        [
            make_row(header, Measurement(case=case, status="ok", batches=batches((1e-4 * n,) * 6)))
            for n, case in enumerate(asked.cases(), start=2)
        ]
    )
    text = " ".join(explain_row(separate).split())
    assert (
        "It has 248 elements of float32 (count). These are the bytes of 4 tensors. Each has its "
        "own memory. The form of the call is separate: a call for each tensor, each waited for. It "
        "takes 1.5 times as long as one direct call of S bytes." in text
    )
    assert "1,001 bytes were requested. They were rounded down to whole elements." in text
    assert "They are one here." in " ".join(explain_row(flat).split())


def test_a_quoted_time_is_compared_with_a_machine(commbench: Commbench, tmp_path: Path) -> None:
    write_machine(planted.machine(), tmp_path / "machine.json")
    quoted = "all_reduce --ranks 64 --nodes 8 --size 64M --time 900us --model"
    text = explained(commbench, f"{quoted} machine.json")
    assert "why       Model: double binary tree (across hosts) of planted predicts 740 us" in text
    assert "t is 1.22 times that, above the interval." in " ".join(text.split())
    (tmp_path / "damaged.json").write_text("{}")
    for name in ("absent", "damaged.json"):
        assert commbench("explain", *quoted.split(), name).code == 6


def test_a_run_is_compared_with_a_machine(commbench: Commbench, tmp_path: Path) -> None:
    write_run(tmp_path)
    write_machine(planted.machine(), tmp_path / "machine.json")
    text = " ".join(explained(commbench, "run --model machine.json").split())
    assert "Model: ring (within a host) of planted predicts" in text
    assert "planted does not predict this call: planted has no model of barrier." in text
