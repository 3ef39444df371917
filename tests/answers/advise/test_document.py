"""Documents, JSON and pictures of advice."""

from __future__ import annotations

import re

import pytest
from pictures import require_readable
from planted_times import NCCL, run_of

from commbench.answers.advise.advice import DDP, AdviceReport, Question, find_advice
from commbench.answers.advise.document import VIEW, advice_picture, answers, document
from commbench.answers.advise.simulation import BucketAdvice
from commbench.answers.compare.comparison import compare, require_comparable
from commbench.errors import UnavailableError, UsageError
from commbench.plan.case import Case
from commbench.views.document import Section, Table
from commbench.views.pictures import Curves, Picture

SIZES = tuple(1 << k for k in range(14, 27))
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
QUESTION = Question(params=25e6, backward_s=0.05)


def seconds(case: Case) -> float:
    alpha = 400e-6 if case.form != "direct" or case.operation == "all_to_all" else 100e-6
    return alpha + case.size_bytes / (2e9 if case.form != "direct" else 1e9)


def marks_of(report: AdviceReport, heading: str) -> dict[str, str]:
    """The words in the last column of the table whose first column has this heading."""
    sections = [block for block in document(report).blocks if isinstance(block, Section)]
    for block in (block for section in sections for block in section.blocks):
        if isinstance(block, Table) and (texts := block.texts())[0][0] == heading:
            return {row[0]: row[-1] for row in texts[1] if row[-1]}
    raise AssertionError(f"no table of {heading}")


def names_of(picture: Picture) -> set[str]:
    """What the curves and the marks of a picture are called."""
    (panel,) = picture.panels
    assert isinstance(panel, Curves)
    return {each.name for each in (*panel.series, *panel.marks)}


def test_the_picture_shows_the_curve_the_good_sizes_and_the_buckets_in_use() -> None:
    report = find_advice(
        [run_of(seconds, "a | b", launches=3, sizes=SIZES, world_size=8)], QUESTION
    )
    picture = advice_picture(report)
    require_readable(picture)
    assert names_of(picture) == {
        "simulated from measured times", "perhaps faster", "medians within 2 % of the shortest",
        "buckets in use",
    }  # fmt: skip
    assert picture.description == answers(report.advice, report.question)[0]
    assert "Advice from a &#124; b" in VIEW.write(report, "markdown")


@pytest.mark.parametrize(
    ("sizes", "question", "why", "hint"),
    [
        (SIZES, Question(), "give --params", "add --params 350M --backward 120ms; more of them "
         "make more sizes"),
        (SIZES[:1], Question(params=1e6), "all_reduce is not measured at two sizes or more",
         "commbench run --op all_reduce --sizes 64K-256M --nproc-per-node 2 --label wide"),
        (SIZES, Question(params=1e11), "only one size to draw",
         "commbench run --op all_reduce --sizes 64K-256M --nproc-per-node 2 --label wide"),
        (SIZES, Question(params=1e6, tensors=1), "only one size to draw",
         "add --params 350M --backward 120ms; more of them make more sizes"),
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
    ("largest", "params", "verdict"),
    [(20, 5e6, "undecided"), (20, 1e8, "undecided"), (24, 1e8, "keep")],
)
def test_the_table_and_the_picture_agree_where_the_size_in_use_is_extrapolated(
    largest: int, params: float, verdict: str
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
    assert found.good_bytes == (found.now.bucket_bytes,) * 2
    assert marks_of(report, "bucket")["25 MiB"].startswith("now, extrapolated")
    assert largest > 20 or "slower" not in marks_of(report, "bucket").values()
    (answer,), is_guess = answers(report.advice, report.question), largest == 20
    assert ("extrapolated far beyond" in answer) == is_guess
    assert not (is_guess and "times as long" in answer)
    assert ("not judged" in marks_of(report, "bucket")["25 MiB"]) == is_guess
    assert (
        advice.measure[0]
        == "commbench run --op all_reduce --sizes 64K-256M --nproc-per-node 2 --label wide"
    )
    picture = advice_picture(report)
    require_readable(picture)
    assert ("recommended" in names_of(picture)) == (verdict == "keep")


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_cpu_modes_of_separate_runs_are_not_judged_for_compare_refuses_them(factor: float) -> None:
    runs = [
        run_of(lambda case: factor * seconds(case), "p", sizes=SIZES, cpu_mode="plain", launches=6),
        run_of(seconds, "r", sizes=SIZES, cpu_mode="realtime", launches=6),
    ]
    with pytest.raises(UsageError, match="should not be compared"):
        require_comparable([compare(*runs)], force=False)
    report = find_advice(runs, Question())
    (advice,), (answer,) = report.advice, answers(report.advice, report.question)
    assert (advice.subject, advice.verdict, advice.paste) == ("CPU mode", "undecided", ())
    assert (
        re.search(rf": {factor:.2f} \([^)]*\) times as fast", answer)
        and "they did not run in turns" in answer
    )
    sweep = "commbench sweep --op all_reduce --sizes 16K-64M --vary cpu-mode="
    assert advice.measure[0].startswith(sweep) and "--cpu-mode" not in advice.measure[0]
    said = "only the advice on the CPU mode compares these runs: "
    assert said in " ".join(document(report).subtitle)


def test_no_bucket_is_advised_from_times_that_do_not_grow_with_the_size() -> None:
    sizes = tuple(1 << k for k in range(10, 21))
    run = run_of(lambda _: 11e-3, noise=0.05, sizes=sizes)
    report = find_advice([run], Question(params=350e6, backward_s=0.12))
    assert not report.advice
    assert (DDP, True) in {(each.subject, "not grow" in each.needs) for each in report.missing}
    inside = find_advice([run], Question(params=1e5, backward_s=0.12))
    assert [each.subject for each in inside.advice] == [DDP]


def test_commands_keep_what_the_run_measured_and_have_only_forms_of_their_operations() -> None:
    asked = {"dtypes": ("bfloat16",), "timing": "pipelined", "cpu_mode": "plain"}
    report = find_advice([run_of(seconds, sizes=SIZES, **asked)], Question())
    commands = [each.command for each in report.missing if each.command]
    for command in commands:
        assert all(word in command for word in ("bfloat16", "pipelined", "plain"))
    (via,) = (command for command in commands if "--via" in command)
    assert "--op all_reduce " in via
    assert "--via reduce_scatter+all_gather --" in via


def test_compare_is_named_only_where_the_environments_of_two_runs_differ() -> None:
    runs = [run_of(seconds, name, sizes=SIZES, variables={"UCX_TLS": name}) for name in "ab"]
    assert "`commbench compare`" in VIEW.write(find_advice(runs, Question()))
    same = [run_of(seconds, name, sizes=SIZES) for name in "ab"]
    assert "`commbench compare`" not in VIEW.write(find_advice(same, Question()))


def test_a_question_without_an_answer_is_refused() -> None:
    run = run_of(seconds, operations=OPERATIONS, sizes=SIZES, world_size=8)
    with pytest.raises(UsageError, match="say the same"):
        find_advice([run], Question(params=1e6, model_bytes=1))
