"""Sweeps from Python: one run for each setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.answers.sweep import session
from commbench.answers.sweep.session import SweepOptions
from commbench.answers.sweep.settings import Setting, make_settings
from commbench.api.measuring import takes_options
from commbench.api.runs import ignore, texts
from commbench.runner.planning import restored_process_state
from commbench.runner.run_options import RUN_OPTIONS, VARIED_OPTIONS, RunOptions, parse_options
from commbench.units import parse_tolerance

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from commbench.answers.sweep.result import SweepResult
    from commbench.api import keywords


@takes_options(RUN_OPTIONS, {}, "sweep")
def sweep(
    *,
    env: Mapping[str, Sequence[str]] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    rounds: int = 3,
    tolerance: str | float = "5%",
    label: str | None = None,
    output: str | Path | None = None,
    export: str | None = None,
    force: bool = False,
    **options: Unpack[keywords.Sweep],
) -> SweepResult:
    """Measure the same cases under every combination of settings.

    `env` has the values of environment variables ("-" leaves one unset), `vary` those of options of
    `commbench run`: `sweep(env={"NCCL_ALGO": ["RING", "TREE"]}, vary={"dtype": ["float32"]})`. The
    other keywords are those of `run`: help(commbench.run) explains them. `vary` takes dtype,
    placement, timing, launch, memory, buffers, mesh_order, calls, overlap, p2p_call, pairs, window,
    imbalance, backend, nccl_option, nproc_per_node and cpu_mode. It also takes python: virtual
    environments, or Pythons, with commbench and torch. Every setting is measured `rounds` times;
    those that could not be are in `failures`. Raises CommbenchError; its `run` is what was measured
    until then.
    """

    def listed(given: Mapping[str, Any] | None) -> dict[str, Any]:
        return {str(name): texts(values) for name, values in (given or {}).items()}

    settings = make_settings(listed(env), listed(vary))

    def parse(setting: Setting) -> RunOptions:
        values: dict[str, Any] = {}
        for name, text in setting.run_options:
            option = VARIED_OPTIONS[name]
            is_number = option.type == int | None and text.isdecimal()
            values[option.name] = int(text) if is_number else text
        return parse_options({"plots": False, **options}, "api", "sweep", varied=values)

    asked = SweepOptions(
        settings=settings,
        runs=tuple(map(parse, settings)),
        rounds=rounds,
        tolerance=parse_tolerance(tolerance),
        label=label,
        output=None if output is None else Path(output),
        export=export,
        force=force,
    )
    return run_sweep(asked)


def run_sweep(options: SweepOptions, notify: Callable[[str], None] = ignore) -> SweepResult:
    """Carry out a new sweep; raises CommbenchError for what ended it, and for wrong results. Lines
    about what happens go to `notify`, and progress to standard error."""
    with restored_process_state():
        return session.start(options, notify)


def resume_sweep(
    sweep: str | Path,
    *,
    tolerance: float | None = None,
    export: str | None = None,
    rounds: int | None = None,
    plots: bool = True,
    notify: Callable[[str], None] = ignore,
) -> SweepResult:
    """Measure what is missing of a sweep: its folder, or its name under results/. `rounds` makes
    more of them than were asked for; `plots` draws it."""
    with restored_process_state():
        return session.resume(str(sweep), notify, tolerance, export, rounds, plots)
