"""The options of `commbench run` that say what is called: operations, sizes, groups of ranks, forms
of a call, pairs, unequal blocks, or the step of a training program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from commbench.errors import UsageError
from commbench.plan.backends import ALLOCATORS, MEMORY_CHOICES, MEMORY_HELP
from commbench.plan.call_forms import CALL_FORMS, parse_tensors
from commbench.plan.computations import parse_overlap
from commbench.plan.dimensions import TIMING_HELP
from commbench.plan.dtypes import DATA, DATA_HELP, DTYPES, REDUCE_OPS, find_dtype, find_reduce_op
from commbench.plan.groups import ALONE, BOTH, MESH_HINT, Layout
from commbench.plan.operations import DEFAULT_OPERATION, OPERATION_SETS, OPERATIONS, find_operation
from commbench.plan.own_calls import parse_calls
from commbench.plan.pairs import parse_pairs
from commbench.plan.plan import Plan
from commbench.plan.splits import KINDS_HELP, parse_imbalance
from commbench.plan.workload import Workload, make_workload
from commbench.plan.workload_fit import FIT_CHOICES, REFUSE, prepare_replay
from commbench.plan.workload_variants import VARIANTS_HELP, parse_variant
from commbench.runner import option
from commbench.runner.option import SPECIAL_GROUPS, Option, list_of, names_of
from commbench.units import parse_size, parse_sizes, size_range
from commbench.validation import choose

DEFAULT_SIZES = "1K-64M"
_MEMORIES = {name: ALLOCATORS[name] for name in MEMORY_CHOICES}
_FORMS = ", ".join(f.name for f in CALL_FORMS.values() if not (f.is_reference or f.compression))
_COMPRESSED = ", ".join(f.name for f in CALL_FORMS.values() if f.compression)


def declare(metavar: str, text: str, *, default: Any = ..., **declared: Any) -> Any:
    """Declare a field of RunOptions; without a default it has that of its field of Plan."""
    if default is ...:
        plan = declared.get("plan")
        default = Plan.__dataclass_fields__[plan].default if plan else None
    own = Option(metavar=metavar, help=text, **declared)
    return field(default=default, metadata={"option": own})


_what, _groups, _forms, _overlap, _pairs, _uneven = (
    partial(declare, group=group, chooses_calls=True)
    for group in ("What to measure", *SPECIAL_GROUPS[:-1])
)
_group = partial(_groups, refused_by=("measure",))
_replay = partial(declare, group=SPECIAL_GROUPS[-1], refused_by=("measure",))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Some of the RunOptions."""

    op: tuple[str, ...] = _what(
        "OP", "Operations of `commbench ops`, with commas; all: the collectives; p2p: those of "
        "point to point; uneven: with unequal blocks.",
        default=(DEFAULT_OPERATION,), plan="operations",
        parse=names_of("--op", find_operation, OPERATIONS, OPERATION_SETS),
    )  # fmt: skip
    sizes: tuple[int, ...] = _what(
        "SIZES", "Bytes: 1K-1G doubles, 1K-1G:x4 multiplies by 4, 1M-16M:+1M adds 1M, 8,1K,1M is a "
        "list. K, M, G, T are powers of 1024.", default=parse_sizes(DEFAULT_SIZES),
        plan="sizes", parse=option.parse_size_list, python_type="str | int | Sequence[int | str]",
    )  # fmt: skip
    dtype: tuple[str, ...] = _what(
        "DTYPE", "Element types, with commas; all.", flags="--dtype -d",
        plan="dtypes", parse=names_of("--dtype", find_dtype, DTYPES), is_varied=True,
        python_type="str | torch.dtype | Sequence[str | torch.dtype]",
    )  # fmt: skip
    reduce_op: tuple[str, ...] = _what(
        "RED", f"Reductions, with commas: {', '.join(REDUCE_OPS)}; or all.",
        flags="--reduce-op -o", plan="reduce_ops", needs=lambda o: o.reduces,
        parse=names_of("--reduce-op", find_reduce_op, REDUCE_OPS),
        python_type="str | ReduceOp.RedOpType | Sequence[str | ReduceOp.RedOpType]",
    )  # fmt: skip
    root: int = _what(
        "RANK", "Root of broadcast, reduce, gather and scatter.", plan="root",
        needs=lambda o: o.rooted,
    )  # fmt: skip
    placement: str = _what(
        "WHERE", "in_place, out_of_place, both; natural: the usual one.",
        plan="placement", is_varied=True,
    )  # fmt: skip
    rounding: str = _what(
        "HOW", "Blocks are rounded down. exact: to elements; nccl-tests: to 16 bytes.",
        plan="rounding",
    )  # fmt: skip
    timing: str = _what("MODE", f"{TIMING_HELP}; both.", plan="timing", is_varied=True)
    launch: str = _what(
        "HOW", "On a GPU. eager: each call is queued by itself; graph: as a CUDA graph; both.",
        plan="launch_mode", is_varied=True,
    )  # fmt: skip
    memory: tuple[str, ...] = _what(
        "KIND", f"Memory of buffers. {MEMORY_HELP}; with commas, or all.",
        plan="memory", is_varied=True, parse=names_of(
            "--memory", lambda name: choose("memory", name.lower(), _MEMORIES), MEMORY_CHOICES
        ),
    )  # fmt: skip
    buffers: str | None = _what(
        "WHICH", "hot: the same in each call; rotating: the next of up to 32; both.",
        default=None, plan="buffers", is_varied=True,
        default_text="hot on CPUs, rotating on GPUs",
    )  # fmt: skip
    check: bool = _what(
        "", "Check every element of a case's first call, and of untimed ones in between.",
        plan="check", chooses_calls=False,
    )  # fmt: skip

    numerics: bool = _what(
        "", "Compare sums with exact ones, and bits of ranks and repeated calls.",
        plan="numerics", needs=lambda o: o.reduces, chooses_calls=False,
    )  # fmt: skip
    data: str = _what(
        "KIND", f"What --numerics adds up. {DATA_HELP}.", plan="data", needs=lambda o: o.reduces,
        choices=tuple(DATA), chooses_calls=False,
    )  # fmt: skip

    mesh: str = _group(
        "DIMS", "Mesh of all ranks, outermost first: dp=2,tp=-1 (rest).", plan="mesh",
        default_text="none", separator=",",
    )  # fmt: skip
    over: tuple[str, ...] = _group(
        "DIM", "Dimensions to measure, with commas. dp+cp combines two; world is all ranks.",
        plan="over", parse=list_of(str.lower), default_text="every dimension",
    )  # fmt: skip
    mesh_order: str = _group(
        "ORDER", "Its dimensions, the fastest first: tp-cp-ep-dp-pp; or megatron, torchtitan, "
        "scaletorch.", plan="mesh_order", is_varied=True,
        default_text="as given, the last one fastest",
    )  # fmt: skip
    groups: str = _group(
        "GROUPS", 'Groups of ranks instead of a mesh: "0-3;4-7", "0,2;1,3", "0-6:2;1-7:2"; or as '
        'NCCL_TESTS_SPLIT: "MOD 4", "DIV 8", "AND 0x7", "OR 1".', plan="groups",
        default_text="none", separator=";",
    )  # fmt: skip
    group_size: int | None = _group(
        "N", "Groups of N ranks instead of a mesh.", plan="group_size", default_text="none"
    )
    group_stride: int | None = _group(
        "S", "From one rank of such a group to the next.", plan="group_stride", default_text="1"
    )
    concurrency: str = _group(
        "HOW", "together: all groups of a dimension call at once; alone: one at a time; both: "
        "compared.", plan="concurrency",
    )  # fmt: skip
    open_groups: int = _group(
        "N", "Make N groups of all ranks first, unused.", plan="open_groups", chooses_calls=False
    )

    tensors: tuple[str, ...] = _forms(
        "K", "Tensors of each size, with commas; ddp:25M: as DistributedDataParallel cuts "
        "gradients. One call of all and the forms that take several are measured.",
        flags="--tensors --split", plan="tensors",
        parse=list_of(parse_tensors), python_type="str | int | Sequence[str | int]",
        needs=lambda o: o.has_data,
    )  # fmt: skip
    form: tuple[str, ...] = _forms(
        "FORM", f"Other ways to the same result (see `commbench ops`), with commas: {_FORMS}; all; "
        f"or to an inexact one with fewer bytes: {_COMPRESSED}.",
        flags="--form --via", plan="forms",
        parse=list_of(str.lower), default_text="the direct call; with --tensors, all",
    )  # fmt: skip
    calls: tuple[str, ...] = _forms(
        "CALL", "Your own ways to the same result, with commas: file.py:name or module:name of a "
        "class with `operation` and `__call__(output, input)`, or one of `commbench ops --calls`. "
        "This runs the code it names.",
        flags="--call", plan="calls", parse=parse_calls, is_varied=True, default_text="torch",
        python_type="str | type | Sequence[str | type] | None",
    )  # fmt: skip
    overlap: tuple[str, ...] = _overlap(
        "WORK", "Compute meanwhile, with commas: matmul[:MxNxK[:UNITS]], on GPUs of two shapes "
        "(matmul:exact, matmul:ragged); memory[:SIZE]: copies; none.",
        plan="overlap", parse=list_of(parse_overlap), is_varied=True,
    )  # fmt: skip
    overlap_ratio: float | None = _overlap(
        "R", "Compute R times as long as communication.", plan="overlap_ratio", default_text="1"
    )
    p2p_call: str = _pairs(
        "CALL", "send; isend; batch: batch_isend_irecv; all; natural: the usual one.",
        plan="p2p_call", is_varied=True,
        needs=lambda o: o.p2p_calls,
    )  # fmt: skip
    pairs: tuple[str, ...] = _pairs(
        "PAIRS", "Which ranks, with commas. halves: i with i + n/2; neighbours: 0 with 1, 2 with "
        "3; 0-5+1-7: these, 0 and 1 send; all: every pair, in rounds; round:3: one round; quick: "
        "a search.",
        plan="pairs", parse=list_of(parse_pairs), is_varied=True, needs=lambda o: o.is_paired,
    )  # fmt: skip
    latency_size: int | None = _pairs(
        "SIZE", "Size of ping_pong.", plan="latency_size",
        parse=option.parse_one_size, default_text="that of --sizes", needs=lambda o: o.is_latency,
    )  # fmt: skip
    window: int = _pairs(
        "N", "Messages that stream sends, then waits.", plan="window",
        is_varied=True, needs=lambda o: o.has_window,
    )  # fmt: skip
    imbalance: tuple[str, ...] = _uneven(
        "KIND", f"How blocks differ, with commas. {KINDS_HELP}; file:MATRIX.csv: these numbers, a "
        "line per sender. A seed may follow: zipf:1:7 shuffles the ranks.", plan="imbalance",
        parse=list_of(parse_imbalance), is_varied=True, needs=lambda o: o.block_counts,
    )  # fmt: skip

    workload: Path | None = _replay(  # noqa: RUF009 - it gives a field
        "FILE", "Replay this step, of `commbench workload`, instead of --op; see also `commbench "
        "replay`.",
        default=None, parse=Path, default_text="none", refused_by=("measure", "resume"),
        python_type="str | Path | None",
    )  # fmt: skip
    step: tuple[str, ...] = _replay(
        "NAME", "Steps of the workload, with commas; or all.", default=(), parse=list_of(str),
        default_text="the one that was made most often",
    )  # fmt: skip
    variant: tuple[str, ...] = _replay(
        "HOW", f"How to replay, with commas. {VARIANTS_HELP}; bucket:50M: neighbouring "
        "all_reduces cut into 50 MiB; all that apply.",
        plan="variants", parse=list_of(parse_variant),
    )  # fmt: skip
    fit: str = _replay(
        "HOW", "With fewer ranks than the workload. refuse: stop; shrink: keep the first ranks.",
        default=REFUSE, choices=FIT_CHOICES,
    )  # fmt: skip
    matrix: tuple[int, ...] = ()
    """The matrix of the imbalance `file`, row by row."""
    own_calls: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the own calls say about themselves, by specification."""
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
        found = Layout(*(getattr(self, name) for name in Layout._fields))
        if found.is_empty and self.concurrency in (ALONE, BOTH):
            trouble = "has no effect without --mesh, --groups or --group-size"
            raise UsageError(f"--concurrency {self.concurrency} {trouble}", MESH_HINT)
        return found


_R_VALUES = {int(entry.nccl_tests): name for name, entry in ALLOCATORS.items() if entry.nccl_tests}
"""Kinds of memory by the value of nccl-tests' -R."""


def _nccl_tests_flag(
    name: str, letter: str, metavar: str, text: str, default: str, sets: str = "sizes"
) -> Option:
    kind, parse = (str | None, str) if sets == "sizes" else (int | None, None)
    flags = f"-{letter} --{name}" if sets == "sizes" else f"-{letter}"
    return Option(
        metavar, text, "Flags of nccl-tests", kind, None, flags, default_text=default, name=name,
        parse=parse, sets=sets,
    )  # fmt: skip


NCCL_TESTS_FLAGS = (
    _nccl_tests_flag("minbytes", "b", "SIZE", "Smallest size.", "32M"),
    _nccl_tests_flag("maxbytes", "e", "SIZE", "Largest size.", "32M"),
    _nccl_tests_flag("stepfactor", "f", "N", "Factor from one size to the next.", "none"),
    _nccl_tests_flag("stepbytes", "i", "SIZE", "Difference from one size to the next.", "1M"),
    _nccl_tests_flag("check_count", "c", "0|1", "0 does not check results.", "1", "check"),
    _nccl_tests_flag(
        "local_register", "R", "|".join(map(str, _R_VALUES)),
        f"Memory {', '.join(_R_VALUES.values())}.", "0", "memory",
    ),
)  # fmt: skip
"""The short flags of nccl-tests that give the values of other options."""


def apply_nccl_tests_flags(values: dict[str, Any]) -> None:
    """Replace the values of nccl-tests' flags by those of the options that they set.

    Raises UsageError for a value that nccl-tests would refuse, and for two choices of one thing."""
    flags = [flag for flag in NCCL_TESTS_FLAGS if flag.name in values]
    given = {flag.name: values.pop(flag.name) for flag in flags}
    for flag in flags:
        if flag.sets in values:
            hint = "leave out one of them"
            raise UsageError(f"--{flag.sets} and {flag.flag} both choose the {flag.sets}", hint)
    if (count := given.pop("check_count", None)) is not None:
        if count not in (0, 1):
            raise UsageError(f"-c cannot be {count}", "-c 1 checks results, -c 0 does not")
        values["check"] = count > 0
    if (number := given.pop("local_register", None)) is not None:
        if number not in _R_VALUES:
            known = ", ".join(f"-R {known} is {name}" for known, name in _R_VALUES.items())
            raise UsageError(f"-R cannot be {number}", known)
        values["memory"] = (_R_VALUES[number],)
    if given:
        values["sizes"] = _nccl_tests_sizes(**given)


def _nccl_tests_sizes(
    minbytes: str = "32M",
    maxbytes: str = "32M",
    stepfactor: str | None = None,
    stepbytes: str | None = None,
) -> tuple[int, ...]:
    """The sizes of nccl-tests' -b -e -f -i, with its defaults: from 32M to 32M by 1M.

    UsageError for a factor above 1 and a step: nccl-tests ignores the step."""
    first, last = parse_size(minbytes), parse_size(maxbytes)
    if first > last:
        hint = "-e is the largest size, 32M where it is not given: write for example -b 8 -e 128M"
        raise UsageError(f"-b {minbytes} is more than -e {maxbytes}", hint)
    if stepfactor is not None and not re.fullmatch(r"\d+(\.\d+)?", stepfactor):
        raise UsageError(f"-f {stepfactor!r} is not a number", "write -f 2 to double")
    if stepfactor is None or float(stepfactor) <= 1:
        sizes = size_range(first, last, add=parse_size(stepbytes or "1M"))
        if stepbytes is None and first < last and not sizes[1:]:
            why = (
                f"-b {minbytes} -e {maxbytes} is {minbytes} alone: as in nccl-tests, the step is 1M"
            )
            raise UsageError(why, "write -f 2 to double, or -i and a step; -e like -b for one size")
        return sizes
    if stepbytes is not None:
        raise UsageError("-f and -i both choose the next size", "leave out one of them")
    return size_range(first, last, factor=float(stepfactor))
