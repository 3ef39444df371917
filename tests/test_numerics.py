"""The numbers of sums in real runs: errors against numpy's, bits, and when compressing pays."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Commbench, Ended, run_commbench, start_command

from commbench.analysis.figures import find_difference
from commbench.analysis.rows import make_rows
from commbench.answers.show.numerics import find_numerics
from commbench.results.journal_reader import read_run

JOB = Path(__file__).parent / "worker" / "numerics_job.py"
ORDERS = Path(__file__).with_name("orders.py")
CALLS = [f"{ORDERS}:Ring", f"{ORDERS}:Tree"]
FORMS = ["bf16", "fp16", "int8"]
BLOCK = 256


def dump(folder: Path, ranks: int, data: str, *ways: str) -> dict[str, Any]:
    """The tensors that ranks sent, and what each way left, by name and rank."""
    started = [
        start_command(
            folder, str(folder), str(ranks), data, *ways, program=JOB.read_text(), RANK=str(rank)
        )
        for rank in range(ranks)
    ]
    for each in started:
        ended = each.finish()
        assert ended.code == 0, ended.err
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def errors(sent: list[Any], result: Any) -> dict[str, float]:
    """The columns of results.csv about the errors, by their definitions."""
    exact = sum(each.astype(np.float64) for each in sent)
    off = result.astype(np.float64) - exact
    rms = np.sqrt((exact**2).mean())
    ulp = 2.0 ** (np.floor(np.log2(abs(exact))) - 23)  # of float32, by the exact number
    noise = np.sqrt((off**2).mean())
    return {
        "rms_relative_error": noise / rms, "max_abs_error": abs(off).max(),
        "max_ulp": (abs(off) / ulp).max(), "sqnr_db": 10 * np.log10(rms**2 / noise**2),
        "bias": off.mean() / rms,
    }  # fmt: skip


def rows_of(folder: Path, ranks: int, *arguments: str) -> tuple[Ended, dict[str, dict[str, str]]]:
    ended = run_commbench(
        folder, "run", "--sizes", "400000", "--nproc-per-node", str(ranks), "--iters", "4",
        "--no-plots", *arguments,
    ).good()  # fmt: skip
    return ended, {row["call"] or row["form"]: row for row in ended.rows()}


@pytest.mark.parametrize("data", ["normal", "outliers"])
def test_the_errors_are_those_that_numpy_finds_in_the_tensors(tmp_path: Path, data: str) -> None:
    found = dump(tmp_path, 2, data, *FORMS)
    sent = [found[f"sent-{rank}"] for rank in range(2)]
    ended, rows = rows_of(tmp_path, 2, "--via", ",".join(FORMS), "--data", data, "--numerics")
    for name in ("direct", *FORMS):
        assert np.array_equal(found[f"{name}-0"], found[f"{name}-1"])
        for column, value in errors(sent, found[f"{name}-0"]).items():
            assert float(rows[name][column]) == pytest.approx(value, rel=1e-3), (name, column)
        assert rows[name]["same_bits"] == "1"
        assert rows[name]["wrong"] == "0"
    assert f"Numerics: {data} data" in ended.out


def quantised(values: Any) -> Any:
    """Rounded to int8 with a float32 scale for each block; the last block may be short."""
    out = np.empty_like(values)
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        scale = np.float32(abs(block).max() / np.float32(127))
        kept = np.clip(np.round(block / scale), -127, 127).astype(np.int8)
        out[start : start + BLOCK] = kept.astype(np.float32) * scale
    return out


def test_int8_is_what_numpy_makes_of_the_same_numbers(tmp_path: Path) -> None:
    found = dump(tmp_path, 3, "outliers", "int8")
    sent = [found[f"sent-{rank}"] for rank in range(3)]
    parts = []
    for part in np.split(np.stack(sent), 3, axis=1):
        total = reduce(np.add, map(quantised, part))
        parts.append(quantised(total))
    assert np.array_equal(found["int8-1"], np.concatenate(parts))


def test_bytes_on_the_wire_are_those_of_the_values_and_their_scales(tmp_path: Path) -> None:
    _, rows = rows_of(tmp_path, 2, "--via", "bf16,int8,powersgd:2")
    # Of 50,000 elements of a part, 196 blocks; 100,000 elements are 316 x 316 and 144 more.
    sent = {name: int(row["wire_bytes"] or 0) for name, row in rows.items()}
    assert sent == {
        "direct": 0, "bf16": 200_000, "int8": 2 * 196 * (256 + 4),
        "powersgd:2": 4 * (2 * (316 + 316) + 144),
    }  # fmt: skip
    assert rows["powersgd:2"]["wrong"] == ""
    assert rows["powersgd:2"]["status"] == "ok"


def test_known_orders_have_the_errors_of_numpy_in_the_same_order(tmp_path: Path) -> None:
    ranks = 4
    found = dump(tmp_path, ranks, "normal", *CALLS)
    sent = [found[f"sent-{rank}"] for rank in range(ranks)]
    ring = []
    for number, part in enumerate(np.split(np.stack(sent), ranks, axis=1)):
        # Step s of the ring brings part k from rank k + 1 + s, which has added its own to it.
        order = [(number + 1 + step) % ranks for step in range(ranks)]
        ring.append(reduce(np.add, (part[rank] for rank in order)))
    expected = {
        "Ring": np.concatenate(ring), "Tree": (sent[0] + sent[1]) + (sent[2] + sent[3]),
    }  # fmt: skip
    ended, rows = rows_of(tmp_path, ranks, "--call", ",".join(CALLS), "--numerics")
    for name, result in expected.items():
        assert np.array_equal(found[f"{name}-0"], result)
        for column, value in errors(sent, result).items():
            assert float(rows[name][column]) == pytest.approx(value, rel=1e-6), (name, column)
    places = np.arange(1024) * len(sent[0]) // 1024
    ring_sample, tree_sample = (expected[name][places] for name in ("Ring", "Tree"))
    share = (ring_sample != tree_sample).mean()
    measured = {m.case.call: m for m in read_run(ended.folder).measurements}
    first, second = (measured[name].numerics[0] for name in ("Ring", "Tree"))
    difference = find_difference(first, second, "float32")
    assert difference and difference.share == pytest.approx(share)
    bits = [sample.view(np.int32).astype(np.int64) for sample in (ring_sample, tree_sample)]
    has_one_sign = (bits[0] < 0) == (bits[1] < 0)
    assert difference.max_ulp >= abs(bits[0] - bits[1])[has_one_sign].max()
    text = " ".join(ended.out.split())
    assert f"Ring and Tree differ in {100 * share:.1f} % of elements" in text
    assert "each repeats itself." in text


def test_without_it_nothing_is_measured(commbench: Commbench) -> None:
    ended = commbench("run", "--sizes", "4K", "--iters", "4", "--no-plots").good()
    run = read_run(ended.folder)
    assert [m.numerics for m in run.measurements] == [()]
    assert {ended.rows()[0][name] for name in ("wire_bytes", "bias", "same_bits")} == {""}
    assert not find_numerics(make_rows(run)).rows
    assert "Numerics" not in ended.out


def test_launches_and_placements_are_compared(commbench: Commbench) -> None:
    ended = commbench(
        "run", "--op", "reduce_scatter", "--placement", "both", "--numerics", "--sizes", "4K",
        "--launches", "2", "--iters", "4", "--no-plots", "--dtype", "bfloat16",
    ).good()  # fmt: skip
    found = find_numerics(make_rows(read_run(ended.folder)))
    assert [len(m.numerics) for m in found.measured] == [2, 2]
    assert [(one.a, one.b, one.difference.share) for one in found.unlike] == [
        ("direct out_of_place", "direct in_place", 0.0)
    ]
    assert {row.between_launches for row in found.rows} == {(0.0, 0)}
    assert {row["same_bits"] for row in ended.rows()} == {""}  # each rank has another part


def test_two_runs_are_compared_bit_by_bit(tmp_path: Path) -> None:
    for name, kept in (("a", "Ring"), ("b", "Tree")):
        text = ORDERS.read_text().replace(f"class {kept}:", "class Mine:")
        (tmp_path / f"{name}.py").write_text(text)
        run_commbench(
            tmp_path, "run", "--call", f"{name}.py:Mine", "--sizes", "4K", "--numerics", "--iters",
            "4", "--no-plots", "--nproc-per-node", "4", "--output", name,
        ).good()  # fmt: skip
    ended = run_commbench(tmp_path, "compare", "a", "b", "--force")
    assert "a and b differ in " in ended.out, ended.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(["--data", "odd", "--numerics"], "data 'odd'"),
     (["--data", "outliers"], "--data has no effect without --numerics"),
     (["--op", "broadcast", "--numerics"], "--numerics has no effect with --op broadcast"),
     (["--via", "int8", "--dtype", "int32"], "the form compresses float32")],
)  # fmt: skip
def test_nonsense_is_refused(commbench: Commbench, arguments: list[str], error: str) -> None:
    ended = commbench("run", "--sizes", "4K", "--iters", "2", "--no-plots", *arguments)
    assert error in ended.err + ended.out
    assert ended.code == (0 if "int8" in arguments else 2)
