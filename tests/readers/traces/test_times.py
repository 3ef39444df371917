"""Damaged times in traces of torch.profiler: the trace is refused, whatever event has one."""

from __future__ import annotations

import gzip
import json
import re
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import pytest
import real_trace

from commbench.errors import RecordsError
from commbench.readers.trace_formats import read_trace

GLOO = Path(__file__).parents[2] / "golden" / "data" / "files" / "trace" / "rank0.json.gz"
ALLREDUCE, STEP = "gloo:all_reduce", "ProfilerStep#2"


def refusal(folder: Path, text: str) -> str:
    """What the error for a trace says after its path."""
    (path := folder / "rank0.json").write_text(text)
    with pytest.raises(RecordsError) as found:
        read_trace(path)
    assert found.value.exit_code == 6
    return found.value.message.removeprefix(str(path))


def damaged(name: str, field: str, bad: Any, most: int, has_window: bool = True) -> str:
    """The trace with this value in the last events of a name; with the events that say when the
    trace begins and ends, or without."""
    values = json.loads(gzip.decompress(GLOO.read_bytes()))
    events = [e for e in values["traceEvents"] if has_window or e.get("ph") != "i"]
    for event in [e for e in events if e["name"] == name][-most:]:
        event[field] = bad
    return json.dumps(values | {"traceEvents": events})


@pytest.mark.parametrize("name", [ALLREDUCE, "aten::add_"])
@pytest.mark.parametrize(
    ("field", "bad"),
    [*(("dur", bad) for bad in (-1, None, "5", 1e300, nan)), *(("ts", bad) for bad in ("0", -1))],
)
def test_a_time_that_is_none_is_refused(name: str, field: str, bad: Any, tmp_path: Path) -> None:
    what = f" has damaged times in 3 events, first in '{name}': its `{field}` is {bad!r}"
    assert refusal(tmp_path, damaged(name, field, bad, 3)) == what


@pytest.mark.parametrize(("field", "bad"), [("ts", 1e17), ("ts", 0), ("dur", 1e9)])
@pytest.mark.parametrize(
    ("name", "has_window"), [*product([ALLREDUCE, "aten::add_"], [True, False]), (STEP, True)]
)
def test_a_time_outside_the_trace_is_refused(
    field: str, bad: float, name: str, has_window: bool, tmp_path: Path
) -> None:
    found = refusal(tmp_path, damaged(name, field, bad, 1, has_window))
    assert re.match(rf" has damaged times in 1 event, first in '{name}': its `{field}` is ", found)
    assert found.endswith(f" is {bad}, which is outside the trace")


def test_the_last_step_is_no_longer_than_the_trace(tmp_path: Path) -> None:
    assert "its `dur` is" in refusal(tmp_path, damaged(STEP, "dur", 1e12, 1, has_window=False))


@pytest.mark.parametrize("bad", [{"dur": -1}, {"dur": None}, {"ts": "0"}, {"ts": 0}])
def test_a_trace_of_nccl_with_damaged_times_is_refused(bad: dict[str, Any], tmp_path: Path) -> None:
    assert "damaged times" in refusal(tmp_path, real_trace.changed(lambda event: event | bad))
