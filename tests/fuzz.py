"""Throws damaged files and random command lines at commbench, and says which of them end otherwise
than with an answer, or with two lines and an exit code.

    python fuzz.py files FOLDER SEED COUNT EACH [N]   EACH commands on each of COUNT damaged files,
                                                      or on the file N only, left in FOLDER
    python fuzz.py lines FOLDER SEED COUNT            COUNT command lines
    python fuzz.py these FOLDER FILE                  the command lines of a JSON list in a file

It is a program of its own, for what it calls ends processes. Prints a JSON object: how often there
was which exit code, and what failed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from xml.etree import ElementTree

from damage import MUTATIONS
from synthetic import noisy, plan, synthetic_run

os.environ.pop("COLUMNS", None)  # so that an error and its hint are a line each
EXIT_CODES = frozenset((0, 1, 2, 3, 4, 5, 6, 7, 130))
PATIENCE_S = 30
MOST_FAILURES = 20
DATA = Path(__file__).parent / "data"
FROZEN = DATA / "journal-schema-1.jsonl"
RECORDED = Path(__file__).parent / "golden" / "data" / "runs"

HOSTILE = (
    "\x1b[31m\x1b]0;x\x07", "\u202egnp.exe", "a\rb\nc", "::error::x", "##[error]", "%0A::x",
    "[red]x[/red]", "[/]", "$x^$", "$\\frac{", "_x", "|`<b>*@a", "=1+1", "../../x", "/etc/x",
    "a\0b", "\ud800", "é" * 300, "x" * 9000, "x" * 200_000, "東京", "\u2028", "{0}", "%s", "",
)  # fmt: skip
INTEGERS = ("-1", "0", "1", "2", "3", "10000001", str(2**31), str(2**53))
BIG_INTEGERS = (
    str(2**53 + 1), str(2**63 - 1), "9" * 400, "-" + "9" * 400, str(2**63), str(2**64),
    str(-(2**63) - 1),
)  # fmt: skip
NUMBERS = (*INTEGERS, *BIG_INTEGERS, "1e400", "1e308", "-1e308", "1e300", "1e7", "5e-324", "1e-320",
           "1e-300", "1e-16", "1e-15", "-0.0", "0.5", "-1.5")  # fmt: skip
RAW = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e999999", "9" * 400, "9" * 5000,
    "-" + "9" * 400, str(2**63), str(2**64), str(-(2**63) - 1), str(2**31), "1e-320", "5e-324",
    "1e-16", "1e308", "1e300", "-1", "-0.0", "0", "1", "2", "3", "0.5", "1e7", "10000001",
    "null", "true", "false", "[]", "{}", "[[]]", '{"a": 1}', "[1, 2]", '[1, "a"]',
    "[" * 900 + "]" * 900, "[" * 200_000, '{"a":' * 800 + "1" + "}" * 800, '{"a": [1, {"b": 2}]}',
)  # fmt: skip


class Ended(NamedTuple):
    """How a command ended."""

    code: int | str
    out: str
    err: str


def what_is_wrong(ended: Ended) -> str:
    """Why a command did not end as it should; empty if it did."""
    if ended.code not in EXIT_CODES:
        return f"exit code {ended.code}"
    if "Traceback" in ended.err or "Traceback" in ended.out:
        return "a traceback"
    for text in (ended.out, ended.err):
        if bad := [c for c in text if not (c.isprintable() or c in "\n\t")]:
            return f"printed {bad[0]!r}"
    if ended.code == 2 and not ended.err and ended.out.lstrip().startswith("Usage: "):
        return ""  # no command at all: the help
    said = [line.split(":")[0] for line in ended.err.splitlines()[-2:]]
    if ended.code not in (0, 1, 7) and said != ["error", "hint"]:
        return "not two lines"
    return ""


# Damaged files


def seeds(folder: Path) -> list[tuple[str, bytes]]:
    """Journals and results.csv that are sound: made up, recorded, imported, and of schema 1."""
    asked = plan(
        operations=("all_reduce", "all_gather", "broadcast", "barrier"), sizes=(1024, 4096, 65536),
        dtypes=("float32", "int64"), timing="both",
    )  # fmt: skip
    for name, how in (("a", {"each": 4}), ("b", {"each": 3, "batches": 3})):
        made = lambda case, how=how: noisy(1e-4, case.index, **how)  # noqa: E731
        synthetic_run(folder / name, name, made, asked, launches=1 + (name == "b"))
    shutil.copytree(RECORDED / "stand_in", folder / "c")
    log = str(DATA / "nccl-tests" / "nccl_allreduce.log")
    call(["import", log, "--op", "all_reduce", "--output", str(folder / "imported")])
    made_here = [folder / name for name in ("a", "b", "c", "imported")]
    recorded = [RECORDED / name for name in ("soak", "wrong", "two_nodes", "pairs", "replay")]
    journals = [run / "run.jsonl" for run in (*made_here, *recorded)]
    tables = [folder / name / "results.csv" for name in ("a", "b")] * 2
    found = [("run.jsonl", path.read_bytes()) for path in (*journals, FROZEN)]
    return found + [("results.csv", path.read_bytes()) for path in tables]


def damaged(name: str, content: bytes, chance: Random) -> bytes:
    """The file with one damage or several."""
    how = DAMAGES_JOURNAL if name == "run.jsonl" else DAMAGES_CSV
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
        if content:
            content = chance.choice(how)(content, chance)
    return content


def _as_text(content: bytes, chance: Random) -> bytes:
    """Cut off, other letters, lines or numbers; or a line more."""
    if chance.random() < 0.2:
        lines = content.split(b"\n")
        more = chance.choice((b"", b"{}", b"null", b"[]", b'{"kind": "end"}', b"\xff"))
        lines.insert(chance.randrange(len(lines)), more)
        return b"\n".join(lines)
    text = chance.choice(MUTATIONS)(content.decode("latin-1"), chance)
    return text.encode("latin-1", "replace")


MARK = "\ue000\ue001"


def _value(content: bytes, chance: Random) -> bytes:
    """Another value, key or type somewhere in one line."""
    lines = content.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        line = json.loads(lines[at])
        places = list(_places(line))
    except (ValueError, RecursionError):
        return content
    if not places:
        return content
    holder, key = chance.choice(places)
    raw = chance.choice(RAW if chance.random() < 0.3 else _like(holder[key]))
    how = chance.randrange(12)
    if how == 0 and isinstance(holder, dict):
        del holder[key]
    elif how == 1 and isinstance(holder, dict):
        holder[chance.choice(("surprise", "kind", "schema", *HOSTILE))] = holder[key]
    elif how == 2 or (isinstance(holder[key], str) and how < 11):
        holder[key] = chance.choice(HOSTILE)
    else:
        holder[key] = MARK
    text = json.dumps(line).replace(json.dumps(MARK), raw)
    if how == 11 and text.startswith("{"):
        text = '{"kind": "batch", "schema": 1, ' + text[1:]  # the same keys twice
    lines[at] = text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _like(value: Any) -> tuple[str, ...]:
    """Values of the same type, so that more is looked at than the type."""
    if isinstance(value, list) and value:
        return tuple(f"[{', '.join([one] * len(value))}]" for one in _like(value[0]))
    if isinstance(value, float | int) and not isinstance(value, bool):
        return NUMBERS if isinstance(value, float) else INTEGERS + BIG_INTEGERS
    return RAW


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _everywhere(content: bytes, chance: Random) -> bytes:
    """Every value of one name, in all lines."""
    name = chance.choice(
        ("samples_s", "size_bytes", "count", "operation", "dtype", "status", "timing", "label",
         "world_size", "num_nodes", "calls", "elapsed_s", "seconds", "reduce_op", "placement",
         "reason", "host", "device", "time_s", "statistic", "schema", "rank_behind_s", "last_in",
         "peak", "backend", "cpu_mode", "launch", "root", "wrong", "entry_skew_s")
    )  # fmt: skip
    raw = RAW if chance.random() < 0.5 else NUMBERS
    other = chance.choice((*raw, *(json.dumps(text) for text in HOSTILE)))
    if name in ("samples_s", "rank_behind_s", "last_in") and chance.random() < 0.8:
        other = f"[{other}, {other}]"
    pattern = rf'"{name}": (\[[^\]]*\]|"[^"]*"|[^,}}]+)'.encode()
    return re.sub(pattern, lambda _: f'"{name}": {other}'.encode(), content)


def _field(content: bytes, chance: Random) -> bytes:
    """Another field of a CSV."""
    fields = re.split(rb"([,\n])", content)
    at = chance.randrange(0, len(fields), 2)
    raw = chance.choice((*RAW, *HOSTILE, "nan", "inf", '"', '"a', "a,b", " 1 ", "0x10", "1_0"))
    fields[at] = raw.encode("utf-8", "surrogatepass")
    return b"".join(fields)


def _column(content: bytes, chance: Random) -> bytes:
    """Another value in every row of a column."""
    lines = [line.split(b",") for line in content.split(b"\n")]
    at = chance.randrange(len(lines[0]))
    raw = chance.choice((*RAW, *HOSTILE, "nan", "inf", "")).encode("utf-8", "surrogatepass")
    for line in lines[1:]:
        if at < len(line):
            line[at] = raw
    return b"\n".join(b",".join(line) for line in lines)


Damage = Callable[[bytes, Random], bytes]
DAMAGES_JOURNAL: list[Damage] = [
    _as_text, _as_text, _as_text, _value, _value, _value, _value, _value, _everywhere, _everywhere,
]  # fmt: skip
DAMAGES_CSV: list[Damage] = [_as_text, _as_text, _as_text, _field, _field, _column, _column]


def commands(number: int) -> list[list[str]]:
    """What is done with a damaged file; `x` is its folder, `a` a sound run."""
    new = f"new/{number}"
    return [
        ["show", "x"], ["show", "x", "--format", "nccl-tests", "--peak", "400GB/s/node"],
        ["show", "x", "--peak", "nvlink4"], ["compare", "a", "x", "--force"],
        ["compare", "x", "a", "--force", "--format", "markdown"],
        ["compare", "b", "x", "--format", "csv"],
        ["compare", "b", "x", "a", "--force", "--format", "json"],
        ["check", "x", "--against", "a", "--max-time", "1s", "--min-busbw", "1GB/s",
         "--allow-unmatched", "--force", "--junit", f"{new}.xml"],
        ["check", "a", "--against", "x", "--allow-unmatched", "--force"], ["explain", "x"],
        ["explain", "x", "--op", "all_reduce", "--peak", "nvlink4"],
        ["explain", "x/run.jsonl", "--size", "1K"], ["export", "x", "--format", "csv"],
        ["export", "x", "--format", "json"], ["export", "x", "--format", "markdown"],
        ["export", "x", "--format", "openmetrics"], ["export", "x", "--format", "nccl-tests"],
        ["export", "x", "--format", "csv", "--output", f"{new}.csv"], ["curves", "x", "a"],
    ]  # fmt: skip


class Hung(BaseException):
    """A command took too long."""


def hung(*_: object) -> None:
    raise Hung


def call(line: list[str]) -> Ended:
    """Run a command line in this process."""
    from commbench.analysis.load import open_run
    from commbench.answers.show.plots import run_pictures
    from commbench.cli.main import main
    from commbench.errors import CommbenchError

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code: int | str = 0
    torch = sys.modules.pop("torch", None)  # with it, main() would end this process at once
    signal.alarm(PATIENCE_S)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            if line[0] == "curves":  # what plot reads; drawing takes its time
                with suppress(CommbenchError):
                    run_pictures([open_run(Path(name)) for name in line[1:]])
            else:
                sys.argv = ["commbench", *line]
                main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0
    except Hung:
        code = "none: it hung"
    except BaseException as error:
        code = f"none: {type(error).__name__}: {str(error)[:300]}"
    finally:
        signal.alarm(0)
        if torch:
            sys.modules["torch"] = torch
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return Ended(code, *texts)


def unreadable(line: list[str], ended: Ended) -> str:
    """Why what a command wrote could not be read by others; empty if it could."""
    if ended.code not in (0, 1):
        return ""
    try:
        if "json" in line:
            json.loads(ended.out, parse_constant=int)
        if "csv" in line and "--output" not in line:
            rows = list(csv.reader(io.StringIO(ended.out), strict=True))
            if len({len(row) for row in rows}) != 1:
                return "a CSV of uneven rows"
        if "--junit" in line:
            ElementTree.parse(line[-1])
    except (ValueError, csv.Error, ElementTree.ParseError) as error:
        return f"cannot be read: {error}"
    return ""


def hammer_files(folder: Path, seed: int, count: int, each: int, only: int = -1) -> dict[str, Any]:
    os.chdir(folder)
    signal.signal(signal.SIGALRM, hung)
    sound = seeds(folder)
    codes: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    (folder / "new").mkdir()
    Path("x").mkdir()
    began = time.monotonic()
    for number in range(count) if only < 0 else [only]:
        chance = Random(f"{seed} {number}")
        name, content = chance.choice(sound)
        content = damaged(name, content, chance)
        for other in Path("x").iterdir():
            other.unlink()
        (Path("x") / name).write_bytes(content)
        lines = commands(number)
        chosen = chance.sample(lines, min(each, len(lines)))
        for line in chosen:
            ended = call(line)
            codes[str(ended.code)] += 1
            if wrong := what_is_wrong(ended) or unreadable(line, ended):
                failures.append({
                    "wrong": wrong, "number": number, "line": line, "err": ended.err[-500:],
                    "input": _told(name, content),
                })  # fmt: skip
        if len(failures) >= MOST_FAILURES:
            break
    return {"codes": codes, "failures": failures, "seconds": time.monotonic() - began}


def _told(name: str, content: bytes) -> str:
    return f"{name}, {len(content)} bytes: {content[:600]!r}"


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    place = Path(where)
    if what == "these":
        from fuzz_command_lines import call_these

        told = call_these(place, json.loads(Path(numbers[0]).read_text()))
    elif what == "lines":
        from fuzz_command_lines import fuzz_command_lines

        told = fuzz_command_lines(place, *map(int, numbers))
    else:
        told = hammer_files(place, *map(int, numbers))
    json.dump(told, sys.stdout)
    shutil.rmtree(place / "new", ignore_errors=True)
