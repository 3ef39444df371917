"""What NCCL makes of NCCL_ALGO, what its log tells, and what its tuner plugin reads."""

import pytest

from commbench.spec.operations import OPERATIONS
from commbench.sweep.nccl_tuning import (
    NcclSelection,
    TunerRange,
    make_value,
    parse_log,
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


# Lines as NCCL 2.29.7 prints them with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING.
LOG = """\
lab:3038984:3038984 [0] NCCL INFO   Algorithm   |                            Tree                  |
lab:3038984:3038984 [0] NCCL INFO     AllReduce |    16.8/   0.5 |    31.0/   0.0 |    36.4/   1.9 |
lab:3038984:3038984 [0] NCCL INFO Broadcast: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}
lab:3038984:3038984 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
lab:3038984:3038984 [0] NCCL INFO AllReduce: 1024 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
lab:3038984:3038984 [0] NCCL INFO AllReduce [Symmetric]: 4096 Bytes -> Kernel X nchannels 1 nthreads 2 nWorks 1
lab:3038984:3038984 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
"""  # noqa: E501


def test_choices_are_read_from_the_log_once_each() -> None:
    assert parse_log(LOG.splitlines()) == (
        NcclSelection("Broadcast", 16384, "RING", "LL", 2),
        NcclSelection("AllReduce", 1024, "TREE", "LL", 1),
        NcclSelection("AllReduce", 1 << 20, "RING", "SIMPLE", 24),
    )


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
