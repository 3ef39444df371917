"""Options of NCCL's communicator as torch gets them. A torch for CPUs has no ProcessGroupNCCL:
classes with the same fields stand in for its Options."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Commbench
from synthetic_rows import plan

from commbench.errors import UnavailableError
from commbench.worker.nccl_options import make_nccl_options


def torch_with(*config: str) -> Any:
    """A ProcessGroupNCCL whose config has these fields."""

    class Config:
        def __init__(self) -> None:
            for name in config:
                setattr(self, name, -1)

    class Options:
        def __init__(self) -> None:
            self.is_high_priority_stream = False
            self.config = Config()

    return SimpleNamespace(Options=Options)


def test_each_option_is_set_where_torch_has_it() -> None:
    asked = plan(
        backend="nccl", device="cuda",
        nccl_options=("cta_policy=zero", "max_ctas=8", "net_name=IB", "is_high_priority_stream=1"),
    )  # fmt: skip
    torch_here = torch_with("cta_policy", "max_ctas", "min_ctas", "net_name")
    options = make_nccl_options(asked, timedelta(seconds=90), torch_here)
    assert vars(options.config) == {
        "cta_policy": 2, "max_ctas": 8, "min_ctas": -1, "net_name": "IB"
    }  # fmt: skip
    assert options.is_high_priority_stream is True
    assert options._timeout == timedelta(seconds=90)


def test_an_option_that_this_torch_lacks_is_named_with_its_version() -> None:
    asked = plan(backend="nccl", device="cuda", nccl_options=("cta_policy=zero",))
    with pytest.raises(UnavailableError) as refused:
        make_nccl_options(asked, process_group=torch_with("max_ctas"))
    assert refused.value.message.endswith("has no NCCL option cta_policy")
    assert refused.value.message.startswith("torch 2.")


def test_without_options_torch_gets_none() -> None:
    assert make_nccl_options(plan(backend="nccl", device="cuda")) is None
    assert make_nccl_options(plan()) is None


def test_a_run_and_a_sweep_of_gloo_refuse_them_before_they_measure(commbench: Commbench) -> None:
    for words in (
        ("run", "--nccl-option", "max_ctas=8", "--output", "x"),
        ("sweep", "--vary", "nccl-option=-,max_ctas=8", "--output", "x"),
    ):
        ended = commbench(*words, "--sizes", "1K", "--backend", "gloo")
        assert ended.code == 2
        assert ended.err.startswith(
            "error: --nccl-option max_ctas=8 needs the backend nccl, and this is gloo\n"
        )
