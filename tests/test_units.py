"""Sizes, times and bandwidths as they are written and read."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commbench import stats, units
from commbench.errors import UsageError
from commbench.runner.run_options import parse_duration
from commbench.views import cells

SHIFTS = {"": 0, "B": 0, "K": 10, "KiB": 10, "M": 20, "MiB": 20, "G": 30, "GiB": 30, "T": 40,
          "TiB": 40}  # fmt: skip
thorough = settings(deadline=None, max_examples=150)
quick = settings(deadline=None, max_examples=60)

sizes = st.one_of(
    st.integers(1, units.LARGEST_SIZE),
    st.integers(0, 50).map(lambda power: 1 << power),
    st.builds(lambda power, odd: odd << power, st.integers(0, 40), st.integers(1, 1000)),
)
expressions = st.one_of(
    st.text(),
    st.text(alphabet="0123456789KMGBi.,-+:x eE١"),
    st.lists(
        st.sampled_from([*"180-:,+", "1K", "1.5M", "2G", "1KB", "x2", "x1.5", "x0", "1e6"]),
        max_size=9,
    ).map("".join),
)


@thorough
@given(sizes)
@example(units.LARGEST_SIZE)
@example(10_000 << 30 | 1 << 28)
def test_a_size_is_written_exactly_without_an_exponent_and_reads_back(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size
    number, unit = units.format_bytes(size).split()
    assert number.replace(".", "", 1).isdigit()
    assert Decimal(number) * (1 << SHIFTS[unit]) == size


@pytest.mark.parametrize("suffix", SHIFTS)
@pytest.mark.parametrize("spell", [str, str.lower, str.upper], ids=["as is", "lower", "upper"])
def test_units_are_binary_in_any_case_and_with_or_without_a_blank(suffix: str, spell) -> None:
    assert units.parse_size(spell(f"3{suffix}")) == 3 << SHIFTS[suffix]
    assert units.parse_size(spell(f"  3 {suffix} ")) == 3 << SHIFTS[suffix]


@thorough
@given(st.integers(0, 1 << 20), st.integers(0, 99), st.sampled_from(sorted(SHIFTS)))
def test_a_fraction_is_taken_only_where_it_is_a_whole_number_of_bytes(
    whole: int, hundredths: int, suffix: str
) -> None:
    meant = (whole + Fraction(hundredths, 100)) * (1 << SHIFTS[suffix])
    text = f"{whole}.{hundredths:02}{suffix}"
    if meant.denominator == 1 and 1 <= meant <= units.LARGEST_SIZE:
        assert units.parse_size(text) == meant
    else:
        with pytest.raises(UsageError):
            units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", (8,)), ("8,1K,4", (4, 8, 1024)), ("1K,1024,1KiB", (1024,)),
        ("1K-8K", (1024, 2048, 4096, 8192)), ("1K-9K", (1024, 2048, 4096, 8192)),
        ("1K-1M:x4", (1024, 4096, 16384, 65536, 262144, 1048576)), ("8-100:x10", (8, 80)),
        ("1-10:x1.5", (1, 2, 3, 4, 5, 8)), ("1M-3M:+1M", (1 << 20, 2 << 20, 3 << 20)),
        ("1K-4K:+1500", (1024, 2524, 4024)), ("7-7", (7,)), ("7-7:+1", (7,)),
        ("1-4,3-5:+1, 9", (1, 2, 3, 4, 5, 9)),
        (" 1K - 2K : +1K ".replace(" : ", ":"), (1024, 2048)),
    ],
)  # fmt: skip
def test_an_expression_gives_its_sizes_ascending_and_once_each(
    text: str, expected: tuple[int, ...]
) -> None:
    assert units.parse_sizes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "1,,2", "1,", ",1", " , ",  # empty items
        "1K-1G-2G", "-", "1-", "-1", "1--2",
        "2K-1K", "1G-1K:x2", "2-1:+1",  # backwards
        "1-8:x1", "1-8:x0", "1-8:x0.5", "1-8:+0", "1-8:x1.0",  # never ends
        "1-8:", "1-8:x", "1-8:+", "1-8:2", "1-8:*2", "1-8:x-2", "1-8:+-1", "1-8:xx2", "1-8:x2:x2",
        "1-8:x1e3", "1-8:xinf", "1-8:xnan",
        "8:x2", "8:",  # a step without a range
        "1KB-1MB", "1-1MB:x2", "1-8:+1KB", "1e3-1e6",
    ],
)  # fmt: skip
def test_an_expression_that_could_mean_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        units.parse_sizes(text)
    assert refused.value.hint


@thorough
@given(expressions)
@example("1K-1G:x" + "9" * 400)
@example("9" * 5000)
@example("1." + "9" * 5000 + "K")
@example("9" * 5000 + "MB")
@example("1-1G:+1")
def test_any_text_gives_sizes_that_ascend_or_a_usage_error(text: str) -> None:
    try:
        found = units.parse_sizes(text)
    except UsageError as refused:
        assert refused.message
        return
    assert found
    assert all(1 <= size <= units.LARGEST_SIZE for size in found)
    assert all(low < high for low, high in pairwise(found))
    assert len(found) <= units.MOST_SIZES


doubling = st.builds(
    lambda low, number: {low << power for power in range(number)},
    st.integers(1, 1 << 30), st.integers(2, 20),
)  # fmt: skip


@thorough
@given(st.sets(sizes, min_size=1, max_size=30) | doubling, st.booleans())
def test_sizes_read_back_as_they_were_written_also_where_one_is_missing(
    several: set[int], is_missing: bool
) -> None:
    ascending = sorted(several)
    if is_missing and len(several) > 1:
        ascending.pop(len(several) // 2)
    assert units.parse_sizes(units.format_sizes(tuple(ascending))) == tuple(ascending)


@quick
@given(st.integers(1, 1 << 40), st.integers(1, 1 << 40), st.integers(11, 80))
def test_a_range_by_a_factor_begins_at_the_low_end_and_keeps_its_ratio(
    one: int, other: int, tenths: int
) -> None:
    low, high, factor = min(one, other), max(one, other), tenths / 10
    found = units.size_range(low, high, factor=factor)
    assert found[0] == low
    assert found[-1] <= high
    # The next one would pass the end, so nothing is missing there.
    assert max(found[-1] + 1, round(low * factor ** len(found))) > high - 1
    for power, size in enumerate(found):
        assert size == pytest.approx(low * factor**power, abs=0.5 + power)


@quick
@given(st.integers(1, 10_000), st.integers(1, 500), st.integers(0, 2000))
def test_a_range_by_bytes_has_every_step_and_nothing_past_the_end(
    low: int, step: int, extent: int
) -> None:
    found = units.size_range(low, low + extent, add=step)
    assert [size - low for size in found] == [step * i for i in range(extent // step + 1)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4.2ms", 4.2e-3), ("120us", 120e-6), ("1.3 s", 1.3), (" 7 µs ", 7e-6), ("7μs", 7e-6),
        ("15ns", 15e-9), ("0.001s", 1e-3),
    ],
)  # fmt: skip
def test_a_time_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert units.parse_time(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(
    ("microseconds", "time", "interval"),
    [
        ((280.1, 228.5, 341.7), "280 us", "230 … 340 us"),  # half the width is 57: tens
        ((280.1, 235.5, 325.5), "280 us", "240 … 330 us"),  # 45: tens, as it begins above 3.54
        ((1364, 1250, 1563), "1.36 ms", "1.25 … 1.56 ms"),  # 0.16: hundredths
        ((33300, 29700, 45000), "33 ms", "30 … 45 ms"),
        ((560, 310, 1560), "560 us", "310 … 1560 us"),  # half the width is 625: two digits
        ((280, 190, 10540), "280 us", "190 us … 11 ms"),  # more than a factor of 10: two digits
        ((178.21, 178.12, 178.31), "178.2 us", "178.1 … 178.3 us"),  # at most four digits
        ((100, 12, 900), "100 us", "12 … 900 us"),  # in one unit where both ends have it
        ((50, 50, 50), "50.00 us", "50.00 … 50.00 us"),
        ((831, 709.4, 1072.9), "830 us", "710 … 1070 us"),
        ((1.2e6, 1.1e6, 1.4e6), "1.20 s", "1.10 … 1.40 s"),
        ((1364, 8.2, 9.1e5), "1.4 ms", "8.2 us … 910 ms"),  # each end in its unit
    ],
)
def test_a_time_has_the_digits_that_its_interval_supports(
    microseconds: tuple[float, float, float], time: str, interval: str
) -> None:
    assert units.format_known_time(*(us * 1e-6 for us in microseconds)) == (time, interval)
    assert units.format_known_time(280.1e-6, None, None) == ("280 us", "")


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (3.7e6, 3.0e6, 4.4e6, "0.0037"), (1.5471e9, 1.34e9, 1.68e9, "1.55"),
        (391.27e9, 391.2e9, 391.3e9, "391.3"), (1.5e9, None, None, "1.50"), (None, None, None, ""),
    ],
)  # fmt: skip
def test_a_bandwidth_has_the_digits_that_its_interval_supports(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert cells.bandwidth_text(stats.known(value, low, high)) == text


def test_a_wide_interval_has_few_digits_and_none_is_left_out() -> None:
    assert units.format_known_time(1.04e-3, 2e-4, 9e-3)[0] == "1.0 ms"
    wide = stats.Estimate(0.231e9, 0.004e9, 0.345e9)
    assert cells.bandwidth_with_interval_text(wide) == "0.23 (0.004 … 0.34) GB/s"
    assert cells.share_with_interval_text(stats.Estimate(0.0, 0.0, 0.0)) == "0 (0 … 0) %"


def test_small_figures_have_the_digits_of_their_interval_and_small_ratios_two() -> None:
    narrow = stats.Estimate(0.0376e9, 0.0371e9, 0.0382e9)
    assert cells.bandwidth_with_interval_text(narrow) == "0.0376 (0.0371 … 0.0382) GB/s"
    ratio = stats.Estimate(0.0451, 0.00828, 0.2457)
    assert cells.ratio_with_interval_text(ratio) == "0.045 (0.0083 … 0.25)"
    assert cells.ratio_with_interval_text(stats.Estimate(1.1, 0.0464, 2.2)) == "1.1 (0.046 … 2.2)"
    assert cells.ratios_text([0.0451, 1.234]) == "0.045 to 1.23"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7B", 7 * 10**9), ("7e9", 7 * 10**9), ("7_000_000_000", 7 * 10**9),
        ("7000000000.0", 7 * 10**9),
        ("1.5b", 1_500_000_000), ("350M", 350_000_000), ("1E+3", 1000), ("8 K", 8000),
        ("1T", 10**12), ("124439808", 124_439_808),
    ],
)  # fmt: skip
def test_a_number_of_parameters_has_several_notations(text: str, number: int) -> None:
    assert units.parse_parameters(text) == number


WRITTEN: dict[Callable[[Any], str], dict[Any, str]] = {
    units.format_size: {
        1: "1", 8: "8", 1023: "1023", 1024: "1K", 1025: "1025", 1536: "1.5K", 10240: "10K",
        1 << 20: "1M", 3 << 19: "1.5M", 100 << 20: "100M", (1 << 20) + 1: "1048577",
        1 << 30: "1G", units.LARGEST_SIZE: "1024T",
    },
    units.format_sizes: {  # equal steps are a range
        (1024, 2048, 4096): "1K-4K", (1024, 2048): "1K,2K", (1024, 4096, 16384): "1K-16K:x4",
        (1024, 3072, 9216): "1K,3K,9K", (7,): "7", (1, 2, 4, 8, 9): "1,2,4,8,9",
    },
    units.format_bytes: {
        0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 999_996: "999996 B",
        1_048_572: "1048572 B", 1 << 20: "1 MiB", 1 << 30: "1 GiB", 5 << 28: "1.25 GiB",
    },
    units.format_about: {
        12: "12 B", 1024: "1.0 KiB", 8704: "8.5 KiB", 276_480: "270 KiB", 1.5 * 2**20: "1.5 MiB",
        3.04 * 2**30: "3.0 GiB",
    },
    units.format_time: {
        0.0: "0", 1e-9: "1.00 ns", 51.4e-9: "51.4 ns", 0.1e-6: "0.10 us",
        1.234e-6: "1.23 us", 9.99e-6: "9.99 us", 42.1e-6: "42.1 us",
        99.96e-6: "100 us", 999.4e-6: "999 us", 999.6e-6: "1.00 ms", 10.2e-3: "10.2 ms",
        0.9994: "999 ms", 0.9996: "1.00 s", 1.08: "1.08 s", 12.34: "12.3 s", 1234.4: "1234 s",
    },
    units.format_GBps: {
        None: "", 4.47e6: "0.0045", 12e6: "0.012", 14e3: "0.000014", 0.0: "0.00", 0.1e9: "0.10",
        1.048576e9: "1.05", 12.34e9: "12.3", 480.6e9: "481", 1234e9: "1234",
    },
    units.format_rough_percent: {
        0.00234: "0.23 %", 0.087: "8.7 %", 0.999: "100 %", 1.5: "150 %", 12.34: "1200 %",
    },
    units.format_times_up: {
        2.31: "2.4", 2.4: "2.4", 9.96: "10.0", 12.1: "13", 123.4: "130", 14210: "15000",
    },
    units.format_percent: {
        1.0667: "107 %", 0.9942: "99.4 %", 0.0426: "4.26 %", 0.00123: "0.12 %",
        0.000456: "0.046 %", 0.0: "0.00 %", 6.4424: "644 %",
    },
}  # fmt: skip


@pytest.mark.parametrize("write", WRITTEN)
def test_a_value_is_written_with_the_unit_and_digits_that_fit_it(
    write: Callable[[Any], str],
) -> None:
    texts = WRITTEN[write]
    assert {value: write(value) for value in texts} == texts


RANGE, SIZES = "write 1K-1G, 1K-1G:x4 or 1M-16M:+1M", "write for example --sizes 8,1K,1M-1G"
NUMBER = "write a number and ns, us, ms or s: 4.2ms"


@pytest.mark.parametrize(
    ("read", "text", "message", "hint"),
    [
        (units.parse_sizes, "1K-", "'1K-' is not a range", RANGE),
        (units.parse_sizes, "8,-", "'-' is not a range", RANGE),
        (units.parse_sizes, "1K:x4", "'1K:x4' is not a range", RANGE),
        (units.parse_sizes, "1K,,2K", "sizes '1K,,2K' has an empty item", SIZES),
        (units.parse_sizes, "1K,", "sizes '1K,' has an empty item", SIZES),
        (units.parse_sizes, "1G-1K", "the range '1G-1K' is reversed", "write 1K-1G"),
        (units.parse_sizes, "1T-1K:x4", "the range '1T-1K:x4' is reversed", "write 1K-1T:x4"),
        (units.parse_time, "4.2", "time '4.2' has no unit", "write 4.2us, 4.2ms or 4.2s"),
        (units.parse_time, "4 MS", "time '4 MS' has an unknown unit 'MS'", "write 4us, 4ms or 4s"),
        (units.parse_time, "3min", "time '3min' has an unknown unit 'min'", "write 3us, 3ms or 3s"),
        (units.parse_time, "0ms", "time '0ms' is not above 0", "write for example 4.2ms"),
        (parse_duration, "5", "'5' is not a time with a unit", "write 90s, 30m or 1h"),
        (units.parse_time, "-1ms", "'-1ms' is not a time", NUMBER),
        (units.parse_time, "1e3us", "'1e3us' is not a time", NUMBER),
        (units.parse_time, "ms", "'ms' is not a time", NUMBER),
        *(
            (
                units.parse_size, text, f"{text!r} could mean a power of 1000 or of 1024",
                f"write {binary} or {binary}iB for powers of 1024, "
                f"or the bytes in full for powers of 1000 ({decimal})",
            )
            for text, binary, decimal in (
                ("1KB", "1K", "1000"), ("3mb", "3M", "3000000"), ("2 Gb", "2G", "2000000000"),
                ("1.5MB", "1.5M", "1500000"), ("0.5kB", "0.5K", "500"),
            )
        ),
    ],
)  # fmt: skip
def test_what_could_be_meant_is_named(
    read: Callable[[str], object], text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read(text)
    assert (refused.value.message, refused.value.hint) == (message, hint)


REFUSED: dict[str, tuple[Callable[[str], object], list[str]]] = {
    "not a whole number of bytes": (
        units.parse_size, ["1." + "0" * 30 + "1", "1." + "0" * 40 + "1G"]
    ),
    "is not a size": (
        units.parse_size,
        ["", " ", "K", "1e6", "1E6", "0x10", "1_000", "+1", "-1", "1.", ".5K", "1 000", "1,5K",
         "nan"],
    ),
    "has an unknown unit": (units.parse_size, ["1P", "1PB", "1PiB", "1X", "1KK", "1Bi"]),
    "is out of range": (
        units.parse_size,
        ["0", "0K", "0.0G", str(units.LARGEST_SIZE + 1), "1025T", "1048577G", "9" * 40],
    ),
    "more than 10000 sizes": (units.parse_sizes, ["1-1G:+1", "1-10001:+1", "1-1G:x1.0001"]),
    "no number of parameters": (
        units.parse_parameters, ["", "B", "7G", "7e", "-1", "0", "1e15", "1e99", "7Be9", "1e-3"]
    ),
    "too small a number": (units.parse_parameters, ["1", "350", "999", "0.9K", "7e1"]),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_clear_meaning_is_refused_with_the_reason(message: str) -> None:
    read, texts = REFUSED[message]
    for text in texts:
        with pytest.raises(UsageError, match=message) as refused:
            read(text)
        if message == "is out of range":
            assert refused.value.hint == "sizes go from 1 byte to 1024T"
    assert len(units.parse_sizes(f"1-{units.MOST_SIZES}:+1")) == units.MOST_SIZES
