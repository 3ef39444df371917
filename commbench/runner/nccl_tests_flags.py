"""The short flags of nccl-tests that give the values of other options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from commbench.errors import UsageError
from commbench.runner.option import RunOption
from commbench.spec.allocators import ALLOCATORS
from commbench.units import parse_size, size_range

GROUP = "Flags of nccl-tests"
_MEMORIES = {int(entry.nccl_tests): name for name, entry in ALLOCATORS.items() if entry.nccl_tests}
"""Kinds of memory by the value of -R."""


def _size_flag(
    letter: str, name: str, metavar: str, help_text: str, default_text: str
) -> RunOption:
    return RunOption(
        name=name, flags=(f"-{letter}", f"--{name}"), metavar=metavar, help=help_text,
        group=GROUP, default_text=default_text, sets="sizes", type=str | None, parse=str,
    )  # fmt: skip


NCCL_TESTS_FLAGS: dict[str, RunOption] = {
    flag.name: flag
    for flag in (
        _size_flag("b", "minbytes", "SIZE", "Smallest size.", "32M"),
        _size_flag("e", "maxbytes", "SIZE", "Largest size.", "32M"),
        _size_flag("f", "stepfactor", "N", "Factor from one size to the next.", "none"),
        _size_flag("i", "stepbytes", "SIZE", "Difference from one size to the next.", "1M"),
        RunOption(
            name="check_count", flags=("-c",), metavar="0|1", sets="check", type=int | None,
            group=GROUP, help="0 does not check results.", default_text="1",
        ),
        RunOption(
            name="local_register", flags=("-R",), metavar="|".join(map(str, _MEMORIES)),
            sets="memory", type=int | None, group=GROUP, default_text="0",
            help="Memory of the buffers: "
            + ", ".join(f"{number} is {name}" for number, name in _MEMORIES.items()) + ".",
        ),
    )
}  # fmt: skip


def apply_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given values with those of nccl-tests' flags as values of the options that they set.

    Raises UsageError for a value that nccl-tests would refuse, and for two choices of one thing."""
    values = dict(given)
    parts = [values.pop(n, None) for n in ("minbytes", "maxbytes", "stepfactor", "stepbytes")]
    if any(part is not None for part in parts):
        values["sizes"] = _parse_sizes("sizes" in values, *parts)
    if (count := values.pop("check_count", None)) is not None:
        if count not in (0, 1):
            raise UsageError(f"-c cannot be {count}", "-c 1 checks results, -c 0 does not")
        values["check"] = count > 0
    if (number := values.pop("local_register", None)) is not None:
        if number not in _MEMORIES:
            known = ", ".join(f"-R {known} is {name}" for known, name in _MEMORIES.items())
            raise UsageError(f"-R cannot be {number}", known)
        if values.setdefault("memory", (_MEMORIES[number],)) != (_MEMORIES[number],):
            raise UsageError("--memory and -R both choose the memory", "leave out one of them")
    return values


def _parse_sizes(
    has_sizes: bool, low: str | None, high: str | None, factor: str | None, step: str | None
) -> tuple[int, ...]:
    """The sizes of nccl-tests' -b -e -f -i, with its defaults: from 32M to 32M by 1M.

    UsageError for a factor above 1 and a step: nccl-tests ignores the step."""
    if has_sizes:
        flags = {"-b": low, "-e": high, "-f": factor, "-i": step}
        first_flag = next(flag for flag, text in flags.items() if text is not None)
        raise UsageError(
            f"--sizes and {first_flag} both choose the sizes",
            "write --sizes 8-128M, or -b 8 -e 128M -f 2 as in nccl-tests",
        )
    first, last = parse_size(low or "32M"), parse_size(high or "32M")
    if factor is not None and not re.fullmatch(r"\d+(\.\d+)?", factor):
        raise UsageError(f"-f {factor!r} is not a number", "write -f 2 to double")
    if factor is not None and float(factor) > 1 and step is not None:
        raise UsageError("-f and -i both choose the next size", "leave out one of them")
    if factor is not None and float(factor) > 1:
        return size_range(first, last, factor=float(factor))
    return size_range(first, last, add=parse_size(step or "1M"))
