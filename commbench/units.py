"""Reading and writing bytes, seconds and GB/s. The constant 1e9 is in this file only.

Sizes are binary (K = 1024 bytes), bandwidths are decimal (GB/s = 1e9 bytes/s), as in nccl-tests.
"""

from __future__ import annotations

import re
from math import ceil, floor, log10, nan
from typing import Any

from commbench.errors import UsageError, wrong_value

GB = 1e9
MICRO = 1e-6

_SHIFTS = {"T": 40, "G": 30, "M": 20, "K": 10}
"""The units of sizes as powers of 2."""
_SUFFIXES = {"": 0, "B": 0, **_SHIFTS, **{f"{unit}IB": shift for unit, shift in _SHIFTS.items()}}
_SIZE = re.compile(r"(\d{1,60}(?:\.\d{1,60})?)\s*([A-Za-z]*)", re.ASCII)
_TIME = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-zµμ]*)")
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}
_PARAMETERS = re.compile(
    r"(\d[\d_]{0,30}(?:\.\d{1,15})?)(?:\s*([KMBT])|E\+?(\d{1,2}))?", re.ASCII | re.IGNORECASE
)
_THOUSANDS = {"": 0, "K": 3, "M": 6, "B": 9, "T": 12}
MOST_KNOWN = 10
"""Where an interval ends at more than so many times its beginning, two digits are enough."""
LARGEST_SIZE = 1 << 50
LEAST_PARAMETERS, MOST_PARAMETERS = 1000, 10**14
"""Of a model: with fewer, the unit was forgotten."""
MOST_SIZES = 10_000


def parse_size(text: str) -> int:
    """Parse bytes: `8`, `512B`, `1K`, `1.5MiB`, `1G`; binary, upper or lower case.

    Raises UsageError for an ambiguous text (`1KB`, `1e6`), and for one that is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise wrong_value(text, "is not a size", "write bytes, or K, M, G: 8, 512, 1K, 1.5M, 1G")
    number, suffix = match[1], match[2].upper()
    if suffix[1:] == "B" and (binary := suffix[0]) in _SHIFTS:
        decimal = _fraction(number) * 1000 ** (_SHIFTS[binary] // 10)
        raise wrong_value(
            text,
            "could mean a power of 1000 or of 1024",
            f"write {number}{binary} or {number}{binary}iB for powers of 1024, "
            f"or the bytes in full for powers of 1000 ({decimal})",
        )
    if suffix not in _SUFFIXES:
        raise wrong_value(text, "has an unknown unit", "units are K, M, G, T, and KiB, MiB, ...")
    size = _fraction(number) * (1 << _SUFFIXES[suffix])
    if size != int(size):
        raise wrong_value(text, "is not a whole number of bytes", f"nearest: {int(size) or 1}")
    if not 0 < size <= LARGEST_SIZE:
        raise wrong_value(text, "is out of range", "sizes go from 1 byte to 1024T", "size")
    return int(size)


def parse_parameters(text: str) -> int:
    """Parse a number of parameters of a model: `350M`, `7B`, `7e9`, `7_000_000_000`; decimal. Where
    it is below LEAST_PARAMETERS, the unit was forgotten: UsageError."""
    match = _PARAMETERS.fullmatch(text.strip())
    value = 0
    if match:
        power = int(match[3]) if match[3] else _THOUSANDS[(match[2] or "").upper()]
        value = int(_fraction(match[1]) * 10**power)
    if match and 1 <= value < LEAST_PARAMETERS:
        why = "is too small a number of parameters"
        raise wrong_value(text, why, f"did you mean {match[1]}M?")
    if not 1 <= value <= MOST_PARAMETERS:
        raise wrong_value(
            text, "is no number of parameters", "write for example 350M, 7B or 7e9; at most 100T"
        )
    return value


MONTH_S = 31 * 24 * 3600.0


def parse_time(text: str) -> float:
    """Parse seconds: `4.2ms`, `120us`, `1.3 s`; UsageError where the unit is missing."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        raise wrong_value(text, "is not a time", "write a number and ns, us, ms or s: 4.2ms")
    number, unit = match[1], match[2]
    seconds = float(number) / _PER_SECOND.get(unit, 1.0)
    if not seconds:
        raise wrong_value(text, "is not above 0", "write for example 4.2ms", "time")
    if unit not in _PER_SECOND:
        trouble = f"has an unknown unit {unit!r}" if unit else "has no unit"
        raise wrong_value(text, trouble, f"write {number}us, {number}ms or {number}s", "time")
    if seconds > MONTH_S:
        raise wrong_value(text, "is more than a month", "write for example 4.2ms", "time")
    return seconds


def _fraction(number: str) -> Any:
    """The exact value of a decimal number."""
    if "." not in number:
        return int(number)
    from fractions import Fraction  # as slow to import as it is seldom needed

    return Fraction(number)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse sizes in bytes, in ascending order and without duplicates.

    `1K-1G` doubles; `1K-1G:x4` multiplies by 4; `1M-16M:+1M` adds 1 MiB; commas join several.
    """
    sizes: set[int] = set()
    for item in text.split(","):
        sizes.update(_parse_item(item.strip(), text))
        _refuse_too_many(len(sizes))
    return tuple(sorted(sizes))


def _parse_item(item: str, whole: str) -> tuple[int, ...]:
    if not item:
        trouble = "has an empty item" if "," in whole else "has no size"
        raise wrong_value(whole, trouble, "write for example --sizes 8,1K,1M-1G", "sizes")
    extent, colon, step = item.partition(":")
    low, dash, high = extent.partition("-")
    if not dash and not colon:
        return (parse_size(low),)
    if not low.strip() and high.strip().isdecimal():
        raise UsageError(f"size {item} is below 1", "write a number of bytes, such as 1K")
    if not low.strip() or not high.strip() or (colon and not step):
        raise wrong_value(item, "is not a range", "write 1K-1G, 1K-1G:x4 or 1M-16M:+1M")
    if re.fullmatch(r"\+\s*0+(\.0+)?\s*[A-Za-z]*", step):
        raise UsageError(f"the step {step} does not increase sizes", "add at least 1, such as :+1M")
    first, last = _range_ends(low, high, f"{colon}{step}")
    if step[:1] == "+":
        return size_range(first, last, add=parse_size(step[1:]))
    if step and not re.fullmatch(r"x\d+(\.\d+)?", step):
        hint = "write :x4 to multiply by 4, :+1M to add 1 MiB"
        raise wrong_value(item, f"has an unknown step {step!r}", hint)
    return size_range(first, last, factor=float(step[1:] or 2))


def _range_ends(low: str, high: str, step: str = "") -> tuple[int, int]:
    """The ends of a range; UsageError where it is reversed."""
    first, last = parse_size(low), parse_size(high)
    if first > last:
        hint = f"write {high}-{low}{step}"
        raise wrong_value(f"{low}-{high}{step}", "is reversed", hint, "the range")
    return first, last


def size_range(low: int, high: int, *, factor: float = 0, add: int = 0) -> tuple[int, ...]:
    """Sizes from `low` to at most `high`, multiplied by `factor`, or increased by `add` bytes."""
    if add:
        _refuse_too_many((high - low) // add + 1)
        return tuple(range(low, high + 1, add))
    if factor <= 1:
        raise UsageError(
            f"the step x{factor:g} does not increase sizes", "multiply by more than 1, such as x2"
        )
    factor = min(factor, 2.0 * LARGEST_SIZE)
    sizes = [low]
    while (following := max(sizes[-1] + 1, int(low * factor ** len(sizes) + 0.5))) <= high:
        sizes.append(following)
        _refuse_too_many(len(sizes))
    return tuple(sizes)


def parse_size_range(text: str) -> tuple[int, int]:
    """The ends of a range of sizes or other whole numbers: `1M-1G`, `1M-`, `-64K`, or one of
    them. UsageError where it has no end, or is reversed."""
    low, dash, high = (part.strip() for part in text.partition("-"))
    if not (low or high):
        raise wrong_value(text, "is not a range of sizes", "write 1M-1G, 1M- or -64K")
    if low and high:
        return _range_ends(low, high)
    first = parse_size(low) if low else 0
    return first, parse_size(high) if high else LARGEST_SIZE if dash else first


def _refuse_too_many(number: int) -> None:
    if number > MOST_SIZES:
        raise UsageError(
            f"these are more than {MOST_SIZES} sizes", "use a larger step, such as :x2"
        )


def format_count(number: int, noun: str) -> str:
    """A number with its noun: `1 rank`, `2 ranks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_size(size_bytes: int) -> str:
    """An exact size as parse_size reads it: `8`, `1K`, `1.5K`, `1025`."""
    return "".join(_scale(size_bytes))


def format_bytes(size_bytes: int) -> str:
    """An exact size for people: `8 B`, `1 KiB`, `1.5 MiB`, `1 GiB`, `1048572 B`."""
    number, suffix = _scale(size_bytes)
    return f"{number} {suffix}iB" if suffix else f"{number} B"


def _scale(size_bytes: int) -> tuple[str, str]:
    """A number and K, M or G, where two decimals express the size exactly; else the bytes."""
    for suffix, shift in _SHIFTS.items():
        whole, rest = divmod(size_bytes * 100, 1 << shift)
        if size_bytes >= 1 << shift and not rest:
            return f"{whole / 100:.2f}".rstrip("0").rstrip("."), suffix
    return str(size_bytes), ""


def format_about(size_bytes: float, *ends: float) -> str:
    """About how many bytes, with two digits or, from 100 on, three: `8.5 KiB`, `270 KiB`; with the
    ends of an interval: `270 (210 … 340) KiB`."""
    unit, shift = next((u for u in _SHIFTS.items() if size_bytes >= 1 << u[1]), ("", 0))
    decimals = int(size_bytes < 10 << shift)
    value, *texts = (f"{each / (1 << shift):.{decimals}f}" for each in (size_bytes, *ends))
    interval = f" ({' … '.join(texts)})" if ends else ""
    return f"{value}{interval} {unit + 'i' * bool(unit)}B"


def seven_digits(value: float) -> float:
    """A number with the digits that results.csv and JSON keep."""
    return float(f"{value:.7g}")


def scaled(value: float | None, unit: float = 1.0) -> float | None:
    """A value in a unit, with seven digits; None for an unknown one."""
    return None if value is None else seven_digits(value / unit)


def format_time(seconds: float) -> str:
    """A duration with three digits: `42.1 us`, `200 ms`, `1.08 s`; `0`."""
    if not seconds:
        return "0"
    unit, factor = _time_unit(seconds)
    return f"{seconds * factor:.{_digits(seconds * factor)}f} {unit}"


def format_known_time(seconds: float, low: float | None, high: float | None) -> tuple[str, str]:
    """A time and its interval, both with the digits that the interval supports: `280 us` and
    `230 … 340 us`; of a very wide one, `800 us … 9.7 s`. Where the interval is not known, it is
    empty, and the time is format_time's."""
    if low is None or high is None:
        return format_time(seconds), ""
    if 0 < MOST_KNOWN * low < high:
        text, first, last = (_two_digits(each) for each in (seconds, low, high))
        is_same = first.split()[1] == last.split()[1]
        return text, f"{first.split()[0] if is_same else first} … {last}"
    unit, factor = _time_unit(seconds)
    numbers = [s * factor for s in (seconds, low, high)]
    decimals = known_decimals(*numbers)
    number, first, last = (format_decimals(each, decimals) for each in numbers)
    return f"{number} {unit}", f"{first} … {last} {unit}"


def _two_digits(seconds: float) -> str:
    unit, factor = _time_unit(seconds)
    number = seconds * factor
    return f"{format_decimals(number, 1 - _exponent(number))} {unit}"


def known_decimals(value: float, low: float, high: float) -> int:
    """How many decimals of a value its interval supports; below 0 for tens, hundreds and so on.

    Half the width of the interval keeps two digits if it begins with 1.0 to 3.54, else one: the
    rule of the Particle Data Group (Review of Particle Physics, introduction, 5.3). The value has
    two to four digits, so that columns of one quantity agree, and the lower end at least one.
    """
    most = (1 if 0 < MOST_KNOWN * low < high else 3) - _exponent(value)
    half = (high - low) / 2
    if not half:
        return most
    decimals = -_exponent(half) + int(half / 10.0 ** _exponent(half) < 3.55)
    return min(most, max(decimals, 1 - _exponent(value), -_exponent(low or half)))


def format_decimals(value: float, decimals: int) -> str:
    """A number with so many decimals; below 0 it is rounded to tens, hundreds and so on."""
    return f"{round(value, decimals):.{max(0, decimals)}f}"


def _exponent(value: float) -> int:
    """The power of ten of the first digit of a number above 0; 0 for 0."""
    return floor(log10(value)) if value else 0


def _time_unit(seconds: float) -> tuple[str, float]:
    """The unit of a time, and what seconds are multiplied by for it."""
    if 0 < seconds < 99.5e-9:  # two decimals of microseconds are too few
        return "ns", 1e9
    if seconds < 0.9995:
        return ("us", 1e6) if seconds < 999.5e-6 else ("ms", 1e3)
    return "s", 1.0


def format_GBps(bytes_per_second: float | None) -> str:  # noqa: N802 - GB is a unit
    """A bandwidth in GB/s (1e9 bytes/s), with three digits or, below 0.1, two; empty for None."""
    if bytes_per_second is None:
        return ""
    value = bytes_per_second / GB
    return f"{value:.{_decimals(value)}f}"


def format_share(fraction: float) -> str:
    """A fraction in whole percent, below 0.5 % with its first digit: `90 %`, `0.04 %`."""
    value = 100 * fraction
    return f"{value:.{-_exponent(value) if 0 < value < 0.5 else 0}f} %"


def format_percent(fraction: float) -> str:
    """A fraction in percent, three digits or, below 0.1 %, two: `107 %`, `99.4 %`, `4.26 %`."""
    value = 100 * fraction
    return f"{value:.{_decimals(value)}f} %"


def format_rough_percent(fraction: float) -> str:
    """A fraction in percent with two digits, for what follows from noise: `0.23 %`, `150 %`."""
    return f"{float(f'{100 * fraction:.2g}'):g} %" if fraction <= 99 else "over 9900 %"


def format_rough(value: float) -> str:
    """A number with two digits, never as a power of 10: `0.052`, `3.1`, `310`."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def format_times(ratio: float) -> str:
    """A ratio in words: `2.5 times`, `1,024 times`."""
    return f"{ratio:,.0f} times" if ratio >= 100 else f"{ratio:.3g} times"


def format_times_up(ratio: float) -> str:
    """A ratio from which on something shows, rounded up to two digits: `2.4`, `13`, `280`."""
    decimals = min(1, 1 - _exponent(ratio))
    step = 10.0**-decimals
    return format_decimals(ceil(ratio / step - 1e-6) * step, decimals)


def _decimals(value: float) -> int:
    """Decimals that show two digits of a number below 0.1, and three or more of a larger one."""
    return _digits(value) if value >= 0.1 or not value else 1 - floor(log10(value))


def _digits(value: float) -> int:
    return 2 if value < 9.995 else 1 if value < 99.95 else 0


def size_end(size_bytes: int) -> str:
    """A size as an end of a range: with its unit in any event, `512B`, `1K`."""
    text = format_size(size_bytes)
    return f"{text}B" if text.isdigit() else text


def format_sizes(sizes: tuple[int, ...]) -> str:
    """Sizes as parse_sizes reads them: `1K-1G` where each is twice the one before, `1K-1G:x4` where
    it is four times that, else a list."""
    for factor in (2, 4, 8, 16) if len(sizes) > 2 else ():
        low, high, step = sizes[0], sizes[-1], "" if factor == 2 else f":x{factor}"
        if low * factor == sizes[1] and sizes == size_range(low, high, factor=factor):
            return f"{size_end(low)}-{size_end(high)}{step}"
    return ",".join(format_size(size) for size in sizes)


def parse_percentage(text: str) -> float:
    """Parse a percentage as a fraction: `10%`, `0.1`, `150%`; not `10`, which could mean 10 or
    10 %."""
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = nan
    if not (0 <= value < 1 or (percent and 1 <= value < 1000)):
        meant = value if 1 <= value <= 100 and not percent else 10.0
        hint = f"write {meant:.6g}% or {meant / 100:.6g}"
        hint += f"; {value:g} times is +{100 * value - 100:g}%" * (not percent and 1 < value < 2)
        what = "is below 0 %" if value < 0 else "is not a percentage"
        if percent and value >= 1:
            what, hint = "is too large", "write less than 100000%"
        raise wrong_value(text, what, hint)
    return round(value, 12)


def parse_tolerance(given: str | float) -> float:
    """Parse a percentage as a fraction below 1."""
    value = parse_percentage(str(given))
    if value >= 1:
        raise wrong_value(str(given), "is not below 100 %", "write for example 5% or 0.05")
    return value
