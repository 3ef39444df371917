"""The rules by which nccl-tests splits its ranks into groups: NCCL_TESTS_SPLIT and
NCCL_TESTS_SPLIT_MASK. Source: nccl-tests, src/common.cu."""

from __future__ import annotations

import re

from commbench.errors import UsageError

GROUPS_HINT = 'write for example --groups "0-3;4-7", or --groups "MOD 4"'
_RULES = {"AND": "&", "OR": "|", "MOD": "%", "DIV": "/"}


def find_rule(text: str) -> tuple[str, str, int] | None:
    """The name, the operator and the number of a rule of nccl-tests; None where it is a list of
    ranks."""
    value = text.strip().upper().removeprefix("NCCL_TESTS_SPLIT=").strip("\"' ")
    mask = re.fullmatch(r"(?:NCCL_TESTS_SPLIT_MASK=|MASK\s+)(?:0X)?([0-9A-F]+)", value)
    if mask:
        number = int(mask[1], 16)
        return f"AND 0x{number:x}", "AND", number
    found = re.fullmatch(r"(AND|OR|MOD|DIV|[&|%/])\s*(0X[0-9A-F]+|0B[01]+|\d+)", value)
    if not found:
        return None
    rule = next((name for name, sign in _RULES.items() if sign == found[1]), found[1])
    digits = found[2]
    is_octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"  # as strtoul reads it
    try:
        number = int(digits, 8 if is_octal else 0)
    except ValueError:
        raise UsageError(f"--groups {text!r}: {digits} is no octal number", GROUPS_HINT) from None
    if not number and rule in ("MOD", "DIV"):
        raise UsageError(f"--groups {text!r} divides by 0", GROUPS_HINT)
    shown = f"0x{number:x}" if rule in ("AND", "OR") else str(number)
    return f"{rule} {shown}", rule, number


def by_colour(rule: tuple[str, str, int], ranks: int) -> tuple[tuple[int, ...], ...]:
    """The ranks with the same colour, as nccl-tests computes it of the number of the process."""
    _, name, number = rule
    groups: dict[int, list[int]] = {}
    for rank in range(ranks):
        if name == "AND":
            colour = rank & number
        elif name == "OR":
            colour = rank | number
        else:
            colour = rank % number if name == "MOD" else rank // number
        groups.setdefault(colour, []).append(rank)
    return tuple(tuple(group) for _, group in sorted(groups.items()))
