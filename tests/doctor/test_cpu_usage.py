"""The use of the cores, from files that look like those of a host's /proc."""

from __future__ import annotations

import os
from pathlib import Path

from synthetic_files import lay, put

from commbench.doctor.cpu_usage import Process, find_busiest, measure_use, read_processes
from commbench.host.procfs import CpuTicks, read_cpu_ticks


def test_shares_of_the_cores_that_were_asked_for(tmp_path: Path) -> None:
    lay(tmp_path, proc__stat="cpu 9 9 9 9 9 9 9 9\ncpu0 1 0 0 9 0 0 0 0\ncpu1 2 0 0 8 0 0 0 0 0\n")
    before = read_cpu_ticks((1,), tmp_path)
    assert before == CpuTicks(2, 0, 0, 8, 0, 0, 0, 0)
    lay(tmp_path, proc__stat="cpu1 22 10 10 48 0 5 5 10 0 0\n")
    use = measure_use(before, read_cpu_ticks((1,), tmp_path))
    assert use is not None
    assert (use.busy_share, use.stolen_share, use.programs_share) == (0.5, 0.1, 0.4)


def test_without_ticks_nothing_is_said_of_use(tmp_path: Path) -> None:
    some = CpuTicks(1, 0, 0, 0, 0, 0, 0, 0)
    assert read_cpu_ticks((0,), tmp_path) is None
    assert measure_use(None, some) is None and measure_use(some, some) is None


def test_programs_are_named_by_what_they_used_meanwhile(tmp_path: Path) -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    tail = "S 1 1 1 0 -1 0 0 0 0 0 {} {} 0 0 20 0 1 0 {} 0 0"
    for pid, user, system, started in ((7, 10, 5, 99), (8, 0, 0, 50), (9, 3 * hertz, 0, 7)):
        put(tmp_path, f"proc/{pid}/stat", f"{pid} (a (b) c) " + tail.format(user, system, started))
    found = read_processes(tmp_path)
    assert found[7, 99] == Process("a (b) c", 15)
    old = {(7, 99): Process("make", 15), (9, 7): Process("cc", 0)}
    new = {(7, 99): Process("make", 15 + hertz), (9, 9): Process("cc", hertz)}
    assert find_busiest(old, new, elapsed_s=2.0) == (("make", 0.5), ("cc", 0.5))
