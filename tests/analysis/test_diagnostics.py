"""Warnings: each on a row that is made up just above its threshold, and just below it."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, sqrt
from typing import Any

import numpy
import pytest
from synthetic_rows import batches, ranks, row, written_row

from commbench.analysis.clearer import more_time
from commbench.analysis.diagnostic_figures import RISEN, is_of_launches, ranks_per_core
from commbench.analysis.diagnostics import (
    DIAGNOSTICS,
    Diagnostic,
    diagnose_row,
    find_causes,
    waited_hint,
    waited_launches,
)
from commbench.analysis.nccl_log import SELECTIONS, selection_key
from commbench.analysis.rows import ResultRow, make_row
from commbench.plan.computations import AT_ONCE
from commbench.plan.plan import CPU_MODES
from commbench.results.records import RankInfo
from commbench.results.schema import IN_PROCESS, IN_SWEEP, Batch

BY_NAME = {diagnostic.name: diagnostic for diagnostic in DIAGNOSTICS}
MS = 1e-3
WIDE = batches(*[[0.5 * MS, MS, 1.5 * MS]] * 5)


def names(found: ResultRow) -> list[str]:
    return [diagnostic.name for diagnostic in diagnose_row(found)]


def described(name: str, *rows: ResultRow) -> str:
    """What a diagnostic says of rows that it applies to."""
    return BY_NAME[name].describe([(found, diagnose_row(found)[BY_NAME[name]]) for found in rows])


def steady(iterations: int = 100, **same: Any) -> tuple[Batch, ...]:
    """Five batches that take 1 ms, give or take 2 %, and have nothing in their way."""
    nothing: dict[str, Any] = {
        "elapsed_s": 0.1, "queued_s": 0.0, "throttled_s": 0.0, "stolen_s": 0.0,
        "entry_skew_s": 0.06 * MS, "operation_s": 0.94 * MS, "last_in": (iterations // 2,) * 2,
        "rank_behind_s": (0.03 * MS, 0.03 * MS), "rank_medians_s": (MS, MS),
    }  # fmt: skip
    samples = [MS * (1 + 0.02 * (i * 7 % 11 - 5) / 5) for i in range(iterations)]
    return batches(*[samples] * 5, **(nothing | same))


def clean(*found: Batch, **wishes: Any) -> ResultRow:
    """A row of two ranks with a core each and a fine clock."""
    usual: dict[str, Any] = {
        "ranks": ranks((0,), (1,)), "overhead_s": 1e-7, "resolution_s": 1e-9
    }  # fmt: skip
    return row(*(found or steady()), **(usual | wishes))


def crowded(ranks_per_core: float) -> ResultRow:
    cores = tuple(range(100))
    return clean(ranks=ranks(*[cores] * round(100 * ranks_per_core)))


def computing(threads_per_core: float) -> ResultRow:
    """The ranks communicate and compute at once: each has two threads."""
    found = crowded(threads_per_core / 2)
    case = found.measurement.case._replace(part=AT_ONCE)
    return make_row(found.header, found.measurement._replace(case=case))


def stalled(share: float) -> ResultRow:
    """Of 500 iterations this share takes 5 ms, in each batch a fifth of them, or nearly."""
    number = round(500 * share)
    found = [number // 5 + (batch < number % 5) for batch in range(5)]
    return clean(*batches(*[[5 * MS] * n + [MS] * (100 - n) for n in found]))


def drifting(by: float) -> ResultRow:
    """Ten batches, each slower than the one before, so that the halves differ by this much."""
    slower = [by * (batch - 4.5) / 5 for batch in range(10)]
    return clean(*batches(*[[MS * (1 + s + 1e-6 * i) for i in range(20)] for s in slower]),
                 precision=0.9)  # fmt: skip


def in_two_groups(apart: float) -> ResultRow:
    """Two groups in turn, `apart` times as far from each other as each is wide, on a log scale."""
    places, step = (-1.3, -0.5, 0.0, 0.5, 1.3), 0.05
    width = sqrt(sum(place**2 for place in places) / 5)
    logs = [step * (place + side * apart * width) for place in places for side in (0, 1)]
    return clean(*batches(*[[MS * exp(value) for value in logs * 8]] * 5), precision=0.9)


def one_is_last(share: float) -> ResultRow:
    times = round(1000 * share)
    return clean(*steady(last_in=(1000 - times, times)))


def above_link(times: float) -> ResultRow:
    """1024 bytes in 1 ms are 1.024 MB/s, so many times what the link can carry."""
    return clean(peak=f"{1.024 / times:.9f}MB/s")


def imprecise(times: float) -> ResultRow:
    """The interval, from 0.96 to 1.04 ms, is so many times as wide as was asked for."""
    return clean(*batches(*[[0.96 * MS, MS, 1.04 * MS]] * 5), precision=0.04 / times)


def in_rounds(apart: float, **plan: int) -> ResultRow:
    """Two rounds whose log medians have this standard deviation."""
    later = batches(*[[MS * exp(sqrt(2) * apart)] * 100] * 5, launch=1)
    return clean(*batches(*[[MS] * 100] * 5), *later, precision=0.9, **plan)


def launched(apart: float) -> ResultRow:
    return in_rounds(apart, launches=2)


def with_variables(number: float) -> ResultRow:
    """This many NCCL_* variables are set, and others that gloo or torch read."""
    read = {"GLOO_SOCKET_IFNAME": "lo", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    idle = {f"NCCL_NAME_{i}": "1" for i in range(round(number))}
    return clean(environment={"variables": read | idle})


def queued_late(share: float) -> ResultRow:
    """On a device; the host needs a tenth of the iteration to queue it."""
    return clean(*steady(500, enqueue_s=0.1 * MS, late_iterations=round(500 * share)))


def on_gpus(share_throttled: float) -> ResultRow:
    """Of 1000 batches this share, with a GPU that the power cap throttles."""
    found = batches(*[[MS, 1.01 * MS]] * 1000, clock_mhz=1980)
    late = round(1000 * share_throttled)
    throttled = [batch._replace(throttle_reasons=("power cap",)) for batch in found[:late]]
    return clean(*throttled, *found[late:], precision=0.9)


def at_clocks(spread: float) -> ResultRow:
    """The GPU's clock is higher by this much in the last batch."""
    *first, last = steady(clock_mhz=1000)
    return clean(*first, last._replace(clock_mhz=round(1000 * (1 + spread))))


def with_differences(number: float) -> ResultRow:
    """A rank has this many variables that rank 0 has otherwise."""
    others = {f"NCCL_NAME_{i}": "1" for i in range(round(number))}
    return clean(environment={"other_variables": {"rank 1": others}})


def in_windows(is_unused: float) -> ResultRow:
    """In symmetric memory, with NCCL's log of the call."""
    found = clean()
    case = found.measurement.case._replace(memory="symmetric")
    used = ["RING" if is_unused else "SYMMETRIC", "", ""]
    facts = {SELECTIONS: {selection_key(case): [used]}}
    header = found.header._replace(environment=found.header.environment | facts)
    return make_row(header, found.measurement._replace(case=case))


def with_faults(number: float) -> ResultRow:
    """So many counters rose."""
    risen = {f"mlx5_{i}:1 link_downed": 2 for i in range(round(number))}
    return clean(environment={RISEN: {"node1": risen}})


def far_from_gpus(number: float) -> ResultRow:
    """So many of three ranks may run on a core that is not near their GPU; of one it is unknown."""
    near = [r._replace(numa_node=0, near_cores=2) for r in ranks((0, 1), (2, 3))]
    far = ranks((0, 1))[0]._replace(rank=2, numa_node=1, near_cores=1)
    return clean(ranks=(*near, *ranks((4,)), *[far] * round(number)))


EDGES: dict[str, tuple[Callable[[float], ResultRow], float, float]] = {
    "above_link": (above_link, 1.004, 1.006),
    "unread_variables": (with_variables, 0, 1),
    "different_variables": (with_differences, 0, 1),
    "faults": (with_faults, 0, 1),
    "far_from_gpu": (far_from_gpus, 0, 1),
    "too_few_cores": (crowded, 1.0, 1.01),
    "overlap_cores": (computing, 1.0, 1.02),
    "not_symmetric": (in_windows, 0, 1),
    "throttled": (lambda share: clean(*steady(throttled_s=share * 0.1)), 0.0099, 0.0101),
    "stolen": (lambda share: clean(*steady(stolen_s=share * 0.1)), 0.0499, 0.0501),
    "gpu_throttled": (on_gpus, 0.1, 0.101),
    "gpu_clocks": (at_clocks, 0.099, 0.101),
    "stalls": (stalled, 0.050, 0.052),
    "queued": (lambda share: clean(*steady(queued_s=share * 0.1)), 0.399, 0.401),
    "waits": (
        lambda share: clean(*steady(queued_s=share * 0.1), cpu_mode="realtime"),
        0.299,
        0.301,
    ),
    "launches": (launched, 0.049, 0.051),
    "rounds": (in_rounds, 0.049, 0.051),
    "drift": (drifting, 0.099, 0.101),
    "bimodal": (in_two_groups, 3.99, 4.01),
    "skew": (lambda share: clean(*steady(entry_skew_s=share * MS)), 0.099, 0.101),
    "always_last": (one_is_last, 0.900, 0.901),
    "launch_bound": (queued_late, 0.1, 0.102),
    "coarse_clock": (lambda times: clean(resolution_s=times * 0.1 * MS), 0.999, 1.001),
    "imprecise": (imprecise, 0.999, 1.001),
}
"""For each warning a row that is made so that the warning's figure is a given number, and two
numbers on either side of its threshold."""


def test_every_warning_is_tried_on_both_sides_of_its_threshold() -> None:
    assert list(EDGES) == [diagnostic.name for diagnostic in DIAGNOSTICS]
    for name, (_, below, above) in EDGES.items():
        assert below <= BY_NAME[name].threshold < above
        whole = name.endswith(("_variables", "_symmetric", "faults", "_gpu"))
        assert above - below <= max(0.05 * above, 1 if whole else 0)


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("name", EDGES)
def test_a_warning_fires_just_above_its_threshold_and_not_just_below(name: str) -> None:
    make, below, above = EDGES[name]
    for figure, expected in ((below, []), (above, [name])):
        found = make(figure)
        assert BY_NAME[name].figure(found) == pytest.approx(figure, rel=1e-4)
        assert names(found) == expected


def test_a_clean_row_has_no_warning_and_every_figure() -> None:
    found = clean()
    assert names(found) == []
    unknown = [diagnostic.name for diagnostic in DIAGNOSTICS if diagnostic.figure(found) is None]
    # Nothing is said of drift and of two groups where neither is seen, nor of one launch's spread.
    # No link was named, no rank computed, no memory was symmetric, and nothing was queued on a
    # device, nor was the state of one known.
    assert unknown == [
        "above_link", "overlap_cores", "not_symmetric", "gpu_throttled", "gpu_clocks", "waits",
        "launches", "rounds", "drift", "bimodal", "launch_bound",
    ]  # fmt: skip


def test_what_was_not_measured_is_not_warned_about() -> None:
    assert diagnose_row(row(ranks=ranks((0,), (0,)))) == {}


TWO = batches(*[[MS] * 50 + [3 * MS] * 50] * 4)


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize(
    ("name", "found", "text"),
    [
        ("imprecise", imprecise(5.0), "try --budget 2"),
        ("imprecise", clean(*WIDE, budget_s=3.0), "0.50 … 1.5 times"),
        ("imprecise", clean(*WIDE, budget_s=3.0), "try --budget 30"),
        ("imprecise", clean(*WIDE, budget_s=3.0, launcher=IN_PROCESS), "try measure(budget=30)"),
        ("bimodal", clean(*TWO), "look at p5"),
        ("coarse_clock", clean(resolution_s=MS, launcher=IN_PROCESS),
         'use measure(timing="pipelined")'),
        ("unread_variables", with_variables(2), "NCCL_NAME_0 and 1 more; unset it"),
        ("faults", with_faults(3), "mlx5_0:1 link_downed rose by 2 and 2 more; the link went down"),
        ("far_from_gpu", far_from_gpus(1), "rank 2 may run far from its GPU"),
        ("gpu_throttled", on_gpus(0.5), "(power cap)"),
        ("stalls", clean(*batches((MS,) * 9 + (9 * MS,))), "--cpu-mode realtime"),
        ("skew", clean(*steady(entry_skew_s=0.5 * MS)), "50 % of the"),
        ("skew", clean(*steady(entry_skew_s=3 * MS)), "3 times the"),
    ],
)  # fmt: skip
def test_a_message_names_what_it_is_about_and_an_option_that_was_not_used_yet(
    name: str, found: ResultRow, text: str
) -> None:
    assert text in described(name, found)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (1, "launches differ by 9 % (standard deviation); try --launches 6"),
        # The interval is as narrow as --precision asks for.
        (40, "launches differ by 7 % (standard deviation)"),
    ],
)
def test_launches_differ_as_much_where_they_are_many(times: int, said: str) -> None:
    factors = [1.0, 1.1, 1.2] * times
    own = [b for n, f in enumerate(factors) for b in batches(*[[MS * f] * 20] * 5, launch=n)]
    assert described("launches", clean(*own, launches=len(factors))) == said


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ([1.0, 1.02, 1.5], ": launch 3 took 1.5 times as long as the others; "),
        ([0.6, 1.0, 1.02, 1.05], ": launch 1 took 0.59 times as long as the others; "),
        ([1.0, 1.1, 1.3], "; "),
        ([1.0, 1.5], "; "),
    ],
)
def test_a_launch_that_alone_differs_is_named(factors: list[float], said: str) -> None:
    own = [b for n, f in enumerate(factors) for b in batches(*[[MS * f] * 20] * 5, launch=n)]
    found = described("launches", clean(*own, launches=len(factors)))
    assert f"(standard deviation){said}try --launches" in found


@pytest.mark.parametrize(
    ("shares", "said", "waited"),
    [
        ([0.05, 0.05, 0.3], " (its ranks waited for a core 30 % of the time, theirs 5 %)", [3]),
        ([0.3, 0.3, 0.3], "", []),
        ([0.05, 0.05, 0.2], "", []),
    ],
)
def test_that_ranks_waited_in_that_launch_is_named(
    shares: list[float], said: str, waited: list[int]
) -> None:
    own = []
    for n, (factor, share) in enumerate(zip((1.0, 1.02, 2.0), shares, strict=True)):
        made = batches(*[[MS * factor] * 20] * 5, launch=n)
        own += [batch._replace(elapsed_s=0.1, queued_s=0.1 * share) for batch in made]
    row = clean(*own, launches=3)
    advice = "" if waited else "; try --launches 6"  # more launches are no use where one waited
    assert described("launches", row).endswith(f"as long as the others{said}{advice}")
    assert waited_launches(row.measurement) == waited


def test_each_launch_weighs_the_same_in_the_part_of_the_time_that_ranks_waited() -> None:
    """A launch that is disturbed makes fewer calls in the same time."""
    calm = batches(*[[MS] * 90] * 2, elapsed_s=0.1, queued_s=0.0, launch=0)
    slow = batches(*[[9 * MS] * 10] * 2, elapsed_s=0.1, queued_s=0.06, launch=1)
    assert clean(*calm, *slow, launches=2).queued_share == pytest.approx(0.3)


TRY_REALTIME = (
    "Use an idle host, or --cpu-mode realtime (root or CAP_SYS_NICE); `commbench doctor` tries "
    "every mode."
)
USE_CORES = "Use an idle host, with a core for each rank."


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([clean()], TRY_REALTIME),
        ([clean(), clean(launches=3)], TRY_REALTIME),
        ([clean(cpu_mode="realtime")],
         "Use an idle host: interrupts, or other programs with realtime priority, had the cores."),
        ([crowded(1.5)], "Give each rank a core."),
        ([clean(overlap=("none", "matmul:8x8x8"))],
         "Use an idle host, with two cores for each rank, which --overlap needs."),
        (
            [clean(launcher=IN_PROCESS)],
            "Use an idle host, and bind each rank to a core of its own: measure() binds none.",
        ),
        ([clean(backend="nccl", device="cuda")], USE_CORES),
        ([clean(), clean(cpu_mode="realtime")], USE_CORES),
        ([], USE_CORES),
    ],
)  # fmt: skip
def test_advice_against_waiting_follows_from_the_run(rows: list[ResultRow], hint: str) -> None:
    assert waited_hint(found.header for found in rows) == hint


def test_variables_of_nccl_are_read_by_nccl_and_damaged_counters_are_none() -> None:
    with_nccl = {"environment": {"variables": {"NCCL_ALGO": "RING"}}}
    assert names(clean(backend="nccl", device="cuda", **with_nccl)) == []
    assert names(clean(backend="of_another_vendor", **with_nccl)) == []
    for damaged in (5, {"node1": 5}):
        assert names(clean(environment={RISEN: damaged})) == []


def test_a_figure_of_about_1_is_a_percentage() -> None:
    wide = row(*batches((MS,) * 18))
    said = [BY_NAME["drift"].describe([(wide, worst)]) for worst in (0.5, 1.0, 1.04, 1.4)]
    parts = [text.partition("by ")[2].partition(" the")[0] for text in said]
    assert parts == ["50 % of", "100 % of", "104 % of", "1.4 times"]


@pytest.mark.parametrize("diagnostic", DIAGNOSTICS, ids=lambda diagnostic: diagnostic.name)
def test_texts_are_short_and_in_a_job_name_no_option_of_the_command_line(
    diagnostic: Diagnostic,
) -> None:
    samples = batches((MS,) * 9 + (1.5 * MS,) * 9)
    message = diagnostic.describe([(row(*samples, peak="1GB/s"), 0.999)])
    assert len(f"  {diagnostic.name} (85 rows): {message}") <= 100
    explained = diagnostic.explanation
    assert explained.endswith(".") and "  " not in explained
    assert len(f"{diagnostic.name}: {explained}") <= 142  # three lines, with the names of rows
    if diagnostic.name in ("launches", "rounds"):
        return  # a measurement in a job is one launch
    in_job = [row(*samples, launcher=IN_PROCESS, cpu_mode=mode) for mode in CPU_MODES]
    assert " --" not in diagnostic.describe([(each, 0.999) for each in in_job]) + explained


@pytest.mark.parametrize("name", ["queued", "drift", "imprecise", "not_symmetric", "coarse_clock"])
def test_an_option_that_resuming_a_sweep_does_not_take_is_one_of_a_new_sweep(name: str) -> None:
    both = [
        BY_NAME[name].describe([(row(*batches((MS,) * 18), launcher=launcher), 0.999)])
        for launcher in ("local", IN_SWEEP)
    ]
    assert both[0].replace(" --", " a new sweep with --") == both[1] != both[0]


def test_a_warning_that_another_one_explains_is_neither_shown_nor_recorded() -> None:
    crowd = clean(*steady(queued_s=0.09, entry_skew_s=0.5 * MS), ranks=ranks(*[(0, 1)] * 4))
    assert [diagnostic.name for diagnostic in find_causes(crowd)] == ["too_few_cores"]
    assert written_row(crowd)["warnings"] == "too_few_cores"
    waits = clean(*steady(queued_s=0.09, entry_skew_s=0.5 * MS), ranks=ranks((0,), (1,)))
    assert [diagnostic.name for diagnostic in find_causes(waits)] == ["queued"]
    known = {diagnostic.name for diagnostic in DIAGNOSTICS}
    assert all(known.issuperset(diagnostic.explained_by) for diagnostic in DIAGNOSTICS)


@pytest.mark.parametrize(
    ("cores", "expected"),
    [([(0,), (1,)], 1.0), ([(0,), (1,), (0,)], 2.0), ([(0, 1), (0, 1)], 1.0),
     ([(0, 1)] * 3, 1.5), ([(0,), (0, 1)], 1.0), ([(0,), (0,), (1, 2, 3)], 2.0),
     ([(0,), ()], None), ([], None)],
)  # fmt: skip
def test_ranks_share_a_core_by_number_or_by_pinning(
    cores: list[tuple[int, ...]], expected: float | None
) -> None:
    assert ranks_per_core(clean(ranks=ranks(*cores)).header) == expected


def test_the_most_crowded_host_counts_and_cores_of_different_hosts_are_different() -> None:
    here, there = ranks((0,), (1,)), (RankInfo(2, "other", 1, "cpu", (0,)),)
    assert ranks_per_core(clean(ranks=here + there).header) == 1.0
    assert ranks_per_core(clean(ranks=here + there * 2).header) == 2.0
    assert ranks_per_core(clean(ranks=here * 2, backend="nccl", device="cuda").header) is None


def test_precision_that_nobody_asked_for_is_not_missed() -> None:
    assert names(clean(*WIDE)) == ["imprecise"]
    assert names(clean(*WIDE, iterations=15)) == []


def test_launches_that_differ_need_no_more_samples() -> None:
    found = [b for n in range(3) for b in batches(*[[MS * (1 + 0.2 * n)] * 100] * 5, launch=n)]
    made = clean(*found, launches=3, precision=0.01)
    assert names(made) == ["launches", "imprecise"]
    assert [is_of_launches(each) for each in (made, clean(*WIDE))] == [True, False]


SHORT = batches(*[[8e-6 * (1 + 0.002 * i) for i in range(50)]] * 5)
ON_GPU = {"backend": "nccl", "device": "cuda"}


@pytest.mark.parametrize(
    ("found", "overhead_s", "resolution_s", "more", "is_coarse"),
    [
        # Of an iteration of 1 ms, a twentieth is held against the overhead, a tenth against a step.
        (steady(), 4.9e-5, 0.0, {}, False), (steady(), 5.1e-5, 0.0, {}, True),
        (steady(), 0.0, 9e-5, {}, False),
        # On a device the step of its events counts, and not what two of them take.
        (SHORT, 2e-6, 0.5e-6, ON_GPU, False), (SHORT, 0.0, 1e-6, ON_GPU, True),
        # A pipelined iteration is long enough for a clock that one call is not.
        (batches(*[[20e-6] * 50] * 5), 1e-7, 4e-6, {}, True),
        (batches(*[[20e-6] * 50] * 5, calls=20), 1e-7, 4e-6, {"timing": "pipelined"}, False),
    ],
)  # fmt: skip
def test_a_clock_is_coarse_by_its_step_and_its_overhead(
    found: tuple[Batch, ...], overhead_s: float, resolution_s: float, more: dict[str, str],
    is_coarse: bool,
) -> None:  # fmt: skip
    made = clean(*found, overhead_s=overhead_s, resolution_s=resolution_s, **more)
    assert ("coarse_clock" in names(made)) is is_coarse


def test_skew_is_no_matter_where_calls_are_not_aligned() -> None:
    late = steady(entry_skew_s=0.5 * MS, last_in=(0, 100))
    assert names(clean(*late)) == ["skew", "always_last"]
    assert names(clean(*late, timing="pipelined")) == []


def test_a_root_may_always_be_last() -> None:
    late = steady(entry_skew_s=0.5 * MS, last_in=(0, 100))
    for root, named in ((0, ["skew", "always_last"]), (1, ["skew"])):
        found = clean(*late)
        case = found.measurement.case._replace(operation="gather", root=root)
        assert names(make_row(found.header, found.measurement._replace(case=case))) == named


def chance(*seed: int) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


def fires(name: str, *samples: Any) -> bool:
    return name in names(clean(*batches(*[part.tolist() for part in samples]), precision=0.99))


SINGLE: dict[str, Callable[[numpy.random.Generator, int], Any]] = {
    "lognormal, 5 %": lambda c, n: numpy.exp(0.05 * c.standard_normal(n)),
    "lognormal, 20 %": lambda c, n: numpy.exp(0.2 * c.standard_normal(n)),
    "lognormal, 100 %": lambda c, n: numpy.exp(c.standard_normal(n)),
    "uniform": lambda c, n: c.uniform(0.5, 1.5, n),
    "uniform from 0": lambda c, n: c.uniform(1e-6, 1, n),
    "exponential tail": lambda c, n: 1 + 0.3 * c.exponential(1, n),
}


@pytest.mark.parametrize("number", [20, 40, 100, 1000])
@pytest.mark.parametrize("shape", SINGLE)
def test_a_distribution_with_one_peak_is_hardly_ever_taken_for_two_groups(
    shape: str, number: int
) -> None:
    random, cases = chance(1, number), 200 if number < 1000 else 50
    found = sum(fires("bimodal", SINGLE[shape](random, number)) for _ in range(cases))
    assert found / cases <= 0.03


@pytest.mark.parametrize(
    ("number", "share", "times", "sigma", "least"),
    [(20, 0.5, 1.5, 0.02, 0.99), (20, 0.5, 2.0, 0.05, 0.99), (100, 0.3, 1.5, 0.05, 0.99),
     (100, 0.5, 3.0, 0.2, 0.95), (1000, 0.2, 1.5, 0.05, 0.99), (1000, 0.5, 3.0, 0.2, 0.99)],
)  # fmt: skip
def test_two_groups_are_seen(
    number: int, share: float, times: float, sigma: float, least: float
) -> None:
    random, cases = chance(2, number), 100
    found = 0
    for _ in range(cases):
        slower = numpy.where(random.random(number) < share, times, 1.0)
        found += fires("bimodal", slower * numpy.exp(sigma * random.standard_normal(number)))
    assert found / cases >= least


def test_more_time_is_more_iterations_where_their_number_was_given() -> None:
    # `commbench run --iters 20 --budget 2` is refused
    assert more_time(clean(*TWO, iterations=20).header) == "--iters 200"


def test_a_peak_with_a_long_flat_tail_is_no_two_groups() -> None:
    counts = [140, 286, 239, 112, 57, 43, 58, 43, 48, 43, 44, 49, 40, 35, 31]  # by 5 us from 90 us
    random = chance(6, 1)
    times = [random.uniform(90 + 5 * n, 95 + 5 * n, count) for n, count in enumerate(counts)]
    assert not fires("bimodal", numpy.concatenate(times))


@pytest.mark.parametrize("stalled", [1, 5, 10])
def test_two_groups_are_seen_among_stalled_calls_and_these_alone_are_no_group(stalled: int) -> None:
    random = chance(5, stalled)
    one = numpy.exp(0.005 * random.standard_normal(100))
    stalls = numpy.where(random.permutation(100) < stalled, random.choice((3.0, 8.0, 20.0), 100), 0)
    assert fires("bimodal", numpy.where(numpy.arange(100) < 44, 1.0, 2.0) * one + stalls)
    assert not fires("bimodal", one + stalls)


def test_a_trend_is_drift_and_the_same_batches_in_random_order_hardly_ever_are() -> None:
    random, cases = chance(4), 300
    trends = shuffles = 0
    for _ in range(cases):
        slower = numpy.linspace(1, 1.5, 12)[:, None]
        samples = slower * numpy.exp(0.1 * random.standard_normal((12, 20)))
        trends += fires("drift", *samples)
        shuffles += fires("drift", *random.permutation(samples))
    assert trends / cases >= 0.99
    assert shuffles / cases <= 0.02


def test_drift_is_told_in_either_direction_and_of_few_batches_only_where_all_agree() -> None:
    faster = [[MS * (1.4 - 0.1 * batch + 1e-6 * i) for i in range(20)] for batch in range(4)]
    step = *batches(*[[MS] * 20] * 5), *batches(*[[1.05 * MS] * 20] * 5, launch=1)
    for found, expected in (
        (batches(*faster), ["drift"]), (batches(*faster[:3]), []), (step, []),
        (batches(*(faster[i] for i in (0, 2, 1, 3))), []),
    ):  # fmt: skip
        assert names(clean(*found, precision=0.9)) == expected
