"""Own calls of one name whose code differs: each is an alternative with a name of its own."""

from __future__ import annotations

from collections.abc import Sequence

from commbench.analysis.rows import ResultRow
from commbench.answers.sweep.settings import CALL, Setting, tell_apart
from commbench.stats import collect


def name_values(field: str, rows: Sequence[ResultRow]) -> list[str]:
    """The value of a field of each row's case. Of own calls of one name it is where each is, and
    also the run where one file has had several contents."""
    calls = (row.case for row in rows if row.case.call)
    alike = collect(dict.fromkeys((case.call, case.own_call) for case in calls))
    names = []
    for row in rows:
        value, source = getattr(row.case, field), row.case.own_call.source
        versions = alike.get(value, ()) if value == row.case.call else ()
        sources = {each.source for each in versions}
        where = source if len(sources) == len(versions) else f"{source} in {row.header.label}"
        names.append(where if len(versions) > 1 else value)
    return names


def shorten(settings: Sequence[Setting]) -> dict[Setting, str]:
    """The values of settings of one option; of several files what tells them apart: `v1`."""
    names = {setting: setting.options[0][1] for setting in settings}
    files = {s: name for s, name in names.items() if s.options[0][0] == CALL and ":" in name}
    return names | dict(zip(files, tell_apart([*files.values()]), strict=True))
