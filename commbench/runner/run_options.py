"""What a person asks of `commbench run`, read and checked as far as that needs no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from commbench.errors import UsageError
from commbench.report.formats import require_format
from commbench.spec.dtypes import DTYPES, find_dtype
from commbench.spec.operations import OPERATIONS, find_operation
from commbench.spec.plan import CPU_MODES, OPTIONS, Plan
from commbench.spec.reduce_ops import REDUCE_OPS, find_reduce_op
from commbench.units import format_sizes, parse_size, parse_sizes, size_range

DEFAULT_SIZES = "1K-64M"
LAUNCHERS = ("agent", "torchrun")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_FINDERS: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    "op": (lambda name: find_operation(name).name, tuple(OPERATIONS)),
    "dtype": (lambda name: find_dtype(name).name, tuple(DTYPES)),
    "reduce-op": (lambda name: find_reduce_op(name).name, tuple(REDUCE_OPS)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `commbench run`; None where nothing was said."""

    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    reduce_ops: tuple[str, ...]
    root: int
    placement: str
    rounding: str
    iterations: int | None
    warmup: int | None
    precision: float
    budget_s: float
    timing: str
    order: str
    seed: int
    launches: int
    check: bool
    timeout_s: float
    cpu_mode: str | None
    backend: str | None
    device: str | None
    ranks_per_node: int | None
    num_nodes: int
    node_rank: int
    master_addr: str | None
    master_port: int | None
    launcher: str
    label: str | None
    output: Path | None
    plots: bool
    verbose: bool
    format: str
    """How the table is shown."""
    peak: str | None

    def __post_init__(self) -> None:
        require_format(self.format, self.peak)
        if self.launcher not in LAUNCHERS:
            raise UsageError(
                f"unknown launcher {self.launcher!r}", f"known: {', '.join(LAUNCHERS)}"
            )
        if self.label is not None:
            refuse_bad_label(self.label)
        if self.ranks_per_node is not None and self.ranks_per_node < 1:
            raise UsageError(f"--nproc-per-node is {self.ranks_per_node}", "it must be at least 1")
        if self.num_nodes < 1:
            raise UsageError(f"--nnodes is {self.num_nodes}", "it must be at least 1")
        if not 0 <= self.node_rank < self.num_nodes:
            raise UsageError(
                f"--node-rank {self.node_rank} is not one of {self.num_nodes} nodes",
                f"nodes are numbered from 0 to {self.num_nodes - 1}",
            )
        if self.num_nodes > 1 and not self.master_addr:
            raise UsageError(
                f"{self.num_nodes} nodes need to know where to meet",
                "name node 0's host on each of them: --master-addr HOST",
            )
        if self.master_port is not None and not 0 < self.master_port < 65536:
            raise UsageError(
                f"--master-port {self.master_port} is not a port", "ports go from 1 to 65535"
            )
        # Everything else is the plan's to refuse; what it needs to know of the host comes later.
        self.plan("gloo", "cpu", world_size=max(self.root + 1, 2))

    def plan(self, backend: str, device: str, world_size: int) -> Plan:
        """The plan of this request on a given place; refuses what makes no sense, by its option."""
        try:
            return self._plan(backend, device, world_size)
        except UsageError as error:
            raise error.with_option_names(OPTIONS) from None

    def _plan(self, backend: str, device: str, world_size: int) -> Plan:
        return Plan(
            operations=self.operations,
            dtypes=self.dtypes,
            reduce_ops=self.reduce_ops,
            sizes=self.sizes,
            root=self.root,
            placement=self.placement,
            rounding=self.rounding,
            backend=backend,
            device=device,
            world_size=world_size,
            cpu_mode=self.cpu_mode or (CPU_MODES[0] if device == "cpu" else "plain"),
            iterations=self.iterations,
            warmup=self.warmup,
            precision=self.precision,
            budget_s=self.budget_s,
            timing=self.timing,
            order=self.order,
            seed=self.seed,
            launches=self.launches,
            peak=self.peak or "",
            check=self.check,
            timeout_s=self.timeout_s,
        )

    @property
    def name(self) -> str:
        """The label, or one made of the operations."""
        if self.label:
            return self.label
        return "-".join(self.operations) if len(self.operations) <= 3 else "collectives"

    def arguments(self) -> list[str]:
        """The options after `commbench run` that make the same request of ranks that join."""
        arguments = [f"--op={','.join(self.operations)}"]
        arguments += [f"--sizes={format_sizes(self.sizes)}"]
        arguments += [
            f"--dtype={','.join(self.dtypes)}",
            f"--reduce-op={','.join(self.reduce_ops)}",
        ]
        optional = {
            "iters": self.iterations, "warmup": self.warmup, "cpu-mode": self.cpu_mode,
            "backend": self.backend, "device": self.device, "label": self.label,
        } | self._unusual()  # fmt: skip
        arguments += [f"--{name}={v}" for name, v in optional.items() if v is not None]
        arguments += [f"--root={self.root}", f"--placement={self.placement}"]
        arguments += [
            f"--timeout={exact(self.timeout_s)}",
            "--check" if self.check else "--no-check",
        ]
        return arguments

    def _unusual(self) -> dict[str, object]:
        """Options of sampling that differ from what is done when nothing is said."""
        usual = {field.name: field.default for field in fields(Plan)}
        asked = {
            "precision": self.precision, "budget_s": self.budget_s, "timing": self.timing,
            "order": self.order, "seed": self.seed, "rounding": self.rounding,
            "peak": self.peak or "",
        }  # fmt: skip
        return {
            name.removesuffix("_s"): exact(value) if isinstance(value, float) else value
            for name, value in asked.items()
            if value != usual[name]
        }


def refuse_bad_label(label: str) -> None:
    """Raise UsageError for a label that cannot be part of a folder's name."""
    if not _LABEL.fullmatch(label):
        raise UsageError(
            f"label {label!r} cannot be part of a folder's name",
            "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first",
        )


def exact(number: float) -> str:
    """The shortest text that reads back as the same number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def names(texts: list[str], option: str) -> tuple[str, ...]:
    """Known names from options that may repeat, hold commas, or say `all`; in order, once each."""
    find, known = _FINDERS[option]
    found: dict[str, None] = {}
    for text in ",".join(texts).split(","):
        if not text.strip():
            raise UsageError(f"--{option} has an empty item", f"known: {', '.join(known)}, all")
        found.update(dict.fromkeys(known if text.strip() == "all" else [find(text.strip())]))
    return tuple(found)


def sizes(
    expression: str | None,
    low: str | None,
    high: str | None,
    factor: str | None,
    step: str | None,
) -> tuple[int, ...]:
    """The sizes of --sizes, or of nccl-tests' -b -e -f -i with nccl-tests' defaults."""
    said = {"b": low, "e": high, "f": factor, "i": step}
    flags = [flag for flag, text in said.items() if text is not None]
    if not flags:
        return parse_sizes(expression if expression is not None else DEFAULT_SIZES)
    if expression is not None:
        raise UsageError(
            f"--sizes and -{flags[0]} both say what to measure",
            "write --sizes 8-128M, or -b 8 -e 128M -f 2 as in nccl-tests",
        )
    # nccl-tests: from 32M to 32M by 1M; a factor above 1 wins over the step.
    first, last = parse_size(low or "32M"), parse_size(high or "32M")
    if factor is not None and not re.fullmatch(r"\d+(\.\d+)?", factor):
        raise UsageError(f"-f {factor!r} is not a number", "write -f 2 to double")
    if factor is not None and float(factor) > 1:
        return size_range(first, last, factor=float(factor))
    return size_range(first, last, add=parse_size(step or "1M"))


def request_of(said: Mapping[str, Any]) -> RunOptions:
    """What the values of all these options ask for. Raises UsageError where it makes no sense."""
    from commbench.runner import run_options as ask
    from commbench.spec.operations import DEFAULT_OPERATION
    from commbench.units import parse_percentage

    nccl_sizes = (said[name] for name in ("minbytes", "maxbytes", "stepfactor", "stepbytes"))
    count = said["check_count"]
    return ask.RunOptions(
        operations=ask.names(said["op"] or [DEFAULT_OPERATION], "op"),
        sizes=ask.sizes(said["sizes"], *nccl_sizes),
        dtypes=ask.names(said["dtype"] or ["float32"], "dtype"),
        reduce_ops=ask.names(said["reduce_op"] or ["sum"], "reduce-op"),
        root=said["root"],
        placement=said["placement"],
        rounding=said["rounding"],
        iterations=said["iters"],
        warmup=said["warmup"],
        precision=parse_percentage(said["precision"], "--precision"),
        budget_s=said["budget"],
        timing=said["timing"],
        order=said["order"],
        seed=said["seed"],
        launches=said["launches"],
        check=said["check"] if count is None else count > 0,
        timeout_s=said["timeout"],
        cpu_mode=said["cpu_mode"],
        backend=said["backend"],
        device=said["device"],
        ranks_per_node=said["nproc_per_node"],
        num_nodes=said["nnodes"],
        node_rank=said["node_rank"],
        master_addr=said["master_addr"],
        master_port=said["master_port"],
        launcher=said["launcher"],
        label=said["label"],
        output=said["output"],
        plots=not said["no_plots"],
        verbose=said["verbose"],
        format=said["format_"],
        peak=said["peak"],
    )
