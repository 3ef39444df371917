"""`commbench export` and `import`: every format read back, and nothing overwritten."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import Commbench, run_program_as
from synthetic import plan, steady, synthetic_run

from commbench.analysis.columns import COLUMNS
from commbench.answers.show.exporters import EXPORTERS
from commbench.output.ci import JUnitCase, JUnitSuite, junit_xml

LOG = Path(__file__).parents[1] / "data" / "nccl-tests" / "nccl_allreduce.log"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    asked = plan(operations=("all_reduce", "broadcast", "barrier"), sizes=(1 << 10, 1 << 20))
    return synthetic_run(
        tmp_path / "results" / "20261121-060000-mine", "mine", lambda _: steady(1e-4, 100), asked,
        statuses={1 << 20: "wrong"},
    )  # fmt: skip


SAMPLE = re.compile(r"(?P<name>[a-z_][a-z0-9_]*)\{(?P<labels>.*)\} (?P<value>[0-9.e+-]+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def read_openmetrics(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """The samples of each family by their labels; refuses what the specification forbids."""
    *lines, end = text.split("\n")[:-1]
    assert text.endswith("\n")
    assert end == "# EOF"
    families: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    current = ""
    for line in lines:
        if line.startswith("# "):
            _, kind, name, rest = line.split(" ", 3)
            if kind == "TYPE":
                assert name not in families, "a family's lines stand together"
                assert rest == "gauge"
                families[name], current = {}, name
            assert name == current
            assert kind in ("TYPE", "HELP", "UNIT")
            assert kind != "UNIT" or name.endswith(f"_{rest}")
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match["name"] == current
        labels = tuple(LABEL.findall(match["labels"]))
        assert "".join(LABEL.sub("", match["labels"])) == ""
        assert labels not in families[current], "one sample for a set of labels"
        families[current][labels] = float(match["value"])
    return families


def test_openmetrics_is_what_the_specification_asks(commbench: Commbench, folder: Path) -> None:  # noqa: ARG001
    families = read_openmetrics(commbench("export", "mine", "--format", "openmetrics").out)
    assert len(families["commbench_time_seconds"]) == 3  # not those of wrong results
    assert set(families["commbench_time_seconds"].values()) == {1e-4}
    assert len(families["commbench_busbw_bytes_per_second"]) == 2  # not the barrier
    assert sorted(families["commbench_row_ok"].values()) == [0, 0, 1, 1, 1]
    assert (dict(next(iter(families["commbench_busbw_bytes_per_second"]))), "") == (
        {
            "label": "mine", "operation": "all_reduce", "dtype": "float32", "reduce_op": "sum",
            "placement": "in_place", "timing": "isolated", "launch_mode": "eager",
            "buffers": "hot", "tensors": "1", "form": "direct", "memory": "default",
            "cpu_mode": "quiet", "backend": "gloo", "device": "cpu", "world_size": "2",
            "num_nodes": "1", "size_bytes": "1024",
        }, "",
    )  # fmt: skip


@pytest.mark.usefixtures("folder")
def test_the_help_of_a_time_says_which_statistic_it_is(commbench: Commbench) -> None:
    assert commbench("import", str(LOG), "--op", "all_reduce", "--output", "log").code == 0
    for run, statistic in (
        ("mine", "median over iterations, slowest rank"),
        ("log", "mean over 20 calls, mean over ranks"),
    ):
        text = commbench("export", run, "--format", "openmetrics").out
        assert f"# HELP commbench_time_seconds Time of a call: {statistic}\n" in text
        families = read_openmetrics(text)
        assert re.findall(r"(?m)^# HELP (\w+) \S", text) == list(families)


def test_openmetrics_refuses_what_would_be_one_series(commbench: Commbench, folder: Path) -> None:
    path = folder / "rows.csv"
    lines = (folder / "results.csv").read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1].replace("mine", "other", 1)]))
    ended = commbench("export", str(path), "--format", "openmetrics")
    assert ended.code == 6
    assert "has two rows of all_reduce float32 sum in_place 1 KiB: lines 2 and 7" in ended.err


@pytest.mark.skipif(find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_parquet_holds_the_same_rows(
    commbench: Commbench, folder: Path, tmp_path: Path
) -> None:  # pragma: no cover
    import pandas

    assert commbench("export", "mine", "--format", "parquet", "--output", "x.parquet").code == 0
    frame = pandas.read_parquet(tmp_path / "x.parquet")
    assert frame.to_csv(index=False, lineterminator="\n") == (folder / "results.csv").read_text()


WITHOUT_PYARROW = """
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name, *more: None if name == "pyarrow" else found(name, *more)
"""


def test_parquet_without_pyarrow_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    ended = run_program_as(tmp_path, WITHOUT_PYARROW, "export", str(folder), "--format", "parquet")
    assert (ended.code, ended.err) == (
        3,
        "error: parquet needs pyarrow, which is not installed\nhint: pip install 'pyarrow>=15'\n",
    )


WRITE_A_FILE = (
    "export mine --format csv --output PLACE",
    "job slurm --nodes 1 --nproc-per-node 2 --output PLACE -- --op barrier",
    "check mine --max-time 1s --junit PLACE",
)
WRITE_A_FOLDER = (
    f"import {LOG} --op all_reduce --output PLACE",
    "plot mine --output PLACE",
    "run --sizes 1K --output PLACE",
)


def test_a_junit_file_of_commbench_is_replaced_and_nothing_else(
    commbench: Commbench, tmp_path: Path
) -> None:
    synthetic_run(tmp_path / "mine", "mine", lambda _: steady(1e-4, 100))

    def check(limit: str) -> int:
        return commbench("check", "mine", "--max-time", limit, "--junit", "ci.xml").code

    place, others = tmp_path / "ci.xml", sorted(tmp_path.iterdir())
    assert check("1s") == 0
    passed = place.read_bytes()
    assert check("1ns") == 1 and place.read_bytes() != passed
    smoke = junit_xml([JUnitSuite("commbench smoke", [JUnitCase("all_reduce")])])
    place.write_bytes(smoke)
    assert check("1s") == 0 and place.read_bytes() == passed
    assert sorted(tmp_path.iterdir()) == sorted([*others, place])
    (tmp_path / "linked.xml").write_bytes(passed)
    named = smoke.replace(b"<testsuites ", b'<testsuites name="pytest" ')
    foreign = named, smoke.replace(b"commbench smoke", b"pytest"), b"", passed[:30], b"x" + passed
    for content in (*foreign, None):
        place.unlink()
        place.write_bytes(content) if content is not None else place.symlink_to("linked.xml")
        before = place.read_bytes()
        assert check("1s") == 6 and place.read_bytes() == before
    assert place.is_symlink()


def test_a_page_of_commbench_is_replaced_by_a_report_and_nothing_else(
    commbench: Commbench, tmp_path: Path
) -> None:
    synthetic_run(tmp_path / "mine", "mine", lambda _: steady(1e-4, 100))
    synthetic_run(tmp_path / "other", "other", lambda _: steady(1e-4, 100))
    place, others = tmp_path / "page.html", sorted(tmp_path.iterdir())
    reports = []
    for run in ("mine", "other"):
        assert commbench("report", run, "-o", "page.html").code == 0
        reports.append(place.read_bytes())
    assert reports[0] != reports[1]
    assert sorted(tmp_path.iterdir()) == sorted([*others, place])
    for content in (b"", reports[0][:90], b"x" + reports[0], b"<!doctype html>\ncommbench"):
        place.write_bytes(content)
        assert commbench("report", "mine", "-o", "page.html").code == 6
        assert place.read_bytes() == content
    assert [commbench("report", "mine", "-o", "page.md").code for _ in range(2)] == [0, 6]


@pytest.mark.parametrize("line", [*WRITE_A_FILE, *WRITE_A_FOLDER])
def test_every_command_treats_files_and_folders_in_the_way_alike(
    commbench: Commbench, tmp_path: Path, line: str
) -> None:
    """A file is never overwritten, and its folder is there; a folder is made, with those above it,
    and a file in the way is named."""
    asked = plan(sizes=(1024, 2048), dtypes=("float32",))
    synthetic_run(tmp_path / "results" / "mine", "mine", asked=asked)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("precious")
    hint = "hint: choose another name: nothing is overwritten"
    refused = {
        "file": ("file exists", hint),
        "full": ("full is a folder", "hint: name a file: full/NAME"),
        "file/new": ("there is no folder file", "hint: make it first, or choose another folder"),
        "new/deep": ("there is no folder new", "hint: make it first, or choose another folder"),
    }
    if line in WRITE_A_FOLDER:
        del refused["new/deep"]
        hint = "hint: choose another folder: nothing is overwritten"
        in_the_way = ("file is not a folder", "hint: choose another folder")
        refused |= dict.fromkeys(("file", "file/new"), in_the_way)
        refused["full"] = ("full exists and is not empty", hint)
    if line.startswith("plot"):
        del refused["full"]  # plots are added to those of a run's folder
    for place, (message, advice) in refused.items():
        ended = commbench(*line.replace("PLACE", place).split())
        assert ended.code == 6, ended.err
        assert ended.err.splitlines()[-2:] == [f"error: {message}", advice]
    assert (tmp_path / "file").read_text() == "precious"
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
    if line in WRITE_A_FOLDER and not line.startswith("run"):
        assert commbench(*line.replace("PLACE", "new/deep").split()).code == 0
        assert (tmp_path / "new" / "deep").exists()


NEED_TIMES = ("autoparallel", "inductor")
"""Tables of a compiler's cost model: without a time they would be none."""


@pytest.mark.parametrize(
    "name", [name for name in EXPORTERS if name not in ("parquet", "nccl-tests", *NEED_TIMES)]
)
def test_every_format_takes_a_run_without_rows(
    commbench: Commbench, tmp_path: Path, name: str
) -> None:
    (tmp_path / "results.csv").write_text(",".join(COLUMNS) + "\n")
    ended = commbench("export", "results.csv", "--format", name)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "all_to_all"])
def test_a_log_becomes_a_run_with_every_row(commbench: Commbench, operation: str) -> None:
    log = LOG.with_name(f"nccl_{operation.replace('_', '')}.log")
    ended = commbench("import", str(log), "--op", operation, "--output", "run").good()
    rows = ended.rows()
    printed = re.findall(r"(?m)^ +[1-9]\d* ", log.read_text())
    assert len(rows) == 2 * len(printed) > 30  # out of place and in place
    seen = {tuple(row[name] for name in ("operation", "world_size", "backend", "timing"))
            for row in rows}  # fmt: skip
    assert seen == {(operation, "8", "nccl", "pipelined")}
    shown = commbench("show", "run")
    assert (shown.code, shown.out) == (0, ended.out)
    assert "mean over 20 calls, mean over ranks" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 100
