"""Which backend reads which environment variable, and what a mistyped name was meant to be."""

from __future__ import annotations

import pytest

from commbench.spec.backends import BACKENDS
from commbench.spec.variables import VARIABLE_FAMILIES, find_unread, suggest_variable


@pytest.mark.parametrize(
    ("name", "backend", "is_unread"),
    [
        ("NCCL_ALGO", "gloo", True),
        ("NCCL_ALGO", "nccl", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "gloo", True),
        ("GLOO_SOCKET_IFNAME", "gloo", False),
        ("GLOO_SOCKET_IFNAME", "nccl", True),
        ("OMP_NUM_THREADS", "gloo", False),
        ("TORCH_DISTRIBUTED_DEBUG", "gloo", False),
        ("UCX_TLS", "ucc", False),
        ("UCX_TLS", "gloo", True),
        ("EDITOR", "gloo", False),
    ],
)
def test_a_variable_of_another_backend_is_not_read(
    name: str, backend: str, is_unread: bool
) -> None:
    assert find_unread([name], backend) == ((name,) if is_unread else ())


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("NCCL_ALGO", None),
        ("NCCL_MIN_P2P_NCHANNELS", None),
        ("NCCL_A_NAME_OF_ANOTHER_VERSION", None),
        ("NCCL_AGLO", "NCCL_ALGO"),
        ("NCCL_ALG", "NCCL_ALGO"),
        ("NCCL_PROTOS", "NCCL_PROTO"),
        ("GLOO_SOCKET_IFNAME", None),
        ("GLOO_SOCKET_IFACE", "GLOO_SOCKET_IFNAME"),
        ("GLOO_COLOUR", ""),
        ("NCL_ALGO", "NCCL_ALGO"),
        ("TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("EDITOR", ""),
        ("OMP_NUM_THREADS", None),
        ("MALLOC_ARENA_MAX", None),
    ],
)
def test_a_name_that_nothing_reads_gets_one_suggestion(name: str, suggestion: str | None) -> None:
    assert suggest_variable(name, "nccl") == suggestion


def test_a_suggestion_is_a_variable_that_the_backend_reads() -> None:
    assert suggest_variable("TP_SOCKET_IFNAME", "gloo") == "GLOO_SOCKET_IFNAME"


def test_every_known_name_is_read_and_every_backend_is_one_of_torch() -> None:
    for family in VARIABLE_FAMILIES:
        assert set(family.backends) <= set(BACKENDS)
        for name in family.names:
            assert suggest_variable(family.prefix + name, "nccl") is None
