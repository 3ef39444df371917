"""Rounds the size of a case down to what it can move."""

from __future__ import annotations

from commbench.spec.call_forms import MOST_TENSORS, ONE_TENSOR, size_step
from commbench.spec.case import SKIPPED, Case
from commbench.spec.dtypes import DTYPES
from commbench.spec.operations import OPERATIONS

EXACT = "exact"
NCCL_TESTS = "nccl-tests"
ROUNDING_CHOICES = (EXACT, NCCL_TESTS)
NCCL_TESTS_CHUNK = 16
"""nccl-tests makes each rank's block a multiple of so many bytes. Source: its src/*.cu."""


def round_size(case: Case, rounding: str, forms: tuple[str, ...], common: int) -> Case:
    """The case with its requested size rounded down to whole elements per block of each tensor, or,
    where the operation has blocks and nccl-tests' rounding is wanted, to blocks of a multiple of 16
    bytes. It is skipped where nothing is left.

    All `forms` that are measured side by side move the same bytes: if a step of one has blocks, the
    tensor is rounded to as many parts as there are ranks. Groups of different numbers of ranks move
    the same bytes, too: each number divides `common`.
    """
    operation = OPERATIONS[case.operation]
    if not operation.has_data:
        return case
    element = DTYPES[case.dtype].size_bytes
    in_chunks = operation.blocks and rounding == NCCL_TESTS
    chunk = NCCL_TESTS_CHUNK // element if in_chunks else case.elements_at_once
    step = chunk * size_step(operation, forms, case.tensors, common)
    if case.blocks > 1:
        step *= common // case.ranks
    count = case.size_bytes // case.granule_bytes // step * step
    if count:
        case = case._replace(size_bytes=count * case.granule_bytes, count=count)
        return _require_several(case)
    least = f"{chunk * element} bytes" if chunk > 1 else f"one {case.dtype}"
    is_per_rank = case.blocks > 1 or size_step(operation, forms, ONE_TENSOR, case.ranks) > 1
    if is_per_rank and common > case.ranks:
        least, is_per_rank = f"{common} times {least}, which groups of all sizes divide,", False
    words = ["rank"] * is_per_rank + ["tensor"] * (case.tensors != ONE_TENSOR)
    per = f" per {' and '.join(words)}" if words else ""
    reason = f"less than {least}{per}"
    return case._replace(status=SKIPPED, reason=reason)


def _require_several(case: Case) -> Case:
    """The case; it is skipped where a split makes one tensor of it, or too many."""
    if case.tensors == ONE_TENSOR or case.call_form.is_reference:
        return case
    number = case.num_tensors
    if 1 < number <= MOST_TENSORS:
        return case
    many = "one tensor" if number == 1 else f"{number} tensors, more than {MOST_TENSORS}"
    return case._replace(status=SKIPPED, reason=f"{case.tensors} makes {many}")
