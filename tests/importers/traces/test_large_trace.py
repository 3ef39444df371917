"""A trace of 1 GB is read within the time and the memory that commbench promises."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import real_trace

GIGABYTE = 10**9
MOST_TIMES = 3.0
"""The time that a streaming JSON reader alone needs, as the issue of traces asks for."""
MOST_MEMORY = 1 << 30
_TIME = re.compile(r'"ts": ([\d.]+)')
_ID = re.compile(r'"External id": (\d+)')
_STEP = re.compile(r"ProfilerStep#(\d)")
_PERIOD_US = 1e6
READ = """
import resource, sys, time
from pathlib import Path
from commbench.analysis.trace import analyse_traces
from commbench.importers.traces.registry import read_traces
start = time.process_time()
analysis = analyse_traces(read_traces([Path(sys.argv[1])]))
taken = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(taken, peak, len(analysis.calls))
"""
READ_JSON = """
import sys, time, ijson
start = time.process_time()
with open(sys.argv[1], "rb") as file:
    for _ in ijson.basic_parse(file, use_float=True):
        pass
print(time.process_time() - start)
"""


def moved(events: str, times: int) -> str:
    """The events so many seconds later, with numbers and steps of their own."""
    later = _TIME.sub(lambda match: f'"ts": {float(match[1]) + times * _PERIOD_US:.3f}', events)
    later = _ID.sub(lambda match: f'"External id": {int(match[1]) + times * 10**6}', later)
    return _STEP.sub(lambda match: f"ProfilerStep#{times}{match[1]}", later)


def make_trace(path: Path, size: int) -> int:
    """Repeat the events of the real trace, each time a second later and with other numbers, until
    the file has the size. How often they are repeated."""
    head, _, rest = real_trace.text().partition('"traceEvents": [')
    events, _, tail = rest.rpartition("\n  ],")
    times = 0
    with path.open("w") as file:
        file.write(f'{head}"traceEvents": [')
        while file.tell() < size:
            file.write(("," if times else "") + moved(events, times))
            times += 1
        file.write(f"\n  ],{tail}")
    return times


def run(program: str, path: Path) -> list[float]:
    """The numbers that a program of its own prints."""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return [float(number) for number in ended.stdout.split()]


@pytest.mark.full
def test_a_trace_of_one_gigabyte_takes_little_time_and_memory(tmp_path: Path) -> None:
    times = make_trace(path := tmp_path / "rank0.json", GIGABYTE)
    taken, peak, calls = run(READ, path)
    (json_alone,) = run(READ_JSON, path)
    print(json.dumps({"seconds": taken, "of ijson": json_alone, "peak MiB": peak / 2**20}))
    assert calls == 21 * times
    assert peak < MOST_MEMORY
    assert taken < MOST_TIMES * json_alone


def test_a_trace_that_is_longer_takes_no_more_memory_for_its_text(tmp_path: Path) -> None:
    (path := tmp_path / "rank0.json").write_text(real_trace.small_text())
    from commbench.importers.traces.stream import PIECE, Source

    longest = 0
    with Source(path) as source:
        for _ in source.records("traceEvents"):
            longest = max(longest, len(source.text))
    assert longest < 3 * PIECE
