"""Advice from replays: the variant of a step that is faster, and the commands for what is
missing."""

from __future__ import annotations

from pathlib import Path

from synthetic_replay import WORKLOAD, synthetic_replay

from commbench.advise.advice import FSDP, Question, find_advice
from commbench.advise.choices import ChoiceAdvice
from commbench.advise.document import VIEW
from commbench.analysis.load import open_run
from commbench.spec.workload import Call, Program, Step
from commbench.spec.workload_fit import prepare_replay
from commbench.stats.verdict import CHANGE, KEEP


def test_larger_buckets_are_advised_where_the_step_is_faster_with_them(tmp_path: Path) -> None:
    report = find_advice([open_run(synthetic_replay(tmp_path / "run", "run"))], Question())
    (advice,) = report.advice
    assert isinstance(advice.details, ChoiceAdvice)
    assert (advice.subject, advice.verdict) == ("Calls of a step", CHANGE)
    assert advice.about == "replay train, 2 gloo ranks"
    (found,) = advice.details.ranges
    assert advice.details.names[found.best] == "bucket:6M"
    assert found.gain and 1.95 < found.gain.value < 2.1
    assert advice.paste == ("DistributedDataParallel(model, bucket_cap_mb=6)",)


def test_own_calls_are_kept_where_no_variant_is_faster(tmp_path: Path) -> None:
    folder = synthetic_replay(
        tmp_path / "run", "run", variants=["calls", "reduce_scatter+all_gather"]
    )
    (advice,) = find_advice([open_run(folder)], Question()).advice
    assert (advice.verdict, advice.paste) == (KEEP, ())


def test_without_other_variants_the_command_replays_the_workload(tmp_path: Path) -> None:
    folder = synthetic_replay(tmp_path / "run", "run", variants=["calls"])
    report = find_advice([open_run(folder)], Question())
    assert report.advice == ()
    commands = {missing.subject: missing.command for missing in report.missing}
    assert commands["Calls of a step"] == (
        "commbench replay STEP.json --variant all --nproc-per-node 2"
    )
    assert not any("--op replay" in command for command in commands.values())


def test_a_step_without_large_all_reduces_has_no_command_for_variants(tmp_path: Path) -> None:
    calls = (Call("all_gather", "world", "float32", 2 << 20),)
    workload = WORKLOAD._replace(steps=(Step("train", (Program((0, 1), calls),)),))
    folder = synthetic_replay(tmp_path / "run", "run", workload=workload)
    first = find_advice([open_run(folder)], Question()).missing
    needs = {missing.subject: (missing.needs, missing.command) for missing in first}
    assert needs["Calls of a step"] == (
        "the step has no other variants: no all_reduce of 1 MiB or more", ""
    )  # fmt: skip


def test_the_command_for_a_shrunk_step_shrinks_it(tmp_path: Path) -> None:
    larger = WORKLOAD._replace(
        world_size=4, groups={"world": (tuple(range(4)),)},
        steps=tuple(s._replace(programs=(s.programs[0]._replace(ranks=(0, 1, 2, 3)),))
                    for s in WORKLOAD.steps),
    )  # fmt: skip
    fitted, changes = prepare_replay(larger, 2, "shrink")
    shrunk = fitted._replace(notes=changes)
    folder = synthetic_replay(tmp_path / "run", "run", variants=["gaps"], workload=shrunk)
    missing = find_advice([open_run(folder)], Question()).missing
    command = next(each.command for each in missing if each.subject == "Calls of a step")
    assert command == "commbench replay STEP.json --variant all --fit shrink --nproc-per-node 2"


def test_a_replay_says_what_other_advice_needs_only_where_it_is_asked_for(tmp_path: Path) -> None:
    run = open_run(synthetic_replay(tmp_path / "run", "run"))
    report = find_advice([run], Question())
    assert len(report.missing) == 5 and not any(each.is_asked for each in report.missing)
    text, more = VIEW.write(report), VIEW.write(report, is_verbose=True)
    assert "Groups of FSDP2" not in text and "Groups of FSDP2" in more
    asked = find_advice([run], Question(blocks=4)).missing
    assert [each.subject for each in asked if each.is_asked] == [FSDP]


def test_advice_about_several_groups_of_runs_names_them(tmp_path: Path) -> None:
    runs = [
        open_run(synthetic_replay(tmp_path / mode, mode, cpu_mode=mode))
        for mode in ("plain", "quiet")
    ]
    abouts = [each.about for each in find_advice(runs, Question()).advice]
    assert abouts == [f"replay train, 2 gloo ranks, in {mode}" for mode in ("plain", "quiet")]


def test_the_step_decides_between_settings_and_not_its_calls(tmp_path: Path) -> None:
    runs = []
    for value, factor in (("0", 1.5), ("1", 1.0)):
        folder = synthetic_replay(
            tmp_path / value, value, lambda case, f=factor: f if case.step else 1 / f,
            environment={"variables": {"TORCH_GLOO_LAZY_INIT": value}},
        )  # fmt: skip
        runs.append(open_run(folder))
    found = [a for a in find_advice(runs, Question()).advice if "Settings" in a.subject]
    (advice,) = found
    assert advice.about == "replay train calls, 2 gloo ranks"
    assert (advice.verdict, advice.paste) == (CHANGE, ("export TORCH_GLOO_LAZY_INIT=1",))
