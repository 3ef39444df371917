"""What a sweep finds: times, ties, ranges of sizes; from Python, on real ranks; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from commands import start_command
from synthetic import in_memory, plan, steady
from synthetic_sweep import SIZES, synthetic_sweep

import commbench
from commbench.analysis.nccl_log import SELECTIONS, TunerRange, selection_key, tuner_lines
from commbench.analysis.rows import make_row
from commbench.answers.sweep import runner
from commbench.answers.sweep.document import VIEW, document
from commbench.answers.sweep.ranking import SettingTime, SweepPoint, rank_settings
from commbench.answers.sweep.result import (
    COLUMNS,
    SweepResult,
    export_tuner,
    load_sweep,
    make_tuner_ranges,
    require_correct,
)
from commbench.answers.sweep.settings import (
    Setting,
    make_settings,
    make_value,
    order_rounds,
    parse_values,
    require_read,
    short_names,
)
from commbench.errors import RecordsError, UnavailableError, UsageError, WrongResultError
from commbench.results.schema import FAILED, OK, WRONG, Measurement
from commbench.stats import Estimate
from commbench.views.document import Table, Text

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
        "all_reduce 1K-1M: quiet is the fastest; plain takes 1.90 (1.88 … 1.92) times as long."
    )


@alike
def test_settings_that_cannot_be_told_apart_are_tied(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.01)[setting])
    result = load_sweep(tmp_path)
    assert {row.place for row in result.rows} == {"best", "tied"}
    assert [found.verdict for found in result.ranges] == ["same"]
    assert [len(winner.tied) for winner in result.winners] == [1] * len(SIZES)


@alike
def test_a_setting_that_is_far_off_in_some_rounds_is_undecided_and_not_tied(tmp_path: Path) -> None:
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
    assert {each.ratio for point in result.points for each in point.rows[:1] if each} == {None}
    assert document(result).answer == [
        "all_reduce 1K-16K: OMP_NUM_THREADS=1 is the fastest; OMP_NUM_THREADS=2 takes 1.30 "
        "(1.29 … 1.31) times as long.",
        "all_reduce 256K-1M: OMP_NUM_THREADS=2 is the fastest; OMP_NUM_THREADS=1 takes 1.15 "
        "(1.13 … 1.18) times as long.",
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
def test_a_terminal_shows_of_many_settings_the_best(tmp_path: Path) -> None:
    env = ["NCCL_ALGO=RING,TREE", "NCCL_PROTO=LL,LL128,Simple", "NCCL_MIN_NCHANNELS=2,-"]
    synthetic_sweep(tmp_path, lambda setting, _: 2 - 0.1 * setting, env, [])
    result = load_sweep(tmp_path)
    times, ranges, *_ = tables_of(result)
    assert (len(times.rows), len(times.brief or ())) == (12 * 4, 4)
    assert (len(ranges.rows), len(ranges.brief or ())) == (11, 2)
    assert max(map(len, VIEW.write(result).splitlines())) <= 100


@pytest.mark.parametrize(("rounds", "is_few"), [(1, True), (2, True), (3, False)])
def test_few_rounds_are_said_to_be_too_few(tmp_path: Path, rounds: int, is_few: bool) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, rounds=rounds)
    blocks = document(load_sweep(tmp_path)).blocks
    texts = [block.text for block in blocks if isinstance(block, Text)]
    assert any("--rounds 3 or more" in text for text in texts) == is_few


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
    assert {row.selection.algorithm for row in result.rows if row.selection} == {"RING", "TREE"}
    path = export_tuner(result.compared, tmp_path)
    assert path.read_text().splitlines() == [
        "allreduce,0,262143,tree,ll,2,1,2,-1,-1",
        "allreduce,262144,9223372036854775807,ring,ll,24,1,2,-1,-1",
    ]


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


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2}, {"rounds": 0}, {"tolerance": 11}, {"settings": []}, {"backends": [1]},
        {"settings": [{"variables": [["A", 1]], "options": []}] * 2},
        {"settings": [{"variables": "AB", "options": []}] * 2},
        {"arguments": [["a\0b"], []]}, {"environments": [[["A B", "1"]], []]}, {"arguments": [[]]},
    ],
)  # fmt: skip
def test_a_damaged_description_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    synthetic_sweep(tmp_path / "swept", rounds=1)
    path = tmp_path / "swept" / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    with pytest.raises(RecordsError, match="describes no sweep"):
        load_sweep(tmp_path / "swept")


def test_the_tuner_gets_the_direct_call_of_a_size_and_of_several_the_first() -> None:
    setting, _ = make_settings({"NCCL_ALGO": ("RING", "TREE")}, {})
    asked = plan(
        backend="nccl", device="cuda", sizes=(1024, 4096), forms=("async",),
        dtypes=("float32", "bfloat16"),
    )  # fmt: skip
    header, found = in_memory("a", [steady(1e-4)]).header, {}
    header = header._replace(environment={SELECTIONS: found})
    points = []
    for case in sorted(asked.cases(), key=lambda case: case.form):  # async first
        algorithm = {"async": "TREE", "direct": "NVLS"}[case.form]
        is_first = (case.form, case.dtype) == ("direct", "float32")
        found[selection_key(case)] = [["RING" if is_first else algorithm, "LL", "2"]]
        row = make_row(header, Measurement(case=case, status="ok"))
        time = SettingTime(setting, row, Estimate(1e-4, 1e-4, 1e-4), None, "best")
        points.append(SweepPoint(case.title, case.size_bytes, (time,)))
    assert len(points) == 8
    assert make_tuner_ranges(points) == (TunerRange("all_reduce", 0, 4096, "ring", "ll", 2),)


def test_a_tuner_configuration_names_its_channels_and_leaves_no_size_out() -> None:
    lines = tuner_lines(
        [
            TunerRange("all_reduce", 0, 65535, "tree", "ll", 2),
            TunerRange("all_reduce", 65536, 1 << 30, "ring", "simple", 24),
            TunerRange("all_gather", 0, 1 << 30, "ring", "simple", 8),
        ],
        nodes=1,
        ranks=8,
    )
    assert lines == [
        "allreduce,0,65535,tree,ll,2,1,8,-1,-1",
        "allreduce,65536,9223372036854775807,ring,simple,24,1,8,-1,-1",
        "allgather,0,9223372036854775807,ring,simple,8,1,8,-1,-1",
    ]
    assert all(len(line) <= 256 for line in lines)


def parse_settings(variables: list[str], options: list[str]) -> tuple[Setting, ...]:
    return make_settings(parse_values(variables, "env"), parse_values(options, "vary"))


def test_every_combination_is_a_setting_in_the_order_given() -> None:
    found = parse_settings(["NCCL_ALGO=RING,TREE", "NCCL_PROTO=LL,-"], ["dtype=float32,bfloat16"])
    assert [setting.name for setting in found] == [
        f"NCCL_ALGO={algorithm} {protocol} dtype={dtype}"
        for algorithm in ("RING", "TREE")
        for protocol in ("NCCL_PROTO=LL", "NCCL_PROTO unset")
        for dtype in ("float32", "bfloat16")
    ]


def test_a_name_given_again_adds_values_and_a_whole_value_keeps_its_commas() -> None:
    found = parse_settings(["A=1", "A:=allreduce:tree,ring;broadcast:ring", "A=1,2"], [])
    assert [setting.variables for setting in found] == [
        (("A", "1"),),
        (("A", "allreduce:tree,ring;broadcast:ring"),),
        (("A", "2"),),
    ]


@pytest.mark.parametrize(
    ("variables", "options", "message"),
    [
        (["A=1"], [], "there is only one setting: nothing to compare"),
        ([], [], "there is only one setting: nothing to compare"),
        ([], ["backend=gloo,gloo"], "there is only one setting: nothing to compare"),
        (["A"], [], "--env 'A' is not NAME=VALUE,VALUE"),
        (["A="], [], "--env 'A=' is not NAME=VALUE,VALUE"),
        (["A=1,,2"], [], "--env 'A=1,,2' has an empty value"),
        (["1A=1,2"], [], "--env '1A=1,2' is not NAME=VALUE,VALUE"),
        ([], ["iters=1,2"], "--vary iters: this option cannot be varied"),
        (["A=" + ",".join(map(str, range(257)))], [], "these make 257 settings, more than 256"),
    ],
)
def test_what_is_no_sweep_is_refused(
    variables: list[str], options: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_settings(variables, options)
    assert refused.value.message == message
    assert refused.value.hint


def test_the_name_of_a_setting_makes_a_folder_and_nothing_else() -> None:
    setting = Setting((("A", "../../etc"), ("B", "x y;z")))
    assert setting.slug == "A=..+..+etc+B=x+y+z-f6028a88"
    assert "/" not in setting.slug


def test_every_round_holds_every_setting_once_in_an_order_of_its_own() -> None:
    settings = parse_settings(["A=1,2,3,4,5"], [])
    order = order_rounds(settings, 20, seed=1)
    by_round = [[s for number, s in order if number == r] for r in range(1, 21)]
    assert all(sorted(each) == sorted(settings) for each in by_round)
    assert len({tuple(each) for each in by_round}) > 10
    assert order == order_rounds(settings, 20, seed=1) != order_rounds(settings, 20, seed=2)


@pytest.mark.parametrize(
    ("variable", "backend", "message", "hint"),
    [
        ("NCCL_ALGO", "gloo", "gloo does not read NCCL_ALGO", "choose the --backend"),
        ("GLOO_SOCKET_IFNAME", "nccl", "nccl does not read GLOO_SOCKET_IFNAME", "choose"),
        ("NCCL_AGLO", "nccl", "--env NCCL_AGLO: nothing in torch", "did you mean NCCL_ALGO?"),
        ("FOO", "gloo", "--env FOO: nothing in torch", "--force sweeps it anyway"),
    ],
)
def test_a_variable_that_is_not_read_is_refused(
    variable: str, backend: str, message: str, hint: str
) -> None:
    settings = parse_settings([f"{variable}=1,2"], [])
    with pytest.raises(UsageError) as refused:
        require_read(settings, backend)
    assert refused.value.message.startswith(message)
    assert refused.value.hint.startswith(hint)
    require_read(parse_settings(["OMP_NUM_THREADS=1,2"], []), backend)


@pytest.mark.parametrize(
    ("variables", "options", "names"),
    [
        ([], ["cpu-mode=quiet,plain"], ["quiet", "plain"]),
        (["NCCL_PROTO=LL,-"], [], ["LL", "NCCL_PROTO unset"]),
        (["A=1,2"], ["cpu-mode=quiet"], ["A=1", "A=2"]),
        (["A=on,off", "B=on,no"], [], ["A=on B=on", "A=on B=no", "A=off B=on", "A=off B=no"]),
        (
            [],
            ["nccl-option=-,cta_policy=zero", "nccl-option:=a=1,b=2"],
            ["nccl-option unset", "cta_policy=zero", "a=1,b=2"],
        ),
        (["A=RING,TREE", "B=2,4"], [], ["RING B=2", "RING B=4", "TREE B=2", "TREE B=4"]),
    ],
)
def test_a_short_name_holds_what_differs(
    variables: list[str], options: list[str], names: list[str]
) -> None:
    settings = parse_settings(variables, options)
    assert list(short_names(settings).values()) == names
    assert list(short_names(settings)) == list(settings)


NEW, OLD = (2, 29, 7), (2, 21, 5)
ALL = ("all_reduce", "all_gather", "broadcast", "all_to_all")


@pytest.mark.parametrize(
    ("value", "version", "expected", "applies"),
    [
        ("TREE", NEW, "allreduce:tree", ("all_reduce",)),
        ("RING", NEW, "allreduce:ring;allgather:ring;broadcast:ring", ALL[:3]),
        ("Tree,Ring", NEW, "allreduce:tree,ring;allgather:ring;broadcast:ring", ALL[:3]),
        ("PAT", NEW, "allgather:pat", ("all_gather",)),
        ("NVLS_TREE", NEW, "allreduce:nvlstree", ("all_reduce",)),
        ("TREE", OLD, "TREE", ("all_reduce",)),
        ("allreduce:tree", NEW, "allreduce:tree", ALL),
        ("^ring", NEW, "^ring", ALL),
        ("SPIRAL", NEW, "SPIRAL", ALL),
    ],
)
def test_a_value_is_written_so_that_it_harms_no_other_function(
    value: str, version: tuple[int, ...], expected: str, applies: tuple[str, ...]
) -> None:
    assert make_value(ALL, value, version) == (expected, applies)


def result_of(
    folder: Path, statuses: dict[tuple[int, int], dict[int, str]], rounds: int = 3
) -> SweepResult:
    """The result of a made-up sweep; `statuses` by setting and round, then by size."""
    synthetic_sweep(
        folder, lambda setting, _: 1.0 + setting, ["A=1,2"], [], rounds=rounds, statuses=statuses
    )
    return load_sweep(folder)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_case_that_is_wrong_in_any_round_is_wrong_and_never_ranked(
    tmp_path: Path, number: int
) -> None:
    result = result_of(tmp_path, {(0, number): {1 << 14: WRONG}})
    assert result.settings[0].run and result.settings[1].run
    assert [m.status for m in result.settings[0].run.measurements] == [OK, WRONG, OK, OK]
    assert [m.status for m in result.settings[1].run.measurements] == [OK] * 4
    points = result.points
    assert [p.size_bytes for p in points if p.is_compared] == [1 << 10, 1 << 18, 1 << 20]
    assert rank_settings(points)[0].won == 3
    with pytest.raises(WrongResultError, match=r"under A=1 all_reduce.*16.* is wrong"):
        require_correct(result)


def test_a_case_that_failed_in_a_later_round_is_not_ranked_and_is_named(tmp_path: Path) -> None:
    result = result_of(tmp_path, {(1, 3): {1 << 20: FAILED}})
    assert result.settings[1].run
    assert [m.status for m in result.settings[1].run.measurements] == [OK, OK, OK, FAILED]
    assert [p.size_bytes for p in result.compared] == [1 << 10, 1 << 14, 1 << 18]
    require_correct(result)
    assert [*result.failures] == ["A=2"]
    assert result.failures["A=2"].startswith("all_reduce")


def test_batches_of_all_rounds_are_launches_of_one_run(tmp_path: Path) -> None:
    run = result_of(tmp_path, {}).settings[1].run
    assert run and run.name == "A=2"
    for measurement in run.measurements:
        assert [batch.launch for batch in measurement.batches] == [0] * 3 + [1] * 3 + [2] * 3


def test_a_round_that_is_missing_leaves_the_others_their_numbers(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, missing={(0, 2)})
    first, second = load_sweep(tmp_path).settings
    assert (first.rounds, second.rounds) == (2, 3)
    assert first.run and second.run
    launches = [{b.launch for b in each.run.measurements[0].batches} for each in (first, second)
                if each.run]  # fmt: skip
    assert launches == [{0, 2}, {0, 1, 2}]


def test_every_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_sweep(tmp_path)
    read: list[Path] = []
    read_run = runner.read_run
    monkeypatch.setattr(runner, "read_run", lambda path: (read.append(path), read_run(path))[1])
    load_sweep(tmp_path)
    assert len(read) == len(set(read)) == 6


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("rank 0 could not join a gloo group: [enforce fail at /__w/pytorch/pytorch/third_party/"
         "gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth7",
         "rank 0 could not join a gloo group: Unable to find address for: eth7"),
        ("[../torch/csrc/distributed/c10d/Socket.cpp:12] it failed", "it failed"),
        ("[enforce fail at /a/b.cc:8] ifa != nullptr.", "ifa != nullptr."),
        ("rank 1 was killed by SIGKILL", "rank 1 was killed by SIGKILL"),
    ],
)  # fmt: skip
def test_a_reason_is_shown_without_places_in_sources(message: str, plain: str) -> None:
    assert runner.plain_reason(message) == plain
