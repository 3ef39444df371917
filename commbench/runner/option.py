"""What an option of `commbench run` is, and how given values are parsed and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, get_args, get_origin

from commbench.errors import UsageError, name_error, value_error
from commbench.spec.allocators import MEMORY_CHOICES
from commbench.spec.call_forms import parse_tensors
from commbench.spec.computations import parse_overlap
from commbench.spec.dtypes import DTYPES, find_dtype
from commbench.spec.operations import OPERATION_SETS, OPERATIONS, find_operation
from commbench.spec.pairs import parse_pairs
from commbench.spec.plan import Plan
from commbench.spec.reduce_ops import REDUCE_OPS, find_reduce_op
from commbench.spec.splits import parse_imbalance
from commbench.spec.workload_fit import FIT_CHOICES
from commbench.spec.workload_variants import parse_variant
from commbench.units import format_sizes, parse_percentage, parse_sizes
from commbench.validation import brief

LAUNCHERS = ("agent", "torchrun")
ALWAYS, IF_CHANGED, IN_COMMAND, NEVER = "always", "if changed", "in a user's command", "never"
"""When an option is one of RunOptions.arguments(). IN_COMMAND: only in a command for the user to
run, and there if changed; it concerns the process that reports, not the measurement."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REFUSALS = {
    "resume": "{} cannot be used with --resume",
    "sweep": "{} cannot be used in a sweep",
    "job": "{} cannot be used after the -- of a job",
    "api": "{} is for the command line only",
    "measure": "{} cannot be used with commbench.measure",
}
"""The users of options that may refuse one, each with its message."""


def _find_memory(name: str) -> str:
    if name.lower() not in MEMORY_CHOICES:
        raise name_error("memory", name, list(MEMORY_CHOICES))
    return name.lower()


_FINDERS: dict[str, tuple[Callable[[str], str], tuple[str, ...], Mapping[str, Sequence[str]]]] = {
    "--op": (lambda name: find_operation(name).name, tuple(OPERATIONS), OPERATION_SETS),
    "--dtype": (lambda name: find_dtype(name).name, tuple(DTYPES), {"all": tuple(DTYPES)}),
    "--reduce-op": (
        lambda name: find_reduce_op(name).name, tuple(REDUCE_OPS), {"all": tuple(REDUCE_OPS)}
    ),
    "--memory": (_find_memory, MEMORY_CHOICES, {"all": MEMORY_CHOICES}),
}  # fmt: skip
"""By the option: what finds a name, all names, and what stands for several of them."""


class RunOption(NamedTuple):
    """One option of `commbench run`."""

    metavar: str
    help: str
    group: str = ""
    """The heading under which the help lists it."""
    default_text: str = ""
    """What the help says of its default, where the default is no value of the option."""
    flags: tuple[str, ...] = ()
    """Its flags, the one of messages first; by default made of its name."""
    plan: str = ""
    """The field of Plan that it sets; empty for none."""
    parse: Callable[[Any], Any] | None = None
    """Makes the value from what was given on the command line or in Python."""
    require: Callable[[Any], object] | None = None
    """Raises UsageError for a bad value; the plan checks values of its own fields."""
    cli_type: Any = None
    """Its type on the command line, where that is not the value's."""
    cli_default: Any = None
    """The default that the help shows, for an option with a `cli_type`."""
    passed_on: str = ""
    """When ranks that join are given it; by default IF_CHANGED if it is part of the plan."""
    is_fixed: bool | None = None
    """Whether --resume lets it be repeated but not changed; default: if it is in the plan."""
    is_varied: bool = False
    """Whether `commbench sweep --vary` takes it."""
    refused_by: Mapping[str, str] = {}
    """The users that refuse a value other than the default, each with what to do instead."""
    chooses_calls: bool = False
    """Whether it says what is called, so that a workload does instead."""
    sets: str = ""
    """Another option whose value it gives, in the notation of nccl-tests."""
    name: str = ""
    """Its name in Python."""
    type: Any = None
    default: Any = None

    @property
    def flag(self) -> str:
        """Its flag in messages: `--check` of `--check/--no-check`."""
        return self.flags[0].split("/")[0]

    @property
    def is_switch(self) -> bool:
        """Whether its flag takes no value and means the opposite of its default."""
        return self.type is bool and "/" not in self.flags[0]

    @property
    def help_text(self) -> str:
        """What the help says of it, with its default."""
        default = self.cli_default if self.cli_default is not None else self.default
        if self.is_switch:
            text = "off"
        elif isinstance(default, bool):
            text = self.flag if default else f"--no-{self.flag[2:]}"
        else:
            text = self.default_text if default in (None, "", ()) else value_text(default)
        return f"{self.help}  [default: {text}]"

    def require_allowed(self, *users: str) -> None:
        """Raise UsageError if one of these users (keys of _REFUSALS) refuses this option."""
        for user in users:
            if user in self.refused_by:
                raise UsageError(_REFUSALS[user].format(self.flag), self.refused_by[user])


def declare_option(
    group: str, metavar: str, help_text: str, *, default: Any = ..., **declared: Any
) -> Any:
    """Declare a field of RunOptions; without a default it has that of its field of Plan."""
    if default is ...:
        default = Plan.__dataclass_fields__[declared["plan"]].default
    option = RunOption(metavar=metavar, help=help_text, group=group, **declared)
    return field(default=default, metadata={"option": option})


def write_argument(option: RunOption, value: Any) -> str:
    """An option with its value as one word of a command line."""
    if option.is_switch:  # it is given only where its value is not the default
        return option.flag
    if isinstance(value, bool):
        return option.flag if value else f"--no-{option.flag[2:]}"
    return f"{option.flag}={value_text(value)}"


def value_text(value: Any) -> str:
    """A value as it is written on a command line; it parses back to the same value."""
    if isinstance(value, tuple):
        numbers = bool(value) and isinstance(value[0], int)
        return format_sizes(value) if numbers else ",".join(map(str, value))
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def parse_names(given: str | Sequence[str], flag: str) -> tuple[str, ...]:
    """Known names from texts that may repeat, hold commas, or be `all`; in order, once each."""
    find, known, sets = _FINDERS[flag]
    found: dict[str, None] = {}
    for text in (given if isinstance(given, str) else ",".join(given)).split(","):
        if not text.strip():
            raise UsageError(f"{flag} has an empty item", f"known: {', '.join((*known, *sets))}")
        found.update(dict.fromkeys(sets.get(text.strip()) or [find(text.strip())]))
    return tuple(found)


def parse_texts(given: str | Sequence[str]) -> tuple[str, ...]:
    """The items of texts that may hold commas, in lower case; in order, once each."""
    return tuple(dict.fromkeys(item.lower() for item in parse_step_names(given)))


def parse_step_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names from texts that may hold commas; in order, once each."""
    text = given if isinstance(given, str) else ",".join(given)
    return tuple(dict.fromkeys(item.strip() for item in text.split(",")))


def parse_variant_list(given: str | Sequence[str]) -> tuple[str, ...]:
    """Variants of a step, from texts that may hold commas; in order, once each."""
    return tuple(dict.fromkeys(map(parse_variant, parse_texts(given))))


def parse_imbalance_list(given: str | Sequence[str]) -> tuple[str, ...]:
    """Kinds of imbalance, from texts that may hold commas; in order, once each."""
    return tuple(dict.fromkeys(map(parse_imbalance, parse_texts(given))))


def parse_tensor_list(given: str | int | Sequence[str | int]) -> tuple[str, ...]:
    """Numbers of tensors, and splits, from a text, a number, or several of them."""
    items = [given] if isinstance(given, (str, int)) else given
    return tuple(dict.fromkeys(map(parse_tensors, parse_texts([*map(str, items)]))))


def parse_overlap_list(given: str | Sequence[str]) -> tuple[str, ...]:
    """Computations from texts that may hold commas; in order, once each."""
    return tuple(dict.fromkeys(map(parse_overlap, parse_texts(given))))


def parse_pair_list(given: str | Sequence[str]) -> tuple[str, ...]:
    """Which ranks are pairs, from texts that may hold commas; in order, once each."""
    texts = (given if isinstance(given, str) else ",".join(given)).split(",")
    return tuple(dict.fromkeys(map(parse_pairs, texts)))


def parse_size_list(given: str | int | Sequence[int]) -> tuple[int, ...]:
    """Sizes in bytes from an expression, from a number, or from numbers."""
    if isinstance(given, (str, int)):
        return parse_sizes(str(given))
    return parse_sizes(",".join(map(str, given)))


def parse_one_size(given: str | int) -> int:
    """A size in bytes; UsageError for several."""
    sizes = parse_sizes(str(given))
    if len(sizes) > 1:
        raise UsageError(f"{given!r:.60} is more than one size", "write one size, such as 8")
    return sizes[0]


def parse_precision(given: str | float) -> float:
    """The value of --precision, above 0 and below 1."""
    text = str(given)
    value = parse_percentage(text, "--precision")
    if not 0 < value < 1:
        limits = "0% and 100%" if "%" in text else "0 and 1"
        raise UsageError(
            f"--precision {text.strip()} is not between {limits}", "write --precision 5% or 0.05"
        )
    return value


def require_label(label: str) -> None:
    """Raise UsageError for a label that cannot be part of a folder's name."""
    if not _LABEL.fullmatch(label):
        raise UsageError(
            f"label {label!r} cannot be part of a folder's name",
            "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first",
        )


def as_label(text: str) -> str:
    """A text with what a label may not contain replaced by dashes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "run"


def require_launcher(name: str) -> None:
    """Raise UsageError for an unknown launcher."""
    if name not in LAUNCHERS:
        raise UsageError(f"unknown launcher {name!r}", f"known: {', '.join(LAUNCHERS)}")


def require_fit(name: str) -> None:
    """Raise UsageError for an unknown way to fit a workload to other ranks."""
    if name not in FIT_CHOICES:
        raise value_error("--fit", f"{name!r:.60} is unknown", f"known: {', '.join(FIT_CHOICES)}")


def require_peak(text: str) -> None:
    """Raise UsageError for a text that describes no peak."""
    from commbench.spec.links import parse_peak

    parse_peak(text)


def require_positive(flag: str, number: int) -> None:
    """Raise UsageError for a number below 1."""
    if number < 1:
        raise UsageError(f"{flag} is {number}", "it must be at least 1")


def require_port(number: int) -> None:
    """Raise UsageError for a number that is no port."""
    if not 0 < number < 65536:
        raise UsageError(f"--master-port {number} is not a port", "ports go from 1 to 65535")


def require_effect(changed: Collection[str], op: Collection[str], iters: int | None) -> None:
    """Raise UsageError for an option without effect beside the others. `changed` are the Python
    names of the options that were given another value than the default."""
    operations, with_op = [OPERATIONS[name] for name in op], f"with --op {','.join(op)}"
    rooted = ", ".join(operation.name for operation in OPERATIONS.values() if operation.rooted)
    reducing = ", ".join(operation.name for operation in OPERATIONS.values() if operation.reduces)
    paired = ", ".join(operation.name for operation in OPERATIONS.values() if operation.is_paired)
    made = ", ".join(operation.name for operation in OPERATIONS.values() if operation.p2p_calls)
    windows = ", ".join(operation.name for operation in OPERATIONS.values() if operation.has_window)
    unequal = ", ".join(o.name for o in OPERATIONS.values() if o.block_counts)
    latency = ", ".join(o.name for o in OPERATIONS.values() if o.is_latency)
    rules = {
        "imbalance": (
            not any(o.block_counts for o in operations),
            with_op,
            f"it is for {unequal}",
        ),
        "p2p_call": (
            not any(o.p2p_calls for o in operations),
            with_op,
            f"it is for {made}",
        ),
        "pairs": (not any(o.is_paired for o in operations), with_op, f"it is for {paired}"),
        "window": (not any(o.has_window for o in operations), with_op, f"it is for {windows}"),
        "latency_size": (
            not any(o.is_latency for o in operations),
            with_op,
            f"it is for {latency}",
        ),
        "overlap_ratio": ("overlap" not in changed, "without --overlap", "write --overlap matmul"),
        "precision": (iters is not None, "with --iters", "leave out one of them"),
        "budget": (iters is not None, "with --iters", "leave out one of them"),
        "root": (not any(o.rooted for o in operations), with_op, f"it is for {rooted}"),
        "reduce_op": (not any(o.reduces for o in operations), with_op, f"it is for {reducing}"),
    }
    for name, (is_idle, where, hint) in rules.items():
        if is_idle and name in changed:
            raise UsageError(f"--{name.replace('_', '-')} has no effect {where}", hint)


def require_replayable(given: Iterable[RunOption]) -> None:
    """Raise UsageError for an option that chooses calls, where a workload has them."""
    for option in given:
        if option.chooses_calls or option.sets:
            raise UsageError(
                f"{option.flag} has no effect with --workload",
                "leave it out: the workload has the calls that are made",
            )


def parse_value(option: RunOption, given: Any) -> Any:
    """The value of an option; UsageError where it is not of the option's type."""
    try:
        value = option.parse(given) if option.parse else given
    except (TypeError, ValueError):
        value = given
    if not _is_of_type(value, option.type):
        wanted = getattr(option.type, "__name__", str(option.type))
        raise UsageError(f"{option.flag} cannot be {brief(given)}", f"give it as {wanted}")
    return value


def _is_of_type(value: Any, wanted: Any) -> bool:
    if get_origin(wanted) is tuple:
        return isinstance(value, tuple)
    kinds = tuple(kind for kind in get_args(wanted) or (wanted,) if kind is not type(None))
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, (int, *kinds) if float in kinds else kinds)
