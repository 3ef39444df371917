"""What NCCL makes of NCCL_ALGO, and what its tuner plugin reads."""

import pytest
from synthetic import in_memory, plan, steady

from commbench.analysis.nccl_log import SELECTIONS, NcclSelection, one_selection, selection_key
from commbench.analysis.nccl_tuner import TunerRange, tuner_lines
from commbench.analysis.rows import make_row
from commbench.results.schema import Measurement
from commbench.spec.operations import OPERATIONS
from commbench.stats.estimate import Estimate
from commbench.stats.verdict import SAME
from commbench.sweep.nccl_tuning import make_tuner_ranges, make_value, read_selections
from commbench.sweep.ranking import SettingTime, SweepPoint
from commbench.sweep.runner import SettingResult
from commbench.sweep.settings import make_settings

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


def test_selections_are_those_that_the_run_of_a_setting_recorded() -> None:
    ring, tree = make_settings({"NCCL_ALGO": ("RING", "TREE")}, {})
    run = in_memory("a", [steady(1e-4), steady(2e-4)])
    first, second = run.measurements
    facts = {
        SELECTIONS: {
            selection_key(first.case): [["RING", "LL128", "8"]],
            selection_key(second.case): [["TREE", "LL", "1"], ["RING", "LL128", "8"]],
        }
    }
    run = run._replace(header=run.header._replace(environment=facts))
    results = [SettingResult(ring, run, (), 1, ""), SettingResult(tree, None, (), 0, "failed")]
    selections = read_selections(results)
    assert [*selections] == [ring]
    size = first.case.block_bytes
    assert one_selection(selections[ring], first.case) == NcclSelection(
        "AllReduce", size, "RING", "LL128", 8
    )
    assert one_selection(selections[ring], second.case) is None


def test_the_tuner_gets_the_direct_call_of_a_size_and_of_several_the_first() -> None:
    setting, _ = make_settings({"NCCL_ALGO": ("RING", "TREE")}, {})
    asked = plan(
        backend="nccl", device="cuda", sizes=(1024, 4096), forms=("async",),
        dtypes=("float32", "bfloat16"),
    )  # fmt: skip
    header, found = in_memory("a", [steady(1e-4)]).header, {}
    points = []
    for case in sorted(asked.cases(), key=lambda case: case.form):  # async first
        algorithm = {"async": "TREE", "direct": "NVLS"}[case.form]
        is_first = (case.form, case.dtype) == ("direct", "float32")
        found[selection_key(case)] = [["RING" if is_first else algorithm, "LL", "2"]]
        row = make_row(header, Measurement(case=case, status="ok"))
        time = SettingTime(setting, row, Estimate(1e-4, 1e-4, 1e-4), None, SAME)
        points.append(SweepPoint(case.title, case.size_bytes, (time,)))
    assert len(points) == 8
    assert make_tuner_ranges(points, {setting: {SELECTIONS: found}}) == (
        TunerRange("all_reduce", 0, 4096, "ring", "ll", 2),
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
