"""The forms of a call: every one with real ranks, and the check that finds a broken one."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path

import pytest
from commands import start_command

from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.case import READY, Case
from commbench.plan.operations import OPERATIONS
from commbench.plan.plan import Plan
from commbench.worker.buffers import Arena, Buffers
from commbench.worker.call_forms import make_async_call
from commbench.worker.communicator import Communicator
from commbench.worker.device import Device
from commbench.worker.verify import verify

Said = dict[str, list[str]]


@pytest.fixture(scope="module", params=[pytest.param(2, marks=pytest.mark.full), 3])
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    """What each of so many ranks says about every operation in every form."""
    folder, ranks = tmp_path_factory.mktemp("forms"), request.param
    job = Path(__file__).with_name("forms_job.py").read_text()
    started = [
        start_command(folder, str(folder), str(ranks), program=job, RANK=str(rank))
        for rank in range(ranks)
    ]
    for each in started:
        ended = each.finish()
        assert ended.code == 0, ended.err
    return [json.loads((folder / f"{ranks}-{rank}.json").read_text()) for rank in range(ranks)]


def test_every_operation_is_right_in_every_form_and_at_odd_sizes(said: list[Said]) -> None:
    assert [of_rank["wrong"] for of_rank in said] == [[]] * len(said)
    right = said[0]["right"]
    for form in CALL_FORMS.values():
        if form.compression and not form.compression.bound:
            assert not any(f" {form.name} " in name for name in right)  # nothing to check
            continue
        assert any(form.name == "direct" or f" {form.name} " in name for name in right), form.name
    forms = {" ".join(name.split()[-4:-2]) for name in right if "3 tensors" in name}
    assert forms >= {"tensors flat", "tensors separate", "tensors async", "tensors flat_copy"}
    # 4001 bytes hold 1000 of int32: 333 for each of three tensors, and 166 per rank of two.
    assert "all_reduce int32 sum in_place 3 tensors separate 3996 B" in right
    # The last bucket has the rest.
    assert "all_reduce int32 sum in_place ddp:512 coalesced 4000 B" in right


def test_a_form_that_is_started_and_waited_for_later_is_right_too(said: list[Said]) -> None:
    started = {" ".join(name.split()[-4:-2]) for name in said[0]["started"] if "3 tens" in name}
    assert started == {"tensors flat", "tensors async", "tensors coalesced"}
    for buffers in buffers_of(every_form(2)[0], 2):
        composed = next(case for case in every_form(2) if case.call_form.steps)
        with pytest.raises(RuntimeError, match="follow one another"):
            make_async_call(buffers._replace(case=composed))


def test_a_refusal_inside_the_coalescing_manager_leaves_nothing_behind(said: list[Said]) -> None:
    assert all("after a refusal" in of_rank["right"] for of_rank in said)


def every_form(ranks: int) -> list[Case]:
    plan = Plan(
        operations=tuple(
            o.name for o in OPERATIONS.values() if o.has_data and CALL_FORMS["async"].suits(o)
        ),
        sizes=(4096,), placement="both", tensors=("1", "3"), forms=("all",), dtypes=("int32",),
        backend="nccl", device="cuda", world_size=ranks,
    )  # fmt: skip
    return [case for case in plan.cases() if case.status == READY]


def buffers_of(case: Case, ranks: int) -> list[Buffers]:
    return [
        Arena(Communicator(rank, ranks, Device()), (case,)).of_groups(case)[0]
        for rank in range(ranks)
    ]


def test_a_form_that_does_nothing_is_found_out() -> None:
    for case in every_form(3):
        everyone = buffers_of(case, case.ranks)
        wrong = [verify(buffers, 11, lambda: None, Device()).wrong for buffers in everyone]
        assert sum(wrong) > case.count / 2, case.name


def test_flat_results_that_are_not_copied_back_are_found_out() -> None:
    for case in every_form(2):
        if case.form == "flat_copy":
            wrong = 0
            for buffers in buffers_of(case, 2):
                wrong += verify(buffers, 5, buffers.copy_in, Device()).wrong
            assert wrong > case.count / 2, case.name


def test_tensors_of_a_case_share_no_byte_and_begin_at_a_multiple_of_512() -> None:
    for case, rank in product(every_form(3), range(3)):
        buffers = buffers_of(case, 3)[rank]
        if case.tensors == "1" or case.call_form.is_reference:
            assert buffers.tensors == (buffers,)
            continue
        assert len(buffers.tensors) == 3
        used: list[tuple[int, int]] = []
        for part in (*buffers.tensors, *([buffers.flat] if buffers.flat else [])):
            tensors = [t for t in (part.send, part.receive) if t.numel()]
            whole = max(tensors, key=lambda t: t.nbytes, default=None)
            if case.placement == "in_place":
                tensors = [] if whole is None else [whole]
            for tensor in tensors:
                start = tensor.storage_offset() * tensor.element_size()
                assert start % 512 == 0, case.name
                used.append((start, start + tensor.nbytes))
        used.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(used)), case.name
        assert used[-1][1] - used[0][0] <= case.needed_bytes(rank) + 2 * 4096
