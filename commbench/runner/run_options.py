"""RUN_OPTIONS: the options of `commbench run`, each declared once, as a field of RunOptions.

The command line, `commbench.run`, sweeps, jobs, the smoke test, `--resume`, the plan, messages and
the command of ranks under torchrun all read the declaration. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from commbench.errors import UsageError, name_error
from commbench.results.workload_file import read_workload
from commbench.runner.nccl_tests_flags import NCCL_TESTS_FLAGS, apply_flags
from commbench.runner.option import (
    ALWAYS,
    IF_CHANGED,
    IN_COMMAND,
    NEVER,
    RunOption,
    as_label,
    declare_option,
    parse_names,
    parse_precision,
    parse_size_list,
    parse_value,
    require_effect,
    require_launcher,
    require_port,
    require_positive,
    require_replayable,
    write_argument,
)
from commbench.runner.output_options import OUTPUT, OutputOptions
from commbench.runner.shape_options import SHAPE_GROUPS, ShapeOptions
from commbench.spec.allocators import MEMORY_HELP
from commbench.spec.computations import NO_OVERLAP
from commbench.spec.dimensions import HOT, ROTATING
from commbench.spec.nccl_options import NCCL_OPTIONS, parse_nccl_options
from commbench.spec.operations import DEFAULT_OPERATION, OPERATION_SETS
from commbench.spec.plan import CPU_MODES, OPTIONS, Plan, make_replay_plan
from commbench.spec.splits import read_matrices
from commbench.spec.timing_modes import TIMING_HELP
from commbench.spec.workload import workload_values
from commbench.units import parse_sizes

DEFAULT_SIZES = "1K-64M"


GROUPS = (
    "What to measure", *SHAPE_GROUPS, "How long, and in which order", "Where", OUTPUT,
)  # fmt: skip
"""The headings of the help, in its order."""
_what = partial(declare_option, "What to measure", chooses_calls=True)
_how_long = partial(declare_option, "How long, and in which order")
_where = partial(declare_option, "Where")

_STARTS_RANKS = {"measure": "leave it out: the process group has its ranks already"}
_SEVERAL_NODES = _STARTS_RANKS | {
    "api": "start `commbench run` on each node, or call commbench.measure in a torchrun job"
}
_ONE_NODE = {"sweep": "leave it out: a sweep measures on one node"}
_CLUSTER = _SEVERAL_NODES | _ONE_NODE | {"job": "leave it out: the ranks find each other"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ShapeOptions, OutputOptions):
    """The options of `commbench run`; None where an option was not given."""

    op: tuple[str, ...] = _what(
        "OP", "Operation: one, several with commas, all collectives (all), all of point to point "
        "(p2p), or all with unequal blocks (uneven). `commbench ops` lists them.",
        default=(DEFAULT_OPERATION,), plan="operations", parse=partial(parse_names, flag="--op"),
        cli_type=list[str] | None, passed_on=ALWAYS,
    )  # fmt: skip
    sizes: tuple[int, ...] = _what(
        "SIZES", "Sizes in bytes. 1K-1G doubles, 1K-1G:x4 multiplies by 4, 1M-16M:+1M adds 1M, "
        "8,1K,1M is a list. K, M and G are powers of 1024.", default=parse_sizes(DEFAULT_SIZES),
        plan="sizes", parse=parse_size_list, cli_type=str | None, passed_on=ALWAYS,
    )  # fmt: skip
    dtype: tuple[str, ...] = _what(
        "DTYPE", "Element type: one, several with commas, or all.", flags=("--dtype", "-d"),
        plan="dtypes", parse=partial(parse_names, flag="--dtype"), cli_type=list[str] | None,
        passed_on=ALWAYS, is_varied=True,
    )  # fmt: skip
    reduce_op: tuple[str, ...] = _what(
        "RED", "Reduce operation: sum, avg, prod, min, max, band, bor, bxor; several with commas, "
        "or all.", flags=("--reduce-op", "-o"), plan="reduce_ops",
        parse=partial(parse_names, flag="--reduce-op"), cli_type=list[str] | None, passed_on=ALWAYS,
    )  # fmt: skip
    root: int = _what(
        "RANK", "Root rank of broadcast, reduce, gather and scatter.", plan="root",
        passed_on=ALWAYS,
    )  # fmt: skip
    placement: str = _what(
        "WHERE", "in_place; out_of_place; both; natural: the usual one of each operation.",
        plan="placement", passed_on=ALWAYS, is_varied=True,
    )  # fmt: skip
    rounding: str = _what(
        "HOW", "How the block of a rank is rounded down. exact: to whole elements; nccl-tests: to "
        "16 bytes.", plan="rounding",
    )  # fmt: skip
    timing: str = _what("MODE", f"{TIMING_HELP}; both.", plan="timing", is_varied=True)
    launch: str = _what(
        "HOW", "How calls reach a GPU. eager: each is queued by itself; graph: as a CUDA graph, "
        "captured before; both.", plan="launch_mode", is_varied=True,
    )  # fmt: skip
    memory: tuple[str, ...] = _what(
        "KIND", f"Memory of the buffers. {MEMORY_HELP}; several with commas, or all.",
        plan="memory", parse=partial(parse_names, flag="--memory"), cli_type=list[str] | None,
        is_varied=True,
    )  # fmt: skip
    buffers: str | None = _what(
        "WHICH", "hot: each call uses the same buffers; rotating: each uses the next of up to 32, "
        "so that no cache has its data, as in nccl-tests; both.", default=None, plan="buffers",
        is_varied=True, default_text="hot on the CPU, rotating on GPUs",
    )  # fmt: skip
    check: bool = _what(
        "", "Check every element on every rank: of a case's first call, of further calls before "
        "and between its batches as 5 % of the time allows, and of one call at least after them. "
        "Timed calls are not checked.", flags=("--check/--no-check",), plan="check",
        passed_on=ALWAYS, chooses_calls=False,
    )  # fmt: skip
    iters: int | None = _how_long(
        "N", "Timed iterations of each case.", flags=("--iters", "-n"), plan="iterations",
        default_text="as many as --precision needs",
    )  # fmt: skip
    warmup: int | None = _how_long(
        "N", "Untimed calls before the timed ones.", flags=("--warmup", "-w"), plan="warmup",
        default_text="until their times are stable",
    )  # fmt: skip
    precision: float = _how_long(
        "PART", "Sample each case until the 95 % interval of its median is within this, on either "
        "side. What launches differ by comes on top.", plan="precision", parse=parse_precision,
        cli_type=str, cli_default="5%",
    )  # fmt: skip
    budget: float = _how_long(
        "S",
        "Measure each case for at most so many seconds, in all launches together.",
        plan="budget_s",
    )
    order: str = _how_long(
        "ORDER", "shuffled: each case several times, in random order; ascending: one case after "
        "the other.", plan="order",
    )  # fmt: skip
    seed: int = _how_long("N", "Random seed.", plan="seed")
    launches: int | None = _how_long(
        "K", "Measure in K launches: each has fresh processes, connections and memory. They share "
        "the --budget; --iters is for each.", default=None, plan="launches",
        default_text="3; 1 with --iters", refused_by=_STARTS_RANKS | {
            "sweep": "use --rounds: each round is a launch", "job": "submit the job several times",
        },
    )  # fmt: skip
    backend: str | None = _where(
        "NAME", "gloo, nccl, or another backend of this torch.", default=None, plan="backend",
        is_varied=True, default_text="nccl with several GPUs, else gloo",
        refused_by={"measure": "leave it out: the process group has one"},
    )  # fmt: skip
    nccl_option: tuple[str, ...] = _where(
        "NAME=VALUE", "Option of NCCL's communicator: " + ", ".join(NCCL_OPTIONS) + ". Several "
        "with commas, or the option several times.", plan="nccl_options", parse=parse_nccl_options,
        cli_type=list[str] | None, is_varied=True, default_text="NCCL's own",
        refused_by={"measure": "leave it out: the process group has its communicator"},
    )  # fmt: skip
    device: str | None = _where(
        "TYPE", "cpu or cuda.", default=None, plan="device", default_text="that of the backend",
        refused_by={"measure": "leave it out: the process group has one"},
    )  # fmt: skip
    nproc_per_node: int | None = _where(
        "N", "Ranks on each node.", default=None, is_fixed=True, is_varied=True,
        require=partial(require_positive, "--nproc-per-node"),
        default_text="one per GPU; 2 on the CPU",
        refused_by=_STARTS_RANKS | {"job": "write it before the --"},
    )  # fmt: skip
    nnodes: int = _where(
        "N", "Number of nodes. Start the same command on each of them.", default=1,
        require=partial(require_positive, "--nnodes"), refused_by=_SEVERAL_NODES | {
            "sweep": "on several nodes, run each setting there",
            "job": "write --nodes before the --",
        },
    )  # fmt: skip
    node_rank: int = _where(
        "R", "Number of this node, from 0. Node 0 prints and writes the results.", default=0,
        refused_by=_SEVERAL_NODES | _ONE_NODE | {
            "job": "leave it out: the cluster numbers the nodes",
        },
    )  # fmt: skip
    master_addr: str | None = _where(
        "HOST", "Host of node 0, as the other nodes reach it. Several nodes need it.",
        default=None, default_text="127.0.0.1", refused_by=_CLUSTER,
    )  # fmt: skip
    master_port: int | None = _where(
        "PORT", "A free port on that host.", default=None, require=require_port,
        default_text="29500", refused_by=_CLUSTER,
    )  # fmt: skip
    launcher: str = _where(
        "HOW", "What starts the ranks. agent: torchrun's agent, called as a library; torchrun: the "
        "torchrun command.", default="agent", require=require_launcher,
        refused_by=_STARTS_RANKS | {"job": "leave it out: the cluster starts the ranks"},
    )  # fmt: skip
    timeout: float = _where(
        "S", "Seconds that ranks may take to join, or one operation to end. An operation also has "
        "3 times the time that it took when its result was checked.",
        plan="timeout_s", passed_on=ALWAYS,
    )  # fmt: skip
    cpu_mode: str | None = _where(
        "MODE", "How CPU ranks are scheduled. quiet: SCHED_BATCH and one core per rank; plain: "
        "unchanged; realtime: SCHED_FIFO and one core per rank, which needs CAP_SYS_NICE; batch: "
        "SCHED_BATCH; pinned: one core per rank.", default=None, plan="cpu_mode", is_varied=True,
        default_text="quiet on the CPU, plain on GPUs, with --overlap and in a replay",
        refused_by={"measure": "leave it out: the processes stay as they are"},
    )  # fmt: skip
    matrix: tuple[int, ...] = ()
    """The matrix of the imbalance `file`, row by row."""
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The Python names of the options that were given."""

    def __post_init__(self) -> None:
        for option in _FIELDS.values():
            value = getattr(self, option.name)
            if option.require and value is not None:
                option.require(value)
        if self.nnodes == 1 and self.node_rank:
            raise UsageError(
                f"--node-rank {self.node_rank} needs several nodes",
                "give their number too: --nnodes 2",
            )
        if not 0 <= self.node_rank < self.nnodes:
            raise UsageError(
                f"--node-rank {self.node_rank} is not a number from 0 to {self.nnodes - 1}",
                f"--nnodes {self.nnodes} makes nodes 0 to {self.nnodes - 1}",
            )
        if self.nnodes > 1 and not self.master_addr:
            raise UsageError(
                f"{self.nnodes} nodes need the address of node 0",
                "give it on each node: --master-addr HOST",
            )
        # The plan checks its own fields; what depends on the host is checked later.
        ranks = max(self.root + 1, 2) if self.layout.is_empty else self.layout.possible_ranks()
        if not self.workload_values:
            self.plan("gloo", "cpu", world_size=ranks)

    def plan(self, backend: str, device: str, world_size: int) -> Plan:
        """The plan of these options on a given target; UsageError names an option that is wrong."""
        values = {o.plan: getattr(self, o.name) for o in _FIELDS.values() if o.plan}
        values |= {"backend": backend, "device": device, "world_size": world_size}
        values["matrix"] = self.matrix
        is_cpu = device == "cpu"
        # Threads of the backend must find a core while the rank computes, as in a user's program.
        is_quiet = is_cpu and self.overlap == (NO_OVERLAP,) and not self.workload_values
        values["cpu_mode"] = self.cpu_mode or (CPU_MODES[0] if is_quiet else "plain")
        values["buffers"] = self.buffers or (HOT if is_cpu else ROTATING)
        try:
            if self.workload_values:
                return make_replay_plan(self.fitted_workload(world_size), values)
            return Plan(**{name: value for name, value in values.items() if value is not None})
        except UsageError as error:
            raise error.with_option_names(OPTIONS) from None

    @property
    def ranks_per_node(self) -> int | None:
        """The ranks on each node: as many as requested, or as the mesh or the groups need; None
        where they fit several numbers. UsageError where the nodes do not divide them."""
        needed = self.nproc_per_node or self.needed_ranks
        if self.nproc_per_node or not needed:
            return needed
        if needed % self.nnodes:
            raise UsageError(
                f"{self.nnodes} nodes do not divide {needed} ranks",
                "give --nproc-per-node, or other groups",
            )
        return needed // self.nnodes

    @property
    def name(self) -> str:
        """The label, or one made of the name of the folder, or of the operations or their set."""
        if self.label or self.output:
            return self.label or as_label(Path(self.output or "").resolve().name)
        if self.workload_values:
            return as_label(self.workload_values["name"])
        sets = {own: name for name, own in OPERATION_SETS.items() if name != "all"}
        return sets.get(self.op) or ("-".join(self.op) if len(self.op) <= 3 else "collectives")

    def arguments(self, *, for_user: bool = False) -> list[str]:
        """The options after `commbench run` that give the same plan to ranks that join; for a user
        to run, also those about output."""
        changed = (IF_CHANGED, IN_COMMAND) if for_user else (IF_CHANGED,)
        return [
            write_argument(option, getattr(self, option.name))
            for option in self._effective()
            if option.passed_on == ALWAYS
            or (option.passed_on in changed and getattr(self, option.name) != option.default)
        ]

    def command(self) -> list[str]:
        """The `commbench run` command of these options, without those that have their default."""
        return ["commbench", "run"] + [
            write_argument(option, value)
            for option in self._effective()
            if (value := getattr(self, option.name)) != option.default
            or option.name in ("op", "sizes")
        ]

    def _effective(self) -> list[RunOption]:
        """The options that have an effect: a workload chooses the calls instead of some."""
        has_workload = bool(self.workload_values)
        return [o for o in _FIELDS.values() if not (has_workload and o.chooses_calls)]


def _declared_options() -> dict[str, RunOption]:
    types = get_type_hints(RunOptions)
    found = {}
    declared_fields = [each for each in fields(RunOptions) if "option" in each.metadata]
    for declared in sorted(declared_fields, key=lambda f: GROUPS.index(f.metadata["option"].group)):
        option = declared.metadata["option"]
        name, is_of_plan = declared.name, bool(option.plan)
        found[name] = option._replace(
            name=name,
            type=types[name],
            default=declared.default,
            flags=option.flags or (f"--{name.replace('_', '-')}",),
            passed_on=option.passed_on or (IF_CHANGED if is_of_plan else NEVER),
            is_fixed=is_of_plan if option.is_fixed is None else option.is_fixed,
        )
    return found


_FIELDS = _declared_options()
RUN_OPTIONS: dict[str, RunOption] = _FIELDS | NCCL_TESTS_FLAGS
"""Every option by its Python name, in the order of the help: the fields of RunOptions, and the
flags of nccl-tests that give their values."""
VARIED_OPTIONS = tuple(option.flag[2:] for option in _FIELDS.values() if option.is_varied)
"""The options, without dashes, that `commbench sweep --vary` takes."""


def parse_options(given: Mapping[str, Any], *users: str) -> RunOptions:
    """The options with these values, by their Python names; None: not given.

    `users`, such as "job", may refuse options. Raises UsageError for an unknown name, a refused
    option and a bad value.
    """
    for name in given:
        if name not in RUN_OPTIONS:
            raise name_error("option", name, list(RUN_OPTIONS))
    if given.get("resume") is not None:
        users += ("resume",)
    values = {}
    for name, option in RUN_OPTIONS.items():
        if (value := given.get(name)) is not None:
            values[name] = parse_value(option, value)
            if values[name] != option.default:
                option.require_allowed(*users)
    names = frozenset(values)
    values = apply_flags(values)
    if "imbalance" in values:
        values["imbalance"], values["matrix"] = read_matrices(values["imbalance"])
    if "workload" in values:
        require_replayable(RUN_OPTIONS[name] for name in names)
        values["workload_values"] = workload_values(read_workload(values["workload"]))
    options = RunOptions(**values, given=names)
    # A resumed run may be of a version that allowed it.
    if options.resume is None and options.workload is None:
        changed = {n for n in names if getattr(options, n, None) != RUN_OPTIONS[n].default}
        require_effect(changed, options.op, options.iters)
    return options
