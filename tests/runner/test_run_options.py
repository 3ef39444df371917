"""What a person asks of `commbench run`, as far as that needs no rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_replay import WORKLOAD

from commbench.cli.run_parameters import parse_words
from commbench.errors import UsageError
from commbench.results.workload_file import write_workload
from commbench.runner.option import parse_names
from commbench.runner.run_options import DEFAULT_SIZES, RUN_OPTIONS, RunOptions, parse_options
from commbench.spec.allocators import MEMORY_CHOICES
from commbench.spec.dtypes import DTYPES
from commbench.spec.memory_operations import SYMM_MEM
from commbench.spec.operations import COLLECTIVES, OPERATIONS, SINGLE_CALLS
from commbench.spec.pairs import P2P_CALL_CHOICES
from commbench.spec.plan import OPTIONS, ORDERS, ROUNDING_CHOICES, Plan
from commbench.spec.point_to_point import POINT_TO_POINT
from commbench.spec.reduce_ops import REDUCE_OPS
from commbench.spec.timing_modes import TIMING_CHOICES
from commbench.units import parse_percentage, parse_sizes

K, M = 1 << 10, 1 << 20


def options(**given: Any) -> RunOptions:
    return RunOptions(**{"sizes": (1024,), **given})


@pytest.mark.parametrize(
    ("texts", "option", "found"),
    [
        (["all_reduce"], "--op", ("all_reduce",)),
        (["all-gather,BARRIER"], "--op", ("all_gather", "barrier")),
        (["barrier", "all_reduce, barrier"], "--op", ("barrier", "all_reduce")),
        (["all"], "--op", tuple(COLLECTIVES)),
        (["p2p"], "--op", ("ping_pong", "exchange", "stream", "pipeline", "ring_exchange")),
        (["p2p,all"], "--op", (*POINT_TO_POINT, *COLLECTIVES)),
        (["symm_mem"], "--op", tuple(SYMM_MEM)),
        (["barrier,all"], "--op", ("barrier", *(n for n in COLLECTIVES if n != "barrier"))),
        (["half,float16,fp16"], "--dtype", ("float16",)),
        (["all"], "--dtype", tuple(DTYPES)),
        (["sum,MAX"], "--reduce-op", ("sum", "max")),
        (["all"], "--reduce-op", tuple(REDUCE_OPS)),
    ],
)
def test_names_come_in_the_order_they_were_said_and_once_each(
    texts: list[str], option: str, found: tuple[str, ...]
) -> None:
    assert parse_names(texts, option) == found


@pytest.mark.parametrize("texts", [[""], ["all_reduce,"], [","], ["all_reduce", ""], [" "]])
def test_an_empty_name_is_refused_with_the_known_ones(texts: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        parse_names(texts, "--op")
    assert refused.value.message == "--op has an empty item"
    assert refused.value.hint == f"known: {', '.join(OPERATIONS)}, all, p2p, uneven, symm_mem, init"


def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UsageError, match="unknown operation 'allgather'") as refused:
        parse_names(["barrier,allgather"], "--op")
    assert refused.value.hint.startswith("did you mean all_gather? ")


def test_sizes_not_said_are_the_documented_default() -> None:
    assert parse_options({}).sizes == parse_sizes(DEFAULT_SIZES)
    assert DEFAULT_SIZES == "1K-64M"
    assert parse_options({"sizes": "8,4K"}).sizes == (8, 4096)


def parse_nccl_tests(*texts: str | None) -> tuple[int, ...]:
    names = ("sizes", "minbytes", "maxbytes", "stepfactor", "stepbytes")
    return parse_options(dict(zip(names, texts, strict=True))).sizes


# nccl-tests: -b 32M -e 32M -i 1M -f 1 (off); a factor above 1 wins over the step.
@pytest.mark.parametrize(
    ("low", "high", "factor", "step", "found"),
    [
        ("8", "128", "2", None, (8, 16, 32, 64, 128)),
        ("8", "100", "2", None, (8, 16, 32, 64)),
        ("1K", "1M", "4", None, (K, 4 * K, 16 * K, 64 * K, 256 * K, M)),
        ("1M", "4M", None, None, (M, 2 * M, 3 * M, 4 * M)),
        ("1M", "3M", "1", None, (M, 2 * M, 3 * M)),
        ("1M", "2M", "0", "512K", (M, M + 512 * K, 2 * M)),
        ("1M", "4M", None, "2M", (M, 3 * M)),
        ("1M", "3M", "1", "1M", (M, 2 * M, 3 * M)),
        ("30M", None, None, None, (30 * M, 31 * M, 32 * M)),
        (None, "34M", None, None, (32 * M, 33 * M, 34 * M)),
        (None, None, "2", None, (32 * M,)),
        (None, None, None, "4M", (32 * M,)),
        ("8M", None, "2", None, (8 * M, 16 * M, 32 * M)),
    ],
)
def test_the_flags_of_nccl_tests_have_its_defaults(
    low: str | None,
    high: str | None,
    factor: str | None,
    step: str | None,
    found: tuple[int, ...],
) -> None:
    assert parse_nccl_tests(None, low, high, factor, step) == found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("1K", "8", None, None, None), "--sizes and -b both choose the sizes"),
        (("1K", None, None, None, "1M"), "--sizes and -i both choose the sizes"),
        ((None, "1M", "4M", "2", "1M"), "-f and -i both choose the next size"),
        ((None, "8", "128", "two", None), "-f 'two' is not a number"),
        ((None, "8", "128", "-2", None), "-f '-2' is not a number"),
        ((None, "8", "128", "nan", None), "-f 'nan' is not a number"),
        ((None, "64M", None, None, None), "the range 64M-32M is reversed"),
        ((None, "0", "8", "2", None), "size '0' is out of range"),
        ((None, "1KB", None, None, None), "'1KB' could mean a power of 1000 or of 1024"),
        ((None, "8", "128", None, "0"), "size '0' is out of range"),
        (("", None, None, None, None), "sizes '' are empty"),
    ],
)
def test_sizes_that_contradict_or_make_no_sense_are_refused(
    flags: tuple[str | None, ...], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_nccl_tests(*flags)
    assert refused.value.message == message
    assert refused.value.hint


def test_a_factor_beyond_all_numbers_is_taken_as_large_or_refused() -> None:
    try:
        assert parse_nccl_tests(None, "8", "128", "9" * 400, None) == (8,)
    except UsageError as refused:
        assert refused.hint


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"launcher": "ssh"}, "unknown launcher 'ssh'"),
        ({"label": "a/b"}, "label 'a/b' cannot be part of a folder's name"),
        ({"label": ""}, "label '' cannot be part of a folder's name"),
        ({"label": ".."}, "label '..' cannot be part of a folder's name"),
        ({"label": "x" * 65}, f"label '{'x' * 65}' cannot be part of a folder's name"),
        ({"label": "line\n"}, "label 'line\\n' cannot be part of a folder's name"),
        ({"nproc_per_node": 0}, "--nproc-per-node is 0"),
        ({"nnodes": 2, "node_rank": 2}, "--node-rank 2 is not a number from 0 to 1"),
        ({"node_rank": -1}, "--node-rank -1 needs several nodes"),
        ({"nnodes": 0}, "--nnodes is 0"),
        ({"nnodes": 2}, "2 nodes need the address of node 0"),
        ({"master_port": 0}, "--master-port 0 is not a port"),
        ({"master_port": 65536}, "--master-port 65536 is not a port"),
        ({"iters": 0}, "--iters is 0"),
        ({"warmup": -1}, "--warmup is -1"),
        ({"root": -1}, "--root is -1"),
        ({"timeout": 0.0}, "--timeout 0 s is not above 0"),
        ({"placement": "both-ways"}, "unknown placement 'both-ways'"),
        ({"cpu_mode": "loud"}, "unknown cpu mode 'loud'"),
        ({"precision": 0.0}, "--precision 0 is not between 0 and 1"),
        ({"precision": 5.0}, "--precision 5 is not between 0 and 1"),
        ({"budget": 0.0}, "--budget 0 s is not above 0"),
        ({"timing": "alone"}, "unknown timing 'alone'"),
        ({"order": "random"}, "unknown order 'random'"),
        ({"seed": -1}, "--seed is -1"),
        ({"launches": 0}, "--launches is 0"),
        ({"launches": 1 << 21}, "--launches is 2097152"),
        ({"budget": 1e9}, "--budget 1e+09 s is longer than a month"),
        ({"rounding": "up"}, "unknown rounding 'up'"),
        ({"format": "pdf"}, "unknown format 'pdf'"),
        ({"peak": "25"}, "peak '25' has no unit"),
        (
            {"concurrency": "both"},
            "--concurrency both has no effect without --mesh, --groups or --group-size",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_torch_is_needed(
    wish: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        options(**wish)
    assert refused.value.message == message
    assert refused.value.hint


def test_a_root_is_judged_only_where_the_number_of_ranks_is_known() -> None:
    asked = options(op=("broadcast",), root=7)
    assert asked.plan("gloo", "cpu", world_size=8).root == 7
    with pytest.raises(UsageError, match="--root 7 is not a rank of 4"):
        asked.plan("gloo", "cpu", world_size=4)
    with pytest.raises(UsageError, match="--nproc-per-node times nodes is 1048577"):
        asked.plan("gloo", "cpu", world_size=(1 << 20) + 1)


def test_the_cpu_mode_follows_the_device_where_nothing_was_said() -> None:
    assert options().plan("gloo", "cpu", 2).cpu_mode == "quiet"
    assert options().plan("nccl", "cuda", 2).cpu_mode == "plain"
    assert options(cpu_mode="realtime").plan("nccl", "cuda", 2).cpu_mode == "realtime"


@pytest.mark.parametrize(
    ("wishes", "name"),
    [
        ({}, "all_reduce"),
        ({"op": ("all_reduce", "barrier", "reduce")}, "all_reduce-barrier-reduce"),
        ({"op": ("all_reduce", "barrier", "reduce", "gather")}, "collectives"),
        ({"op": tuple(POINT_TO_POINT)}, "p2p"),
        ({"label": "nccl-2.27_ring"}, "nccl-2.27_ring"),
        ({"output": Path("results/mine")}, "mine"),
        ({"output": Path("results/mine (2)/")}, "mine-2"),
        ({"output": Path("results/mine"), "label": "ring"}, "ring"),
    ],
)
def test_a_run_is_named_by_its_label_or_its_operations(wishes: dict[str, Any], name: str) -> None:
    assert options(**wishes).name == name


def test_everything_that_was_asked_is_in_the_plan() -> None:
    asked = options(
        op=("gather", "reduce"), sizes=(8, 16), dtype=("int8",), reduce_op=("max",),
        root=1, placement="both", iters=9, warmup=0, precision=0.01, budget=1.5,
        timing="both", order="ascending", seed=7, launches=3, check=False, timeout=5.5,
        cpu_mode="plain", rounding="nccl-tests", peak="25GB/s",
    )  # fmt: skip
    assert asked.plan("gloo", "cuda", 3) == Plan(
        operations=("gather", "reduce"), sizes=(8, 16), dtypes=("int8",), reduce_ops=("max",),
        root=1, placement="both", iterations=9, warmup=0, precision=0.01, budget_s=1.5,
        timing="both", order="ascending", seed=7, launches=3, check=False, timeout_s=5.5,
        buffers="rotating",
        cpu_mode="plain", rounding="nccl-tests", peak="25GB/s", backend="gloo", device="cuda",
        world_size=3,
    )  # fmt: skip


def some(table: Iterable[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(list(table)), min_size=1, max_size=3, unique=True).map(tuple)


some_options = st.builds(
    options,
    op=some(SINGLE_CALLS),
    sizes=st.sets(st.integers(1, 1 << 40), min_size=1, max_size=5).map(sorted).map(tuple),
    dtype=some(DTYPES),
    reduce_op=some(REDUCE_OPS),
    root=st.integers(0, 3),
    placement=st.sampled_from(["natural", "in_place", "out_of_place", "both"]),
    iters=st.none() | st.integers(1, 9999),
    warmup=st.none() | st.integers(0, 99),
    precision=st.floats(1e-6, 0.999).map(lambda part: parse_percentage(repr(part))),
    budget=st.floats(1e-3, 1e6) | st.just(0.2),
    timing=st.sampled_from(TIMING_CHOICES),
    order=st.sampled_from(ORDERS),
    seed=st.integers(0, 2**40) | st.just(0),
    rounding=st.sampled_from(ROUNDING_CHOICES),
    p2p_call=st.sampled_from(P2P_CALL_CHOICES),
    pairs=st.lists(
        st.sampled_from(["halves", "neighbours", "0-1", "1-0"]), min_size=1, unique=True
    ).map(tuple),
    window=st.integers(1, 100),
    imbalance=st.lists(
        st.sampled_from(["uniform", "zipf:1.5:3", "w2"]), min_size=1, unique=True
    ).map(tuple),
    overlap=st.lists(
        st.sampled_from(["none", "matmul", "memory:32M", "matmul:8x8x8:50"]),
        min_size=1,
        unique=True,
    ).map(tuple),
    overlap_ratio=st.none() | st.floats(0.01, 100),
    peak=st.none() | st.just("25GB/s"),
    memory=some(MEMORY_CHOICES),
    check=st.booleans(),
    timeout=st.floats(0.5, 1e6),
    cpu_mode=st.none() | st.sampled_from(["quiet", "plain"]),
    backend=st.none() | st.just("gloo"),
    device=st.none() | st.just("cpu"),
    label=st.none() | st.just("ring"),
)


def with_effect(asked: RunOptions) -> RunOptions:
    """The options without those that have no effect beside the others."""
    default = options()
    operations = [OPERATIONS[name] for name in asked.op]
    if asked.iters is not None:
        asked = replace(asked, precision=default.precision, budget=default.budget)
    if not any(operation.rooted for operation in operations):
        asked = replace(asked, root=default.root)
    if not any(operation.reduces for operation in operations):
        asked = replace(asked, reduce_op=default.reduce_op)
    if not any(operation.p2p_calls for operation in operations):
        asked = replace(asked, p2p_call=default.p2p_call)
    if not any(operation.is_paired for operation in operations):
        asked = replace(asked, pairs=default.pairs)
    if not any(operation.has_window for operation in operations):
        asked = replace(asked, window=default.window)
    if not any(operation.block_counts for operation in operations):
        asked = replace(asked, imbalance=default.imbalance)
    if asked.overlap == default.overlap:
        asked = replace(asked, overlap_ratio=default.overlap_ratio)
    return asked


@settings(deadline=None, max_examples=60)
@given(some_options.map(with_effect))
def test_the_arguments_for_ranks_that_join_make_the_same_plan(asked: RunOptions) -> None:
    again = parse_words(asked.arguments())
    assert again == asked
    assert again.plan("gloo", "cpu", 4).digest == asked.plan("gloo", "cpu", 4).digest


def test_the_arguments_of_a_plain_request_are_its_defaults() -> None:
    assert replace(options(), output=Path("here")).arguments() == [
        "--op=all_reduce", "--sizes=1K", "--dtype=float32", "--reduce-op=sum", "--root=0",
        "--placement=natural", "--check", "--timeout=120",
    ]  # fmt: skip


def test_the_arguments_say_how_to_sample_where_that_is_unusual() -> None:
    asked = options(
        precision=0.01, budget=1.5, timing="both", order="ascending", seed=7,
        rounding="nccl-tests", peak="25GB/s",
    )  # fmt: skip
    assert [word for word in asked.arguments() if word not in options().arguments()] == [
        "--rounding=nccl-tests", "--timing=both", "--precision=0.01", "--budget=1.5",
        "--order=ascending", "--seed=7", "--peak=25GB/s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5%", 0.05), ("0.05", 0.05), (" 2.5 % ", 0.025), ("1%", 0.01), ("0.1%", 0.001),
        ("1e-2", 0.01), ("50%", 0.5), ("7%", 0.07), ("100%", 1.0),
    ],
)  # fmt: skip
def test_a_fraction_is_said_as_percent_or_as_a_number(text: str, value: float) -> None:
    assert parse_percentage(text) == value


@pytest.mark.parametrize("text", ["", "%", "five", "5%%", "5 percent", "1,5%", "0x5"])
def test_what_is_no_fraction_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_percentage(text)
    assert refused.value.message == f"{text!r} is not a percentage"
    assert refused.value.hint == "write 10% or 0.1"


@pytest.mark.parametrize(("text", "hint"), [("5", "5% or 0.05"), ("1", "1% or 0.01")])
def test_a_number_without_a_percent_sign_gets_both_meanings(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_percentage(text)
    assert refused.value.hint == f"write {hint}"


def test_an_option_of_the_default_value_is_never_without_effect() -> None:
    """Ranks that join get every option of the plan, also those that change nothing."""
    asked = ["--op=barrier", "--reduce-op=sum", "--root=0", "--iters=5", "--precision=5%"]
    assert parse_words(asked).iters == 5


def test_the_options_of_the_plans_messages_are_those_of_the_table() -> None:
    for option in RUN_OPTIONS.values():
        if option.plan:
            assert OPTIONS.get(option.plan, f"--{option.plan.replace('_', '-')}") == option.flag
            assert option.plan in Plan.__dataclass_fields__


@pytest.mark.parametrize(
    ("given", "user", "message"),
    [
        ({"itres": 3}, "", "unknown option 'itres'"),
        ({"iters": "many"}, "", "--iters cannot be 'many'"),
        ({"iters": 2.5}, "", "--iters cannot be 2.5"),
        ({"check": "no"}, "", "--check cannot be 'no'"),
        ({"op": 7}, "", "--op cannot be 7"),
        ({"sizes": -1}, "", "the range '-1' has no beginning"),
        ({"timeout": "soon"}, "", "--timeout cannot be 'soon'"),
        (
            {"format": "text", "dry_run": True},
            "api",
            "--dry-run is for the command line only",
        ),
        ({"nnodes": 2}, "job", "--nnodes cannot be used after the -- of a job"),
        ({"launches": 2}, "sweep", "--launches cannot be used in a sweep"),
        ({"resume": "x", "output": "y"}, "", "--output cannot be used with --resume"),
        (
            {"nproc_per_node": 2},
            "measure",
            "--nproc-per-node cannot be used with commbench.measure",
        ),
    ],
)
def test_given_values_that_make_no_option_are_refused(
    given: dict[str, Any], user: str, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        parse_options(given, *[user] * bool(user))
    assert refused.value.message == message
    assert refused.value.hint


def test_values_from_python_make_the_options_that_words_make() -> None:
    given = {"op": ["all_reduce", "barrier"], "sizes": [1024, 4096], "precision": 0.01, "budget": 1}
    words = ["--op", "all_reduce,barrier", "--sizes", "1K,4K", "--precision", "1%", "--budget", "1"]
    assert parse_options(given) == parse_words(words)
    assert parse_options({"sizes": 4096, "output": "here"}) == parse_words(
        ["--sizes", "4K", "--output", "here"]
    )


@pytest.mark.parametrize(
    ("words", "memory"),
    [
        ([], ("default",)),
        (["-R", "0"], ("default",)),
        (["-R", "1"], ("registered",)),
        (["-R", "2"], ("symmetric",)),
        (["--memory", "symmetric,default"], ("symmetric", "default")),
        (["--memory", "all"], ("default", "registered", "symmetric")),
    ],
)
def test_memory_is_chosen_by_name_or_as_in_nccl_tests(
    words: list[str], memory: tuple[str, ...]
) -> None:
    assert parse_words(words).memory == memory


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-R", "3"], "-R cannot be 3"),
        (["-R", "1", "--memory", "default"], "--memory and -R both choose the memory"),
        (["--memory", "symm_mem"], "unknown memory 'symm_mem'"),
    ],
)
def test_a_choice_of_memory_that_makes_no_sense_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_words(words)
    assert refused.value.message == message


def test_a_workload_leaves_out_the_options_that_choose_calls(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    write_workload(path, WORKLOAD)
    asked = parse_options({"workload": path, "variant": "calls", "budget": 1.0})
    assert asked.arguments() == [
        "--check", f"--workload={path}", "--variant=calls", "--budget=1", "--timeout=120",
    ]  # fmt: skip
    assert asked.command() == [
        "commbench", "run", f"--workload={path}", "--variant=calls", "--budget=1",
    ]  # fmt: skip
    again = parse_words(asked.arguments())
    assert again.plan("gloo", "cpu", 2).digest == asked.plan("gloo", "cpu", 2).digest
