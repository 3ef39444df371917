"""Settings: every combination, once each round, and only of what the backend reads."""

import pytest

from commbench.errors import UsageError
from commbench.sweep.settings import (
    Setting,
    make_axes,
    make_settings,
    order_rounds,
    parse_values,
    require_read,
    short_names,
)


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


def test_a_variable_that_is_read_is_accepted() -> None:
    require_read(parse_settings(["NCCL_ALGO=RING,TREE"], []), "nccl")
    require_read(parse_settings(["OMP_NUM_THREADS=1,2"], []), "gloo")


@pytest.mark.parametrize(
    ("variables", "options", "names"),
    [
        ([], ["cpu-mode=quiet,plain"], ["quiet", "plain"]),
        (["NCCL_PROTO=LL,-"], [], ["LL", "NCCL_PROTO unset"]),
        (["A=1,2"], ["cpu-mode=quiet"], ["A=1", "A=2"]),
        (["A=on,off", "B=on,no"], [], ["A=on B=on", "A=on B=no", "A=off B=on", "A=off B=no"]),
        (["A=RING,TREE", "B=2,4"], [], ["RING B=2", "RING B=4", "TREE B=2", "TREE B=4"]),
    ],
)
def test_a_short_name_holds_what_differs(
    variables: list[str], options: list[str], names: list[str]
) -> None:
    settings = parse_settings(variables, options)
    assert list(short_names(settings).values()) == names
    assert list(short_names(settings)) == list(settings)


def test_the_axes_are_what_has_several_values() -> None:
    settings = parse_settings(["A=1,2", "B=x"], ["dtype=int8,float32"])
    assert make_axes(settings) == (("A", ("1", "2")), ("dtype", ("int8", "float32")))


def test_options_of_nccl_are_settings_of_their_own() -> None:
    settings = parse_settings([], ["nccl-option=-,cta_policy=zero", "nccl-option:=a=1,b=2"])
    assert [setting.name for setting in settings] == [
        "nccl-option unset", "nccl-option=cta_policy=zero", "nccl-option=a=1,b=2"
    ]  # fmt: skip
    assert list(short_names(settings).values()) == [
        "nccl-option unset",
        "cta_policy=zero",
        "a=1,b=2",
    ]
    assert len({setting.slug for setting in settings}) == 3
