"""The options of NCCL's communicator: their names, values, and where they are refused."""

from __future__ import annotations

import pytest

from commbench.cli.run_parameters import parse_words
from commbench.errors import UsageError
from commbench.spec.nccl_options import NCCL_OPTIONS, read_value, require_nccl


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


def test_every_word_for_a_value_is_one_that_is_read() -> None:
    for option in NCCL_OPTIONS.values():
        for word, value in (option.values or {}).items():
            assert read_value(option.name, word) == value
