"""Advice from replays: the variant of a step that is faster, and the commands for what is
missing."""

from __future__ import annotations

from pathlib import Path

from synthetic_replay import synthetic_replay

from commbench.advise.advice import Question, find_advice
from commbench.advise.choices import CHANGE, KEEP, ChoiceAdvice
from commbench.analysis.load import open_run


def test_larger_buckets_are_advised_where_the_step_is_faster_with_them(tmp_path: Path) -> None:
    report = find_advice([open_run(synthetic_replay(tmp_path / "run", "run"))], Question())
    (advice,) = report.advice
    assert isinstance(advice.details, ChoiceAdvice)
    assert (advice.subject, advice.verdict) == ("Calls of a step", CHANGE)
    assert advice.about == "replay train, 2 gloo ranks"
    (said,) = advice.sentences
    assert said.startswith("bucket:6M instead of calls, 2.0")
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
        "commbench run --workload resnet.json --variant all --nproc-per-node 2"
    )
    assert not any("replay" in command for command in commands.values())


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
