"""What ranks agree on and share; every rank is a thread with a gloo group of its own."""

from __future__ import annotations

import pytest
import torch
from gloo_ranks import on_ranks

from commbench.errors import UnavailableError
from commbench.worker.communicator import Communicator

RANKS = [1, 2, 3, 4, 7, 8, 13]


@pytest.mark.parametrize("ranks", RANKS)
def test_rank_0_gathers_every_ranks_tensor_in_order(ranks: int) -> None:
    def gather(comm: Communicator) -> list[list[int]]:
        return comm.gather(torch.tensor([comm.rank, -comm.rank])).tolist()

    first, *others = on_ranks(ranks, gather)
    assert first == [[rank, -rank] for rank in range(ranks)]
    assert others == [[]] * (ranks - 1)


@pytest.mark.parametrize("ranks", RANKS)
def test_the_maximum_is_that_of_each_element_on_every_rank(ranks: int) -> None:
    table = torch.randint(-(10**18), 10**18, (ranks, 100))
    found = on_ranks(ranks, lambda comm: comm.all_reduce_max(table[comm.rank]))
    assert all(torch.equal(part, table.amax(dim=0)) for part in found)


@pytest.mark.parametrize("ranks", RANKS)
def test_the_first_rank_with_a_flag_is_known_to_all(ranks: int) -> None:
    def first(comm: Communicator) -> list[int | None]:
        return comm.first_rank([True, comm.rank == ranks - 1, comm.rank * 2 >= ranks, False])

    last_of_even = next(rank for rank in range(ranks + 1) if rank * 2 >= ranks)
    expected = [0, ranks - 1, last_of_even if last_of_even < ranks else None, None]
    assert on_ranks(ranks, first) == [expected] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_any_rank_can_share_a_value_and_rank_0_one_of_any_size(ranks: int) -> None:
    values = on_ranks(ranks, lambda comm: comm.share_value({"from": comm.rank}, ranks - 1))
    assert values == [{"from": ranks - 1}] * ranks
    large = {"numbers": list(range(100_000))}
    objects = on_ranks(ranks, lambda comm: comm.share_value(None if comm.rank else large))
    assert objects == [large] * ranks


def test_an_error_of_the_decision_is_raised_on_every_rank() -> None:
    def refuse(parts: list[int]) -> None:
        raise UnavailableError(f"no: {parts}", "change it")

    def agree(comm: Communicator) -> tuple[str, str]:
        with pytest.raises(UnavailableError) as caught:
            comm.agree(comm.rank, refuse)
        return caught.value.message, caught.value.hint

    assert on_ranks(3, agree) == [("no: [0, 1, 2]", "change it")] * 3
