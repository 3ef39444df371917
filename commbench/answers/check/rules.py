"""Rules: limits, and the rows they apply to. They are read from options and from TOML files.

A row fails if its whole 95 % interval lies beyond the limit. It passes if the whole interval lies
within the limit. Else the limit lies inside the interval, and it is undecided, or likely passes.
Where no interval is known (in other tools' files), the median, or the mean that is there, decides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from commbench import units
from commbench.analysis.row_names import format_range, name_rows, named_bytes
from commbench.errors import UsageError, wrong_value
from commbench.output.text import list_some, seconds, short_repr
from commbench.plan import dtypes, operations, workload_variants
from commbench.plan.links import parse_bandwidth
from commbench.results.files import read_whole
from commbench.stats import Estimate, judge
from commbench.validation import brief, choose, is_within_limits
from commbench.views import cells


@short_repr("name")
class Limit(NamedTuple):
    """One kind of demand."""

    name: str
    parse: Callable[[str], float]
    words: Callable[[float], str]
    """The demand in a few words."""
    unit: cells.Unit
    """How the quantity is written."""
    interval: cells.Unit
    """How its interval is written."""
    sentence: str
    """What a row does whose value is put in: `takes {}`."""
    heading: str
    """The quantity, as the heading of a column."""
    estimate: Callable[[Any], Estimate | None]
    """The quantity of a row of results, or of a ComparedRow; None where it was not measured."""
    is_least: bool = False
    """The limit is the least value allowed, not the largest."""
    needs_baseline: bool = False
    """It limits rows of a comparison with a baseline."""

    def __reduce__(self) -> Any:
        is_known = LIMITS.get(self.name) is self
        return (_limit, (self.name,)) if is_known else (Limit, tuple(self))

    def excess(self, limit: float, found: Estimate) -> float:
        """How far a value is beyond the limit, as a factor: 1 at the limit, below 1 within it."""
        above, below = (limit, found.value) if self.is_least else (found.value, limit)
        return above / below if below else inf


LIMITS: dict[str, Limit] = {
    limit.name: limit
    for limit in (
        Limit(
            name="max_slowdown",
            parse=lambda text: 1 + units.parse_percentage(text),
            words=lambda limit: f"at most {(limit - 1) * 100:g} % slower than the baseline",
            unit=cells.RATIO,
            interval=cells.RATIO_INTERVAL,
            sentence="takes {} times as long as in the baseline",
            heading="ratio",
            estimate=attrgetter("ratio"),
            needs_baseline=True,
        ),
        Limit(
            name="min_busbw",
            parse=parse_bandwidth,
            words=lambda limit: f"bus bandwidth at least {units.format_GBps(limit)} GB/s",
            unit=cells.BANDWIDTH,
            interval=cells.BANDWIDTH_INTERVAL,
            sentence="has a bus bandwidth of {} GB/s",
            heading="busbw\nGB/s",
            estimate=attrgetter("busbw"),
            is_least=True,
        ),
        Limit(
            name="max_time",
            parse=units.parse_time,
            words=lambda limit: f"time at most {seconds(limit)}",
            unit=cells.TIME,
            interval=cells.TIME_INTERVAL,
            sentence="takes {}",
            heading="time",
            estimate=attrgetter("time"),
        ),
    )
}
DEFAULT_SLOWDOWN = "10%"
NEEDED_BASELINE = "name the run to compare with: --against BASELINE"
_EXAMPLES = {"max_slowdown": DEFAULT_SLOWDOWN, "min_busbw": "3GB/s", "max_time": "5ms"}


def _limit(name: str) -> Limit:
    return LIMITS[name]


class RowLimit(NamedTuple):
    """The limit of one row, where it is not the same for all."""

    value: float | None
    reason: str
    """Why there is none, where it is None."""


@short_repr("title")
class Rule(NamedTuple):
    """A limit, and the rows that it applies to."""

    limit: Limit
    value: float
    operation: str = ""
    """Empty: all."""
    dtype: str = ""
    call: str = ""
    """The name of an own call."""
    smallest: int = 0
    largest: int = units.LARGEST_SIZE
    step: str = ""
    """The step of a workload."""
    variant: str = ""
    """How the step is replayed (plan.workload_variants)."""
    optional: bool = False
    """The rule may match no row, and rows that only one run has do not matter."""
    undecided: str = ""
    """What rows that are undecided or likely to pass count as: PASS, FAIL, or empty. Empty: those
    that are undecided leave the rule without a verdict, the others do not matter."""
    of_row: Callable[[Any], RowLimit] | None = None
    """The limit of a row, where it is not `value` for all rows."""
    name: str = ""
    """The rule in words; empty for one whose limit is `value`."""
    allow_unchecked: bool = False
    """Rows may pass although their results were not checked."""
    remarks: Sequence[str] | None = None
    """What is said of it, where they are not those of the hardware."""

    def judge(self, found: Estimate) -> str:
        """What stats.judge says of a figure that it limits."""
        return judge(found, self.value, self.limit.is_least)

    def covers(self, row: Any) -> bool:
        """Whether the rule applies to a row of results."""
        return (
            self.smallest <= named_bytes(row) <= self.largest
            and self.operation in ("", row.operation)
            and self.dtype in ("", row.dtype)
            and self.call in ("", row.call)
            and self.step in ("", row.step)
            and self.variant in ("", row.variant)
        )

    @property
    def where(self) -> str:
        """Which rows, in a few words: `all_reduce float32 1M-1G`."""
        low, high = (format_range(size, size) for size in (self.smallest, self.largest))
        high = high if self.largest < units.LARGEST_SIZE else ""
        sizes = low if low == high else f"{low}-{high}"
        every = "all operations" if self.dtype or self.call or sizes else "all rows"
        if self.step or self.variant:
            every = f"{operations.REPLAY} {self.step}" if self.step else "all steps"
        variant = self.variant.replace(":", " ")
        words = (self.operation or every, self.dtype, self.call, sizes, variant)
        return " ".join(filter(None, words))

    @property
    def title(self) -> str:
        """The whole rule: `all_reduce 1M-1G: bus bandwidth at least 3.00 GB/s`."""
        return self.name or f"{self.where}: {self.limit.words(self.value)}"


def select_rules(
    limits: Mapping[str, Sequence[str] | None],
    path: Path | None,
    has_baseline: bool,
    has_others: bool = False,
) -> list[Rule]:
    """The rules from texts by the name of their limit, and from a TOML file. With a baseline and
    without a rule that needs it, a rule for DEFAULT_SLOWDOWN is added.

    Raises UsageError if there is no rule and there are no others, or if a text or the file is
    wrong.
    """
    rules = [parse_rule(name, text) for name, texts in limits.items() for text in texts or ()]
    rules += read_rules(path, has_baseline) if path else ()
    if has_baseline and not any(rule.limit.needs_baseline for rule in rules):
        rules.append(parse_rule("max_slowdown", DEFAULT_SLOWDOWN))
    if not rules and not has_others:
        hint = "give one: --against BASELINE, --min-busbw, --max-time, --expect or --rules"
        raise UsageError("there is no rule to check", hint)
    return rules


def parse_rule(name: str, text: str) -> Rule:
    """The rule in an option: `[OPERATION:][SIZES:]LIMIT`, such as `all_reduce:1M-1G:3GB/s`; of a
    replay `[step=NAME:][variant=HOW:]LIMIT`, whose variant may hold a colon.

    Raises UsageError for a text that is not a rule.
    """
    limit = LIMITS[name]
    *selectors, value = (field.strip() for field in text.split(":"))
    selected: dict[str, Any] = {}
    for field in selectors:
        kind, equals, chosen = (part.strip() for part in field.partition("="))
        if not equals and "variant" in selected:
            selected["variant"] += f":{field}"
            continue
        if not equals:
            chosen = field
            kind = "sizes" if field[:1].isdigit() or field[:1] == "-" else "operation"
        is_limit = kind == "sizes" and ({"%", "/"} & {*chosen} or chosen.lower().endswith("s"))
        is_last = not value or value[:1].isalpha()  # a name, and no limit
        if not chosen or kind in selected or kind not in _SELECTORS or is_limit or is_last:
            shown = f"all_reduce:1M-1G:{_EXAMPLES[name]}"
            if is_last and value and len(selectors) == 1 and selectors[0][:1].isdigit():
                shown = f"{value}:{selectors[0]}"
            elif not value and all(selectors):
                shown = f"{':'.join(selectors)}:{_EXAMPLES[name]}"
            hint = f"write [OPERATION:][SIZES:]LIMIT: --{name.replace('_', '-')} {shown}"
            raise wrong_value(text, "is not a limit", hint)
        selected[kind] = chosen
    return make_rule(limit, value, selected)


def make_rule(limit: Limit, value: str, selected: dict[str, Any]) -> Rule:
    """A rule from texts by the names of _SELECTORS. A missing name means all."""
    fields: dict[str, Any] = {}
    for name, chosen in selected.items():
        fields |= _SELECTORS[name](as_text(name, chosen))
    return Rule(limit, limit.parse(value), **fields)


def _sizes(text: str) -> dict[str, Any]:
    """A range of sizes: `1M-1G`, `1M-`, `-64K`, or one size."""
    return dict(zip(("smallest", "largest"), units.parse_size_range(text), strict=True))


def _variant(text: str) -> dict[str, Any]:
    variant = workload_variants.parse_variant(text)
    return {"variant": "" if variant == workload_variants.EVERY_VARIANT else variant}


_SELECTORS: dict[str, Callable[[str], dict[str, Any]]] = {
    "operation": lambda text: {
        "operation": "" if text == "all" else operations.find_operation(text).name
    },
    "sizes": _sizes,
    "dtype": lambda text: {"dtype": "" if text == "all" else dtypes.find_dtype(text).name},
    "call": lambda text: {"call": text},
    "step": lambda text: {"step": text},
    "variant": _variant,
}
"""What selects the rows of a rule, and how it is read."""


def available(rule: Rule, rows: Sequence[Any]) -> str:
    """What a run has, for a rule that finds no row: `all_reduce 1K-1M`, or the steps it replays."""
    if rule.step or rule.variant:
        steps = list(dict.fromkeys(f"{row.step} {row.variant}" for row in rows if row.step))
        return f"the steps {list_some(steps, _MOST_STEPS)}" if steps else "no step of a workload"
    dtypes_ = dict.fromkeys(row.dtype for row in rows if row.dtype and rule.dtype)
    found = name_rows(rows, rows, _LONGEST_NAMES) or "no rows"
    return found + cells.in_brackets(", ".join(dtypes_))


def unmatched(rule: Rule, run: Any) -> UsageError:
    """The error for a rule that matches no row of a run."""
    why = f"no row of {run.name} matches the rule {rule.title!r}"
    return UsageError(why, f"the run has {available(rule, run.rows)}")


def as_text(key: str, value: Any) -> str:
    """A value as the text of an option; a number has no unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and is_within_limits(value):
        return repr(value)
    raise UsageError(f"{key} is {brief(value)}", "write it as text, in quotation marks")


_MOST_STEPS = 20
"""Steps that are named, at most."""
_LONGEST_NAMES = 100
"""Characters of the names of the rows of a run."""
_KEYS = dict.fromkeys((*_SELECTORS, *LIMITS, "optional"))
_LARGEST_BYTES = 1 << 20


def read_rules(path: Path, has_baseline: bool = True) -> tuple[Rule, ...]:
    """The tables `[[rule]]` of a TOML file; UsageError if it cannot be read or has other tables, or
    a limit needs the baseline that there is not."""
    values = _toml(path)
    tables = values.get("rule")
    if [*values] != ["rule"] or not isinstance(tables, list) or not tables:
        held = ", ".join(map(repr, values)) or "nothing"
        raise UsageError(f"{path} holds {held}, no list of rules", "begin each with [[rule]]")
    rules: list[Rule] = []
    for number, table in enumerate(tables, start=1):
        try:
            rules += (made := _make_rules(table))
            if not has_baseline and (own := [r for r in made if r.limit.needs_baseline]):
                raise UsageError(f"{own[0].limit.name} needs a baseline", NEEDED_BASELINE)
        except UsageError as error:
            raise UsageError(f"{path}, rule {number}: {error.message}", error.hint) from None
    return tuple(rules)


def _make_rules(table: Any) -> list[Rule]:
    if not isinstance(table, dict):
        raise UsageError("it is not a table", "a rule begins with [[rule]]")
    for key in table:
        choose("key", key, _KEYS)
    optional = table.get("optional", False)
    if not isinstance(optional, bool):
        raise UsageError(f"optional is {brief(optional)}", "write true or false")
    limits = [key for key in table if key in LIMITS]
    if not limits:
        raise UsageError("it has no limit", f"give it one of {', '.join(LIMITS)}")
    selected = {key: table[key] for key in _SELECTORS if key in table}
    return [
        make_rule(LIMITS[key], as_text(key, table[key]), selected)._replace(optional=optional)
        for key in limits
    ]


def _toml(path: Path) -> dict[str, Any]:
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    content = read_whole(path, _LARGEST_BYTES, "give a TOML file")
    try:
        values: dict[str, Any] = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError too
        hint = 'a rule is [[rule]], then a line such as max_slowdown = "10%", with the quotes'
        raise UsageError(f"{path} is not valid TOML: {error}", hint) from None
    return values
