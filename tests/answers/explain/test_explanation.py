"""What rows are explained by: facts of recorded runs, and planted latencies and bandwidths, which
are found again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import planted
import pytest
from synthetic import header
from synthetic_replay import synthetic_replay
from synthetic_rows import batches, plan

from commbench.analysis.load import open_run
from commbench.analysis.rows import ResultRow, make_row, make_rows, relate_rows
from commbench.answers.cost.cost_models import find_algorithm, find_model, growth
from commbench.answers.cost.observations import group_shape
from commbench.answers.explain.bounds import BANDWIDTH, BOTH, UNDECIDED, find_bound, what_helps
from commbench.answers.explain.bounds import LATENCY as LATENCY_BOUND
from commbench.answers.explain.explanation import VIEW, answer, explain_row, explain_run
from commbench.answers.explain.facts import (
    BOUND,
    BY_MODEL,
    HALF,
    LATENCY_SHARE,
    MEASURED,
    NOT_KNOWN,
    TWICE_RANKS,
    TWICE_SIZE,
    Fact,
    bound_facts,
)
from commbench.plan.case import Case
from commbench.plan.operations import OPERATIONS
from commbench.results.schema import Measurement, ReportedTiming, Run, RunEnd, RunHeader
from commbench.stats import Estimate

RUNS = Path(__file__).parents[2] / "golden" / "data" / "runs"


def test_a_step_has_its_variant_but_no_bandwidth(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run", variants=["calls", "bucket:1M"]))
    found = explain_run(run)
    calls, bucket = (each for each in found.rows if each.get("step"))
    facts = {fact.name: fact for fact in calls.facts}
    assert facts["step"].how == "of the workload resnet"
    assert not {"busbw", "bound", "peak"} & facts.keys()
    assert bucket.get("variant") == "bucket:1M"
    said = " ".join(VIEW.write(found).split())
    assert "bucket:1M its neighbouring all_reduces cut into others of 1M" in said


@pytest.mark.usefixtures("launches_alike")
def test_a_form_of_a_call_is_explained_with_its_tensors_and_its_ratio() -> None:
    asked = plan(sizes=(1001,), tensors=("4",), forms=("separate",))
    header = RunHeader(plan=asked, label="made-up", started="", launcher="local")
    _, separate = relate_rows(
        [
            make_row(header, Measurement(case=case, status="ok", batches=batches((1e-4 * n,) * 6)))
            for n, case in enumerate(asked.cases(), start=2)
        ]
    )
    found = explain_row(separate)
    assert found.get("count") == "248 float32"
    assert found.get("asked for") == 1001
    assert (found.get("tensors"), found.get("form of the call")) == (4, "separate")
    assert found.get("over a direct call") == pytest.approx((1.5, 1.5, 1.5))


SIZES = tuple(1 << k for k in range(10, 27))
LATENCY, BETA = 50e-6, 1e-9


def line(case: Case) -> float:
    return LATENCY + BETA * case.size_bytes


def run(
    time: Callable[[Case], float] = line, sizes: tuple[int, ...] = SIZES, **more: object
) -> Run:
    """A run whose times are exact; of one host, whose ranks are not named."""
    nodes = more.pop("nodes", 1)
    asked = plan(sizes=sizes, **more)
    measurements = tuple(
        Measurement(case, "ok", reported=ReportedTiming(time(case), "mean"))
        for case in asked.cases()
    )
    own = header(asked, "planted")._replace(ranks=(), num_nodes=nodes)
    return Run("planted", own, measurements, RunEnd("complete"))


def facts_of(row: ResultRow, rows: Sequence[ResultRow], machine: Any = None) -> dict[str, Fact]:
    return {fact.name: fact for fact in bound_facts(row, rows, machine)}


def why_of(found: Run, size: int, machine: Any = None) -> dict[str, Fact]:
    rows = make_rows(found)
    return facts_of(next(row for row in rows if row.case.size_bytes == size), rows, machine)


def test_the_shares_of_a_planted_run_are_found() -> None:
    for size in SIZES:
        why = why_of(run(), size)
        assert why["latency"].value.value == pytest.approx(LATENCY, rel=1e-3)
        share = LATENCY / (LATENCY + BETA * size)
        assert why[LATENCY_SHARE].value.value == pytest.approx(share, rel=1e-3)
        assert why["model of t"].value == "50.00 us + S x 1.049 ms/MiB"
        assert "17 sizes, 1 KiB to 64 MiB" in why["model of t"].how


def test_a_small_call_is_latency_bound_and_a_large_one_bandwidth_bound() -> None:
    found = [why_of(run(), size) for size in (1 << 10, 1 << 16, 1 << 24)]
    assert [why[BOUND].value for why in found] == [LATENCY_BOUND, BOTH, BANDWIDTH]
    assert [why[TWICE_SIZE].how for why in found] == [MEASURED] * 3
    ratios = [why[TWICE_SIZE].value.value for why in found]
    assert ratios == pytest.approx([1.02, 1.57, 2.0], abs=0.01)
    last = why_of(run(), SIZES[-1])[TWICE_SIZE]
    assert last.how == f"{BY_MODEL}; above the measured sizes it may be off 2.4 times (95 %)"
    assert last.value.value == pytest.approx(2.0, abs=0.01)


def test_what_bounds_a_call_is_less_sure_where_the_times_scatter() -> None:
    def scattered(case: Case) -> float:
        return line(case) * (1.4 if case.size_bytes.bit_length() % 2 else 1.0)

    found = why_of(run(scattered, sizes=SIZES[2:8]), SIZES[7])
    low, high = found[LATENCY_SHARE].value.ends
    assert low < 0.4 < high < 0.6
    assert found[BOUND].value == "at least partly bandwidth-bound"
    low, high = found["latency"].value.ends
    assert low < LATENCY < high
    said = "At the highest busbw, the call is at least partly bandwidth-bound."
    assert said in VIEW.write(explain_run(run(scattered, sizes=SIZES[2:8])))
    shares = {0.3: "bandwidth-bound", 0.7: "latency-bound", 0.5: "bound by latency and bandwidth"}
    for share, bound in shares.items():
        assert find_bound(Estimate(share, share, share)) == bound
    assert find_bound(Estimate(0.65, 0.5, 0.9)) == "at least partly latency-bound"
    assert find_bound(Estimate(0.5, 0.3, 0.7)) == UNDECIDED
    found = why_of(run(lambda case: line(case) ** 2, sizes=SIZES[2:8]), SIZES[7])
    assert "no line fits these 6 times" in found[NOT_KNOWN].how
    assert BOUND not in found


@pytest.mark.parametrize(
    ("bound", "twice", "half", "helps"),
    [
        (BANDWIDTH, (2.25, 2.13, 2.41), None, "fewer bytes or a faster path help; larger calls do "
         "not help, and smaller ones may: twice the size takes 2.25 (2.13 … 2.41) times as long"),
        (BANDWIDTH, (2.0, 1.9, 2.1), (2.2, 2.1, 2.3), "fewer bytes or a faster path help; smaller "
         "calls may help: it takes 2.20 (2.10 … 2.30) times as long as half the size"),
        (LATENCY_BOUND, (2.6, 1.8, 3.6), None, "fewer calls help; larger calls may not help: twice "
         "the size takes 2.6 (1.8 … 3.6) times as long"),
        (BOTH, None, (2.1, 1.9, 2.3), "fewer bytes help; larger calls may not help: it takes 2.10 "
         "(1.90 … 2.30) times as long as half the size"),
        (BANDWIDTH, (2.0, 1.9, 2.1), None, "fewer bytes or a faster path help most"),
        (LATENCY_BOUND, (1.2, 1.1, 1.3), None, "fewer and larger calls help"),
    ],
)  # fmt: skip
def test_no_size_is_recommended_that_measured_times_speak_against(
    bound: str, twice: tuple[float, ...] | None, half: tuple[float, ...] | None, helps: str
) -> None:
    assert what_helps(bound, *(found and Estimate(*found) for found in (twice, half))) == helps


@pytest.mark.parametrize("other", ["", "all_gather"])
def test_a_note_names_its_operation_where_others_have_none(other: str) -> None:
    def bent(case: Case) -> float:
        slows = case.size_bytes.bit_length() % 2 == 1  # the largest is odd
        return line(case) * (4 if slows and case.operation == "all_reduce" else 1)

    operations = ("all_reduce", *filter(None, [other]))
    found = explain_run(run(bent, sizes=SIZES[2:8], operations=operations))
    named = " (all_reduce)" if other else ""
    assert f"{NOT_KNOWN}{named}: no line fits these 6 times" in " ".join(VIEW.write(found).split())


def test_the_row_with_the_highest_bus_bandwidth_is_explained() -> None:
    planted_run = run(lambda case: line(case) * (1 + (case.size_bytes == SIZES[7])), SIZES[:8])
    (found,) = explain_run(planted_run).rows
    assert found.row.case.size_bytes == SIZES[6]
    said = VIEW.write(explain_run(planted_run))
    assert "The size of the highest busbw is explained: --size chooses another." in said
    (largest,) = explain_run(planted_run, size=str(SIZES[7])).rows
    assert largest.row.case.size_bytes == SIZES[7]


@pytest.mark.parametrize(
    ("time", "said"),
    [("5.2ms", "The link bounds it"), ("4.2ms", "perhaps the library reduces in the network"),
     ("3.9ms", "A ring over this link cannot reach that: the library reduces"),
     ("2ms", "That is impossible")],
)  # fmt: skip
def test_the_link_bounds_a_call_only_up_to_what_rings_reach(time: str, said: str) -> None:
    found = answer(
        "all_reduce", None, "1G", "nvlink4", None, print,
        ranks=8, time=time, dtype=None, timing=None, nodes=None,
    )  # fmt: skip
    text = " ".join(VIEW.write(found).split())
    assert said in text
    assert ("The link bounds it" in text) == (time == "5.2ms")


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast"])
def test_one_rank_has_no_bandwidth_in_a_sentence(operation: str) -> None:
    found = answer(
        operation, None, "1G", None, None, print,
        ranks=1, time="1ns", dtype=None, timing=None, nodes=None,
    )  # fmt: skip
    said = f"{operation} of 1 GiB on 1 rank takes 1.00 ns. With one rank nothing is moved between"
    assert said in " ".join(VIEW.write(found).split())


def test_a_protocol_switch_makes_pieces_of_their_own() -> None:
    def switches(case: Case) -> float:
        if case.size_bytes <= 1 << 17:
            return 10e-6 + 4e-10 * case.size_bytes
        return 100e-6 + 1e-10 * case.size_bytes

    for size, latency_s, model, sizes in (
        (
            1 << 20,
            100e-6,
            "100.00 us + S x 104.9 us",
            "9 sizes, 256 KiB to 64 MiB",
        ),
        (1 << 12, 10e-6, "10.000 us + S x 419.4 us", "8 sizes, 1 KiB to 128 KiB"),
    ):
        why = why_of(run(switches), size)
        assert why["model of t"].value == f"{model}/MiB"
        assert sizes in why["model of t"].how
        assert why["latency"].value.value == pytest.approx(latency_s, rel=1e-3)


def test_twice_the_ranks_are_measured_where_the_run_has_groups_of_both() -> None:
    def time(case: Case) -> float:
        return line(case) * (1.7 if case.ranks == 4 else 1.0)

    asked = {"mesh": "dp=2,tp=4", "over": ("dp", "tp"), "concurrency": "alone"}
    why = why_of(run(time, sizes=(1 << 20,), world_size=8, **asked), 1 << 20)[TWICE_RANKS]
    assert (why.value.value, why.how) == (pytest.approx(1.7), MEASURED)


def test_one_number_of_ranks_gets_the_formula_of_the_backend_and_says_so() -> None:
    small, large = (why_of(run(), size)[TWICE_RANKS] for size in (1 << 10, 1 << 26))
    assert small.value == pytest.approx((1.0, 3.0), abs=0.05)
    assert large.value == pytest.approx((1.5, 1.5), abs=0.01)
    formula = "not measured; formula of gloo's algorithm: ring, T = fixed + 2(n-1) alpha"
    assert small.how.startswith(formula)


@pytest.mark.parametrize(
    ("backend", "operation", "selected", "model"),
    [
        ("gloo", "reduce_scatter", "", ("all_reduce", "ring")),
        ("gloo", "broadcast", "", ("broadcast", "binomial tree")),
        ("nccl", "all_reduce", "RING", ("all_reduce", "ring")),
        ("nccl", "all_reduce", "TREE", ("all_reduce", "double binary tree")),
        ("nccl", "all_gather", "PAT", ("all_gather", "pipelined tree")),
        ("nccl", "all_to_all", "", ("all_to_all", "pairwise")),
        ("nccl", "all_reduce", "", None), ("nccl", "all_reduce", "NVLS", None),
        ("nccl", "broadcast", "PAT", None), ("ucc", "all_reduce", "", None),
    ],
)  # fmt: skip
def test_the_algorithms_of_backends(
    backend: str, operation: str, selected: str, model: tuple[str, str] | None
) -> None:
    found = find_algorithm(backend, operation, selected)
    assert (found and found.formula) == (model and find_model(*model).formula)


def test_every_collective_of_gloo_has_an_algorithm() -> None:
    collectives = [name for name, o in OPERATIONS.items() if o.nccl_tests or name == "barrier"]
    assert [each for each in collectives if not find_algorithm("gloo", each)] == ["send_recv"]


def test_the_formula_of_more_ranks_is_worked_by_hand() -> None:
    ring = find_model("all_reduce", "ring")
    # 2(n-1): 14 -> 30 steps; 2(n-1)/n: 1.75 -> 1.875
    low, high = growth(ring, 1.0, 3.0, 8, 16)
    assert low == pytest.approx((1 + 3 * 1.875 / 1.75) / 4)
    assert high == pytest.approx((30 / 14 + 3 * 1.875 / 1.75) / 4)
    tree = find_model("broadcast", "binomial tree")
    assert growth(tree, 1.0, 1.0, 8, 16) == pytest.approx((1 / 2 + 4 / 6, 4 / 3))


def test_a_barrier_is_all_latency() -> None:
    why = why_of(run(lambda _: 20e-6, operations=("barrier",)), 0)
    assert (why[BOUND].value, why[LATENCY_SHARE].value.value) == (LATENCY_BOUND, 1)
    assert not {"model of t", TWICE_SIZE} & why.keys()
    assert why[TWICE_RANKS].value == pytest.approx((1.0, 2.0))


def test_wrong_results_and_sizes_that_hardly_differ_do_not_tell_latency_from_bandwidth() -> None:
    found = run()
    wrong = tuple(each._replace(status="wrong", wrong=3) for each in found.measurements)
    assert BOUND not in why_of(found._replace(measurements=wrong), 1 << 20)
    hardly_different = (1000 << 10, 1001 << 10, 1100 << 10)
    assert NOT_KNOWN in why_of(run(sizes=hardly_different), 1100 << 10)
    assert BOUND in why_of(run(sizes=(1000 << 10, 1500 << 10, 2000 << 10)), 2000 << 10)


def test_with_a_machine_its_models_are_compared_with_the_time() -> None:
    found = run(lambda _: 0.9e-3, sizes=(1 << 26,), world_size=64, nodes=8)
    (row,) = make_rows(found)
    assert group_shape(row.header, row.case) == (64, 8)
    why = facts_of(row, [row], planted.machine())
    assert why["predicted"].value == pytest.approx((700e-6, 660e-6, 740e-6), rel=0.01)
    assert why["predicted"].how == (
        "double binary tree (across hosts) of planted; t is 1.28 times that"
    )
    assert why[BOUND].value == BANDWIDTH
    assert why[LATENCY_SHARE].value.value == pytest.approx(0.057, abs=0.005)
    assert why[HALF].value.value == pytest.approx(40e-6 / (2 * 63 / 64 * 5e-12), rel=0.02)
    assert why[TWICE_SIZE].value.value == pytest.approx(1.9, abs=0.05)
    assert why[TWICE_SIZE].how == "by the model: 1.36 ms"
    assert why[TWICE_RANKS].value.value == pytest.approx(1.03, abs=0.02)


def test_of_several_models_the_one_that_describes_the_row_is_compared() -> None:
    models = [
        planted.inside(parameters=(n * 1e-3, 0.0, 0.0), variant=variant)
        for n, variant in enumerate(("bfloat16, sum", "float32, sum", "float32, max"), 1)
    ]  # fmt: skip
    predicted = why_of(run(sizes=(1 << 20,)), 1 << 20, planted.machine(*models))["predicted"]
    assert predicted.value.value == pytest.approx(2e-3)


def test_a_machine_without_a_model_of_the_call_says_why() -> None:
    why = why_of(run(sizes=(1 << 26,), operations=("all_gather",)), 1 << 26, planted.machine())
    assert {name: fact.value for name, fact in why.items()} == {"predicted": "not known"}
    how = "planted does not predict this call: planted has no model of all_gather"
    assert why["predicted"].how == how


def test_more_ranks_than_a_host_are_predicted_on_more_hosts_where_those_were_measured() -> None:
    found = run(sizes=(1 << 26,), world_size=8)
    for machine, times, how in (
        (planted.machine(), 2.1, "by the model, across hosts: "),
        (planted.machine(planted.inside()), 1.1, "by the model: "),
    ):
        twice = why_of(found, 1 << 26, machine)[TWICE_RANKS]
        assert twice.value.value == pytest.approx(times, abs=0.05)
        assert twice.how.startswith(how)
