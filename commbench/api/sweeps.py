"""Sweeps from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commbench.api.runs import ignore
from commbench.runner.run_options import RUN_OPTIONS, RunOptions, parse_options

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from commbench.api.keywords import SweepKeywords
    from commbench.sweep.result import SweepResult
    from commbench.sweep.session import SweepOptions
    from commbench.sweep.settings import Setting


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
    **options: Unpack[SweepKeywords],
) -> SweepResult:
    """Measure the same cases under every combination of settings.

    `env` has the values of environment variables ("-" leaves one unset), `vary` those of options of
    `commbench run`: `sweep(env={"NCCL_ALGO": ["RING", "TREE"]}, vary={"dtype": ["float32"]})`. The
    other keywords are the options of `commbench run`, as for `run`. Settings that could not be
    measured are in `failures`. Raises CommbenchError; its `run` is what was measured until then.
    """
    from commbench.sweep.session import SweepOptions
    from commbench.sweep.settings import make_settings
    from commbench.units import parse_tolerance

    varied = {name.replace("_", "-"): _texts(values) for name, values in (vary or {}).items()}
    settings = make_settings({n: _texts(values) for n, values in (env or {}).items()}, varied)

    def parse(setting: Setting) -> RunOptions:
        values: dict[str, Any] = {}
        for name, text in setting.options:
            option = RUN_OPTIONS[name.replace("-", "_")]
            is_number = option.type == int | None and text.isdecimal()
            values[option.name] = int(text) if is_number else text
        return parse_options({"plots": False, **options, **values}, "api", "sweep")

    return run_sweep(
        SweepOptions(
            settings=settings,
            runs=tuple(map(parse, settings)),
            rounds=rounds,
            tolerance=parse_tolerance(tolerance),
            label=label,
            output=None if output is None else Path(output),
            export=export,
            force=force,
        )
    )


def _texts(values: Any) -> tuple[str, ...]:
    """One value, or several, as text, each once."""
    return (values,) if isinstance(values, str) else tuple(dict.fromkeys(map(str, values)))


def run_sweep(options: SweepOptions, notify: Callable[[str], None] = ignore) -> SweepResult:
    """Carry out a new sweep; raises CommbenchError for what ended it, and for wrong results. Lines
    about what happens go to `notify`, and progress to standard error."""
    from commbench.runner.process_state import restored_process_state
    from commbench.sweep import session

    with restored_process_state():
        return session.start(options, notify)


def resume_sweep(
    sweep: str | Path,
    *,
    tolerance: float | None = None,
    export: str | None = None,
    notify: Callable[[str], None] = ignore,
) -> SweepResult:
    """Measure what is missing of a sweep: its folder, or its name under results/."""
    from commbench.runner.process_state import restored_process_state
    from commbench.sweep import session

    with restored_process_state():
        return session.resume(str(sweep), notify, tolerance, export)


def load_sweep(sweep: str | Path) -> SweepResult:
    """Load a sweep by its folder, or by its name under results/; RecordsError if there is none."""
    from commbench.sweep.result import load_sweep

    return load_sweep(sweep)
