"""Why a call takes its time: planted latencies and bandwidths are found again, and a formula is
called one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import planted
import pytest
from synthetic import header, plan, steady, synthetic_run

from commbench.analysis.load import open_run
from commbench.analysis.rows import ResultRow, make_rows
from commbench.explain.run_text import explain_run
from commbench.explain.why import find_why, ranks_per_node, why_in_short, why_sentences
from commbench.importers.hints import NO_HINTS
from commbench.models.cost_models import find_model
from commbench.models.machine import Point
from commbench.models.size_curve import fit_sizes
from commbench.models.textbook import find_algorithm, growth
from commbench.results.schema import Measurement, ReportedTiming, Run, RunEnd
from commbench.spec.case import Case
from commbench.spec.operations import OPERATIONS

SIZES = tuple(1 << k for k in range(10, 27))
LATENCY, BETA = 50e-6, 1e-9


def line(case: Case) -> float:
    return LATENCY + BETA * case.size_bytes


def run(
    time: Callable[[Case], float] = line, sizes: tuple[int, ...] = SIZES, **more: object
) -> Run:
    """A run whose times are exact."""
    asked = plan(sizes=sizes, **more)
    measurements = tuple(
        Measurement(case, "ok", reported=ReportedTiming(time(case), "mean"))
        for case in asked.cases()
    )
    return Run("planted", header(asked, "planted"), measurements, RunEnd("complete"))


def rows_of(found: Run) -> dict[int, ResultRow]:
    return {row.measurement.case.size_bytes: row for row in make_rows(found)}


def sentences(found: Run, size: int) -> str:
    rows = rows_of(found)
    return " ".join(why_sentences(rows[size], list(rows.values()), None))


def test_the_shares_of_a_planted_run_are_found() -> None:
    rows = rows_of(run())
    for size, row in rows.items():
        why = find_why(row, list(rows.values()))
        assert why.latency_s == pytest.approx(LATENCY, rel=1e-3)
        assert why.time_s == pytest.approx(LATENCY + BETA * size)
    assert why.curve is not None
    assert len(why.curve.pieces) == 1
    assert why.curve.half_size == pytest.approx(LATENCY / BETA, rel=1e-3)


def test_a_small_call_is_latency_bound_and_a_large_one_bandwidth_bound() -> None:
    small, middle, large = (sentences(run(), size) for size in (1 << 10, 1 << 16, 1 << 24))
    assert small.startswith("Latency-bound: 98 % of t is latency (50 us, which a call takes at any")
    assert middle.startswith("Latency and bandwidth count alike: 43 % of t is latency")
    assert large.startswith("Bandwidth-bound: 0 % of t is latency (50 us,")
    assert "t = 50 us + S / 1 GB/s" in large
    assert "n-half = 49 KiB: there latency takes as long as the bytes." in large
    assert "Twice the size takes 2.0 times as long (measured in this run)." in large
    assert "Twice the size takes 1.0 times as long (measured in this run)." in small


def test_without_a_row_of_twice_the_size_the_model_says_how_long_it_takes() -> None:
    assert "Twice the size takes 2.0 times as long (by the model)." in sentences(run(), SIZES[-1])


def test_a_protocol_switch_makes_pieces_of_their_own() -> None:
    def switches(case: Case) -> float:
        if case.size_bytes <= 1 << 17:
            return 10e-6 + 4e-10 * case.size_bytes
        return 100e-6 + 1e-10 * case.size_bytes

    found = run(switches)
    assert "from 256 KiB to 64 MiB: t = 100 us + S / 10 GB/s" in sentences(found, 1 << 20)
    assert "from 1 KiB to 128 KiB: t = 10 us + S / 2.5 GB/s" in sentences(found, 1 << 12)
    assert "49 % of t is latency (100 us" in sentences(found, 1 << 20)


def test_twice_the_ranks_are_measured_where_the_run_has_groups_of_both() -> None:
    def time(case: Case) -> float:
        return line(case) * (1.7 if case.ranks == 4 else 1.0)

    found = run(time, world_size=8, mesh="dp=2,tp=4", over=("dp", "tp"), concurrency="alone")
    rows = [row for row in make_rows(found) if row.measurement.case.size_bytes == 1 << 20]
    by_ranks = {row.measurement.case.ranks: row for row in rows}
    text = " ".join(why_sentences(by_ranks[2], make_rows(found), None))
    assert "Twice the ranks (4) take 1.7 times as long (measured in this run)." in text
    assert "formula" not in text


def test_one_number_of_ranks_gets_the_formula_of_the_backend_and_says_so() -> None:
    small, large = (sentences(run(), size) for size in (1 << 10, 1 << 26))
    formula = (
        "This run has no row with 4 ranks, so it does not show what they would do. By the formula "
        "of gloo's algorithm (ring), T = fixed + 2(n-1) alpha + 2(n-1)/n S beta, a call takes "
    )
    assert f"{formula}1.0 to 3.0 times as long. This is a formula, not a measurement." in small
    assert f"{formula}1.5 times as long. This is a formula, not a measurement." in large


def test_a_backend_whose_algorithm_is_unknown_gets_no_formula() -> None:
    text = sentences(run(backend="mpi"), 1 << 20)
    assert "This run has no row with 4 ranks" in text
    assert "commbench model fit" in text
    assert "formula" not in text


@pytest.mark.parametrize(
    ("backend", "operation", "selected", "model"),
    [
        ("gloo", "reduce_scatter", "", find_model("all_reduce", "ring")),
        ("gloo", "broadcast", "", find_model("broadcast", "binomial tree")),
        ("nccl", "all_reduce", "RING", find_model("all_reduce", "ring")),
        ("nccl", "all_reduce", "TREE", find_model("all_reduce", "double binary tree")),
        ("nccl", "all_gather", "PAT", find_model("all_gather", "pipelined tree")),
        ("nccl", "all_to_all", "", find_model("all_to_all", "pairwise")),
        ("nccl", "all_reduce", "", None),
        ("nccl", "all_reduce", "NVLS", None),
        ("nccl", "broadcast", "PAT", None),
        ("ucc", "all_reduce", "", None),
    ],
)
def test_the_algorithms_of_backends(
    backend: str, operation: str, selected: str, model: object
) -> None:
    found = find_algorithm(backend, operation, selected)
    assert (found.model if found else None) == model


def test_every_collective_of_gloo_has_an_algorithm() -> None:
    collectives = [name for name, o in OPERATIONS.items() if o.nccl_tests or name == "barrier"]
    missing = [name for name in collectives if not find_algorithm("gloo", name)]
    assert missing == ["send_recv"]


def test_the_formula_of_more_ranks_is_worked_by_hand() -> None:
    ring = find_model("all_reduce", "ring")
    # 2(n-1): 14 -> 30 steps; 2(n-1)/n: 1.75 -> 1.875
    low, high = growth(ring, 1.0, 3.0, 8, 16)
    assert low == pytest.approx((1 + 3 * 1.875 / 1.75) / 4)
    assert high == pytest.approx((30 / 14 + 3 * 1.875 / 1.75) / 4)
    tree = find_model("broadcast", "binomial tree")
    assert growth(tree, 1.0, 1.0, 8, 16) == pytest.approx((1 / 2 + 4 / 6, 4 / 3))


def test_a_barrier_is_all_latency() -> None:
    found = run(lambda _: 20e-6, operations=("barrier",))
    text = sentences(found, 0)
    assert text.startswith("Latency-bound: it moves no data.")
    assert "a call takes 1.0 to 2.0 times as long" in text


def test_too_few_sizes_are_said_to_be_too_few() -> None:
    text = sentences(run(sizes=(1 << 10, 1 << 20)), 1 << 20)
    assert text.startswith("Latency or bandwidth? This run has too few sizes of this call")
    assert fit_sizes("all_reduce", [Point(2, 2, size, 1e-3) for size in (8, 16)]) is None


def test_the_overview_of_a_run_has_it_in_short() -> None:
    found = run()
    rows = list(rows_of(found).values())
    text = why_in_short(rows[-1], rows, None)
    assert text == (
        "Bandwidth-bound (latency is 0 % of t; n-half 49 KiB). Twice the size takes 2.0 times as "
        "long, twice the ranks 1.5 times (by the formula of gloo's ring, not measured)."
    )
    assert text.split()[-1] in explain_run(found)


def test_with_a_machine_its_models_are_compared_with_the_time() -> None:
    machine = planted.machine()
    found = run(lambda _: 0.9e-3, sizes=(1 << 26,), world_size=64)
    (row,) = make_rows(found._replace(header=found.header._replace(ranks=(), num_nodes=8)))
    assert ranks_per_node(row) == 8
    text = " ".join(why_sentences(row, [row], machine))
    assert text.startswith(
        "Model: double binary tree (across hosts) of planted predicts 740 us (690 … 800 us). "
        "t is 1.22 times that, above the interval. Bandwidth-bound: 5 % of the predicted time is "
        "latency"
    )
    assert "Twice the size takes 1.9 times as long: 1.42 ms (1.31 … 1.53 ms), by the model." in text
    assert (
        "Twice the ranks (128) take 1.0 times as long: 760 us (710 … 820 us), by the model." in text
    )


def test_of_several_models_the_one_that_describes_the_row_is_compared() -> None:
    models = [
        planted.inside(parameters=(n * 1e-3, 0, 0), pieces=planted.pieces((n * 1e-3, 0, 0)),
                       variant=variant)
        for n, variant in enumerate(("bfloat16, sum", "float32, sum", "float32, max"), 1)
    ]  # fmt: skip
    (row,) = make_rows(run(sizes=(1 << 20,)))
    text = " ".join(why_sentences(row, [row], planted.machine(*models)))
    assert "of planted predicts 2.00 ms" in text


def test_a_machine_without_a_model_of_the_call_says_why() -> None:
    found = run(sizes=(1 << 26,), operations=("all_gather",))
    (row,) = make_rows(found)
    text = " ".join(why_sentences(row, [row], planted.machine()))
    assert text == "planted does not predict this call: planted has no model of all_gather."


def test_more_ranks_than_a_host_are_predicted_on_more_hosts_where_those_were_measured() -> None:
    found = run(sizes=(1 << 26,), world_size=8)
    (row,) = make_rows(found._replace(header=found.header._replace(ranks=(), num_nodes=1)))
    across = " ".join(why_sentences(row, [row], planted.machine()))
    within = " ".join(why_sentences(row, [row], planted.machine(planted.inside())))
    assert "Twice the ranks (16), across hosts, take 2.1 times as long" in across
    assert "Twice the ranks (16) take 1.1 times as long" in within


def test_a_run_of_the_repository_is_explained_quickly_and_without_torch() -> None:
    program = (
        "import sys, time, commbench; start = time.process_time();"
        "text = commbench.explain('results/reference');"
        "print(time.process_time() - start, 'torch' in sys.modules, 'n-half' in text)"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    took, has_torch, has_why = ended.stdout.split()
    assert (has_torch, has_why) == ("False", "True")
    assert float(took) < 1.0


def test_noise_does_not_move_the_shares(tmp_path: Path) -> None:
    folder = synthetic_run(
        tmp_path / "mine", "mine", lambda case: steady(line(case)), plan(sizes=SIZES)
    )
    rows = make_rows(open_run(folder, NO_HINTS))
    why = find_why(rows[-1], rows)
    assert why.latency_s == pytest.approx(LATENCY, rel=0.02)


def test_sizes_that_hardly_differ_do_not_tell_latency_from_bandwidth() -> None:
    rows = make_rows(run(sizes=(1000 << 10, 1001 << 10, 1100 << 10)))
    assert find_why(rows[-1], rows).curve is None
    rows = make_rows(run(sizes=(1000 << 10, 1500 << 10, 2000 << 10)))
    assert find_why(rows[-1], rows).curve is not None
