"""COMMANDS: what each command takes and shows. To add an option, add an entry.

The options of `commbench run` are in runner/run_options.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from commbench.cli import measuring_options as measuring
from commbench.cli import reading_options as reading
from commbench.cli.options import AS_DOCUMENT, OfRun, Option


class Command(NamedTuple):
    """What a command takes and shows. The function of its name in `module` carries it out."""

    module: str
    """In commbench/cli/."""
    options: Mapping[str, Option | OfRun] | Callable[[], Mapping[str, Option | OfRun]]
    """By their names in Python; or what makes them, where that takes long to import."""
    api: tuple[str, ...] = ()
    """The Python functions that have these parameters, by name in commbench.api, or dotted."""
    view: str = ""
    """The module, in commbench/, whose VIEW shows the result. The function gets what shows it;
    --format, --output and --verbose are for that, where the function does not name them itself."""
    typer_settings: Mapping[str, Any] = {}
    """What Typer is told besides, of a command that options of `commbench run` may follow."""


AFTER_DASHES: Mapping[str, Any] = {
    "context_settings": {"allow_extra_args": True},
    "options_metavar": "[OPTIONS] -- OPTIONS OF RUN",
}
BESIDE_OWN: Mapping[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}
}
_WORKLOAD = "commbench.api.workload"
COMMANDS: Mapping[str, Command] = {
    "run": Command("measuring", measuring.all_of_run),
    "replay": Command("measuring", measuring.of_replay),
    "pairs": Command("measuring", measuring.of_pairs),
    "init": Command("measuring", measuring.of_init),
    "sweep": Command(
        "sweep", measuring.SWEEP, ("sweep",), "sweep.document", typer_settings=BESIDE_OWN
    ),
    "smoke": Command("smoke", measuring.SMOKE, view="runner.smoke_document"),
    "job slurm": Command(
        "job", measuring.JOB_SLURM, ("commbench.jobs.slurm.SlurmOptions", "job_script"),
        typer_settings=AFTER_DASHES,
    ),
    "job kubernetes": Command(
        "job", measuring.JOB_KUBERNETES,
        ("commbench.jobs.kubernetes.KubernetesOptions", "job_script"), typer_settings=AFTER_DASHES,
    ),
    "list": Command("reading", AS_DOCUMENT, view="report.run_list"),
    "show": Command("reading", reading.SHOW),
    "plot": Command("reading", reading.PLOT, ("plot",)),
    "report": Command("reading", reading.REPORT, ("check",)),
    "explain": Command("reading", reading.EXPLAIN, ("explain",), "explain.document"),
    "export": Command("reading", reading.EXPORT, ("export",)),
    "import": Command("reading", reading.IMPORT, ("import_results",)),
    "workload show": Command("workload", measuring.WORKLOAD_SHOW),
    "workload import": Command("workload", measuring.WORKLOAD_IMPORT),
    "workload ddp": Command("workload", measuring.WORKLOAD_DDP, (f"{_WORKLOAD}.ddp",)),
    "workload fsdp": Command("workload", measuring.WORKLOAD_FSDP, (f"{_WORKLOAD}.fsdp",)),
    "workload megatron": Command(
        "workload", measuring.WORKLOAD_MEGATRON,
        (f"{_WORKLOAD}.megatron", "commbench.training.megatron_calls.Training"),
    ),
    "compare": Command("judging", reading.COMPARE, ("compare",), "compare.document"),
    "check": Command("judging", reading.CHECK, ("check",), "gate.document"),
    "advise": Command("judging", reading.ADVISE, ("advise",), "advise.document"),
    "model fit": Command("model", reading.MODEL_FIT, ("fit_model",)),
    "model predict": Command("model", reading.MODEL_PREDICT, ("predict",)),
    "ops": Command("look_up", AS_DOCUMENT, view="report.operations"),
    "links": Command("look_up", reading.LINKS, view="links.document"),
    "expect": Command("look_up", reading.EXPECT, ("expect",), "expect.document"),
    "env": Command("look_up", AS_DOCUMENT, view="report.environment"),
    "doctor": Command("look_up", reading.DOCTOR, ("doctor",), "doctor.document"),
}  # fmt: skip
"""By the words that call it."""
