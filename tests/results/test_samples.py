"""Samples without a Python object for each, and how much memory and time a large journal takes."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from random import Random
from statistics import median

import pytest
from peak import COMMAND, measure_process
from synthetic import header, plan
from synthetic_journal import CASES, HEADER, sealed

import commbench.analysis.statistics as statistics
from commbench.analysis.statistics import summarise
from commbench.errors import RecordsError
from commbench.results import journal_reader, samples
from commbench.results.checksum import CHECKSUM
from commbench.results.journal import Journal, encode_run, write_run
from commbench.results.journal_reader import JournalReader, decode_run, read_run
from commbench.results.run_folder import JOURNAL
from commbench.results.samples import Samples, in_order
from commbench.results.schema import Batch, Measurement, Run, RunEnd


def test_samples_are_a_sequence_that_equals_a_tuple() -> None:
    values = (1e-3, 0.1 + 0.2, 0.0)
    found = Samples("d", values)
    assert found == values and values == found and found != values[:2] and found != 3
    assert not found != values and not values != found  # noqa: SIM202
    assert (len(found), found[1], found[1:], found[-1]) == (3, 0.1 + 0.2, values[1:], 0.0)
    assert (*found,) == values and hash(found) == hash(values)
    assert not Samples("d") and Samples("d") == ()


def test_a_run_that_was_read_is_encoded_as_it_was_written() -> None:
    batch = Batch((1e-3, 2e-3))
    run = Run("", HEADER, (Measurement(CASES[0], "ok", batches=(batch,)),), RunEnd("complete"))
    lines = [*encode_run(run)]
    assert [*encode_run(decode_run(lines))] == lines == json.loads(json.dumps(lines))


def test_many_samples_have_the_summary_that_few_lines_of_python_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = Random(1)
    batches = [
        tuple(round(chance.lognormvariate(-9 + n / 40, 0.2), 6) for _ in range(1 + n))
        for n in range(40)
    ]
    mixed = [Samples("d", batch) if n % 2 else batch for n, batch in enumerate(batches)]
    launches = [in_order(mixed[:20]), in_order(mixed[20:])]
    few = summarise(batches, launches)
    assert few.design_effect > 1
    for module in (samples, statistics):
        monkeypatch.setattr(module, "MANY", 10)
    assert summarise(mixed, launches) == pytest.approx(few, rel=1e-12)
    assert [*in_order(mixed)] == sorted(chain.from_iterable(batches))
    assert type(in_order(mixed)[0]) is float


def _large(folder: Path, each: int, size_bytes: int) -> Path:
    """A journal of about this size, with so many samples in a batch."""
    folder.mkdir()
    journal, chance, asked = Journal(folder), Random(each), plan()
    journal.header(header(asked, "large"))
    pool = [round(chance.lognormvariate(-9, 0.1), 9) for _ in range(9973)]
    while (folder / JOURNAL).stat().st_size < size_bytes:
        for case in asked.cases():
            at = chance.randrange(len(pool))
            journal.batch(case, Batch(tuple((pool[at:] + pool * 2)[:each]), rank_medians_s=(1, 1)))
    for case in asked.cases():
        journal.measurement(Measurement(case, "ok", stop_reason="fixed", wrong=0))
    journal.end(RunEnd("complete"))
    return folder


LOADED = """
import json
with open("run/run.jsonl") as lines:
    for line in lines:
        json.loads(line)
"""


@pytest.mark.full
@pytest.mark.parametrize(("each", "most_mib", "most_times"), [(40, 150, 2.0), (1000, 150, 2.0)])
def test_a_journal_of_100_mb_takes_little_memory_and_some_times_the_time_of_json(
    each: int, most_mib: float, most_times: float, tmp_path: Path
) -> None:
    _large(tmp_path / "run", each, 100_000_000)
    for command in ("show", "export"):
        ratios = []
        for _ in range(3):
            _, json_s = measure_process(LOADED, cwd=tmp_path)
            mib, cpu_s = measure_process(COMMAND, command, "run", cwd=tmp_path)
            assert mib < most_mib
            ratios.append(cpu_s / json_s)
        assert median(ratios) < most_times


def test_what_was_read_from_a_short_journal_needs_no_numpy(tmp_path: Path) -> None:
    folder = _large(tmp_path / "run", 5, 9000)
    assert read_run(folder).measurements[0].samples_s
    code = (
        "import sys; from commbench import api; api.load(sys.argv[1]).text(); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)]).returncode == 0


def test_a_batch_line_leaves_out_what_is_the_default_and_reads_back_the_same(
    tmp_path: Path,
) -> None:
    batch = Batch((1e-3, 2e-3), rank_behind_s=(0.0, 1e-6), throttled_s=0.0, launch=0, switches=2)
    folder = tmp_path / "new"
    run = Run("", HEADER, (Measurement(CASES[0], "ok", batches=(batch,)),), RunEnd("complete"))
    folder.mkdir()
    write_run(folder, run)
    line = json.loads((folder / JOURNAL).read_text().splitlines()[1])
    written = {"samples_s", "rank_behind_s", "throttled_s", "switches"}
    assert line.keys() == {"kind", "case", "digest", CHECKSUM} | written
    assert read_run(folder).measurements == run.measurements
    whole = [*encode_run(run)]  # as journals were written before
    whole[1] = json.loads(json.dumps(batch._asdict())) | whole[1]
    assert whole[1].keys() >= {*Batch._fields}
    assert decode_run(whole).measurements == run.measurements


ODD = (
    None, True, 0, 1, -1, 0.0, -0.0, 1.5, -1e-6, 1e-20, 1e308, float("inf"), 1 << 53, (1 << 53) + 1,
    "", "text", {}, [], [None], [True], [0], [0.0, 1e-6], [0.0, -1e-6], [0.0, 1e-20], [1, 0.5],
    [3, 5], [1e9], [float("inf")], ["a"], [[]],
)  # fmt: skip


@pytest.mark.parametrize("name", [*Batch._fields, "case", "digest", "absent"])
def test_the_quick_reader_accepts_and_gives_what_the_careful_one_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome(is_quick: bool) -> object:
        try:
            run = journal_reader._read(journal, is_quick).run
            return repr([[batch._asdict() for batch in m.batches] for m in run.measurements])
        except RecordsError:
            return None

    header_line, *_ = encode_run(Run("", HEADER, (), None))
    usual = {"kind": "batch", "samples_s": [1e-3, 0], "switches": 3, "rank_behind_s": [0.0, 1.0]}
    usual |= {"case": 0, "digest": CASES[0].digest}
    journal, taken = tmp_path / JOURNAL, []
    quickly = JournalReader.take_quickly
    monkeypatch.setattr(
        JournalReader,
        "take_quickly",
        lambda reader, line: taken.append(quickly(reader, line)) or taken[-1],
    )
    for value in ODD:
        lines = [header_line, usual, usual, usual | {name: value}, usual]
        journal.write_text(sealed(json.dumps(line) + "\n" for line in lines))
        assert outcome(is_quick=True) == outcome(is_quick=False)
    assert taken.count(True) >= 2 * len(ODD)


@pytest.mark.parametrize(
    "samples",
    ["[1, true]", "[1, false]", "[null]", "[1, NaN]", "[1e400]", "[[1]]", '["]"]', '{"a": [1]}',
     "[]", "[-1]", "[1e-20]", "[1e8]", "[0.0, -0.0]", "[1], \"samples_s\": [true]",
     "[1], \"\\u0073amples_s\": [2]", "[123456789012345678901234567890]", "[1,]", "5", "[1]]"],
)  # fmt: skip
def test_the_quick_reader_reads_odd_samples_as_the_careful_one_does(
    samples: str, tmp_path: Path
) -> None:
    def outcome(is_quick: bool) -> object:
        try:
            return journal_reader._read(journal, is_quick).run.measurements[0].samples_s
        except RecordsError:
            return None

    first, *_ = encode_run(Run("", HEADER, (), None))
    line = f'{{"kind": "batch", "samples_s": {samples}, "case": 0, "digest": "{CASES[0].digest}"}}'
    journal = tmp_path / JOURNAL
    journal.write_text(sealed([json.dumps(first) + "\n", line + "\n"]))
    assert outcome(is_quick=True) == outcome(is_quick=False)
