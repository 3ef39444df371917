"""What stands open: nothing that a file, a name or a neighbour could come in by."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commands import Commbench, run_commbench, start_command
from listening import listening_while
from synthetic import header, plan, steady, synthetic_run

from commbench.analysis.load import load
from commbench.answers.show.exporters import openmetrics
from commbench.answers.show.plots import draw
from commbench.answers.show.run_document import VIEW, ShownRun
from commbench.answers.sweep.settings import make_settings
from commbench.errors import RecordsError
from commbench.output import text as terminal
from commbench.output.text import BOLD, PLAIN
from commbench.results.journal_reader import read_run
from commbench.results.schema import Measurement
from commbench.views.markdown import escape

PACKAGE = Path(__file__).parents[1] / "commbench"
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in PACKAGE.rglob("*.py")}

OPENS_FILES_AS_CODE = {
    "eval", "exec", "compile", "__import__", "pickle", "cPickle", "dill", "cloudpickle", "marshal",
    "shelve", "joblib", "system", "popen", "runpy", "code", "load_module",
}  # fmt: skip
HARMLESS = {"re.compile"}
MESSAGES = {"worker/call_forms.py": "pickle"}
"""Unpickles what the ranks of a run send each other, as torch's object collectives do; no file."""
LOADS = {
    "torch.load", "numpy.load", "np.load", "pandas.read_pickle", "torch.jit.load",
    "yaml.load", "yaml.safe_load", "yaml.full_load", "yaml.unsafe_load", "yaml.load_all",
}  # fmt: skip
"""YAML is written, never read."""


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_no_file_is_ever_run_or_unpickled() -> None:
    for name, path in SOURCES.items():
        for node in nodes(path):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name.split(".")[0] for alias in node.names]
                names.append((getattr(node, "module", "") or "").split(".")[0])
                assert not (OPENS_FILES_AS_CODE & set(names)) - {MESSAGES.get(name)}, name
            elif isinstance(node, ast.Call):
                called = dotted(node.func)
                assert called not in LOADS, name
                if called not in HARMLESS:
                    assert called.rpartition(".")[2] not in OPENS_FILES_AS_CODE, f"{name}: {called}"
                assert not any(word.arg == "shell" for word in node.keywords), name


def test_pickles_of_others_are_interpreted_by_one_reader_of_plain_values() -> None:
    uses = {
        name
        for name, path in SOURCES.items()
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == "pickletools"
    }
    assert uses == {"readers/plain_pickle.py"}
    own = nodes(SOURCES[uses.pop()])
    imported = {node.module for node in own if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "pickletools", "typing"}
    assert not [node for node in own if isinstance(node, ast.Import)]
    called = {dotted(node.func).rpartition(".")[2] for node in own if isinstance(node, ast.Call)}
    assert not called & {"getattr", "setattr", "__import__", "globals", "vars", "loads", "load"}


def test_a_hostile_dump_and_a_bomb_end_with_two_lines_and_execute_nothing(tmp_path: Path) -> None:
    hostile = b"cos\nsystem\n(S'touch executed'\ntR."
    (tmp_path / "rank_0").write_bytes(b"\x80\x02" + hostile)
    blanks = gzip.compress(b" " * (1 << 20))
    bomb = gzip.compress(b'{"traceEvents": [') + 72 * blanks
    (tmp_path / "bomb.json.gz").write_bytes(bomb)
    for name, why in (("rank_0", "(GLOBAL)"), ("bomb.json.gz", "more than 200 times")):
        ended = run_commbench(tmp_path, "workload", "show", str(tmp_path / name))
        assert (ended.code, ended.out) == (6, "")
        assert why in ended.err
    assert not list(tmp_path.rglob("executed"))


def test_only_one_place_prints() -> None:
    prints = {"typer.echo", "print", "sys.stdout.write", "typer.secho", "click.echo", "rich.print"}
    found = {
        (name, dotted(node.func))
        for name, path in SOURCES.items()
        for node in nodes(path)
        if isinstance(node, ast.Call) and dotted(node.func) in prints
    }
    assert found == {("output/console.py", "typer.echo")}


def test_durations_are_of_clocks_that_nobody_can_set() -> None:
    wall = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today"}
    found = {
        (name, dotted(node.func))
        for name, path in SOURCES.items()
        for node in nodes(path)
        if isinstance(node, ast.Call) and dotted(node.func) in wall
    }
    # A folder's name, when a run was started, when a report was made, and when a run was added to a
    # history: a date each.
    files = (
        "results/run_folder.py", "worker/rank.py", "answers/report.py",
        "answers/history/store.py",
    )  # fmt: skip
    of_file = ("worker/watchdog/watchdog.py", "time.time")  # compared with the date of a file
    assert found == {(name, "datetime.now") for name in files} | {of_file}


def test_a_secret_of_the_environment_is_in_no_file_of_a_run(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    variables = {"AWS_SECRET_ACCESS_KEY": secret, "MY_TOKEN": secret, "NOT_NCCL_DEBUG": secret,
                 "NCCL_IB_TIMEOUT": "23"}  # fmt: skip
    ended = run_commbench(tmp_path, "run", "--sizes", "1K,2K", "--iters", "3", **variables)
    assert ended.code == 0, ended.err
    files = [path for path in ended.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".jsonl", ".csv", ".png"}
    for path in files:
        assert secret.encode() not in path.read_bytes(), path
    assert secret not in ended.out + ended.err
    assert ended.journal()[0]["environment"]["variables"]["NCCL_IB_TIMEOUT"] == "23"
    told = run_commbench(tmp_path, "env", **variables)
    assert re.search(r"^NCCL_IB_TIMEOUT +23$", told.out, re.M) and secret not in told.out


@pytest.mark.parametrize("launcher", ["agent", pytest.param("torchrun", marks=pytest.mark.full)])
def test_on_one_host_nothing_listens_to_other_hosts(tmp_path: Path, launcher: str) -> None:
    process = start_command(
        tmp_path, "run", "--sizes", "1K,4K", "--iters", "100", "--no-plots", "--output", "run",
        "--launcher", launcher,
    )  # fmt: skip
    seen = listening_while(process)
    assert process.returncode == 0, process.communicate()
    assert set(seen) == {"127.0.0.1"}  # gloo's; there is no store that listens
    assert len(seen["127.0.0.1"]) > 3


# Text from files

HOSTILE = (
    "\x1b]0;owned\x07\x1b[31m", "a\rb\nc", "\u202egnp", "::error::x\n::set-output name=a::b",
    "##[error]x", "%0A::error::x", "[red]x[/red][/]", "$x^{$ \\frac{", "_hidden", "a|b`c`<b>*d*",
    "![x](javascript:y)", "https://evil.example www.evil.example", '"}\n# EOF\nx{y="', "\ud800",
    "\x00\x01\ufffe", "=1+1", "../../escape", "/etc/escape", "x" * 5000,
)  # fmt: skip
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ud800-\udfff]")


@pytest.fixture(params=range(len(HOSTILE)), ids=lambda index: ascii(HOSTILE[index])[:20])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A text that stands everywhere in the run `x`, and nowhere in `y`."""
    text = HOSTILE[request.param]
    told = {"torch": text, "processor": text, "host": text, "variables": {"NCCL_X": text}}
    ranks = tuple(
        rank._replace(host=text, device=f"cpu {text}") for rank in header(plan(), "").ranks
    )
    synthetic_run(tmp_path / "x", text, lambda _: steady(1e-4), plan(sizes=(1024, 4096)),
                environment=told, ranks=ranks, launcher=text)  # fmt: skip
    synthetic_run(tmp_path / "y", "y", lambda _: steady(2e-4), plan(sizes=(1024, 4096)))
    return text


def test_a_hostile_text_is_shown_and_not_obeyed(
    hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = read_run(tmp_path / "x")
    bad = Measurement(run.measurements[0].case._replace(reduce_op=hostile), hostile, hostile)
    run = run._replace(measurements=(*run.measurements, bad))
    shown = VIEW.write(ShownRun(run))
    for text in (shown, f"{BOLD}{shown}{PLAIN}"):
        assert not OBEYED.search(terminal.safe(text))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    shown = terminal.safe(VIEW.write(ShownRun(run)))
    assert "::" not in shown
    assert "##[" not in shown
    monkeypatch.delenv("GITHUB_ACTIONS")
    # Drawing takes its time; tests/report/test_plots.py draws "_hidden".
    if set(hostile) & set("$\ud800") or len(hostile) > 1000:
        for file in draw([run, read_run(tmp_path / "y")], tmp_path / "plots"):
            assert file.read_bytes()[:4] == b"\x89PNG"
    marked = escape(hostile)
    assert not re.search(r"[<>|`*\[\]\\~$\n]|://|www\.|@\w", marked)
    lines = openmetrics(load(tmp_path / "x")).splitlines()
    assert lines[-1] == "# EOF"
    assert lines.count("# EOF") == 1
    for line in lines[:-1]:
        assert re.fullmatch(r'# .*|commbench_\w+\{(\w+="([^"\\]|\\["\\n])*",?)*\} \S+', line)


@pytest.mark.parametrize(
    "hostile",
    [9, *(pytest.param(which, marks=pytest.mark.full) for which in (3, 13))],
    indirect=True,
)
def test_commands_show_hostile_text_and_do_not_obey_it(hostile: str, tmp_path: Path) -> None:
    here = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    for line in (
        ("show", "x"),
        ("explain", "x"),
        ("compare", "x", "y", "--force", "--output", "drawn"),
        ("check", "y", "--against", "x", "--force", "--junit", "report.xml"),
        ("show", f"nowhere{hostile[:200]}".replace("\0", "").replace("\ud800", "")),
    ):
        ended = run_commbench(tmp_path, *line, **here)
        assert ended.code in (0, 1, 6), ended.err
        assert not OBEYED.search(ended.out + ended.err)
        own = re.findall(r"^::(?:error|warning) title=", ended.out, re.M)
        assert (ended.out + ended.err).count("::") == 2 * len(own)
    suites = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert suites.tag == "testsuites"
    assert {path.name for path in tmp_path.iterdir()} == {
        "x", "y", "drawn", "report.xml", "summary.md"
    }  # fmt: skip


def test_what_is_exported_to_a_file_is_exact(commbench: Commbench, tmp_path: Path) -> None:
    text = 'é \x1b[1m "quoted", ::x'
    synthetic_run(tmp_path / "x", text, lambda _: steady(1e-4))
    assert commbench("export", "x", "--output", "x.csv").code == 0
    assert commbench("export", "x", "--format", "json", "--output", "x.json").code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    assert {row["label"] for row in rows} == {text}
    assert json.loads((tmp_path / "x.json").read_text())["name"] == text


# Names from data


def test_no_name_from_data_leaves_the_folder(tmp_path: Path) -> None:
    names = ("../../x", "/etc/x", "a\1b", "x" * 5000, "..")
    for number, name in enumerate(names):
        asked = plan(sizes=(1024, 4096))
        synthetic_run(tmp_path / f"in{number}", name, lambda _: steady(1e-4), asked)
        path = tmp_path / f"in{number}" / "results.csv"
        path.write_text(path.read_text().replace(",sum,", f",{name},"))
        with pytest.raises(RecordsError, match=r"reduce_op .* is unknown"):
            load(path)
    kept = {f"in{number}" for number in range(len(names))}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_no_two_settings_share_a_folder() -> None:
    values = ["a/b", "a+b", "a b", "..", "x" * 200 + "1", "x" * 200 + "2", "é", "è"]
    slugs = [setting.slug for setting in make_settings({"A": values}, {})]
    assert len(set(slugs)) == len(values)
    assert all(re.fullmatch(r"[A-Za-z0-9._=+-]{1,140}", slug) for slug in slugs)
