"""Faults that a single checked call does not show end with exit code 5, on real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Ended, run_program_as, start_command

PLANT = """
from collections import Counter
from pathlib import Path
from commbench.plan import operations
from commbench.plan.operations import OPERATIONS
from commbench.runner import smoke
from commbench.worker import verify
smoke.SIZES = (1000,)
operations.OPERATION_SETS |= {"all": ("all_reduce",), "p2p": ("send_recv",)}
healthy, calls, last = OPERATIONS["all_reduce"].call, Counter(), {}
def faulty(dist, b):
    healthy(dist, b)
    shape = b.receive.dtype, b.receive.numel()
    calls[shape] += 1
    spoil(b.receive, calls[shape], shape)
def verify_one(buffers, *given):
    checks[buffers.case] += 1
    if checks[buffers.case] == 100:
        Path("enough").touch()
    return verify_call(buffers, *given)
verify_call, verify.verify, checks = verify.verify, verify_one, Counter()
OPERATIONS["all_reduce"] = OPERATIONS["all_reduce"]._replace(call=faulty)
"""

FAULTS = {
    "the previous result of the same shape": """
def spoil(result, call, shape):
    last[shape], before = result.clone(), last.get(shape)
    if before is not None:
        result.copy_(before)
""",
    "every 50th call": """
def spoil(result, call, shape):
    if call % 50 == 0:
        result[-1] += 1
""",
    "NaN in call 7": """
def spoil(result, call, shape):
    if call == 7 and result.is_floating_point():
        result[0] = float("nan")
""",
    "from call 80 on": """
def spoil(result, call, shape):
    if call >= 80:
        result[-1] += 1
""",
}
"""What each does with the result of a call of all_reduce; calls are numbered per shape from 1."""

BUDGETS_S = (16, 64, 256)
"""Checks take 5 % of half of the budget. A busy host needs a larger one for 100 of a case, among
which is a 50th call; with few, all 50th calls may be timed ones."""

COMMANDS = {
    "run": ("run", "--op", "all_reduce", "--sizes", "1K", "--budget", "{budget_s}", "--precision",
            "99%", "--launches", "1", "--no-plots"),
    "smoke": ("smoke",),
    "pipelined": ("run", "--op", "all_reduce", "--sizes", "1K", "--iters", "40", "--timing",
                  "pipelined", "--no-plots"),
}  # fmt: skip
FOUND = [
    *((fault, name) for fault in list(FAULTS)[:3] for name in ("run", "smoke")),
    (list(FAULTS)[3], "pipelined"),
]


def plant(folder: Path, spoil: str, name: str) -> Ended:
    """How the command ended with the first budget that was enough, on this host, to find a fault or
    to check 100 calls of a case."""
    for budget_s in BUDGETS_S:
        program = f"{PLANT}smoke.BUDGET_S = {budget_s}\n{spoil}"
        command = (word.format(budget_s=budget_s) for word in COMMANDS[name])
        ended = run_program_as(folder, program, *command)
        if ended.code or (folder / "enough").exists():
            break
    return ended


@pytest.mark.parametrize(("fault", "name"), FOUND)
def test_a_fault_that_the_first_call_does_not_show_is_found(
    tmp_path: Path, fault: str, name: str
) -> None:
    ended = plant(tmp_path, FAULTS[fault], name)
    assert ended.code == 5, ended.out
    assert ", in checked call " in ended.out + ended.err


def test_a_program_that_measures_its_own_group_finds_them_too(tmp_path: Path) -> None:
    measured = """
import torch.distributed as dist
import commbench
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
try:
    commbench.measure(op="all_reduce", sizes="1K", iters=5)
except commbench.CommbenchError as error:
    print(error)
dist.destroy_process_group()
"""
    program = PLANT + FAULTS["the previous result of the same shape"] + measured
    ended = start_command(tmp_path, program=program).finish()
    assert "all_reduce float32 sum in_place 1 KiB has " in ended.out, ended.err
    assert ", in checked call 2\nhint: " in ended.out


def test_what_is_right_stays_right(tmp_path: Path) -> None:
    for name in ("run", "smoke"):
        ended = plant(tmp_path, "def spoil(result, call, shape):\n    pass\n", name)
        assert ended.code == 0, ended.err
