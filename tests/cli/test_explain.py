"""`commbench explain` through the real entry point: whole outputs, and figures computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Commbench

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


# 1.75 x 1073741824 = 1879048192; / 450e9 = 4.1757 ms.
ALL_REDUCE = """\
all_reduce float32 sum in_place, 1 GiB, on 8 ranks: every rank gets all ranks' tensors reduced

size      S = 1,073,741,824 bytes: the larger of what one rank's call sends and receives, as
          nccl-tests prints it.
          It is one tensor: 268,435,456 elements of float32 (count).
          A rank's send buffer holds S, its receive buffer S; in place, they share memory.
time      t = 4.2 ms, isolated: each call alone. Ranks come together first, then call once and wait
          for the result; the slowest rank counts, and t is the median over the calls. So long a
          program waits for its result; what launching costs is in it.
algbw     S / t = 1,073,741,824 B / 4.2 ms = 255.65 GB/s (1 GB is 10⁹ bytes)
          How fast a call gets its data done; not the speed of any link.
busbw     algbw x 2(n-1)/n = 255.65 x 2(8-1)/8 = 255.65 x 1.75 = 447.39 GB/s
          Why: 2(n-1)/n x S = 1,879,048,192 bytes have to pass some rank's link one way, whichever
          algorithm runs, unless the network itself reduces. busbw is the least speed that link had.
          So it can be held against the link's own speed, and compared between numbers of ranks;
          algbw cannot.
latency   At least ceil(log2 n) = ceil(log2 8) = 3 messages have to follow one another, however few
          the bytes. Small sizes wait for that, and their bandwidth says nothing of a link.
peak      nvlink4 (NVLink 4: H100, H200, GH200), 450 GB/s one way per accelerator. `commbench links
          nvlink4` says more.
          busbw / peak = 447.39 / 450 = 99.4 %, by the bus bandwidth bound: some link carried busbw.
          Those bytes take 1,879,048,192 B / 450 GB/s = 4.1757 ms at that speed; t is 4.2 ms.
"""

# 1048576 / 4 / 3 = 87381 whole elements; 3 x 349524 = 1048572; 2/3 of it is 699048.
ALL_GATHER = """\
all_gather float32 out_of_place, 1048572 B, on 3 ranks: every rank gets every rank's block

size      S = 1,048,572 bytes: the larger of what one rank's call sends and receives, as nccl-tests
          prints it.
          It is cut into n = 3 blocks, one per rank: S/n = 1,048,572/3 = 349,524 bytes, 87,381
          elements of float32 (count).
          A rank's send buffer holds one block, its receive buffer S.
          1,048,576 bytes were asked for, and rounded down to 3 whole blocks.
time      t = 200 us, pipelined: calls back to back, as nccl-tests makes them: many are queued, and
          the time of all is divided by their number. What launching costs hides behind the call
          before, so small sizes take less than a call alone.
algbw     S / t = 1,048,572 B / 200 us = 5.2429 GB/s (1 GB is 10⁹ bytes)
          How fast a call gets its data done; not the speed of any link.
busbw     algbw x (n-1)/n = 5.2429 x (3-1)/3 = 5.2429 x 0.66667 = 3.4952 GB/s
          Why: (n-1)/n x S = 699,048 bytes have to pass some rank's link one way, whichever
          algorithm runs. busbw is the least speed that link had. So it can be held against the
          link's own speed, and compared between numbers of ranks; algbw cannot.
latency   At least ceil(log2 n) = ceil(log2 3) = 2 messages have to follow one another, however few
          the bytes. Small sizes wait for that, and their bandwidth says nothing of a link.
peak      None given. --peak 450GB/s, or a link of `commbench links`, holds busbw against it.
"""

BARRIER = """\
barrier, on 1 rank: no rank leaves before all have entered

time      t = 3 us, isolated: each call alone. Ranks come together first, then call once and wait
          for the result; the slowest rank counts, and t is the median over the calls. So long a
          program waits for its result; what launching costs is in it.
busbw     It moves no data, and has no bandwidth: the time is all there is.
latency   With one rank there is no message to wait for.
peak      50 GB/s one way per rank.
          There is no percentage: it has no bandwidth.
"""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("all_reduce --ranks 8 --size 1G --time 4.2ms --peak nvlink4", ALL_REDUCE),
        ("all-gather --ranks 3 --size 1M --time 200us --timing pipelined", ALL_GATHER),
        ("barrier --ranks 1 --time 3us --peak 400Gbps", BARRIER),
    ],
)
def test_a_quoted_time_is_explained_with_its_figures(
    commbench: Commbench, line: str, text: str
) -> None:
    assert explained(commbench, line) == text


# What follows `peak` of 1 GiB in 3.9 ms: 275.32 x 1.75 = 481.81; 275.32 / 450 = 61.2 %.
REDUCED_BY_THE_SWITCH = """\
          busbw / peak = 481.81 / 450 = 107 %, by the bus bandwidth bound: some link carried busbw.
          Those bytes take 1,879,048,192 B / 450 GB/s = 4.1757 ms at that speed; t is 3.9 ms.
          More than 100 % is no error here. A network that itself reduces (NVLS, SHARP) moves about
          S each way, not 1.75 x S, so that 1.75 times the peak is the limit. Of that limit it is
          algbw / peak = 61.2 %.
"""
# 275.32 x 1.75 / 250: more than even S each way takes.
TOO_FAST = """\
          busbw / peak = 481.81 / 250 = 193 %, by the bus bandwidth bound: some link carried busbw.
          Those bytes take 1,879,048,192 B / 250 GB/s = 7.5162 ms at that speed; t is 3.9 ms.
          More than 100 % cannot be. Is the peak that of one link among several, or of another link?
          Or is t not the time of the whole call?
"""
# The published 376.71 GB/s of 4 x 8 B200: 194.43 x 2 x 3/4 = 291.65.
BETWEEN_NODES = """\
          1.5 x S have to enter or leave some of the 4 nodes, whichever algorithm runs, unless the
          network itself reduces. 1.5 x algbw / peak = 291.65 / 400 = 72.9 %, by the node bandwidth
          bound.
          Those bytes take 25,769,803,776 B / 400 GB/s = 64.425 ms at that speed; t is 88.36 ms.
"""
WRONG_KIND_OF_PEAK = """\
          busbw / peak = 376.71 / 50 = 753 %, by the bus bandwidth bound: some link carried busbw.
          Those bytes take 33,285,996,544 B / 50 GB/s = 665.72 ms at that speed; t is 88.36 ms.
          More than 100 % cannot be. Is the peak that of one link among several, or of another link?
          Or is t not the time of the whole call? Or the peak is of the network between nodes, while
          most bytes stay within a node: then say what a whole node has, such as --peak
          400GB/s/node.
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
all_reduce float32 sum in_place, 1 KiB, on 2 ranks: every rank gets all ranks' tensors reduced

where     2 gloo ranks on example (Example Processor), torch 2.13.0+cpu, cpu mode quiet,
          2026-11-21T00:00:00+00:00.
size      S = 1,024 bytes: the larger of what one rank's call sends and receives, as nccl-tests
          prints it.
          It is one tensor: 256 elements of float32 (count).
          A rank's send buffer holds S, its receive buffer S; in place, they share memory.
time      t = 50.3 us, isolated: each call alone. Ranks come together first, then call once and wait
          for the result; the slowest rank counts, and t is the median over the calls. So long a
          program waits for its result; what launching costs is in it.
          There were 10 iterations. The 95 % interval of the median is 48.3 us to 55.3 us
          (± 6.96 %).
          Sampling stopped (budget) because the time for one case was used up before the interval
          became narrow enough.
          3 elements of the result were wrong: trust nothing here.
algbw     S / t = 1,024 B / 50.3 us = 0.020358 GB/s (1 GB is 10⁹ bytes)
          How fast a call gets its data done; not the speed of any link.
busbw     algbw x 2(n-1)/n = 0.020358 x 2(2-1)/2 = 0.020358 x 1 = 0.020358 GB/s
          Why: 2(n-1)/n x S = 1,024 bytes have to pass some rank's link one way, whichever algorithm
          runs. busbw is the least speed that link had. So it can be held against the link's own
          speed, and compared between numbers of ranks; algbw cannot.
latency   At least ceil(log2 n) = ceil(log2 2) = 1 message has to follow one another, however few
          the bytes. Small sizes wait for that, and their bandwidth says nothing of a link.
peak      None given. --peak 450GB/s, or a link of `commbench links`, holds busbw against it.
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

where     2 gloo ranks on example (Example Processor), torch 2.13.0+cpu, cpu mode quiet,
          2026-11-21T00:00:00+00:00.
size      S: the larger of what one rank's call sends and receives, as in nccl-tests.
count     Elements of the tensor, or of one rank's block where S is cut into blocks.
time      t: per iteration the slowest rank, then the median over the iterations.
interval  Where the true median of this run lies with 95 % confidence. A wide one: noise.
n         Iterations timed.
algbw     S / t: how fast the data of a call get done.
busbw     algbw x factor: what a rank's link had to carry at least; compare that to a link.
wrong     Elements of the result that differ from what they must be; empty: not checked.
timing    isolated: each call alone. Ranks come together first, then call once and wait for the
          result; the slowest rank counts, and t is the median over the calls. So long a program
          waits for its result; what launching costs is in it.

all_reduce float32 sum in_place: every rank gets all ranks' tensors reduced. S = 4 KiB, t
= 8.286 ms, isolated, 3 iterations. algbw = S / t = 0.00049433 GB/s. busbw = algbw x 2(n-1)/n
= 0.00049433 x 1 = 0.00049433 GB/s (n = 2). That is 0.049 % of 1 GB/s (bus bandwidth bound).

barrier: no rank leaves before all have entered. t = 5.5963 ms, isolated, 3 iterations. It has no
bandwidth.

That is the largest size of each kind. For others, with everything about them: commbench explain run
--op OP --size SIZE
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
        "\ntime      Nothing was timed. The case is unsupported: gloo refuses it\n"
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
        "barrier moves no data, and --size 8 says nothing of it",
        "leave --size out",
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
        "--op all_reduce is for a run, and all_reduce is none",
        "leave --op out",
    ),
    "all_reduce --peak 450": (
        "peak '450' has no unit",
        "write 450GB/s (bytes), 450Gbit/s (bits), or a name of `commbench links`",
    ),
    "all_redcue --ranks 8": (
        "'all_redcue' is neither an operation nor a run",
        "did you mean all_reduce? known: all_reduce, all_gather, reduce_scatter, broadcast, "
        "all_to_all, reduce, gather, scatter, send_recv, barrier; a run is a folder, its "
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
