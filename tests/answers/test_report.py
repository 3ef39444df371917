from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from commands import Commbench
from synthetic import header, plan, synthetic_run
from synthetic_replay import replay_plan
from synthetic_sweep import synthetic_sweep

import commbench
from commbench.analysis.load import open_run
from commbench.answers.report import reproduce, shell_lines
from commbench.results.schema import IN_PROCESS
from commbench.views.document import Code, Text

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
ODD = plan(
    operations=("all_reduce", "barrier"), sizes=(8, 24, 1 << 20), dtypes=("float16", "int8"),
    reduce_ops=("max",), iterations=7, warmup=3, order="ascending", launches=2, check=False, seed=5,
    timing="both", placement="both", cpu_mode="plain", peak="10GB/s",
)  # fmt: skip


def words_of(lines: str) -> list[str]:
    """The words of a command, as a shell reads them."""
    shell = ["bash", "-c", f"printf '%s\\0' {lines}"]
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]


def commands(found: tuple[object, ...]) -> list[list[str]]:
    return [words_of(block.lines) for block in found if isinstance(block, Code)]


@pytest.mark.parametrize("is_odd", [False, True])
def test_the_command_plans_the_same_as_the_torchrun_line_beside_it(
    commbench: Commbench, tmp_path: Path, is_odd: bool
) -> None:
    folder = synthetic_run(tmp_path / "run", "odd", lambda _: None, ODD) if is_odd else REFERENCE
    again, torchrun = commands(reproduce(open_run(folder).header))
    words = again[again.index("commbench") + 1 :]
    planned = commbench(*words, "--nproc-per-node=2", "--dry-run")
    assert planned.code == 0, planned.err
    theirs = words_of(planned.out.rpartition("torchrun:\n")[2])
    theirs.remove("--output=run")  # the test's own
    ours = torchrun[torchrun.index("torchrun") :]
    assert theirs[theirs.index("commbench") :] == ours[ours.index("commbench") :]


def test_a_measurement_of_a_program_is_said_to_be_one() -> None:
    first, *others = reproduce(header(plan(), "mine", launcher=IN_PROCESS))
    assert isinstance(first, Text)
    assert "commbench.measure" in first.text
    assert others == [*reproduce(header(plan(), "mine"))]


def test_variables_are_quoted_and_several_nodes_meet_at_the_first_host() -> None:
    hostile = {"NCCL_X": "'; rm -rf $HOME `id`", "NCCL_ALGO": "RING"}
    found = header(plan(), "mine", environment={"variables": hostile}, num_nodes=2)
    again, torchrun = commands(reproduce(found))
    for words in (again, torchrun):
        assert words[:3] == ["env", f"NCCL_X={hostile['NCCL_X']}", "NCCL_ALGO=RING"]
    assert {"--nnodes=2", "--master-addr=node1"} <= {*torchrun}


def test_a_long_command_is_continued_on_the_next_line() -> None:
    words = ["commbench", "run", *(f"--option-{number}={'x' * 10}" for number in range(30))]
    lines = shell_lines(words)
    assert words_of(lines) == words
    assert max(map(len, lines.split("\n"))) <= 80


def test_a_replay_is_repeated_with_the_file_of_its_workload() -> None:
    first, *others = reproduce(header(replay_plan(["calls"]), "mine"))
    assert isinstance(first, Text)
    assert "instead of resnet.json" in first.text
    for words in commands(tuple(others)):
        options = words[words.index("run") + 1 :]
        assert {"--workload=resnet.json", "--step=train", "--variant=calls"} <= set(options)
        assert not any(
            word.startswith(("--op", "--sizes", "--dtype", "--root")) for word in options
        )


def test_settings_of_a_sweep_are_measured_again_in_turns(tmp_path: Path) -> None:
    first, second = synthetic_sweep(tmp_path / "swept", lambda i, _: 1 + i)
    runs = [commbench.load(tmp_path / "swept" / each.slug) for each in (first, second)]
    text = " ".join(commbench.report(*runs, format="markdown").replace("\\\n", " ").split())
    assert "Measure the sweep again:" in text
    assert "commbench sweep --vary=cpu-mode=quiet,plain --rounds=3 --op=all_reduce" in text
    assert "--launches" not in text[: text.index("How to measure")]
