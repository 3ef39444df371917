"""Rules: which rows have to keep which limit."""

from __future__ import annotations

from typing import Any, NamedTuple

from commbench.analysis.gating.limits import LIMITS, Limit
from commbench.dtypes import find_dtype
from commbench.errors import UsageError
from commbench.operations import find_operation
from commbench.typed import brief, is_modest
from commbench.units import LARGEST_SIZE, format_size, parse_size


class Rule(NamedTuple):
    """A limit, and the rows it holds for."""

    limit: Limit
    value: float
    operation: str = ""
    """Empty: all."""
    dtype: str = ""
    smallest: int = 0
    largest: int = LARGEST_SIZE
    optional: bool = False
    """It need not match any row."""

    @property
    def where(self) -> str:
        """Which rows, in a few words: `all_reduce float32 1M-1G`."""
        sizes = ""
        if self.smallest or self.largest != LARGEST_SIZE:
            low = format_size(self.smallest) if self.smallest else ""
            high = format_size(self.largest) if self.largest != LARGEST_SIZE else ""
            sizes = low if low == high else f"{low}-{high}"
        return " ".join(filter(None, (self.operation or "all", self.dtype, sizes)))

    @property
    def title(self) -> str:
        """The whole rule: `all_reduce 1M-1G: bus bandwidth at least 3.00 GB/s`."""
        return f"{self.where}: {self.limit.words(self.value)}"


def parse_rule(name: str, text: str) -> Rule:
    """The rule that an option says: `[OPERATION:][SIZES:]LIMIT`, such as `all_reduce:1M-1G:3GB/s`.

    Raises UsageError for what is none.
    """
    limit = LIMITS[name]
    *selectors, value = (field.strip() for field in text.split(":"))
    chosen: dict[str, Any] = {}
    for field in selectors:
        kind = "sizes" if field[:1].isdigit() or field[:1] == "-" else "operation"
        if not field or kind in chosen:
            raise UsageError(
                f"{text!r} is no limit of rows",
                f"write [OPERATION:][SIZES:]LIMIT for --{name.replace('_', '-')}, "
                "such as all_reduce:1M-1G:LIMIT",
            )
        chosen[kind] = field
    return make_rule(limit, value, chosen)


def make_rule(limit: Limit, value: str, chosen: dict[str, Any]) -> Rule:
    """A rule from texts by name: `operation`, `sizes`, `dtype`; what is left out means all."""
    texts = {key: as_text(key, found) for key, found in chosen.items()}
    operation, dtype = texts.get("operation", "all"), texts.get("dtype", "all")
    smallest, largest = _sizes(texts["sizes"]) if "sizes" in texts else (0, LARGEST_SIZE)
    return Rule(
        limit=limit,
        value=limit.parse(value),
        operation="" if operation == "all" else find_operation(operation).name,
        dtype="" if dtype == "all" else find_dtype(dtype).name,
        smallest=smallest,
        largest=largest,
    )


def _sizes(text: str) -> tuple[int, int]:
    """A range of sizes: `1M-1G`, `1M-`, `-64K`, or one size."""
    low, dash, high = (part.strip() for part in text.partition("-"))
    smallest = parse_size(low) if low else 0
    largest = parse_size(high) if high else LARGEST_SIZE if dash else smallest
    if not (low or high):
        raise UsageError(f"{text!r} is no range of sizes", "write 1M-1G, 1M- or -64K")
    if smallest > largest:
        raise UsageError(f"the range {text} runs backwards", f"write {high}-{low}")
    return smallest, largest


def as_text(key: str, value: Any) -> str:
    """A value as an option would have it; a number stands for itself where it has no unit."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and is_modest(value):
        return repr(value)
    raise UsageError(f"{key} is {brief(value)}", "write it as text, in quotation marks")
