"""Verdicts on bucket sizes, and what they take from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pytest
from planted_times import NCCL, Seconds, run_of
from synthetic_replay import WORKLOAD, synthetic_replay

from commbench.analysis.load import open_run
from commbench.analysis.rows import make_rows
from commbench.answers.advise.advice import DDP, Advice, AdviceReport, Question, find_advice
from commbench.answers.advise.choices import CPU_MODE, ChoiceAdvice, setting_lines
from commbench.answers.advise.document import VIEW, answers
from commbench.answers.advise.measured import find_slowdown, group_runs
from commbench.answers.advise.simulation import MIB, BucketAdvice, Slowdown
from commbench.answers.sweep.settings import Setting
from commbench.plan.case import Case
from commbench.plan.workload import Call, Program, Step
from commbench.plan.workload_fit import prepare_replay
from commbench.results.run_folder import FIRST_ROUND
from commbench.results.schema import Batch, Run
from commbench.stats import CHANGE, KEEP, UNDECIDED

SIZES = tuple(1 << k for k in range(20, 28))


def seconds(case: Case) -> float:
    return 1e-3 + case.size_bytes * 1e-9


def of_buckets(*runs: Run, **question: object) -> tuple[Advice, BucketAdvice]:
    asked = {"model_bytes": 96 * MIB, "backward_s": 0.1, **question}
    (advice,) = find_advice(runs, Question(**asked)).advice  # type: ignore[arg-type]
    assert isinstance(advice.details, BucketAdvice)
    return advice, advice.details


def test_a_gain_that_may_be_noise_is_not_decided() -> None:
    run = run_of(seconds, noise=0.2, sizes=SIZES, **NCCL)
    sure, _ = of_buckets(run, bucket_bytes=MIB)
    assert sure.verdict == "change"
    good = of_buckets(run)[1].good_bytes
    doubtful, found = of_buckets(run, bucket_bytes=int(good[1] * 1.3))
    assert (doubtful.verdict, doubtful.paste) == ("undecided", ())
    assert "the same run with --launches 6" in doubtful.measure[0]
    assert found.gain.low is not None and found.gain.low < 1.02


@pytest.mark.parametrize(
    ("waiting", "verdict"), [((1 << 20,), CHANGE), ((1 << 22,), UNDECIDED), ((1 << 26,), CHANGE)]
)
def test_only_rows_of_the_compared_buckets_that_waited_leave_them_undecided(
    waiting: tuple[int, ...], verdict: str
) -> None:
    run = with_waits(run_of(seconds, launches=3, sizes=SIZES, **NCCL), waiting)
    found, details = of_buckets(run, bucket_bytes=3 * MIB)
    assert 1 << 23 <= details.recommended.bucket_bytes < 1 << 25
    assert found.verdict == verdict


@pytest.mark.parametrize(("number", "verdict"), [(1, CHANGE), (2, CHANGE), (5, UNDECIDED)])
def test_a_choice_is_undecided_where_most_of_its_rows_waited(number: int, verdict: str) -> None:
    slow = dict.fromkeys(("separate", "async", "coalesced", "flat_copy"), (160e-6, 1e-9))
    run = run_of(by_form({"flat": (10e-6, 1e-9), **slow}), sizes=CHOICE_SIZES[:5], tensors=("16",))
    advice, _ = only(with_waits(run, CHOICE_SIZES[:number]))
    assert advice.verdict == verdict


def with_waits(run: Run, sizes: Sequence[int], form: str = "") -> Run:
    """The run, whose ranks waited for a core all the time at these sizes, in this form or all."""
    measurements = tuple(
        each._replace(batches=tuple(
            batch._replace(elapsed_s=1.0, queued_s=float(
                each.case.size_bytes in sizes and form in ("", each.case.form)
            ))
            for batch in each.batches
        ))
        for each in run.measurements
    )  # fmt: skip
    return run._replace(measurements=measurements)


def overlapped(both_s: float) -> Run:
    """1 ms of communication and 2 ms of computation, which take so long at once."""
    run = run_of(
        lambda case: {"computation": 2e-3, "both": both_s}.get(case.part, 1e-3), noise=1e-6,
        sizes=SIZES, overlap=("none", "matmul:8x8x8"),
    )  # fmt: skip
    measurements = tuple(
        each._replace(batches=tuple(map(with_ends, each.batches)))
        if each.case.part == "both" else each for each in run.measurements
    )  # fmt: skip
    return run._replace(measurements=measurements)


@pytest.mark.parametrize("cores", [2, 4])
def test_calls_and_computation_take_turns_where_nothing_is_hidden(cores: int) -> None:
    run = overlapped(3e-3)
    header = run.header._replace(environment={**run.header.environment, "cores": cores})
    advice, found = of_buckets(run._replace(header=header), bucket_bytes=MIB)
    assert found.now.time_s.value == pytest.approx(0.1 + 96 * 1e-3, rel=1e-3)  # a call takes 1 ms
    assert advice.verdict == CHANGE and found.gain_in_turns is None
    (said,) = answers((advice,), Question())
    assert "In planted computation hides nothing of the communication, so both" in said
    assert any("two cores" in each for each in advice.measure) == (cores == 4)


def test_the_slowdown_by_a_computation_is_that_of_the_overlap_rows() -> None:
    told = overlapped(2.6e-3)
    mode = told.header.plan.cpu_mode
    found = find_slowdown(make_rows(told), mode)
    assert (found.source, found.other_run) == ("matmul:8x8x8", "")
    assert [each.value for each in found[:2]] == pytest.approx([0.25, 0.5], rel=1e-3)
    advice, buckets = of_buckets(told)
    assert buckets.slowdown == found
    realtime = run_of(seconds, "rt", sizes=SIZES, cpu_mode="realtime")
    report = find_advice([realtime], Question(model_bytes=96 * MIB, backward_s=0.1))
    assert report.advice[0].verdict == UNDECIDED  # as fast, if they only take turns
    assert "perhaps 2 MiB instead of torch's default of 25 MiB: 1.23 (" in answers_of(report)
    assert "times as fast if they only take turns; --overlap measures that" in answers_of(report)
    (command,) = (line for line in report.advice[0].measure if "--overlap" in line)
    assert "--cpu-mode realtime" in command
    both = find_advice([realtime, told], Question(model_bytes=96 * MIB, backward_s=0.1))
    assert f"slow each other as in planted (cpu mode {mode})" in answers_of(both)
    assert command in next(a.measure for a in both.advice if "in rt" in a.about)
    assert not any("--overlap" in command for command in advice.measure)
    assert find_slowdown(make_rows(with_waits(told, SIZES)), mode) == Slowdown()
    other = find_slowdown(make_rows(told), "realtime")
    assert other == found._replace(other_run=f"planted (cpu mode {mode})")


def answers_of(report: AdviceReport) -> str:
    return " ".join(answers(report.advice, report.question))


def with_ends(batch: Batch) -> Batch:
    number = len(batch.samples_s)
    return batch._replace(communication_s=(1.5e-3,) * number, computation_s=(2.5e-3,) * number)


def test_runs_are_grouped_by_ranks_and_the_plain_setting_is_the_default() -> None:
    runs = [
        run_of(seconds, "tuned", variables={"NCCL_ALGO": "Ring"}, **NCCL),
        run_of(seconds, "plain", **NCCL),
        run_of(seconds, "four", world_size=4, **NCCL),
    ]
    two, four = group_runs(runs)
    assert (two.runs, four.runs) == (("tuned", "plain"), ("four",))
    assert [each.setting.name for each in two.results] == ["NCCL_ALGO unset", "NCCL_ALGO=Ring"]
    assert two.who == "2 nccl ranks"


@pytest.mark.parametrize("name", ["NCCL_ALGO", "NCCL_SOMETHING_NEW"])
def test_a_variable_that_the_backend_reads_is_a_setting(name: str) -> None:
    runs = [
        run_of(seconds, label, variables={name: label}, sizes=SIZES, **NCCL)
        for label in ("ring", "tree")
    ]
    found = find_advice(runs, Question())
    assert [each.subject for each in found.advice] == [SETTINGS]
    assert name not in [each.subject for each in found.missing]


CHOICE_SIZES = tuple(1 << k for k in range(12, 25))
SETTINGS = "Settings of the environment"


def only(*runs: Run, subject: str = "") -> tuple[Advice, ChoiceAdvice]:
    """The only advice on a choice, or on this one."""
    found = [
        (each, each.details)
        for each in find_advice(runs, Question()).advice
        if isinstance(each.details, ChoiceAdvice) and subject in each.subject
    ]
    (one,) = found
    return one


def affine(alpha: float, beta: float) -> Seconds:
    return lambda case: alpha + beta * case.size_bytes


def by_form(of: Mapping[str, tuple[float, float]]) -> Seconds:
    """Alpha and beta of each form."""
    return lambda case: of[case.form][0] + of[case.form][1] * case.size_bytes


def test_a_crossover_of_two_forms_lies_between_the_measured_sizes_around_it() -> None:
    # Equal at 60,000 bytes
    times = {"direct": (40e-6, 2e-9), "reduce_scatter+all_gather": (100e-6, 1e-9)}
    run = run_of(by_form(times), sizes=CHOICE_SIZES, forms=("reduce_scatter+all_gather",))
    advice, found = only(run)
    assert advice.verdict == CHANGE
    (crossing,) = found.crossings
    assert (dict(crossing.below.options), dict(crossing.above.options)) == (
        {"form": "direct"}, {"form": "reduce_scatter+all_gather"},
    )  # fmt: skip
    below, above = crossing.measured_below_bytes, crossing.measured_above_bytes
    assert below < 60_000 < above <= 8 * below
    assert crossing.at_bytes == pytest.approx(60_000, rel=0.1)
    first, *_, last = found.ranges
    assert (first.verdict, last.verdict) == (KEEP, CHANGE)
    assert 1.3 < last.gain.value < 2
    assert "dist.reduce_scatter_tensor(block, tensor)" in advice.paste


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_recommended_on_noise(seed: int) -> None:
    ways = ("reduce_scatter+all_gather", "reduce+broadcast")
    time = affine(50e-6, 1e-9)
    advice, _ = only(run_of(time, noise=0.3, seed=seed, sizes=CHOICE_SIZES, forms=ways))
    assert advice.verdict != CHANGE
    assert advice.paste == ()
    advice, _ = only(run_of(time, noise=0.002, seed=seed, sizes=CHOICE_SIZES, forms=ways[:1]))
    assert (advice.verdict, advice.paste, advice.measure) == (KEEP, (), ())


@pytest.mark.parametrize("launches", [1, 3])
def test_nothing_is_recommended_where_only_launches_differ(launches: int) -> None:
    chance, pairs, changes = Random(launches), 20, 0
    for seed in range(pairs):
        runs = []
        for number, variables in enumerate(({}, {"NCCL_ALGO": "Ring"})):
            one = run_of(
                affine(20e-6, 1e-9), "r", noise=0.01, launches=launches, variables=variables,
                seed=2 * seed + number, sizes=CHOICE_SIZES, **NCCL,
            )  # fmt: skip
            runs.append(shifted(one, [exp(chance.gauss(0, 0.03)) for _ in range(launches)]))
        advice, _ = only(*runs, subject=SETTINGS)
        changes += advice.verdict == CHANGE
    assert changes <= 0.05 * pairs


def shifted(run: Run, factors: Sequence[float]) -> Run:
    """The run with all times of each launch so many times as long."""

    def longer(batch: Batch) -> Batch:
        return batch._replace(samples_s=tuple(factors[batch.launch] * s for s in batch.samples_s))

    measurements = (m._replace(batches=tuple(map(longer, m.batches))) for m in run.measurements)
    return run._replace(measurements=tuple(measurements))


def test_several_tensors_are_compared_with_a_call_for_each() -> None:
    times = {
        "flat": (10e-6, 1e-9), "separate": (160e-6, 1e-9), "async": (120e-6, 1e-9),
        "coalesced": (30e-6, 1e-9), "flat_copy": (10e-6, 3e-9),
    }  # fmt: skip
    run = run_of(by_form(times), sizes=CHOICE_SIZES, tensors=("16",))
    _, found = only(run)
    assert found.kind.endswith("16 tensors")
    assert {each.best.options[0][1] for each in found.ranges if each.verdict == CHANGE} == {"flat"}
    fallbacks = {each.fallback.options[0][1] for each in found.ranges if each.fallback}
    assert fallbacks <= {"flat_copy", "coalesced"} and "coalesced" in fallbacks
    _, found = only(with_waits(run, CHOICE_SIZES, form="async"))
    faster, same = found.ranges
    assert (faster.verdict, same.verdict) == (CHANGE, UNDECIDED)
    named = [s.options[0][1] for s in faster.candidates]
    assert {s.options[0][1] for each in found.ranges for s in each.undecided} == {"async"}
    assert "async" not in named
    some = run_of(by_form(times), sizes=CHOICE_SIZES, tensors=("16",), forms=("async", "coalesced"))
    missing = {each.subject: each.needs for each in find_advice([some], Question()).missing}
    assert missing["Calls of several tensors"].startswith("separate, which the others")


def test_runs_that_differ_in_a_variable_are_settings_and_give_its_lines() -> None:
    asked = {"world_size": 8, "sizes": CHOICE_SIZES, **NCCL}
    ring, tree = affine(80e-6, 1e-9), affine(20e-6, 2e-9)
    runs = [
        run_of(ring, "ring", variables={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}, **asked),
        run_of(tree, "tree", variables={"NCCL_ALGO": "Tree", "HOME": "/root"}, **asked),
    ]
    advice, found = only(*runs, subject=SETTINGS)
    best = [(each.verdict, dict(each.best.variables)["NCCL_ALGO"]) for each in found.ranges]
    assert best == [(CHANGE, "Tree"), (UNDECIDED, "Ring"), (KEEP, "Ring")]
    assert "export NCCL_ALGO=Tree" in advice.paste
    (crossing,) = found.crossings
    assert crossing.measured_below_bytes < 60_000 < crossing.measured_above_bytes
    assert dict(crossing.below.variables) == {"NCCL_ALGO": "Tree"}


def test_what_is_kept_is_compared_with_the_fastest_alternative() -> None:
    runs = {
        name: run_of(
            affine(times * 20e-6, times * 1e-9), name, variables={"NCCL_ALGO": name},
            world_size=8, sizes=CHOICE_SIZES, **NCCL,
        )
        for name, times in (("Ring", 1.0), ("Pat", 3.0), ("Tree", 1.6))
    }  # fmt: skip
    advice, found = only(runs["Ring"], runs["Tree"], subject=SETTINGS)
    (kept,) = found.ranges
    assert (advice.verdict, kept.verdict) == (KEEP, KEEP)
    assert found.names[kept.alternative] == "Tree"
    assert (kept.gain.low or 0) < 1 / 1.6 < (kept.gain.high or 0) < 0.75
    _, found = only(*runs.values(), subject=SETTINGS)
    assert found.names[found.ranges[0].alternative] == "Tree"


def test_lines_to_paste_hold_no_command_that_a_file_brings() -> None:
    hostile = {"NCCL_ALGO": "Tree; rm -r x\nls", "NCCL_X;reboot": "1", "NCCL_Y\nreboot": "1"}
    runs = [
        run_of(affine(0, 2e-9), "plain", sizes=CHOICE_SIZES, **NCCL),
        run_of(affine(0, 1e-9), "other", variables=hostile, sizes=CHOICE_SIZES, **NCCL),
    ]
    advice, _ = only(*runs, subject=SETTINGS)
    assert advice.paste == ("export NCCL_ALGO='Tree; rm -r x\nls'",)
    text = VIEW.write(find_advice(runs, Question()))
    assert "\n  export NCCL_ALGO='Tree; rm -r x ls'\n" in text
    assert "reboot" not in text


def replayed(folder: Path, **more: Any) -> AdviceReport:
    return find_advice([open_run(synthetic_replay(folder / "run", "run", **more))], Question())


def test_larger_buckets_are_advised_where_the_step_is_faster_with_them(tmp_path: Path) -> None:
    (advice,) = replayed(tmp_path).advice
    assert isinstance(advice.details, ChoiceAdvice)
    assert (advice.subject, advice.verdict) == ("Calls of a step", CHANGE)
    assert advice.about == "replay train, 2 gloo ranks"
    (found,) = advice.details.ranges
    assert advice.details.names[found.best] == "bucket:6M"
    assert found.gain and 1.95 < found.gain.value < 2.1
    assert advice.paste == ("DistributedDataParallel(model, bucket_cap_mb=6)",)


GATHER = WORKLOAD._replace(
    steps=(Step("train", (Program((0, 1), (Call("all_gather", "world", "float32", 2 << 20),)),)),)
)
LARGER = WORKLOAD._replace(
    world_size=4, groups={"world": (tuple(range(4)),)},
    steps=tuple(s._replace(programs=(s.programs[0]._replace(ranks=(0, 1, 2, 3)),))
                for s in WORKLOAD.steps),
)  # fmt: skip
SHRUNK, CHANGES = prepare_replay(LARGER, 2, "shrink")
NO_TIMES = "no alternatives have a valid time"


@pytest.mark.parametrize(
    ("asked", "needs", "command"),
    [
        ({"variants": ["calls"]}, NO_TIMES,
         "commbench replay STEP.json --variant all --nproc-per-node 2"),
        ({"workload": GATHER},
         "the step has no other variants: no all_reduce of 1 MiB or more", ""),
        ({"variants": ["gaps"], "workload": SHRUNK._replace(notes=CHANGES)}, NO_TIMES,
         "commbench replay STEP.json --variant all --fit shrink --nproc-per-node 2"),
    ],
)  # fmt: skip
def test_without_other_variants_the_command_replays_the_workload(
    tmp_path: Path, asked: dict[str, Any], needs: str, command: str
) -> None:
    report = replayed(tmp_path, **asked)
    assert report.advice == ()
    missing = {each.subject: (each.needs, each.command) for each in report.missing}
    assert missing["Calls of a step"] == (needs, command)
    assert not any("--op replay" in line for _, line in missing.values())


def test_a_replay_says_what_other_advice_needs_only_where_it_is_asked_for(tmp_path: Path) -> None:
    report = replayed(tmp_path)
    assert len(report.missing) == 3 and not any(each.is_asked for each in report.missing)
    text, more = VIEW.write(report), VIEW.write(report, is_verbose=True)
    assert DDP not in text and DDP in more


def test_the_step_decides_between_settings_and_not_its_calls(tmp_path: Path) -> None:
    runs = []
    for value, factor in (("0", 1.5), ("1", 1.0)):
        folder = synthetic_replay(
            tmp_path / value, value, lambda case, f=factor: f if case.step else 1 / f,
            environment={"variables": {"TORCH_GLOO_LAZY_INIT": value}},
        )  # fmt: skip
        runs.append(open_run(folder))
    advice, _ = only(*runs, subject=SETTINGS)
    assert advice.about == "replay train calls, 2 gloo ranks"
    assert (advice.verdict, advice.paste) == (CHANGE, ("export TORCH_GLOO_LAZY_INIT=1",))


def swept(run: Run, folder: Path) -> Run:
    """The run as the setting of a sweep that varies the CPU mode."""
    own = folder / f"cpu-mode={run.header.plan.cpu_mode}"
    (own / FIRST_ROUND).mkdir(parents=True, exist_ok=True)
    return run._replace(path=str(own))


def test_cpu_modes_of_a_sweep_say_which_one_to_choose(tmp_path: Path) -> None:
    slow = run_of(lambda case: 3 * seconds(case), "slow", sizes=SIZES, cpu_mode="plain", launches=6)
    fast = run_of(seconds, "fast", sizes=SIZES, cpu_mode="quiet", launches=6)
    slow, fast = swept(slow, tmp_path), swept(fast, tmp_path)
    for runs in ((slow, fast), (fast, slow)):
        (advice,) = find_advice(runs, Question()).advice
        assert (advice.subject, advice.verdict) == ("CPU mode", CHANGE)
        assert advice.paste[0] == "commbench run --cpu-mode quiet"
    real = setting_lines(Setting(options=((CPU_MODE, "realtime"),)), slow.measurements[0].case)
    assert ["CAP_SYS_NICE" in line for line in real] == [False, False, True]
    kept = find_advice([slow._replace(header=fast.header), fast], Question())
    assert not kept.advice
    faster = run_of(lambda case: seconds(case) / 3, "slow", sizes=SIZES, cpu_mode="plain")
    (advice,) = find_advice([fast, swept(faster, tmp_path)], Question()).advice
    assert (advice.verdict, advice.paste) == (KEEP, ())
