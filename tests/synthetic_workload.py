"""Workloads: one with what a workload can have, two programs, two sets of groups, unequal blocks;
one that two ranks can replay; others made of calls; and the plans that replay them."""

from __future__ import annotations

from typing import Any

from commbench.plan.plan import Plan, make_replay_plan
from commbench.plan.replay import ReplayedStep, replayed_step
from commbench.plan.workload import RECV, SEND, UNKNOWN_GROUP, Call, Program, Step, Workload
from commbench.plan.workload_fit import SHRINK, prepare_replay

WORKLOAD = Workload(
    name="example",
    source="written by hand",
    world_size=4,
    groups={"world": ((0, 1, 2, 3),), "pp": ((0, 2), (1, 3))},
    steps=(
        Step(
            "step",
            (
                Program(
                    (0, 1),
                    (
                        Call("all_reduce", "world", "bfloat16", 4096, reduce_op="avg", time_s=2e-3,
                             transfer_s=1e-3, asynchronous=True, waited_after=1),
                        Call(SEND, "pp", "float32", 64, peer=1),
                    ),
                ),
                Program(
                    (2, 3),
                    (
                        Call("all_to_all_v", "world", "int8", 12, send_splits=(1, 2, 3, 6),
                             receive_splits=(3, 3, 3, 3)),
                        Call("barrier", UNKNOWN_GROUP, size_bytes=0),
                    ),
                ),
            ),
            count=3,
            time_s=0.25,
        ),
    ),
    notes=("gaps are not known",),
)  # fmt: skip

MIB = 1 << 20


def plan_of(workload: Workload, ranks: int | None = None, **values: Any) -> Plan:
    fitted, _ = prepare_replay(workload, ranks, SHRINK)
    facts = {"backend": "gloo", "device": "cpu", "world_size": fitted.world_size}
    return make_replay_plan(fitted, facts | values)


def two_ranks(*calls: Call) -> Workload:
    groups = {"world": ((0, 1),)}
    return Workload("w", "", 2, groups, (Step("train", (Program((0, 1), calls),)),))


def of_ranks(*programs: tuple[Call, ...], **groups: Any) -> Workload:
    """A workload with a program for each rank."""
    made = tuple(Program((rank,), calls) for rank, calls in enumerate(programs))
    everyone = tuple(range(len(programs)))
    return Workload("w", "", len(made), {"world": (everyone,)} | groups, (Step("train", made),))


def reduction(size: int, **facts: Any) -> Call:
    values = {"reduce_op": "sum", "asynchronous": True, **facts}
    return Call("all_reduce", "world", "float32", size, **values)


def replayed(workload: Workload, variant: str, rank: int = 0) -> ReplayedStep:
    """What a rank does in a variant of the only step."""
    plan = plan_of(workload, variants=(variant,))
    return replayed_step(plan, plan.cases()[-1], rank)


def _timed(size: int, start_s: float, waited_after: int, time_s: float) -> Call:
    facts = {"start_s": start_s, "waited_after": waited_after, "time_s": time_s}
    return reduction(size, **facts, transfer_s=1e-3)


_MESSAGE = Call(SEND, "pp", "bfloat16", 1024, peer=1, start_s=5e-3, time_s=1e-3)
_PROGRAMS = (
    (_timed(4096, 2e-3, 2, 1e-3), _timed(8192, 4e-3, 2, 2e-3), _MESSAGE),
    (_timed(4096, 2e-3, 1, 2e-3), _timed(8192, 4e-3, 2, 1e-3),
     _MESSAGE._replace(operation=RECV, peer=0, time_s=2e-3)),
)  # fmt: skip
_MADE = of_ranks(*_PROGRAMS, pp=((0, 1),))
TWO_RANKS = _MADE._replace(
    name="two-ranks",
    source="written by hand",
    steps=(_MADE.steps[0]._replace(count=3, time_s=10e-3),),
)
