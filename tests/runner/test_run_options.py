"""What a person asks of `commbench run`, as far as that needs no rank, and the plan of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_replay import WORKLOAD

from commbench.cli.commands import parse_words
from commbench.errors import UsageError
from commbench.plan.backends import MEMORY_CHOICES
from commbench.plan.dimensions import TIMING_CHOICES
from commbench.plan.dtypes import DTYPES, REDUCE_OPS
from commbench.plan.operations import COLLECTIVES, OPERATIONS, SINGLE_CALLS, SYMM_MEM
from commbench.plan.pairs import P2P_CALL_CHOICES, POINT_TO_POINT
from commbench.plan.plan import ORDERS, ROUNDING_CHOICES, Plan
from commbench.results.files import write_workload
from commbench.runner.option import as_label
from commbench.runner.planning import plan_run
from commbench.runner.run_options import RUN_OPTIONS, RunOptions, parse_options
from commbench.units import parse_percentage

K, M = 1 << 10, 1 << 20


def options(**given: Any) -> RunOptions:
    return RunOptions(**{"sizes": (1024,), **given})


@pytest.mark.parametrize(
    ("texts", "option", "found"),
    [
        (["all_reduce"], "op", ("all_reduce",)),
        (["all-gather,BARRIER"], "op", ("all_gather", "barrier")),
        (["barrier", "all_reduce, barrier"], "op", ("barrier", "all_reduce")),
        (["all"], "op", tuple(COLLECTIVES)),
        (["p2p"], "op", ("ping_pong", "exchange", "stream", "pipeline", "ring_exchange")),
        (["p2p,all"], "op", (*POINT_TO_POINT, *COLLECTIVES)),
        (["symm_mem"], "op", tuple(SYMM_MEM)),
        (["barrier,all"], "op", ("barrier", *(n for n in COLLECTIVES if n != "barrier"))),
        (["half,float16,fp16"], "dtype", ("float16",)), (["all"], "dtype", tuple(DTYPES)),
        (["sum,MAX"], "reduce_op", ("sum", "max")), (["all"], "reduce_op", tuple(REDUCE_OPS)),
        (["symmetric,default"], "memory", ("symmetric", "default")),
        (["all"], "memory", ("default", "registered", "symmetric")),
    ],
)  # fmt: skip
def test_names_come_in_the_order_they_were_said_and_once_each(
    texts: list[str], option: str, found: tuple[str, ...]
) -> None:
    assert RUN_OPTIONS[option].parsed(texts) == found


# nccl-tests: -b 32M -e 32M -i 1M -f 1 (off); a factor above 1 wins over the step.
@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("-b 8 -e 128 -f 2", (8, 16, 32, 64, 128)), ("-b 8 -e 100 -f 2", (8, 16, 32, 64)),
        ("-b 1K -e 1M -f 4", (K, 4 * K, 16 * K, 64 * K, 256 * K, M)),
        ("-b 1M -e 4M", (M, 2 * M, 3 * M, 4 * M)), ("-b 1M -e 3M -f 1", (M, 2 * M, 3 * M)),
        ("-b 1M -e 2M -f 0 -i 512K", (M, M + 512 * K, 2 * M)), ("-b 1M -e 4M -i 2M", (M, 3 * M)),
        ("-b 1M -e 3M -f 1 -i 1M", (M, 2 * M, 3 * M)), ("-b 30M", (30 * M, 31 * M, 32 * M)),
        ("-e 34M", (32 * M, 33 * M, 34 * M)), ("-f 2", (32 * M,)), ("-i 4M", (32 * M,)),
        ("-b 8M -f 2", (8 * M, 16 * M, 32 * M)),
    ],
)  # fmt: skip
def test_the_flags_of_nccl_tests_have_its_defaults(flags: str, found: tuple[int, ...]) -> None:
    assert parse_words(flags.split()).sizes == found


@pytest.mark.parametrize(
    ("flags", "found"),
    [("", "default"), ("-R 0", "default"), ("-R 1", "registered"), ("-R 2", "symmetric")],
)
def test_memory_is_chosen_as_in_nccl_tests(flags: str, found: str) -> None:
    assert parse_words(flags.split()).memory == (found,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--sizes 1K -b 8", "--sizes and -b both choose the sizes"),
        ("--sizes 1K -i 1M", "--sizes and -i both choose the sizes"),
        ("-b 1M -e 4M -f 2 -i 1M", "-f and -i both choose the next size"),
        ("-b 8 -e 128 -f two", "-f 'two' is not a number"),
        ("-b 8 -e 128 -f -2", "-f '-2' is not a number"),
        ("-b 8 -e 128 -f nan", "-f 'nan' is not a number"),
        ("-b 64M", "-b 64M is more than -e 32M"),
        ("-b 0 -e 8 -f 2", "size '0' is out of range"),
        ("-b 1KB", "'1KB' could mean a power of 1000 or of 1024"),
        ("-b 8 -e 128 -i 0", "size '0' is out of range"), ("--sizes=", "--sizes is empty"),
        ("-R 3", "-R cannot be 3"),
        ("-R 1 --memory default", "--memory and -R both choose the memory"),
        ("--memory symm_mem", "--memory: unknown memory 'symm_mem'"),
    ],
)  # fmt: skip
def test_words_that_contradict_or_make_no_sense_are_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_words(words.split())
    assert refused.value.message == message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"launcher": "ssh"}, "unknown launcher 'ssh'"),
        *(({"label": label}, f"--label {label!r} cannot be part of a folder's name") for label in (
            "", "-a", ".a", "..", "a/b", "a b", "line\n", "a\u202eb", "x" * 65,
        )),
        ({"nproc_per_node": 0}, "--nproc-per-node is 0"),
        ({"nnodes": 2, "node_rank": 2}, "--node-rank 2 is not a number from 0 to 1"),
        ({"node_rank": -1}, "--node-rank -1 is not a number from 0 to 0"),
        ({"nnodes": 0}, "--nnodes is 0"), ({"nnodes": 2}, "2 nodes need the address of node 0"),
        ({"master_port": 0}, "--master-port is 0"),
        ({"master_port": 65536}, "--master-port is 65536"), ({"iters": 0}, "--iters is 0"),
        ({"precision": 5.0}, "--precision is 5"), ({"launches": 1 << 21}, "--launches is 2097152"),
        ({"budget": 1e9}, "--budget is 1000000000"), ({"format": "pdf"}, "unknown format 'pdf'"),
        (
            {"concurrency": "both"},
            "--concurrency both has no effect without --mesh, --groups or --group-size",
        ),
    ],
    ids=repr,
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused_before_torch_is_needed(
    wish: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        options(**wish)
    assert refused.value.message == message
    assert refused.value.hint


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
        *(({"label": label}, label) for label in ("Größe", "大小", "हिन्दी", "a.b_c-1", "x" * 64)),
    ],
)
def test_a_run_is_named_by_its_label_or_its_operations(wishes: dict[str, Any], name: str) -> None:
    assert options(**wishes).name == as_label(name) == name


@pytest.mark.parametrize(
    ("asked", "launches"),
    [
        ({}, 3), ({"budget": 1.0, "precision": 0.02}, 3), ({"iters": 20}, 1),
        ({"op": "ping_pong", "pairs": "quick"}, 1), ({"op": "ping_pong", "pairs": "all"}, 3),
        ({"launches": 1}, 1), ({"launches": 6, "iters": 20}, 6),
        ({"op": "ping_pong", "launches": 2, "pairs": "quick"}, 2),
    ],
)  # fmt: skip
def test_a_run_that_chooses_its_iterations_has_three_launches(
    asked: dict[str, object], launches: int
) -> None:
    usual = {"backend": "gloo", "device": "cpu", "nproc_per_node": 4}
    assert plan_run(parse_options(usual | asked)).plan.launches == launches


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
    for mode, backend, device, planned in (
        (None, "gloo", "cpu", "quiet"), (None, "nccl", "cuda", "plain"),
        ("realtime", "nccl", "cuda", "realtime"),
    ):  # fmt: skip
        assert options(cpu_mode=mode).plan(backend, device, 2).cpu_mode == planned


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
    timeout=st.floats(1, 1e6),
    cpu_mode=st.none() | st.sampled_from(["quiet", "plain"]),
    backend=st.none() | st.just("gloo"),
    device=st.none() | st.just("cpu"),
    label=st.none() | st.just("ring"),
)


def with_effect(asked: RunOptions) -> RunOptions:
    """The options without those that have no effect beside the others."""
    default = options()
    operations = [OPERATIONS[name] for name in asked.op]
    used = {
        "precision": asked.iters is None, "budget": asked.iters is None,
        "overlap_ratio": asked.overlap != default.overlap,
    } | {
        option: any(getattr(operation, needed) for operation in operations)
        for option, needed in (
            ("root", "rooted"), ("reduce_op", "reduces"), ("p2p_call", "p2p_calls"),
            ("pairs", "is_paired"), ("window", "has_window"), ("imbalance", "block_counts"),
        )
    }  # fmt: skip
    return replace(asked, **{name: getattr(default, name) for name, is_used in used.items()
                             if not is_used})  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(some_options.map(with_effect))
def test_the_arguments_for_ranks_that_join_make_the_same_plan(asked: RunOptions) -> None:
    again = parse_words(asked.arguments())
    assert again == asked
    assert again.plan("gloo", "cpu", 4).digest == asked.plan("gloo", "cpu", 4).digest


@pytest.mark.parametrize(
    ("given", "user", "message"),
    [
        ({"itres": 3}, "", "unknown argument 'itres'"),
        ({"iters": "many"}, "", "--iters cannot be 'many'"),
        ({"iters": 2.5}, "", "--iters cannot be 2.5"),
        ({"check": "no"}, "", "--check cannot be 'no'"),
        ({"op": 7}, "", "--op: unknown operation 7"),
        ({"sizes": -1}, "", "--sizes: size -1 is below 1"),
        ({"timeout": "soon"}, "", "--timeout cannot be 'soon'"),
        ({"format": "text", "dry_run": True}, "api", "--dry-run is for the command line only"),
        ({"nnodes": 2}, "job", "--nnodes cannot be used after the -- of a job"),
        ({"launches": 2}, "sweep", "--launches cannot be used in a sweep"),
        ({"resume": "x", "output": "y"}, "", "--output cannot be used with --resume"),
        (
            {"nproc_per_node": 2},
            "measure",
            "--nproc-per-node cannot be used with commbench.measure",
        ),
    ],
)  # fmt: skip
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


def test_a_workload_leaves_out_the_options_that_choose_calls(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    write_workload(path, WORKLOAD)
    asked = parse_options({"workload": path, "variant": "calls", "budget": 1.0})
    assert asked.arguments() == [f"--workload={path}", "--variant=calls", "--budget=1"]
    assert asked.command() == ["commbench", "run", *asked.arguments()]
    again = parse_words(asked.arguments())
    assert again.plan("gloo", "cpu", 2).digest == asked.plan("gloo", "cpu", 2).digest
