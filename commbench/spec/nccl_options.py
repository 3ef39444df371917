"""The table of options of an NCCL communicator, as torch offers them: fields of
ProcessGroupNCCL.Options and of its `config`, an ncclConfig_t.

Without `blocking`, which torch sets itself (TORCH_NCCL_USE_COMM_NONBLOCKING). Source of the names:
torch/csrc/distributed/c10d/init.cpp; of the values: nccl.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from commbench.errors import UsageError, name_error
from commbench.spec.backends import BACKENDS
from commbench.validation import by_name

NONE = "-"
"""The value of --nccl-option that stands for none: a setting of a sweep that changes nothing."""
_SWITCH = {"0": 0, "1": 1}


class NcclOption(NamedTuple):
    """One option."""

    name: str
    help: str
    values: Mapping[str, int] | None = None
    """The values that it has, by the words for them; None: any whole number from 0."""
    is_text: bool = False
    is_of_group: bool = False
    """Whether it is a field of Options itself, not of its `config`."""


NCCL_OPTIONS = by_name(
    NcclOption(
        "cta_policy", "what NCCL saves: default, efficiency, zero",
        {"default": 0, "efficiency": 1, "zero": 2},
    ),
    NcclOption("min_ctas", "fewest thread blocks of a kernel"),
    NcclOption("max_ctas", "most thread blocks of a kernel"),
    NcclOption("cga_cluster_size", "thread blocks of a cluster"),
    NcclOption("nvls_ctas", "thread blocks of NVLS kernels"),
    NcclOption("collnet_enable", "in-network reduction", _SWITCH),
    NcclOption("traffic_class", "traffic class of the network"),
    NcclOption("net_name", "the network plugin", is_text=True),
    NcclOption("split_share", "share resources with communicators split off", _SWITCH),
    NcclOption(
        "is_high_priority_stream", "streams of high priority", {"0": False, "1": True},
        is_of_group=True,
    ),
)  # fmt: skip


def parse_nccl_options(given: str | Sequence[str]) -> tuple[str, ...]:
    """Texts `NAME=VALUE` from texts that may hold several with commas; each name once. NONE gives
    none. Raises UsageError for unknown names and values."""
    found: dict[str, str] = {}
    for text in (given if isinstance(given, str) else ",".join(given)).split(","):
        if text.strip() == NONE:
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UsageError(
                f"--nccl-option {text.strip()!r} is not NAME=VALUE",
                "write for example --nccl-option cta_policy=zero",
            )
        name = name.lower().replace("-", "_")
        if name not in NCCL_OPTIONS:
            raise name_error("NCCL option", name, list(NCCL_OPTIONS))
        if found.setdefault(name, value) != value:
            raise UsageError(
                f"--nccl-option gives {name} twice: {found[name]} and {value}", "leave out one"
            )
        read_value(name, value)
    return tuple(f"{name}={value}" for name, value in found.items())


def read_value(name: str, text: str) -> int | str:
    """The value of an option that a text means; UsageError where it has no such value."""
    option = NCCL_OPTIONS[name]
    if option.is_text:
        return text
    if option.values is None:
        if not text.isdecimal():
            raise UsageError(f"--nccl-option {name} cannot be {text!r}", "give a whole number")
        return int(text)
    if text not in option.values:
        raise UsageError(
            f"--nccl-option {name} cannot be {text!r}", f"it is one of {', '.join(option.values)}"
        )
    return option.values[text]


def require_nccl(backend: str, nccl_options: Sequence[str]) -> None:
    """Raise UsageError where there are options of NCCL for another backend."""
    known = BACKENDS.get(backend)
    if nccl_options and not (known and known.is_nccl):
        raise UsageError(
            f"--nccl-option {','.join(nccl_options)} needs the backend nccl, and this is {backend}",
            "leave it out, or add --backend nccl",
        )
