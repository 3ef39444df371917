"""Every option of a command is in one table, and every keyword of Python is an option."""

from __future__ import annotations

import inspect

import pytest

from commbench import api
from commbench.cli.commands import declared_commands, make_function

COMMANDS = declared_commands()
FOR_PYTHON_ONLY = {
    "workload ddp": {"broadcast_buffers", "loss"},
    "workload fsdp": {"blocks"},
}
"""Keywords that no option gives, besides `notify`, by the command."""
NAMED_OTHERWISE = {
    "compare": {"a": "first", "b": "others"},
    "workload ddp": {"ranks": "mesh"},
    "workload fsdp": {"ranks": "mesh", "replicas": "mesh", "reshard_after_forward": "reshard"},
}
WITH_OTHERS = (
    "sweep", "job slurm", "job kubernetes", "workload megatron", "report", "preflight",
)  # fmt: skip
"""Commands of several Python functions, or that take other options, too."""


@pytest.mark.parametrize("name", [n for n in COMMANDS if COMMANDS[n].api and n not in WITH_OTHERS])
def test_every_keyword_of_python_is_an_option(name: str) -> None:
    function = COMMANDS[name].api[0].rpartition(".")[2]
    module = getattr(api, name.split()[0]) if name.startswith(("history", "workload")) else api
    keywords = inspect.signature(getattr(module, function)).parameters.keys()
    renamed = NAMED_OTHERWISE.get(name, {})
    options = inspect.signature(make_function(name)).parameters.keys()
    missing = {renamed.get(keyword, keyword) for keyword in keywords} - options - {"notify"}
    assert missing == FOR_PYTHON_ONLY.get(name, set())


def test_an_option_has_the_default_of_its_keyword() -> None:
    options = inspect.signature(make_function("expect")).parameters
    keywords = inspect.signature(api.expect).parameters
    assert {name: options[name].default for name in keywords if name != "gpu"} == {
        name: keyword.default for name, keyword in keywords.items() if name != "gpu"
    }
    assert options["nodes"].annotation.__origin__ is int
