"""What NCCL makes of NCCL_ALGO, and what its tuner plugin reads."""

import pytest

from commbench.spec.operations import OPERATIONS
from commbench.sweep.nccl_tuning import (
    TunerRange,
    make_value,
    tuner_lines,
)

NEW, OLD = (2, 29, 7), (2, 21, 5)
ALL = ("all_reduce", "all_gather", "broadcast", "all_to_all")


@pytest.mark.parametrize(
    ("value", "version", "expected", "applies"),
    [
        ("TREE", NEW, "allreduce:tree", ("all_reduce",)),
        ("RING", NEW, "allreduce:ring;allgather:ring;broadcast:ring", ALL[:3]),
        ("Tree,Ring", NEW, "allreduce:tree,ring;allgather:ring;broadcast:ring", ALL[:3]),
        ("PAT", NEW, "allgather:pat", ("all_gather",)),
        ("NVLS_TREE", NEW, "allreduce:nvlstree", ("all_reduce",)),
        ("TREE", OLD, "TREE", ("all_reduce",)),
        ("allreduce:tree", NEW, "allreduce:tree", ALL),
        ("^ring", NEW, "^ring", ALL),
        ("SPIRAL", NEW, "SPIRAL", ALL),
    ],
)
def test_a_value_is_written_so_that_it_harms_no_other_function(
    value: str, version: tuple[int, ...], expected: str, applies: tuple[str, ...]
) -> None:
    assert make_value(ALL, value, version) == (expected, applies)


def test_trees_are_for_all_reduce_alone() -> None:
    assert [name for name in OPERATIONS if "tree" in OPERATIONS[name].nccl_algorithms] == [
        "all_reduce"
    ]
    ring = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}
    assert {name for name in OPERATIONS if "ring" in OPERATIONS[name].nccl_algorithms} == ring


def test_a_tuner_configuration_names_its_channels_and_leaves_no_size_out() -> None:
    lines = tuner_lines(
        [
            TunerRange("all_reduce", 0, 65535, "tree", "ll", 2),
            TunerRange("all_reduce", 65536, 1 << 30, "ring", "simple", 24),
            TunerRange("all_gather", 0, 1 << 30, "ring", "simple", 8),
        ],
        nodes=1,
        ranks=8,
    )
    assert lines == [
        "allreduce,0,65535,tree,ll,2,1,8,-1,-1",
        "allreduce,65536,9223372036854775807,ring,simple,24,1,8,-1,-1",
        "allgather,0,9223372036854775807,ring,simple,8,1,8,-1,-1",
    ]
    assert all(len(line) <= 256 for line in lines)
