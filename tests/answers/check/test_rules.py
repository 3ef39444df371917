"""Rules from options and from TOML, on rows and on the steps of a replay, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic_replay import synthetic_replay

from commbench.analysis.load import open_run
from commbench.answers.check.gate import FAIL, PASS, GateResult, check
from commbench.answers.check.rules import available, parse_rule, read_rules
from commbench.errors import RecordsError, UsageError
from commbench.plan.links import parse_bandwidth
from commbench.units import LARGEST_SIZE, parse_percentage, parse_tolerance


@pytest.mark.parametrize(
    ("name", "text", "title", "sizes", "value"),
    [
        ("max_slowdown", "10%",
         "all rows: at most 10 % slower than the baseline", (0, LARGEST_SIZE),
         1.1),
        ("max_slowdown", "all_reduce:12.5%",
         "all_reduce: at most 12.5 % slower than the baseline", (0, LARGEST_SIZE), 1.125),
        ("max_slowdown", "1K-64K:200%",
         "all operations 1K-64K: at most 200 % slower than the baseline",
         (1 << 10, 1 << 16), 3.0),
        ("min_busbw", "all_reduce:1M-1G:3.0GB/s",
         "all_reduce 1M-1G: bus bandwidth at least 3.00 GB/s", (1 << 20, 1 << 30), 3e9),
        ("min_busbw", "all:1M-:250 MB/s", "all operations 1M-: bus bandwidth at least 0.25 GB/s",
         (1 << 20, LARGEST_SIZE), 0.25e9),
        ("max_time", "all_gather:-64K:80us", "all_gather -64K: time at most 80 us",
         (0, 1 << 16), 80e-6),
        ("max_time", "call=Mine:-64K:80us", "all operations Mine -64K: time at most 80 us",
         (0, 1 << 16), 80e-6),
        ("max_time", "8:all_gather:1.5ms", "all_gather 8B: time at most 1.5 ms", (8, 8), 1.5e-3),
    ],
)  # fmt: skip
def test_an_option_is_a_rule(
    name: str, text: str, title: str, sizes: tuple[int, int], value: float
) -> None:
    rule = parse_rule(name, text)
    assert rule.title == title
    assert (rule.smallest, rule.largest) == sizes
    assert rule.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("max_slowdown", "10", "'10' is not a percentage"),
        ("max_slowdown", "", "'' is not a percentage"),
        ("max_slowdown", "-5%", "'-5%' is below 0 %"),
        ("max_slowdown", "all_redcue:10%", "unknown operation 'all_redcue'"),
        ("max_slowdown", "all_reduce:all_gather:10%",
         "'all_reduce:all_gather:10%' is not a limit"),
        ("max_slowdown", ":10%", "':10%' is not a limit"),
        ("min_busbw", "all_reduce:1M-1G:3", "bandwidth '3' has no unit"),
        ("min_busbw", "3GiB/s", "bandwidth '3GiB/s' has an unclear unit 'GiB/s'"),
        ("min_busbw", "0GB/s", "bandwidth '0GB/s' is not above 0"),
        ("min_busbw", "1G-1M:3GB/s", "the range '1G-1M' is reversed"),
        ("min_busbw", "-:3GB/s", "'-' is not a range of sizes"),
        ("min_busbw", "1MB-:3GB/s", "'1MB' could mean a power of 1000 or of 1024"),
        ("max_time", "80", "time '80' has no unit"),
        ("max_time", "stp=train:3ms", "'stp=train:3ms' is not a limit"),
        ("max_time", "step=:3ms", "'step=:3ms' is not a limit"),
        ("max_time", "step=a:step=b:3ms", "'step=a:step=b:3ms' is not a limit"),
        ("max_time", "variant=bukcet:6M:3ms", "unknown variant 'bukcet:6M'"),
    ],
)  # fmt: skip
def test_what_is_no_rule_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_rule(name, text)
    assert caught.value.message == message
    assert caught.value.hint


RULES = """\
[[rule]]
operation = "all_reduce"
dtype = "bfloat16"
sizes = "1M-1G"
max_slowdown = 0.1
min_busbw = "3.0GB/s"

[[rule]]
max_time = "10ms"
optional = true
"""


def test_a_file_holds_several_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    rules = read_rules(path)
    assert [(rule.title, rule.optional) for rule in rules] == [
        ("all_reduce bfloat16 1M-1G: at most 10 % slower than the baseline", False),
        ("all_reduce bfloat16 1M-1G: bus bandwidth at least 3.00 GB/s", False),
        ("all rows: time at most 10 ms", True),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "{} holds nothing, no list of rules"),
        ("rule = 3", "{} holds 'rule', no list of rules"),
        ("rule = [3]", "{}, rule 1: it is not a table"),
        ("[[rules]]", "{} holds 'rules', no list of rules"),
        ("[[rule]]", "{}, rule 1: it has no limit"),
        ("[[rule]]\nmax_slowdwon = 0.1", "{}, rule 1: unknown key 'max_slowdwon'"),
        ("[[rule]]\nmax_slowdown = 10", "{}, rule 1: '10' is not a percentage"),
        ("[[rule]]\nmax_slowdown = [1]", "{}, rule 1: max_slowdown is [1]"),
        ("[[rule]]\nmax_slowdown = true", "{}, rule 1: max_slowdown is True"),
        ("[[rule]]\nmax_time = '1s'\noptional = 'yes'", "{}, rule 1: optional is 'yes'"),
        ("[[rule]]\nmax_time = '1s'\nsizes = '1G-1K'",
         "{}, rule 1: the range '1G-1K' is reversed"),
        ("[[rule]]\nmax_time = '1s'\n[[rule]]\nmax_time = '2'",
         "{}, rule 2: time '2' has no unit"),
        ("[[rule", "{} is not valid TOML: "),
        (b"\xff", "{} is not valid TOML: "),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_rules_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as caught:
        read_rules(path)
    assert caught.value.message.startswith(message.format(path))
    with pytest.raises(RecordsError, match=r"cannot read .*nowhere: No such file"):
        read_rules(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (parse_percentage, {"10%": 0.1, "0.1": 0.1, " 150 % ": 1.5, "0": 0.0, "0%": 0.0}),
        (parse_tolerance, {"99%": 0.99, "0.05": 0.05, "0%": 0.0}),
        (parse_bandwidth, {"3.0GB/s": 3e9, "250 MB/s": 2.5e8, "1.2TB/s": 1.2e12}),
    ],
)
def test_texts_of_limits(parse: Callable[[str], float], values: dict[str, float]) -> None:
    assert {text: parse(text) for text in values} == pytest.approx(values)


@pytest.mark.parametrize("text", ["1", "10", "inf", "nan", "inf%", "ten", "%", "", "-1%", "1e9%"])
def test_what_is_no_percentage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_percentage(text)
    with pytest.raises(UsageError, match="'100%' is not below 100 %") as refused:
        parse_tolerance("100%")
    assert refused.value.hint == "write for example 5% or 0.05"


def test_the_largest_percentage_is_named() -> None:
    assert parse_percentage("99999%") == 999.99
    with pytest.raises(UsageError, match="'100000%' is too large") as refused:
        parse_percentage("100000%")
    assert refused.value.hint == "write less than 100000%"


def checked(tmp_path: Path, *rules: str) -> GateResult:
    """A replay whose step takes 1.3 times as long as before, checked against rules on its time."""
    if not (tmp_path / "old").exists():
        synthetic_replay(tmp_path / "old", "old")
        synthetic_replay(tmp_path / "new", "new", lambda case: 1.3 if case.step else 1.0, seed=1)
    against = any(rule.startswith("max_slowdown") for rule in rules)
    return check(
        open_run(tmp_path / "new"),
        [parse_rule(*rule.split(" ")) for rule in rules],
        open_run(tmp_path / "old") if against else None,
    )


@pytest.mark.usefixtures("launches_alike")
@pytest.mark.parametrize(
    ("rule", "title", "rows", "outcome"),
    [
        ("max_time step=train:3ms", "replay train: time at most 3 ms", 4, PASS),
        ("max_time step=train:1ms", "replay train: time at most 1 ms", 4, FAIL),
        ("max_time step=train:variant=bucket:6M:1ms",
         "replay train bucket 6M: time at most 1 ms", 1, PASS),
        ("max_time variant=calls:1ms", "all steps calls: time at most 1 ms", 1, FAIL),
        ("max_time replay:step=train:variant=all:3ms", "replay: time at most 3 ms", 4, PASS),
        ("max_time 1M-1G:100ms", "all operations 1M-1G: time at most 100 ms", 3, PASS),
        ("max_slowdown step=train:10%",
         "replay train: at most 10 % slower than the baseline", 4, FAIL),
        ("max_slowdown all_reduce:10%",
         "all_reduce: at most 10 % slower than the baseline", 3, PASS),
    ],
)  # fmt: skip
def test_a_rule_applies_to_steps_by_name_and_variant(
    tmp_path: Path, rule: str, title: str, rows: int, outcome: str
) -> None:
    (found,) = checked(tmp_path, rule).results
    assert (found.rule.title, len(found.checks), found.outcome) == (title, rows, outcome)


def test_a_rule_that_matches_no_row_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the rule 'replay other: time at most 3 ms'") as refused:
        checked(tmp_path, "max_time step=other:3ms")
    assert refused.value.hint.startswith("the run has the steps train calls, train bucket:")
    rows = [SimpleNamespace(step=name, variant="calls") for name in ("train", "evaluate", "")]
    rule = parse_rule("max_time", "step=trian:3ms")
    assert available(rule, rows) == "the steps train calls, evaluate calls"
    assert available(rule, rows[2:]) == "no step of a workload"
    small = parse_rule("max_time", "1K:3ms")
    with pytest.raises(UsageError) as refused:
        checked(tmp_path, "max_time 1K:3ms", "max_time all_gather:1K:3ms")
    assert refused.value.message == f"no row of new matches the rule {small.title!r}"
    assert refused.value.hint.startswith("the run has all_reduce ")
    allowed = small._replace(optional=True)
    assert check(open_run(tmp_path / "new"), [allowed]).exit_code == 7
    required = parse_rule("max_time", "dtype=bfloat16:1K:3ms")
    with pytest.raises(UsageError, match="all operations bfloat16 1K") as refused:
        check(open_run(tmp_path / "new"), [allowed, required])
    assert refused.value.hint.endswith(" (float32)")
