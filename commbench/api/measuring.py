"""Measuring from Python. Imported when one of its functions is used: the table of options of a run
takes longer to import than all that `show` needs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from commbench.api.runs import Run
from commbench.api.words import worded
from commbench.errors import CommbenchError, UsageError, name_error, value_error
from commbench.plan.dimensions import HOT
from commbench.plan.operations import PAIR_OPERATIONS
from commbench.plan.pairs import BATCH, EVERY_PAIR, QUICK
from commbench.plan.workload import Workload, workload_values
from commbench.results import schema
from commbench.results.run_folder import resume_command
from commbench.runner.call_options import DEFAULT_SIZES
from commbench.runner.planning import RunListener as RunListener
from commbench.runner.planning import find_rank_context, restored_process_state
from commbench.runner.run_options import NOT_OF_SOAKS, RUN_OPTIONS, RunOptions, parse_options
from commbench.validation import Annotation, readable

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from commbench.api import keywords
    from commbench.plan.plan import Plan


F = TypeVar("F", bound=Callable[..., Any])


class _Signature(inspect.Signature):
    """A signature of many keywords: `help` prints each in a line, as it does since Python 3.13."""

    def __str__(self) -> str:
        names = [f"    {each},\n" for each in self.parameters.values()]
        names.insert(sum(p.kind != _BY_NAME for p in self.parameters.values()), "    *,\n")
        return f"(\n{''.join(names)}) -> {self.return_annotation}"


_BY_NAME = inspect.Parameter.KEYWORD_ONLY
KEYWORDS: dict[str, tuple[str, ...]] = {}
"""The options of a run that each function takes as keywords, beside its own."""


def takes_options(
    names: Iterable[str] = RUN_OPTIONS,
    defaults: Mapping[str, Any] = {},
    *users: str,
    is_explained: bool = False,
) -> Callable[[F], F]:
    """Give a function a signature with these options in place of `**options`, without those that
    its users refuse. `defaults` are those that differ from the options'. Its documentation explains
    the options, or names the function that does."""

    def describe(function: F) -> F:
        own = {**inspect.signature(function).parameters}
        del own["options"]
        refused = {*users, "api"}
        options = [
            option
            for option in map(RUN_OPTIONS.__getitem__, names)
            if not (option.sets or option.name in own or refused.intersection(option.refused_by))
        ]
        KEYWORDS[function.__name__] = tuple(option.name for option in options)
        usual, lines = {"plots": False, "sizes": DEFAULT_SIZES, **defaults}, []
        for option in options:
            default = usual.get(option.name, option.default)
            default = (default or (None,))[0] if isinstance(default, tuple) else default
            kind = Annotation(option.annotation)
            named = inspect.Parameter(option.name, _BY_NAME, annotation=kind, default=default)
            own[option.name] = named
            is_usual = default in (None, "") and option.name not in defaults
            text = f": {option.default_text}" if is_usual else ""
            lines += [f"{option.name} : {kind}, default {default!r}{worded(text).rstrip(': ')}"]
            about = worded(f"    {option.help}")
            lines += textwrap.wrap(about, 84, subsequent_indent="    ", break_on_hyphens=False)
        about = inspect.cleandoc(function.__doc__ or "")
        more = "Parameters\n----------\n" + "\n".join(lines)
        more = more if is_explained else "help(commbench.run) explains the keywords it has, too."
        function.__doc__ = f"{about}\n\n{more}"
        of_all = sorted(readable(own.values()), key=attrgetter("kind"))
        returned = Annotation(inspect.signature(function).return_annotation)
        made = _Signature(of_all, return_annotation=returned)
        function.__signature__ = made  # type: ignore[attr-defined]
        return function

    return describe


class _Recorder(RunListener):
    """Keeps the run that a session reports."""

    run: Run | None = None

    def ended(self, run: schema.Run, error: CommbenchError | None) -> None:  # noqa: ARG002
        self.run = Run(*run)


@takes_options(is_explained=True)
def run(**options: Unpack[keywords.Run]) -> Run:
    """Measure collectives on ranks that are launched from here, and return the recorded run.

    The keywords are the options of `commbench run`: `op` and `dtype` take a name or a list of
    names, `sizes` an expression such as "1K-1G", a number of bytes or a list of them; `dtype` also
    torch.float32, `reduce_op` ReduceOp.SUM. Times are in seconds. No plots are drawn without
    `plots=True`. Raises CommbenchError; its `run` is what was recorded until then.
    """
    return _record(parse_options({"plots": False, **options}, "api"))


def _record(parsed: RunOptions) -> Run:
    """Carry out a run on ranks that are launched from here."""
    if context := find_rank_context(parsed):
        why = f"{context.launcher} started this process as one of {context.world_size} ranks"
        raise UsageError(why, "commbench.measure measures on the process group of such ranks")
    recorder = _Recorder()
    try:
        run_options(parsed, recorder)
    except CommbenchError as error:
        error.run = recorder.run
        raise
    assert recorder.run is not None
    return recorder.run


def run_options(options: RunOptions, listener: RunListener) -> Run | None:
    """Carry out a run and return what was recorded; None where another process reports it.

    Raises CommbenchError for whatever ended it, and for wrong results.
    """
    from commbench.runner import session

    with restored_process_state():
        recorded = session.run(options, listener)
    return Run(*recorded) if recorded else None


INIT_DEFAULTS: dict[str, Any] = {
    "op": ("init",),
    "form": ("first", "second"),
    "sizes": "4K",
    "iters": 10,
    "warmup": 1,
}  # fmt: skip
"""The defaults of `commbench init`, where they differ from those of `commbench run`."""


def init_options(
    *, ranks: str | None = None, open_groups: str | None = None, **options: Any
) -> list[RunOptions]:
    """The options of the runs of `commbench init`, which measure how ranks and groups start:
    one for each number of `ranks`, such as "2,4", and each number of groups that are open already,
    such as "0,64"; without them one run, with as many ranks as `commbench run` would start.

    `options` are those of `run`, with other defaults. With a budget, and without a number of
    iterations, the budget and the precision end a case. Raises UsageError.
    """
    given = {"plots": False, "label": "init", **INIT_DEFAULTS, **options}
    if not {"budget", "precision"}.isdisjoint(options) and options.get("iters") is None:
        del given["iters"]
    if ranks is not None and "nproc_per_node" in options:
        raise UsageError("--ranks and --nproc-per-node exclude each other", "leave out one")
    numbers = _numbers("--ranks", ranks, "2,4,8")
    opens = _numbers("--open-groups", open_groups, "0,16,64")
    every = []
    for number, open_ in product(numbers, opens):
        varied = {"nproc_per_node": number, "open_groups": open_}
        own: dict[str, Any] = {name: n for name, n in varied.items() if n is not None}
        if told := [f"{number}-ranks"] * bool(numbers[1:]) + [f"{open_}-open"] * bool(opens[1:]):
            own["label"] = "-".join([given["label"], *(n.removesuffix("-ranks") for n in told)])
            if "output" in given:
                own["output"] = Path(given["output"]) / "-".join(told)
        every.append(parse_options(given | own))
    return every


def _numbers(option: str, text: str | None, example: str) -> list[int | None]:
    """The numbers of a list, each once; a None where there is no list."""
    if text is None:
        return [None]
    texts = [part.strip() for part in text.split(",")]
    are_numbers = all(part.isascii() and part.isdigit() for part in texts)
    if are_numbers and option == "--ranks" and 0 in map(int, texts):
        raise value_error(option, "is 0", f"write {option} {example}")
    if not are_numbers:
        raise value_error(option, f"{text!r} is no list of numbers", f"write {option} {example}")
    return list(dict.fromkeys(map(int, texts)))


PAIRS_DEFAULTS: dict[str, Any] = {
    "op": PAIR_OPERATIONS,
    "pairs": (EVERY_PAIR,),
    "sizes": "4M",
    "latency_size": "8",
    "p2p_call": BATCH,
    "window": 1,
    "buffers": HOT,
    "iters": 25,
    "warmup": 1,
}  # fmt: skip
"""The defaults of `commbench pairs`, where they differ from those of `commbench run`."""
QUICK_ITERATIONS = 10
"""The default of `iters` for a quick search, in the rounds that are measured in full."""
_NOT_OF_PAIRS = (
    "op", "root", "reduce_op", "placement", "rounding", "tensors", "form", "calls", "overlap",
    "overlap_ratio", "imbalance", "peak",
)  # fmt: skip
PAIRS_OPTIONS = tuple(
    name for name, o in RUN_OPTIONS.items() if not o.sets and name not in _NOT_OF_PAIRS
)
"""The options of a run that `commbench pairs` takes."""


def _require_options(command: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise UsageError for an option that the command does not take."""
    for name in given:
        if name not in known:
            whole = f"help(commbench.{command})"
            raise name_error("argument", name, [*KEYWORDS[command]], {}, whole)


def _resumed(kind: str, is_one: Callable[[Plan], bool], options: Any, *users: str) -> RunOptions:
    """The options that continue a run of that kind; UsageError for another run."""
    from commbench.runner.session import find_resumable

    parsed = parse_options(options, *users)
    run = find_resumable(parsed).run
    if not is_one(run.header.plan):
        hint = f"continue it with `{resume_command(run.path)}`"
        raise UsageError(f"{run.path} is no {kind}", hint)
    return parsed


def pairs_options(*users: str, is_quick: bool = False, **options: Any) -> RunOptions:
    """The options of a run of all pairs of ranks; UsageError for one that it does not take."""
    _require_options("pairs", options, PAIRS_OPTIONS)
    if options.get("resume") is not None:
        is_of_pairs = set(PAIR_OPERATIONS).issubset
        return _resumed("run of pairs", lambda p: is_of_pairs(p.operations), options, *users)
    if is_quick and "pairs" in options:
        raise UsageError("--quick and --pairs both choose pairs", "leave out one of them")
    own: dict[str, Any] = {"pairs": QUICK, "iters": QUICK_ITERATIONS} if is_quick else {}
    given = PAIRS_DEFAULTS | own | options
    if not {"precision", "budget"}.isdisjoint(options):
        given = given | {"iters": options.get("iters")}
    if options.get("label") is None and options.get("output") is None:
        given = given | {"label": "pairs"}
    return parse_options(given, *users)


@takes_options(PAIRS_OPTIONS, PAIRS_DEFAULTS)
def pairs(*, quick: bool = False, **options: Unpack[keywords.Pairs]) -> Run:
    """Measure latency and bandwidth of every pair of ranks, to find a slow rank, host or link.

    The ranks are launched from here. The keywords are options of `commbench pairs`, such as
    `nproc_per_node` and `sizes`; `quick` measures some of the rounds only. `matrices()` of the run
    has the values, and `print(run)` says what is slow. Raises CommbenchError.
    """
    return _record(pairs_options("api", is_quick=quick, **{"plots": False, **options}))


REPLAY_DEFAULTS: dict[str, Any] = {"budget": 1.0}
"""The defaults of `commbench replay`, where they differ from those of `commbench run`."""
REPLAY_OPTIONS = tuple(
    n for n, o in RUN_OPTIONS.items() if not (o.chooses_calls or o.sets or n == "workload")
)
"""The options of a run that `commbench replay` takes besides its workload."""


def replay_options(
    workload: Workload | str | Path | None = None, *users: str, **options: Any
) -> RunOptions:
    """The options of the replay of a workload, or of its file; UsageError for one that it does not
    take, and where there is no workload and nothing to resume."""
    _require_options("replay", options, REPLAY_OPTIONS)
    if options.get("resume") is not None:
        if workload is not None:
            raise UsageError("a run that is resumed has its workload", "leave out the file")
        return _resumed("replay", lambda plan: bool(plan.workload), options, *users)
    if workload is None:
        why = "no workload is given"
        hint = "name its file; `commbench workload import TRACE -o step.json` makes one of a trace"
        raise UsageError(why, hint)
    defaults = {} if options.get("iters") is not None else REPLAY_DEFAULTS
    if isinstance(workload, Workload):
        if options.get("launcher") == "torchrun":
            why = "the torchrun command needs the file of the workload"
            raise UsageError(why, "write it with commbench.workload.save, and give its path")
        parsed = parse_options({**defaults, **options}, *users)
        return replace(parsed, workload_values=workload_values(workload))
    return parse_options({**defaults, **options, "workload": Path(workload)}, *users)


@takes_options(REPLAY_OPTIONS, REPLAY_DEFAULTS)
def replay(workload: Workload | str | Path, /, **options: Unpack[keywords.Replay]) -> Run:
    """Replay the collectives of a training step, and return the recorded run.

    `workload` is the file that `commbench workload` wrote, or what `commbench.workload` returned.
    The ranks are launched from here, as many as it has. The keywords are options of `commbench
    replay`, such as `nproc_per_node`, `fit`, `step` and `variant`. `print(run)` compares it with
    the trace, and `run.replay()` returns these figures. Raises CommbenchError.
    """
    return _record(replay_options(workload, "api", **{"plots": False, **options}))


SOAK_S = 60.0
"""How long a soak lasts where neither its time nor its cycles are given."""
SOAK_OPTIONS = tuple(n for n, o in RUN_OPTIONS.items() if not o.sets and n not in NOT_OF_SOAKS)
"""The options of a run that `commbench soak` takes."""


def soak_options(*users: str, **options: Any) -> RunOptions:
    """The options of a soak; UsageError for one that it does not take."""
    _require_options("soak", options, SOAK_OPTIONS)
    given = dict(options)
    if options.get("resume") is not None:
        return _resumed("soak", lambda plan: plan.is_soak, options, *users)
    if {"duration", "cycles"}.isdisjoint(n for n, v in options.items() if v is not None):
        given["duration"] = SOAK_S
    if {"label", "output"}.isdisjoint(n for n, v in options.items() if v is not None):
        given["label"] = "soak"
    return parse_options(given, *users)


@takes_options(SOAK_OPTIONS)
def soak(**options: Unpack[keywords.Soak]) -> Run:
    """Measure and check all cases again and again, and return the recorded run.

    The ranks are launched from here. The keywords are options of `commbench soak`, such as
    `duration="1h"`, `cycles`, `op` and `sizes`. `run.soak()` has what it found, and `print(run)`
    says it. Raises WrongResultError, with the run, where a result was wrong; CommbenchError.
    """
    return _record(soak_options("api", **{"plots": False, **options}))


@takes_options(RUN_OPTIONS, {"output": None}, "measure", is_explained=True)
def measure(*, group: Any = None, **options: Unpack[keywords.Measure]) -> Run:
    """Measure on a process group of the job that calls this, as started by torchrun.

    Every rank of `group` (of the default group for None) calls this with the same options and gets
    the same Run. The group may be one of `new_group` or of a DeviceMesh dimension. Nothing is
    initialised, and nothing remains. The options are those of `commbench run` without those that
    start ranks; with `output` rank 0 of the group also writes the run into that folder.

    Raises CommbenchError on every rank alike, WrongResultError for wrong results. Where a rank
    raises one alone, or does not call this within `timeout`, the others raise RankError. A
    collective under way ends with the timeout of `group`, not with this one.
    """
    from commbench.runner.session import require_correct
    from commbench.worker.rank import measure_on_group

    def parse() -> tuple[Callable[[str, str, int], Plan], str, Path | None]:
        parsed = replace(parse_options(options, "api", "measure"), cpu_mode="plain")
        return parsed.plan, parsed.name, parsed.output

    recorded = Run(*measure_on_group(parse, group))
    require_correct(recorded)
    return recorded
