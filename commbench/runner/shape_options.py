"""The options of `commbench run` for shapes of communication other than one call of all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from commbench.errors import UsageError
from commbench.runner.option import (
    IF_CHANGED,
    declare_option,
    parse_imbalance_list,
    parse_one_size,
    parse_overlap_list,
    parse_pair_list,
    parse_step_names,
    parse_tensor_list,
    parse_texts,
    parse_variant_list,
    require_fit,
)
from commbench.spec.call_forms import CALL_FORMS
from commbench.spec.groups import ALONE, BOTH, MESH_HINT, Layout
from commbench.spec.splits import KINDS_HELP
from commbench.spec.workload import Workload, make_workload
from commbench.spec.workload_fit import REFUSE, prepare_replay
from commbench.spec.workload_variants import VARIANTS_HELP

SHAPE_GROUPS = (
    "Groups of ranks", "Forms of a call", "Overlap", "Point to point", "Unequal blocks", "Replay",
)  # fmt: skip
"""The headings of these options in the help."""
_groups, _forms, _overlap, _point_to_point, _uneven = (
    partial(declare_option, group, chooses_calls=True) for group in SHAPE_GROUPS[:-1]
)
_replay = partial(declare_option, SHAPE_GROUPS[-1])

_STEP = {"measure": "leave it out: a workload is replayed by ranks that commbench starts"}
_OWN_GROUP = {"measure": "leave it out: call measure(group=...) on the ranks of each group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """Some of the RunOptions."""

    mesh: str = _groups(
        "DIMS", "Dimensions of a mesh of all ranks, the outermost first: dp=2,tp=4. The last one "
        "varies fastest. -1 takes the rest. Without --nproc-per-node, as many ranks are started.",
        plan="mesh", default_text="none", refused_by=_OWN_GROUP,
    )  # fmt: skip
    over: tuple[str, ...] = _groups(
        "DIM", "Dimensions whose groups are measured, with commas. dp+cp combines two; world is "
        "all ranks.", plan="over", parse=parse_texts, cli_type=list[str] | None,
        default_text="every dimension of the mesh", refused_by=_OWN_GROUP,
    )  # fmt: skip
    mesh_order: str = _groups(
        "ORDER", "Order of the mesh's dimensions, the fastest first, as Megatron writes it: "
        "tp-cp-ep-dp-pp. Or a preset: megatron, torchtitan, scaletorch.", plan="mesh_order",
        default_text="as given, the last one fastest", is_varied=True, refused_by=_OWN_GROUP,
    )  # fmt: skip
    groups: str = _groups(
        "GROUPS", "Groups of ranks instead of a mesh. A comma joins ranks, a semicolon separates "
        'groups: "0-3;4-7", "0,2;1,3", "0-6:2;1-7:2". Or a rule of nccl-tests\' NCCL_TESTS_SPLIT: '
        '"MOD 4", "DIV 8", "AND 0x7", "OR 1".', plan="groups",
        default_text="none", refused_by=_OWN_GROUP,
    )  # fmt: skip
    group_size: int | None = _groups(
        "N", "Groups of N ranks instead of a mesh.", plan="group_size", default_text="none",
        refused_by=_OWN_GROUP,
    )  # fmt: skip
    group_stride: int | None = _groups(
        "S", "From one rank of such a group to the next.", plan="group_stride", default_text="1",
        refused_by=_OWN_GROUP,
    )  # fmt: skip
    concurrency: str = _groups(
        "HOW", "together: all groups of a dimension call at once, as in training; alone: one group "
        "at a time; both: also shows how much they slow each other.", plan="concurrency",
        refused_by=_OWN_GROUP,
    )  # fmt: skip

    open_groups: int = _groups(
        "N", "Make N process groups of all ranks before anything is measured. They stay unused; a "
        "job with many groups has them, too.", plan="open_groups", chooses_calls=False,
        refused_by={"measure": "leave it out: make the groups with torch.distributed.new_group"},
    )  # fmt: skip

    tensors: tuple[str, ...] = _forms(
        "K", "Cut each size into K tensors, and measure one call of all bytes and the forms that "
        "take several tensors. ddp:25M cuts it as DistributedDataParallel cuts gradients into "
        "buckets: 1 MiB, then 25 MiB each. Several with commas.", flags=("--tensors", "--split"),
        plan="tensors", parse=parse_tensor_list, cli_type=list[str] | None,
    )  # fmt: skip
    form: tuple[str, ...] = _forms(
        "FORM", "Ways to the same result, measured beside the direct call: "
        f"{', '.join(f.name for f in CALL_FORMS.values() if not f.is_reference)}, or all. "
        "`commbench ops` explains them. Several with commas.", flags=("--form", "--via"),
        plan="forms", parse=parse_texts, cli_type=list[str] | None,
        default_text="the direct call; with --tensors, all",
    )  # fmt: skip
    overlap: tuple[str, ...] = _overlap(
        "WORK", "Compute during the communication, and measure each alone and both at once. "
        "matmul[:MxNxK]: products of matrices, on GPUs of two shapes (matmul:exact, with a tile "
        "for each multiprocessor, and matmul:ragged); memory[:SIZE]: copies; none: only the "
        "communication. A third part fixes how many units are computed: "
        "matmul:128x128x128:50. Several with commas.", plan="overlap", parse=parse_overlap_list,
        cli_type=list[str] | None, is_varied=True,
    )  # fmt: skip
    overlap_ratio: float | None = _overlap(
        "R", "Compute R times as long as the communication takes alone.", plan="overlap_ratio",
        default_text="1",
    )  # fmt: skip
    p2p_call: str = _point_to_point(
        "CALL", "send: blocking send and recv; isend: isend and irecv; batch: batch_isend_irecv; "
        "all; natural: the usual one of each operation.", plan="p2p_call", is_varied=True,
    )  # fmt: skip
    pairs: tuple[str, ...] = _point_to_point(
        "PAIRS", "Which ranks are pairs. halves: i with i + n/2; neighbours: 0 with 1, 2 with 3; "
        "0-5+1-7: these only, the first rank of each sends; all: every pair, in rounds; round:3: "
        "one of these rounds; quick: a search in few rounds. One or several with commas.",
        plan="pairs", parse=parse_pair_list, cli_type=list[str] | None, is_varied=True,
    )  # fmt: skip
    latency_size: int | None = _point_to_point(
        "SIZE", "Size of ping_pong, where other operations have --sizes.", plan="latency_size",
        parse=parse_one_size, cli_type=str | None, default_text="that of --sizes",
    )  # fmt: skip
    window: int = _point_to_point(
        "N", "Messages that the operation stream sends before it waits for a reply.", plan="window",
        is_varied=True,
    )  # fmt: skip
    imbalance: tuple[str, ...] = _uneven(
        "KIND", f"How the blocks of operations with unequal blocks differ. {KINDS_HELP}; "
        "file:MATRIX.csv: in the ratio of these whole numbers, a line per sender. A seed may "
        "follow: zipf:1:7 shuffles the ranks. Several with commas.", plan="imbalance",
        parse=parse_imbalance_list, cli_type=list[str] | None, is_varied=True,
    )  # fmt: skip

    workload: Path | None = _replay(  # noqa: RUF009 - it gives a field
        "FILE", "Replay the step of a training program instead of --op: the file of `commbench "
        "workload`. `commbench replay FILE` has the other options that go with it.",
        default=None, parse=Path, default_text="none", passed_on=IF_CHANGED, is_fixed=False,
        refused_by=_STEP | {"resume": "leave it out: the run has its workload"},
    )  # fmt: skip
    step: tuple[str, ...] = _replay(
        "NAME", "Which steps of the workload, with commas; all.", default=(),
        parse=parse_step_names, cli_type=list[str] | None, passed_on=IF_CHANGED, is_fixed=False,
        default_text="the one that was made most often", refused_by=_STEP,
    )  # fmt: skip
    variant: tuple[str, ...] = _replay(
        "HOW", f"How a step is replayed. {VARIANTS_HELP}; bucket:50M: with neighbouring "
        "all_reduces cut into others of 50 MiB; all: each that applies. Several with commas.",
        plan="variants", parse=parse_variant_list, cli_type=list[str] | None, refused_by=_STEP,
    )  # fmt: skip
    fit: str = _replay(
        "HOW", "Where there are fewer ranks than in the workload. refuse: stop; shrink: keep the "
        "first ranks, and of each group those that are left.", default=REFUSE,
        require=require_fit, passed_on=IF_CHANGED, is_fixed=False, refused_by=_STEP,
    )  # fmt: skip

    workload_values: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The content of the file of the workload."""

    def fitted_workload(self, world_size: int | None) -> Workload:
        """The workload as so many ranks replay it (None: as many as it has), with a note for each
        change. UsageError where that is not possible."""
        workload = make_workload(self.workload_values)
        fitted, changes = prepare_replay(workload, world_size, self.fit, self.step)
        return fitted._replace(notes=(*workload.notes, *changes))

    @property
    def needed_ranks(self) -> int | None:
        """The ranks that the mesh, the groups or the workload have; None where they fit several
        numbers."""
        if self.workload_values and self.fit == REFUSE:
            return int(self.workload_values["world_size"])
        return self.layout.needed_ranks()

    @property
    def layout(self) -> Layout:
        """What is given about groups of ranks. UsageError for --concurrency without any."""
        values = (getattr(self, name) for name in Layout._fields)
        found = Layout(*values)
        if found.is_empty and self.concurrency in (ALONE, BOTH):
            raise UsageError(
                f"--concurrency {self.concurrency} has no effect without --mesh, --groups or "
                "--group-size",
                MESH_HINT,
            )
        return found
