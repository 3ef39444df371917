"""The tables of operations, element types, reduce operations and settings of backends."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import torch

import commbench
from commbench.cli.commands import parse_words
from commbench.errors import UsageError
from commbench.plan.backends import find_unread, require_nccl, suggest_variable
from commbench.plan.dtypes import DTYPES, REDUCE_OPS, find_dtype, find_reduce_op
from commbench.plan.operation import BlockOrigin, BlockPosition, Extent, Peer
from commbench.plan.operations import OPERATIONS, find_operation

PACKAGE = Path(commbench.__file__).parent

# nccl-tests, src/*.cu: what one rank sends and receives, and bus over algorithm bandwidth.
CONVENTIONS = {
    #                 sends           receives        n=2  n=4   n=8
    "all_reduce":     (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.5,  1.75),
    "all_gather":     (Extent.BLOCK,   Extent.WHOLE,   0.5, 0.75, 0.875),
    "reduce_scatter": (Extent.WHOLE,   Extent.BLOCK,   0.5, 0.75, 0.875),
    "broadcast":      (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "all_to_all":     (Extent.WHOLE,   Extent.WHOLE,   0.5, 0.75, 0.875),
    "reduce":         (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "gather":         (Extent.BLOCK,   Extent.AT_ROOT, 0.5, 0.75, 0.875),
    "scatter":        (Extent.AT_ROOT, Extent.BLOCK,   0.5, 0.75, 0.875),
    "send_recv":      (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "barrier":        (Extent.NOTHING, Extent.NOTHING, None, None, None),
    # As nccl-tests counts sendrecv: one direction. ring_exchange ends as all_gather does.
    "ping_pong":      (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "exchange":       (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "stream":         (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "pipeline":       (Extent.WHOLE,   Extent.WHOLE,   1.0, 1.0,  1.0),
    "ring_exchange":  (Extent.BLOCK,   Extent.WHOLE,   0.5, 0.75, 0.875),
    "one_shot_all_reduce": (Extent.WHOLE, Extent.WHOLE, 1.0, 1.5, 1.75),
    "two_shot_all_reduce": (Extent.WHOLE, Extent.WHOLE, 1.0, 1.5, 1.75),
    "multimem_all_reduce": (Extent.WHOLE, Extent.WHOLE, 1.0, 1.5, 1.75),
    "multimem_all_gather": (Extent.BLOCK, Extent.WHOLE, 0.5, 0.75, 0.875),
    "register":       (Extent.WHOLE,   Extent.NOTHING, None, None, None),
    "replay":                (Extent.NOTHING, Extent.NOTHING, None, None, None),
    "new_group":             (Extent.NOTHING, Extent.NOTHING, None, None, None),
    "split_group":           (Extent.NOTHING, Extent.NOTHING, None, None, None),
    # The factor depends on the blocks: tests/plan/test_splits.py.
    "all_to_all_v":     (Extent.WHOLE, Extent.WHOLE,   None, None, None),
    "all_gather_v":     (Extent.BLOCK, Extent.WHOLE,   None, None, None),
    "reduce_scatter_v": (Extent.WHOLE, Extent.BLOCK,   None, None, None),
}  # fmt: skip


def test_extents_and_bandwidth_factors_are_those_of_nccl_tests() -> None:
    found = {}
    for name, operation in OPERATIONS.items():
        factor = operation.busbw_factor
        factors = [factor(n) if factor else None for n in (2, 4, 8)]
        found[name] = (operation.send, operation.receive, *factors)
    assert found == CONVENTIONS


def test_one_rank_alone_puts_nothing_on_the_bus() -> None:
    """But for the operations whose factor is 1 for any number of ranks."""
    for name, operation in OPERATIONS.items():
        if operation.busbw_factor:
            assert operation.busbw_factor(1) == (CONVENTIONS[name][2:] == (1.0, 1.0, 1.0)), name


R = None  # the reduction over all ranks
# What each block of each rank's receive buffer holds, on 3 ranks with root 1: (block, rank).
HELD_BY_3_RANKS = {
    "all_reduce": [[(0, R)], [(0, R)], [(0, R)]], "all_gather": [[(0, 0), (0, 1), (0, 2)]] * 3,
    "reduce_scatter": [[(0, R)], [(1, R)], [(2, R)]], "broadcast": [[(0, 1)], [(0, 1)], [(0, 1)]],
    "all_to_all": [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)], [(2, 0), (2, 1), (2, 2)]],
    "reduce": [[None], [(0, R)], [None]], "gather": [[], [(0, 0), (0, 1), (0, 2)], []],
    "scatter": [[(0, 1)], [(1, 1)], [(2, 1)]], "send_recv": [[(0, 2)], [(0, 0)], [(0, 1)]],
    "barrier": [[None], [None], [None]],
    # Of 3 ranks 0 and 1 are a pair, and 2 has none. Of a stream the first rank gets only a reply.
    "ping_pong": [[(0, 1)], [(0, 0)], [None]], "exchange": [[(0, 1)], [(0, 0)], [None]],
    "stream": [[None], [(0, 0)], [None]], "pipeline": [[None], [(0, 0)], [(0, 0)]],
    "replay": [[None], [None], [None]],
    "new_group": [[], [], []], "split_group": [[], [], []],
    "all_to_all_v": [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)], [(2, 0), (2, 1), (2, 2)]],
    "all_gather_v": [[(0, 0), (0, 1), (0, 2)]] * 3,
    "reduce_scatter_v": [[(0, R)], [(1, R)], [(2, R)]],
    "ring_exchange": [[None, (0, 1), (0, 2)], [(0, 0), None, (0, 2)], [(0, 0), (0, 1), None]],
    "one_shot_all_reduce": [[(0, R)], [(0, R)], [(0, R)]],
    "two_shot_all_reduce": [[(0, R)], [(0, R)], [(0, R)]],
    "multimem_all_reduce": [[(0, R)], [(0, R)], [(0, R)]],
    "multimem_all_gather": [[(0, 0), (0, 1), (0, 2)]] * 3, "register": [[], [], []],
}  # fmt: skip
PEERS = (Peer(1, is_first=True), Peer(0, is_first=False), None)


def test_the_closed_form_of_every_operation_on_three_ranks() -> None:
    found = {}
    for name, operation in OPERATIONS.items():
        at_every_rank = []
        for rank in range(3):
            blocks = len(HELD_BY_3_RANKS[name][rank])
            places = [
                BlockPosition(rank=rank, block=block, ranks=3, root=1, peer=PEERS[rank])
                for block in range(blocks)
            ]
            at_every_rank.append([operation.expected(place) for place in places])
        found[name] = at_every_rank
    assert found == {
        name: [[held and BlockOrigin(*held) for held in rank] for rank in ranks]
        for name, ranks in HELD_BY_3_RANKS.items()
    }


_TABLES = ("operations.py", "pairs.py")


_NAMING_ROOMS = ("answers/advise", "readers", "answers/cost", "workloads")
"""Rooms whose subject is particular operations: the names of other tools, the algorithms of each
operation, the calls of a training step, and what else could be called."""


_NAMING_COMMANDS = ("__init__.py", "api/__init__.py", "cli/commands.py",
                    "cli/measuring_options.py", "api/words.py", "api/measuring.py")  # fmt: skip
"""Files that name commands and functions, of which one is `replay`."""


def test_no_other_file_of_the_program_tests_the_name_of_an_operation() -> None:
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"""["'](\w+)["']""", path.read_text(encoding="utf-8"))
        if name in OPERATIONS and path.name not in _TABLES
    }
    commands = {(name, "replay") for name in _NAMING_COMMANDS}
    assert {one for one in found if not one[0].startswith(_NAMING_ROOMS)} == commands


@pytest.mark.parametrize(
    ("spelling", "meant"),
    [
        ("allreduce", "all_reduce"), ("alltoall", "all_to_all"), ("sendrecv", "send_recv"),
        ("alltoall_perf", "all_to_all"), ("bcast", "broadcast"), ("p2p", "send_recv"),
        ("reduce_scatter_tensor", "reduce_scatter"),
    ],
)  # fmt: skip
def test_another_programs_name_of_an_operation_gets_ours_as_a_hint(
    spelling: str, meant: str
) -> None:
    with pytest.raises(UsageError) as refused:
        find_operation(spelling)
    assert refused.value.message == f"unknown operation {spelling!r}"
    assert refused.value.hint == f"did you mean {meant}? `commbench ops` lists all"


def test_element_types_are_torchs_with_its_sizes_and_precision() -> None:
    for name, dtype in DTYPES.items():
        theirs = getattr(torch, name)
        assert dtype.size_bytes == theirs.itemsize
        if theirs.is_floating_point:
            assert dtype.kind == "float"
            assert dtype.epsilon == torch.finfo(theirs).eps
        elif theirs != torch.bool:
            assert dtype.kind == ("int" if theirs.is_signed else "uint")
            assert dtype.epsilon == 0
            assert dtype.exact_limit == torch.iinfo(theirs).max


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.kind == "float"])
def test_a_float_counts_exactly_up_to_its_limit_and_no_further(name: str) -> None:
    limit, dtype = DTYPES[name].exact_limit, getattr(torch, name)
    counted = torch.arange(max(0, limit - 300), limit + 1)
    assert torch.equal(counted.to(dtype).to(torch.float64).long(), counted)
    beyond = torch.tensor([limit + 1])
    assert not torch.equal(beyond.to(dtype).to(torch.float64).long(), beyond)


def test_a_reduce_operation_is_found_in_any_case_and_is_one_of_torchs() -> None:
    for name, reduction in REDUCE_OPS.items():
        assert find_reduce_op(name.upper()) is reduction
        assert hasattr(torch.distributed.ReduceOp, reduction.torch_name or name.upper())
    with pytest.raises(UsageError, match="unknown reduce op 'summ'") as refused:
        find_reduce_op("summ")
    assert refused.value.hint.startswith("did you mean sum? ")
    for spelling, meant in (("Mean", "avg"), ("product", "prod"), ("maximum", "max")):
        with pytest.raises(UsageError) as refused:
            find_reduce_op(spelling)
        assert refused.value.hint.startswith(f"did you mean {meant}? ")
    with pytest.raises(UsageError) as refused:
        find_dtype("float8")
    assert refused.value.hint.startswith("did you mean float8_e4m3fn? ")
    with pytest.raises(UsageError) as refused:
        find_reduce_op("norm")
    assert refused.value.hint.startswith("known: sum, ")


@pytest.mark.parametrize(
    ("reduction", "dtype"),
    [(r, d) for r, d in product(REDUCE_OPS, DTYPES) if DTYPES[d].kind in REDUCE_OPS[r].kinds],
)
def test_the_neutral_element_leaves_every_test_value_as_it_is(reduction: str, dtype: str) -> None:
    entry, kind = REDUCE_OPS[reduction], DTYPES[dtype]
    for ranks in (1, 2, 7, 64):
        values = torch.tensor(entry.values(kind, entry.contributors(kind, ranks)))
        neutral = torch.full_like(values, entry.neutral(kind))
        assert torch.equal(entry.combine(values, neutral), values)
        assert torch.equal(entry.combine(neutral, values), values)


@pytest.mark.parametrize(
    ("name", "backend", "is_unread"),
    [
        ("NCCL_ALGO", "gloo", True), ("NCCL_ALGO", "nccl", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "gloo", True), ("GLOO_SOCKET_IFNAME", "gloo", False),
        ("GLOO_SOCKET_IFNAME", "nccl", True), ("OMP_NUM_THREADS", "gloo", False),
        ("TORCH_DISTRIBUTED_DEBUG", "gloo", False), ("UCX_TLS", "ucc", False),
        ("UCX_TLS", "gloo", True), ("EDITOR", "gloo", False),
    ],
)  # fmt: skip
def test_a_variable_of_another_backend_is_not_read(
    name: str, backend: str, is_unread: bool
) -> None:
    assert find_unread([name], backend) == ((name,) if is_unread else ())


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("NCCL_ALGO", None), ("NCCL_MIN_P2P_NCHANNELS", None),
        ("NCCL_A_NAME_OF_ANOTHER_VERSION", None), ("NCCL_AGLO", "NCCL_ALGO"),
        ("NCCL_ALG", "NCCL_ALGO"), ("NCCL_PROTOS", "NCCL_PROTO"), ("GLOO_SOCKET_IFNAME", None),
        ("GLOO_SOCKET_IFACE", "GLOO_SOCKET_IFNAME"), ("GLOO_COLOUR", ""), ("NCL_ALGO", "NCCL_ALGO"),
        ("TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), ("EDITOR", ""), ("OMP_NUM_THREADS", None),
        ("MALLOC_ARENA_MAX", None),
    ],
)  # fmt: skip
def test_a_name_that_nothing_reads_gets_one_suggestion(name: str, suggestion: str | None) -> None:
    assert suggest_variable(name, "nccl") == suggestion


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ()),
        (["--nccl-option", "cta_policy=zero"], ("cta_policy=zero",)),
        (["--nccl-option", "max_ctas=8", "--nccl-option", "min-ctas=2"],
         ("max_ctas=8", "min_ctas=2")),
        (["--nccl-option", "max_ctas=8, net_name=Socket"], ("max_ctas=8", "net_name=Socket")),
        (["--nccl-option", "-"], ()),
    ],
)  # fmt: skip
def test_options_are_named_with_their_values(words: list[str], found: tuple[str, ...]) -> None:
    options = parse_words(words)
    assert options.nccl_option == found
    assert options.plan("nccl", "cuda", 2).nccl_options == found
    assert parse_words(options.arguments()) == options


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "cta_polcy=zero",
            "--nccl-option: unknown NCCL option 'cta_polcy'",
            "did you mean cta_policy? known: ",
        ),
        ("blocking=1", "--nccl-option: unknown NCCL option 'blocking'", "known: cta_policy, "),
        ("cta_policy", "--nccl-option 'cta_policy' is not NAME=VALUE", "cta_policy=zero"),
        ("cta_policy=one", "--nccl-option cta_policy cannot be 'one'", "default, efficiency, zero"),
        ("max_ctas=-1", "--nccl-option max_ctas cannot be '-1'", "a whole number"),
        ("max_ctas=1,max_ctas=2", "--nccl-option gives max_ctas twice: 1 and 2", "leave out one"),
    ],
)
def test_what_is_no_option_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_words(["--nccl-option", text])
    assert refused.value.message == message
    assert hint in (refused.value.hint or "")


def test_another_backend_has_no_such_options() -> None:
    require_nccl("nccl", ("max_ctas=8",))
    require_nccl("gloo", ())
    with pytest.raises(UsageError) as refused:
        require_nccl("gloo", ("max_ctas=8",))
    assert refused.value.message == (
        "--nccl-option max_ctas=8 needs the backend nccl, and this is gloo"
    )
