"""Which backend reads which variable, what a mistyped one was meant to be, and the options of
NCCL's communicator."""

from __future__ import annotations

import pytest

from commbench.cli.commands import parse_words
from commbench.errors import UsageError
from commbench.plan.backends import find_unread, require_nccl, suggest_variable


@pytest.mark.parametrize(
    ("name", "backend", "is_unread"),
    [
        ("NCCL_ALGO", "gloo", True), ("NCCL_ALGO", "nccl", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "gloo", True), ("GLOO_SOCKET_IFNAME", "gloo", False),
        ("GLOO_SOCKET_IFNAME", "nccl", True), ("OMP_NUM_THREADS", "gloo", False),
        ("TORCH_DISTRIBUTED_DEBUG", "gloo", False), ("UCX_TLS", "ucc", False),
        ("UCX_TLS", "gloo", True), ("EDITOR", "gloo", False),
    ],
)  # fmt: skip
def test_a_variable_of_another_backend_is_not_read(
    name: str, backend: str, is_unread: bool
) -> None:
    assert find_unread([name], backend) == ((name,) if is_unread else ())


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("NCCL_ALGO", None), ("NCCL_MIN_P2P_NCHANNELS", None),
        ("NCCL_A_NAME_OF_ANOTHER_VERSION", None), ("NCCL_AGLO", "NCCL_ALGO"),
        ("NCCL_ALG", "NCCL_ALGO"), ("NCCL_PROTOS", "NCCL_PROTO"), ("GLOO_SOCKET_IFNAME", None),
        ("GLOO_SOCKET_IFACE", "GLOO_SOCKET_IFNAME"), ("GLOO_COLOUR", ""), ("NCL_ALGO", "NCCL_ALGO"),
        ("TP_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), ("EDITOR", ""), ("OMP_NUM_THREADS", None),
        ("MALLOC_ARENA_MAX", None),
    ],
)  # fmt: skip
def test_a_name_that_nothing_reads_gets_one_suggestion(name: str, suggestion: str | None) -> None:
    assert suggest_variable(name, "nccl") == suggestion


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ()),
        (["--nccl-option", "cta_policy=zero"], ("cta_policy=zero",)),
        (["--nccl-option", "max_ctas=8", "--nccl-option", "min-ctas=2"],
         ("max_ctas=8", "min_ctas=2")),
        (["--nccl-option", "max_ctas=8, net_name=Socket"], ("max_ctas=8", "net_name=Socket")),
        (["--nccl-option", "-"], ()),
    ],
)  # fmt: skip
def test_options_are_named_with_their_values(words: list[str], found: tuple[str, ...]) -> None:
    options = parse_words(words)
    assert options.nccl_option == found
    assert options.plan("nccl", "cuda", 2).nccl_options == found
    assert parse_words(options.arguments()) == options


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cta_polcy=zero", "unknown NCCL option 'cta_polcy'", "did you mean cta_policy? known: "),
        ("blocking=1", "unknown NCCL option 'blocking'", "known: cta_policy, "),
        ("cta_policy", "--nccl-option 'cta_policy' is not NAME=VALUE", "cta_policy=zero"),
        ("cta_policy=one", "--nccl-option cta_policy cannot be 'one'", "default, efficiency, zero"),
        ("max_ctas=-1", "--nccl-option max_ctas cannot be '-1'", "a whole number"),
        ("max_ctas=1,max_ctas=2", "--nccl-option gives max_ctas twice: 1 and 2", "leave out one"),
    ],
)
def test_what_is_no_option_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_words(["--nccl-option", text])
    assert refused.value.message == message
    assert hint in (refused.value.hint or "")


def test_another_backend_has_no_such_options() -> None:
    require_nccl("nccl", ("max_ctas=8",))
    require_nccl("gloo", ())
    with pytest.raises(UsageError) as refused:
        require_nccl("gloo", ("max_ctas=8",))
    assert refused.value.message == (
        "--nccl-option max_ctas=8 needs the backend nccl, and this is gloo"
    )
