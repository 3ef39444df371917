"""The short flags of nccl-tests, which give the values of options of `commbench run`."""

from __future__ import annotations

import re
from typing import Any

from commbench.errors import UsageError
from commbench.plan.backends import ALLOCATORS
from commbench.runner.option import Option
from commbench.units import parse_size, size_range

_MEMORIES = {int(entry.nccl_tests): name for name, entry in ALLOCATORS.items() if entry.nccl_tests}
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
        "local_register", "R", "|".join(map(str, _MEMORIES)), "Memory of the buffers: "
        + ", ".join(f"{n} is {name}" for n, name in _MEMORIES.items()) + ".", "0", "memory",
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
            raise UsageError(
                f"--{flag.sets} and {flag.flag} both choose the {flag.sets}",
                "leave out one of them",
            )
    if (count := given.pop("check_count", None)) is not None:
        if count not in (0, 1):
            raise UsageError(f"-c cannot be {count}", "-c 1 checks results, -c 0 does not")
        values["check"] = count > 0
    if (number := given.pop("local_register", None)) is not None:
        if number not in _MEMORIES:
            known = ", ".join(f"-R {known} is {name}" for known, name in _MEMORIES.items())
            raise UsageError(f"-R cannot be {number}", known)
        values["memory"] = (_MEMORIES[number],)
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
    if stepfactor is not None and not re.fullmatch(r"\d+(\.\d+)?", stepfactor):
        raise UsageError(f"-f {stepfactor!r} is not a number", "write -f 2 to double")
    if stepfactor is None or float(stepfactor) <= 1:
        return size_range(first, last, add=parse_size(stepbytes or "1M"))
    if stepbytes is not None:
        raise UsageError("-f and -i both choose the next size", "leave out one of them")
    return size_range(first, last, factor=float(stepfactor))
