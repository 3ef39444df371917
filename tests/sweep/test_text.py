"""The answer of a sweep: sentences, a table that fits, ties, and what could not be measured."""

import re
from pathlib import Path
from random import Random

import pytest
from synthetic_sweep import SIZES, synthetic_sweep

from commbench.analysis.nccl_log import SELECTIONS
from commbench.sweep.result import load_sweep
from commbench.sweep.sentences import kind_sentences
from commbench.sweep.session import export_tuner
from commbench.sweep.text import sweep_text
from commbench.units import format_known_times, parse_size

pytestmark = pytest.mark.usefixtures("launches_alike")

KIND = "all_reduce float32 sum in_place"


@pytest.fixture(autouse=True)
def _narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def lines_of(folder: Path) -> list[str]:
    """The printed lines; none is wider than 100 columns."""
    lines = sweep_text(load_sweep(folder)).splitlines()
    assert max(map(len, lines)) <= 100
    return lines


def table_of(folder: Path) -> list[list[str]]:
    """The words of each row of the first table."""
    lines = lines_of(folder)
    begin = next(i for i, line in enumerate(lines) if line.startswith("  ──")) + 1
    return [line.split() for line in lines[begin : lines.index("", begin)]]


def test_two_settings_make_one_sentence_and_a_row_for_each_size(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.9)[setting])
    lines = lines_of(tmp_path)
    assert lines[0].endswith("(quiet, plain): 2 settings, 3 rounds, 2 gloo ranks on cpu.")
    assert lines[1].startswith("all_reduce 1K-1M: plain takes 1.90 times as long as quiet (1.")
    rows = table_of(tmp_path)
    assert [row[:2] for row in rows] == [
        ["1", "KiB"], ["16", "KiB"], ["256", "KiB"], ["1", "MiB"]
    ]  # fmt: skip
    for row in rows:
        assert row[4] == "*", "the fastest is marked"
        assert len(row) == 9, "the other one is not"
        low, high = map(float, row[8].split("-"))
        assert 1.7 < low <= float(row[7]) <= high < 2.1
    assert max(map(len, lines[3:9])) <= 80


def test_no_setting_is_compared_with_itself(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, vary=["cpu-mode=quiet,plain,batch"])
    text = sweep_text(load_sweep(tmp_path))
    assert "plain /" in text and "batch /" in text
    assert "quiet /" not in text
    result = load_sweep(tmp_path)
    assert {each.ratio for point in result.points for each in point.times[:1] if each} == {None}


def test_settings_that_cannot_be_told_apart_are_tied(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.01)[setting])
    (sentence,) = kind_sentences(load_sweep(tmp_path))
    assert re.search(r": no difference above [1-5] %\.$", sentence)
    for row in table_of(tmp_path):
        assert sorted({"*", "="} & set(row)) == ["*", "="]


def test_a_setting_that_is_far_off_in_some_rounds_is_undecided_and_not_tied(
    tmp_path: Path,
) -> None:
    calls: dict[int, int] = {}

    def factor(setting: int, size: int) -> float:
        if not setting:
            return 1.0
        calls[size] = calls.get(size, 0) + 1
        return (1, 20, 25)[calls[size] % 3]

    synthetic_sweep(tmp_path, factor)
    result = load_sweep(tmp_path)
    for row in table_of(tmp_path):
        assert sorted({"*", "=", "?"} & set(row)) == ["*", "?"]
    assert [(w.best, w.tied, w.undecided) for w in result.winners] == [
        ("cpu-mode=quiet", (), ("cpu-mode=plain",))
    ] * len(SIZES)
    assert {row[-2] for row in result.frame_rows()} == {"best", "undecided"}
    assert "Mark ?: undecided; it may be as fast" in " ".join(sweep_text(result).split())


def test_each_range_of_sizes_has_its_sentence_where_the_faster_one_changes(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda s, size: 1.5 if (s == 0) == (size < 1 << 17) else 1)
    sentences = kind_sentences(load_sweep(tmp_path))
    ranges = [re.match(r"all_reduce (\S+): (\w+) takes ([\d.]+) times", s) for s in sentences]
    found = {match[1]: (match[2], float(match[3])) for match in ranges if match}
    (first, second), names = found.values(), {name for name, _ in found.values()}
    assert list(found) == ["1K-16K", "256K-1M"]
    assert len(names) == 1
    assert {round(first[1], 1), round(second[1], 1)} == {0.7, 1.5}


def test_of_three_settings_the_fastest_is_named_by_range_and_others_against_the_first(
    tmp_path: Path,
) -> None:
    def factor(setting: int, size: int) -> float:
        return (1.0 if size < 1 << 17 else 1.5, 1.3, 2.0)[setting]

    synthetic_sweep(tmp_path, factor, ["OMP_NUM_THREADS=1,2,4"], [])
    first, *others = kind_sentences(load_sweep(tmp_path))
    assert first == (
        "all_reduce: OMP_NUM_THREADS=1 is the fastest at 1K-16K; OMP_NUM_THREADS=2 is the fastest "
        "at 256K-1M."
    )
    assert all(" times as long as OMP_NUM_THREADS=" in sentence for sentence in others)
    lines = lines_of(tmp_path)
    headings = [line.split() for line in lines if line.startswith("     size ")]
    assert headings == [["size", "1", "2", "4"], ["size", "1", "interval", "1", "interval"]]
    assert max(len(line) for line in lines if line.startswith("  ")) <= 80


def test_several_variables_fold_to_the_fastest_setting_and_the_file_has_all(tmp_path: Path) -> None:
    env = ["NCCL_ALGO=RING,TREE", "NCCL_PROTO=LL,LL128,Simple", "NCCL_MIN_NCHANNELS=2,-"]
    synthetic_sweep(tmp_path, lambda setting, _: 2 - 0.1 * setting, env, [])
    rows = table_of(tmp_path)
    assert [row[2:5] for row in rows] == [["TREE", "Simple", "unset"]] * 4
    result = load_sweep(tmp_path)
    assert "sweep.csv has the times under all settings" in " ".join(sweep_text(result).split())
    assert len(list(result.frame_rows())) == 12 * 4
    winner, *others = kind_sentences(result)
    assert winner == "all_reduce: TREE Simple NCCL_MIN_NCHANNELS unset is the fastest at 1K-1M."
    assert [" takes " in sentence for sentence in others] == [True, True, False]
    assert others[-1].endswith("the other 9 settings are between these two.")


def test_a_wide_terminal_shows_more_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, ["OMP_NUM_THREADS=1,2,3,4,5,6"], [])
    assert "Each row has the setting with the shortest time" in sweep_text(load_sweep(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    assert [row.count("us") + row.count("ms") for row in table_of(tmp_path)] == [6] * 4


def test_operations_share_a_table_and_have_a_sentence_each(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, operations=["broadcast", "barrier"])
    lines, sentences = lines_of(tmp_path), kind_sentences(load_sweep(tmp_path))
    kinds = [sentence.partition(":")[0] for sentence in sentences]
    assert kinds == ["broadcast 1K-1M", "barrier"]
    assert sum(line.startswith("  ──") for line in lines) == 1
    assert lines.count("  barrier") == 1
    assert any(line.startswith("barrier: plain takes 2.0") for line in lines)


@pytest.mark.parametrize(
    ("rounds", "note"),
    [(1, "One round is too few"), (2, "2 rounds are too few"), (3, "")],
)
def test_few_rounds_are_said_to_be_too_few(tmp_path: Path, rounds: int, note: str) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, rounds=rounds)
    text = sweep_text(load_sweep(tmp_path))
    assert ("too few" in text) == bool(note)
    assert note in text


def test_what_was_not_timed_says_why_in_its_cell(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, statuses={(1, 3): {1 << 14: "failed"}}, missing={(0, 1)})
    rows = table_of(tmp_path)
    assert rows[1][-1] == "failed"
    text = sweep_text(load_sweep(tmp_path))
    assert "Failed:\n  cpu-mode=plain: all_reduce" in text


def test_the_winner_of_each_size_is_data(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, size: 1.5 if setting and size > 1 << 17 else 1)
    winners = load_sweep(tmp_path).winners
    assert [(w.size_bytes, w.kind) for w in winners] == [
        (size, KIND) for size in (1 << 10, 1 << 14, 1 << 18, 1 << 20)
    ]
    assert [len(w.tied) for w in winners] == [1, 1, 0, 0]
    assert {w.best for w in winners[2:]} == {"cpu-mode=quiet"}


def test_what_nccl_selected_under_the_fastest_setting_is_a_column_and_an_export(
    tmp_path: Path,
) -> None:
    environments = {}
    for setting, (algorithm, channels) in enumerate((("RING", 23), ("TREE", 1))):
        selected = [[algorithm, "LL", str(channels + 1)]]
        environments[setting] = {SELECTIONS: {f"AllReduce {size}": selected for size in SIZES}}
    synthetic_sweep(
        tmp_path, lambda setting, size: 1.5 if (setting == 0) == (size < 1 << 17) else 1.0,
        ["NCCL_ALGO=RING,TREE"], [], backend="nccl", environments=environments,
    )  # fmt: skip
    rows = table_of(tmp_path)
    assert [row[-3:] for row in rows] == [["TREE", "LL", "x2"]] * 2 + [["RING", "LL", "x24"]] * 2
    assert export_tuner(load_sweep(tmp_path)).read_text().splitlines() == [
        "allreduce,0,262143,tree,ll,2,1,2,-1,-1",
        "allreduce,262144,9223372036854775807,ring,ll,24,1,2,-1,-1",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_no_sentence_names_another_fastest_setting_than_the_table(
    tmp_path: Path, seed: int
) -> None:
    generator = Random(seed)
    synthetic_sweep(
        tmp_path, lambda setting, _: (1, 1.02, 1.1)[setting] * generator.choice((1, 1, 1.03, 1.4)),
        ["OMP_NUM_THREADS=1,2,4"], [],
    )  # fmt: skip
    result = load_sweep(tmp_path)
    settings = {name: setting for setting, name in result.names.items()}
    first, *pooled = kind_sentences(result)
    claims = re.findall(r"(OMP_NUM_THREADS=\d) is the fastest at (\S+?)[;.]", first)
    for name, sizes in claims:
        low, _, high = sizes.partition("-")
        extent = range(parse_size(low), parse_size(high or low) + 1)
        for point in result.points:
            if point.size_bytes in extent:
                assert point.not_slower == (settings[name],)
    candidates = re.findall(r"OMP_NUM_THREADS=\d", first.partition("may be one of")[2])
    assert claims or candidates or "equally fast" in first or " of " in first
    if "at 1K-1M; it may be" in first:
        slower = [s.split()[2] for s in pooled if ": slower" in s]
        assert not set(slower) & set(candidates)


def test_times_have_the_digits_that_their_intervals_support_and_keep_their_order() -> None:
    noisy, exact = (3582.5e-6, 50e-6, 7800e-6), (274.13e-6, 274.0e-6, 274.3e-6)
    assert format_known_times([exact, noisy]) == ["274.1 us", "3580 us"]
    near = [(21.34e-6, 21.2e-6, 21.5e-6), (21.44e-6, 15e-6, 29e-6)]
    assert format_known_times(near) == ["21.34 us", "21.4 us"]


def test_the_folded_table_explains_its_ratios_and_shows_no_bound_of_0(
    tmp_path: Path,
) -> None:
    env = ["NCCL_ALGO=RING,TREE", "NCCL_PROTO=LL,LL128,Simple"]
    synthetic_sweep(tmp_path, lambda setting, _: 2 - 0.1 * setting, env, [])
    text = " ".join(sweep_text(load_sweep(tmp_path)).split())
    assert "Both ratios are times over that time" in text
    assert "first setting, RING LL." in text
    assert "Mark *" not in text
