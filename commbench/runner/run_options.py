"""RUN_OPTIONS: the options of `commbench run`, each declared once, as a field of RunOptions.

The command line, `commbench.run`, sweeps, jobs, the smoke test, `--resume`, the plan, messages and
the command of ranks under torchrun all read the declaration. Nothing here needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

from commbench.answers.show.formats import FORMAT_HELP, FORMATS, PEAK_HELP
from commbench.errors import MOST_NAMES, UsageError, name_error, wrong_value
from commbench.launch.launchers import LAUNCHERS, RAY
from commbench.plan.backends import NCCL_OPTIONS, parse_nccl_options
from commbench.plan.call_forms import is_compressed
from commbench.plan.cases import MOST_RANKS
from commbench.plan.computations import NO_OVERLAP
from commbench.plan.dimensions import HOT, ROTATING
from commbench.plan.operations import OPERATION_SETS, OPERATIONS
from commbench.plan.own_calls import describe_calls
from commbench.plan.pairs import QUICK
from commbench.plan.plan import CPU_MODES, OPTIONS, Plan, make_replay_plan
from commbench.plan.splits import read_matrices
from commbench.plan.workload import workload_values
from commbench.results.files import read_workload
from commbench.results.run_folder import require_no_run
from commbench.runner import call_options
from commbench.runner.call_options import NCCL_TESTS_FLAGS, CallOptions, declare
from commbench.runner.option import HERE, RANKS, USER, Option, as_label, require_label
from commbench.units import MONTH_S, parse_percentage


def parse_precision(given: str | float) -> float:
    """The value of --precision, above 0 and below 1."""
    value = parse_percentage(str(given))
    if not 0 < value < 1:
        raise wrong_value(str(given), "is not between 0% and 100%", "write --precision 5% or 0.05")
    return value


def parse_duration(given: str | float) -> float:
    """Seconds, of a number of them or a text such as `90s`, `30m`, `1h`, `2d`."""
    text = given if isinstance(given, str) else f"{given}s"
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]|min)\s*", text)
    if not found:
        raise wrong_value(str(given), "is not a time with a unit", "write 90s, 30m or 1h")
    return float(found[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}[found[2]]


_how_long = partial(declare, group="How long, and in which order")
_where = partial(declare, group="Where", refused_by=("measure",))
_output = partial(declare, group="Output")
_nodes = partial(_where, reach=HERE, refused_by=("measure", "api", "sweep", "job", "preflight"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(CallOptions):
    """The options of `commbench run`; None where an option was not given."""

    iters: int | None = _how_long(
        "N", "Timed iterations.", flags="--iters -n", plan="iterations",
        default_text="as --precision needs",
    )  # fmt: skip
    warmup: int | None = _how_long(
        "N", "Untimed calls before.", flags="--warmup -w", plan="warmup",
        default_text="until times are stable",
    )  # fmt: skip
    precision: float = _how_long(
        "PART", "Sample until half the 95 % interval of the median is this part of it.",
        plan="precision", parse=parse_precision, default_text="5%", python_type="float | str",
    )  # fmt: skip
    budget: float = _how_long(
        "S", "Measure each case for so many seconds at most, in all launches.", plan="budget_s"
    )
    order: str = _how_long(
        "ORDER", "shuffled: random, several times; ascending: one by one.", plan="order"
    )
    seed: int = _how_long("N", "Random seed.", plan="seed")
    launches: int | None = _how_long(
        "K", "Launches, each with new connections, on CPUs with new processes.",
        default=None, plan="launches", default_text="3; 1 with --iters and --duration",
        may_grow=True,
        limits=(1, 1000),
        refused_by=("measure", "sweep", "job"),
    )  # fmt: skip
    duration: float | None = _how_long(
        "T", "Soak: measure and check again and again, such as 1h.",
        flags="--duration --for", plan="soak_s", parse=parse_duration,
        python_type="float | str | None", default_text="no soak", refused_by=("measure", "sweep"),
    )  # fmt: skip
    cycles: int | None = _how_long(
        "N", "Soak for N cycles; one measures each case once.", plan="cycles",
        default_text="no soak", refused_by=("measure", "sweep"),
    )  # fmt: skip
    check_share: float | None = _how_long(
        "PART", "Checks in between take at most this part of the time.", plan="check_share",
        parse=lambda given: parse_percentage(str(given)),
        python_type="float | str | None", default_text="5%; 20% in a soak",
    )  # fmt: skip

    backend: str | None = _where(
        "NAME", "gloo, nccl, or another backend of this torch.", default=None, plan="backend",
        is_varied=True, default_text="nccl with several GPUs, else gloo",
    )  # fmt: skip
    nccl_option: tuple[str, ...] = _where(
        "NAME=V", f"Options of its communicator, with commas: {', '.join(NCCL_OPTIONS)}.",
        plan="nccl_options", parse=parse_nccl_options, is_varied=True, default_text="NCCL's own",
    )  # fmt: skip
    device: str | None = _where(
        "TYPE", "cpu or cuda.", default=None, plan="device", default_text="that of the backend"
    )
    nproc_per_node: int | None = _where(
        "N", "Ranks on each node.", default=None, is_fixed=True, is_varied=True, reach=HERE,
        limits=(1, MOST_RANKS), default_text="of the mesh, groups or workload; else 1 per GPU, "
        "2 on the CPU", refused_by=("measure", "job", "preflight"),
    )  # fmt: skip
    nnodes: int = _nodes(
        "N", "Nodes; start the same command on each.", default=1, limits=(1, MOST_RANKS)
    )
    node_rank: int = _nodes("R", "This node; node 0 writes the results.", default=0)
    master_addr: str | None = _nodes(
        "HOST", "Host of node 0, as others reach it.", default=None, default_text="127.0.0.1"
    )
    master_port: int | None = _nodes(
        "PORT", "A free port on that host.", default=None, limits=(1, 65535), default_text="29500"
    )
    launcher: str = _where(
        "HOW", "What starts the ranks. "
        + "; ".join(f"{name}: {about}" for name, about in LAUNCHERS.items()) + ".",
        default="agent", choices=tuple(LAUNCHERS), reach=HERE,
        default_text="agent; none in a task of torchrun, srun or mpirun, which is a rank",
        refused_by=("measure", "job", "preflight"),
    )  # fmt: skip
    timeout: float = _where(
        "S", "Seconds for ranks to join, or an operation to end.", plan="timeout_s",
        limits=(1, MONTH_S), refused_by=(),
    )  # fmt: skip
    cpu_mode: str | None = _where(
        "MODE", "Scheduling of CPU ranks. quiet: SCHED_BATCH, a core per rank; plain: unchanged; "
        "realtime: SCHED_FIFO, a core per rank, needs CAP_SYS_NICE; batch: SCHED_BATCH; pinned: a "
        "core per rank.", default=None, plan="cpu_mode", is_varied=True,
        default_text="quiet; plain on GPUs, with --overlap and in a replay",
    )  # fmt: skip

    label: str | None = _output(
        "NAME", "Name of the run, for other commands, too.", default=None,
        require=require_label, is_fixed=True,
        default_text="of --output or the operations",
    )  # fmt: skip
    output: Path | None = _output(  # noqa: RUF009 - it gives a field
        "DIR", "Folder of the run, new or empty. The folder above it must exist, but A of A/B is "
        "made.", default=None, parse=Path,
        python_type="str | Path | None", reach=USER, default_text="results/TIME-LABEL",
        refused_by=("resume", "preflight"),
    )  # fmt: skip
    resume: str | None = _output(
        "RUN", "Continue or extend this run: a folder or label.",
        default=None, parse=str, reach=HERE, default_text="start a new run",
        refused_by=("sweep", "measure", "preflight"),
    )  # fmt: skip
    format: str = _output(
        "HOW", FORMAT_HELP, default="text", choices=FORMATS, reach=USER,
        refused_by=("api", "preflight"),
    )  # fmt: skip
    peak: str | None = _output(
        "SPEED", PEAK_HELP, default=None, plan="peak", is_fixed=False, default_text="none"
    )
    plots: bool = _output("", "Draw plots.", default=True, reach=USER, refused_by=("measure",))
    nccl_log: bool = _output("", "Log how NCCL starts.", default=True, refused_by=("measure",))
    history: bool = _output(
        "", "Add the run to the history.", default=False, reach=USER,
        refused_by=("measure", "sweep"),
    )  # fmt: skip
    db: Path | None = _output(  # noqa: RUF009 - it gives a field
        "FILE", "History file.", default=None, parse=Path, reach=USER,
        python_type="str | Path | None", default_text="results/history.sqlite",
        refused_by=("measure", "sweep"),
    )  # fmt: skip
    dry_run: bool = _output(
        "", "Print the plan and its memory; measure nothing.", default=False,
        reach=HERE, refused_by=("resume", "job", "api", "preflight"),
    )  # fmt: skip
    verbose: bool = _output(
        "", "All tables and warnings, and how ranks are started.",
        default=False, flags="--verbose -v", reach=USER, refused_by=("sweep", "api"),
    )  # fmt: skip
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The Python names of the options that were given."""

    def __post_init__(self) -> None:
        for option in _FIELDS.values():
            if (value := getattr(self, option.name)) is not None:
                option.require_valid(value)
        if not 0 <= self.node_rank < self.nnodes:
            why = f"--node-rank {self.node_rank} is not a number from 0 to {self.nnodes - 1}"
            raise UsageError(why, f"--nnodes {self.nnodes} makes nodes 0 to {self.nnodes - 1}")
        if self.launcher == RAY:
            if self.node_rank or self.master_addr:
                raise UsageError(
                    f"--node-rank and --master-addr have no effect with --launcher {self.launcher}",
                    "leave them out: one command starts the ranks of all nodes",
                )
        elif self.nnodes > 1 and not self.master_addr:
            hint = "give it on each node: --master-addr HOST"
            raise UsageError(f"{self.nnodes} nodes need the address of node 0", hint)
        # The plan checks its own fields; what depends on the host is checked later.
        ranks = max(self.root + 1, 2) if self.layout.is_empty else self.layout.possible_ranks()
        if not self.workload_values:
            self.plan("gloo", "cpu", world_size=ranks)

    def plan(self, backend: str, device: str, world_size: int) -> Plan:
        """The plan of these options on a given target; UsageError names an option that is wrong."""
        values = {o.plan: getattr(self, o.name) for o in _FIELDS.values() if o.plan}
        values |= {"backend": backend, "device": device, "world_size": world_size}
        values |= {"matrix": self.matrix, "own_calls": self.own_calls}
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
            hint = "give --nproc-per-node, or other groups"
            raise UsageError(f"{self.nnodes} nodes do not divide {needed} ranks", hint)
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

    def arguments(self, *reaches: str) -> list[str]:
        """The options after `commbench run` that give the same plan to ranks that join, without
        those that have their default; with USER and HERE also others."""
        return [
            option.argument(value)
            for option in _FIELDS.values()
            if (value := getattr(self, option.name)) != option.default
            or option.name in ("op", "sizes")
            if option.reach in (RANKS, *reaches)
            and not (self.workload_values and option.chooses_calls)
        ]

    def command(self) -> list[str]:
        """The `commbench run` command of these options."""
        return ["commbench", "run", *self.arguments(USER, HERE)]


NOT_OF_SOAKS = ("iters", "precision", "budget", "order", "launches")
_TYPES = get_type_hints(RunOptions)
_FIELDS: dict[str, Option] = {
    each.name: each.metadata["option"]._replace(
        name=each.name, type=_TYPES[each.name], default=each.default
    )
    for each in fields(RunOptions)
    if "option" in each.metadata
}
RUN_OPTIONS: dict[str, Option] = _FIELDS | {flag.name: flag for flag in NCCL_TESTS_FLAGS}
"""Every option by its Python name, in the order of the help: the fields of RunOptions, and the
flags of nccl-tests that give their values."""
VARIED_OPTIONS = {option.flag[2:]: option for option in _FIELDS.values() if option.is_varied}
"""The options that `commbench sweep --vary` takes, by their flags without dashes."""


def parse_options(
    given: Mapping[str, Any], *users: str, varied: Mapping[str, Any] = MappingProxyType({})
) -> RunOptions:
    """The options with these values, by their Python names; None: not given.

    `users`, such as "job", may refuse options. Raises UsageError for an unknown name, a refused
    option, a bad value, and an option that is `varied`, with other values, and also given.
    """
    for name in varied:
        if given.get(name) is not None:
            flag = RUN_OPTIONS[name].flag
            hint = "leave one of them out: each setting has a value of its own"
            raise UsageError(f"{flag} is given, and --vary {flag[2:]}, too", hint)
    given = {**given, **varied}
    for name in given:
        if name not in RUN_OPTIONS:
            known = [n for n, o in RUN_OPTIONS.items() if not {*users}.intersection(o.refused_by)]
            alike = {"operation": "op", "ranks": "nproc_per_node"}
            raise name_error("argument", name, known, alike, "help(commbench.run)")
    if given.get("resume") is not None:
        users += ("resume",)
    values: dict[str, Any] = {}
    changed = {}
    for name, option in RUN_OPTIONS.items():
        if (value := given.get(name)) is not None:
            values[name] = option.parsed(value)
            if values[name] != option.default or name in ("precision", "budget"):
                changed[name] = option
                option.require_allowed(*users)
    names = frozenset(values)
    call_options.apply_nccl_tests_flags(values)
    if "imbalance" in values:
        values["imbalance"], values["matrix"] = read_matrices(values["imbalance"])
    if "calls" in values:
        values["own_calls"] = described = describe_calls(values["calls"])
        if "op" not in values and described:
            values["op"] = tuple(dict.fromkeys(call["operation"] for call in described.values()))
    if "workload" in values:
        for name in names:
            if (option := RUN_OPTIONS[name]).chooses_calls or option.sets:
                hint = "leave it out: the workload has the calls that are made"
                raise UsageError(f"{option.flag} has no effect with --workload", hint)
        require_no_run(values["workload"])
        values["workload_values"] = workload_values(read_workload(values["workload"]))
    options = RunOptions(**values, given=names)
    # A resumed run may be of a version that allowed it.
    if options.resume is None and options.workload is None:
        _require_effect(changed, options)
    return options


def _require_effect(changed: Mapping[str, Option], values: RunOptions) -> None:
    """Raise UsageError for an option without effect beside the others. `changed` are those that
    were given another value than the default, by name; `values` are all options."""
    for name, option in changed.items():
        where, hint = "", "leave out one of them"
        if option.needs and not any(option.needs(OPERATIONS[op]) for op in values.op):
            able = [o.name for o in OPERATIONS.values() if option.needs(o)]
            more = " and others" * (len(able) > MOST_NAMES)
            where = f"with --op {','.join(values.op)}"
            hint = f"it is for {', '.join(able[:MOST_NAMES])}{more}"
        elif name in ("precision", "budget") and values.iters is not None:
            where = "with --iters"
        elif name in NOT_OF_SOAKS and {"duration", "cycles"} & changed.keys():
            where, hint = "in a soak", "leave it out: a soak goes on until its time is over"
        elif name == "pairs" and QUICK in values.pairs and {"duration", "cycles"} & changed.keys():
            where, hint = "in a soak", "leave out --quick, or the soak"
        elif name == "overlap_ratio" and "overlap" not in changed:
            where, hint = "without --overlap", "write --overlap matmul"
        elif name == "db" and not values.history:
            where, hint = "without --history", "add --history"
        elif name == "data" and not (values.numerics or any(map(is_compressed, values.form))):
            where, hint = "without --numerics and compressed forms", "add --numerics"
        if where:
            raise UsageError(f"{option.flag} has no effect {where}", hint)
