"""Choices between ways to move the same bytes, from rows with planted times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from random import Random

import pytest
from planted_times import Seconds, run_of

from commbench.advise.advice import Advice, Question, find_advice
from commbench.advise.choices import ADVICE, ChoiceAdvice
from commbench.advise.document import VIEW
from commbench.results.schema import Run
from commbench.spec.case import Case
from commbench.stats.verdict import CHANGE, KEEP, UNDECIDED

SIZES = tuple(1 << k for k in range(12, 25))
SUBJECTS = {choice.option or "settings": choice.subject for choice in ADVICE}


def only(*runs: Run, subject: str = "", tolerance: float = 0.02) -> tuple[Advice, ChoiceAdvice]:
    found = [
        advice
        for advice in find_advice(runs, Question(tolerance=tolerance)).advice
        if isinstance(advice.details, ChoiceAdvice) and subject in advice.subject
    ]
    (one,) = found
    assert isinstance(one.details, ChoiceAdvice)
    return one, one.details


def by_form(of: Mapping[str, tuple[float, float]]) -> Seconds:
    """Alpha and beta of each form."""
    return lambda case: of[case.form][0] + of[case.form][1] * case.size_bytes


def test_a_crossover_of_two_forms_lies_between_the_measured_sizes_around_it() -> None:
    # 100 us + S/1GB/s against 40 us + 2 S/1GB/s: equal at 60,000 bytes.
    times = {"direct": (40e-6, 2e-9), "reduce_scatter+all_gather": (100e-6, 1e-9)}
    run = run_of(by_form(times), sizes=SIZES, forms=("reduce_scatter+all_gather",))
    advice, found = only(run)
    assert advice.verdict == CHANGE
    ((before, after, crossing),) = found.crossings
    assert (dict(before.options), dict(after.options)) == (
        {"form": "direct"}, {"form": "reduce_scatter+all_gather"},
    )  # fmt: skip
    assert crossing.below < 60_000 < crossing.above
    assert crossing.low <= 60_000 <= crossing.high
    assert crossing.at == pytest.approx(60_000, rel=0.1)
    assert crossing.above <= 4 * crossing.below
    first, *_, last = found.ranges
    assert (first.verdict, last.verdict) == (KEEP, CHANGE)
    assert 1.3 < last.gain.value < 2
    assert "dist.reduce_scatter_tensor(block, tensor)" in advice.paste


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_recommended_on_noise(seed: int) -> None:
    run = run_of(
        lambda case: 50e-6 + case.size_bytes * 1e-9, noise=0.3, seed=seed, sizes=SIZES,
        forms=("reduce_scatter+all_gather", "reduce+broadcast"),
    )  # fmt: skip
    advice, _ = only(run)
    assert advice.verdict != CHANGE
    assert advice.paste == ()
    same = run_of(
        lambda case: 50e-6 + case.size_bytes * 1e-9, noise=0.002, seed=seed, sizes=SIZES,
        forms=("reduce_scatter+all_gather",),
    )  # fmt: skip
    advice, _ = only(same)
    assert (advice.verdict, advice.paste, advice.measure) == (KEEP, (), ())


@pytest.mark.parametrize(("launches", "pairs"), [(1, 20), (3, 20)])
def test_nothing_is_recommended_where_only_launches_differ(launches: int, pairs: int) -> None:
    chance = Random(launches)
    changes = 0
    for seed in range(pairs):
        runs = []
        for number, variables in enumerate(({}, {"NCCL_ALGO": "Ring"})):
            one = run_of(
                lambda case: 20e-6 + case.size_bytes * 1e-9, "r", noise=0.01, launches=launches,
                variables=variables, seed=2 * seed + number, sizes=SIZES, backend="nccl",
                device="cuda",
            )  # fmt: skip
            shifts = [exp(chance.gauss(0, 0.03)) for _ in range(launches)]
            runs.append(shifted(one, shifts))
        advice, _ = only(*runs, subject=SUBJECTS["settings"])
        changes += advice.verdict == CHANGE
    assert changes <= 0.05 * pairs


def shifted(run: Run, factors: Sequence[float]) -> Run:
    """The run with all times of each launch so many times as long."""
    return run._replace(
        measurements=tuple(
            each._replace(
                batches=tuple(
                    b._replace(samples_s=tuple(factors[b.launch] * s for s in b.samples_s))
                    for b in each.batches
                )
            )
            for each in run.measurements
        )
    )


def test_what_cannot_be_told_apart_comes_with_what_to_measure() -> None:
    run = run_of(
        lambda case: (1.05 if case.form == "direct" else 1) * 1e-3, noise=0.2, sizes=SIZES[:4],
        forms=("reduce_scatter+all_gather",),
    )  # fmt: skip
    advice, found = only(run)
    assert {each.verdict for each in found.ranges} == {UNDECIDED}
    assert advice.measure == ("the same run with --launches 6 --precision 2% --budget 2",)


def test_several_tensors_are_compared_with_a_call_for_each() -> None:
    times = {
        "flat": (10e-6, 1e-9), "separate": (160e-6, 1e-9), "async": (120e-6, 1e-9),
        "coalesced": (30e-6, 1e-9), "flat_copy": (10e-6, 3e-9),
    }  # fmt: skip
    run = run_of(by_form(times), sizes=SIZES, tensors=("16",))
    _, found = only(run)
    assert found.kind.endswith("16 tensors")
    assert {each.best.options[0][1] for each in found.ranges if each.verdict == CHANGE} == {"flat"}
    fallbacks = {each.fallback.options[0][1] for each in found.ranges if each.fallback}
    assert fallbacks <= {"flat_copy", "coalesced"} and "coalesced" in fallbacks


def test_runs_that_differ_in_a_variable_are_settings_and_give_its_lines() -> None:
    def ring(case: Case) -> float:
        return 80e-6 + case.size_bytes * 1e-9

    def tree(case: Case) -> float:
        return 20e-6 + case.size_bytes * 2e-9

    asked = {"backend": "nccl", "device": "cuda", "world_size": 8, "sizes": SIZES}
    runs = [
        run_of(ring, "ring", variables={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}, **asked),
        run_of(tree, "tree", variables={"NCCL_ALGO": "Tree", "HOME": "/root"}, **asked),
    ]
    advice, found = only(*runs, subject=SUBJECTS["settings"])
    assert [dict(each.best.variables)["NCCL_ALGO"] for each in found.ranges] == ["Tree", "Ring"]
    assert "export NCCL_ALGO=Tree" in advice.paste
    ((_, _, crossing),) = found.crossings
    assert crossing.below < 60_000 < crossing.above


def test_what_is_kept_is_compared_with_the_fastest_alternative() -> None:
    asked = {"backend": "nccl", "device": "cuda", "world_size": 8, "sizes": SIZES}
    runs = {
        name: run_of(
            lambda case, times=times: times * (20e-6 + case.size_bytes * 1e-9), name,
            variables={"NCCL_ALGO": name}, **asked,
        )
        for name, times in (("Ring", 1.0), ("Pat", 3.0), ("Tree", 1.6))
    }  # fmt: skip
    advice, found = only(runs["Ring"], runs["Tree"], subject=SUBJECTS["settings"])
    (kept,) = found.ranges
    assert (advice.verdict, kept.verdict) == (KEEP, KEEP)
    assert found.names[kept.alternative] == "Tree"
    assert (kept.gain.low or 0) < 1 / 1.6 < (kept.gain.high or 0) < 0.7
    _, found = only(*runs.values(), subject=SUBJECTS["settings"])
    assert found.names[found.ranges[0].alternative] == "Tree"


def test_runs_of_other_numbers_of_ranks_are_no_alternatives() -> None:
    runs = [
        run_of(lambda case: 1e-9 * case.size_bytes, str(n), variables={"NCCL_ALGO": str(n)},
               backend="nccl", device="cuda", world_size=n)
        for n in (2, 4)
    ]  # fmt: skip
    report = find_advice(runs, Question())
    assert not [each for each in report.advice if isinstance(each.details, ChoiceAdvice)]
    lacking = {each.subject: each for each in report.missing}[SUBJECTS["settings"]]
    assert lacking.command.startswith("commbench sweep --env NCCL_ALGO=RING,TREE --op all_reduce")


def test_a_graph_is_compared_with_eager_calls() -> None:
    run = run_of(
        lambda case: (10e-6 if case.launch_mode == "graph" else 50e-6) + case.size_bytes * 1e-9,
        backend="nccl", device="cuda", launch_mode="both", sizes=SIZES,
    )  # fmt: skip
    advice, found = only(run, subject=SUBJECTS["launch"])
    assert found.ranges[0].verdict == CHANGE
    assert "with torch.cuda.graph(graph):" in advice.paste
    # From about 2 MiB on both are the same within 2 %.
    assert (found.ranges[-1].verdict, found.ranges[-1].best) == (KEEP, found.default)


def test_lines_to_paste_hold_no_command_that_a_file_brings() -> None:
    asked = {"backend": "nccl", "device": "cuda", "sizes": SIZES}
    hostile = {"NCCL_ALGO": "Tree; rm -r x\nls", "NCCL_X;reboot": "1", "NCCL_Y\nreboot": "1"}
    runs = [
        run_of(lambda case: 2e-9 * case.size_bytes, "plain", **asked),
        run_of(lambda case: 1e-9 * case.size_bytes, "other", variables=hostile, **asked),
    ]
    advice, _ = only(*runs, subject=SUBJECTS["settings"])
    assert advice.paste == ("export NCCL_ALGO='Tree; rm -r x\nls'",)
    text = VIEW.write(find_advice(runs, Question()))
    assert "\n  export NCCL_ALGO='Tree; rm -r x ls'\n" in text
    assert "reboot" not in text
