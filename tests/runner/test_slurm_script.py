"""The batch script: what Slurm reads, what bash reads, and that users' words stay words."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_job import HOSTILE, a_job

from commbench.errors import UsageError
from commbench.runner.jobs import SlurmOptions, parse_variables, slurm_time


def ranks_arguments(script: str, where: Path, variables: str = "") -> list[str]:
    """What the ranks of the script's srun are given, and the values of some variables."""
    tools = where / "tools"
    tools.mkdir(exist_ok=True)
    srun = tools / "srun"
    srun.write_text('#!/bin/bash\nprintf "%s\\0" "$@"\n' + f'printf "%s\\0" {variables}\n')
    srun.chmod(0o755)
    ended = subprocess.run(
        ["bash"],
        input=script,
        cwd=where,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not (where / "pwned").exists()
    return ended.stdout.split("\0")[:-1]


def test_what_was_not_asked_for_is_left_out() -> None:
    script = SlurmOptions(exclusive=False).script(a_job(gpus_per_node=0, output="mine"))
    for left_out in ("gpus", "partition", "account", "cpus", "exclusive", "SLURM_JOB_ID"):
        assert left_out not in script.replace("no GPUs", "")
    assert "# Results:  mine, " in script
    assert "\nset -eu\n" in script


def test_a_replay_names_the_file_that_every_node_needs() -> None:
    script = SlurmOptions().script(a_job(workload="traces/step.json"))
    assert "# Workload: traces/step.json; every node must find this file.\n" in script


def test_srun_is_given_the_options_of_run_and_a_folder_of_the_job(tmp_path: Path) -> None:
    script = SlurmOptions(cpus_per_task=4).script(a_job())
    assert ranks_arguments(script, tmp_path) == [
        "--mpi=none", "--kill-on-bad-exit=1", "--cpus-per-task=4",
        "commbench", "run", "--sizes", "1K-1G", "--label", "ring", "--output", "results/7-ring",
        "",
    ]  # fmt: skip


def test_a_container_sees_the_folder_that_the_job_was_submitted_from(tmp_path: Path) -> None:
    script = SlurmOptions(container="nvcr.io#nvidia/pytorch:26.10-py3").script(a_job())
    words = ranks_arguments(script, tmp_path)
    assert words[2:5] == [
        "--container-image=nvcr.io#nvidia/pytorch:26.10-py3",
        f"--container-mounts={tmp_path}:{tmp_path}",
        f"--container-workdir={tmp_path}",
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_users_words_stay_words(tmp_path: Path, text: str) -> None:
    job = a_job(words=("--output", text), output=text, variables=(("NOTE", text),))
    script = SlurmOptions(container=text).script(job)
    words = ranks_arguments(script, tmp_path, '"$NOTE"')
    assert words[2] == f"--container-image={text}"
    assert words[-3:] == ["--output", text, text]


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30))
def test_any_text_is_quoted_or_refused(text: str) -> None:
    try:
        script = SlurmOptions().script(a_job(words=("--output", text)))
    except UsageError as refused:
        assert not text.isprintable()
        assert "control character" in refused.message
        return
    [line] = [line for line in script.splitlines() if "commbench run" in line]
    assert shlex.split(line.removesuffix("\\")) == ["commbench", "run", "--output", text]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize(
    ("text", "written"),
    [("30m", "00:30:00"), ("90s", "00:01:30"), ("2h", "02:00:00"), ("3d", "72:00:00"),
     ("90", "90"), ("1:30:00", "1:30:00"), ("2-12", "2-12"), ("1-00:30", "1-00:30")],
)  # fmt: skip
def test_times_are_written_as_slurm_reads_them(text: str, written: str) -> None:
    assert slurm_time(text) == written


@pytest.mark.parametrize("text", ["", "0m", "30 m", "half an hour", "1:2:3:4", "5w", "-5", "١٢m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        SlurmOptions(time=text)


@pytest.mark.parametrize(
    "wishes",
    [{"partition": "gpu --uid=0"}, {"partition": "a\n#SBATCH --uid=0"}, {"account": ""},
     {"account": "a#b"}, {"cpus_per_task": 0}, {"setup": ("a\nb",)}, {"container": "a\nb"}],
)  # fmt: skip
def test_what_slurm_could_misread_is_refused(wishes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        SlurmOptions(**wishes)
    assert refused.value.hint


@pytest.mark.parametrize(
    "wishes",
    [{"nodes": 0}, {"ranks_per_node": 0}, {"gpus_per_node": -1}, {"title": "a b"}, {"title": ""},
     {"words": ("--output", "a\nb")}, {"words": ("--output", "a\x1b[2J")}],
)  # fmt: skip
def test_a_job_that_no_cluster_has_is_refused(wishes: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        a_job(**wishes)
    assert refused.value.hint


def test_variables_are_names_and_values() -> None:
    texts = ["A=1", "B=", "C=x=y $HOME", "A=2"]
    assert parse_variables(texts) == (("A", "2"), ("B", ""), ("C", "x=y $HOME"))
    for text in ("A", "=1", "1A=1", "A B=1", "$(x)=1", "A=1\nB=2", ""):
        with pytest.raises(UsageError):
            parse_variables([text])


@pytest.mark.parametrize("bad", [(), ("n2", "n5")])
def test_with_a_preflight_srun_gets_good_nodes_only(tmp_path: Path, bad: tuple[str, ...]) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "commbench").write_text(
        '#!/bin/bash\nfolder="${@: -1}"\nmkdir -p "$folder"\necho "$@" >asked\n'
        f"printf '%s' '{''.join(f'{name}{chr(10)}' for name in bad)}' >\"$folder/exclude.txt\"\n"
    )
    (tools / "commbench").chmod(0o755)
    job = a_job()
    script = SlurmOptions(preflight=True, spare=3).script(job)
    assert f"#SBATCH --nodes={job.nodes + 3}\n" in script
    words = ranks_arguments(script, tmp_path)
    excluded = [word for word in words if word.startswith("--exclude")]
    assert excluded == (["--exclude=n2,n5"] if bad else [])
    assert f"--nodes={job.nodes}" in words
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:3] == ["preflight", "--need", str(job.nodes)]


def test_spare_nodes_need_a_preflight() -> None:
    with pytest.raises(UsageError, match=r"spare needs"):
        SlurmOptions(spare=1)
