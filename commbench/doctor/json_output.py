"""What the doctor found as plain JSON values; what is not known is left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from commbench import __version__
from commbench.doctor.checkup import DoctorOptions, DoctorReport
from commbench.doctor.findings import make_findings
from commbench.doctor.modes_text import describe_modes
from commbench.errors import CommbenchError


def doctor_json(report: DoctorReport) -> dict[str, Any]:
    """Everything that is known; seconds, bytes and bytes per second."""
    known = {name: _plain(value) for name, value in report._asdict().items()}
    return {
        "commbench": __version__,
        **{name: value for name, value in known.items() if value is not None},
        "ranks_fit": report.facts.ranks_fit if report.facts else None,
        "modes": [_plain(result) for result in report.results],
        "sentences": describe_modes(report) if report.trials else [],
        "findings": [finding._asdict() for finding in make_findings(report)],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, CommbenchError):
        return value.message
    if isinstance(value, DoctorOptions):
        return asdict(value)
    if hasattr(value, "_asdict"):
        named = {name: _plain(inner) for name, inner in value._asdict().items()}
        return {name: inner for name, inner in named.items() if inner is not None}
    if isinstance(value, tuple | list):
        return [_plain(inner) for inner in value]
    return value
