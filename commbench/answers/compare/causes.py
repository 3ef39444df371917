"""What may have caused the ratio of two runs besides what they compare, and what would make it
clearer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import ceil, exp, floor, log, sqrt

from commbench.analysis import clearer as options
from commbench.analysis import diagnostics
from commbench.analysis.load import distinct_names
from commbench.analysis.rows import launches_of
from commbench.analysis.statistics import median
from commbench.answers.compare import host, ratio, turns
from commbench.answers.compare.comparison import Comparison
from commbench.answers.compare.pooling import PooledRatio
from commbench.answers.show.run_document import within_note
from commbench.output.text import as_sentence, join_words, list_some
from commbench.results.run_folder import holds_rounds, resume_command
from commbench.results.schema import IN_SWEEP, RunHeader, is_imported, is_in_process
from commbench.units import format_rough, format_share
from commbench.views import cells

MOST_DIFFERENCES = 3
"""Differences of two runs in the first sentence."""
MOST_NOISE = 4.0
"""By which factor the ends of a ratio of two runs may differ for more launches of these to help."""
MOST_LAUNCHES = 32
"""Launches of a run that are proposed, at most."""


def known_causes(found: Comparison, is_changed: bool | None = None) -> list[str]:
    """What is not known of them; the differences of the runs that may change times, those that
    forbid a comparison first; their versions of commbench and numbers of launches; whether ranks
    waited for a core; and in what their host differs. `is_changed`: whether there is a change to
    explain; by default what the comparison says."""
    likely = [*found.mismatches, *(d for d in found.differences if d.is_likely)]
    more = [f"{len(likely) - MOST_DIFFERENCES} more below"] * (len(likely) > MOST_DIFFERENCES)
    a, b = distinct_names([found.a, found.b])
    unknown = [
        f"{name} is a table without a journal: its host, versions and variables are not known."
        for name, run in ((a, found.a), (b, found.b)) if not (run.run or run.history)
    ]  # fmt: skip
    launches = [run.launches for run in (found.a, found.b) if run.launches]
    named = likely[:MOST_DIFFERENCES] + [d for d in found.differences if d.name == "commbench"]
    words = [each.in_words("most usual runs" if found.a.history else a, b) for each in named]
    if len({*launches}) > 1:
        first, second = launches
        words.append(f"{a} has {first} launch{'es' * (first > 1)}, {b} has {second}")
    rows = [row for row in found.rows if row.ratio]
    of_host = [
        0.0 if row.waits_itself else max(side.queued_share or 0.0 for side in (row.a, row.b))
        for row in rows
    ]
    text = "; ".join([*words, *more])
    causes = [f"{as_sentence(text) if found.a.history else text}."] * bool(words)
    sides = {ratio.waited_sides(row.a, row.b) for row in rows} - {""}
    whose = {"A": a, "B": b}.get(sides.pop(), "") if len(sides) == 1 else ""
    headers = [found.a.header, found.b.header]
    waited = diagnostics.waited_sentences(of_host, headers, whose=whose)
    if is_changed is None:
        is_changed = found.is_slower or found.is_faster
    facts = next((row.runs for row in rows if row.runs), ())
    if any(each.is_apart for each in facts) and not likely and is_changed:
        is_one = min(each.turns for each in facts) == 1
        how = "did not run in turns" if is_one else "ran in 2 turns only"
        causes.append(f"They {how}: the host may have changed in between.")
    waited = waited or launches_that_waited(found) or [*_longer_waits(found, rows, a, b)]
    left_out = host.left_out_text(found.left_out, [f"of {a}", f"of {b}"], _word(found))
    return [*unknown, *causes, *_own_waits(rows, a, b), *left_out, *waited] + [
        f"{change.takes[0].upper()}{change.takes[1:]} took "
        f"{cells.ratio_with_interval_text(change.ratio)} times as long during {b}: "
        f"{_allowed(change)}."
        for change in found.host_changes
    ]


def _allowed(change: ratio.HostChange) -> str:
    """How far intervals allow for a change of the host."""
    followed, whole = (abs(log(each)) for each in (change.allowed, change.ratio.value))
    if followed < ratio.FOLLOWED * whole:
        allow = f"allow for {cells.ratio_text(change.allowed)} times at most"
        allow = allow if followed > log(1.005) else "do not allow for it"
        return f"calls hardly followed, so intervals {allow}"
    return f"so intervals are wider{_MOST_AT.get(change.part, '')}"


def _word(found: Comparison) -> str:
    """What a launch of B is called."""
    return "round" if holds_rounds(found.b.path) else "launch"


_MOST_AT = {ratio.LATENCY: ", most at small sizes", ratio.BANDWIDTH: ", most at large sizes"}


def _longer_waits(
    found: Comparison, rows: Sequence[ratio.ComparedRow], a: str, b: str
) -> Iterator[str]:
    """That ranks of the slower run waited for a core longer, of two that did not run in turns."""
    longer = [row for row in rows if ratio.find_wait_effect(row.a, row.b) > 1]
    slower = [row for row in longer if row.ratio and row.ratio.value > 1 + found.tolerance]
    old, new = ([getattr(row, side).queued_share for row in slower] for side in ("a", "b"))
    if not found.are_in_turns and (parts := diagnostics.longer_waits(old, new)):
        has_fewer = "fewer" in found.setting
        cause = "the smaller number of cores" if has_fewer else "what else used the cores"
        yield (
            f"Where {b} is slower, its ranks waited for a core {parts[1]} of the time, those of "
            f"{a} {parts[0]}: {cause} may be the cause. So intervals are wider."
        )


def _own_waits(rows: Sequence[ratio.ComparedRow], a: str, b: str) -> Iterator[str]:
    """That the ranks of one side waited for a core by something of its own."""
    for side, name, other in (("A", a, b), ("B", b, a)):
        if own := [row for row in rows if row.waits_itself == side]:
            shares = [sorted(each.queued_share or 0.0 for each in (row.a, row.b)) for row in own]
            least, most = (format_share(median(sorted(one))) for one in zip(*shares, strict=True))
            which = f" in {len(own)} of {len(rows)} rows" * (len(own) < len(rows))
            yield (
                f"The ranks of {name} waited for a core {most} of the time{which}, those of "
                f"{other}, in turns with them, {least}: perhaps what {name} runs takes the cores: "
                "processes that it starts, or threads of one rank on the core of another."
            )


def launches_that_waited(found: Comparison) -> list[str]:
    """In which launches ranks waited for a core, in half of the rows or more."""
    pairs = [row.samples for row in found.rows if row.samples]
    own = {}
    for side, name in enumerate(distinct_names([found.a, found.b])):
        own[f"of {name}"] = of_most([diagnostics.waited_launches(pair[side]) for pair in pairs])
    return waited_at("launch", own, "ratios")


def of_most(found: Sequence[Iterable[int]]) -> list[int]:
    """The numbers that half of these rows have, or more."""
    every = Counter(number for numbers in found for number in numbers)
    return [number for number, rows in every.items() if 2 * rows >= len(found)]


def waited_at(word: str, found: Mapping[str, Collection[int]], effect: str) -> list[str]:
    """In which launches or rounds (`word` is for one) ranks waited so long, by whose they are, and
    which figures differ for that; nothing where they did in none."""
    texts = [
        f"{host.SEVERAL[word] if len(own) > 1 else word} {list_some([*map(str, sorted(own))], 6)} "
        f"{whose}"
        for whose, own in found.items() if own
    ]  # fmt: skip
    where = list_some(texts, 3)
    waited = f"Ranks waited for a core much of the time in {where}: this makes {effect} differ."
    return [waited] * bool(texts)


def launch_notes(found: Comparison) -> list[str]:
    """How much the launches of each side differ, or why that is not known. Not of a history."""
    if found.a.history or not found.rows:
        return []
    runs = found.a, found.b
    sides = [*zip(distinct_names(runs), found.rows[0].runs or (), strict=False)]
    texts = [f"{n} by {format_share(each.spread)}" for n, each in sides if each.spread]
    notes = []
    if texts and found.are_in_turns:
        word = _word(found)
        usual, spread = ratio.usual_ratio_spread(found.rows[0]), sides[0][1].spread
        backend = f"usual for {found.rows[0].a.backend}"
        least = f"; intervals also count that {format_share(usual)} is {backend}" * (spread < usual)
        notes = [
            f"From {word} to {word}, the ratio of the median row differs by "
            f"{format_share(spread)} (standard deviation){_oddest(found, word)}{least}.",
            *(within_note(found.a.run, host.SEVERAL[word]) if found.a.run else ()),
        ]
    elif texts:
        notes = [f"Launches of the median row differ (standard deviation): {join_words(texts)}."]
    bare = [name for (name, _), run in zip(sides, runs, strict=False) if run.run is None]
    if bare and all(run.launches for run in runs):
        of = f"How much launches of {join_words(bare)} differ"
        notes.append(f"{of} is not known without samples, so the usual is assumed.")
    has_single = 1 in [run.launches for run in runs]
    if has_single and any(row.ratio and row.ratio.has_interval for row in found.rows):
        measure = _measure_launches([run.header for run in runs])
        shows = "One launch cannot show how much launches differ, so the usual is assumed"
        notes.append(f"{shows}; {measure}.")
    return notes


ODD = 2.0
"""A launch is named whose ratio differs from the median one by so many standard deviations."""


def _oddest(found: Comparison, word: str) -> str:
    """The launch in turns (`word`) whose ratio differs most from the median one, in the median row;
    empty where none stands out."""
    logs = [own for row in found.rows if (own := ratio.logs_in_turns(row))]
    more = [[each - median(sorted(own)) for each in own] for own in logs]
    middle = [median(sorted(values)) for values in zip(*more, strict=True)]
    at, most = max(enumerate(middle), key=lambda own: abs(own[1]), default=(0, 0.0))
    row = found.rows[0]
    if not (row.runs and row.samples) or abs(most) < max(ODD * row.runs[0].spread, log(1.05)):
        return ""
    number = sorted(launches_of(row.samples[1]))[at] + 1
    return f", most in {word} {number}: there it is {format_rough(exp(most))} times the usual one"


def _measure_launches(headers: Sequence[RunHeader | None]) -> str:
    """What shows how much launches of these runs differ."""
    if headers and all(header and is_in_process(header) for header in headers):
        return "measure in several jobs to see that"
    first = next(iter(headers), None)
    command = "sweep" if first and first.launcher == IN_SWEEP else "run"
    return f"`commbench {command} {options.more_launches(first)}` measures that"


def clearer(
    found: Comparison, unsure: Sequence[PooledRatio], limit: float | None = None,
    rows: Sequence[ratio.ComparedRow] = (),
) -> str:  # fmt: skip
    """What to do for a clearer answer on these ranges, and what they would show then. With the
    `limit` of a check, a fraction, it says first whether more launches decide it for these rows.
    """
    runs = (found.a, found.b)
    lacking = (run.path for run in runs if run.incomplete and holds_rounds(run.path))
    if missing := dict.fromkeys(f"`{resume_command(path)}`" for path in lacking):
        return f"Measure the missing rounds first: {', then '.join(missing)}."
    if holds_rounds(found.a.path) != holds_rounds(found.b.path):
        return "Measure both in turns, in one `commbench sweep`."
    number = _more_launches(found)
    headers = [run.run.header for run in runs if run.run]
    is_other = any(is_in_process(header) or is_imported(header) for header in headers)
    ratios = (each.ratio.ends for each in rows or unsure if each.ratio)
    is_final = is_other or len(headers) < 2 or any(h > MOST_NOISE * low for low, h in ratios)
    if limit is None and not (is_final or found.are_in_turns) and (sweep := _sweep(found)):
        return f"For a clearer answer {sweep}"
    if is_final or number > MOST_LAUNCHES or found.are_of_two_boots:
        is_surer = len(headers) == 2 and not (is_other or found.are_in_turns)
        surer = "; surer in turns, as `commbench sweep` measures" * is_surer
        return f"{options.clearer(found.b.header or found.a.header)}{surer}."
    how = _continue(found, number)
    if limit is None:
        firsts = [next(filter(each.covers, found.rows)) for each in unsure]
        both = zip(unsure, firsts, strict=True)
        shown = [each.foresee(row, number, each.held(each.ratio, 1.0)) for each, row in both]
        if not shown or None in shown:
            return f"For a clearer answer {how}"
        wide = max(map(_later_times_as_wide, firsts))
        least = (1 + max(filter(None, shown), default=0.0)) ** wide * (1 + found.tolerance)
        shows = f"a change then shows from {cells.LEAST_FACTOR.write(least - 1)}"
        return f"For a clearer answer {how} If launches differ as before, {shows}."
    ends = [_foresee_row(row, one, number) for row in rows for one in unsure if one.covers(row)]
    known = [each for each in ends if each]
    if not rows or len(known) < len(rows):
        return f"For a clearer answer {how}"
    word = _word(found)
    if text := _soon_left_out(found, number, word):
        return f"{text}: {how}"
    if decision := _of_limit(limit, known, number, word, partial(_continue, found)):
        turn_by_turn = "" if found.are_in_turns else "in turns, as `commbench sweep` does, or "
        mode = f", or with {options.REALTIME}" * all(map(options.may_use_realtime, headers))
        again = f"{turn_by_turn}on a quiet host (`commbench doctor`){mode}"
        first = rows[0]
        usual = ratio.usual_ratio_spread(first)
        is_quiet = found.are_in_turns and first.runs and first.runs[0].spread < usual
        return decision if is_quiet else f"{decision} Or measure both again {again}."
    passes = all(high <= 1 + limit for *_, high in known)
    if not passes and any(row.times_as_wide > 1 for row in rows):
        return "Measure both in turns, as `commbench sweep` does: the host may differ."
    then = f"Then it {'passes' if passes else 'fails'}, if they differ as these do and B/A stays"
    return f"More {host.SEVERAL[word]} decide this limit. {then}: {how}"


def _more_launches(found: Comparison) -> int:
    """How many launches make both runs clearer: twice as many."""
    return max(options.FEW_LAUNCHES, 2 * max(run.launches or 0 for run in (found.a, found.b)))


def _has_own_call(found: Comparison) -> bool:
    return any(row.either.call for row in found.rows)


def _differ(found: Comparison) -> bool:
    """Whether a sweep could vary something: an own call, or what is known to differ."""
    known = bool(found.mismatches) or any(each.is_likely for each in found.differences)
    return known or _has_own_call(found)


def in_turns(found: Comparison | None, kinds: str, option: str) -> str:
    """What measures both sides in turns: a sweep, or more launches of two runs between which
    nothing differs that a sweep could vary."""
    runs = [each.run for each in (found.a, found.b) if each.run] if found else []
    others = any(is_in_process(run.header) or is_imported(run.header) for run in runs)
    if not found or len(runs) < 2 or others or found.are_of_two_boots or _differ(found):
        return f"measure {kinds} in turns: `commbench sweep {option}`."
    return _continue(found, _more_launches(found))


def _sweep(found: Comparison) -> str:
    """The sweep that measures what two runs compare; empty where ranks or nodes differ, or a sweep
    cannot start these ranks or calls, or nothing differs that it could vary."""
    run = found.b.run
    is_other = any(each.name != "cpu_mode" for each in found.mismatches)
    if is_other or run is None or run.header.num_nodes > 1 or run.header.plan.workload:
        return ""
    if not _differ(found):
        return ""
    differences = [*found.mismatches, *found.differences]
    what, option = turns.varied(differences, _has_own_call(found), run.header)
    line = f"`commbench sweep {option}`"
    return f"measure {what} in turns, with the other options of these runs: {line}."


def _continue(found: Comparison, number: int) -> str:
    """What continues both runs, up to so many launches, first the one that ran less recently: else
    its launches are no turn of their own. A sweep takes turns by itself, with one command."""
    more = options.write_options(found.b.header, launches=number)
    runs = sorted((found.a, found.b), key=lambda run: run.run.starts[-1:] if run.run else ())
    commands = dict.fromkeys(f"`{resume_command(run.path)} {more}`" for run in runs)
    how = " in turns" if len(commands) == 1 else ", one after the other"
    return f"continue both{how}: {', then '.join(commands)}."


def _soon_left_out(found: Comparison, number: int, word: str) -> str:
    """Which launches in turns (or rounds, `word` is for one) no longer count if there are so many;
    empty where all do."""
    runs = [run.run for run in (found.a, found.b) if run.run]
    if found.left_out or not found.are_in_turns:
        return ""
    odd, launches = host.find_odd_launches(runs)
    if not odd or not host.are_few(odd, number):
        return ""
    counts, does = ("counts", "it does") if len(odd) == 1 else ("count", "they do")
    return (
        f"{host.name_launches(odd, word)} {counts} only because there are {launches}: ranks of one "
        f"side alone waited for a core there. With {number} {host.SEVERAL[word]} {does} not"
    )


def _later_times_as_wide(row: ratio.ComparedRow) -> float:
    """ComparedRow.times_as_wide after twice as many turns."""
    is_sure = 2 * min((run.turns for run in row.runs or ()), default=0) >= turns.SURE_TURNS
    return 1.0 if is_sure else row.times_as_wide


def _foresee_row(
    row: ratio.ComparedRow, range_: PooledRatio, number: int
) -> tuple[float, float, float] | None:
    """The ratio of a row in its range; and which limits fail (all below the second value) and pass
    (from the third on) with so many launches, as the gate judges. None where that is not known."""
    together = range_.ratio_of(row)
    if not (row.ratio and together):
        return None
    value, now = row.ratio.value, row.ratio.ends
    own, shared, whole = (range_.foresee(row, number, e) for e in (row.ratio, together, None))
    if shared is None or whole is None:
        return None
    low, high = 0.0, max(value, together.value * (1 + shared))
    if own is not None:
        wide = _later_times_as_wide(row)
        low = min(value / (1 + own), range_.ratio.value / (1 + whole) ** wide)
        low = low if wide > 1 else max(now[0], low)
        high = min(high, value * (1 + own))
    return value, low, min(high, now[1], max(value, together.ends[1]))


def _of_limit(
    limit: float, found: Sequence[tuple[float, float, float]], number: int, word: str,
    how: Callable[[int], str],
) -> str:  # fmt: skip
    """Which limits some rows of _foresee_row decide with so many launches or rounds (`word` is for
    one), and `how` to make as many as decide this one; empty where these do."""
    values, lows, highs = map(max, zip(*found, strict=True))
    if lows > 1 + limit or highs <= 1 + limit:
        return ""
    fails, passes = floor(100 * (lows - 1)), ceil(100 * (highs - 1))
    limits = f"fail a limit below {fails} %, and " if fails > 0 else ""
    worst = " in the worst row" * (len(found) > 1)
    words = host.SEVERAL[word]
    # An interval is as wide as the square root of this number is small.
    gap = log((1 + limit) / values)
    half = log(highs / values) if gap > 0 else log(values / lows)
    would = ""
    if abs(gap) * sqrt(MOST_LAUNCHES / number) >= half:
        needed = ceil(number * (half / gap) ** 2)
        would = f" About {needed} would: {how(needed)}"
    stays = f"{cells.ratio_text(values)}{worst}"
    return (
        f"{number} {words} would hardly decide this limit: if they differ as these do, and B/A "
        f"stays {stays}, they {limits}pass a limit from {passes} % on.{would}"
    )
