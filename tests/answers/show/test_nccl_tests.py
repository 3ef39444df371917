"""The table of nccl-tests, whole lines compared, and read as scripts in the wild read it."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import header, plan

from commbench import __version__
from commbench.answers.show.nccl_tests import nccl_tests_text
from commbench.plan.case import Case
from commbench.plan.dtypes import DTYPES, find_dtype
from commbench.readers.registry import import_run
from commbench.readers.source import ImportHints
from commbench.results.records import RankInfo
from commbench.results.schema import Batch, Measurement, Run, RunEnd

OUT, IN = "out_of_place", "in_place"


def measured(time_us: float | None, size: int, count: int, **other: Any) -> Measurement:
    """A measurement with one sample; `other` are its fields, or those of its case."""
    operation = other.get("operation", "all_reduce")
    case = Case(
        index=0, operation=operation, dtype="float32", placement=OUT, size_bytes=size, count=count,
        reduce_op="sum" if "reduce" in operation else "", root=None, timing="isolated",
    )  # fmt: skip
    batches = () if time_us is None else (Batch(samples_s=(time_us * 1e-6,)),)
    found = Measurement(case, "ok", wrong=0, batches=batches)
    own = {name: other.pop(name) for name in ("status", "reason", "wrong") if name in other}
    return found._replace(case=case._replace(**other), **own)


def both(out_us: float, in_us: float, *size_and_count: Any, **other: Any) -> list[Measurement]:
    return [
        measured(us, *size_and_count, placement=placement, **other)
        for us, placement in ((out_us, OUT), (in_us, IN))
    ]


def text_of(
    *measurements: Measurement, ranks: int = 8, end: RunEnd = RunEnd("complete"),  # noqa: B008
    label: str = "tried", places: tuple[RankInfo, ...] = (), **asked: Any,
) -> str:  # fmt: skip
    """What is printed of a run with these measurements."""
    own = tuple(m._replace(case=m.case._replace(ranks=ranks)) for m in measurements)
    found = header(plan(world_size=ranks, **asked), label, ranks=places, gpu_shared=bool(places))
    return nccl_tests_text(Run("results/x", found, own, end))


def data_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line and not line.startswith("#")]


# Lines as nccl-tests 2.19 lays them out: two decimals while they fit, then one, none, an exponent.
GOLDEN: dict[str, tuple[int, list[Measurement]]] = {
    "           8             2     float     sum      -1    35.67    0.00    0.00       0"
    "    35.42    0.00    0.00       0": (8, both(35.67, 35.42, 8, 2)),
    "     1048576        262144     float     sum      -1    72.34   14.49   25.36       0"
    "    71.99   14.57   25.49       0": (8, both(72.3445, 71.99, 1048576, 262144)),
    " 17179869184    4294967296     float     sum      -1  64123.4  267.92  468.86       0"
    "  64222.9  267.50  468.13       0": (8, both(64123.4, 64222.9, 17179869184, 4294967296)),
    "           0             0     float    none      -1    12.30    0.00    0.00       0"
    "    12.10    0.00    0.00       0": (8, both(12.3, 12.1, 0, 0, operation="all_gather")),
    "     1048560         87380     float    none      -1    50.00   20.97   13.98       0"
    "    50.00   20.97   13.98       0": (3, both(50, 50, 1048560, 87380, operation="all_gather")),
    "  1073741824      67108864  bfloat16     sum      -1  2345.68  457.75  400.53       0"
    "  2400.10  447.37  391.45       0": (
        8,
        both(2345.68, 2400.1, 1 << 30, 1 << 26, operation="reduce_scatter", dtype="bfloat16"),
    ),
    "     1048576         32768     float    none      -1   123.40    8.50    7.44       0"
    "      nan     nan     nan     N/A": (
        8,
        [measured(123.4, 1048576, 32768, operation="all_to_all")],
    ),
    "   104857600      26214400     float    none       0  1234568    0.08    0.08     N/A"
    "  1.2e+08    0.00    0.00     N/A": (
        8,
        both(1234567.8, 1.2e8, 104857600, 26214400, operation="broadcast", root=0, wrong=None),
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", GOLDEN)
def test_a_line_is_byte_for_byte_that_of_nccl_tests_but_for_what_was_not_measured(
    line: str,
) -> None:
    ranks, measurements = GOLDEN[line]
    assert data_lines(text_of(*measurements, ranks=ranks)) == [line]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"sizes": (8, 16, 32)}, "minBytes 8 maxBytes 32 step: 2(factor) warmup iters: adaptive"),
        ({"sizes": (8, 24, 40)}, "minBytes 8 maxBytes 40 step: 16(bytes) warmup iters: adaptive"),
        ({"sizes": (8, 9, 1000)}, "minBytes 8 maxBytes 1000 step: listed warmup iters: adaptive"),
        ({"sizes": (8,)}, "minBytes 8 maxBytes 8 step: listed warmup iters: adaptive"),
        ({"check": False}, "iters: adaptive agg iters: 1 validation: 0 graph: 0 unalign: 0"),
        ({"places": (RankInfo(11, "node2", 112372, "cuda:3 NVIDIA H200"),)},
         "\n#  Rank 11 Group  0 Pid 112372 on      node2 device  3 [n/a] NVIDIA H200\n"),
        ({"places": (RankInfo(0, "n", 1, "cpu"),)},
         "\n# ranks share a GPU: these times do not measure performance\n"),
    ],
)  # fmt: skip
def test_the_head_says_what_was_asked_and_of_which_devices(
    asked: dict[str, Any], said: str
) -> None:
    assert said in text_of(*both(1, 1, 8, 2), **asked)


def test_the_head_of_an_imported_run_names_the_file_and_what_it_says() -> None:
    path = Path(__file__).parents[2] / "data" / "nccl-tests" / "nccl_allreduce.log"
    text = nccl_tests_text(import_run(path, ImportHints(operation="all_reduce")))
    assert text.splitlines()[:6] == [
        f"# commbench {__version__}, run nccl_allreduce, imported from nccl_allreduce.log "
        "(nccl-tests)",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 4 maxBytes 8589934592 step: 2(factor) warmup iters: 5 "
        "iters: 20 agg iters: 1 validation: 0 graph: 0 unalign: 0",
        "#",
        "# Using devices",
        "#  8 nccl ranks on localhost (A100-SXM4-40GB)",
    ]


def test_a_size_that_was_measured_several_times_makes_several_lines() -> None:
    text = text_of(*both(1, 2, 8, 2), *both(3, 4, 8, 2), measured(5, 8, 2))
    assert [line.split()[5::4] for line in data_lines(text)] == [
        ["1.00", "2.00"], ["3.00", "4.00"], ["5.00", "nan"],
    ]  # fmt: skip


def test_what_nccl_tests_has_no_line_for_is_a_comment() -> None:
    gather = {"operation": "all_gather"}
    text = text_of(
        measured(58.3, 0, 0, operation="barrier", dtype="", placement=""),
        measured(None, 64, 0, status="skipped", reason="too small", **gather),
        measured(9, 128, 4, **gather),
        measured(9, 256, 8, status="failed", reason="rank 3\ndied", **gather),
        measured(None, 8, 4, dtype="int16", status="unsupported", reason="gloo does not"),
    )
    barrier, gathered, reduced = text.split("\n\n")
    assert barrier == "# barrier: ok: 58.3 us; nccl-tests has no such line"
    assert reduced == "# all_reduce int16 sum out_of_place 8 B: unsupported: gloo does not\n"
    assert gathered.split("\n")[-7:-4] == [
        "         128             4     float    none      -1     9.00    0.01    0.01       0"
        "      nan     nan     nan     N/A",
        "# all_gather float32 out_of_place 64 B: skipped: too small",
        "# all_gather float32 out_of_place 256 B: failed: rank 3 died",
    ]
    assert len(data_lines(text)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_printed_type_is_one_that_nccl_tests_users_may_give_back(dtype: str) -> None:
    (line,) = data_lines(text_of(*both(1, 1, 8, 2, operation="all_gather", dtype=dtype)))
    assert find_dtype(line.split()[2]).name == dtype


def test_text_of_a_file_can_neither_make_a_line_nor_control_a_terminal() -> None:
    evil = "x\n   8  2  float\x1b[31m"
    text = text_of(
        *both(1, 1, 8, 2, reduce_op=evil, timing=evil),
        measured(None, 8, 2, status=evil, reason=evil),
        measured(5, 8, 2, placement=evil),
        label=evil,
        places=(RankInfo(0, evil, 1, evil),),
        end=RunEnd(evil, evil),
    )
    assert all(line.isprintable() for line in text.split("\n"))
    (line,) = data_lines(text)
    assert len(line.split()) == 13


SAMPLES = st.tuples(
    st.floats(1e-9, 1e6), st.integers(0, 1 << 50), st.sampled_from([OUT, IN]),
    st.none() | st.integers(0, 10**6),
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(st.lists(SAMPLES, min_size=1), st.integers(1, 10_000))
def test_every_line_has_thirteen_fields_of_which_the_last_eight_are_numbers(
    cases: list[tuple[float, int, str, int | None]], ranks: int
) -> None:
    found = [
        measured(seconds * 1e6, size, size // 4, placement=placement, wrong=wrong)
        for seconds, size, placement, wrong in cases
    ]
    lines = data_lines(text_of(*found, ranks=ranks))
    assert lines
    for fields in map(str.split, lines):
        assert len(fields) == 13
        assert all(len(field) <= 7 for field in fields[5:])
        assert all(not float(field) < 0 for field in fields[5:] if field != "N/A")


def read_by_headings(text: str) -> list[tuple[int, float, float]]:
    """As a script that finds columns by their headings and counts them from the end of a line."""
    at: list[int] = []
    found = []
    for line in text.splitlines():
        words = line.strip("#").split()
        if "size" in words and "busbw" in words:
            at = [index - len(words) for index, word in enumerate(words) if word == "busbw"]
        elif "Out of bounds values" in line:
            at = []
        elif at and words and not line.startswith("#"):
            found.append((int(words[0]), float(words[at[0]]), float(words[at[1]])))
    return found


def test_scripts_in_the_wild_read_it() -> None:
    text = text_of(
        *both(100, 50, 1000000, 250000),
        measured(40, 1000000, 125000, operation="all_gather"),
        measured(58.3, 0, 0, operation="barrier", dtype="", placement=""),
        *both(1e6, 2e6, 1 << 40, 1 << 38, operation="broadcast", root=1),
        ranks=2,
    )
    busbws = [(1000000, 10.0, 20.0), (1000000, 12.5, nan), (1 << 40, 1099.5, 549.76)]
    assert str(read_by_headings(text)) == str(busbws)
    rows = map(str.split, data_lines(text))
    assert str([(int(row[0]), float(row[7]), float(row[11])) for row in rows]) == str(busbws)
