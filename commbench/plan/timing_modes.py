"""The table of timing modes: how calls are timed. Adding a mode is adding one entry here.

An iteration is what one pair of time stamps encloses: a number of calls, one after another. The
ranks are aligned before each iteration. An entry says everything about its mode, and nothing else
in the program tests its name.
"""

from __future__ import annotations

from typing import NamedTuple

from commbench.validation import by_name

ISOLATED = "isolated"
PIPELINED = "pipelined"
BOTH = "both"


class TimingMode(NamedTuple):
    """One way of timing the calls of a case."""

    name: str
    help: str = ""
    """What it is, for `--help`, after its name."""
    tag: str = ""
    """What the title of a case says of it; empty for the usual mode."""
    heading: str = ""
    """What it is called at the head of a column that compares modes."""
    summary: str = "slowest rank, median"
    """What a time is, for the head of a table."""
    explanation: str = "An unknown timing mode."
    """What a time means, in sentences."""
    nccl_tests: str = ""
    """How it differs from what nccl-tests does."""
    most_calls: int = 1
    """Calls in one iteration, at most; the times of an iteration are divided by their number."""
    longest_s: float = 0.0
    """Seconds that those calls may last together; a longer call is made less often, at least
    twice."""
    has_entry_skew: bool = False
    """Whether the time from the first to the last rank's entry is a part of every call."""
    in_both: bool = False
    """Whether `both` measures it."""

    def calls_per_iteration(self, call_s: float) -> int:
        """How many calls an iteration holds if one takes `call_s` seconds; 0: not known."""
        if self.most_calls == 1 or not call_s:
            return self.most_calls
        return max(2, int(min(self.most_calls, self.longest_s / call_s)))


TIMING_MODES = by_name(
    TimingMode(
        name=ISOLATED, help="each call alone, ranks aligned first", heading="alone",
        summary="each call alone, slowest rank, median",
        explanation="Each call is timed alone. The ranks are aligned, call once and wait for "
        "the result. The slowest rank counts, and t is the median of the calls. On a CPU this is "
        "the time that a program waits for a result, with the cost of launching the call; on a "
        "GPU it is that of the kernels, without it.",
        nccl_tests="each call alone; slowest rank of each iteration, median over iterations "
        "(nccl-tests: calls queued, mean over ranks)",
        has_entry_skew=True, in_both=True,
    ),
    TimingMode(
        name=PIPELINED, help="back to back, as nccl-tests does", tag="pipelined",
        heading="back to back",
        summary="calls back to back, slowest rank, median",
        explanation="Many calls are queued back to back, as in nccl-tests, and their time is "
        "divided by their number. The cost of launching a call overlaps with the call before "
        "it, so small sizes take less time than a single call.",
        nccl_tests="calls back to back, time of one; slowest rank of each iteration, median "
        "over iterations (nccl-tests: one iteration, mean over ranks)",
        most_calls=20, longest_s=20e-3, in_both=True,  # 20 calls, as nccl-tests
    ),
)  # fmt: skip

DEFAULT_TIMING = next(iter(TIMING_MODES))
TIMING_CHOICES = (*TIMING_MODES, BOTH)
TIMING_HELP = "; ".join(f"{mode.name}: {mode.help}" for mode in TIMING_MODES.values())


EAGER = "eager"
GRAPH = "graph"
LAUNCH_MODES = (EAGER, GRAPH)
"""How the calls of an iteration reach a device: each queued by itself, or all as one CUDA graph,
which was captured before and costs the host one launch."""
LAUNCH_CHOICES = (*LAUNCH_MODES, BOTH)


def expand_launch(choice: str) -> tuple[str, ...]:
    """The launch modes that a choice of LAUNCH_CHOICES stands for."""
    return LAUNCH_MODES if choice == BOTH else (choice,)


def expand_timing(choice: str) -> tuple[str, ...]:
    """The modes of a choice of TIMING_CHOICES, in the order of the table."""
    if choice == BOTH:
        return tuple(mode.name for mode in TIMING_MODES.values() if mode.in_both)
    return (choice,)


def describe_timing(name: str) -> TimingMode:
    """The mode of that name. A file may name one that is not known here: it gets an entry that
    says no more than its name."""
    return TIMING_MODES.get(name) or TimingMode(name, tag=name, nccl_tests=name)
