"""The plan: what it refuses, its cases, and its way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_rows import plan
from synthetic_workload import TWO_RANKS

from commbench.errors import UsageError
from commbench.plan.backends import BACKENDS
from commbench.plan.case import READY, SKIPPED, UNSUPPORTED
from commbench.plan.dimensions import TIMING_CHOICES
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.operation import PLACEMENT_CHOICES
from commbench.plan.operations import OPERATIONS, SINGLE_CALLS
from commbench.plan.plan import CPU_MODES, ORDERS, ROUNDING_CHOICES, Plan
from commbench.plan.workload import workload_values

quick = settings(deadline=None, max_examples=30)


def some(names: Any) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(list(names)), min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    world_size = draw(st.integers(1, 1000))
    backend = draw(st.sampled_from(sorted(BACKENDS)))
    return Plan(
        operations=draw(some(SINGLE_CALLS)),
        dtypes=draw(some(DTYPES)),
        reduce_ops=draw(some(REDUCE_OPS)),
        sizes=tuple(sorted(draw(st.sets(st.integers(1, 1 << 40), min_size=1, max_size=5)))),
        root=draw(st.integers(0, world_size - 1)),
        placement=draw(st.sampled_from(PLACEMENT_CHOICES)),
        backend=backend,
        device=draw(st.sampled_from(BACKENDS[backend].devices)),
        world_size=world_size,
        cpu_mode=draw(st.sampled_from(CPU_MODES)),
        iterations=draw(st.none() | st.integers(1, 10**6)),
        warmup=draw(st.none() | st.integers(0, 10**6)),
        precision=draw(st.floats(1e-6, 0.999)),
        budget_s=draw(st.floats(0.001, 1e6)),
        timing=draw(st.sampled_from(TIMING_CHOICES)),
        order=draw(st.sampled_from(ORDERS)),
        launches=draw(st.integers(1, 99)),
        peak=draw(st.sampled_from(["", "25GB/s", "h100"])),
        check=draw(st.booleans()),
        timeout_s=draw(st.floats(0.001, 1e6)),
        seed=draw(st.integers(0, 2**31)),
        rounding=draw(st.sampled_from(ROUNDING_CHOICES)),
        tensors=draw(st.sampled_from([("1",), ("1", "16"), ("1", "3", "ddp:25M")])),
        forms=draw(st.sampled_from([(), ("async",), ("all",)])),
    )


@quick
@given(plans())
def test_a_plan_is_the_same_after_json_both_ways(original: Plan) -> None:
    read = Plan.from_json(json.loads(json.dumps(original.as_json(), allow_nan=False)))
    assert read == original
    assert read.digest == original.digest
    assert read.cases() == original.cases()


DIFFERENCES: dict[str, Any] = {
    "operations": ("all_reduce", "barrier"), "dtypes": ("float64",), "reduce_ops": ("max",),
    "sizes": (1024, 2048), "root": 1, "placement": "both", "backend": "ucc", "device": "cuda",
    "world_size": 3, "cpu_mode": "plain", "iterations": 7, "warmup": 0, "precision": 0.01,
    "budget_s": 1.0, "timing": "pipelined", "launch_mode": "both", "buffers": "rotating",
    "memory": ("default", "registered"), "nccl_options": ("max_ctas=8",), "order": "ascending",
    "launches": 2, "check": False, "timeout_s": 300.5, "seed": 1, "rounding": "nccl-tests",
    "peak": "25GB/s", "p2p_call": "isend", "pairs": ("neighbours",), "latency_size": 16,
    "window": 8, "imbalance": ("zipf:1",), "matrix": (1, 2, 3, 4), "overlap": ("matmul",),
    "overlap_ratio": 0.5, "tensors": ("1", "16"), "forms": ("async",), "mesh": "dp=2",
    "mesh_order": "dp-tp", "over": ("tp",), "groups": "0,1", "group_size": 1, "group_stride": 2,
    "open_groups": 4, "concurrency": "both", "workload": workload_values(TWO_RANKS),
    "variants": ("calls",),
}  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {
    "mesh_order": {"mesh": "dp=1,tp=2"},
    "over": {"mesh": "dp=1,tp=2"},
    "group_stride": {"group_size": 1},
}
"""What a plan needs beside a field."""


@pytest.mark.parametrize("field", DIFFERENCES)
def test_the_digest_differs_when_anything_differs(field: str) -> None:
    first = plan(**NEEDED.get(field, {}))
    assert replace(first, **{field: DIFFERENCES[field]}).digest != first.digest


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"operations": ()}, "there is no operation"),
        ({"operations": ("all_reduce", "allreduce")}, "unknown operation 'allreduce'"),
        ({"dtypes": ()}, "there is no dtype"), ({"dtypes": ("float",)}, "unknown dtype 'float'"),
        ({"reduce_ops": ("plus",)}, "unknown reduce op 'plus'"),
        ({"placement": "somewhere"}, "unknown placement 'somewhere'"),
        ({"rounding": "up"}, "unknown rounding 'up'"),
        ({"cpu_mode": "loud"}, "unknown cpu mode 'loud'"),
        ({"sizes": ()}, "there are no sizes to measure"), ({"sizes": (8, 0)}, "size 0 is 0"),
        ({"sizes": (-8,)}, "size -8 is -8"), ({"world_size": 0}, "world size is 0"),
        ({"iterations": 0}, "iterations is 0"), ({"warmup": -1}, "warmup is -1"),
        ({"root": -1}, "root is -1"), ({"root": 2}, "root 2 is not a rank of 2"),
        ({"timeout_s": 0.0}, "timeout is 0"), ({"timeout_s": -1.0}, "timeout is -1"),
        ({"timeout_s": float("nan")}, "timeout is nan"), ({"budget_s": 0.0}, "budget is 0"),
        ({"budget_s": -0.5}, "budget is -0.5"), ({"budget_s": float("nan")}, "budget is nan"),
        ({"budget_s": float("inf")}, "budget is inf"), ({"precision": 0.0}, "precision is 0"),
        ({"precision": 1.0}, "precision is 1"), ({"precision": float("nan")}, "precision is nan"),
        ({"timing": "alone"}, "unknown timing 'alone'"),
        ({"order": "descending"}, "unknown order 'descending'"), ({"launches": 0}, "launches is 0"),
        ({"peak": "25"}, "peak '25' has no unit"), ({"seed": -1}, "seed is -1"),
        ({"backend": "nccl"}, "backend nccl does not support device cpu"),
        ({"device": "cuda", "backend": "mpi"}, "backend mpi does not support device cuda"),
    ],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(**wish)
    assert refused.value.message == message
    assert refused.value.hint


def test_a_timeout_longer_than_any_clock_and_json_that_is_no_plan_are_refused() -> None:
    for timeout_s in (float("inf"), 1e300):
        with pytest.raises(UsageError, match="timeout"):
            plan(timeout_s=timeout_s)
    values = plan().as_json()
    for field, value in (
        ("operations", 5), ("operations", ["all_shuffle"]), ("sizes", ["1K"]), ("sizes", None),
        ("world_size", "two"), ("backend", {}),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            Plan.from_json(values | {field: value})
    for field in ("operations", "sizes", "backend", "device", "world_size"):
        others = {name: value for name, value in values.items() if name != field}
        with pytest.raises(UsageError, match=f"this is not a plan: .*{field}"):
            Plan.from_json(others)


def measured(**wishes: Any) -> list[tuple[int, int]]:
    return [(case.size_bytes, case.count) for case in plan(**wishes).cases()]


# 1000000 bytes are 250000 float32, 500000 bfloat16 or 125000 float64. As nccl-tests rounds, a block
# is a multiple of 16 bytes: of 4 float32, 8 bfloat16, 2 float64, 16 elements of one byte.
@pytest.mark.parametrize(
    ("rounding", "operation", "ranks", "dtype", "asked", "size_bytes", "count"),
    [
        ("exact", "all_reduce", 3, "float32", 1_000_000, 1_000_000, 250_000),
        ("exact", "all_reduce", 3, "bfloat16", 1_000_000, 1_000_000, 500_000),
        ("exact", "broadcast", 7, "float64", 1_000_000, 1_000_000, 125_000),
        ("exact", "send_recv", 3, "float32", 1_000_000, 1_000_000, 250_000),
        ("exact", "all_gather", 3, "float32", 1_000_000, 999_996, 83_333),
        ("exact", "all_gather", 8, "float32", 1_000_000, 1_000_000, 31_250),
        ("exact", "reduce_scatter", 7, "float32", 1_000_000, 999_992, 35_714),
        ("exact", "all_to_all", 3, "float64", 1_000_000, 999_984, 41_666),
        ("exact", "gather", 3, "bfloat16", 1_000_000, 999_996, 166_666),
        ("exact", "scatter", 7, "uint8", 1_000_000, 999_999, 142_857),
        *(("nccl-tests", operation, 3, "float32", 1 << 20, 1_048_560, 87_380)
          for operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")),
        ("nccl-tests", "all_gather", 3, "bfloat16", 1 << 20, 1_048_560, 174_760),
        ("nccl-tests", "all_gather", 3, "float64", 1 << 20, 1_048_560, 43_690),
        ("nccl-tests", "all_gather", 3, "uint8", 1 << 20, 1_048_560, 349_520),
        ("nccl-tests", "all_gather", 8, "float32", 255, 128, 4),
        ("nccl-tests", "all_gather", 1, "float32", 1000, 992, 248),
        ("nccl-tests", "all_reduce", 3, "float32", 1_000_003, 1_000_000, 250_000),
        ("nccl-tests", "send_recv", 3, "bfloat16", 7, 6, 3),
    ],
)  # fmt: skip
def test_a_size_is_rounded_down_to_what_every_rank_can_move(
    rounding: str, operation: str, ranks: int, dtype: str, asked: int, size_bytes: int, count: int
) -> None:
    assert measured(
        operations=(operation,), sizes=(asked,), world_size=ranks, dtypes=(dtype,),
        rounding=rounding,
    ) == [(size_bytes, count)]  # fmt: skip


def test_sizes_that_round_down_to_the_same_bytes_become_one_case() -> None:
    assert measured(sizes=(1027,)) == [(1024, 256)]
    assert measured(sizes=(1027,), dtypes=("bool",), reduce_ops=("bor",)) == [(1027, 1027)]
    sizes = (12, 13, 23, 24, 25, 36)
    found = measured(operations=("all_gather",), world_size=3, sizes=sizes)
    assert found == [(12, 1), (24, 2), (36, 3)]


SMALL, TOO_SMALL = "less than one float32", "less than 16 bytes"


@pytest.mark.parametrize(
    ("rounding", "operation", "ranks", "sizes", "expected"),
    [
        ("exact", "all_gather", 3, (3, 11, 12), [(3, 0), (11, 0), f"{SMALL} per rank", (12, 1)]),
        ("exact", "all_reduce", 3, (3, 11, 12), [(3, 0), SMALL, (8, 2), (12, 3)]),
        (
            "nccl-tests", "all_gather", 8, (3, 64, 130),
            [(3, 0), (64, 0), f"{TOO_SMALL} per rank", (128, 4)],
        ),
        ("nccl-tests", "all_gather", 1, (3, 64, 130), [(3, 0), TOO_SMALL, (64, 16), (128, 32)]),
        ("nccl-tests", "all_reduce", 8, (3, 64, 130), [(3, 0), SMALL, (64, 16), (128, 32)]),
    ],
)  # fmt: skip
def test_a_size_too_small_for_every_rank_is_skipped_with_a_reason(
    rounding: str, operation: str, ranks: int, sizes: tuple[int, ...], expected: list[Any]
) -> None:
    """Of the cases before a reason it is the reason why they are skipped."""
    cases = plan(operations=(operation,), sizes=sizes, world_size=ranks, rounding=rounding).cases()
    (reason,) = [text for text in expected if isinstance(text, str)]
    skipped = expected.index(reason)
    assert [(case.size_bytes, case.count) for case in cases] == [
        size for size in expected if size != reason
    ]
    told = [(SKIPPED, reason)] * skipped + [(READY, "")] * (len(cases) - skipped)
    assert [(case.status, case.reason) for case in cases] == told


def test_cases_come_by_operation_dtype_reduce_op_placement_and_size() -> None:
    found = plan(
        operations=("all_gather", "broadcast", "reduce_scatter"), dtypes=("float32", "int64"),
        reduce_ops=("sum", "max"), placement="both", sizes=(64, 128), root=1,
    ).cases()  # fmt: skip
    kinds = [
        "all_gather float32 out_of_place", "all_gather float32 in_place",
        "all_gather int64 out_of_place", "all_gather int64 in_place",
        "broadcast float32 in_place root 1", "broadcast int64 in_place root 1",
        "reduce_scatter float32 sum out_of_place", "reduce_scatter float32 sum in_place",
        "reduce_scatter float32 max out_of_place", "reduce_scatter float32 max in_place",
        "reduce_scatter int64 sum out_of_place", "reduce_scatter int64 sum in_place",
        "reduce_scatter int64 max out_of_place", "reduce_scatter int64 max in_place",
    ]  # fmt: skip
    assert [case.name for case in found] == [
        f"{kind} {size} B" for kind in kinds for size in (64, 128)
    ]
    assert [case.index for case in found] == list(range(len(found)))
    assert {case.status for case in found} == {READY}


def test_more_cases_than_anybody_could_measure_are_refused() -> None:
    many = tuple(range(8, 8 + 4 * 100_000, 4))
    assert plan(sizes=many)
    with pytest.raises(UsageError, match="these options make 100001 cases"):
        plan(sizes=(*many, 4))
    with pytest.raises(UsageError, match="these options make 200000 cases"):
        plan(sizes=many, timing="both")


@pytest.mark.parametrize(
    ("wishes", "reason"),
    [
        ({"operations": ("send_recv",), "world_size": 1}, "send_recv needs at least 2 ranks"),
        ({"placement": "out_of_place"}, "torch.distributed has no out_of_place all_reduce"),
        (
            {"operations": ("all_to_all",), "placement": "in_place"},
            "torch.distributed has no in_place all_to_all",
        ),
        ({"dtypes": ("int16",)}, "gloo does not support int16"),
        (
            {"backend": "nccl", "device": "cuda", "dtypes": ("int32",), "reduce_ops": ("bxor",)},
            "nccl has no bxor",
        ),
        ({"dtypes": ("int32",), "reduce_ops": ("avg",)}, "avg is not defined for int32"),
        ({"reduce_ops": ("band",)}, "band is not defined for float32"),
        ({"dtypes": ("bool",)}, "sum is not defined for bool"),
    ],
)  # fmt: skip
def test_a_combination_that_cannot_work_is_unsupported_with_a_reason(
    wishes: dict[str, Any], reason: str
) -> None:
    (case,) = plan(**wishes).cases()
    assert (case.status, case.reason) == (UNSUPPORTED, reason)


@quick
@given(plans())
def test_a_case_has_a_reason_or_elements_and_at_most_a_size_that_was_asked(which: Plan) -> None:
    for case in which.cases():
        assert (case.status == READY) == (case.reason == "")
        assert case.status != READY or case.count > 0 or not case.dtype
        if case.dtype and case.count:
            element = DTYPES[case.dtype].size_bytes
            blocks = which.world_size if OPERATIONS[case.operation].blocks else 1
            step = max(element, OPERATIONS[case.operation].block_multiple)
            if OPERATIONS[case.operation].blocks and which.rounding == "nccl-tests":
                step = 16
            assert case.block_bytes % step == 0
            assert case.size_bytes == case.count * element * blocks
            step *= blocks * (int(case.tensors) if case.tensors.isdigit() else 1)
            if which.forms == ("all",) and case.tensors == "1" and blocks == 1:
                step *= which.world_size  # a form may cut the tensor into one block per rank
            assert any(0 <= size - case.size_bytes < step for size in which.sizes)


# S = 1200 bytes on 3 ranks: a block is 400 bytes; (send, receive) on root 1, and elsewhere.
@pytest.mark.parametrize(
    ("operation", "at_root", "elsewhere"),
    [
        ("all_reduce", (1200, 1200), (1200, 1200)), ("all_gather", (400, 1200), (400, 1200)),
        ("reduce_scatter", (1200, 400), (1200, 400)), ("broadcast", (1200, 1200), (1200, 1200)),
        ("all_to_all", (1200, 1200), (1200, 1200)), ("reduce", (1200, 1200), (1200, 1200)),
        ("gather", (400, 1200), (400, 0)), ("scatter", (1200, 400), (0, 400)),
        ("send_recv", (1200, 1200), (1200, 1200)), ("barrier", (0, 0), (0, 0)),
    ],
)  # fmt: skip
def test_the_larger_buffer_of_a_rank_has_the_printed_size(
    operation: str, at_root: tuple[int, int], elsewhere: tuple[int, int]
) -> None:
    for case in plan(
        operations=(operation,), sizes=(1200,), world_size=3, root=1, placement="both"
    ).cases():
        assert case.buffer_bytes(1) == at_root
        assert case.buffer_bytes(0) == case.buffer_bytes(2) == elsewhere
        combine = max if case.placement == "in_place" else sum
        assert case.needed_bytes(1) == combine(at_root)
        assert case.needed_bytes(0) == combine(elsewhere)


def test_where_memory_is_registered_registering_the_largest_size_is_a_case() -> None:
    options = {"backend": "nccl", "device": "cuda", "sizes": (1024, 4096), "timing": "both"}
    found = plan(memory=("default", "symmetric"), **options).cases()
    registering = [case for case in found if case.operation == "register"]
    assert [(c.title, c.size_bytes) for c in registering] == [("register uint8 symmetric", 4096)]
    assert {case.memory for case in found} == {"default", "symmetric"}
    assert not any(case.operation == "register" for case in plan(**options).cases())
    every_size = plan(memory=("registered",), operations=("register", "all_reduce"), **options)
    asked = [case for case in every_size.cases() if case.operation == "register"]
    assert [case.size_bytes for case in asked] == [1024, 4096]
    assert [case.memory for case in plan(operations=("register",), **options).cases()] == (
        ["registered", "registered"]
    )


def test_memory_that_a_call_would_not_use_is_refused() -> None:
    found = plan(
        backend="nccl", device="cuda", world_size=2, sizes=(1024,),
        memory=("default", "registered", "symmetric"), p2p_call="all", forms=("first",),
        operations=("ping_pong", "all_reduce", "new_group"),
    ).cases()  # fmt: skip
    refused = {
        (c.operation, c.p2p_call or c.form, c.memory): c.reason
        for c in found
        if c.status == UNSUPPORTED and (c.form == "direct" or c.operation == "all_reduce")
    }
    kinds = (
        ("ping_pong", "send", "send is a call on a communicator of two ranks"),
        ("ping_pong", "isend", "isend is a call on a communicator of two ranks"),
        ("all_reduce", "first", "a new group has no registered memory"),
    )
    assert {key: reason.partition(",")[0] for key, reason in refused.items()} == {
        (operation, call, memory): reason
        for operation, call, reason in kinds
        for memory in ("registered", "symmetric")
    }


def test_operations_of_symmetric_memory_have_that_memory_and_blocks_of_16_bytes() -> None:
    names = ("one_shot_all_reduce", "multimem_all_gather")
    options = {"backend": "nccl", "device": "cuda", "world_size": 3, "memory": ("registered",)}
    found = plan(operations=names, dtypes=("bfloat16",), sizes=(100, 8), **options).cases()
    assert [(c.operation, c.memory, c.size_bytes, c.status) for c in found[:4]] == [
        ("one_shot_all_reduce", "symm_mem", 96, READY),
        ("one_shot_all_reduce", "symm_mem", 8, SKIPPED),
        ("multimem_all_gather", "symm_mem", 96, READY),
        ("multimem_all_gather", "symm_mem", 8, SKIPPED),
    ]
    on_cpu = plan(operations=names).cases()
    assert {case.reason for case in on_cpu} == {"memory of the kind symm_mem needs a cuda device"}
