"""What a sweep finds: times, ties, ranges of sizes; from Python, on real ranks; what is refused."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from commands import start_command
from synthetic_sweep import SIZES, synthetic_sweep

import commbench
from commbench.analysis.nccl_log import SELECTIONS
from commbench.errors import RecordsError, UnavailableError, UsageError
from commbench.sweep.document import VIEW, document
from commbench.sweep.nccl_tuning import export_tuner
from commbench.sweep.result import COLUMNS, SweepResult, load_sweep
from commbench.units import format_known_times
from commbench.views.document import Items, Table

KIND = "all_reduce float32 sum in_place"
alike = pytest.mark.usefixtures("launches_alike")

PROGRAM = """
import json, os
import commbench
before = dict(os.environ)
result = commbench.sweep(
    env={"TORCH_GLOO_LAZY_INIT": ["0", "1"]}, op="barrier", sizes=1024, iters=3, rounds=1,
    nproc_per_node=2,
)
assert dict(os.environ) == before
again = commbench.load_sweep(result.path)
print(json.dumps([
    str(result.path), len(result.frame()), len(result.winners), result.failures,
    result.missing_rounds, result.points == again.points,
]))
"""


def test_a_sweep_from_python_returns_its_result(tmp_path: Path) -> None:
    ended = start_command(tmp_path, program=PROGRAM).finish()
    assert ended.code == 0, ended.err
    path, rows, winners, failures, missing, same = json.loads(ended.out)
    assert path.startswith("results/")
    assert path.endswith("-sweep")
    assert (rows, winners, failures, missing, same) == (2, 1, {}, 0, True)
    assert not list(tmp_path.glob("results/*/*.png"))


def test_the_frame_has_a_row_for_each_case_and_setting(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", lambda setting, _: 1.0 + setting)
    frame = commbench.load_sweep(tmp_path / "swept").frame()
    assert tuple(frame.columns) == COLUMNS
    assert frame["setting"].tolist() == ["cpu-mode=quiet"] * 4 + ["cpu-mode=plain"] * 4
    assert frame["place"].tolist() == ["best"] * 4 + [""] * 4
    assert frame["ratio"].isna().tolist() == [True] * 4 + [False] * 4
    slower = frame[4:]
    assert ((slower["ratio_ci_low"] < 2) & (slower["ratio_ci_high"] > 2)).all()
    assert (slower["time_us"] > slower["time_ci_low_us"]).all()


def test_a_case_without_a_valid_time_has_a_row_with_its_status(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "swept", statuses={(1, 2): {1 << 14: "wrong"}})
    frame = commbench.load_sweep(tmp_path / "swept").frame()
    wrong = frame[frame["status"] == "wrong"]
    assert wrong["size_bytes"].tolist() == [1 << 14]
    assert wrong[["time_us", "ratio"]].isna().all(axis=None)


def ranges_of(result: SweepResult) -> list[tuple[int, int, str, list[str]]]:
    return [(r.low_bytes, r.high_bytes, r.verdict, [s.name for s in r.best]) for r in result.ranges]


def tables_of(result: SweepResult) -> list[Table]:
    return [block for block in document(result).blocks if isinstance(block, Table)]


@alike
def test_two_settings_are_pooled_and_the_slower_one_is_told(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.9)[setting])
    result = load_sweep(tmp_path)
    (found,) = result.pooled
    ratio = found.pooled.ratio
    assert (found.setting.name, found.against.name) == ("cpu-mode=plain", "cpu-mode=quiet")
    assert 1.8 < ratio.ends[0] < 1.9 < ratio.ends[1] < 2
    assert ranges_of(result) == [(SIZES[0], SIZES[-1], "faster", ["cpu-mode=quiet"])]
    (sentence,) = document(result).answer
    assert sentence == (
        "For all_reduce, quiet is the fastest at 1K-1M (plain takes 1.90 times as long)."
    )


@alike
def test_settings_that_cannot_be_told_apart_are_tied(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.01)[setting])
    result = load_sweep(tmp_path)
    assert {row.place for row in result.rows} == {"best", "tied"}
    assert [found.verdict for found in result.ranges] == ["same"]
    assert [len(winner.tied) for winner in result.winners] == [1] * len(SIZES)


@alike
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
    assert [(w.kind, w.size_bytes, w.best, w.tied, w.undecided) for w in result.winners] == [
        (KIND, size, "cpu-mode=quiet", (), ("cpu-mode=plain",)) for size in SIZES
    ]
    assert {row[-2] for row in result.frame_rows()} == {"best", "undecided"}
    assert "Mark ?: undecided" in VIEW.write(result)


@alike
def test_the_fastest_of_three_settings_is_named_for_each_range_of_sizes(tmp_path: Path) -> None:
    def factor(setting: int, size: int) -> float:
        return (1.0 if size < 1 << 17 else 1.5, 1.3, 2.0)[setting]

    synthetic_sweep(tmp_path, factor, ["OMP_NUM_THREADS=1,2,4"], [])
    result = load_sweep(tmp_path)
    assert ranges_of(result) == [
        (1 << 10, 1 << 14, "faster", ["OMP_NUM_THREADS=1"]),
        (1 << 18, 1 << 20, "faster", ["OMP_NUM_THREADS=2"]),
    ]
    assert {each.ratio for point in result.points for each in point.times[:1] if each} == {None}
    assert document(result).answer == [
        "For all_reduce, OMP_NUM_THREADS=1 is the fastest up to 16K (OMP_NUM_THREADS=2 takes 1.30 "
        "times as long) and OMP_NUM_THREADS=2 from 256K on (OMP_NUM_THREADS=1 takes 1.15 times as "
        "long)."
    ]


@alike
def test_ranges_of_sizes_decide_what_single_rows_cannot(tmp_path: Path) -> None:
    sizes = [1 << k for k in range(10, 22)]
    generator = Random(1)
    synthetic_sweep(
        tmp_path, lambda setting, _: (1, 1.15)[setting] * generator.uniform(0.93, 1.07),
        rounds=4, sizes=sizes,
    )  # fmt: skip
    result = load_sweep(tmp_path)
    assert {row.place for row in result.rows} == {"best", "undecided", ""}
    assert ranges_of(result) == [(sizes[0], sizes[-1], "faster", ["cpu-mode=quiet"])]
    assert [found.decided for found in result.ranges] == [len(sizes)]


@alike
def test_a_range_is_undecided_where_most_of_its_sizes_are(tmp_path: Path) -> None:
    calls = Random(2)
    synthetic_sweep(
        tmp_path, lambda setting, size: 1.5 if setting and size == SIZES[0] else
        calls.choice((0.7, 1, 1.4)), rounds=4,
    )  # fmt: skip
    (found,) = load_sweep(tmp_path).ranges
    assert (found.decided, found.verdict) == (1, "undecided")


@alike
@pytest.mark.parametrize("seed", range(4))
def test_a_range_names_no_setting_that_a_row_shows_to_be_slower(tmp_path: Path, seed: int) -> None:
    generator = Random(seed)
    synthetic_sweep(
        tmp_path, lambda setting, _: (1, 1.02, 1.1)[setting] * generator.choice((1, 1, 1.03, 1.4)),
        ["OMP_NUM_THREADS=1,2,4"], [],
    )  # fmt: skip
    ranges = load_sweep(tmp_path).ranges
    assert sum(len(found.points) for found in ranges) == len(SIZES)
    for found in ranges:
        assert found.best
        assert all({*found.best} <= {*point.not_slower} for point in found.points)


@alike
def test_few_settings_have_a_column_each_and_many_a_row_each(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path / "few", lambda setting, _: 1 + setting, operations=["broadcast"])
    times, *_ = tables_of(load_sweep(tmp_path / "few"))
    assert [column.heading for column in times.columns[:4]] == [
        "size", "quiet", "plain", "plain /\nquiet"
    ]  # fmt: skip
    env = ["NCCL_ALGO=RING,TREE", "NCCL_PROTO=LL,LL128,Simple", "NCCL_MIN_NCHANNELS=2,-"]
    synthetic_sweep(tmp_path / "many", lambda setting, _: 2 - 0.1 * setting, env, [])
    result = load_sweep(tmp_path / "many")
    times, ranges, _ = tables_of(result)
    assert (len(times.rows), len(times.brief or ())) == (12 * 4, 4)
    assert (len(ranges.rows), len(ranges.brief or ())) == (11, 2)
    assert max(map(len, VIEW.write(result).splitlines())) <= 100


def test_json_has_every_time_and_says_what_is_not_known(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, statuses={(1, 3): {1 << 14: "failed"}}, missing={(0, 1)})
    result = load_sweep(tmp_path)
    found = json.loads(VIEW.write(result, "json"))
    assert found["schema"] == 1
    assert (found["missing_rounds"], len(found["rows"]), len(found["winners"])) == (1, 8, 3)
    assert [each["rounds"] for each in found["settings"]] == [2, 3]
    (failed,) = [row for row in found["rows"] if row["status"] == "failed"]
    assert (failed["size_bytes"], failed["time_s"], failed["ratio"]) == (1 << 14, None, None)
    for row, own in zip(found["rows"], result.rows, strict=True):
        if own.timed:
            assert row["time_s"]["value"] == pytest.approx(own.timed.time.value, rel=1e-6)
    times, *_ = tables_of(result)
    assert [column.cell(times.rows[1]) for column in times.columns[1:3]][1] == "failed"


@pytest.mark.parametrize(("rounds", "is_few"), [(1, True), (2, True), (3, False)])
def test_few_rounds_are_said_to_be_too_few(tmp_path: Path, rounds: int, is_few: bool) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, rounds=rounds)
    blocks = document(load_sweep(tmp_path)).blocks
    texts = [text for block in blocks if isinstance(block, Items) for text in block.texts]
    assert any("too few to distinguish" in text for text in texts) == is_few


@alike
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
    result = load_sweep(tmp_path)
    times, *_ = tables_of(result)
    selected_column = times.columns[-1]
    assert [selected_column.cell(point) for point in times.rows] == (
        ["TREE LL x2"] * 2 + ["RING LL x24"] * 2
    )
    path = export_tuner(result.points, result.selections or {}, tmp_path)
    assert path.read_text().splitlines() == [
        "allreduce,0,262143,tree,ll,2,1,2,-1,-1",
        "allreduce,262144,9223372036854775807,ring,ll,24,1,2,-1,-1",
    ]


def test_times_have_the_digits_that_their_intervals_support_and_keep_their_order() -> None:
    noisy, exact = (3582.5e-6, 50e-6, 7800e-6), (274.13e-6, 274.0e-6, 274.3e-6)
    assert format_known_times([exact, noisy]) == ["274.1 us", "3580 us"]
    near = [(21.34e-6, 21.2e-6, 21.5e-6), (21.44e-6, 15e-6, 29e-6)]
    assert format_known_times(near) == ["21.34 us", "21.4 us"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"vary": {"cpu_mode": "quiet"}}, UsageError, "there is only one setting"),
        ({"vary": {"iters": [1, 2]}}, UsageError, "--vary iters: this option cannot be"),
        ({"vary": {"nproc_per_node": ["two", 2]}}, UsageError, "--nproc-per-node cannot be 'two'"),
        ({"env": {"A B": ["1", "2"]}}, UsageError, "'A B' cannot be an environment variable"),
        ({"env": {"OMP_NUM_THREADS": [1, 2]}, "launches": 2}, UsageError, "--launches cannot be"),
        ({"env": {"OMP_NUM_THREADS": [1, 2]}, "rounds": 0}, UsageError, "--rounds is 0"),
        ({"env": {"OMP_NUM_THREADS": [1, 2]}, "export": "nccl-tuner", "backend": "gloo"},
         UnavailableError, "--export nccl-tuner needs the backend nccl"),
    ],
)  # fmt: skip
def test_what_is_no_sweep_is_refused_before_anything_is_measured(
    options: dict[str, Any], error: type[Exception], message: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        commbench.sweep(**options)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match="there is no sweep"):
        commbench.load_sweep(tmp_path / "nowhere")
