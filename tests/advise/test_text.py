"""Advice as text, Markdown and JSON; its picture."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pictures import require_readable
from planted_times import run_of

from commbench.advise.advice import AdviceReport, Question, find_advice
from commbench.advise.buckets import BucketAdvice
from commbench.advise.moe import Routing
from commbench.advise.plot import advice_picture
from commbench.advise.text import FORMATS
from commbench.errors import UnavailableError, UsageError
from commbench.output.table import safe
from commbench.spec.case import Case
from commbench.views.pictures import Curves, Picture

SIZES = tuple(1 << k for k in range(14, 27))
NCCL = {"backend": "nccl", "device": "cuda"}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
QUESTION = Question(
    params=25e6, backward_s=0.05, blocks=32, routing=Routing(2, 16, 1024, 2),
)  # fmt: skip


def seconds(case: Case) -> float:
    alpha = 400e-6 if case.form != "direct" or case.operation == "all_to_all" else 100e-6
    return alpha + case.size_bytes / (2e9 if case.form != "direct" else 1e9)


@pytest.fixture(scope="module")
def report() -> AdviceReport:
    run = run_of(
        seconds, "a | b", operations=OPERATIONS, sizes=SIZES, world_size=8,
        forms=("reduce_scatter+all_gather", "isend+irecv"),
    )  # fmt: skip
    return find_advice([run], QUESTION)


def test_text_fits_80_columns_and_says_what_to_paste(
    report: AdviceReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = safe(report.text)
    assert max(map(len, text.splitlines())) <= 80
    subjects = ("Bucket size of DDP", "Groups of FSDP2", "Tokens to experts", "One call or several")
    assert all(f"\n{subject}" in text for subject in subjects)
    assert "DistributedDataParallel(model, bucket_cap_mb=" in text
    assert "No advice about\n  Calls of several tensors: no alternatives are measured\n" in text
    assert "commbench run --op all_reduce,all_gather,reduce_scatter --sizes 16K-64M" in text
    assert str(report) == report.text.rstrip("\n")


def test_markdown_escapes_what_files_say(report: AdviceReport) -> None:
    text = FORMATS["markdown"](report)
    assert text.startswith("Advice from a &#124; b.\n")
    assert "### Bucket size of DDP: change it" in text
    assert "| bucket | number |" in text
    # Four blanks after a list would continue it, and would make no code.
    assert "\n\n```\nDistributedDataParallel(model, bucket_cap_mb=" in text


def test_json_has_every_figure(report: AdviceReport) -> None:
    found: dict[str, Any] = json.loads(FORMATS["json"](report))
    assert (found["schema"], found["runs"]) == (1, ["a | b"])
    by_subject = {each["subject"]: each for each in found["advice"]}
    buckets = by_subject["Bucket size of DDP"]
    assert buckets["gradient_bytes"] == 100_000_000
    assert buckets["gain"]["ci_low"] <= buckets["gain"]["value"] <= buckets["gain"]["ci_high"]
    assert buckets["recommended_bytes"] in [each["bucket_bytes"] for each in buckets["curve"]]
    assert buckets["paste"][0].startswith("DistributedDataParallel(")
    assert {"recommended_blocks", "gain_without_reshard"} <= set(by_subject["Groups of FSDP2"])
    tokens = by_subject["Tokens to experts"]["crossover_tokens"]
    assert tokens["below"] < tokens["at"] < tokens["above"]
    ways = by_subject["One call or several steps"]
    (crossing,) = ways["crossovers"]
    assert crossing["measured_below_bytes"] < crossing["at_bytes"]
    assert crossing["at_bytes"] < crossing["measured_above_bytes"]
    assert {each["verdict"] for each in ways["ranges"]} >= {"change", "keep"}
    assert [each["subject"] for each in found["missing"]] == ["Calls of several tensors"]


def names_of(picture: Picture) -> set[str]:
    """What the curves and the marks of a picture are called."""
    (panel,) = picture.panels
    assert isinstance(panel, Curves)
    return {each.name for each in (*panel.series, *panel.marks)}


def test_the_picture_shows_the_curve_the_good_sizes_and_the_buckets_in_use(
    report: AdviceReport,
) -> None:
    picture = advice_picture(report)
    require_readable(picture)
    assert names_of(picture) == {
        "simulated from measured times", "recommended", "within 2 % of the best", "buckets in use",
        "computation alone",
    }  # fmt: skip
    assert picture.description.startswith("Buckets of ")


def test_without_a_model_nothing_is_simulated_or_drawn() -> None:
    run = run_of(seconds, operations=OPERATIONS, sizes=SIZES)
    found = find_advice([run], Question())
    assert not found.advice
    assert {each.subject: bool(each.command) for each in found.missing} == {
        "Bucket size of DDP": False, "Groups of FSDP2": False, "Tokens to experts": False,
        "Calls of several tensors": True, "One call or several steps": True,
    }  # fmt: skip
    with pytest.raises(UnavailableError, match="the model is not given") as raised:
        advice_picture(found)
    assert raised.value.hint == "add --params 350M --backward 120ms"


@pytest.mark.parametrize(
    ("sizes", "question", "why", "hint"),
    [
        (SIZES[:1], Question(params=1e6), "all_reduce is not measured at two sizes or more",
         "commbench run --op all_reduce --sizes 64K-256M --nproc-per-node 2"),
        (SIZES, Question(params=1e11), "only one size to draw",
         "commbench run --op all_reduce --sizes 64K-256M --nproc-per-node 2"),
        (SIZES, Question(params=1e6, tensors=1), "only one size to draw",
         "all gradients are in one bucket; give more --params or --tensors"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_with_what_helps(
    sizes: tuple[int, ...], question: Question, why: str, hint: str
) -> None:
    run = run_of(seconds, operations=("all_reduce",), sizes=sizes)
    report = find_advice([run], question._replace(bucket_bytes=1 << 30))
    with pytest.raises(UnavailableError, match=why) as raised:
        advice_picture(report)
    assert raised.value.hint == hint


@pytest.mark.parametrize(
    ("largest", "params", "verdict", "first"),
    [
        (20, 5e6, "undecided", "The rows do not decide it: torch's default of 25 MiB would be"),
        (20, 1e8, "undecided", "The rows do not decide it: torch's default of 25 MiB would be"),
        (24, 1e8, "keep", "Keep torch's default of 25 MiB: no simulated size is more than 2 %"),
    ],
)  # fmt: skip
def test_the_table_the_mark_and_the_sentence_agree_where_the_size_in_use_is_extrapolated(
    largest: int, params: float, verdict: str, first: str
) -> None:
    # Latency dominates, so torch's default of 25 MiB is faster than all measured sizes.
    sizes = tuple(1 << k for k in range(14, largest + 1))
    run = run_of(lambda case: 5e-3 + case.size_bytes * 1e-10, sizes=sizes, **NCCL)
    report = find_advice([run], Question(params=params, backward_s=0.02))
    (advice,) = report.advice
    found = advice.details
    assert isinstance(found, BucketAdvice)
    assert (advice.verdict, advice.paste) == (verdict, ())
    assert found.best == found.recommended == found.now
    assert advice.sentences[0].startswith(first)
    assert advice.sentences[1] == "No other size is within 2 % of the best, 25 MiB."
    rows = re.findall(r"^.*[0-9]  [a-z, ]+$", report.text, re.M)
    (row,) = [row.split() for row in rows]
    assert (row[:2], row[-4:]) == (["25", "MiB"], ["1.000", "now,", "best,", "extrapolated"])
    assert advice.measure[0] == "commbench run --op all_reduce --sizes 64K-256M --nproc-per-node 2"
    picture = advice_picture(report)
    require_readable(picture)
    assert ("recommended" in names_of(picture)) == (verdict == "keep")


def test_a_size_in_use_that_is_not_cut_into_unmeasured_buckets_is_not_extrapolated() -> None:
    run = run_of(seconds, operations=("all_reduce",), sizes=SIZES)
    report = find_advice([run], Question(params=1e6, bucket_bytes=1 << 30))
    assert report.text.count("  now") == 1
    assert "extrapolated" not in report.text


@pytest.mark.parametrize(
    ("sizes", "alpha", "marks", "said"),
    [
        (SIZES, 2e-3, {"1": "now", "3": "recommended", "4": "best"},
         "Groups of 3 blocks instead of 1: a step of "),
        (SIZES, 1e-9, {"1": "now, best"},
         "Keep 1 block in each group: no larger group is more than 2 % faster."),
        (SIZES[7:], 2e-3, {"2": "now", "3": "recommended", "4": "best"},
         "Groups of fewer than 2 blocks were not measured."),
    ],
)  # fmt: skip
def test_the_table_of_groups_marks_what_the_sentence_says(
    sizes: tuple[int, ...], alpha: float, marks: dict[str, str], said: str
) -> None:
    run = run_of(
        lambda case: alpha + case.size_bytes * 1e-10, operations=OPERATIONS[1:3], sizes=sizes,
        world_size=8, **NCCL,
    )  # fmt: skip
    report = find_advice([run], Question(params=1e7, backward_s=0.05, blocks=32))
    (advice,) = [each for each in report.advice if each.subject == "Groups of FSDP2"]
    assert said in advice.sentences[0]
    rows = re.findall(r"^ +([0-9]+) .*iB  ([a-z, ]+)$", report.text, re.M)
    assert dict(rows) == marks


def test_tokens_that_were_not_measured_are_named_with_the_command_that_measures_them() -> None:
    run = run_of(seconds, operations=OPERATIONS, sizes=SIZES, world_size=8)
    asked = Question(routing=Routing(2, 16, 1024, 2, tokens=100_000))
    (advice,) = find_advice([run], asked).advice
    assert advice.sentences[-1] == (
        "100000 tokens are 1.5 GiB of all_gather and 378 MiB of all_to_all, which are not among "
        "the measured sizes."
    )
    assert advice.measure == (
        "commbench run --op all_gather,reduce_scatter,all_to_all --sizes 1K-2G --nproc-per-node 8",
    )
    known = find_advice([run], Question(routing=Routing(2, 16, 1024, 2, tokens=64)))
    assert known.advice[0].measure == ()
    assert "\n\n\n" not in known.text


def test_a_question_without_an_answer_is_refused() -> None:
    run = run_of(seconds, operations=OPERATIONS, sizes=SIZES, world_size=8)
    for wrong, message in (
        (Question(params=1e6, model_bytes=1), "say the same"),
        (Question(routing=Routing(9, 8, 1, 1)), "larger than --experts"),
        (Question(routing=Routing(2, 12, 1, 1)), "no multiple of 8 ranks"),
    ):
        with pytest.raises(UsageError, match=message):
            find_advice([run], wrong)


def test_without_a_backward_time_the_communication_is_assumed_to_take_as_long() -> None:
    run = run_of(seconds, operations=("all_reduce",), sizes=SIZES)
    (advice,) = find_advice([run], Question(model_bytes=1 << 26)).advice
    assert "assumed: as long as the communication; give --backward" in " ".join(advice.sentences)


def test_each_group_of_ranks_has_its_own_advice() -> None:
    run = run_of(
        seconds, operations=("all_reduce",), sizes=SIZES, world_size=4, mesh="dp=2,tp=2",
        over=("dp", "tp"),
    )  # fmt: skip
    found = find_advice([run], Question(model_bytes=1 << 26, backward_s=0.1, tensors=8))
    assert [each.about.partition(" over ")[2] for each in found.advice] == [
        "dp together, 4 gloo ranks", "tp together, 4 gloo ranks",
    ]  # fmt: skip
    require_readable(advice_picture(found))
