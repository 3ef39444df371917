"""What a sweep finds: times, ties, ranges of sizes; from Python, on real ranks; what is refused."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from itertools import cycle
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
from commbench.answers.sweep.plot import sweep_pictures
from commbench.answers.sweep.ranking import SettingTime, SweepPoint, rank_settings
from commbench.answers.sweep.result import (
    COLUMNS,
    SweepResult,
    export_tuner,
    load_sweep,
    make_tuner_ranges,
    require_correct,
)
from commbench.answers.sweep.sentences import answers
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
from commbench.results import rounds
from commbench.results.schema import FAILED, OK, WRONG, Measurement
from commbench.stats import Estimate
from commbench.views.document import Table
from commbench.views.pictures import Curves

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
    assert frame["verdict"].tolist() == ["fastest"] * 4 + ["slower"] * 4
    assert frame["ratio"].isna().tolist() == [True] * 4 + [False] * 4
    slower = frame[4:]
    assert ((slower["ratio_ci_low"] < 2) & (slower["ratio_ci_high"] > 2)).all()
    assert (slower["time_us"] > slower["time_ci_low_us"]).all()


def ranges_of(result: SweepResult) -> list[tuple[int, int, str, list[str]]]:
    return [(r.low_bytes, r.high_bytes, r.verdict, [s.name for s in r.best]) for r in result.ranges]


@alike
def test_two_settings_are_pooled(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: (1, 1.9)[setting])
    result = load_sweep(tmp_path)
    (found,) = result.pooled
    low, high = found.pooled.ratio.ends
    assert (found.setting.name, found.against.name) == ("cpu-mode=plain", "cpu-mode=quiet")
    assert 1.8 < low < 1.9 < high < 2
    assert ranges_of(result) == [(SIZES[0], SIZES[-1], "faster", ["cpu-mode=quiet"])]


def crossing(setting: int, size: int) -> float:
    return (1.0 if size < 1 << 17 else 1.5, 1.3, 2.0)[setting]


def unsure(*sizes: int) -> Callable[[int, int], float]:
    """The second setting is twice as fast, but for these sizes: there it is hardly slower."""
    rounds = cycle((0.95, 1.04, 1.13))
    return lambda setting, size: (
        next(rounds) if size in sizes and setting == 1 else (1.0, 0.5, 4.0)[setting]
    )


@alike
@pytest.mark.parametrize(
    ("factor", "values", "sizes", "answer"),
    [
        (lambda setting, _: (1, 1.9)[setting], "on,off", SIZES,
         "1K-1M: on is the fastest, off takes 1.90 (1.88 … 1.91) times as long."),
        (lambda setting, _: (1, 1.01)[setting], "on,off", SIZES,
         "1K-1M: on and off are equally fast."),
        (lambda setting, _: (1, 1.01, 3)[setting], "on,off,auto", SIZES,
         "1K-1M: on and off are equally fast, auto takes 3.00 (2.98 … 3.01) times as long."),
        (crossing, "a,b,c", SIZES, "1K-16K: a is the fastest, b takes 1.30 (1.28 … 1.31) times "
         "as long, c 2.00 (1.99 … 2.01) times; 256K-1M: b is the fastest, a takes 1.16 "
         "(1.14 … 1.17) times as long, c 1.54 (1.53 … 1.56) times."),
        (unsure(SIZES[0], SIZES[3]), "on,off", SIZES,
         "16K-256K: off is the fastest, on takes 2.01 (1.87 … 2.15) times "
         "as long; 1K and 1M: undecided."),
        (unsure(SIZES[1]), "on,off", SIZES,
         "1K-1M: off is the fastest, on takes 1.97 (1.62 … 2.04) times as long, 0.97 to 2.00 times "
         "by size."),
        (unsure(SIZES[0], SIZES[3]), "on,off,auto", SIZES,
         "16K-256K: off is the fastest, on takes 2.01 (1.87 … 2.15) times "
         "as long, auto 8.01 (7.50 … 8.55) times; 1K and 1M: undecided between on and off."),
        (lambda setting, size: 1 + (setting + size.bit_length()) % 5, "a,b,c,d,e",
         [1 << k for k in range(10, 21)],
         "1K, 32K and 1M: e is the fastest, a takes 2.00 (1.99 … 2.02) times as long, the others "
         "3.01 (2.98 … 3.03) to 5.00 (4.94 … 5.06) times; 2K and 64K: d is the fastest, e takes "
         "2.00 (1.99 … 2.02) times as long, the others 3.00 (2.98 … 3.03) to 5.01 (4.97 … 5.05) "
         "times; 4K and 128K: c is the fastest, d takes 2.00 (1.99 … 2.02) times as long, the "
         "others 3.00 (2.97 … 3.04) to 5.01 (4.95 … 5.07) times; 4 more sizes."),
    ],
)  # fmt: skip
def test_the_answer_and_the_picture_say_what_is_the_fastest_at_which_sizes(
    tmp_path: Path, factor: Any, values: str, sizes: Sequence[int], answer: str
) -> None:
    synthetic_sweep(tmp_path, factor, [f"A={values}"], [], sizes=sizes)
    result = load_sweep(tmp_path)
    assert answers(result) == [f"all_reduce {answer}"]
    assert {picture.description for picture in sweep_pictures(result)} == {f"all_reduce {answer}"}


@alike
@pytest.mark.parametrize("seed", range(4))
def test_the_best_settings_of_a_range_are_not_slower_at_any_of_its_sizes(
    tmp_path: Path, seed: int
) -> None:
    generator = Random(seed)
    synthetic_sweep(
        tmp_path, lambda setting, _: (1, 1.02, 1.1)[setting] * generator.choice((1, 1, 1.03, 1.4)),
        ["OMP_NUM_THREADS=1,2,4"], [],
    )  # fmt: skip
    ranges = load_sweep(tmp_path).ranges
    assert sum(len(found.points) for found in ranges) == len(SIZES)
    for found in ranges:
        for setting in found.best:
            assert any(setting in point.not_slower for point in found.points)
        if found.verdict != "undecided":
            assert all({*found.best} <= {*point.not_slower} for point in found.points)


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
        (KIND, size, None, (), ("cpu-mode=quiet", "cpu-mode=plain")) for size in SIZES
    ]
    assert {row.verdict for row in result.rows} == {"shortest", "undecided"}


@alike
def test_ranges_of_sizes_decide_what_single_rows_cannot(tmp_path: Path) -> None:
    sizes = [1 << k for k in range(10, 22)]
    generator = Random(1)
    synthetic_sweep(
        tmp_path, lambda setting, _: (1, 1.15)[setting] * generator.uniform(0.93, 1.07),
        rounds=4, sizes=sizes,
    )  # fmt: skip
    result = load_sweep(tmp_path)
    assert {row.verdict for row in result.rows} > {"undecided", "slower"}
    assert ranges_of(result) == [(sizes[0], sizes[-1], "faster", ["cpu-mode=quiet"])]


def test_of_equal_settings_none_is_the_fastest_at_one_size_by_chance(tmp_path: Path) -> None:
    sizes = [1 << k for k in range(10, 21)]
    generator = Random(5)
    slower = 0
    for number in range(12):
        folder = tmp_path / str(number)
        synthetic_sweep(
            folder, lambda *_: generator.lognormvariate(0, 0.4), ["A=1,2"], [], rounds=6,
            sizes=sizes,
        )  # fmt: skip
        result = load_sweep(folder)
        assert {found.verdict for found in result.ranges} == {"undecided"}
        assert not any(winner.best for winner in result.winners)
        if rows := [row for row in result.rows if row.verdict == "slower"]:
            slower += len(rows)
            assert "not with 95 % for all 11 rows together" in " ".join(VIEW.write(result).split())
    assert slower


@alike
def test_the_answer_uses_what_ranges_of_sizes_decide_to_be_the_same(tmp_path: Path) -> None:
    sizes = [1 << k for k in range(10, 22)]
    generator = Random(1)
    synthetic_sweep(
        tmp_path, lambda *_: generator.uniform(0.95, 1.05), ["A=on,off"], [], rounds=4, sizes=sizes
    )
    result = load_sweep(tmp_path)
    assert {row.verdict for row in result.rows} >= {"shortest", "undecided"}
    assert [each.pooled.verdict for each in result.pooled] == ["same"]
    assert answers(result) == ["all_reduce 1K-2M: on and off are equally fast."]


def test_waiting_is_an_effect_of_cpu_modes_that_were_swept() -> None:
    sweep = Path(__file__).parents[2] / "golden/data/runs/sweep_replay"
    said = " ".join(VIEW.write(load_sweep(sweep)).split())
    assert "--cpu-mode realtime" not in said and "not the network" not in said
    waited = "Ranks waited for a core over 40 % of the time; how long depends on the CPU mode"
    assert f"{waited} (quiet, plain)." in said


@alike
def test_a_terminal_shows_of_many_settings_the_best(tmp_path: Path) -> None:
    env = ["NCCL_ALGO=RING,TREE", "NCCL_PROTO=LL,LL128,Simple", "NCCL_MIN_NCHANNELS=2,-"]
    synthetic_sweep(tmp_path, lambda setting, _: 2 - 0.1 * setting, env, [])
    result = load_sweep(tmp_path)
    times, ranges, *_ = (block for block in document(result).blocks if isinstance(block, Table))
    assert (len(times.rows), len(times.brief or ())) == (12 * 4, 4)
    assert (len(ranges.rows), len(ranges.brief or ())) == (11, 2)
    assert max(map(len, VIEW.write(result).splitlines())) <= 100


@pytest.mark.parametrize(("rounds", "is_few"), [(1, True), (2, True), (3, False)])
def test_few_rounds_are_said_to_be_too_few(tmp_path: Path, rounds: int, is_few: bool) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, rounds=rounds)
    assert ("Use --rounds 3 or more" in load_sweep(tmp_path).text()) == is_few


@pytest.mark.parametrize(("factor", "is_open"), [(1.04, True), (3.0, False)])
def test_settings_that_are_not_told_apart_need_more_rounds(
    tmp_path: Path, factor: float, is_open: bool
) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: factor**setting, rounds=4)
    text = " ".join(load_sweep(tmp_path).text().split())
    said = f"add rounds: `commbench sweep --resume {tmp_path} --rounds 8`."
    assert (said in text) == is_open


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


@pytest.mark.parametrize(
    "damage",
    [
        None,
        {"format": 2}, {"rounds": 0}, {"tolerance": 11}, {"settings": []}, {"backends": [1]},
        {"settings": [{"variables": [["A", 1]], "options": []}] * 2},
        {"settings": [{"variables": "AB", "options": []}] * 2},
        {"arguments": [["a\0b"], []]}, {"environments": [[["A B", "1"]], []]}, {"arguments": [[]]},
    ],
)  # fmt: skip
def test_a_missing_or_damaged_description_is_refused(
    tmp_path: Path, damage: dict[str, Any] | None
) -> None:
    synthetic_sweep(tmp_path / "swept", rounds=1)
    path = tmp_path / "swept" / "sweep.json"
    if damage:
        path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    else:
        path.unlink()
    what = "describes no sweep" if damage else "there is no sweep"
    with pytest.raises(RecordsError, match=what) as caught:
        load_sweep(tmp_path / "swept")
    settings = [str(each) for each in sorted((tmp_path / "swept").iterdir()) if each.is_dir()]
    still = f"commbench compare {shlex.join(settings)}`"
    assert (still in caught.value.hint) == bool(damage)
    assert commbench.compare(*settings).rows


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
        time = SettingTime(setting, row, Estimate(1e-4, 1e-4, 1e-4), None, "fastest")
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


@pytest.mark.parametrize(
    ("variables", "options", "message"),
    [
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
        (["A=1", "A:=x:y,z;w:z", "A=1,2"], [], ["A=1", "A=x:y,z;w:z", "A=2"]),
        (["NCCL_PROTO=LL,-"], [], ["LL", "NCCL_PROTO unset"]),
        (["A=1,2"], ["cpu-mode=quiet"], ["A=1", "A=2"]),
        ([], ["python=/x/env/new/bin/python,/x/env/old/bin/python"], ["new", "old"]),
        (
            [],
            ["python=/a/new/x,/a/old/x,/b/new/x"],
            ["a/new", "a/old", "b/new"],
        ),
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
    assert len({*settings}) == len(names)


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


@pytest.mark.parametrize(
    ("setting", "number", "size", "status"),
    [(0, 1, 1 << 14, WRONG), (0, 3, 1 << 14, WRONG), (1, 3, 1 << 20, FAILED)],
)
def test_a_case_that_went_wrong_in_any_round_is_never_ranked(
    tmp_path: Path, setting: int, number: int, size: int, status: str
) -> None:
    synthetic_sweep(
        tmp_path, lambda setting, _: 1.0 + setting, ["A=1,2"], [],
        statuses={(setting, number): {size: status}},
    )  # fmt: skip
    result = load_sweep(tmp_path)
    found = [[m.status for m in each.run.measurements] for each in result.settings if each.run]
    assert found[setting] == [status if size == each else OK for each in SIZES]
    assert found[1 - setting] == [OK] * 4
    assert [p.size_bytes for p in result.compared] == [each for each in SIZES if each != size]
    assert rank_settings(result.points)[0].won == 3
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in result.frame_rows()]
    bad = [(row["size_bytes"], row["time_us"]) for row in rows if row["status"] != OK]
    assert bad == [(size, None)]
    if status == FAILED:
        require_correct(result)
        assert result.failures["A=2"].startswith("all_reduce")
    else:
        with pytest.raises(WrongResultError, match=r"under A=1 all_reduce.*16.* is wrong"):
            require_correct(result)


def test_the_rounds_are_launches_of_one_run_with_their_numbers(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, missing={(0, 2)})
    found = load_sweep(tmp_path).settings
    assert [each.rounds for each in found] == [2, 3]
    launches = [[b.launch for b in each.run.measurements[0].batches] for each in found if each.run]
    assert launches == [[0] * 3 + [2] * 3, [0] * 3 + [1] * 3 + [2] * 3]


def test_two_settings_end_with_the_line_that_compares_them(tmp_path: Path) -> None:
    first, second = synthetic_sweep(tmp_path / "of two", lambda i, _: 1 + i)
    (line,) = (
        line for line in commbench.load_sweep(tmp_path / "of two").text().splitlines()
        if line.startswith("  commbench compare ")
    )  # fmt: skip
    folders = [str(tmp_path / "of two" / each.slug) for each in (first, second)]
    assert shlex.split(line) == ["commbench", "compare", *folders]
    synthetic_sweep(tmp_path / "cut", missing={(0, 2)})
    assert "commbench compare" not in commbench.load_sweep(tmp_path / "cut").text()


def test_calls_are_named_by_what_tells_them_apart() -> None:
    for values, names in {
        ("old/mine.py:Call", "new/mine.py:Call"): ["old", "new"],
        ("mine.py:Ring", "mine.py:Tree"): ["Ring", "Tree"],
        ("torch", "mine.py:Ring"): ["torch", "Ring"],
    }.items():
        settings = make_settings({}, {"call": values})
        assert [*short_names(settings).values()] == names
        assert [dict(each.run_options)["call"] for each in settings] == [*values]
        assert [each.slug for each in settings] == [f"call={name}" for name in names]


def test_a_setting_is_a_run_whose_rounds_are_launches_in_turns(tmp_path: Path) -> None:
    first, second = synthetic_sweep(tmp_path, lambda i, _: 1 + i, missing={(0, 2), (1, 2)})
    run = commbench.load(tmp_path / first.slug)
    assert (run.name, run.launches, run.header.plan.launches) == (first.slug, 2, 2)
    assert {batch.launch for batch in run.measurements[0].batches} == {0, 1}
    assert run.incomplete == "it lacks rounds: 2 of 3 are complete"
    found = commbench.compare(tmp_path / first.slug, tmp_path / second.slug)
    assert {row.verdict for row in found.rows} == {"slower"}
    assert all(1.9 < row.ratio.value < 2.1 for row in found.rows)
    unsure = commbench.compare(found.a.path, found.b.path, tolerance="99%").text()
    missing = f"Measure the missing rounds first: `commbench sweep --resume {tmp_path}`."
    assert missing in " ".join(unsure.split())
    runs = {"run": tmp_path / second.slug, "against": tmp_path / first.slug}
    gate = commbench.check(**runs, max_slowdown="101%")
    said = " ".join(gate.text().split())
    assert gate.outcome == "fail" and f"`commbench sweep --resume {tmp_path}`" in said
    with pytest.raises(UsageError, match="is a setting of a sweep"):
        commbench.run(resume=tmp_path / first.slug)
    described = tmp_path / "sweep.json"
    described.write_text(described.read_text().replace('"rounds": 3', '"rounds": 2'))
    assert not commbench.load(tmp_path / first.slug).incomplete
    gate = commbench.check(**runs, max_slowdown="115%")
    said = " ".join(gate.text().split())
    assert gate.outcome == "no verdict"
    assert f"continue both in turns: `commbench sweep --resume {tmp_path} --rounds 6`." in said
    shutil.rmtree(tmp_path / first.slug / "round-3")
    (tmp_path / first.slug / "round-1" / "run.jsonl").unlink()
    with pytest.raises(RecordsError, match="is complete") as nothing:
        commbench.load(tmp_path / first.slug)
    assert f"`commbench sweep --resume {tmp_path}`" in nothing.value.hint


def test_an_unset_variable_is_found_as_it_is_printed(tmp_path: Path) -> None:
    first, _ = synthetic_sweep(tmp_path, lambda _, __: 1.0, ["NAME=-,1"], [])
    assert first.name == "NAME unset"
    assert commbench.load(tmp_path / "NAME=unset") == commbench.load(tmp_path / "NAME=-")


def test_every_journal_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synthetic_sweep(tmp_path)
    read: list[Path] = []
    read_run = rounds.read_run
    monkeypatch.setattr(rounds, "read_run", lambda path: (read.append(path), read_run(path))[1])
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


def test_a_picture_has_the_ratios_of_the_table(tmp_path: Path) -> None:
    slow = Random(1)

    synthetic_sweep(
        tmp_path, lambda setting, _: (1, 1.4)[setting] * slow.choice((1, 1, 2)), ["A=on,off"], [],
        rounds=5,
    )  # fmt: skip
    result = load_sweep(tmp_path)
    rows = {row.case.size_bytes: row.ratio for row in result.rows if row.ratio}
    (picture,) = sweep_pictures(result)
    _, panel = (panel for panel in picture.panels if isinstance(panel, Curves))
    drawn = dict(panel.series[-1].points)
    assert {*rows} == {*drawn}
    for size, ratio in rows.items():
        assert drawn[size].value in (pytest.approx(ratio.value), pytest.approx(1 / ratio.value))


def test_the_report_of_a_check_has_the_journals_of_all_rounds(tmp_path: Path) -> None:
    synthetic_sweep(tmp_path, lambda setting, _: 1 + setting, rounds=3)
    new, old = (tmp_path / f"cpu-mode={mode}" for mode in ("quiet", "plain"))
    gate = commbench.check(new, against=old, max_slowdown="10%", force=True)
    text = commbench.report(gate, format="html")
    assert "not readable" not in text
    assert all(f"run.jsonl of cpu-mode=quiet round-{n}," in text for n in (1, 2, 3))
