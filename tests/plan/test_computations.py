"""What --overlap takes, and the shapes that fill a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_rows import plan

from commbench.errors import UsageError
from commbench.plan import computations
from commbench.plan.cases import require_ready_case
from commbench.plan.plan import Plan


def test_a_shape_for_gpus_is_refused_on_a_cpu() -> None:
    asked = plan(sizes=(1 << 20,), overlap=("matmul:exact",))
    with pytest.raises(UsageError, match="matmul:exact is a shape for the multiprocessors"):
        require_ready_case(asked)
    require_ready_case(replace(asked, overlap=("matmul:exact", "matmul:8x8x8")))
    require_ready_case(replace(asked, backend="nccl", device="cuda"))


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("none", "none"), ("MATMUL", "matmul"), (" matmul:64x032x8 ", "matmul:64x32x8"),
        ("matmul:exact", "matmul:exact"), ("memory", "memory"), ("memory:32768k", "memory:32M"),
        ("matmul:8x8x8:050", "matmul:8x8x8:50"), ("memory:1M:7", "memory:1M:7"),
    ],
)  # fmt: skip
def test_a_computation_has_one_normal_form(text: str, normal: str) -> None:
    assert computations.parse_overlap(text) == normal
    assert computations.parse_overlap(normal) == normal


@pytest.mark.parametrize(
    "text",
    ["", "matmull", "none:1", "matmul:", "matmul:64", "matmul:0x1x1", "matmul:1x1x9999999",
     "matmul:1x1x1:0", "matmul:1x1x1:x", "matmul:1x1x1:1:1", "matmul::5",
     "memory:1", "memory:x", "memory:1T"],
)  # fmt: skip
def test_a_wrong_computation_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        computations.parse_overlap(text)


def test_a_name_alone_means_the_shapes_of_the_device() -> None:
    assert computations.expand_overlap(("matmul", "none"), "cpu") == ("matmul:128x128x128", "")
    assert computations.expand_overlap(("matmul",), "cuda") == ("matmul:exact", "matmul:ragged")


@pytest.mark.parametrize("multiprocessors", [56, 78, 84, 108, 114, 132, 142, 144, 148, 160])
def test_exact_shapes_fill_all_multiprocessors_and_ragged_ones_begin_a_second_wave(
    multiprocessors: int,
) -> None:
    tiles = {}
    for kind in ("exact", "ragged"):
        m, n, k = computations.tiled_shape(kind, multiprocessors)
        assert m % computations.TILE == n % computations.TILE == 0 and k == 4096
        tiles[kind] = m // computations.TILE * (n // computations.TILE)
        assert 2 * (m * k + k * n + m * n) <= computations.overlap_bytes(f"matmul:{kind}")
    assert tiles["exact"] == multiprocessors
    assert multiprocessors < tiles["ragged"] <= multiprocessors + 8
    m, n, _ = computations.tiled_shape("ragged", multiprocessors)
    assert max(m, n) <= 4 * min(m, n)


def test_the_memory_of_a_computation_counts() -> None:
    def overlapped(*overlaps: str) -> Plan:
        return plan(sizes=(4096,), overlap=overlaps)

    assert [case.needed_bytes(0) for case in overlapped("none").cases()] == [4096]
    cases = overlapped("matmul:10x20x30").cases()
    assert [case.part for case in cases] == list(computations.PARTS)
    assert {case.needed_bytes(0) for case in cases} == {4096 + 4 * (300 + 600 + 200)}
    assert {case.needed_bytes(0) for case in overlapped("memory:32M").cases()} == {
        4096 + (32 << 20)
    }
    several = overlapped("none", "memory:32M", "memory:32M:5", "memory:1M")
    needed = {several.needed_bytes(case, [0, 1]) for case in several.cases()}
    assert needed == {2 * (4096 + (33 << 20))}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"operations": ("ping_pong",)}, "no call with async_op=True"),
        ({"operations": ("barrier",)}, "moves no data"), ({"forms": ("async",)}, "direct call"),
        ({"tensors": ("4",)}, "direct call"), ({"timing": "pipelined"}, "--timing isolated"),
    ],
)  # fmt: skip
def test_what_cannot_be_overlapped_is_refused_with_the_reason(
    values: dict[str, object], why: str
) -> None:
    cases = plan(**({"sizes": (4096,), "overlap": ("matmul",)} | values)).cases()
    refused = [case for case in cases if case.status == "unsupported"]
    assert refused
    assert all(why in case.reason for case in refused)


def test_unequal_blocks_can_be_overlapped() -> None:
    cases = plan(
        operations=("all_to_all_v", "reduce_scatter_v"), imbalance=("zipf:1",), sizes=(4096,),
        overlap=("matmul",),
    ).cases()  # fmt: skip
    assert {case.status for case in cases} == {"ready"}
    assert len(cases) == 2 * len(computations.PARTS)


@pytest.mark.parametrize("ratio", [0.0, 0.001, 1000.0, -1.0])
def test_a_ratio_out_of_range_is_refused(ratio: float) -> None:
    with pytest.raises(UsageError, match="is "):
        plan(overlap=("matmul",), overlap_ratio=ratio)
