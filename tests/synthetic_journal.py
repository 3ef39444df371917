"""A small run to write and read journals with: its header, cases, measurements and end."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from random import Random
from zlib import crc32

from commbench import __version__
from commbench.plan.plan import Plan
from commbench.results.journal import Journal, seal
from commbench.results.records import LinkProbe, RankInfo, WrongElement
from commbench.results.run_folder import JOURNAL
from commbench.results.samples import with_rank_times
from commbench.results.schema import Batch, Measurement, RunEnd, RunHeader

PLAN = Plan(
    operations=("all_reduce", "gather"), sizes=(1024, 4096), root=1, backend="gloo", device="cpu",
    world_size=2, iterations=3,
)  # fmt: skip
HEADER = RunHeader(
    PLAN, label="été \u2028 \x1b[1m", started="2026-11-21T00:00:00+00:00", launcher="local",
    environment={"host": "example", "variables": {"GLOO_SOCKET_IFNAME": "lo"}, "cuda": None},
    ranks=(RankInfo(0, "example", 1000, "cpu", (0,), "quiet"), RankInfo(1, "example", 1001, "cpu")),
    num_nodes=1, commbench=__version__, overhead_s=1.5e-7, resolution_s=1e-9,
    link_probes=(LinkProbe(0, 1, 1 << 22, 0.0125), LinkProbe(1, 0, 1 << 22, 0.0625)),
)  # fmt: skip
CASES = PLAN.cases()


FIRST_BATCH = Batch(
    samples_s=(1.5e-4, 0.1 + 0.2), calls=20, warmup=1, rank_medians_s=(1.4e-4, 1.5e-4),
    rank_behind_s=(0.0, 1.25e-5), last_in=(0, 2), entry_skew_s=1.41e-7, operation_s=1.3e-4,
    elapsed_s=0.25, queued_s=0.125, switches=3, throttled_s=0.0, stolen_s=0.01,
)  # fmt: skip
TOLD = "rank 1, element 7: expected 3.0, got nan"
MEASUREMENTS = tuple(
    with_rank_times(measured)
    for measured in (
        Measurement(
            CASES[0], "ok", stop_reason="fixed", wrong=0,
            batches=(FIRST_BATCH, Batch(samples_s=(1.25e-4,))),
        ),
        Measurement(
            CASES[1], "wrong", TOLD, wrong=1, batches=(Batch(samples_s=(1e-3,)),),
            first_wrong=WrongElement(rank=1, element=7, expected="3.0", got="nan"),
        ),
        Measurement(CASES[2], "failed", reason='"quoted",\nand on two lines'),
    )
)  # fmt: skip
"""As they are recorded."""
END = RunEnd(status="complete", elapsed_s=0.25)


def record(journal: Journal, *measurements: Measurement) -> None:
    """Write cases as a run does: batches in rounds, each case's own line after its last batch."""
    rounds = max((len(m.batches) for m in measurements), default=0)
    for number in range(max(rounds, 1)):
        for measurement in measurements:
            if number < len(measurement.batches):
                journal.batch(measurement.case, measurement.batches[number])
            if number == max(len(measurement.batches), 1) - 1:
                journal.add(measurement)


def write(folder: Path, *measurements: Measurement, end: RunEnd = END) -> Path:
    journal = Journal(folder)
    journal.add(HEADER)
    record(journal, *measurements)
    journal.end(end)
    return folder / JOURNAL


def sealed(lines: Iterable[str]) -> str:
    """The text of a journal of these lines, each with the checksum that it would be written with;
    what is no JSON object stays as it is."""
    whole = b""
    for line in lines:
        body = re.sub(r', "crc32": "[0-9a-f]{8}"', "", line)
        is_object = body.endswith("}\n")
        whole += seal(body[:-1], crc32(whole)) if is_object else body.encode()
    return whole.decode()


def flip(content: bytes, chance: Random) -> bytes:
    """One other bit, or one other digit."""
    if chance.random() < 0.5:
        at = chance.randrange(len(content))
        return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    at = chance.choice([found.start() for found in re.finditer(rb"\d", content)])
    others = b"0123456789".replace(content[at : at + 1], b"")
    return content[:at] + bytes([chance.choice(others)]) + content[at + 1 :]
