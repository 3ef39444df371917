"""The lines that choose an alternative in a program or a shell, from lines.txt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from shlex import quote

from commbench.answers.sweep.settings import UNSET, Setting
from commbench.output.paragraphs import read_sections
from commbench.plan.call_forms import CALL_FORMS
from commbench.plan.case import Case
from commbench.plan.operations import OPERATIONS
from commbench.plan.workload_variants import BUCKET, COMPOSED
from commbench.units import parse_size


@cache
def _templates() -> dict[str, str]:
    return read_sections(Path(__file__).with_name("lines.txt"))


def fill_lines(name: str, **values: object) -> tuple[str, ...]:
    """The lines of a section with its blanks filled in."""
    return tuple(_templates()[name].format_map(values).splitlines())


def call_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """How a program uses an alternative: a form of a call, a graph, a kind of memory."""
    ((_, name),) = setting.options
    operation = OPERATIONS[case.operation]
    if name not in _templates() or (name == "flat_copy" and operation.blocks):
        return (f"# {CALL_FORMS[name].summary}",)
    has_two = operation.torch_call.endswith(("_tensor", "_single"))
    return fill_lines(
        name,
        call=operation.torch_call,
        arguments="output, input" if has_two else "tensor",
        tensors="output, input in pairs" if has_two else "tensor in tensors",
    )


def own_call_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """Where the user's own call is."""
    return (f"# {case.operation}: the class {dict(setting.options)['call']}",)


def variant_lines(setting: Setting, case: Case) -> tuple[str, ...]:
    """How a program makes the calls of a variant of its step; none for those that it makes."""
    ((_, variant),) = setting.options
    name, _, size = variant.partition(":")
    if name == BUCKET:
        return fill_lines("bucket", mib=parse_size(size) / (1 << 20))
    if variant == COMPOSED.name:
        return call_lines(setting, case._replace(operation=COMPOSED.operations[0]))
    return ()


def setting_lines(setting: Setting, case: Case) -> tuple[str, ...]:  # noqa: ARG001
    """Lines of a shell that make a setting, and what Python must give."""
    lines = [
        f"unset {name}" if value == UNSET else f"export {name}={quote(value)}"
        for name, value in setting.variables
    ]
    for name, value in setting.options:
        if name == "backend":
            lines.append(f"dist.init_process_group({value!r})")
        elif value != UNSET:
            lines.append(f"# options of ProcessGroupNCCL: {value}")
    return tuple(lines)
