"""A row made of figures that somebody quotes, so that they are read as measured ones are."""

from __future__ import annotations

from commbench.analysis.rows import Row, row_of
from commbench.errors import UsageError
from commbench.operations import Operation
from commbench.plan import READY, Plan
from commbench.records.schema import OK, Header, Measurement, Visit


def claimed_row(
    operation: Operation,
    *,
    ranks: int,
    seconds: float,
    size_bytes: int | None = None,
    dtype: str = "float32",
    timing: str = "isolated",
    nodes: int = 1,
) -> Row:
    """The row of one call that is said to take `seconds`; the size is rounded as a Plan does it.

    Raises UsageError for what cannot be, such as fewer bytes than ranks.
    """
    plan = Plan(
        operations=(operation.name,),
        dtypes=(dtype,),
        sizes=(size_bytes,) if size_bytes else (),
        backend="",
        device="",
        world_size=ranks,
    )
    if not 1 <= nodes <= ranks:
        raise UsageError(f"{ranks} ranks cannot be on {nodes} nodes", "each node has at least one")
    case = plan.cases()[0]
    if case.status != READY:
        raise UsageError(
            f"{case.name} cannot be measured: {case.reason}", "ask for more bytes or ranks"
        )
    header = Header(plan=plan, label="", started="", launcher="", num_nodes=nodes)
    measurement = Measurement(
        case=case._replace(timing=timing), status=OK, visits=(Visit(samples_s=(seconds,)),)
    )
    return row_of(header, measurement)
