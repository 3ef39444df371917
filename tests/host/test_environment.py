"""Facts that are recorded with a run, and secrets that are not."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from synthetic_files import put

from commbench import __version__
from commbench.host import environment
from commbench.host.environment import (
    boot_id,
    gather_facts,
    host_facts,
    nccl_settings,
    relevant_variables,
    torch_facts,
)
from commbench.host.gpu_system import gpu_facts


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(relevant_variables()):
        monkeypatch.delenv(name)


def test_variables_of_communication_libraries_are_taken_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "UCX_TLS": "all",
    }
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    assert relevant_variables() == wanted
    assert list(relevant_variables()) == sorted(wanted)


def test_settings_in_nccls_own_files_are_read_the_users_before_the_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "etc/nccl.conf", "# of the cluster\nNCCL_IB_HCA=mlx5\nNCCL_DEBUG=WARN\nNCCL_X\n")
    put(tmp_path, "home/.nccl.conf", "NCCL_DEBUG=INFO\nOTHER=1\n")
    put(tmp_path, "named", "NCCL_ALGO=Ring")
    monkeypatch.setattr(environment, "HOST", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert nccl_settings() == {"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "INFO"}
    assert gather_facts()["nccl_conf"] == nccl_settings()
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "named"))
    assert nccl_settings() == {"NCCL_IB_HCA": "mlx5", "NCCL_DEBUG": "WARN", "NCCL_ALGO": "Ring"}


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "WANDB_API_KEY", "PATH", "HOME", "USER",
        "SSH_AUTH_SOCK", "MY_NCCL_SECRET", "nccl_secret", "HTTPS_PROXY", "TORCH_HOME",
        "SLURM_JWT", "CUDA_HOME",
    ],
)  # fmt: skip
def test_no_other_variable_is_ever_recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "a secret")
    assert relevant_variables() == {}
    assert "a secret" not in json.dumps(gather_facts())


def test_facts_of_the_host_are_named_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "example")
    facts = host_facts()
    assert list(facts) == [
        "host", "boot_id", "kernel", "machine", "processor", "cores", "governor", "python",
        "commbench",
    ]  # fmt: skip
    assert facts["host"] == "example"
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["commbench"] == __version__
    assert facts["processor"]


def test_the_boot_has_the_same_name_in_all_of_its_processes() -> None:
    assert boot_id() == boot_id()
    assert boot_id() == host_facts()["boot_id"]


def test_facts_of_torch_say_what_it_was_built_with() -> None:
    import torch

    facts = torch_facts()
    assert facts["torch"] == torch.__version__
    assert facts["cuda"] == torch.version.cuda
    assert "gloo" in facts["backends"]
    assert ("nccl" in facts) == ("nccl" in facts["backends"])


def test_all_facts_together_go_through_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    facts = gather_facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    known = {**host_facts(), **gpu_facts(), **torch_facts(), "variables": {"NCCL_DEBUG": "WARN"}}
    assert facts == known
