"""ADVICE: the choices whose alternatives move the same bytes, and how rows decide them.

A choice is an option of `commbench run` or a variable of the environment. Its alternatives are rows
that differ in it and in nothing else. A sweep compares settings in the same way, so here each
alternative is a setting, and points, ranges and verdicts are those of sweeps (sweep.ranking).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from math import log
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from commbench import stats
from commbench.analysis import nccl_log, row_names
from commbench.analysis.rows import ResultRow
from commbench.answers.advise.versions import name_values, shorten
from commbench.answers.compare.ratio import waited_sides
from commbench.answers.sweep import ranking, result
from commbench.answers.sweep.ranges import SizeRange, make_ranges, pool_settings
from commbench.answers.sweep.ranking import SweepPoint, is_timed
from commbench.answers.sweep.runner import SettingResult
from commbench.answers.sweep.settings import PYTHON, UNSET, Setting, short_names
from commbench.host.cpu import cpu_mode_calls
from commbench.output.text import read_sections
from commbench.plan.backends import BACKENDS
from commbench.plan.call_forms import CALL_FORMS, DIRECT, ONE_TENSOR
from commbench.plan.case import Case
from commbench.plan.dimensions import DIMENSIONS
from commbench.plan.operations import OPERATIONS
from commbench.plan.own_calls import TORCH
from commbench.plan.workload_variants import AS_TRACED, BUCKET, COMPOSED
from commbench.results.schema import RunHeader
from commbench.stats import CHANGE, KEEP, SLOWER, UNDECIDED, Estimate
from commbench.units import parse_size
from commbench.views.formats import fields_of

CPU_MODE = "cpu-mode"
FLAT = Setting(options=(("form", "flat"),))  # the program must place its tensors otherwise


@cache
def _templates() -> dict[str, str]:
    return read_sections(Path(__file__).with_name("lines.txt"))


def fill_lines(name: str, **values: object) -> tuple[str, ...]:
    """The lines of a section with its blanks filled in."""
    return tuple(_templates()[name].format_map(values).splitlines())


def call_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """How a program uses an alternative: a form of a call, a graph, a kind of memory."""
    ((_, name),) = setting.options
    operation = OPERATIONS[case.operation]
    if name not in _templates() or (name == "flat_copy" and operation.blocks):
        return (f"# {CALL_FORMS[name].summary}",)
    arguments, tensors = "tensor", "tensor in tensors"
    if operation.torch_call.endswith(("_tensor", "_single")):
        arguments, tensors = "output, input", "output, input in pairs"
    return fill_lines(name, call=operation.torch_call, arguments=arguments, tensors=tensors)


def own_call_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """Where the user's own call is."""
    return (f"# {case.operation}: the class {dict(setting.options)['call']}",)


def variant_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """How a program makes the calls of a variant of its step; none for those that it makes."""
    ((_, variant),) = setting.options
    name, _, size = variant.partition(":")
    if name == BUCKET:
        return fill_lines("bucket", mib=parse_size(size) / (1 << 20))
    if variant == COMPOSED.name:
        return call_lines(setting, case._replace(operation=COMPOSED.operations[0]))
    return ()


def setting_lines(setting: Setting, case: Case) -> tuple[str, ...]:  # noqa: ARG001
    """Lines of a shell that make a setting, and what Python must give."""
    lines = [
        f"unset {name}" if value == UNSET else f"export {name}={quote(value)}"
        for name, value in setting.variables
    ]
    for name, value in setting.options:
        if name == "backend":
            lines.append(f"dist.init_process_group({value!r})")
        elif name == CPU_MODE:
            lines.append(f"commbench run --cpu-mode {value}")
            for line in cpu_mode_calls(value):
                may = ", ahead of others on its core: root or CAP_SYS_NICE" * ("FIFO" in line)
                lines.append(f"{line}  # in a program{may}")
        elif name == PYTHON:
            lines.append(f"# run it with {setting.interpreter}")
        elif value != UNSET:
            lines.append(f"# options of ProcessGroupNCCL: {value}")
    return tuple(lines)


class Choice(NamedTuple):
    """One choice between ways to move the same bytes."""

    subject: str
    """What is chosen, as a heading."""
    option: str
    """The option of `commbench run`, without dashes, whose values are the alternatives; empty:
    settings of the environment, which differ between runs."""
    defaults: tuple[str, ...]
    """The alternative that is used where nothing is changed; of several the first that was
    measured, and the others are no alternatives."""
    measure: str
    """Options of `commbench run`, or `sweep`, that measure the alternatives."""
    paste: Callable[[Setting, Case], tuple[str, ...]]
    """Lines that choose an alternative: of Python, of a shell."""
    suits: Callable[[Case], bool] = lambda case: True  # noqa: ARG005
    """Whether a case is an alternative."""
    is_possible: Callable[[RunHeader], bool] = lambda header: True  # noqa: ARG005
    """Whether the ranks of a run have several alternatives at all."""
    operations: tuple[str, ...] = ()
    """The operations that have alternatives; empty: all."""
    is_of_steps: bool = False
    """Whether the alternatives are steps of a workload, instead of single calls."""


class RangeAdvice(NamedTuple):
    """What is best for neighbouring sizes."""

    low_bytes: int
    high_bytes: int
    verdict: str
    """CHANGE, KEEP or UNDECIDED."""
    best: Setting
    """The alternative to choose: the default one where the verdict is not CHANGE."""
    candidates: tuple[Setting, ...]
    """The alternatives that are not known to be slower than the fastest one at each of the sizes,
    the fastest on average first; where the verdict is UNDECIDED the default, and those that may be
    faster by more than the tolerance over these sizes together."""
    gain: Estimate | None
    """The time under the default over that under `alternative`: geometric mean over the sizes."""
    alternative: Setting | None
    """The first candidate other than the default; where there is none, the fastest of the
    others."""
    fallback: Setting | None = None
    """The best one that is not FLAT, where `best` is."""
    has_waited: bool = False
    """Whether ranks waited for a core in most rows of the two: then no other than the default is
    chosen."""
    undecided: tuple[Setting, ...] = ()
    """Slower than the first candidate by the interval, but not judged, since ranks waited."""
    is_apart: bool = False
    """Whether `commbench compare` refuses the runs of the two: then it is UNDECIDED."""


class Crossing(NamedTuple):
    """Where another alternative becomes the fastest."""

    below: Setting
    """The fastest one of smaller sizes."""
    above: Setting
    at_bytes: float
    """The logarithm of the ratio of times is taken as linear in that of the size."""
    measured_below_bytes: int
    measured_above_bytes: int


class ChoiceAdvice(NamedTuple):
    """What rows of one kind say about a choice."""

    choice: Choice
    kind: str
    """The title of the rows, without what is chosen."""
    default: Setting
    ranges: tuple[RangeAdvice, ...]
    """By ascending size."""
    crossings: tuple[Crossing, ...]
    points: tuple[SweepPoint, ...]

    @property
    def names(self) -> dict[Setting, str]:
        """A short name of each alternative."""
        settings = dict.fromkeys(each.setting for point in self.points for each in point.by_time)
        if self.choice.option:
            return shorten(tuple(settings))
        return short_names(tuple(settings))

    def as_json(self) -> dict[str, Any]:
        """Its fields, without what they were computed from."""
        return fields_of(self, without=("choice", "points"))


def _is_nccl(header: RunHeader) -> bool:
    backend = BACKENDS.get(header.plan.backend)
    return bool(backend and backend.is_nccl)


def _takes_tensors(case: Case) -> bool:
    form = CALL_FORMS.get(case.form)
    return case.tensors != ONE_TENSOR and bool(form and form.calls_before is None)


def _is_way(case: Case) -> bool:
    form = CALL_FORMS.get(case.form)
    is_other = bool(form and (form.steps or form.name == "isend+irecv"))
    return case.tensors == ONE_TENSOR and (case.form == DIRECT or is_other)


ADVICE: tuple[Choice, ...] = (
    Choice(
        "Calls of several tensors", "form", ("separate",), "--tensors 16", call_lines,
        _takes_tensors,
        operations=("all_reduce", "all_gather", "reduce_scatter"),
    ),
    Choice(
        "One call or several steps", "form", (DIRECT,),
        "--via reduce_scatter+all_gather,scatter+all_gather,isend+irecv", call_lines, _is_way,
        operations=("all_reduce", "broadcast", "all_to_all"),
    ),
    Choice(
        "The operation's call or one of your own", "call", ("",), "--call ring.py:RingAllReduce",
        own_call_lines, is_possible=lambda header: bool(header.plan.own),
    ),
    Choice(
        "Calls of a step", "variant", AS_TRACED, "--variant all", variant_lines,
        lambda case: bool(case.step), lambda header: bool(header.plan.workload), is_of_steps=True,
    ),
    Choice(
        "Eager calls or a graph", "launch", ("eager",), "--launch both", call_lines,
        is_possible=lambda header: header.plan.device == "cuda",
    ),
    Choice(
        "Memory", "memory", ("default",), "--memory default,registered,symmetric", call_lines,
        is_possible=_is_nccl,
    ),
    Choice(
        "Settings of the environment", "", ("",), "--env NCCL_ALGO=RING,TREE", setting_lines,
        is_possible=_is_nccl,
    ),
)  # fmt: skip
"""The choices, in the order of the output."""
CPU_MODES = Choice("CPU mode", "", ("",), "", setting_lines)
"""The choice between runs, or settings of a sweep, that differ in nothing but their CPU mode."""


def find_choices(
    choice: Choice, results: Sequence[SettingResult], tolerance: float
) -> Iterator[ChoiceAdvice]:
    """What the rows of a few settings say about a choice, kind by kind. `results` has the settings
    of the environment, the default first; the alternatives of other choices are measured under
    that one."""
    if choice.option:
        results = _by_value(choice, results[0].rows if results else ())
    if len(results) < 2:
        return
    every = ranking.make_points(results, tolerance)
    points = [p for p in every if p.is_compared and not p.case.part]
    if not choice.option:  # of a replay the step decides, and not its calls
        points = ranking.steps_as_made(points) or points
    for kind, same in groupby(sorted(points, key=attrgetter("kind")), attrgetter("kind")):
        default = results[0].setting
        timed = (p for p in same if default in [each.setting for each in p.by_time])
        sized = sorted(timed, key=attrgetter("size_bytes"))
        if sized:
            yield _decide(choice, kind, default, sized, tolerance)


def _by_value(choice: Choice, rows: Sequence[ResultRow]) -> list[SettingResult]:
    """The rows of each alternative, the default first; none where the default was not measured."""
    field = next(d.field for d in DIMENSIONS if d.option == f"--{choice.option}")
    suiting = [row for row in rows if is_timed(row) and choice.suits(row.case)]
    by_value = stats.collect(zip(name_values(field, suiting), suiting, strict=True))
    default = next((value for value in choice.defaults if value in by_value), None)
    others = [value for value in by_value if value not in choice.defaults]
    values = [default, *others] if default is not None else []
    settings = {value: Setting(options=((choice.option, value or TORCH),)) for value in values}
    return [SettingResult(own, None, tuple(by_value[v])) for v, own in settings.items()]


def _decide(
    choice: Choice, kind: str, default: Setting, points: Sequence[SweepPoint], tolerance: float
) -> ChoiceAdvice:
    comparisons = sum(len(point.by_time) - 1 for point in points)
    ranges: list[RangeAdvice] = []
    for found in make_ranges(points, pool_settings(points, tolerance), default):
        each = _decide_range(default, found, comparisons, tolerance)
        last = ranges[-1] if ranges else None
        if last and last.verdict == each.verdict == KEEP:
            shared = tuple(setting for setting in last.candidates if setting in each.candidates)
            each = ranges.pop()._replace(high_bytes=each.high_bytes, candidates=shared)
        ranges.append(each)
    ranges = [_find_slower(each, default, points, tolerance) for each in ranges]
    turns = pairwise([each for each in ranges if each.verdict != UNDECIDED])
    known = (_find_crossing(points, a, b) for a, b in turns if a.best != b.best)
    crossings = tuple(filter(None, known))
    return ChoiceAdvice(choice, kind, default, tuple(ranges), crossings, tuple(points))


def _decide_range(
    default: Setting, found: SizeRange, comparisons: int, tolerance: float
) -> RangeAdvice:
    """What is best for sizes that `make_ranges` joined. A change is recommended only if the
    gain over all these sizes is above the tolerance with a probability that holds for all
    `comparisons` of this kind together (Bonferroni)."""
    points = found.points
    order = [rank.setting for rank in ranking.rank_settings(points)]
    candidates = sorted(found.best, key=order.index)
    gains = {
        s: gain for s in candidates
        if s != default and (gain := result.mean_ratio(points, s, default, tolerance))
    }  # fmt: skip
    may_gain = [s for s, g in gains.items() if g.ends[1] > 1 + tolerance]
    named = next(iter([*may_gain, *gains]), default)
    gain = gains.get(named)
    judged = ([e.row for e in p.by_time if e.setting in (named, default)] for p in points)
    waited = [bool(waited_sides(rows[0], rows[-1])) for rows in judged if rows]
    has_waited = 2 * sum(waited) > len(waited)
    chosen, verdict, fallback = default, KEEP, None

    of_all = gain and stats.hold_together(gain, comparisons)
    if of_all and not has_waited and stats.decide(of_all, tolerance) == SLOWER:
        chosen, verdict = named, CHANGE
        if named == FLAT:
            fallback = next((each for each in order if each != FLAT), None)
        candidates = [named, *(s for s in gains if s != named)]
    elif may_gain:
        verdict, candidates = UNDECIDED, [default, *may_gain]
    slower = [s for s in gains if _is_slower_but_waited(points, s, candidates[0], tolerance)]
    low, high = points[0].size_bytes, points[-1].size_bytes
    other = named if gain else None
    return RangeAdvice(
        low, high, verdict, chosen, tuple(s for s in candidates if s not in slower), gain, other,
        fallback, has_waited, tuple(slower),
    )  # fmt: skip


def _is_slower_but_waited(
    points: Sequence[SweepPoint], a: Setting, b: Setting, tolerance: float
) -> bool:
    """Whether a setting takes longer than another by the whole interval, which is no verdict since
    its ranks waited for a core."""
    ratio = result.mean_ratio(points, a, b, tolerance) if a != b else None
    waited = (each.waited for point in points for each in point.by_time if each.setting == a)
    return bool(ratio and ratio.ends[1] < 1 and any(waited))


def _find_slower(
    found: RangeAdvice, default: Setting, points: Sequence[SweepPoint], tolerance: float
) -> RangeAdvice:
    """The range with how much slower the fastest of the others is, where the default one is
    kept."""
    if found.verdict != KEEP:
        return found
    within = [p for p in points if found.low_bytes <= p.size_bytes <= found.high_bytes]
    ranked = [rank.setting for rank in ranking.rank_settings(within)]
    slower = next((s for s in (*found.candidates, *ranked) if s != default), None)
    gain = result.mean_ratio(within, slower, default, tolerance) if slower else found.gain
    return found._replace(alternative=slower, gain=gain)


def _find_crossing(
    points: Sequence[SweepPoint], before: RangeAdvice, after: RangeAdvice
) -> Crossing | None:
    """Where the alternative for larger sizes becomes faster than that for smaller ones."""
    low, high, logs = before.high_bytes, after.low_bytes, []
    for point in points:
        times = {each.setting: each.time.value for each in point.by_time}
        if point.size_bytes in (low, high) and {before.best, after.best} <= times.keys():
            logs.append(log(times[before.best] / times[after.best]))
    if not low or len(logs) != 2 or not logs[0] < logs[1]:
        return None
    part = min(1.0, max(0.0, -logs[0] / (logs[1] - logs[0])))
    return Crossing(before.best, after.best, low * (high / low) ** part, low, high)


def choice_lines(found: ChoiceAdvice) -> Iterator[str]:
    """The lines for each alternative that is recommended, under a comment with its sizes where
    there are several; NCCL's tuner where it is to choose by size and its selections are known."""
    chosen = [each for each in found.ranges if each.verdict == CHANGE]
    points, is_several = found.points, len(found.ranges) > 1
    for best, same in groupby(chosen, key=attrgetter("best")):
        sizes = [row_names.format_range(each.low_bytes, each.high_bytes) for each in same]
        if is_several and any(sizes):
            yield f"# {', '.join(sizes)}"
        yield from found.choice.paste(best, points[0].case)
    may_tune = not found.choice.option and is_several and bool(chosen)
    if may_tune and (ranges := result.make_tuner_ranges(points)):
        yield "# or all sizes, in the file of NCCL_TUNER_CONFIG_FILE:"
        header = points[0].best.row.header
        yield from nccl_log.tuner_lines(ranges, header.num_nodes, header.plan.world_size)
