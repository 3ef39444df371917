"""Runs that replay a workload, with times that a test chooses, and a workload to replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from synthetic import Samples, header, steady

from commbench.plan.case import READY, Case
from commbench.plan.plan import make_replay_plan
from commbench.plan.workload import RECV, SEND, Call, Program, Step, Workload
from commbench.plan.workload_fit import prepare_replay
from commbench.results.schema import Batch, Measurement, Run, RunEnd

MIB = 1 << 20
STEP = Step(
    "train",
    (
        Program(
            (0,),
            (
                Call("all_reduce", "world", "float32", 4 * MIB, asynchronous=True, waited_after=1,
                     start_s=2e-3, time_s=4e-3, transfer_s=3e-3),
                Call("all_reduce", "world", "float32", 8 * MIB, asynchronous=True, waited_after=1,
                     start_s=4e-3, time_s=6e-3, transfer_s=6e-3),
                Call(SEND, "pp", "float32", 1024, peer=1, waited_after=2, start_s=11e-3,
                     time_s=1e-3, transfer_s=1e-3),
            ),
        ),
        Program(
            (1,),
            (
                Call("all_reduce", "world", "float32", 4 * MIB, asynchronous=True, waited_after=1,
                     start_s=3e-3, time_s=3e-3, transfer_s=3e-3),
                Call("all_reduce", "world", "float32", 8 * MIB, asynchronous=True, waited_after=1,
                     start_s=4e-3, time_s=6e-3, transfer_s=6e-3),
                Call(RECV, "pp", "float32", 1024, peer=0, waited_after=2, start_s=11e-3,
                     time_s=2e-3, transfer_s=1e-3),
            ),
        ),
    ),
    count=3,
    time_s=20e-3,
)  # fmt: skip
WORKLOAD = Workload(
    name="small",
    source="written by hand",
    world_size=2,
    groups={"world": ((0, 1),), "pp": ((0, 1),)},
    steps=(STEP,),
)
"""Rank 0 communicates from 2 to 10 ms and from 11 to 12 ms, without waiting from 3 ms; rank 1 from
3 to 10 ms and from 11 to 13 ms, without waiting only from 12 ms then."""


def without_times(step: Step) -> Step:
    """The step as one that was generated."""
    unknown: dict[str, Any] = dict.fromkeys(("start_s", "time_s", "transfer_s"))
    programs = tuple(
        p._replace(calls=tuple(call._replace(**unknown) for call in p.calls)) for p in step.programs
    )
    return step._replace(programs=programs, time_s=None, count=1)


def replay_run(
    workload: Workload = WORKLOAD,
    samples: Callable[[Case], Samples | None] = lambda _: steady(1e-3),
    **wishes: Any,
) -> Run:
    """The run that replays all steps of a workload; None for samples: the case was not measured."""
    fitted, changes = prepare_replay(workload, wishes.pop("ranks", None), "shrink", ("all",))
    fitted = fitted._replace(notes=(*workload.notes, *changes))
    target = {"backend": "gloo", "device": "cpu", "world_size": fitted.world_size}
    plan = make_replay_plan(fitted, target | wishes)
    found = []
    for case in plan.cases():
        times = samples(case) if case.status == READY else None
        batches = tuple(Batch(tuple(batch)) for batch in times or ())
        status = "ok" if times else case.status if case.status != READY else "failed"
        found.append(Measurement(case, status, case.reason, wrong=0, batches=batches))
    return Run("results/small", header(plan, "small"), tuple(found), RunEnd("complete"))
